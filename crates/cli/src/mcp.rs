//! Which MCP servers does a session have? Settings, `.mcp.json` and flags, read into configurations.
//!
//! Settings come before `.mcp.json`, and both before extensions: where two of them name a server, the first says how it is
//! reached and whether it is trusted, and either may take tools away.

use std::path::PathBuf;
use std::time::Duration;

use convoke_agent::McpSettings;
use convoke_mcp::{Selection, ServerConfig};
use serde_json::{Map, Value};

use crate::args::AgentArgs;
use crate::environment::Environment;
use crate::extensions::Extension;
use crate::home::Home;
use crate::settings::{Settings, read_json};
use crate::startup::Startup;
use crate::trust::Trust;

/// Servers as other agents keep them beside the code.
pub(crate) const SHARED_FILE: &str = ".mcp.json";
/// The name of the server that `mcp.serverCommand` starts.
const COMMAND_SERVER: &str = "mcp";
/// Nobody waits a minute for a first answer without having meant it.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// What sessions are given, and what was odd about it.
pub(crate) fn settings(args: &AgentArgs, startup: &Startup, extensions: &[Extension]) -> (McpSettings, Vec<String>) {
    let mut warnings = Vec::new();
    let settings = &startup.settings;
    let mut servers = entries(settings.get("mcpServers"), &mut warnings);
    if let Some(command) = settings.text("mcp.serverCommand") {
        match shlex::split(command).filter(|words| !words.is_empty()) {
            Some(mut words) => {
                let program = words.remove(0);
                let entry = serde_json::json!({"command": program, "args": words});
                servers.extend(entries(Some(&serde_json::json!({COMMAND_SERVER: entry})), &mut warnings));
            }
            None => warnings.push("mcp.serverCommand is not a command; going on without".to_owned()),
        }
    }
    let shared = shared(startup, &startup.environment, &mut warnings);
    let mut extended = Vec::new();
    for extension in extensions {
        extended.extend(entries(Some(&Value::Object(extension.mcp_servers.clone())), &mut warnings));
    }
    // Trust is the user's to give.
    extended.iter_mut().for_each(|server| server.trust = false);
    let defaults = McpSettings::default();
    let settings = McpSettings {
        servers: convoke_mcp::merge([servers, shared, extended]),
        tokens: startup.home.as_ref().map(tokens_file),
        selection: selection(settings, args.allowed_mcp_server_names.as_deref()),
        wait: settings
            .integer("mcp.startupTimeout")
            .and_then(|ms| u64::try_from(ms).ok())
            .map_or(defaults.wait, |ms| Duration::from_millis(ms).min(WAIT_MAX)),
    };
    (settings, warnings)
}

/// Where tokens of MCP servers are kept.
pub(crate) fn tokens_file(home: &Home) -> PathBuf {
    home.folder().join("mcp-oauth-tokens.json")
}

fn selection(settings: &Settings, flag: Option<&[String]>) -> Selection {
    let flag = flag.map(|names| names.iter().filter(|name| !name.is_empty()).cloned().collect());
    Selection {
        allowed: settings.texts("mcp.allowed").into_iter().chain(flag).collect(),
        excluded: settings.texts("mcp.excluded").unwrap_or_default(),
    }
}

/// The entries of an `mcpServers` object that can be used.
pub(crate) fn entries(servers: Option<&Value>, warnings: &mut Vec<String>) -> Vec<ServerConfig> {
    let empty = Map::new();
    let servers = match servers {
        None => &empty,
        Some(Value::Object(servers)) => servers,
        Some(_) => {
            warnings.push("mcpServers is not an object; going on without".to_owned());
            &empty
        }
    };
    let mut configs = Vec::new();
    for (name, entry) in servers {
        match ServerConfig::parse(name, entry) {
            Ok(config) => configs.push(config),
            Err(error) => warnings.push(format!("{error}; going on without")),
        }
    }
    configs
}

/// The servers of a trusted workspace's `.mcp.json`.
fn shared(startup: &Startup, environment: &Environment, warnings: &mut Vec<String>) -> Vec<ServerConfig> {
    let path = startup.workspace.join(SHARED_FILE);
    if !path.exists() {
        return Vec::new();
    }
    if startup.trust != Trust::Trusted {
        warnings.push(format!("the MCP servers of {} are ignored because the folder is not trusted", path.display()));
        return Vec::new();
    }
    match read_json(&path, environment) {
        Ok(file) => {
            let file = file.unwrap_or_default();
            let mut servers = entries(file.get("mcpServers"), warnings);
            // The file is anybody's who works on the code; whether to ask is the user's own business.
            servers.iter_mut().for_each(|server| server.trust = false);
            servers
        }
        Err(error) => {
            warnings.push(format!("{error}; going on without"));
            Vec::new()
        }
    }
}
