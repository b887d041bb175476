//! Copies of extensions below the user's folder, and where each came from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Extension;
use crate::home::Home;

/// Where extensions are, below a configuration folder.
pub(super) const FOLDER: &str = "extensions";

/// What is remembered of an installation.
const ORIGIN: &str = ".convoke-extension-install.json";

/// Most files and bytes of an extension: text and a few programs, not a home folder that was named by mistake.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 200 << 20;

/// Copies the extension in `source` into the user's folder, in one step as far as readers can tell.
pub(super) fn install(home: &Home, source: &Path, extension: &Extension) -> io::Result<PathBuf> {
    let parent = home.folder().join(FOLDER);
    fs::create_dir_all(&parent)?;
    let copy = tempfile::Builder::new().prefix(".installing-").tempdir_in(&parent)?;
    let mut room = Room { files: FILES_MAX, bytes: BYTES_MAX };
    copy_folder(source, copy.path(), &mut room)?;
    let origin = json!({"source": source, "type": "local"}).to_string();
    fs::write(copy.path().join(ORIGIN), origin)?;
    let target = parent.join(&extension.name);
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    // From here on it is no temporary folder any more.
    fs::rename(copy.keep(), &target)?;
    Ok(target)
}

/// Where an extension was copied from.
pub(super) fn origin(extension: &Extension) -> Option<PathBuf> {
    let text = fs::read_to_string(extension.folder.join(ORIGIN)).ok()?;
    let origin: Value = serde_json::from_str(&text).ok()?;
    origin.get("source")?.as_str().map(PathBuf::from)
}

struct Room {
    files: usize,
    bytes: u64,
}

/// Files and folders. Links are left out: what they lead to is not the extension's.
fn copy_folder(from: &Path, to: &Path, room: &mut Room) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() && entry.file_name() != ".git" {
            copy_folder(&entry.path(), &target, room)?;
        } else if kind.is_file() {
            let size = entry.metadata()?.len();
            match (room.files.checked_sub(1), room.bytes.checked_sub(size)) {
                (Some(files), Some(bytes)) => *room = Room { files, bytes },
                _ => return Err(io::Error::other("it has too many files, or too large ones")),
            }
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
