//! Which folders the user trusts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::environment::Environment;
use crate::home::Home;

/// What is known about the trust in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The user trusts it.
    Trusted,
    /// The user does not, or was never asked.
    Untrusted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Level {
    #[serde(rename = "TRUST_FOLDER")]
    Folder,
    #[serde(rename = "TRUST_PARENT")]
    Parent,
    #[serde(rename = "DO_NOT_TRUST")]
    Never,
}

/// Looks `workspace` up in `trustedFolders.json`; the longest path that covers it decides.
///
/// `--skip-trust` and `GEMINI_CLI_TRUST_WORKSPACE=true` trust it for this run. A file that can't be used trusts
/// nothing, and is told as a warning.
pub(crate) fn trust_of(
    workspace: &Path,
    skip: bool,
    home: Option<&Home>,
    environment: &Environment,
) -> (Trust, Vec<String>) {
    if skip || environment.flag("GEMINI_CLI_TRUST_WORKSPACE") {
        return (Trust::Trusted, Vec::new());
    }
    let mut levels = BTreeMap::new();
    let mut warnings = Vec::new();
    for path in files(home, environment) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        match serde_json::from_str::<BTreeMap<PathBuf, Level>>(&text) {
            Ok(more) => levels.extend(more),
            Err(error) => warnings.push(format!("use {}: {error}; it trusts nothing", path.display())),
        }
    }
    let decided = levels
        .iter()
        .filter_map(|(path, level)| {
            let root = if *level == Level::Parent { path.parent()? } else { path };
            workspace.starts_with(root).then(|| (root.components().count(), *level))
        })
        .max_by_key(|(length, level)| (*length, *level == Level::Never));
    match decided {
        Some((_, Level::Folder | Level::Parent)) => (Trust::Trusted, warnings),
        Some((_, Level::Never)) | None => (Trust::Untrusted, warnings),
    }
}

fn files(home: Option<&Home>, environment: &Environment) -> Vec<PathBuf> {
    if let Some(path) = environment.path("GEMINI_CLI_TRUSTED_FOLDERS_PATH") {
        return vec![path];
    }
    home.iter().flat_map(|home| home.folders()).map(|folder| folder.join("trustedFolders.json")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, workspace: &str) -> (Trust, usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trusted.json");
        fs::write(&path, json).unwrap();
        let environment = Environment::of(&[("GEMINI_CLI_TRUSTED_FOLDERS_PATH", path.to_str().unwrap())]);
        let (trust, warnings) = trust_of(Path::new(workspace), false, None, &environment);
        (trust, warnings.len())
    }

    #[test]
    fn the_longest_path_decides() {
        let json =
            r#"{"/a": "TRUST_FOLDER", "/a/b": "DO_NOT_TRUST", "/a/b/c": "TRUST_FOLDER", "/p/q": "TRUST_PARENT"}"#;
        for (workspace, trust) in [
            ("/a", Trust::Trusted),
            ("/a/x", Trust::Trusted),
            ("/ab", Trust::Untrusted),
            ("/a/b/x", Trust::Untrusted),
            ("/a/b/c/d", Trust::Trusted),
            ("/p/r", Trust::Trusted),
            ("/", Trust::Untrusted),
        ] {
            assert_eq!(check(json, workspace), (trust, 0), "{workspace}");
        }
    }

    #[test]
    fn a_broken_file_trusts_nothing_and_warns() {
        assert_eq!(check(r#"{"/a": "MAYBE"}"#, "/a"), (Trust::Untrusted, 1));
    }

    #[test]
    fn the_flag_trusts_for_this_run() {
        let nothing = Environment::default();
        assert_eq!(trust_of(Path::new("/a"), true, None, &nothing).0, Trust::Trusted);
        assert_eq!(trust_of(Path::new("/a"), false, None, &nothing).0, Trust::Untrusted);
    }
}
