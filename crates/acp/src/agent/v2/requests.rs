//! What does a client of version 2 ask for, in the words of version 1?
//!
//! Pure: parameters in, parameters out, or what is wrong with them. Whatever is not named is left to the agent end.

use agent_client_protocol::v1::schema::ContentBlock;
use serde_json::{Map, Value, json};

use crate::agent::content;
use crate::rpc_error::{INVALID_PARAMS, RpcError};

/// Parameters of a request, and their fields.
pub(super) type Fields = Map<String, Value>;

/// The version that a line asks for, if it is an `initialize`.
pub(super) fn version_wanted(line: &[u8]) -> Option<u64> {
    let message: Value = serde_json::from_slice(line).ok()?;
    if message.get("method")?.as_str()? != "initialize" {
        return None;
    }
    message.pointer("/params/protocolVersion")?.as_u64()
}

/// The field `name`, which has to be a string.
pub(super) fn text<'a>(params: &'a Fields, name: &str) -> Result<&'a str, RpcError> {
    match params.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(invalid(format!("{name} must be a string"))),
        None => Err(invalid(format!("{name} is missing"))),
    }
}

pub(super) fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(INVALID_PARAMS, message)
}

/// The field `name` if it is there and not null.
fn given(params: &mut Fields, name: &str) -> Option<Value> {
    params.remove(name).filter(|value| !value.is_null())
}

/// `initialize`: what the client can do. Files and terminals of its own are none of it in version 2; notices and
/// switches among the options are known to every client of it.
pub(super) fn introduction(mut params: Fields) -> Result<Fields, RpcError> {
    let is_newer = params.get("protocolVersion").and_then(Value::as_u64).is_some_and(|version| version > 2);
    let named = |info: &Value| ["name", "version"].iter().all(|field| info.get(field).is_some_and(Value::is_string));
    let info = params.remove("info").filter(named);
    if info.is_none() && !is_newer {
        return Err(invalid("info must have a name and a version"));
    }
    let mut abilities = Map::new();
    if let Some(Value::Object(mut said)) = params.remove("capabilities") {
        // What can't be read is not offered.
        for name in ["elicitation", "_meta"] {
            abilities.extend(said.remove(name).filter(Value::is_object).map(|value| (name.to_owned(), value)));
        }
    }
    abilities.insert("session".to_owned(), json!({"notices": {}, "configOptions": {"boolean": {}}}));
    let mut introduction = Map::new();
    introduction.insert("protocolVersion".to_owned(), json!(1));
    introduction.insert("clientCapabilities".to_owned(), Value::Object(abilities));
    introduction.extend(info.map(|info| ("clientInfo".to_owned(), info)));
    introduction.extend(params.remove("_meta").filter(Value::is_object).map(|meta| ("_meta".to_owned(), meta)));
    Ok(introduction)
}

/// `session/new`, and what `session/resume` has of it.
pub(super) fn session(mut params: Fields) -> Result<Fields, RpcError> {
    text(&params, "cwd")?;
    let servers = match given(&mut params, "mcpServers") {
        None => Vec::new(),
        Some(Value::Array(servers)) => servers.into_iter().map(server).collect::<Result<_, _>>()?,
        Some(_) => return Err(invalid("mcpServers must be a list")),
    };
    params.insert("mcpServers".to_owned(), Value::Array(servers));
    if let Some(folders) = given(&mut params, "additionalDirectories") {
        params.insert("additionalDirectories".to_owned(), folders);
    }
    Ok(params)
}

/// One MCP server. Its lists may be missing; a transport that we did not offer is refused.
fn server(server: Value) -> Result<Value, RpcError> {
    let Value::Object(mut server) = server else { return Err(invalid("an MCP server must be an object")) };
    let needs = match text(&server, "type")? {
        "stdio" => {
            server.remove("type");
            [("args", false), ("env", false), ("command", true), ("name", true)].as_slice()
        }
        "http" => &[("headers", false), ("url", true), ("name", true)],
        other => return Err(invalid(format!("an MCP server of type \"{other}\" can't be reached"))),
    };
    for (name, is_text) in needs {
        if *is_text {
            text(&server, name)?;
        } else {
            let list = given(&mut server, name).unwrap_or_else(|| json!([]));
            server.insert((*name).to_owned(), list);
        }
    }
    Ok(Value::Object(server))
}

/// `session/resume`: the method of version 1 that does it, and its parameters.
pub(super) fn resumed(mut params: Fields) -> Result<(&'static str, Fields), RpcError> {
    text(&params, "sessionId")?;
    let method = match given(&mut params, "replayFrom") {
        None => "session/resume",
        Some(from) if from.get("type").and_then(Value::as_str) == Some("start") => "session/load",
        Some(_) => return Err(invalid("replayFrom can only be of type \"start\"")),
    };
    Ok((method, session(params)?))
}

/// `session/set_config_option`.
pub(super) fn option(params: Fields) -> Result<Fields, RpcError> {
    let (session, id) = (text(&params, "sessionId")?, text(&params, "configId")?);
    let mut option = Map::new();
    option.insert("sessionId".to_owned(), json!(session));
    option.insert("configId".to_owned(), json!(id));
    match (text(&params, "type")?, params.get("value")) {
        ("id", Some(value @ Value::String(_))) => _ = option.insert("value".to_owned(), value.clone()),
        ("boolean", Some(value @ Value::Bool(_))) => {
            option.insert("type".to_owned(), json!("boolean"));
            option.insert("value".to_owned(), value.clone());
        }
        (other, _) => return Err(invalid(format!("the value is none of type \"{other}\""))),
    }
    option.extend(params.get("_meta").map(|meta| ("_meta".to_owned(), meta.clone())));
    Ok(option)
}

/// A prompt that the agent end will take: of a prompt that was answered, only the turn can fail.
pub(super) fn prompt(params: &Fields) -> Result<(), RpcError> {
    text(params, "sessionId")?;
    let blocks = match params.get("prompt") {
        Some(blocks @ Value::Array(_)) => blocks.clone(),
        Some(_) => return Err(invalid("prompt must be a list of content blocks")),
        None => return Err(invalid("prompt is missing")),
    };
    let blocks: Vec<ContentBlock> =
        serde_json::from_value(blocks).map_err(|error| invalid(format!("a content block can't be read: {error}")))?;
    let parts = content::parts(blocks);
    if parts.is_empty() {
        return Err(invalid("the prompt is empty"));
    }
    content::check(&parts)
}
