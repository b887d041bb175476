//! What is known of a workspace's files, and what is different now? Blocks on the disk.
//!
//! A look at the whole workspace reads what changed since the last one, by the stamps of the files. A path that is seen for
//! the first time although everything was looked at before is new if it was touched since, or is a known file under another
//! name; else it only became visible, because an ignore file changed, and is nobody's doing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use convoke_tools::{Workspace, patch_stat, unified_patch};

use super::SnapshotBounds;
use super::blobs::{Blobs, digest};
use super::disk::Eye;
use super::state::{Seen, State};
use super::timeline::{Change, FilesLine};

/// The kernel's clock for files is coarser than ours, by a tick of at most ten milliseconds.
const SLACK_MS: u64 = 20;

/// Paths that may differ from the last base before a new one is written: a base is as large as the workspace has files.
const DELTA_MAX: usize = 500;

/// Files of one call whose lines are counted, and their size: to compare more would be felt.
const DIFFS_MAX: usize = 50;
const DIFF_BYTES_MAX: usize = 256 << 10;

/// A call that may be writing.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) since_ms: u64,
    /// `None` for anything.
    paths: Option<Vec<PathBuf>>,
}

/// What one session knows of its workspace.
pub(super) struct Ledger {
    workspace: Workspace,
    blobs: Blobs,
    bounds: SnapshotBounds,
    room: u64,
    known: BTreeMap<String, Seen>,
    /// Whether all of the workspace is known, so that what is not known is not there.
    whole: bool,
    /// The last base, and which paths differ from it by now.
    base: Option<(String, HashSet<String>)>,
    /// By call.
    open: HashMap<String, Open>,
}

/// What a begin of a call is written with.
pub(super) struct Begun {
    /// Changes since the last look, where another call of the session may have made them.
    pub(super) changes: Vec<Change>,
    pub(super) line: FilesLine,
    /// Whether the workspace was too large to be looked at.
    pub(super) unwatched: bool,
}

impl Ledger {
    pub(super) fn new(workspace: Workspace, blobs: Blobs, bounds: SnapshotBounds) -> Self {
        Self {
            workspace,
            blobs,
            bounds,
            room: bounds.total_bytes,
            known: BTreeMap::new(),
            whole: false,
            base: None,
            open: HashMap::new(),
        }
    }

    /// A call is about to run.
    pub(super) fn begin(&mut self, call: &str, files: Option<Vec<PathBuf>>, now_ms: u64) -> Begun {
        let busy = !self.open.is_empty();
        let since = self.open.values().map(|open| open.since_ms).min().unwrap_or(now_ms);
        let paths = files.map(|files| self.with_missing_folders(files));
        let changes = match &paths {
            Some(paths) => self.look_at(paths, now_ms),
            None => self.look_around(since, now_ms),
        };
        let mut line = FilesLine { begin: Some(call.to_owned()), at: Some(now_ms), ..FilesLine::default() };
        let mut unwatched = false;
        match &paths {
            Some(paths) => line.paths = paths.iter().filter_map(|path| self.entry(path)).collect(),
            None if self.whole => (line.base, line.delta) = self.base_and_delta(),
            None => {
                unwatched = true;
                line.paths = self.known.iter().map(|(path, seen)| (path.clone(), seen.state.clone())).collect();
            }
        }
        self.open.insert(call.to_owned(), Open { since_ms: now_ms, paths });
        Begun { changes: if busy { changes } else { Vec::new() }, line, unwatched }
    }

    /// A call came back: what changed meanwhile. `None` if it is not known.
    pub(super) fn end(&mut self, call: &str, now_ms: u64) -> Option<Vec<Change>> {
        let since = self.open.values().map(|open| open.since_ms).min()?;
        let open = self.open.remove(call)?;
        Some(match open.paths {
            Some(paths) => self.look_at(&paths, now_ms),
            None => self.look_around(since, now_ms),
        })
    }

    /// The calls that have not come back.
    pub(super) fn open_calls(&self) -> Vec<String> {
        self.open.keys().cloned().collect()
    }

    /// What a call changed that was running when its process was killed.
    pub(super) fn finish(&mut self, begun: &FilesLine, now_ms: u64) -> Vec<Change> {
        let since = begun.at.unwrap_or_default();
        let seen = |state: &State| Seen { state: state.clone(), stamp: None, settled: false };
        let paths = begun.paths.iter().map(|(path, state)| (path.clone(), seen(state)));
        let Some(base) = &begun.base else {
            self.known.extend(paths);
            let paths: Vec<PathBuf> = begun.paths.iter().map(|(path, _)| path.into()).collect();
            return self.look_at(&paths, now_ms);
        };
        let read = self.blobs.read(base).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some::<Vec<(String, State)>>(read) = read else { return Vec::new() };
        self.known = read.iter().chain(&begun.delta).map(|(path, state)| (path.clone(), seen(state))).collect();
        self.whole = true;
        self.base = None;
        self.look_around(since, now_ms)
    }

    /// What is at a path now. Its content is kept as well.
    pub(super) fn look(&mut self, path: &Path, now_ms: u64) -> State {
        let mut eye = Eye { blobs: &self.blobs, bounds: self.bounds, room: self.room, now_ms };
        let seen = eye.look(path, path.to_str().and_then(|path| self.known.get(path)));
        self.room = eye.room;
        seen.state
    }

    /// The files were changed by us: nothing is known of these any more.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.whole = false;
        self.base = None;
    }

    /// Lines of text that these changes add and remove.
    pub(super) fn lines(&self, changes: &[Change]) -> (usize, usize) {
        let text = |state: &State| match state {
            State::File { blob, .. } => {
                let bytes = self.blobs.read(blob).ok().filter(|bytes| bytes.len() <= DIFF_BYTES_MAX)?;
                String::from_utf8(bytes).ok()
            }
            State::Absent => Some(String::new()),
            _ => None,
        };
        let mut lines = (0, 0);
        for (path, before, after) in changes.iter().take(DIFFS_MAX) {
            let (Some(before), Some(after)) = (text(before), text(after)) else { continue };
            let (added, removed) = patch_stat(&unified_patch(path, &before, &after));
            lines = (lines.0 + added, lines.1 + removed);
        }
        lines
    }

    pub(super) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    pub(super) fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    fn entry(&self, path: &Path) -> Option<(String, State)> {
        let path = path.to_str()?;
        Some((path.to_owned(), self.known.get(path)?.state.clone()))
    }

    /// The paths, and the folders that have to be made for them.
    fn with_missing_folders(&self, files: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for file in files {
            let above = file.ancestors().skip(1).take_while(|folder| std::fs::symlink_metadata(folder).is_err());
            let mut missing: Vec<PathBuf> = above.map(Path::to_owned).collect();
            missing.reverse();
            paths.extend(missing.into_iter().chain([file]));
        }
        paths.dedup();
        paths
    }

    /// Looks at some paths. What was not known of them is no change.
    fn look_at(&mut self, paths: &[PathBuf], now_ms: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut eye = Eye { blobs: &self.blobs, bounds: self.bounds, room: self.room, now_ms };
        for path in paths {
            // A path that is no text can't be written down.
            let Some(name) = path.to_str() else { continue };
            let before = self.known.get(name);
            let seen = eye.look(path, before);
            if let Some(before) = before.filter(|before| before.state != seen.state) {
                changes.push((name.to_owned(), before.state.clone(), seen.state.clone()));
            }
            if let Some((_, delta)) = self.base.as_mut().filter(|_| before.is_none_or(|b| b.state != seen.state)) {
                delta.insert(name.to_owned());
            }
            self.known.insert(name.to_owned(), seen);
        }
        self.room = eye.room;
        changes
    }

    /// Looks at the whole workspace, or at what is known of it where it is too large.
    fn look_around(&mut self, since_ms: u64, now_ms: u64) -> Vec<Change> {
        let mut visible = Vec::new();
        for path in self.workspace.visible() {
            if visible.len() == self.bounds.files {
                self.whole = false;
                self.base = None;
                let known: Vec<PathBuf> = self.known.keys().map(PathBuf::from).collect();
                return self.look_at(&known, now_ms);
            }
            visible.push(path);
        }
        // In one order, so that the same files are kept where there is no room for all.
        visible.sort_unstable();
        let mut eye = Eye { blobs: &self.blobs, bounds: self.bounds, room: self.room, now_ms };
        let mut now: BTreeMap<String, Seen> = BTreeMap::new();
        for path in visible {
            if let Some(name) = path.to_str() {
                now.insert(name.to_owned(), eye.look(&path, self.known.get(name)));
            }
        }
        // What an ignore file hides by now is still followed.
        for (name, before) in &self.known {
            if !now.contains_key(name) {
                now.insert(name.clone(), eye.look(Path::new(name), Some(before)));
            }
        }
        self.room = eye.room;
        let moved: HashSet<(u64, u64)> = { self.known.iter() }
            .filter(|(name, before)| now.get(*name).is_none_or(|seen| seen.state != before.state))
            .filter_map(|(_, before)| before.stamp.map(|stamp| stamp.file()))
            .collect();
        let mut changes = Vec::new();
        for (name, seen) in &now {
            let before = match self.known.get(name) {
                Some(before) => &before.state,
                None if self.whole => {
                    let touched = seen.stamp.is_some_and(|stamp| {
                        stamp.changed_ms() + SLACK_MS >= since_ms || moved.contains(&stamp.file())
                    });
                    if !touched {
                        continue;
                    }
                    &State::Absent
                }
                None => continue,
            };
            if *before != seen.state {
                changes.push((name.clone(), before.clone(), seen.state.clone()));
            }
        }
        if let Some((_, delta)) = &mut self.base {
            let differs = |(name, seen): (&String, &Seen)| {
                self.known.get(name).is_none_or(|before| before.state != seen.state).then(|| name.clone())
            };
            delta.extend(now.iter().filter_map(differs));
        }
        self.known = now;
        self.whole = true;
        changes
    }

    /// A blob with all that is known, and what differs from it.
    fn base_and_delta(&mut self) -> (Option<String>, Vec<(String, State)>) {
        if self.base.as_ref().is_none_or(|(_, delta)| delta.len() > DELTA_MAX) {
            let all: Vec<(&String, &State)> = self.known.iter().map(|(path, seen)| (path, &seen.state)).collect();
            let bytes = serde_json::to_vec(&all).unwrap_or_default();
            let name = digest(&bytes);
            // Without it a call that is killed with us can't be undone, and any other can.
            self.base = self.blobs.keep(&name, &bytes).ok().map(|_| (name, HashSet::new()));
        }
        let Some((base, delta)) = &self.base else { return (None, Vec::new()) };
        let mut delta: Vec<_> = delta.iter().filter_map(|path| self.entry(Path::new(path))).collect();
        delta.sort_by(|a, b| a.0.cmp(&b.0));
        (Some(base.clone()), delta)
    }
}
