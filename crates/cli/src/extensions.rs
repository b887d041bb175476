//! Extensions: folders of others that bring context, commands, servers and more, read as one list.
//!
//! An extension is `extensions/<name>/` below the user's `.gemini/` or `.convoke/`, with a `gemini-extension.json`. This module
//! says which there are and what each of them has; whoever builds a part (commands, context, servers, hooks, skills,
//! agents) takes it from [`Extension`]. Workspaces have none: a cloned repository must not bring programs with it.

mod command;
mod store;

use std::fs;
use std::path::{Path, PathBuf};

use convoke_agent::{HookLayer, HookSettings, HookSource};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::startup::Startup;

pub(crate) use command::{list, run};

/// What describes an extension.
const MANIFEST: &str = "gemini-extension.json";

/// Where its hooks are; the file holds them as settings do.
const HOOKS_FILE: &str = "hooks/hooks.json";

/// The largest description that is read; nobody writes more by hand.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// The context file of an extension that names none.
const CONTEXT_FILE: &str = "GEMINI.md";

/// One extension, and what it has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extension {
    /// Its name, which is the name of its folder.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) folder: PathBuf,
    /// Context files that are there.
    pub(crate) context_files: Vec<PathBuf>,
    /// `mcpServers` as they stand in the description, `${extensionPath}` resolved.
    pub(crate) mcp_servers: Map<String, Value>,
    /// Tools that must not be offered.
    pub(crate) exclude_tools: Vec<String>,
    /// What its `hooks/hooks.json` holds, `${extensionPath}` resolved; null where there is none.
    pub(crate) hooks: Value,
}

impl Extension {
    /// A folder of a part of it, whether it is there or not: `commands`, `skills`, `agents`, `policies`.
    pub(crate) fn part(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Reads the extension in `folder`. `Err` says what is wrong with it.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join(MANIFEST);
        let manifest: Manifest = parse(&path)?;
        if !is_name(&manifest.name) {
            return Err(format!("read {}: \"{}\" is no name for an extension", path.display(), manifest.name));
        }
        let hooks = folder.join(HOOKS_FILE);
        let mut hooks: Value = if hooks.is_file() { parse(&hooks)? } else { Value::Null };
        let names = match manifest.context_file_name {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
            _ => vec![CONTEXT_FILE.to_owned()],
        };
        let inside = |name: &String| !Path::new(name).is_absolute() && !Path::new(name).starts_with("..");
        let files = names.iter().filter(|name| inside(name)).map(|name| folder.join(name));
        let mut servers = Value::Object(manifest.mcp_servers);
        let here = folder.display().to_string();
        resolve(&mut servers, &here);
        resolve(&mut hooks, &here);
        Ok(Self {
            name: manifest.name,
            version: manifest.version.unwrap_or_else(|| "0.0.0".to_owned()),
            folder: folder.to_owned(),
            context_files: files.filter(|file| file.is_file()).collect(),
            mcp_servers: match servers {
                Value::Object(servers) => servers,
                _ => Map::new(),
            },
            exclude_tools: manifest.exclude_tools,
            hooks,
        })
    }

    /// Its hooks, as one source of them.
    pub(crate) fn hook_layer(&self) -> HookLayer {
        HookLayer {
            source: HookSource::Extension(self.name.clone()),
            hooks: self.hooks.get("hooks").cloned().unwrap_or_default(),
            // Which hooks run is the user's to say.
            config: Value::Null,
        }
    }

    /// What its hooks would run, and when.
    fn hook_commands(&self) -> Vec<String> {
        let hooks = HookSettings::read(&[self.hook_layer()]).hooks;
        hooks.iter().map(|hook| format!("{}: {}", hook.event.name(), hook.command)).collect()
    }

    /// What of it runs on this machine: the same text for the same programs, wherever the extension is.
    fn programs(&self) -> String {
        let programs = json!({"hooks": self.hooks, "servers": self.mcp_servers}).to_string();
        programs.replace(&*self.folder.to_string_lossy(), "${extensionPath}")
    }
}

/// Reads a file of an extension.
fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let failed = |what: &dyn std::fmt::Display| format!("read {}: {what}", path.display());
    let size = fs::metadata(path).map_err(|error| failed(&error))?.len();
    if size > MANIFEST_BYTES_MAX {
        return Err(failed(&"it is larger than 1 MiB"));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    name: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    context_file_name: Option<Value>,
    #[serde(default)]
    mcp_servers: Map<String, Value>,
    #[serde(default)]
    exclude_tools: Vec<String>,
}

/// Names are names of folders, and nothing else.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 100
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && !name.starts_with('.')
}

fn resolve(value: &mut Value, folder: &str) {
    match value {
        Value::String(text) => {
            *text = text.replace("${extensionPath}", folder).replace("${/}", std::path::MAIN_SEPARATOR_STR);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| resolve(item, folder)),
        Value::Object(map) => map.values_mut().for_each(|item| resolve(item, folder)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Every extension of the user's, by name; one below `.convoke/` stands for one of the same name below `.gemini/`. What
/// can't be read is a warning.
pub(crate) fn installed(startup: &Startup) -> (Vec<Extension>, Vec<String>) {
    let (mut found, mut warnings) = (Vec::<Extension>::new(), Vec::new());
    for folder in startup.home.iter().flat_map(|home| home.folders()) {
        let Ok(entries) = fs::read_dir(folder.join(store::FOLDER)) else { continue };
        for entry in entries.flatten().filter(|entry| entry.path().join(MANIFEST).is_file()) {
            match Extension::read(&entry.path()) {
                Ok(extension) => {
                    found.retain(|other| other.name != extension.name);
                    found.push(extension);
                }
                Err(error) => warnings.push(format!("{error}; going on without this extension")),
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    (found, warnings)
}

/// Those that this run uses: all, or those that `-e` names; `-e none` is none.
pub(crate) fn chosen(startup: &Startup, wanted: &[String]) -> (Vec<Extension>, Vec<String>) {
    let (mut found, mut warnings) = installed(startup);
    if wanted.is_empty() {
        return (found, warnings);
    }
    let named = |extension: &Extension| wanted.iter().any(|name| name.eq_ignore_ascii_case(&extension.name));
    let unknown = wanted.iter().filter(|name| !name.eq_ignore_ascii_case("none"));
    let unknown = unknown.filter(|name| !found.iter().any(|extension| extension.name.eq_ignore_ascii_case(name)));
    warnings.extend(unknown.map(|name| format!("there is no extension \"{name}\"")));
    found.retain(named);
    (found, warnings)
}
