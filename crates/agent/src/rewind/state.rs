//! What is at a path: a value that can be written down, compared and put back.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum State {
    /// Nothing.
    Absent,
    /// A folder.
    Folder,
    /// A regular file: the digest of its content, which the store has, and its permission bits.
    File { blob: String, mode: u32 },
    /// A symbolic link.
    Link { target: String },
    /// Something whose content is not kept. The mark is another one when it was changed.
    Unkept { why: Why, mark: String },
}

/// Why content is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Why {
    /// It is larger than what is kept of one file.
    TooLarge,
    /// The session keeps as much as it may, or the disk is full.
    NoRoom,
    /// It is a pipe, a socket or a device.
    NotAFile,
    /// It can't be read.
    Unreadable,
}

impl Why {
    /// In words, behind the name of a file.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::TooLarge => "it was too large to be kept",
            Self::NoRoom => "there was no room to keep it",
            Self::NotAFile => "it is no regular file",
            Self::Unreadable => "it could not be read",
        }
    }
}

impl State {
    /// Whether the two are of one kind, so that one takes the other's place in a single step.
    pub(crate) fn is_replaced_by(&self, other: &Self) -> bool {
        let is_leaf = |state: &Self| matches!(state, Self::File { .. } | Self::Link { .. } | Self::Unkept { .. });
        is_leaf(self) && is_leaf(other)
    }
}

/// What tells without reading it that a file is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            mode: meta.mode(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// The file itself, whatever it is called.
    pub(super) fn file(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// When it was made, renamed or changed last, in milliseconds since the Unix epoch.
    pub(super) fn changed_ms(&self) -> u64 {
        let (seconds, nanos) = self.changed;
        u64::try_from(seconds * 1000 + nanos / 1_000_000).unwrap_or_default()
    }

    pub(super) fn mark(&self) -> String {
        let ((seconds, nanos), size) = (self.modified, self.size);
        format!("{}-{size}-{seconds}.{nanos}", self.inode)
    }
}

/// What was seen at a path.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) state: State,
    /// For what is there.
    pub(super) stamp: Option<Stamp>,
    /// Whether an equal stamp means an equal file: not if it was written so lately that it may be written again within the
    /// same tick of the file system's clock.
    pub(super) settled: bool,
}

impl Seen {
    pub(super) const ABSENT: Self = Self { state: State::Absent, stamp: None, settled: true };
}
