//! Which sessions can be loaded again? Our ids and the agents' ids of them, with what only the daemon knows, on disk.
//!
//! The agents keep what was said; this file only says whom to ask for it. It has one JSON object a line, the last one of
//! a session counts, and a line that can't be read is passed over. A session gets into it with its first prompt: before,
//! there is nothing that could be loaded.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use convoke_protocol::SessionId;
use convoke_protocol::daemon::dto::{SessionStatus, SessionSummary};
use convoke_stdx::{Ring, cut, iso8601};
use serde::{Deserialize, Serialize};

use crate::line_file::LineFile;

/// Sessions that are remembered: a year of three a day. The one that was used longest ago makes room.
const SESSIONS_MAX: usize = 1000;

/// Ids of sessions that ended before their first prompt; more than can be live at once.
const UNUSED_MAX: usize = 1024;

/// Lines of the file for each session that is remembered, before it is written anew.
const LINES_PER_SESSION: usize = 4;

/// Bytes of what a client chose freely, such as where a session comes from.
const TEXT_MAX: usize = 1024;

/// One session that can be loaded again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionRecord {
    /// Version of the line.
    pub(crate) v: u8,
    /// Our id.
    pub(crate) session_id: SessionId,
    /// The agent's id.
    pub(crate) agent_session_id: SessionId,
    /// The agent's name in the daemon's settings.
    pub(crate) agent: String,
    /// The folder it works in.
    pub(crate) cwd: String,
    /// Milliseconds since the Unix epoch.
    pub(crate) created_ms: u64,
    /// When this was written, in milliseconds since the Unix epoch.
    pub(crate) updated_ms: u64,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) display_name: Option<String>,
    /// What kind of place it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_type: Option<String>,
    /// Which of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_id: Option<String>,
    /// Its agent does not have it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) gone: bool,
}

impl SessionRecord {
    /// The version that is written and read.
    pub(crate) const V: u8 = 1;

    /// The session in a list, while it is not live.
    fn summary(&self) -> SessionSummary {
        let status = SessionStatus {
            session_id: self.session_id.clone(),
            workspace_cwd: self.cwd.clone(),
            created_at: iso8601(self.created_ms),
            updated_at: Some(iso8601(self.updated_ms)),
            display_name: self.display_name.clone(),
            source_type: self.source_type.clone(),
            client_count: 0,
            has_active_prompt: false,
            active_work_state: "idle",
            is_waiting_for_permission: false,
            is_waiting_for_user_question: false,
            pending_interaction_count: 0,
            has_turn_error: false,
            turn_error: None,
            pending_interactions: Vec::new(),
        };
        SessionSummary { status, is_archived: false }
    }
}

/// Every session that can be loaded again.
#[derive(Debug)]
pub(crate) struct SessionStore {
    records: BTreeMap<SessionId, SessionRecord>,
    unused: Ring<SessionId>,
    file: LineFile,
    /// Lines in the file, about.
    lines: usize,
}

impl SessionStore {
    /// What `text`, the content of the file, remembers. Written on to `file`.
    pub(crate) fn new(text: &str, file: LineFile) -> Self {
        let mut store = Self { records: BTreeMap::new(), unused: Ring::new(UNUSED_MAX), file, lines: 0 };
        let mut unread = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            store.lines += 1;
            match serde_json::from_str::<SessionRecord>(line) {
                Ok(record) if record.v == SessionRecord::V => store.take(record),
                Ok(_) | Err(_) => unread += 1,
            }
        }
        if unread > 0 {
            tracing::warn!(lines = unread, "passed over lines of the list of sessions");
        }
        store
    }

    fn take(&mut self, record: SessionRecord) {
        if record.gone {
            self.records.remove(&record.session_id);
            return;
        }
        self.records.insert(record.session_id.clone(), record);
        if self.records.len() > SESSIONS_MAX {
            let oldest = self.records.values().min_by_key(|record| record.updated_ms);
            if let Some(oldest) = oldest.map(|record| record.session_id.clone()) {
                self.records.remove(&oldest);
            }
        }
    }

    /// Remembers a session, or what changed about it.
    pub(crate) fn put(&mut self, mut record: SessionRecord) {
        for text in [&mut record.source_type, &mut record.source_id, &mut record.display_name].into_iter().flatten() {
            let end = cut::head(text, TEXT_MAX).len();
            text.truncate(end);
        }
        self.write(record);
    }

    /// Forgets a session that its agent does not have any more.
    pub(crate) fn forget(&mut self, session: &SessionId) {
        if let Some(record) = self.records.get(session) {
            self.write(SessionRecord { gone: true, ..record.clone() });
        }
    }

    fn write(&mut self, record: SessionRecord) {
        // Records hold strings and numbers only: encoding them into memory can't fail.
        let line = serde_json::to_vec(&record).unwrap_or_default();
        let session = record.session_id.clone();
        self.take(record);
        self.lines += 1;
        let written = if self.lines > SESSIONS_MAX * LINES_PER_SESSION {
            self.lines = self.records.len();
            let mut all = Vec::new();
            for record in self.records.values() {
                all.extend(serde_json::to_vec(record).unwrap_or_default());
                all.push(b'\n');
            }
            self.file.replace(all)
        } else {
            self.file.append(line)
        };
        if !written {
            tracing::warn!(%session, "a session is remembered in memory only: the disk is behind");
        }
    }

    /// A session that ended before its first prompt: nobody can load it, whatever its agent kept.
    pub(crate) fn ended_unused(&mut self, session: SessionId) {
        self.unused.push(session);
    }

    /// Whether a session ended before its first prompt.
    pub(crate) fn was_unused(&self, session: &SessionId) -> bool {
        self.unused.iter().any(|unused| unused == session)
    }

    /// What is remembered of a session.
    pub(crate) fn get(&self, session: &SessionId) -> Option<&SessionRecord> {
        self.records.get(session)
    }

    /// Every session that is remembered, as a list shows it.
    pub(crate) fn summaries(&self) -> impl Iterator<Item = SessionSummary> {
        self.records.values().map(SessionRecord::summary)
    }
}

/// The content of the file at `path`; nothing if it is not there or can't be read, which costs the past and no more.
pub(crate) fn read(path: &Path) -> String {
    match std::fs::read(path) {
        // A line that is no text is passed over like any other that can't be read.
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the list of sessions can't be read");
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_file::line_file;

    fn record(id: &str, updated_ms: u64) -> SessionRecord {
        SessionRecord {
            v: SessionRecord::V,
            session_id: id.into(),
            agent_session_id: format!("agent {id}").as_str().into(),
            agent: "default".to_owned(),
            cwd: "/workspace/demo".to_owned(),
            created_ms: 5,
            updated_ms,
            display_name: Some("A name".to_owned()),
            source_type: None,
            source_id: None,
            gone: false,
        }
    }

    fn line(record: &SessionRecord) -> String {
        serde_json::to_string(record).unwrap() + "\n"
    }

    #[test]
    fn the_last_line_of_a_session_counts_and_a_torn_one_does_not() {
        let renamed = SessionRecord { display_name: Some("Another".to_owned()), ..record("a", 2) };
        let gone = SessionRecord { gone: true, ..record("b", 3) };
        let later = SessionRecord { v: 2, ..record("c", 3) };
        let mut text = [record("a", 1), record("b", 1), renamed, gone, later].iter().map(line).collect::<String>();
        text.push_str("not json\n{\"v\":1,\"sessionId\":\"d\",\"agentSess");
        let store = SessionStore::new(&text, LineFile::default());
        assert_eq!(store.get(&"a".into()).unwrap().display_name.as_deref(), Some("Another"));
        assert!(["b", "c", "d"].iter().all(|id| store.get(&(*id).into()).is_none()));
        assert_eq!(store.summaries().count(), 1);
    }

    #[tokio::test]
    async fn what_is_put_is_read_back_and_the_file_stays_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.jsonl");
        // As many at once as the queue takes.
        for round in 0..10 {
            let (file, writer) = line_file(Some(path.clone()));
            let mut store = SessionStore::new(&read(&path), file);
            for n in round * 500..(round + 1) * 500 {
                store.put(record(&format!("s{}", n % (SESSIONS_MAX + 5)), u64::try_from(n).unwrap()));
            }
            drop(store);
            writer.unwrap().run().await;
        }
        let (file, writer) = line_file(Some(path.clone()));
        let mut store = SessionStore::new(&read(&path), file);
        let long = "é".repeat(TEXT_MAX);
        store.put(SessionRecord { source_id: Some(long), ..record("long", 1_000_000) });
        let kept: Vec<_> = store.summaries().map(|summary| summary.status.session_id).collect();
        assert_eq!(kept.len(), SESSIONS_MAX);
        drop(store);
        writer.unwrap().run().await;
        let text = read(&path);
        assert!(text.lines().count() <= SESSIONS_MAX * LINES_PER_SESSION, "{}", text.lines().count());
        let again = SessionStore::new(&text, LineFile::default());
        assert_eq!(again.summaries().map(|summary| summary.status.session_id).collect::<Vec<_>>(), kept);
        assert_eq!(again.get(&"long".into()).unwrap().source_id.as_ref().unwrap().len(), TEXT_MAX);
    }

    #[test]
    fn a_session_that_was_never_used_is_gone_and_a_forgotten_one_too() {
        let mut store = SessionStore::new("", LineFile::default());
        store.ended_unused("x".into());
        assert!(store.was_unused(&"x".into()) && !store.was_unused(&"y".into()));
        store.put(record("a", 1));
        store.forget(&"a".into());
        assert_eq!(store.get(&"a".into()), None);
    }
}
