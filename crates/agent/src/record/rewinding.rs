//! A record while its session lives: what is put down of files, and how it goes back to a point.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chats::{RecordError, Records, records, safe};
use super::conversation::{Conversation, title_of};
use super::file::{self, RecordFile};
use super::line::Line;
use super::recorder::{Place, Recorder};
use crate::rewind::{self, FilesLine};

/// What is kept for going back stays for so long where a session of the project is open.
const OPEN_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A prompt of a conversation, as a point to go back to.
pub(crate) struct PromptPoint {
    pub(crate) id: String,
    /// In one short line.
    pub(crate) title: String,
    /// As it was given.
    pub(crate) text: String,
    pub(crate) at_ms: u64,
    /// How many of the lines of files come before it.
    pub(crate) files_before: usize,
}

impl Conversation {
    /// The prompts that were not taken back, oldest first.
    pub(crate) fn prompts(&self) -> Vec<PromptPoint> {
        let point = |message: &super::conversation::Message| {
            let prompt = message.prompt()?;
            Some(PromptPoint {
                id: message.id().to_owned(),
                title: title_of(prompt).unwrap_or_default(),
                text: prompt.iter().filter_map(convoke_adk::Part::as_text).collect::<Vec<_>>().join("\n"),
                at_ms: message.timestamp_ms(),
                files_before: message.files_before,
            })
        };
        self.messages.iter().filter_map(point).collect()
    }

    /// Whether it was taken back under this id.
    pub(crate) fn knows_rewind(&self, id: &str) -> bool {
        self.files.iter().any(|line| line.is_rewind(id))
    }

    /// Names it after the conversation that it is a branch of, and lets it begin now.
    pub(super) fn become_branch(&mut self) {
        self.summary = self.title().map(|title| format!("{title} (branch)"));
        self.started_ms = None;
    }
}

impl Recorder {
    /// What calls do to files.
    pub(crate) fn files(&self, mut files: FilesLine) {
        let mut state = self.state();
        // The prompt's own line comes once its commands have run.
        files.early = state.prompt.is_some();
        self.write(&mut state, &Line { files: Some(Box::new(files)), ..Line::default() });
    }

    /// Where what belongs to going back is, for all sessions of the project. `None` once it is not recorded any more.
    pub(crate) fn rewind_folder(&self) -> Option<PathBuf> {
        rewind_folder(&self.path()?)
    }

    /// Whose record it is.
    pub(crate) fn session_id(&self) -> String {
        self.inner.about.session_id.clone()
    }

    /// The session's id as part of a file's name.
    pub(crate) fn file_id(&self) -> String {
        safe(&self.inner.about.session_id)
    }

    /// What the record says by now; nothing where nothing was recorded.
    pub(crate) fn read(&self) -> io::Result<Conversation> {
        let path = match &self.state().place {
            Place::Open(file) => file.path.clone(),
            Place::Unwritten(_) => return Ok(Conversation::default()),
            Place::Stopped => return Err(io::Error::other("this session is not recorded any further")),
        };
        Conversation::read_file(&path)
    }

    /// Takes words and files back with one line, and waits until the disk has it. What the record says then.
    pub(crate) fn rewound(&self, to: Option<&str>, files: Option<FilesLine>) -> io::Result<Conversation> {
        let written = {
            let mut state = self.state();
            self.write(&mut state, &rewind_line(to, files));
            // Whoever is asked next begins anew.
            state.prompt = None;
            state.asked.clear();
            state.batch.clear();
            match &state.place {
                Place::Open(file) => file.syncer()(),
                Place::Unwritten(_) | Place::Stopped => Err(io::Error::other("the record can't be written")),
            }
        };
        written?;
        let conversation = self.read()?;
        let mut state = self.state();
        state.count = conversation.message_count();
        state.title = conversation.prompts().first().map(|point| point.title.clone()).filter(|title| !title.is_empty());
        Ok(conversation)
    }
}

pub(super) fn rewind_line(to: Option<&str>, files: Option<FilesLine>) -> Line<'static> {
    Line { rewind_to: to.map(|to| to.to_owned().into()), files: files.map(Box::new), ..Line::default() }
}

/// Beside the folder that the record is in.
pub(super) fn rewind_folder(record: &Path) -> Option<PathBuf> {
    let chats = record.ancestors().find(|folder| folder.ends_with("chats"))?;
    Some(chats.parent()?.join("rewind"))
}

impl Records {
    /// Finishes what a process began to put back that is gone. The record is open and ours. Whether there was anything.
    pub(super) fn finish_rewind(
        &self,
        id: &str,
        file: &RecordFile,
        conversation: &Conversation,
    ) -> Result<bool, RecordError> {
        let Some(folder) = rewind_folder(&file.path) else { return Ok(false) };
        let append = |to: Option<&str>, files| {
            file.append(&rewind_line(to, Some(files)).sealed())?;
            file.syncer()()
        };
        let failed = |source| RecordError::Write { path: file.path.clone(), source };
        rewind::recover(&folder, &safe(id), conversation, append).map_err(failed)
    }

    /// Finishes what processes that are gone began to put back in this folder. Sessions that are open are left to
    /// themselves.
    pub(crate) fn finish_rewinds(&self, cwd: &Path) {
        let Some(folder) = self.chats(cwd).parent().map(|project| project.join("rewind")) else { return };
        for id in rewind::unfinished_sessions(&folder) {
            // A record from which everything was taken back is in no list any more.
            let named = format!("-{}", safe(&id).get(..8).unwrap_or(&safe(&id)));
            let is_named =
                |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(&named));
            for path in records(&self.chats(cwd)).into_iter().filter(is_named) {
                let Ok(its) = Conversation::read_file(&path) else { continue };
                if its.session_id.as_deref() != Some(&id) {
                    continue;
                }
                match self.open(&id, path, cwd) {
                    Ok(_) | Err(RecordError::Empty(_) | RecordError::Open(_)) => {}
                    Err(error) => tracing::warn!(session = id, %error, "files were not put back to the end"),
                }
            }
        }
    }

    /// Begins a record with a conversation of another one. Its id and its name.
    pub(crate) fn branch(&self, mut conversation: Conversation, cwd: &Path) -> Result<(String, String), RecordError> {
        if conversation.message_count() == 0 {
            return Err(RecordError::Empty(cwd.to_owned()));
        }
        conversation.become_branch();
        let title = conversation.title().unwrap_or_default();
        let id = uuid::Uuid::new_v4().to_string();
        self.adopt(&id, &conversation, cwd)?;
        Ok((id, title))
    }

    /// Removes what a session that is gone had begun.
    pub(super) fn forget_rewind(&self, record: &Path, id: &str) {
        if let Some(folder) = rewind_folder(record).filter(|_| !id.is_empty()) {
            // Most sessions never left one.
            let _ = std::fs::remove_file(folder.join(format!("{}.json", safe(id))));
        }
    }
}

/// Removes the contents that no session needs any more, of the project that this record was a part of.
pub(super) fn sweep_beside(record: &Path) {
    let (Some(folder), Some(chats)) = (rewind_folder(record), record.parent()) else { return };
    if !folder.is_dir() {
        return;
    }
    let mut is_open = false;
    let mut lines = Vec::new();
    for path in records(chats) {
        let Ok(conversation) = Conversation::read_file(&path) else { return };
        is_open |= file::is_locked(&path);
        lines.extend(conversation.files);
    }
    let min_age = if is_open { OPEN_AGE } else { Duration::ZERO };
    rewind::sweep(&folder, &lines, min_age);
}
