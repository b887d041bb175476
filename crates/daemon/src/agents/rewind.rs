//! How is an agent asked to take a session back, and what does everybody hear of it?
//!
//! ACP has no word for it; these are the methods of our own agent, and whoever has them too is asked like it.

use convoke_bridge::Input;
use convoke_protocol::{ClientId, SessionId};
use serde_json::{Map, Value, json};

use super::state::Ask;

/// Asks for the points.
pub(super) fn ask_for_points(session: &SessionId) -> Ask {
    Ask { method: "_convoke/session/rewind_points", params: json!({"sessionId": session}) }
}

/// Asks to go back.
pub(super) fn ask(session: &SessionId, fields: &Map<String, Value>) -> Ask {
    let mut params = fields.clone();
    params.insert("sessionId".to_owned(), json!(session));
    Ask { method: "_convoke/session/rewind", params: Value::Object(params) }
}

/// What everybody hears of an answer, if it says that the session went back.
pub(super) fn told(session: SessionId, originator: Option<ClientId>, answer: &Value) -> Option<Input> {
    let done = Done::of(answer)?;
    Some(Input::SessionRewound {
        session,
        originator,
        prompt_id: done.prompt_id,
        turn_index: done.turn_index,
        files_changed: done.files_changed,
        files_failed: done.files_failed,
    })
}

/// An agent's answer that says that a session went back.
pub(crate) struct Done {
    pub(crate) prompt_id: String,
    /// From 0.
    pub(crate) turn_index: usize,
    pub(crate) files_changed: Vec<String>,
    pub(crate) files_failed: Vec<String>,
}

impl Done {
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        if answer.get("outcome")?.as_str()? != "done" {
            return None;
        }
        let list = |key: &str| answer.get(key).and_then(Value::as_array).into_iter().flatten();
        let number = answer.get("number").and_then(Value::as_u64).unwrap_or(1);
        let left = list("left").filter_map(|left| left.get("path")?.as_str());
        Some(Self {
            prompt_id: answer.get("messageId").and_then(Value::as_str).unwrap_or_default().to_owned(),
            turn_index: usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1),
            files_changed: list("files").filter_map(Value::as_str).map(str::to_owned).collect(),
            files_failed: left.map(str::to_owned).collect(),
        })
    }
}
