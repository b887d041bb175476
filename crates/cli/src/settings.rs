//! Settings: JSON with comments, in layers, from machine, user and workspace.
//!
//! `.convoke/settings.json` lies over `.gemini/settings.json`, key by key; a trusted workspace's files lie over the
//! user's. The machine has two: defaults below all of them, and what its administrator insists on above. Command line and
//! environment lie over all, and are applied where the value is used. Source: runtime specification §18.1.

mod known;
mod layer;

use std::path::{Path, PathBuf};

use convoke_agent::{HookLayer, HookSource};
use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::home::{Home, folders_in, is_ours};

pub(crate) use layer::SettingsError;

/// The merged settings, and what was odd about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    merged: Map<String, Value>,
    /// What each source says about hooks: lists of commands are not to be merged, they have owners.
    hooks_of_user: Map<String, Value>,
    hooks_of_workspace: Map<String, Value>,
    hooks_of_system: Map<String, Value>,
    warnings: Vec<String>,
}

/// Whose file it is.
#[derive(Clone, Copy)]
enum Owner {
    User,
    Workspace,
    System,
}

/// The machine's files.
#[derive(Clone, Debug)]
struct SystemFiles {
    defaults: PathBuf,
    overrides: PathBuf,
}

impl SystemFiles {
    /// Where the process was told that they are, or where other agents keep them. What `.env` files say doesn't count: a
    /// folder must not lead away from what the administrator wrote.
    fn find(environment: &Environment) -> Self {
        let file = |variable: &str, name: &str| {
            environment.path(variable).unwrap_or_else(|| Path::new("/etc/gemini-cli").join(name))
        };
        Self {
            defaults: file("GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "system-defaults.json"),
            overrides: file("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "settings.json"),
        }
    }
}

/// The keys about hooks: the commands, and which of them run.
const HOOK_KEYS: [&str; 2] = ["hooks", "hooksConfig"];

/// Whose settings to read.
pub(crate) struct Sources<'a> {
    pub(crate) home: Option<&'a Home>,
    pub(crate) workspace: &'a Path,
    pub(crate) trusted: bool,
    pub(crate) environment: &'a Environment,
}

impl Settings {
    /// Reads and merges every layer.
    ///
    /// A file that can't be parsed is an error; one that can't be read is a warning. The workspace's files are left
    /// out, with one warning, if it is not trusted.
    pub(crate) fn load(sources: &Sources<'_>) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        let system = SystemFiles::find(sources.environment);
        settings.add(&system.defaults, sources.environment, Owner::System)?;
        for folder in sources.home.iter().flat_map(|home| home.folders()) {
            settings.add(&folder.join(layer::FILE), sources.environment, Owner::User)?;
        }
        let same = sources.home.is_some_and(|home| home.parent() == sources.workspace);
        let of_workspace: Vec<PathBuf> = folders_in(sources.workspace)
            .into_iter()
            .filter(|folder| !same && folder.join(layer::FILE).exists())
            .collect();
        if sources.trusted {
            for folder in of_workspace {
                settings.add(&folder.join(layer::FILE), sources.environment, Owner::Workspace)?;
            }
        } else if !of_workspace.is_empty() {
            settings.warnings.push(format!(
                "settings of {} are ignored because the folder is not trusted; add it to trustedFolders.json or pass \
                 --skip-trust",
                sources.workspace.display()
            ));
        }
        settings.add(&system.overrides, sources.environment, Owner::System)?;
        Ok(settings)
    }

    fn add(&mut self, path: &Path, environment: &Environment, owner: Owner) -> Result<(), SettingsError> {
        let layer = match layer::read(path, environment) {
            Ok(Some(layer)) => layer,
            Ok(None) => return Ok(()),
            Err(SettingsError::Read { path, source }) => {
                self.warnings.push(format!("read settings {}: {source}; going on without", path.display()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if path.parent().is_some_and(is_ours) {
            let unknown = known::unknown_keys(&layer);
            if !unknown.is_empty() {
                self.warnings.push(format!("unknown keys in {}: {}", path.display(), unknown.join(", ")));
            }
        }
        let hooks = layer.iter().filter(|(key, _)| HOOK_KEYS.contains(&key.as_str()));
        let hooks = hooks.map(|(key, value)| (key.clone(), value.clone())).collect();
        layer::merge(
            match owner {
                Owner::User => &mut self.hooks_of_user,
                Owner::Workspace => &mut self.hooks_of_workspace,
                Owner::System => &mut self.hooks_of_system,
            },
            hooks,
        );
        layer::merge_layers(&mut self.merged, layer);
        Ok(())
    }

    /// What is said about hooks, the nearest source first.
    pub(crate) fn hook_layers(&self) -> Vec<HookLayer> {
        let layer = |source, map: &Map<String, Value>| {
            let [hooks, config] = HOOK_KEYS.map(|key| map.get(key).cloned().unwrap_or_default());
            HookLayer { source, hooks, config }
        };
        vec![
            layer(HookSource::Project, &self.hooks_of_workspace),
            layer(HookSource::User, &self.hooks_of_user),
            layer(HookSource::System, &self.hooks_of_system),
        ]
    }

    /// What a person should hear about, once.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The value under a dotted key.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let mut parts = key.split('.');
        let first = self.merged.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    }

    /// Puts a value over whatever there is under a dotted key.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        let mut parts: Vec<&str> = key.split('.').collect();
        let Some(last) = parts.pop() else { return };
        let mut layer = Map::from_iter([(last.to_owned(), value)]);
        for part in parts.into_iter().rev() {
            layer = Map::from_iter([(part.to_owned(), Value::Object(layer))]);
        }
        layer::merge(&mut self.merged, layer);
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// A list of texts; a single text counts as a list of one.
    pub(crate) fn texts(&self, key: &str) -> Option<Vec<String>> {
        match self.get(key)? {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) => Some(items.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()),
            _ => None,
        }
    }
}

/// A file of the same kind as settings: JSON with comments and variables. `None` if there is no file.
pub(crate) fn read_json(path: &Path, environment: &Environment) -> Result<Option<Map<String, Value>>, SettingsError> {
    layer::read(path, environment)
}

#[cfg(test)]
mod tests;
