//! Putting files back, so that a process that is killed at any moment leaves the old state or one that becomes the new one.
//!
//! First all steps are written down, in a file beside the store that is there as a whole or not at all: the journal. Then
//! they are done, each one so that the file is the old one or the new one. Then the record gets its line, and the journal
//! goes. Whoever opens the session, or begins another one in the same folder, finds the journal of a process that is gone
//! and does what is left, except for files that somebody changed meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use convoke_protocol::RewindConflict;
use serde::{Deserialize, Serialize};

use super::SnapshotBounds;
use super::blobs::Blobs;
use super::disk::{Eye, is_absence};
use super::plan::Step;
use super::state::State;
use super::timeline::FilesLine;
use crate::record::{Conversation, make_folder};

/// The version that is written. What a newer one wrote is left to a newer one.
const V: u32 = 1;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Journal {
    v: u32,
    /// Whose it is.
    session: String,
    /// Names it in the record.
    pub(super) id: String,
    /// The message that the conversation goes back to.
    pub(super) to: Option<String>,
    pub(super) steps: Vec<Step>,
}

/// Called before each step that changes something. An error is the end of the process as far as this module goes.
pub(super) type Seam<'a> = &'a mut dyn FnMut() -> io::Result<()>;

impl Journal {
    pub(super) fn new(session: String, to: Option<String>, steps: Vec<Step>) -> Self {
        Self { v: V, session, id: uuid::Uuid::new_v4().to_string(), to, steps }
    }

    /// What the record says of it, once it is done.
    pub(super) fn line(&self, failed: &[RewindConflict]) -> FilesLine {
        let is_done = |step: &&Step| !failed.iter().any(|failed| failed.path == step.0);
        let changes = self.steps.iter().filter(is_done).cloned().collect();
        FilesLine { rewind: Some(self.id.clone()), changes, ..FilesLine::default() }
    }

    /// Where the journal of a session is.
    pub(super) fn path(folder: &Path, session: &str) -> PathBuf {
        folder.join(format!("{session}.json"))
    }

    /// Writes it down. From here on it will be done.
    pub(super) fn write(&self, path: &Path, seam: Seam<'_>) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        seam()?;
        convoke_stdx::place_file(path, &serde_json::to_vec(self)?, 0o600)
    }

    /// Does the steps, and says which could not be done. An error is the seam's.
    pub(super) fn apply(&self, blobs: &Blobs, seam: Seam<'_>) -> io::Result<Vec<RewindConflict>> {
        apply(&self.steps, blobs, seam)
    }
}

/// What goes first, from the inside out; then what comes, from the outside in.
fn apply(steps: &[Step], blobs: &Blobs, seam: Seam<'_>) -> io::Result<Vec<RewindConflict>> {
    let mut ordered: Vec<&Step> = steps.iter().collect();
    ordered.sort_by(|a, b| a.0.cmp(&b.0));
    let mut failed: Vec<RewindConflict> = Vec::new();
    let mut fail = |path: &str, error: &io::Error| {
        failed.push(RewindConflict { path: path.to_owned(), why: error.to_string() });
    };
    for (path, from, to) in ordered.iter().rev().map(|step| &**step) {
        if *to == State::Absent || !from.is_replaced_by(to) {
            seam()?;
            if let Err(error) = remove(Path::new(path), from, to) {
                fail(path, &error);
            }
        }
    }
    for (path, _, to) in &ordered {
        if *to == State::Absent {
            continue;
        }
        seam()?;
        if let Err(error) = put(Path::new(path), to, blobs) {
            fail(path, &error);
        }
    }
    failed.sort_by(|a, b| a.path.cmp(&b.path));
    failed.dedup_by(|a, b| a.path == b.path);
    Ok(failed)
}

fn remove(path: &Path, from: &State, to: &State) -> io::Result<()> {
    if *from == State::Absent {
        return Ok(());
    }
    is_where_it_seems(path)?;
    let removed = match from {
        State::Folder => fs::remove_dir(path),
        _ => fs::remove_file(path),
    };
    match removed {
        Err(error) if is_absence(&error) => Ok(()),
        // Something of somebody else's is in it.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && *to == State::Absent => Ok(()),
        other => other,
    }
}

fn put(path: &Path, to: &State, blobs: &Blobs) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        // Folders are steps of their own; this is one that somebody else removed.
        fs::create_dir_all(folder)?;
    }
    is_where_it_seems(path)?;
    match to {
        State::File { blob, mode } => convoke_stdx::place_file(path, &blobs.read(blob)?, *mode),
        State::Link { target } => convoke_stdx::place_link(path, Path::new(target)),
        State::Folder => match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        },
        State::Absent | State::Unkept { .. } => Ok(()),
    }
}

/// Refuses a path below a link: what is changed is in the workspace, and not where a link leads to.
fn is_where_it_seems(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    match fs::canonicalize(folder) {
        Ok(real) if real == folder => Ok(()),
        Ok(_) => Err(io::Error::other("a link was put into its path")),
        // Nothing to remove, then.
        Err(error) if is_absence(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Finishes what a process that is gone began to put back for this session. The caller has the record to itself; `append`
/// puts the line into it. Files that somebody changed meanwhile stay as they are. Whether there was anything to do.
pub(crate) fn recover(
    folder: &Path,
    session: &str,
    conversation: &Conversation,
    append: impl FnOnce(Option<&str>, FilesLine) -> io::Result<()>,
) -> io::Result<bool> {
    recover_with(folder, session, conversation, append, &mut || Ok(()))
}

pub(super) fn recover_with(
    folder: &Path,
    session: &str,
    conversation: &Conversation,
    append: impl FnOnce(Option<&str>, FilesLine) -> io::Result<()>,
    seam: Seam<'_>,
) -> io::Result<bool> {
    let path = Journal::path(folder, session);
    let journal: Journal = match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(error) if is_absence(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    if journal.v > V {
        return Err(io::Error::other("a newer version began to put files back"));
    }
    if !conversation.knows_rewind(&journal.id) {
        let blobs = Blobs::new(folder.join("blobs"));
        let mut eye = Eye { blobs: &blobs, bounds: SnapshotBounds::default(), room: u64::MAX, now_ms: 0 };
        let mut left = Vec::new();
        let mut steps = Vec::new();
        for (name, from, to) in &journal.steps {
            let now = eye.look(Path::new(name), None).state;
            let unkept = matches!((from, &now), (State::Unkept { .. }, State::Unkept { .. }));
            if now == *to {
                continue;
            }
            if now == *from || now == State::Absent || unkept {
                steps.push((name.clone(), now, to.clone()));
            } else {
                let why = "somebody else changed it before files were put back to the end".to_owned();
                left.push(RewindConflict { path: name.clone(), why });
            }
        }
        left.extend(apply(&steps, &blobs, &mut *seam)?);
        for RewindConflict { path, why } in &left {
            tracing::warn!(path, why, "a file was not put back");
        }
        seam()?;
        append(journal.to.as_deref(), journal.line(&left))?;
    }
    seam()?;
    fs::remove_file(&path)?;
    Ok(true)
}

/// The sessions of a folder whose files were not put back to the end.
pub(crate) fn unfinished_sessions(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let journals = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let read = |path: PathBuf| serde_json::from_slice::<Journal>(&fs::read(path).ok()?).ok();
    journals.filter_map(|path| Some(read(path)?.session)).collect()
}
