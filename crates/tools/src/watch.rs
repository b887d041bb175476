//! The port to whoever keeps what calls change: what was there before a call may write?
//!
//! Asked right before a tool runs, once it is allowed to, and told right after it came back. Calls that change nothing are
//! no concern of it. A call that is dropped is not told of.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::builtin::walk;
use crate::{FileFiltering, Workspace};

/// What a call may change on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// The files that it names as its locations.
    Locations,
    /// Anything.
    Anything,
}

/// A call that is about to run and may change files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritingCall {
    /// The tool.
    pub tool: String,
    /// What it does, in one line for people.
    pub what: String,
    /// The files that it may change; any file for `None`.
    pub files: Option<Vec<PathBuf>>,
}

/// Keeps what calls change. Waiting is allowed: the call waits as well.
#[async_trait]
pub trait FileWatch: Send + Sync {
    /// The call runs once this is done. The ticket is for [`Self::after`]: ids of calls may come again.
    async fn before(&self, call: WritingCall) -> WatchTicket;

    /// The call came back.
    async fn after(&self, ticket: WatchTicket);
}

/// A call that is being watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchTicket(pub String);

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyWatches;

#[async_trait]
impl FileWatch for NobodyWatches {
    async fn before(&self, _call: WritingCall) -> WatchTicket {
        WatchTicket::default()
    }

    async fn after(&self, _ticket: WatchTicket) {}
}

impl Workspace {
    /// Everything below the roots that ignore files let be seen, folders before what is in them. `.git` is left out, and
    /// links are named and not followed. Blocks on the disk.
    pub fn visible(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let roots = self.roots().to_vec();
        roots.into_iter().flat_map(|root| {
            let entries = walk::walk(&root, FileFiltering::default()).build().flatten();
            entries.filter(|entry| entry.depth() > 0).map(ignore::DirEntry::into_path)
        })
    }
}
