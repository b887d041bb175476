//! Prompts: sent, cancelled, looked at. Source: daemon specification, §d.

use std::time::Duration;

use convoke_bridge::{Answer, Input};
use convoke_protocol::{PromptId, SessionId};
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Incoming;
use crate::body::Fields;
use crate::http_error::HttpError;
use crate::respond::{self, Reply};
use crate::service::Service;

/// `POST /session/:id/prompt`: 202 at once; the turn's end is an event. A session that ended with its agent comes back.
pub(super) async fn send(service: &Service, incoming: Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let caller = incoming.caller()?;
    let mut fields = incoming.fields;
    let blocks = blocks(&mut fields)?;
    let deadline = deadline(&fields)?;
    let prompt_id = PromptId(Uuid::new_v4().to_string());
    let session = SessionId::from(id);
    let revived = super::session::revive(service, &session, caller.client.as_ref()).await?;
    let call = service.handle.call(|call| Input::Prompt { call, session, caller, prompt_id, blocks, deadline });
    let Answer::Prompt(accepted) = call.await? else { return Err(HttpError::internal()) };
    let Some(client) = revived else { return Ok(respond::json(StatusCode::ACCEPTED, &accepted)) };
    let body = json!({
        "promptId": accepted.prompt_id,
        "lastEventId": accepted.last_event_id,
        "eventEpoch": accepted.event_epoch,
        "clientId": client,
    });
    Ok(respond::json(StatusCode::ACCEPTED, &body))
}

fn blocks(fields: &mut Fields) -> Result<Vec<Value>, HttpError> {
    match fields.remove("prompt") {
        Some(Value::Array(blocks)) if !blocks.is_empty() => {
            if blocks.iter().all(Value::is_object) {
                Ok(blocks)
            } else {
                Err(HttpError::malformed("each `prompt` element must be an object (content block)"))
            }
        }
        _ => Err(HttpError::malformed("`prompt` is required and must be a non-empty array of content blocks")),
    }
}

fn deadline(fields: &Fields) -> Result<Option<Duration>, HttpError> {
    match fields.get("deadlineMs") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|millis| *millis > 0) {
            Some(millis) => Ok(Some(Duration::from_millis(millis))),
            None => Err(HttpError::bad_request(
                "`deadlineMs` must be a positive integer (milliseconds) when provided",
                "invalid_deadline_ms",
            )),
        },
    }
}

/// `POST /session/:id/cancel`: 204, also when nothing runs.
pub(super) async fn cancel(service: &Service, incoming: &Incoming<'_>, id: &str) -> Result<Reply, HttpError> {
    let (caller, session) = (incoming.caller()?, SessionId::from(id));
    service.handle.call(|call| Input::Cancel { call, session, caller }).await?;
    Ok(respond::no_content())
}

/// `GET /session/:id/pending-prompts`.
pub(super) async fn pending(service: &Service, id: &str) -> Result<Reply, HttpError> {
    let session = SessionId::from(id);
    let prompts = service.handle.look(move |view| view.bridge.pending_prompts(&session)).await??;
    Ok(respond::json(StatusCode::OK, &json!({"pendingPrompts": prompts})))
}

/// `GET /session/:id/turns/:promptId`, and `…/current`.
pub(super) async fn turn(service: &Service, id: &str, prompt: &str) -> Result<Reply, HttpError> {
    let session = SessionId::from(id);
    let prompt = (prompt != "current").then(|| PromptId::from(prompt));
    let (wanted, asked) = (session.clone(), prompt.clone());
    let turn = service.handle.look(move |view| view.bridge.turn(&wanted, asked.as_ref())).await??;
    match (turn, prompt) {
        (Some(turn), _) => Ok(respond::json(StatusCode::OK, &turn)),
        (None, None) => Ok(respond::json(StatusCode::OK, &json!({"sessionId": session, "state": "idle"}))),
        (None, Some(prompt)) => Err(HttpError::new(
            StatusCode::NOT_FOUND,
            json!({
                "error": format!("No prompt with id \"{prompt}\""),
                "code": "prompt_not_found",
                "sessionId": session,
                "promptId": prompt,
            }),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: Value) -> Fields {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn what_is_a_prompt() {
        assert!(blocks(&mut fields(json!({"prompt": [{"type": "text", "text": "hi"}]}))).is_ok());
        for bad in [json!({"prompt": "hi"}), json!({"prompt": []}), json!({}), json!({"prompt": [5]})] {
            assert!(blocks(&mut fields(bad.clone())).is_err(), "{bad}");
        }
    }

    #[test]
    fn deadlines_are_positive_integers() {
        assert_eq!(deadline(&fields(json!({"deadlineMs": 5}))), Ok(Some(Duration::from_millis(5))));
        assert_eq!(deadline(&fields(json!({}))), Ok(None));
        for bad in [json!(0), json!(-1), json!(1.5), json!("5")] {
            assert!(deadline(&fields(json!({"deadlineMs": bad}))).is_err(), "{bad}");
        }
    }
}
