//! Which sessions are there? Those that are live, and those that could be. Source: daemon specification, §d.

use std::collections::BTreeSet;
use std::path::Path;

use convoke_protocol::daemon::dto::SessionSummary;
use http::StatusCode;
use serde_json::{Value, json};

use super::Incoming;
use super::session::mismatch;
use crate::driver::View;
use crate::http_error::HttpError;
use crate::respond::{self, Reply};
use crate::service::Service;

/// Sessions in one page of a list that names no size.
const PAGE: usize = 20;

/// Sessions in one page at most: every session that the default limits allow.
const PAGE_MAX: usize = 1000;

/// The sessions of a workspace that are live and those that can be loaded, newest first.
pub(crate) fn known(view: &View<'_>, workspace: &str) -> Vec<SessionSummary> {
    let mut sessions = view.bridge.sessions(workspace);
    let live: BTreeSet<_> = sessions.iter().map(|session| session.status.session_id.clone()).collect();
    let stored = view.agents.store().summaries();
    sessions.extend(stored.filter(|session| !live.contains(&session.status.session_id)));
    // The times are of one length and zone, so they sort as text.
    sessions.sort_by(|a, b| b.status.created_at.cmp(&a.status.created_at));
    sessions
}

/// `GET /workspace/:id/sessions`: the sessions that are live and those that can be loaded, newest first. The cursor is the
/// last session of the page before.
pub(super) async fn list(service: &Service, incoming: &Incoming<'_>, workspace: &str) -> Result<Reply, HttpError> {
    let bound = service.facts.workspace.clone();
    if workspace != service.facts.workspace_id && Path::new(workspace) != Path::new(&bound) {
        let text = format!("Workspace mismatch: daemon is bound to \"{bound}\"");
        return Err(mismatch(&text, &bound, workspace));
    }
    let size = incoming.query("size").and_then(|size| size.parse().ok()).unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let cursor = incoming.query("cursor");
    let archived = incoming.query("archiveState").as_deref() == Some("archived");
    let sessions = service.handle.look(move |view| known(view, &bound)).await?;
    let sessions = if archived { Vec::new() } else { sessions };
    let start = cursor
        .and_then(|cursor| sessions.iter().position(|s| s.status.session_id.as_str() == cursor))
        .map_or(0, |position| position + 1);
    let rest = sessions.get(start..).unwrap_or_default();
    let page = rest.get(..size.min(rest.len())).unwrap_or_default();
    let mut body = json!({"sessions": page});
    if let (Value::Object(fields), Some(last)) = (&mut body, page.last().filter(|_| rest.len() > page.len())) {
        fields.insert("nextCursor".to_owned(), json!(last.status.session_id));
    }
    Ok(respond::json(StatusCode::OK, &body))
}
