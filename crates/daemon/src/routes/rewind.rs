//! Taking a session back to before a prompt. Source: `POST /session/:id/rewind` and `GET /session/:id/rewind/snapshots` of the
//! peer; what it does not have (`what`, `force`, conflicts) is added.
//!
//! The agent does it. What it can be expected to refuse is told by a status and a code; the audit and permission requests
//! are no part of what goes back.

use convoke_bridge::{Refusal, StartFailure};
use convoke_protocol::SessionId;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::Incoming;
use crate::agents::rewind::Done;
use crate::http_error::HttpError;
use crate::respond::{self, Reply};
use crate::service::Service;

/// JSON-RPC's word for a method that is not there.
const NO_METHOD: i64 = -32601;

/// `GET /session/:id/rewind/snapshots`: the points, oldest first.
pub(super) async fn snapshots(service: &Service, id: &str) -> Result<Reply, HttpError> {
    let answer = service.handle.rewind_points(SessionId::from(id)).await.map_err(refused)?;
    if answer.get("outcome").and_then(Value::as_str) == Some("unavailable") {
        return Err(unsupported(answer.get("why").and_then(Value::as_str).unwrap_or_default()));
    }
    let points = answer.get("points").and_then(Value::as_array).into_iter().flatten();
    let snapshots: Vec<Value> = points.map(snapshot).collect();
    Ok(respond::json(StatusCode::OK, &json!({"snapshots": snapshots})))
}

fn snapshot(point: &Value) -> Value {
    let number = |pointer: &str| point.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    json!({
        "promptId": point.get("messageId"),
        "turnIndex": number("/number").saturating_sub(1),
        "timestamp": point.get("at"),
        "diffStats": {
            "filesChanged": number("/turn/files"),
            "insertions": number("/turn/added"),
            "deletions": number("/turn/removed"),
        },
        "prompt": point.get("prompt"),
        "filesSince": number("/filesTotal"),
        "lasting": point.get("lasting"),
    })
}

/// `POST /session/:id/rewind`.
pub(super) async fn rewind(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    let missing =
        || HttpError::bad_request("`promptId` is required and must be a non-empty string", "missing_prompt_id");
    let to = incoming.text("promptId").filter(|to| !to.is_empty()).ok_or_else(missing)?;
    let files = flag(incoming, "rewindFiles", "invalid_rewind_files_flag")?.unwrap_or(true);
    let what = match incoming.fields.get("what") {
        None | Some(Value::Null) => {
            if files {
                "both"
            } else {
                "conversation"
            }
        }
        Some(what) => {
            what.as_str().filter(|what| matches!(*what, "conversation" | "files" | "both")).ok_or_else(|| {
                HttpError::bad_request("`what` must be \"conversation\", \"files\" or \"both\"", "invalid_rewind_what")
            })?
        }
    };
    let force = flag(incoming, "force", "invalid_force_flag")?.unwrap_or(false);
    let fields = Map::from_iter([
        ("to".to_owned(), json!(to)),
        ("what".to_owned(), json!(what)),
        ("force".to_owned(), json!(force)),
    ]);
    let answer = service.handle.rewind(SessionId::from(id), client, fields).await.map_err(refused)?;
    let Some(done) = Done::of(&answer) else { return Err(no(id, to, &answer)) };
    let body = json!({
        "rewound": done.files_failed.is_empty(),
        "targetTurnIndex": done.turn_index,
        "filesChanged": done.files_changed,
        "filesFailed": done.files_failed,
        "prompt": answer.get("prompt"),
    });
    Ok(respond::json(StatusCode::OK, &body))
}

fn flag(incoming: &Incoming<'_>, name: &str, code: &'static str) -> Result<Option<bool>, HttpError> {
    match incoming.fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(HttpError::bad_request(&format!("`{name}` must be a boolean when provided"), code)),
    }
}

/// An answer of the agent's that says no.
fn no(session: &str, to: &str, answer: &Value) -> HttpError {
    let why = answer.get("why").and_then(Value::as_str).unwrap_or_default();
    match answer.get("outcome").and_then(Value::as_str) {
        Some("busy") => {
            let text = format!("Session \"{session}\" is in a turn; rewind it when the turn is over");
            let body = json!({"error": text, "code": "session_busy", "sessionId": session});
            HttpError::new(StatusCode::CONFLICT, body).retry_soon()
        }
        Some("unknown_point") => {
            let text = format!("Session \"{session}\" has no prompt \"{to}\" to go back to");
            let body = json!({"error": text, "code": "rewind_point_not_found", "sessionId": session, "promptId": to});
            HttpError::new(StatusCode::NOT_FOUND, body)
        }
        Some("conflicts") => {
            let text =
                "Somebody else changed files that would be taken back; nothing was. Set `force` to take them back too";
            let body = json!({"error": text, "code": "rewind_conflict", "sessionId": session,
                "conflicts": answer.get("conflicts")});
            HttpError::new(StatusCode::CONFLICT, body)
        }
        Some("unavailable") => unsupported(why),
        _ => {
            let body = json!({"error": format!("The session was not taken back: {why}"), "code": "rewind_failed"});
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, body)
        }
    }
}

/// The agent knows nothing of going back, or not for this session.
fn unsupported(why: &str) -> HttpError {
    HttpError::bad_request(&format!("This session can't be taken back: {why}"), "rewind_unsupported")
}

fn refused(refusal: Refusal) -> HttpError {
    match &refusal {
        Refusal::StartFailed(StartFailure::Agent { code: NO_METHOD, .. }) => {
            unsupported("its agent has no such method")
        }
        other => other.into(),
    }
}
