//! Looking at a path: what is there, and is its content kept?

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::SnapshotBounds;
use super::blobs::{Blobs, Kept, digest};
use super::state::{Seen, Stamp, State, Why};

/// What was written so short a time ago may be written again within one tick of the file system's clock.
const UNSETTLED_MS: u64 = 100;

/// Looks at paths, and keeps what it reads.
pub(super) struct Eye<'a> {
    pub(super) blobs: &'a Blobs,
    pub(super) bounds: SnapshotBounds,
    /// Bytes that may still be kept.
    pub(super) room: u64,
    pub(super) now_ms: u64,
}

impl Eye<'_> {
    /// What is at `path`, and what was there when it was looked at before.
    pub(super) fn look(&mut self, path: &Path, before: Option<&Seen>) -> Seen {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(error) if is_absence(&error) => return Seen::ABSENT,
            Err(_) => {
                let state = State::Unkept { why: Why::Unreadable, mark: String::new() };
                return Seen { state, stamp: None, settled: false };
            }
        };
        let stamp = Stamp::of(&meta);
        if let Some(before) = before.filter(|before| before.settled && before.stamp == Some(stamp)) {
            return before.clone();
        }
        let settled = stamp.changed_ms() + UNSETTLED_MS < self.now_ms;
        let state = if meta.is_dir() {
            State::Folder
        } else if meta.is_symlink() {
            match fs::read_link(path).map(|target| target.into_os_string().into_string()) {
                Ok(Ok(target)) => State::Link { target },
                Ok(Err(_)) | Err(_) => State::Unkept { why: Why::Unreadable, mark: stamp.mark() },
            }
        } else if !meta.is_file() {
            State::Unkept { why: Why::NotAFile, mark: stamp.mark() }
        } else if meta.len() > self.bounds.file_bytes {
            State::Unkept { why: Why::TooLarge, mark: stamp.mark() }
        } else {
            match self.read(path, &meta) {
                Ok(state) => state,
                Err(why) => State::Unkept { why, mark: stamp.mark() },
            }
        };
        Seen { state, stamp: Some(stamp), settled }
    }

    fn read(&mut self, path: &Path, meta: &fs::Metadata) -> Result<State, Why> {
        use std::os::unix::fs::PermissionsExt;
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or_default());
        let file = convoke_stdx::open_regular_no_link(path).map_err(|_| Why::Unreadable)?;
        file.take(self.bounds.file_bytes + 1).read_to_end(&mut bytes).map_err(|_| Why::Unreadable)?;
        // It may have grown since.
        if bytes.len() as u64 > self.bounds.file_bytes {
            return Err(Why::TooLarge);
        }
        let blob = digest(&bytes);
        if bytes.len() as u64 > self.room && !self.blobs.has(&blob) {
            return Err(Why::NoRoom);
        }
        match self.blobs.keep(&blob, &bytes) {
            Ok(Kept::New) => self.room = self.room.saturating_sub(bytes.len() as u64),
            Ok(Kept::Known) => {}
            Err(_) => return Err(Why::NoRoom),
        }
        Ok(State::File { blob, mode: meta.permissions().mode() & 0o7777 })
    }
}

/// Whether an error of a look means that nothing is there.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
