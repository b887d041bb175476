//! What the process was given: arguments aside, the environment variables and `.env` files. The only reader of both.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Environment variables, with `.env` files underneath.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    process: HashMap<String, OsString>,
    files: HashMap<String, String>,
}

impl Environment {
    /// The process's own environment.
    pub(crate) fn of_process() -> Self {
        let process = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
        Self { process, files: HashMap::new() }
    }

    /// For tests.
    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        let process = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        Self { process, files: HashMap::new() }
    }

    /// Puts a variable over whatever there is.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.process.insert(name.to_owned(), value.into());
    }

    /// A variable that is set, not empty, and UTF-8.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let value = match self.process.get(name) {
            Some(value) => value.to_str()?,
            None => self.files.get(name)?,
        };
        Some(value).filter(|value| !value.trim().is_empty())
    }

    /// A variable that the process itself was given, whatever `.env` files say.
    pub(crate) fn of_process_only(&self, name: &str) -> Option<&str> {
        self.process.get(name)?.to_str().filter(|value| !value.trim().is_empty())
    }

    /// A variable as a path.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.process.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Names of the process's own variables for which `hides` says so.
    pub(crate) fn hidden_by(&self, hides: impl Fn(&str, &str) -> bool) -> Vec<String> {
        let hidden = self.process.iter().filter(|(name, value)| hides(name, &value.to_string_lossy()));
        hidden.map(|(name, _)| name.clone()).collect()
    }

    /// Whether a variable says yes: `true` or `1`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    /// Puts the variables of a `.env` file underneath; what is set already stays. A missing file is fine.
    pub(crate) fn add_file(&mut self, path: &Path) {
        let Ok(text) = fs::read_to_string(path) else { return };
        for (name, value) in text.lines().filter_map(parse_line) {
            self.files.entry(name).or_insert(value);
        }
    }
}

/// `NAME=value`, with an optional `export`, quotes around the value, and comments.
fn parse_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.split_once(quote).map(|(inner, _)| inner);
    let value = quoted('"')
        .or_else(|| quoted('\''))
        .unwrap_or_else(|| value.split_once(" #").map_or(value, |(before, _)| before.trim_end()));
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_lines() {
        let parsed = |line| parse_line(line).map(|(n, v)| format!("{n}={v}"));
        assert_eq!(parsed("A=b").as_deref(), Some("A=b"));
        assert_eq!(parsed(" export A = \"b # c\" # d").as_deref(), Some("A=b # c"));
        assert_eq!(parsed("A='x'").as_deref(), Some("A=x"));
        assert_eq!(parsed("A=b # c").as_deref(), Some("A=b"));
        assert_eq!(parsed("# A=b"), None);
        assert_eq!(parsed("A"), None);
        assert_eq!(parsed("A B=c"), None);
    }

    #[test]
    fn the_process_wins_over_files_and_empty_means_unset() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".env");
        fs::write(&file, "KEY=file\nOTHER=file\n").unwrap();
        let mut environment = Environment::of(&[("KEY", "process"), ("EMPTY", " ")]);
        environment.add_file(&file);
        assert_eq!(environment.get("KEY"), Some("process"));
        assert_eq!(environment.get("OTHER"), Some("file"));
        assert_eq!(environment.of_process_only("KEY"), Some("process"));
        assert_eq!(environment.of_process_only("OTHER"), None);
        assert_eq!(environment.get("EMPTY"), None);
    }
}
