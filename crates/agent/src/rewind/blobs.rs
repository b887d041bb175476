//! Contents by their digest: a folder outside of the workspace that only grows, and is swept when sessions go.
//!
//! A blob is a file of its owner alone, called after the SHA-256 of its bytes, and there as a whole or not at all. It is not
//! forced to the disk, which thousands of small files would make slow; so what is read is checked.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// How old a blob's time may be before it is touched again: a look at thousands of files need not write thousands of times.
const TOUCH_EVERY: Duration = Duration::from_secs(60 * 60);

/// The store of a project.
#[derive(Clone, Debug)]
pub(super) struct Blobs {
    folder: PathBuf,
}

/// Whether a content was new to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    New,
    Known,
}

pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Blobs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Keeps bytes whose digest is `name`.
    pub(super) fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<Kept> {
        let path = self.path(name)?;
        if let Ok(file) = fs::File::open(&path) {
            // A sweep leaves what somebody kept lately.
            if age(&path).is_none_or(|age| age > TOUCH_EVERY) {
                file.set_modified(SystemTime::now())?;
            }
            return Ok(Kept::Known);
        }
        if let Some(folder) = path.parent() {
            crate::record::make_folder(folder)?;
        }
        let temp = self.folder.join(format!("{}.new", uuid::Uuid::new_v4()));
        let written = write(&temp, bytes).and_then(|()| fs::rename(&temp, &path));
        if written.is_err() {
            // It is found by nobody, and swept if it stays.
            let _ = fs::remove_file(&temp);
        }
        written.map(|()| Kept::New)
    }

    /// The bytes of this digest; [`io::ErrorKind::InvalidData`] if they are others by now.
    pub(super) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        convoke_stdx::open_regular_no_link(&self.path(name)?)?.read_to_end(&mut bytes)?;
        if digest(&bytes) == name { Ok(bytes) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Whether there is such a blob. What is in it is checked when it is read.
    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).is_ok_and(|path| path.exists())
    }

    /// Removes all blobs but these and those that somebody kept since `min_age`.
    pub(super) fn sweep(&self, used: &HashSet<String>, min_age: Duration) {
        let is_old = |path: &Path| age(path).is_some_and(|age| age >= min_age);
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (path, prefix) = (entry.path(), entry.file_name());
            if path.extension().is_some_and(|extension| extension == "new") && is_old(&path) {
                let _ = fs::remove_file(&path);
            }
            for blob in fs::read_dir(&path).into_iter().flatten().flatten() {
                let name = format!("{}{}", prefix.to_string_lossy(), blob.file_name().to_string_lossy());
                if !used.contains(&name) && is_old(&blob.path()) {
                    // What can't be removed is tried again with the next sweep.
                    let _ = fs::remove_file(blob.path());
                }
            }
        }
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        // Names are read from records, which are files.
        let is_digest = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let (Some(head), Some(tail), true) = (name.get(..2), name.get(2..), is_digest) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok(self.folder.join(head).join(tail))
    }
}

/// How long ago a file was written or touched.
fn age(path: &Path) -> Option<Duration> {
    let modified = fs::symlink_metadata(path).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(modified).unwrap_or_default())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_what_was_spoiled_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(dir.path().join("blobs"));
        let name = digest(b"content");
        assert_eq!(blobs.keep(&name, b"content").unwrap(), Kept::New);
        assert_eq!(blobs.keep(&name, b"content").unwrap(), Kept::Known);
        assert_eq!(blobs.read(&name).unwrap(), b"content");
        fs::write(blobs.path(&name).unwrap(), "other").unwrap();
        assert_eq!(blobs.read(&name).unwrap_err().kind(), io::ErrorKind::InvalidData);
        for name in ["", "../../x", &"é".repeat(32), &"g".repeat(64)] {
            assert_eq!(blobs.read(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }

    #[test]
    fn a_sweep_leaves_what_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(dir.path().join("blobs"));
        let [a, b] = [b"a".as_slice(), b"b"].map(|bytes| {
            blobs.keep(&digest(bytes), bytes).unwrap();
            digest(bytes)
        });
        fs::write(dir.path().join("blobs/left.new"), "half").unwrap();
        blobs.sweep(&HashSet::new(), Duration::from_secs(60));
        assert!(blobs.has(&a) && blobs.has(&b));
        blobs.sweep(&HashSet::from([a.clone()]), Duration::ZERO);
        assert!(blobs.has(&a) && !blobs.has(&b));
        assert!(!dir.path().join("blobs/left.new").exists());
    }
}
