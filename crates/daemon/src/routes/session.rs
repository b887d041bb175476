//! Sessions: created, joined, left, named, listed, closed. Source: daemon specification, §d and §h.

use std::path::Path;

use bytes::Bytes;
use convoke_bridge::{Answer, CreateRequest, Input, Journal, Refusal, SessionAnswer, SessionProfile, SessionScope};
use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::{ClientId, SessionId};
use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::{Uuid, Variant};

use super::Incoming;
use super::context::{invalid_mode, read_mode};
use crate::agents::Hosted;
use crate::http_error::HttpError;
use crate::respond::{self, Reply};
use crate::service::Service;

/// `POST /session`: the workspace's shared session, or one of the caller's own.
pub(super) async fn create(service: &Service, incoming: &Incoming<'_>) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    check_workspace(service, incoming)?;
    let request = CreateRequest {
        workspace: service.facts.workspace.clone(),
        scope: scope(incoming)?,
        session: chosen_id(incoming)?,
        client,
        minted: mint(),
        profile: SessionProfile {
            model_service_id: incoming.text("modelServiceId").filter(|id| !id.is_empty()).map(str::to_owned),
            approval_mode: match incoming.fields.get("approvalMode") {
                None | Some(Value::Null) => None,
                Some(mode) => Some(read_mode(mode).ok_or_else(|| invalid_mode("`approvalMode` must be"))?),
            },
            source_type: incoming.text("sourceType").map(str::to_owned),
            source_id: incoming.text("sourceId").map(str::to_owned),
        },
    };
    let sources =
        [("sourceType", request.profile.source_type.clone()), ("sourceId", request.profile.source_id.clone())];
    let asks_for_model = request.profile.model_service_id.is_some();
    let answer = session_answer(service.handle.call(|call| Input::Create { call, request }).await?)?;
    let mut body = created(&answer);
    if !answer.created.attached {
        let given = sources.into_iter().filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?))));
        body.extend(given);
        if asks_for_model {
            let session = answer.created.session_id;
            let applied = service.handle.look(move |view| view.hosted(&session).map(Hosted::model_applied)).await?;
            body.extend(applied.ok().flatten().map(|applied| ("modelApplied".to_owned(), Value::Bool(applied))));
        }
    }
    Ok(respond::json(StatusCode::OK, &body))
}

/// `POST /session/:id/load`: joins a live session, or restores one, with the events that are kept of it.
pub(super) async fn load(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let answer = restore(service, incoming, id).await?;
    let session = answer.created.session_id.clone();
    let seen = service.handle.look(move |view| {
        let state = view.hosted(&session)?.state().wire();
        Ok::<_, Refusal>((view.bridge.journal(&session)?, state))
    });
    let (Journal { frames, last_event_id, epoch }, state) = seen.await??;
    let mut body = created(&answer);
    body.insert("state".to_owned(), state);
    body.insert("compactedReplay".to_owned(), json!([]));
    body.insert("lastEventId".to_owned(), json!(last_event_id));
    body.insert("eventEpoch".to_owned(), json!(epoch));
    Ok(respond::json_bytes(StatusCode::OK, with_journal(&body, &frames)))
}

/// Adds the frames as `liveJournal`. They were encoded when they were numbered; megabytes of them are not read again.
fn with_journal(body: &Map<String, Value>, frames: &[EncodedFrame]) -> Bytes {
    // A map of JSON values can't fail to encode into memory.
    let mut bytes = serde_json::to_vec(body).unwrap_or_default();
    if bytes.pop() == Some(b'}') {
        bytes.extend_from_slice(b",\"liveJournal\":[");
        for (position, frame) in frames.iter().enumerate() {
            if position > 0 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(&frame.json);
        }
        bytes.extend_from_slice(b"]}");
    }
    Bytes::from(bytes)
}

/// `POST /session/:id/resume`: as load, without the events.
pub(super) async fn resume(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let answer = restore(service, incoming, id).await?;
    let session = answer.created.session_id.clone();
    let state = service.handle.look(move |view| view.hosted(&session).map(|hosted| hosted.state().wire())).await??;
    let mut body = created(&answer);
    body.insert("state".to_owned(), state);
    body.insert("lastEventId".to_owned(), json!(answer.last_event_id));
    body.insert("eventEpoch".to_owned(), json!(answer.epoch));
    Ok(respond::json(StatusCode::OK, &body))
}

async fn restore(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<SessionAnswer, HttpError> {
    let client = incoming.client()?;
    check_workspace(service, incoming)?;
    let (session, workspace) = (SessionId::from(id), service.facts.workspace.clone());
    let call = service.handle.call(|call| Input::Restore { call, session, workspace, client, minted: mint() });
    session_answer(call.await?)
}

fn mint() -> ClientId {
    ClientId(format!("client_{}", Uuid::new_v4()))
}

fn session_answer(answer: Answer) -> Result<SessionAnswer, HttpError> {
    match answer {
        Answer::Session(answer) => Ok(answer),
        _ => Err(HttpError::internal()),
    }
}

fn created(answer: &SessionAnswer) -> Map<String, Value> {
    match serde_json::to_value(&answer.created) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn check_workspace(service: &Service, incoming: &Incoming<'_>) -> Result<(), HttpError> {
    let bound = service.facts.workspace.as_str();
    let cwd = match incoming.fields.get("cwd") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(cwd)) => cwd,
        Some(_) => return Err(HttpError::malformed("`cwd` must be a string absolute path when provided")),
    };
    if !Path::new(cwd).is_absolute() {
        return Err(HttpError::malformed("`cwd` must be an absolute path when provided"));
    }
    // Paths compare by their parts, so a slash at the end makes no difference.
    if Path::new(cwd) == Path::new(bound) {
        return Ok(());
    }
    Err(mismatch(
        &format!(
            "Workspace mismatch: runtime is bound to \"{bound}\" but request asked for \"{cwd}\". Start another daemon \
             for that folder; this one will not fall back to its own."
        ),
        bound,
        cwd,
    ))
}

fn mismatch(text: &str, bound: &str, requested: &str) -> HttpError {
    let body = json!({
        "error": text,
        "code": "workspace_mismatch",
        "boundWorkspace": bound,
        "requestedWorkspace": requested,
    });
    HttpError::new(StatusCode::BAD_REQUEST, body)
}

fn scope(incoming: &Incoming<'_>) -> Result<SessionScope, HttpError> {
    match incoming.fields.get("sessionScope") {
        None | Some(Value::Null) => Ok(SessionScope::Single),
        Some(Value::String(scope)) if scope == "single" => Ok(SessionScope::Single),
        Some(Value::String(scope)) if scope == "thread" => Ok(SessionScope::Thread),
        Some(_) => Err(HttpError::bad_request(
            "`sessionScope` must be \"single\" or \"thread\" when provided",
            "invalid_session_scope",
        )),
    }
}

/// The id that a caller chose, in lower case.
fn chosen_id(incoming: &Incoming<'_>) -> Result<Option<SessionId>, HttpError> {
    let chosen = match incoming.fields.get("sessionId") {
        None | Some(Value::Null) => return Ok(None),
        Some(chosen) => chosen.as_str().filter(|text| is_rfc_uuid(text)),
    };
    match chosen {
        Some(chosen) => Ok(Some(SessionId(chosen.to_ascii_lowercase()))),
        None => Err(HttpError::bad_request(
            "`sessionId` must be an RFC UUID v1-v5 (e.g. \"550e8400-e29b-41d4-a716-446655440000\")",
            "invalid_session_id",
        )),
    }
}

fn is_rfc_uuid(text: &str) -> bool {
    // The parser takes other spellings, too: without hyphens, in braces, as a URN.
    text.len() == 36
        && Uuid::try_parse(text)
            .is_ok_and(|id| id.get_variant() == Variant::RFC4122 && (1..=5).contains(&id.get_version_num()))
}

/// `DELETE /session/:id`: closes it for everyone.
pub(super) async fn close(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    service.handle.call(|call| Input::Close { call, session, caller }).await?;
    Ok(respond::no_content())
}

/// `GET /session/:id/status`.
pub(super) async fn status(service: &Service, id: &str) -> Result<Reply, HttpError> {
    let session = SessionId::from(id);
    let status = service.handle.look(move |view| view.bridge.status(&session)).await??;
    Ok(respond::json(StatusCode::OK, &status))
}

/// `POST /session/:id/heartbeat`.
pub(super) async fn heartbeat(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    let client = caller.client.clone();
    let answer = service.handle.call(|call| Input::Heartbeat { call, session, caller }).await?;
    let Answer::Heartbeat { last_seen_at } = answer else { return Err(HttpError::internal()) };
    let mut body = json!({"sessionId": id});
    if let Value::Object(fields) = &mut body {
        fields.extend(client.map(|client| ("clientId".to_owned(), json!(client))));
        fields.insert("lastSeenAt".to_owned(), json!(last_seen_at));
    }
    Ok(respond::json(StatusCode::OK, &body))
}

/// `POST /session/:id/detach`: always 204; there is nothing to learn about sessions or ids here.
pub(super) async fn detach(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    service.handle.tell(Input::Detach { session: SessionId::from(id), client }).await?;
    Ok(respond::no_content())
}

/// `PATCH /session/:id/metadata`: names the session, or tells its name.
pub(super) async fn metadata(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    let display_name = match incoming.fields.get("displayName") {
        None => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => {
            let body = json!({
                "error": "`displayName` must be a string",
                "code": "invalid_metadata",
                "field": "displayName",
            });
            return Err(HttpError::new(StatusCode::BAD_REQUEST, body));
        }
    };
    let answer = service.handle.call(|call| Input::SetMetadata { call, session, caller, display_name }).await?;
    let Answer::Metadata { display_name } = answer else { return Err(HttpError::internal()) };
    let mut body = json!({"sessionId": id});
    if let (Value::Object(fields), Some(name)) = (&mut body, display_name) {
        fields.insert("displayName".to_owned(), Value::String(name));
    }
    Ok(respond::json(StatusCode::OK, &body))
}

/// Sessions in one page of a list that names no size.
const PAGE: usize = 20;

/// Sessions in one page at most: every session that the default limits allow.
const PAGE_MAX: usize = 1000;

/// `GET /workspace/:id/sessions`: the live sessions, newest first. The cursor is the last session of the page before.
pub(super) async fn list(service: &Service, incoming: &Incoming<'_>, workspace: &str) -> Result<Reply, HttpError> {
    let bound = service.facts.workspace.clone();
    if workspace != service.facts.workspace_id && Path::new(workspace) != Path::new(&bound) {
        let text = format!("Workspace mismatch: daemon is bound to \"{bound}\"");
        return Err(mismatch(&text, &bound, workspace));
    }
    let size = incoming.query("size").and_then(|size| size.parse().ok()).unwrap_or(PAGE).clamp(1, PAGE_MAX);
    let cursor = incoming.query("cursor");
    let archived = incoming.query("archiveState").as_deref() == Some("archived");
    let sessions = service.handle.look(move |view| view.bridge.sessions(&bound)).await?;
    let live = if archived { Vec::new() } else { sessions };
    let start = cursor
        .and_then(|cursor| live.iter().position(|s| s.status.session_id.as_str() == cursor))
        .map_or(0, |position| position + 1);
    let rest = live.get(start..).unwrap_or_default();
    let page = rest.get(..size.min(rest.len())).unwrap_or_default();
    let mut body = json!({"sessions": page});
    if let (Value::Object(fields), Some(last)) = (&mut body, page.last().filter(|_| rest.len() > page.len())) {
        fields.insert("nextCursor".to_owned(), json!(last.status.session_id));
    }
    Ok(respond::json(StatusCode::OK, &body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_ids_are_rfc_uuids() {
        for (text, expected) in [
            ("550e8400-e29b-41d4-a716-446655440000", true),
            ("550E8400-E29B-41D4-A716-446655440000", true),
            ("11111111-1111-1111-8111-111111111111", true),
            ("550e8400-e29b-71d4-a716-446655440000", false),
            ("550e8400-e29b-01d4-a716-446655440000", false),
            ("550e8400-e29b-41d4-c716-446655440000", false),
            ("550e8400e29b41d4a716446655440000", false),
            ("{550e8400-e29b-41d4-a716-446655440000}", false),
            ("not-a-uuid", false),
            ("", false),
        ] {
            assert_eq!(is_rfc_uuid(text), expected, "{text}");
        }
    }
}
