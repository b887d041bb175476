//! How does a session go back to a point in its past, its files with it?
//!
//! Points are a session's prompts. Each file that a call may change is looked at before and after the call ([`Keeper`]), its
//! content goes into a store outside of the workspace ([`blobs`]), and what changed is a line of the session's record. So the
//! record tells what every file was at every point ([`timeline`]); going back compares that with the disk ([`plan`]), writes
//! down what it is going to do, does it, and puts one line into the record, which takes conversation and files back at once
//! ([`restore`]). Whatever it is interrupted by, it is finished by whoever opens the session next.
//!
//! `.git`, files that ignore files leave out, and everything outside of the workspace are not kept; a point says which calls
//! may have had effects there. See docs/rewind.md and docs/adr/0008-rewind.md.

mod blobs;
mod command;
mod disk;
mod keeper;
mod ledger;
mod plan;
mod restore;
mod rewinder;
mod state;
mod sweep;
mod timeline;

pub(crate) use command::{Wish, conflicts_text, points_text, rewound_text, wish};
pub(crate) use keeper::Keeper;
pub(crate) use restore::{recover, unfinished_sessions};
pub(crate) use rewinder::{Done, Rewinder};
pub(crate) use sweep::sweep;
pub(crate) use timeline::FilesLine;

/// How much of a workspace is kept for going back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotBounds {
    /// Bytes of one file. What is larger is data and no source, and copying it would take longer than most commands.
    pub file_bytes: u64,
    /// Bytes of new content that one session keeps in one run. A source tree has a tenth of it.
    pub total_bytes: u64,
    /// Files and folders of a workspace that are looked at around a command. Looking at more would be felt.
    pub files: usize,
}

impl Default for SnapshotBounds {
    fn default() -> Self {
        Self { file_bytes: 4 << 20, total_bytes: 256 << 20, files: 20_000 }
    }
}

#[cfg(test)]
mod tests;
