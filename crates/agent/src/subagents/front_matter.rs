//! From a Markdown file with front matter to definitions, or to a sentence about what is wrong with it.
//!
//! The schema is strict: an unknown key is an error. Source: runtime specification §12.1.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::a2a::SecretVariable;
use super::definition::{
    AgentCardSource, AgentDefinition, AgentKind, AgentOverride, AgentSource, LocalAgent, RemoteAgent, RemoteAuth,
    tool_patterns,
};
use super::keys::{Keys, Wrong};

/// Most turns that a definition may ask for: more is a loop, whoever wrote it.
const TURNS_MAX: u32 = 1000;
/// Longest run that a definition may ask for, in minutes: a day.
const MINUTES_MAX: f64 = 24.0 * 60.0;
/// Shortest run, in minutes: a millisecond.
const MINUTES_MIN: f64 = 1.0 / 60_000.0;
/// Longest task of a remote agent, unless settings say otherwise: what takes longer should be asked for in parts.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Most remote agents in one file.
const REMOTES_MAX: usize = 64;

/// The definitions in a file's text. A local agent is one file; remote ones may be several.
pub(crate) fn definitions(text: &str, source: &AgentSource) -> Result<Vec<AgentDefinition>, Wrong> {
    let (front, body) = split(text)?;
    let value: Value = serde_saphyr::from_str(front).map_err(|error| format!("read the front matter: {error}"))?;
    match value {
        Value::Array(items) if items.len() > REMOTES_MAX => {
            Err(format!("there are {} agents in one file, and {REMOTES_MAX} may be", items.len()))
        }
        Value::Array(items) => items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                let mut keys = Keys::new(item, &format!("[{index}]."))?;
                match keys.word("kind", &["remote"])? {
                    Some(_) => remote(keys, source.clone()),
                    None => Err(format!("key '[{index}].kind' is missing: agents in a list are remote")),
                }
            })
            .collect(),
        value => {
            let mut keys = Keys::new(value, "")?;
            let definition = match keys.word("kind", &["local", "remote"])? {
                Some("remote") => remote(keys, source.clone())?,
                _ => local(keys, body, source.clone())?,
            };
            Ok(vec![definition])
        }
    }
}

/// Front matter and body.
fn split(text: &str) -> Result<(&str, &str), Wrong> {
    let missing = || "the file must begin with front matter between two lines of ---".to_owned();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (first, rest) = text.split_once('\n').ok_or_else(missing)?;
    if first.trim_end() != "---" {
        return Err(missing());
    }
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            let (front, body) = rest.split_at(at);
            return Ok((front, body.get(line.len()..).unwrap_or_default()));
        }
        at += line.len();
    }
    Err(missing())
}

fn local(mut keys: Keys, body: &str, source: AgentSource) -> Result<AgentDefinition, Wrong> {
    let (name, display_name) = names(&mut keys)?;
    let description = keys.required("description")?;
    let mut agent = LocalAgent::new(body.trim());
    agent.tools = keys.texts("tools")?.map(|names| tool_patterns(&names));
    agent.mcp_servers = keys.free("mcp_servers")?.unwrap_or_default();
    agent.model = keys.text("model")?.filter(|model| model != "inherit");
    agent.temperature = keys.number("temperature", 0.0, 2.0)?.or(agent.temperature);
    agent.max_turns = keys.whole("max_turns", 1, TURNS_MAX)?.unwrap_or(agent.max_turns);
    agent.timeout = minutes(&mut keys, "timeout_mins")?.unwrap_or(agent.timeout);
    agent.directories =
        keys.texts("workspace_directories")?.unwrap_or_default().into_iter().map(PathBuf::from).collect();
    agent.writes_memory = keys.word("memory", &["read", "write"])? == Some("write");
    keys.end()?;
    if agent.prompt.is_empty() {
        return Err("the text below the front matter is the agent's instruction, and there is none".to_owned());
    }
    Ok(AgentDefinition { name, display_name, description, source, kind: AgentKind::Local(Box::new(agent)) })
}

fn minutes(keys: &mut Keys, key: &'static str) -> Result<Option<Duration>, Wrong> {
    Ok(keys.number(key, MINUTES_MIN, MINUTES_MAX)?.map(|minutes| Duration::from_secs_f64(minutes * 60.0)))
}

fn remote(mut keys: Keys, source: AgentSource) -> Result<AgentDefinition, Wrong> {
    let (name, display_name) = names(&mut keys)?;
    let description = keys.text("description")?.unwrap_or_else(|| format!("The remote agent {name}."));
    let url = keys.text("agent_card_url")?;
    let inline = keys.text("agent_card_json")?;
    let card = match (url, inline) {
        (Some(url), None) => AgentCardSource::Url(url),
        (None, Some(text)) => AgentCardSource::Inline(
            serde_json::from_str(&text).map_err(|error| format!("key 'agent_card_json': {error}"))?,
        ),
        _ => return Err("exactly one of the keys 'agent_card_url' and 'agent_card_json' must be there".to_owned()),
    };
    let auth = keys.object("auth")?.map(auth).transpose()?;
    keys.end()?;
    let kind = AgentKind::Remote(Box::new(RemoteAgent { card, auth, timeout: REMOTE_TIMEOUT }));
    Ok(AgentDefinition { name, display_name, description, source, kind })
}

fn auth(mut keys: Keys) -> Result<RemoteAuth, Wrong> {
    const KINDS: [&str; 4] = ["apiKey", "http", "google-credentials", "oauth"];
    let auth = match keys.word("type", &KINDS)? {
        Some("apiKey") => {
            let key = secret(&mut keys, "key")?;
            keys.word("in", &["header"])?;
            RemoteAuth::ApiKey { key, header: keys.text("name")?.unwrap_or_else(|| "X-API-Key".to_owned()) }
        }
        Some("http") => match keys.word("scheme", &["Bearer", "Basic"])? {
            Some("Basic") => {
                RemoteAuth::Basic { username: keys.required("username")?, password: secret(&mut keys, "password")? }
            }
            Some(_) => RemoteAuth::Bearer(secret(&mut keys, "token")?),
            None => return Err("key 'auth.scheme' is missing".to_owned()),
        },
        Some(other) => return Err(format!("key 'auth.type': {other} is not supported; there are apiKey and http")),
        None => return Err("key 'auth.type' is missing".to_owned()),
    };
    keys.end()?;
    Ok(auth)
}

/// Secrets are in the environment: a file with one would be copied, sent and committed with it.
fn secret(keys: &mut Keys, key: &'static str) -> Result<SecretVariable, Wrong> {
    let text = keys.required(key)?;
    SecretVariable::parse(&text).ok_or_else(|| {
        format!("key 'auth.{key}': expected the variable that holds the secret, such as $TOKEN; secrets don't stand in files")
    })
}

fn names(keys: &mut Keys) -> Result<(String, Option<String>), Wrong> {
    let name = keys.required("name")?;
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_')) {
        return Err(format!("key 'name': expected lowercase letters, digits, - and _, found \"{name}\""));
    }
    Ok((name, keys.text("display_name")?))
}

/// What `agents.overrides` says about one agent.
pub(crate) fn read_override(value: Value) -> Result<AgentOverride, Wrong> {
    let mut keys = Keys::new(value, "")?;
    let mut read = AgentOverride { enabled: keys.flag("enabled")?, ..AgentOverride::default() };
    if let Some(mut model) = keys.object("modelConfig")? {
        read.model = model.text("model")?.filter(|model| model != "inherit");
        if let Some(mut config) = model.object("generateContentConfig")? {
            read.temperature = config.number("temperature", 0.0, 2.0)?;
            config.end()?;
        }
        model.end()?;
    }
    if let Some(mut run) = keys.object("runConfig")? {
        read.max_turns = run.whole("maxTurns", 1, TURNS_MAX)?;
        read.timeout = minutes(&mut run, "maxTimeMinutes")?;
        run.end()?;
    }
    read.tools = keys.texts("tools")?;
    read.mcp_servers = keys.free("mcpServers")?;
    keys.end()?;
    Ok(read)
}

#[cfg(test)]
mod tests;
