//! What a session works with: its models, modes, options and commands; looked at and changed. Source: daemon
//! specification, §d.

use convoke_bridge::Refusal;
use convoke_protocol::{ApprovalMode, SessionId};
use http::StatusCode;
use serde_json::{Value, json};

use super::Incoming;
use crate::http_error::HttpError;
use crate::respond::{self, Reply};
use crate::service::Service;

/// Bytes of a model's name. Names are some tens of bytes; this one goes to every client in an event.
const MODEL_ID_MAX: usize = 512;

/// `GET /session/:id/context`: what the agent told of the session, and how full its window is where it tells that.
pub(super) async fn context(service: &Service, id: &str) -> Result<Reply, HttpError> {
    let session = SessionId::from(id);
    let workspace = service.facts.workspace.clone();
    let body = service.handle.look(move |view| {
        let state = view.hosted(&session)?.state();
        let mut body = json!({
            "v": 1,
            "sessionId": session,
            "workspaceCwd": workspace,
            "recovery": {"kind": "clean", "canContinue": false},
            "state": state.wire(),
        });
        if let (Value::Object(fields), Some(usage)) = (&mut body, state.usage()) {
            fields.insert("usage".to_owned(), usage.clone());
        }
        Ok::<_, Refusal>(body)
    });
    Ok(respond::json(StatusCode::OK, &body.await??))
}

/// `GET /session/:id/supported-commands`: the agent's slash commands, as it announced them last.
pub(super) async fn commands(service: &Service, id: &str) -> Result<Reply, HttpError> {
    let session = SessionId::from(id);
    let commands = service.handle.look(move |view| view.hosted(&session).map(|hosted| hosted.state().commands()));
    let (commands, skills) = commands.await??;
    let body = json!({"v": 1, "sessionId": id, "availableCommands": commands, "availableSkills": skills});
    Ok(respond::json(StatusCode::OK, &body))
}

/// `POST /session/:id/model`: the agent changes its model, or says why it does not. The answer is the agent's.
pub(super) async fn model(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    let model = incoming.text("modelId").filter(|model| !model.trim().is_empty() && model.len() <= MODEL_ID_MAX);
    let missing = || HttpError::malformed("`modelId` is required and must be a non-empty string");
    let model = model.ok_or_else(missing)?.to_owned();
    let answer = service.handle.set_model(SessionId::from(id), client, model).await?;
    let body = if answer.is_object() { answer } else { json!({}) };
    Ok(respond::json(StatusCode::OK, &body))
}

/// `POST /session/:id/approval-mode`: the agent changes its mode; nothing is written to settings.
pub(super) async fn approval_mode(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let client = incoming.client()?;
    let mode = incoming.fields.get("mode").and_then(read_mode);
    let mode = mode.ok_or_else(|| invalid_mode("`mode` is required and must be"))?;
    let previous = service.handle.set_mode(SessionId::from(id), client, mode).await?;
    let body = json!({"sessionId": id, "mode": mode.wire(), "previous": previous.wire(), "persisted": false});
    Ok(respond::json(StatusCode::OK, &body))
}

/// A mode as the wire spells it.
pub(super) fn read_mode(value: &Value) -> Option<ApprovalMode> {
    value.as_str().and_then(|text| ApprovalMode::ALL.into_iter().find(|mode| mode.wire() == text))
}

/// The refusal of a mode that is none.
pub(super) fn invalid_mode(subject: &str) -> HttpError {
    let body = json!({
        "error": format!("{subject} one of the allowed values"),
        "code": "invalid_approval_mode",
        "allowed": ApprovalMode::ALL.map(ApprovalMode::wire),
    });
    HttpError::new(StatusCode::BAD_REQUEST, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_spelled_as_on_the_wire() {
        assert_eq!(read_mode(&json!("auto-edit")), Some(ApprovalMode::AutoEdit));
        for bad in [json!("auto_edit"), json!("autoEdit"), json!("auto"), json!(5), json!(null)] {
            assert_eq!(read_mode(&bad), None, "{bad}");
        }
    }
}
