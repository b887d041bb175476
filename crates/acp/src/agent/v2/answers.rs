//! What does the agent end of version 1 answer and ask, in the words of version 2?
//!
//! Pure. What is not named stays as it is: titles, cursors, `_meta`, errors' texts.

use serde_json::{Map, Value, json};

use crate::rpc_error::NOT_FOUND;

use super::requests::Fields;
use super::updates;

/// The answer to `initialize`.
pub(super) fn introduction(mut said: Fields) -> Value {
    let mut abilities = match said.remove("agentCapabilities") {
        Some(Value::Object(abilities)) => abilities,
        _ => Map::new(),
    };
    let offered = |path: &[&str], abilities: &Fields| {
        let [first, rest @ ..] = path else { return false };
        let value = rest.iter().try_fold(abilities.get(*first), |value, name| Some(value?.get(*name)));
        value.flatten().is_some_and(|value| value.is_object() || *value == Value::Bool(true))
    };
    let mut prompt = Map::new();
    for name in ["image", "audio", "embeddedContext"] {
        prompt.extend(offered(&["promptCapabilities", name], &abilities).then(|| (name.to_owned(), json!({}))));
    }
    let mut servers = Map::from_iter([("stdio".to_owned(), json!({}))]);
    servers.extend(offered(&["mcpCapabilities", "http"], &abilities).then(|| ("http".to_owned(), json!({}))));
    let mut session = Map::from_iter([("prompt".to_owned(), prompt.into()), ("mcp".to_owned(), servers.into())]);
    for name in ["delete", "additionalDirectories"] {
        session.extend(offered(&["sessionCapabilities", name], &abilities).then(|| (name.to_owned(), json!({}))));
    }
    let mut capabilities = Map::from_iter([("session".to_owned(), session.into())]);
    capabilities.extend(offered(&["auth", "logout"], &abilities).then(|| ("auth".to_owned(), json!({}))));
    capabilities.extend(abilities.remove("_meta").map(|meta| ("_meta".to_owned(), meta)));

    let ways = match said.remove("authMethods") {
        Some(Value::Array(ways)) => ways.into_iter().map(way).collect(),
        _ => Vec::new(),
    };
    let mut introduction = Map::from_iter([
        ("protocolVersion".to_owned(), json!(2)),
        ("info".to_owned(), said.remove("agentInfo").unwrap_or(Value::Null)),
        ("capabilities".to_owned(), capabilities.into()),
        ("authMethods".to_owned(), ways.into()),
    ]);
    introduction.extend(said.remove("_meta").map(|meta| ("_meta".to_owned(), meta)));
    Value::Object(introduction)
}

/// A way to authenticate; all of ours are the agent's own.
fn way(mut way: Value) -> Value {
    if let Value::Object(way) = &mut way {
        updates::rename(way, "id", "methodId");
        way.insert("type".to_owned(), json!("agent"));
    }
    way
}

/// The answer to `session/new`, `session/resume` and `session/set_config_option`.
pub(super) fn settings(mut said: Fields) -> Value {
    said.remove("modes");
    if let Some(options) = said.get_mut("configOptions") {
        updates::options(options);
    }
    Value::Object(said)
}

/// `session/request_permission`.
pub(super) fn permission(mut asked: Fields) -> Fields {
    let call = match asked.remove("toolCall") {
        Some(Value::Object(call)) => call,
        _ => Map::new(),
    };
    asked.insert("title".to_owned(), call.get("title").cloned().unwrap_or_else(|| json!("May this run?")));
    let call = updates::call(call, true);
    asked.insert("subject".to_owned(), json!({"type": "tool_call", "toolCall": call}));
    asked
}

/// How a turn ended, for `state_update`.
pub(super) fn end(answer: Result<Value, Value>) -> Fields {
    let mut state = Map::from_iter([("state".to_owned(), json!("idle"))]);
    match answer {
        Ok(Value::Object(mut end)) => {
            for name in ["stopReason", "_meta"] {
                state.extend(end.remove(name).map(|value| (name.to_owned(), value)));
            }
        }
        Ok(_) => {}
        Err(error) => {
            state.insert("stopReason".to_owned(), json!("error"));
            state.insert("error".to_owned(), error);
        }
    }
    state
}

/// An error of a request that was about `session`: where nothing is found, the session is what is not.
pub(super) fn error(mut error: Value, session: Option<&str>) -> Value {
    let (true, Some(session), Value::Object(fields)) = (is_not_found(&error), session, &mut error) else {
        return error;
    };
    match fields.get_mut("data") {
        Some(Value::Object(data)) => _ = data.entry("sessionId").or_insert_with(|| json!(session)),
        _ => _ = fields.insert("data".to_owned(), json!({"sessionId": session})),
    }
    error
}

pub(super) fn is_not_found(error: &Value) -> bool {
    error.get("code").and_then(Value::as_i64) == Some(NOT_FOUND.into())
}
