//! Servers in settings: one entry is put in or taken out, and everything else in the file stays as it was written.

use std::fs;
use std::io;
use std::path::PathBuf;

use convoke_mcp::ServerConfig;
use convoke_protocol::ExitCode;
use convoke_stdx::write_atomic;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::{Map, Value, json};

use super::fail;
use crate::args::{McpAddArgs, ScopeArg, TransportArg};
use crate::failure::{Exit, complain, print};
use crate::home::folders_in;
use crate::startup::Startup;
use crate::trust::Trust;

/// Where servers are kept in a settings file.
const KEY: &str = "mcpServers";

/// Adds a server, or replaces the one of that name.
pub(super) fn add(startup: &Startup, args: &McpAddArgs) -> Result<(), Exit> {
    let entry = entry(args).map_err(|why| fail(ExitCode::Input, why))?;
    // Variables are put in when settings are read; an address that has some can't be judged before.
    if !args.target.contains('$') {
        ServerConfig::parse(&args.name, &entry).map_err(|error| fail(ExitCode::Input, error))?;
    }
    let file = file(startup, args.scope)?;
    let mut replaced = false;
    edit(&file, |servers| {
        replaced = servers.get(&args.name).is_some();
        match servers.get(&args.name) {
            Some(property) => property.set_value(input(&entry)),
            None => _ = servers.append(&args.name, input(&entry)),
        }
        true
    })?;
    let done = if replaced { "replaced" } else { "added" };
    print(&format!("{done} {} in {}", args.name, file.display()));
    if args.scope == ScopeArg::Project && startup.trust != Trust::Trusted {
        complain("warning: this folder is not trusted, so its servers are not used");
    }
    Ok(())
}

/// Takes a server out.
pub(super) fn remove(startup: &Startup, name: &str, scope: ScopeArg) -> Result<(), Exit> {
    let file = file(startup, scope)?;
    let mut removed = false;
    if file.exists() {
        edit(&file, |servers| {
            // A name that was written twice goes twice.
            while let Some(property) = servers.get(name) {
                property.remove();
                removed = true;
            }
            removed
        })?;
    }
    if !removed {
        let why = format!("remove {name}: there is no such MCP server in {}", file.display());
        return Err(fail(ExitCode::Input, why));
    }
    print(&format!("removed {name} from {}", file.display()));
    Ok(())
}

/// The file of a scope; only our own are ever written.
fn file(startup: &Startup, scope: ScopeArg) -> Result<PathBuf, Exit> {
    let home = startup.home.as_ref();
    let folder = match scope {
        ScopeArg::User => home
            .map(crate::home::Home::folder)
            .ok_or_else(|| fail(ExitCode::Failure, "find the home folder: neither CONVOKE_HOME nor HOME is set"))?,
        ScopeArg::Project if home.is_some_and(|home| home.parent() == startup.workspace) => {
            return Err(fail(ExitCode::Input, "this is the home folder: say --scope user to change its settings"));
        }
        ScopeArg::Project => {
            let [_, ours] = folders_in(&startup.workspace);
            ours
        }
    };
    Ok(folder.join("settings.json"))
}

/// The entry as settings have it.
fn entry(args: &McpAddArgs) -> Result<Value, String> {
    if args.name.trim().is_empty() || args.name.chars().any(char::is_control) {
        return Err("an MCP server needs a name".to_owned());
    }
    let pairs = |texts: &[String], between: char, what: &str| {
        let pair = |text: &String| {
            let (name, value) = text.split_once(between).filter(|(name, _)| !name.trim().is_empty())?;
            Some((name.trim().to_owned(), Value::from(value.trim_start())))
        };
        let pairs: Option<Map<String, Value>> = texts.iter().map(pair).collect();
        // What could not be read may be a secret, so it is not repeated.
        pairs.ok_or_else(|| format!("{what} must be written as NAME{between}VALUE"))
    };
    let (env, headers) = (pairs(&args.env, '=', "--env")?, pairs(&args.header, ':', "--header")?);
    let mut entry = Map::new();
    match args.transport {
        TransportArg::Stdio => {
            if !headers.is_empty() {
                return Err("--header is for servers with an address: say --transport http or sse".to_owned());
            }
            entry.insert("command".to_owned(), args.target.as_str().into());
            if !args.args.is_empty() {
                entry.insert("args".to_owned(), json!(args.args));
            }
            if !env.is_empty() {
                entry.insert("env".to_owned(), Value::Object(env));
            }
        }
        TransportArg::Http | TransportArg::Sse => {
            if !env.is_empty() || !args.args.is_empty() {
                return Err("--env and arguments are for child processes: say --transport stdio".to_owned());
            }
            let kind = if args.transport == TransportArg::Http { "http" } else { "sse" };
            entry.insert("type".to_owned(), kind.into());
            entry.insert("url".to_owned(), args.target.as_str().into());
            if !headers.is_empty() {
                entry.insert("headers".to_owned(), Value::Object(headers));
            }
        }
    }
    if let Some(timeout) = args.timeout {
        entry.insert("timeout".to_owned(), timeout.into());
    }
    if args.trust {
        entry.insert("trust".to_owned(), true.into());
    }
    if let Some(description) = &args.description {
        entry.insert("description".to_owned(), description.as_str().into());
    }
    for (key, tools) in [("includeTools", &args.include_tools), ("excludeTools", &args.exclude_tools)] {
        if !tools.is_empty() {
            entry.insert(key.to_owned(), json!(tools));
        }
    }
    Ok(Value::Object(entry))
}

/// Changes the servers of a file; it is written if `change` says so.
fn edit(file: &std::path::Path, change: impl FnOnce(&jsonc_parser::cst::CstObject) -> bool) -> Result<(), Exit> {
    let wrong = |why: &dyn std::fmt::Display| {
        fail(ExitCode::Configuration, format!("change settings {}: {why}", file.display()))
    };
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(wrong(&error)),
    };
    let root = CstRootNode::parse(&text, &ParseOptions::default()).map_err(|error| wrong(&error))?;
    let object = root.object_value_or_create().ok_or_else(|| wrong(&"the file must hold a JSON object"))?;
    let servers =
        object.object_value_or_create(KEY).ok_or_else(|| wrong(&format!("its \"{KEY}\" is not an object")))?;
    if !change(&servers) {
        return Ok(());
    }
    let mut text = root.to_string();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let write = || {
        file.parent().map_or(Ok(()), fs::create_dir_all)?;
        write_atomic(file, text.as_bytes())
    };
    write().map_err(|error| wrong(&error))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(flag) => CstInputValue::Bool(*flag),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Value::Object(map) => {
            CstInputValue::Object(map.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}
