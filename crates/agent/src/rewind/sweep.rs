//! Which contents does no session need any more?

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::blobs::Blobs;
use super::state::State;
use super::timeline::FilesLine;

/// Removes the contents that no record names. Where a session of the project is open, it may have kept something that its
/// record is just about to name, so `min_age` old it must be.
pub(crate) fn sweep<'a>(folder: &Path, lines: impl IntoIterator<Item = &'a FilesLine>, min_age: Duration) {
    let blobs = Blobs::new(folder.join("blobs"));
    let mut used: HashSet<String> = HashSet::new();
    let mut bases: HashSet<&str> = HashSet::new();
    for line in lines {
        used.extend(line.blobs().map(ToOwned::to_owned));
        bases.extend(line.base.as_deref());
    }
    for base in bases {
        let all: Option<Vec<(String, State)>> =
            blobs.read(base).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        for (_, state) in all.unwrap_or_default() {
            if let State::File { blob, .. } = state {
                used.insert(blob);
            }
        }
    }
    blobs.sweep(&used, min_age);
}
