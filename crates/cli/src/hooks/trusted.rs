//! `trusted_hooks.json`: which commands of which folder did the user agree to?
//!
//! An entry is a digest of event, command and variables, so a command that was changed is asked about again. The file
//! of the same name in `.gemini/` is not read: it knows names only, and is filled without asking.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use convoke_agent::{HookDefinition, HookTrust};
use convoke_stdx::write_atomic;

use crate::home::Home;

/// By folder, then by digest: the command, for people who read the file.
type Entries = BTreeMap<String, BTreeMap<String, String>>;

/// The file, seen from one folder.
pub(super) struct TrustedHooks {
    file: PathBuf,
    workspace: String,
}

impl TrustedHooks {
    pub(super) fn new(home: &Home, workspace: &Path) -> Self {
        Self { file: home.folder().join("trusted_hooks.json"), workspace: workspace.display().to_string() }
    }

    fn read(&self) -> Result<Entries, String> {
        match fs::read_to_string(&self.file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("use {}: {error}", self.file.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entries::new()),
            Err(error) => Err(format!("read {}: {error}", self.file.display())),
        }
    }
}

impl HookTrust for TrustedHooks {
    /// Read each time: a daemon's sessions hear of what was agreed to elsewhere.
    fn is_trusted(&self, digest: &str) -> bool {
        match self.read() {
            Ok(entries) => entries.get(&self.workspace).is_some_and(|known| known.contains_key(digest)),
            Err(error) => {
                tracing::warn!("{error}; it trusts nothing");
                false
            }
        }
    }

    fn trust(&self, hooks: &[Arc<HookDefinition>]) -> Result<(), String> {
        // A file that can't be understood is not written over: it holds somebody's decisions.
        let mut entries = self.read()?;
        let known = entries.entry(self.workspace.clone()).or_default();
        known.extend(hooks.iter().map(|hook| (hook.digest(), hook.command.clone())));
        let write = || {
            fs::create_dir_all(self.file.parent().unwrap_or(Path::new(".")))?;
            let text = serde_json::to_string_pretty(&entries).map_err(io::Error::other)?;
            write_atomic(&self.file, format!("{text}\n").as_bytes())
        };
        write().map_err(|error| format!("write {}: {error}", self.file.display()))
    }
}
