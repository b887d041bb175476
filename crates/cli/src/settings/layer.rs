//! One settings file: read, expanded, merged over what lies below.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::{Map, Value};

use crate::environment::Environment;

pub(super) const FILE: &str = "settings.json";

/// Why a settings file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// It is there and can't be read.
    #[error("read settings {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It is not JSON with comments.
    #[error("parse settings {}: line {line}, column {column}: {message}", path.display())]
    Parse { path: PathBuf, line: usize, column: usize, message: String },
    /// It is not an object.
    #[error("use settings {}: the file must hold a JSON object, not {found}", path.display())]
    NotAnObject { path: PathBuf, found: &'static str },
}

/// The file's object with environment variables expanded; `None` if there is no file. An empty file is empty settings.
pub(super) fn read(path: &Path, environment: &Environment) -> Result<Option<Map<String, Value>>, SettingsError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let message = "the file is not UTF-8".to_owned();
            return Err(SettingsError::Parse { path: path.to_owned(), line: 1, column: 1, message });
        }
        Err(source) => return Err(SettingsError::Read { path: path.to_owned(), source }),
    };
    let parsed: Result<Option<Value>, _> = parse_to_serde_value(&text, &ParseOptions::default());
    match parsed {
        Ok(None) => Ok(Some(Map::new())),
        Ok(Some(Value::Object(map))) => {
            let mut map = map;
            expand_all(&mut map, environment);
            Ok(Some(map))
        }
        Ok(Some(other)) => Err(SettingsError::NotAnObject { path: path.to_owned(), found: kind(&other) }),
        Err(error) => Err(SettingsError::Parse {
            path: path.to_owned(),
            line: error.line_display(),
            column: error.column_display(),
            message: error.kind().to_string(),
        }),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Merges a whole file over what lies below. MCP servers are taken whole: half of one server and half of another of
/// the same name would be neither.
pub(super) fn merge_layers(below: &mut Map<String, Value>, mut above: Map<String, Value>) {
    if let (Some(Value::Object(below)), Some(Value::Object(above))) =
        (below.get_mut("mcpServers"), above.get_mut("mcpServers"))
    {
        below.extend(std::mem::take(above));
    }
    merge(below, above);
}

/// Objects merge, everything else replaces.
pub(super) fn merge(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// Keys of a provider whose values say where a secret is, and are read by `secret`.
const REFERENCES: [&str; 3] = ["apiKey", "accessToken", "headers"];

fn expand_all(map: &mut Map<String, Value>, environment: &Environment) {
    for (key, value) in map {
        match (key.as_str(), value) {
            ("providers", Value::Object(providers)) => {
                let entries = providers.values_mut().filter_map(Value::as_object_mut).flatten();
                let plain = entries.filter(|(key, _)| !REFERENCES.contains(&key.as_str()));
                plain.for_each(|(_, value)| expand(value, environment));
            }
            ("hooks", value) => expand_hooks(value, environment),
            (_, value) => expand(value, environment),
        }
    }
}

/// A command is the shell's to expand: here a secret that hooks never see would be written into it.
fn expand_hooks(value: &mut Value, environment: &Environment) {
    match value {
        Value::Object(map) => {
            let plain = map.iter_mut().filter(|(key, value)| *key != "command" || !value.is_string());
            plain.for_each(|(_, value)| expand_hooks(value, environment));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| expand_hooks(item, environment)),
        other => expand(other, environment),
    }
}

fn expand(value: &mut Value, environment: &Environment) {
    match value {
        Value::String(text) => *text = expand_text(text, environment),
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, environment)),
        Value::Object(map) => map.values_mut().for_each(|value| expand(value, environment)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `$VAR`, `${VAR}` and `${VAR:-default}`; what is not set stays as it is written.
fn expand_text(text: &str, environment: &Environment) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (taken, replacement) = variable(rest, environment);
        match replacement {
            Some(value) => out.push_str(&value),
            None => out.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out
}

/// How many bytes the reference at the start of `text` takes, and what it stands for.
fn variable(text: &str, environment: &Environment) -> (usize, Option<String>) {
    if let Some(inner) = text.strip_prefix("${")
        && let Some((inner, _)) = inner.split_once('}')
    {
        let taken = inner.len() + 3;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        return (taken, environment.get(name).or(default).map(ToOwned::to_owned));
    }
    let name: String = text.chars().skip(1).take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    (name.len() + 1, environment.get(&name).map(ToOwned::to_owned))
}
