//! Command files: which commands are there, and what does each stand for?
//!
//! `review.toml` is `/review`, `git/commit.toml` is `/git:commit`. Later folders win over earlier ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use convoke_protocol::CommandInfo;
use serde::Deserialize;

/// Most files that are read; nobody remembers more commands.
const FILES_MAX: usize = 500;
/// The largest file that is read: a prompt that is written by hand.
const BYTES_MAX: u64 = 256 * 1024;
/// Deepest folder that is looked into.
const DEPTH_MAX: usize = 6;

/// Commands by name.
#[derive(Debug, Default)]
pub(super) struct Commands {
    by_name: BTreeMap<String, Custom>,
}

/// A command out of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Custom {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) prompt: String,
}

#[derive(Deserialize)]
struct File {
    prompt: String,
    #[serde(default)]
    description: Option<String>,
}

/// The command's name and what follows it. A path or a comment is no command.
pub(super) fn parse(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start().strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, args) = rest.split_at(end);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, ':' | '-' | '_' | '.'));
    is_name.then(|| (name, args.trim()))
}

impl Commands {
    /// Reads every folder that is there. A file that is no command is told in the log and left out.
    pub(super) fn load(folders: &[PathBuf]) -> Self {
        let mut commands = Self::default();
        for folder in folders {
            let mut files = Vec::new();
            collect(folder, 0, &mut files);
            files.sort();
            for path in files {
                match read(&path) {
                    Ok(file) => {
                        if let Some(name) = name_of(folder, &path) {
                            let description = file.description.unwrap_or_else(|| format!("from {}", path.display()));
                            let custom = Custom { name: name.clone(), description, prompt: file.prompt };
                            commands.by_name.insert(name, custom);
                        }
                    }
                    Err(error) => tracing::warn!(path = %path.display(), error, "a command file can't be used"),
                }
            }
        }
        commands
    }

    pub(super) fn get(&self, name: &str) -> Option<&Custom> {
        self.by_name.get(name)
    }

    pub(super) fn table(&self) -> Vec<CommandInfo> {
        let info = |custom: &Custom| CommandInfo {
            name: custom.name.clone(),
            description: custom.description.clone(),
            hint: Some("arguments".to_owned()),
        };
        self.by_name.values().map(info).collect()
    }
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if files.len() >= FILES_MAX {
            return;
        }
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => collect(&path, depth + 1, files),
            Ok(kind) if !kind.is_dir() && path.extension().is_some_and(|extension| extension == "toml") => {
                files.push(path);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

fn read(path: &Path) -> Result<File, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > BYTES_MAX {
        return Err(format!("it is larger than {BYTES_MAX} bytes"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| error.to_string())
}

/// Folders become parts before a colon.
fn name_of(folder: &Path, path: &Path) -> Option<String> {
    let relative = path.strip_prefix(folder).ok()?.with_extension("");
    let parts: Vec<String> =
        relative.components().map(|part| part.as_os_str().to_string_lossy().replace([':', ' '], "_")).collect();
    (!parts.is_empty()).then(|| parts.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_command() {
        assert_eq!(parse("/review a b"), Some(("review", "a b")));
        assert_eq!(parse("  /git:commit"), Some(("git:commit", "")));
        for text in ["review", "/", "/ x", "/usr/bin/env is what?", "//", "/*"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn folders_are_namespaces_and_later_ones_win() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("user/git/commit.toml", "prompt = \"of the user\"\ndescription = \"d\"");
        write("user/only.toml", "prompt = \"only\"");
        write("user/broken.toml", "prompt = ");
        write("user/nothing.toml", "description = \"no prompt\"");
        write("project/git/commit.toml", "prompt = \"of the project\"");
        let commands = Commands::load(&[dir.path().join("user"), dir.path().join("project"), dir.path().join("none")]);
        let names: Vec<String> = commands.table().into_iter().map(|info| info.name).collect();
        assert_eq!(names, ["git:commit", "only"]);
        assert_eq!(commands.get("git:commit").unwrap().prompt, "of the project");
    }
}
