//! Settings: JSON with comments, in layers, from user and workspace.
//!
//! `.convoke/settings.json` lies over `.gemini/settings.json`, key by key; a trusted workspace's files lie over the
//! user's; command line and environment lie over both, and are applied where the value is used.

mod known;
mod layer;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::home::{Home, folders_in, is_ours};

pub(crate) use layer::SettingsError;

/// The merged settings, and what was odd about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    merged: Map<String, Value>,
    warnings: Vec<String>,
}

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
        for folder in sources.home.iter().flat_map(|home| home.folders()) {
            settings.add(&folder, sources.environment)?;
        }
        let same = sources.home.is_some_and(|home| home.parent() == sources.workspace);
        let of_workspace: Vec<PathBuf> = folders_in(sources.workspace)
            .into_iter()
            .filter(|folder| !same && folder.join(layer::FILE).exists())
            .collect();
        if sources.trusted {
            for folder in of_workspace {
                settings.add(&folder, sources.environment)?;
            }
        } else if !of_workspace.is_empty() {
            settings.warnings.push(format!(
                "settings of {} are ignored because the folder is not trusted; add it to trustedFolders.json or pass \
                 --skip-trust",
                sources.workspace.display()
            ));
        }
        Ok(settings)
    }

    fn add(&mut self, folder: &Path, environment: &Environment) -> Result<(), SettingsError> {
        let path = folder.join(layer::FILE);
        let layer = match layer::read(&path, environment) {
            Ok(Some(layer)) => layer,
            Ok(None) => return Ok(()),
            Err(SettingsError::Read { path, source }) => {
                self.warnings.push(format!("read settings {}: {source}; going on without", path.display()));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if is_ours(folder) {
            let unknown = known::unknown_keys(&layer);
            if !unknown.is_empty() {
                self.warnings.push(format!("unknown keys in {}: {}", path.display(), unknown.join(", ")));
            }
        }
        layer::merge(&mut self.merged, layer);
        Ok(())
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

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
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

#[cfg(test)]
mod tests;
