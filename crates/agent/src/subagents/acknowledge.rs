//! Which agents of a workspace has the user said yes to?
//!
//! A file, `{folder: {agent: hash}}`, remembers the content that was agreed to; a definition that changed is asked
//! about again. Source: runtime specification §12.1.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use convoke_stdx::write_atomic;
use sha2::{Digest, Sha256};

/// Where the user's yes is remembered.
#[derive(Clone, Debug, Default)]
pub struct Acknowledgements {
    /// The file that is read first and written; without it nothing lasts beyond a session.
    pub file: Option<PathBuf>,
    /// Further files that are read.
    pub more: Vec<PathBuf>,
}

/// A file this large was not written by us or by anybody's hand.
const FILE_MAX: u64 = 4 << 20;

type Agreed = BTreeMap<PathBuf, BTreeMap<String, String>>;

impl Acknowledgements {
    /// Whether the user agreed to agent `name` of `workspace` with this content.
    #[must_use]
    pub fn contain(&self, workspace: &Path, name: &str, hash: &str) -> bool {
        let agreed = |path: &PathBuf| {
            let agreed = read(path).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "acknowledged agents can't be read");
                Agreed::new()
            });
            agreed.get(workspace).and_then(|agents| agents.get(name)).is_some_and(|known| known == hash)
        };
        self.file.iter().chain(&self.more).any(agreed)
    }

    /// Remembers a yes. Errors: the file can't be read as what it should be, or not written.
    pub fn record(&self, workspace: &Path, name: &str, hash: &str) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let mut agreed = read(path)?;
        agreed.entry(workspace.to_owned()).or_default().insert(name.to_owned(), hash.to_owned());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut text = serde_json::to_string_pretty(&agreed)?;
        text.push('\n');
        write_atomic(path, text.as_bytes())
    }
}

fn read(path: &Path) -> io::Result<Agreed> {
    use std::io::Read;
    let file = match convoke_stdx::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Agreed::new()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// The hash of a definition's content.
pub(crate) fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_holds_for_one_content_in_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs.json");
        std::fs::write(&theirs, r#"{"/b": {"far": "0"}}"#).unwrap();
        let known =
            Acknowledgements { file: Some(dir.path().join("acknowledgments/agents.json")), more: vec![theirs.clone()] };
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        assert!(!known.contain(a, "x", "1"));
        known.record(a, "x", "1").unwrap();
        known.record(a, "y", "2").unwrap();
        assert!(known.contain(a, "x", "1") && known.contain(a, "y", "2") && known.contain(b, "far", "0"));
        assert!(!known.contain(a, "x", "other") && !known.contain(b, "x", "1"));
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), r#"{"/b": {"far": "0"}}"#);
    }

    #[test]
    fn a_broken_file_says_nothing_and_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agents.json");
        std::fs::write(&file, "{").unwrap();
        let known = Acknowledgements { file: Some(file.clone()), more: Vec::new() };
        assert!(!known.contain(Path::new("/a"), "x", "1"));
        assert!(known.record(Path::new("/a"), "x", "1").is_err());
        assert_eq!(std::fs::read_to_string(file).unwrap(), "{");
    }

    #[test]
    fn the_hash_is_sha_256() {
        assert_eq!(hash(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
