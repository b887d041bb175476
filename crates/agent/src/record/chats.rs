//! Where records are, and what can be done with those of a folder.
//!
//! Ours are in `<folder>/<project>/chats/`, with a file `.project_root` beside that says which folder the project is.
//! The project's name follows from its path alone: there is no register that two processes could spoil. Gemini CLI's
//! are read where it leaves them, and never written.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use convoke_protocol::{SessionError, SessionId, StoredSession};
use convoke_stdx::{Clock, cut};
use sha2::{Digest, Sha256};

use super::conversation::Conversation;
use super::copy;
use super::file::{self, OpenError, RecordFile};
use super::recorder::{About, Recorder};
use super::retention::Retention;
use super::rewinding::sweep_beside;
use super::summary::{Summary, summarize};

/// Where records are kept.
#[derive(Clone, Debug, Default)]
pub struct RecordOptions {
    /// Ours: `.convoke/tmp`.
    pub folder: PathBuf,
    /// Gemini CLI's, which are read: `.gemini/tmp`.
    pub read_folders: Vec<PathBuf>,
    /// Where large output of a session is, in a folder `session-<id>`; it lives as long as the record.
    pub outputs: Option<PathBuf>,
    /// How long records are kept; for ever without it.
    pub retention: Option<Retention>,
}

/// The records of a user.
#[derive(Clone, Debug)]
pub struct Records {
    pub(super) options: RecordOptions,
    clock: Clock,
}

/// Why a record can't be had.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is none of this id.
    #[error("find the record of session {0}: there is none")]
    Unknown(String),
    /// A session has it open, here or in another process.
    #[error("open the record of session {0}: it is in use")]
    Open(String),
    /// It belongs to another folder.
    #[error("open the record of session {id} in {asked}: it belongs to {recorded}")]
    WrongFolder {
        /// The session.
        id: String,
        /// Where it was asked for.
        asked: PathBuf,
        /// Where it belongs.
        recorded: PathBuf,
    },
    /// It is Gemini CLI's, and only ours are changed.
    #[error("delete session {0}: its record is Gemini CLI's")]
    NotOurs(String),
    /// A newer version of the format.
    #[error("read the record {}: a newer version wrote it", .0.display())]
    TooNew(PathBuf),
    /// There is no conversation in it.
    #[error("read the record {}: there is no conversation in it", .0.display())]
    Empty(PathBuf),
    /// It can't be read.
    #[error("read the record {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It can't be written.
    #[error("write the record {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl From<RecordError> for SessionError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Unknown(id) => Self::Unknown(SessionId(id)),
            RecordError::Open(id) => Self::Open(SessionId(id)),
            RecordError::WrongFolder { id, asked, recorded } => {
                Self::WrongFolder { id: SessionId(id), asked, recorded }
            }
            other => Self::Record(other.to_string()),
        }
    }
}

/// A record that a session goes on with.
pub(crate) struct Loaded {
    pub(crate) session_id: String,
    pub(crate) conversation: Conversation,
    pub(crate) recorder: Recorder,
}

impl Records {
    /// The records in these folders.
    #[must_use]
    pub fn new(options: RecordOptions) -> Self {
        Self { options, clock: Clock::start() }
    }

    /// A record for a new session; the file begins with its first event.
    pub(crate) fn begin(&self, session_id: &str, cwd: &Path) -> Recorder {
        let about = self.about(session_id, cwd);
        let paths = self.new_paths(&about);
        Recorder::new(about, paths)
    }

    /// A record for a subagent of `parent`: `chats/<parent>/<agent>.jsonl`.
    #[must_use]
    pub fn begin_subagent(&self, parent: &SessionId, agent_id: &str, cwd: &Path) -> Recorder {
        let about = About { subagent: true, ..self.about(agent_id, cwd) };
        let folder = self.chats(cwd).join(safe(parent.as_str()));
        let name = safe(agent_id);
        let again = format!("{name}-{}.jsonl", self.clock.now().wall_ms);
        Recorder::new(about, [folder.join(format!("{name}.jsonl")), folder.join(again)])
    }

    /// The sessions of a folder, or of all of them, the newest first.
    #[must_use]
    pub fn list(&self, cwd: Option<&Path>) -> Vec<StoredSession> {
        let stored = |summary: Summary| StoredSession {
            id: SessionId(summary.id),
            cwd: summary.cwd.unwrap_or_default(),
            title: summary.title,
            created_ms: summary.started_ms,
            updated_ms: summary.updated_ms,
            message_count: summary.message_count,
        };
        self.summaries(cwd).into_iter().map(stored).collect()
    }

    /// Whether a session of this id was recorded.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.find(id, None).is_ok()
    }

    /// Opens the record of a session in order to go on with it.
    pub(crate) fn load(&self, id: &str, cwd: &Path) -> Result<Loaded, RecordError> {
        let found = self.find(id, Some(cwd))?;
        if let Some(recorded) = found.cwd.filter(|recorded| !same_folder(recorded, cwd)) {
            return Err(RecordError::WrongFolder { id: id.to_owned(), asked: cwd.to_owned(), recorded });
        }
        if found.ours { self.open(id, found.path, cwd) } else { self.import(&found.path, Some(id.to_owned()), cwd) }
    }

    /// Begins a session with what any file of any format says. The file stays as it is.
    pub(crate) fn load_file(&self, path: &Path, cwd: &Path) -> Result<Loaded, RecordError> {
        self.import(path, None, cwd)
    }

    /// Removes a session's record and everything that belongs to it.
    ///
    /// Errors: [`RecordError::Unknown`], [`RecordError::Open`], [`RecordError::NotOurs`].
    pub fn delete(&self, id: &str) -> Result<(), RecordError> {
        let found = self.find(id, None)?;
        if !found.ours {
            return Err(RecordError::NotOurs(id.to_owned()));
        }
        self.remove(&found.path, id).map_err(|error| match error {
            OpenError::Locked => RecordError::Open(id.to_owned()),
            OpenError::Io(source) => RecordError::Write { path: found.path.clone(), source },
        })?;
        sweep_beside(&found.path);
        Ok(())
    }

    /// Where a session's large output is.
    pub(crate) fn outputs_of(&self, id: &str) -> Option<PathBuf> {
        Some(self.options.outputs.as_ref()?.join(format!("session-{}", safe(id))))
    }

    /// Removes the record at `path`, whosever it is.
    pub(super) fn remove_file(&self, path: &Path) -> Result<(), OpenError> {
        let id = summarize(path).map(|summary| summary.id);
        self.remove(path, id.as_deref().unwrap_or_default())
    }

    fn remove(&self, path: &Path, id: &str) -> Result<(), OpenError> {
        file::remove(path)?;
        // What belongs to it is found by nobody now; what can't be removed goes with the next clean-up.
        let subagents = path.parent().filter(|_| !id.is_empty()).map(|chats| chats.join(safe(id)));
        let outputs = self.outputs_of(id).filter(|_| !id.is_empty());
        for folder in subagents.into_iter().chain(outputs) {
            let _ = fs::remove_dir_all(folder);
        }
        self.forget_rewind(path, id);
        Ok(())
    }

    pub(super) fn open(&self, id: &str, path: PathBuf, cwd: &Path) -> Result<Loaded, RecordError> {
        let failed = |source| RecordError::Read { path: path.clone(), source };
        let file = RecordFile::open(path.clone()).map_err(|error| match error {
            OpenError::Locked => RecordError::Open(id.to_owned()),
            OpenError::Io(error) if error.kind() == io::ErrorKind::NotFound => RecordError::Unknown(id.to_owned()),
            OpenError::Io(source) => failed(source),
        })?;
        let read = || Conversation::read(&file.stored()?);
        let mut conversation = read().and_then(|read| file.end_line().map(|()| read)).map_err(failed)?;
        if self.finish_rewind(id, &file, &conversation)? {
            conversation = read().map_err(failed)?;
        }
        let conversation = usable(&path, conversation)?;
        let about = About {
            started_ms: conversation.started_ms.unwrap_or_default(),
            ..self.about(id, conversation.cwd.as_deref().unwrap_or(cwd))
        };
        let recorder = Recorder::resume(about, file, &conversation);
        Ok(Loaded { session_id: id.to_owned(), conversation, recorder })
    }

    /// Copies what a file says into a record of ours and opens that. Without an id the session is a new one.
    fn import(&self, path: &Path, id: Option<String>, cwd: &Path) -> Result<Loaded, RecordError> {
        let failed = |source| RecordError::Read { path: path.to_owned(), source };
        let conversation = usable(path, Conversation::read_file(path).map_err(failed)?)?;
        let id = id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        self.adopt(&id, &conversation, cwd)
    }

    /// Makes a record that begins with `conversation`, and opens it.
    pub(super) fn adopt(&self, id: &str, conversation: &Conversation, cwd: &Path) -> Result<Loaded, RecordError> {
        let now_ms = self.clock.now().wall_ms;
        let about = About { started_ms: conversation.started_ms.unwrap_or(now_ms), ..self.about(id, cwd) };
        let [path, other] = self.new_paths(&about);
        let path = if path.exists() { other } else { path };
        if let Some(folder) = path.parent() {
            file::make_folder(folder).map_err(|source| RecordError::Write { path: path.clone(), source })?;
        }
        mark_project(&path, cwd);
        copy::write(&path, &about.line(), conversation, now_ms)?;
        self.open(id, path, cwd)
    }

    fn about(&self, session_id: &str, cwd: &Path) -> About {
        let started_ms = self.clock.now().wall_ms;
        About { session_id: session_id.to_owned(), cwd: cwd.to_owned(), started_ms, subagent: false }
    }

    /// Where a new record goes, and where it goes if that is taken.
    fn new_paths(&self, about: &About) -> [PathBuf; 2] {
        let moment = convoke_stdx::iso8601(about.started_ms);
        let minute = moment.get(..16).unwrap_or_default().replace(':', "-");
        let id = safe(&about.session_id);
        let chats = self.chats(&about.cwd);
        [short(&id), id.as_str()].map(|id| chats.join(format!("session-{minute}-{id}.jsonl")))
    }

    pub(super) fn chats(&self, cwd: &Path) -> PathBuf {
        self.options.folder.join(project_id(cwd)).join("chats")
    }

    /// The folders of our records, of all projects.
    pub(super) fn own_chats(&self) -> Vec<PathBuf> {
        let mut chats: Vec<_> = entries(&self.options.folder).map(|project| project.join("chats")).collect();
        chats.retain(|chats| chats.is_dir());
        chats.sort();
        chats
    }

    /// Gemini CLI's projects, and which folders they are.
    fn foreign_projects(&self, cwd: Option<&Path>) -> Vec<(PathBuf, PathBuf)> {
        let hash = cwd.map(project_hash);
        let projects = self.options.read_folders.iter().flat_map(|folder| entries(folder).collect::<Vec<_>>());
        let root_of = |project: &PathBuf| {
            let named = fs::read_to_string(project.join(".project_root")).ok().map(|text| PathBuf::from(text.trim()));
            // Older ones are called after a digest of the path, which only tells whether it is the one that is asked for.
            let is_hash = hash.as_deref().is_some_and(|hash| project.file_name().is_some_and(|name| name == hash));
            named.or_else(|| cwd.filter(|_| is_hash).map(Path::to_owned))
        };
        projects.filter_map(|project| Some((root_of(&project)?, project.join("chats")))).collect()
    }

    /// All that is listed, the newest first: ours before Gemini CLI's of the same session.
    fn summaries(&self, cwd: Option<&Path>) -> Vec<Summary> {
        let own = match cwd {
            Some(cwd) => vec![self.chats(cwd)],
            None => self.own_chats(),
        };
        let mut found: Vec<Summary> =
            own.iter().flat_map(|chats| records(chats)).filter_map(|path| summarize(&path)).collect();
        for (root, chats) in self.foreign_projects(cwd) {
            if cwd.is_none_or(|cwd| same_folder(&root, cwd)) {
                let theirs = records(&chats).into_iter().filter_map(|path| summarize(&path));
                found.extend(theirs.map(|summary| Summary { cwd: Some(root.clone()), ours: false, ..summary }));
            }
        }
        found.sort_by_key(|summary| (Reverse(summary.ours), Reverse(summary.updated_ms)));
        let mut seen = std::collections::HashSet::new();
        found.retain(|summary| seen.insert(summary.id.clone()));
        found.sort_by(|a, b| (Reverse(a.updated_ms), &a.id).cmp(&(Reverse(b.updated_ms), &b.id)));
        found
    }

    /// The record of a session: in that folder first, then anywhere.
    pub(super) fn find(&self, id: &str, cwd: Option<&Path>) -> Result<Summary, RecordError> {
        let short = format!("-{}", short(&safe(id)));
        let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&short));
        let here = cwd.map(|cwd| self.chats(cwd));
        let ours = here.into_iter().chain(self.own_chats()).flat_map(|chats| records(&chats));
        let mut ours = ours.filter(named).filter_map(|path| summarize(&path)).filter(|summary| summary.id == id);
        if let Some(summary) = ours.next() {
            return Ok(summary);
        }
        for (root, chats) in self.foreign_projects(cwd) {
            let mut theirs = records(&chats).into_iter().filter(named).filter_map(|path| summarize(&path));
            if let Some(summary) = theirs.find(|summary| summary.id == id) {
                return Ok(Summary { cwd: Some(root), ours: false, ..summary });
            }
        }
        Err(RecordError::Unknown(id.to_owned()))
    }
}

fn usable(path: &Path, conversation: Conversation) -> Result<Conversation, RecordError> {
    if conversation.is_from_the_future() {
        return Err(RecordError::TooNew(path.to_owned()));
    }
    if conversation.message_count() == 0 {
        return Err(RecordError::Empty(path.to_owned()));
    }
    Ok(conversation)
}

fn same_folder(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// What is in a folder; nothing for one that can't be read.
pub(super) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The files of a folder that may be records.
pub(super) fn records(chats: &Path) -> Vec<PathBuf> {
    let is_record = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("session-") && (name.ends_with(".jsonl") || name.ends_with(".json"))
    };
    entries(chats).filter(is_record).collect()
}

/// Says which folder a project is, for people and for whoever finds the record by its file.
pub(super) fn mark_project(record: &Path, cwd: &Path) {
    if let Some(project) = record.ancestors().find(|folder| folder.ends_with("chats")).and_then(Path::parent) {
        let marker = project.join(".project_root");
        if !marker.exists() {
            // Nothing of ours depends on it.
            let _ = fs::write(marker, cwd.display().to_string());
        }
    }
}

/// SHA-256 of a project's path, in hexadecimal: Gemini CLI's name for it.
pub(super) fn project_hash(cwd: &Path) -> String {
    Sha256::digest(cwd.as_os_str().as_encoded_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a project's folder: what it is called, for people, and what makes it different from all others.
fn project_id(cwd: &Path) -> String {
    let name = cwd.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let slug: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let slug = cut::head(slug.trim_matches('-'), 40);
    let hash = project_hash(cwd);
    let hash = cut::head(&hash, 8);
    if slug.is_empty() { hash.to_owned() } else { format!("{slug}-{hash}") }
}

/// An id as part of a file's name. Ids of ours are that already; one that a client chose may be anything.
pub(super) fn safe(id: &str) -> String {
    let text: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' }).collect();
    cut::head(&text, 100).to_owned()
}

fn short(id: &str) -> &str {
    cut::head(id, 8)
}
