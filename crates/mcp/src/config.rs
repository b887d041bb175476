//! What is a server's configuration, however it was written down?
//!
//! Settings of the Gemini CLI, `.mcp.json` of other agents, extensions and ACP clients all say the same in JSON; this is
//! where it is read. Source: runtime specification §14.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::{OAuthSettings, ToolFilter};

/// How long a request to a server may take, unless its configuration says otherwise.
const TIMEOUT: Duration = Duration::from_mins(10);
/// A day: more is a slip of the pen.
const TIMEOUT_MAX: Duration = Duration::from_hours(24);

/// One server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// What it is called.
    pub name: String,
    /// How it is reached.
    pub transport: TransportConfig,
    /// How long a request may take without progress.
    pub timeout: Duration,
    /// Its tools run without asking, in a trusted folder.
    pub trust: bool,
    /// What it is for, in its configuration's words.
    pub description: Option<String>,
    /// Which of its tools are offered.
    pub filter: ToolFilter,
    /// How to get a token for it, where that can't be discovered.
    pub oauth: OAuthSettings,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum TransportConfig {
    /// A child process that is spoken to over its standard streams.
    Stdio(Stdio),
    /// Streamable HTTP.
    Http(Remote),
    /// An event stream and posts beside it, as of protocol 2024-11-05.
    Sse(Remote),
    /// Streamable HTTP, else the older way.
    Detect(Remote),
}

/// A child process. Its environment may hold secrets: only its names are shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Stdio {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that it gets beside our own.
    pub env: IndexMap<String, String>,
    /// Where it runs; the session's folder otherwise.
    pub cwd: Option<PathBuf>,
}

/// A server somewhere else. Its headers may hold secrets: only their names are shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where.
    pub url: String,
    /// What every request carries.
    pub headers: IndexMap<String, String>,
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.shown())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Remote {
    /// The address without what may be a secret: user, password and query.
    #[must_use]
    pub fn shown(&self) -> String {
        match reqwest::Url::parse(&self.url) {
            Ok(mut url) => {
                // Neither can fail for the schemes that a configuration may have.
                let _ = url.set_username("");
                let _ = url.set_password(None);
                url.set_query(None);
                url.to_string()
            }
            Err(_) => "(not an address)".to_owned(),
        }
    }
}

/// Why a configuration can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the MCP server \"{name}\": {reason}")]
pub struct ConfigError {
    /// The server.
    pub name: String,
    /// What is wrong.
    pub reason: String,
}

impl ServerConfig {
    /// A server that is reached so; everything else as by default.
    pub fn new(name: impl Into<String>, transport: TransportConfig) -> Self {
        Self {
            name: name.into(),
            transport,
            timeout: TIMEOUT,
            trust: false,
            description: None,
            filter: ToolFilter::default(),
            oauth: OAuthSettings::default(),
        }
    }

    /// Reads one entry of `mcpServers`. Keys that mean nothing here are passed over.
    pub fn parse(name: &str, entry: &Value) -> Result<Self, ConfigError> {
        let wrong = |reason: String| ConfigError { name: name.to_owned(), reason };
        let entry = entry.as_object().ok_or_else(|| wrong("its entry is not an object".to_owned()))?;
        let read = Entry { entry };
        let transport = read.transport().map_err(wrong)?;
        let timeout = match entry.get("timeout") {
            None | Some(Value::Null) => TIMEOUT,
            Some(value) => match value.as_u64() {
                Some(ms) if ms > 0 => Duration::from_millis(ms).min(TIMEOUT_MAX),
                _ => return Err(wrong("timeout must be a number of milliseconds above 0".to_owned())),
            },
        };
        Ok(Self {
            name: name.to_owned(),
            transport,
            timeout,
            trust: entry.get("trust").and_then(Value::as_bool).unwrap_or(false),
            description: read.text("description").map(ToOwned::to_owned),
            filter: ToolFilter {
                include: read.texts("includeTools").map_err(wrong)?,
                exclude: read.texts("excludeTools").map_err(wrong)?.unwrap_or_default(),
            },
            oauth: OAuthSettings::parse(entry).map_err(wrong)?,
        })
    }

    /// How it is reached, in one line for people, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.transport {
            TransportConfig::Stdio(stdio) => format!("{} (stdio)", stdio.command),
            TransportConfig::Http(remote) => format!("{} (http)", remote.shown()),
            TransportConfig::Sse(remote) => format!("{} (sse)", remote.shown()),
            TransportConfig::Detect(remote) => format!("{} (http or sse)", remote.shown()),
        }
    }
}

/// An entry with its keys.
struct Entry<'a> {
    entry: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.entry.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        let texts = match self.entry.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect(),
            Some(_) => None,
        };
        texts.map(Some).ok_or_else(|| format!("{key} must be a list of texts"))
    }

    fn map(&self, key: &str) -> Result<IndexMap<String, String>, String> {
        let scalar = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        };
        let map = match self.entry.get(key) {
            None | Some(Value::Null) => return Ok(IndexMap::new()),
            Some(Value::Object(map)) => {
                map.iter().map(|(name, value)| Some((name.clone(), scalar(value)?))).collect::<Option<IndexMap<_, _>>>()
            }
            Some(_) => None,
        };
        map.ok_or_else(|| format!("{key} must map names to texts"))
    }

    fn remote(&self, key: &str) -> Result<Remote, String> {
        let url = self.text(key).unwrap_or_default();
        match reqwest::Url::parse(url) {
            Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() => {}
            _ => return Err(format!("{key} must be an address that begins with http:// or https://")),
        }
        let headers = self.map("headers")?;
        for (name, value) in &headers {
            let usable =
                http::HeaderName::from_bytes(name.as_bytes()).is_ok() && http::HeaderValue::from_str(value).is_ok();
            if !usable {
                return Err(format!("\"{name}\" is not a header, or its value can't be sent"));
            }
        }
        Ok(Remote { url: url.to_owned(), headers })
    }

    fn transport(&self) -> Result<TransportConfig, String> {
        if self.entry.contains_key("tcp") && self.text("command").is_none() && self.text("url").is_none() {
            return Err("the transport \"tcp\" is not supported: use command, or url".to_owned());
        }
        match (self.text("type").or_else(|| self.text("transport")), self.text("url"), self.text("httpUrl")) {
            (Some("stdio"), _, _) => self.stdio(),
            (Some("http" | "streamable-http" | "streamableHttp" | "streamable_http"), Some(_), _) => {
                self.remote("url").map(TransportConfig::Http)
            }
            (Some("sse"), Some(_), _) => self.remote("url").map(TransportConfig::Sse),
            (Some(other), Some(_), _) => Err(format!("type is \"{other}\": choose stdio, http or sse")),
            (_, _, Some(_)) => self.remote("httpUrl").map(TransportConfig::Http),
            (None, Some(_), _) => self.remote("url").map(TransportConfig::Detect),
            (_, None, None) => self.stdio(),
        }
    }

    fn stdio(&self) -> Result<TransportConfig, String> {
        let command = self.text("command").ok_or("it has neither command nor url")?;
        Ok(TransportConfig::Stdio(Stdio {
            command: command.to_owned(),
            args: self.texts("args")?.unwrap_or_default(),
            env: self.map("env")?,
            cwd: self.text("cwd").map(PathBuf::from),
        }))
    }
}

/// One list out of several sources, the foremost first.
///
/// Where a name comes up again, the first source says how the server is reached and whether it is trusted, and both
/// restrict its tools: a later source can take tools away and add none. Source: runtime specification §14.
#[must_use]
pub fn merge(sources: impl IntoIterator<Item = Vec<ServerConfig>>) -> Vec<ServerConfig> {
    let mut merged: IndexMap<String, ServerConfig> = IndexMap::new();
    for config in sources.into_iter().flatten() {
        match merged.entry(config.name.clone()) {
            indexmap::map::Entry::Occupied(mut kept) => {
                let kept = kept.get_mut();
                kept.filter = std::mem::take(&mut kept.filter).and(config.filter);
                kept.description = kept.description.take().or(config.description);
            }
            indexmap::map::Entry::Vacant(free) => {
                free.insert(config);
            }
        }
    }
    merged.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(entry: Value) -> Result<ServerConfig, ConfigError> {
        ServerConfig::parse("s", &entry)
    }

    #[test]
    fn transports_are_told_apart_as_other_agents_do() {
        let kind = |entry: Value| match parse(entry).unwrap().transport {
            TransportConfig::Stdio(_) => "stdio",
            TransportConfig::Http(_) => "http",
            TransportConfig::Sse(_) => "sse",
            TransportConfig::Detect(_) => "detect",
        };
        assert_eq!(kind(json!({"command": "x"})), "stdio");
        assert_eq!(kind(json!({"type": "stdio", "command": "x", "url": "http://h/"})), "stdio");
        assert_eq!(kind(json!({"type": "http", "url": "http://h/mcp"})), "http");
        assert_eq!(kind(json!({"type": "streamable-http", "url": "http://h/mcp"})), "http");
        assert_eq!(kind(json!({"httpUrl": "http://h/mcp"})), "http");
        assert_eq!(kind(json!({"type": "sse", "url": "http://h/sse"})), "sse");
        assert_eq!(kind(json!({"url": "https://h/mcp"})), "detect");
    }

    #[test]
    fn an_entry_is_read_whole() {
        let config = parse(json!({
            "command": "node", "args": ["a.js", "-v"], "env": {"A": "1", "PORT": 8080}, "cwd": "/tmp",
            "timeout": 1500, "trust": true, "description": "d", "includeTools": ["a"], "excludeTools": ["b"],
            "oauth": {"clientId": "c"}, "somethingNew": 1,
        }))
        .unwrap();
        let TransportConfig::Stdio(stdio) = &config.transport else { panic!("{config:?}") };
        assert_eq!((stdio.args.len(), stdio.env["PORT"].as_str()), (2, "8080"));
        assert_eq!((config.timeout, config.trust), (Duration::from_millis(1500), true));
        assert!(config.filter.admits("a") && !config.filter.admits("b"));
    }

    #[test]
    fn what_is_wrong_is_said_with_the_name() {
        for (entry, part) in [
            (json!([]), "not an object"),
            (json!({}), "neither command nor url"),
            (json!({"url": "ftp://x"}), "http://"),
            (json!({"type": "ws", "url": "http://h/"}), "choose stdio"),
            (json!({"command": "x", "args": "y"}), "args must be a list"),
            (json!({"command": "x", "timeout": -1}), "milliseconds"),
            (json!({"url": "http://h/", "headers": {"a b": "c"}}), "not a header"),
            (json!({"tcp": "h:1"}), "tcp"),
        ] {
            let error = parse(entry).unwrap_err().to_string();
            assert!(error.starts_with("use the MCP server \"s\": ") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = parse(json!({"url": "http://u:pw@h/x?key=pw", "headers": {"Authorization": "pw"}})).unwrap();
        let child = parse(json!({"command": "x", "args": ["--key=pw"], "env": {"KEY": "pw"}})).unwrap();
        for text in [format!("{config:?}"), config.shown(), format!("{child:?}"), child.shown()] {
            assert!(!text.contains("pw"), "{text}");
        }
    }

    #[test]
    fn the_first_source_wins_and_all_of_them_restrict() {
        let user = parse(json!({"command": "mine", "includeTools": ["a", "b"]})).unwrap();
        let extension =
            parse(json!({"command": "theirs", "trust": true, "includeTools": ["b", "c"], "excludeTools": ["x"]}))
                .unwrap();
        let other = ServerConfig { name: "t".to_owned(), ..extension.clone() };
        let merged = merge([vec![user], vec![extension, other]]);
        assert_eq!(merged.iter().map(|config| config.name.as_str()).collect::<Vec<_>>(), ["s", "t"]);
        assert!(merged[0].shown().starts_with("mine") && !merged[0].trust);
        assert!(merged[0].filter.admits("b") && !merged[0].filter.admits("a") && !merged[0].filter.admits("c"));
    }
}
