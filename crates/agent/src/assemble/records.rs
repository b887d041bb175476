//! Sessions that go on: a record, and a session that begins with what it says.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use convoke_adk::Event;
use convoke_protocol::{
    ListSessions, LoadFrom, LoadSession, LoadedSession, NewSession, SessionError, SessionId, SessionPage,
    SessionRecords, StoredSession,
};
use tokio_util::task::TaskTracker;

use super::AgentFactory;
use crate::discovered::discover;
use crate::record::{AGENT, Loaded, RecordError, RecordOptions, Recorder, Records};
use crate::rewind::FilesLine;

/// What a session begins with.
#[derive(Default)]
pub(super) struct Past {
    pub(super) events: Vec<Event>,
    /// Goes on with a record; a new session begins one of its own.
    pub(super) recorder: Option<Recorder>,
    /// What the record says of files.
    pub(super) files: Vec<FilesLine>,
}

/// Owns the records, and the clean-up of old ones.
pub(super) struct RecordKeeper {
    records: Arc<Records>,
    tasks: TaskTracker,
    begun: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl RecordKeeper {
    pub(super) fn new(options: RecordOptions) -> Self {
        let records = Arc::new(Records::new(options));
        Self { records, tasks: TaskTracker::new(), begun: AtomicBool::new(false), stop: Arc::default() }
    }

    /// A record for a new session. With the first one the clean-up begins, on a thread of its own.
    pub(super) fn begin(&self, id: &SessionId, cwd: &Path) -> Recorder {
        self.clean_up();
        self.records.begin(id.as_str(), &cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned()))
    }

    /// A record for a run of the subagent `id`, beside the one of the session that people know.
    pub(super) fn begin_subagent(&self, session: &SessionId, id: &SessionId, cwd: &Path) -> Recorder {
        let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        self.records.begin_subagent(session, id.as_str(), &cwd)
    }

    pub(super) fn records(&self) -> &Arc<Records> {
        &self.records
    }

    /// Finishes what processes that are gone began to put back in this folder, before anybody works in it.
    pub(super) async fn finish_rewinds(&self, cwd: &Path) {
        let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
        let finished = self.run(move |records| {
            records.finish_rewinds(&cwd);
            Ok(())
        });
        if let Err(error) = finished.await {
            tracing::warn!(%error, "it could not be seen whether files were put back to the end");
        }
    }

    pub(super) async fn knows(&self, id: &SessionId) -> bool {
        let id = id.to_string();
        self.run(move |records| Ok(records.knows(&id))).await.unwrap_or(false)
    }

    fn clean_up(&self) {
        if !self.begun.swap(true, Ordering::Relaxed) {
            let (records, stop) = (self.records.clone(), self.stop.clone());
            self.tasks.spawn_blocking(move || records.clean_up(&stop));
        }
    }

    /// Disks may be slow, and folders large: not on the thread that runs the sessions.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Records) -> Result<T, RecordError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let records = self.records.clone();
        match self.tasks.spawn_blocking(move || work(&records)).await {
            Ok(done) => Ok(done?),
            Err(error) => Err(SessionError::Record(format!("read the records: {error}"))),
        }
    }
}

impl Drop for RecordKeeper {
    fn drop(&mut self) {
        // The clean-up ends between two records; whatever is left is the next one's.
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl SessionRecords for AgentFactory {
    async fn list_sessions(&self, list: ListSessions) -> Result<SessionPage, SessionError> {
        let ListSessions { cwd, cursor, limit } = list;
        let sessions = self.keeper()?.run(move |records| Ok(records.list(cwd.as_deref()))).await?;
        page(sessions, cursor.as_deref(), limit)
    }

    async fn load_session(&self, load: LoadSession) -> Result<LoadedSession, SessionError> {
        let LoadSession { from, session: new, replay } = load;
        let keeper = self.keeper()?;
        keeper.clean_up();
        keeper.finish_rewinds(&new.cwd).await;
        let folder = new.cwd.clone();
        let work = move |records: &Records| {
            let loaded = match &from {
                LoadFrom::Session(id) => records.load(id.as_str(), &folder.canonicalize().unwrap_or(folder)),
                LoadFrom::File(path) => records.load_file(path, &folder.canonicalize().unwrap_or(folder)),
            }?;
            let Loaded { session_id, mut conversation, recorder } = loaded;
            if conversation.damaged > 0 {
                let lines = conversation.damaged;
                tracing::warn!(session = %session_id, lines, "a record has lines that can't be read");
            }
            let history = if replay { conversation.replay(&session_id) } else { Vec::new() };
            let (title, damaged) = (conversation.title(), conversation.damaged);
            let files = std::mem::take(&mut conversation.files);
            let past = Past { events: conversation.into_events(AGENT), recorder: Some(recorder), files };
            Ok((SessionId(session_id), past, history, title, damaged))
        };
        let (session_id, past, history, title, damaged) = keeper.run(work).await?;
        let discovered = discover(&self.options, &new.cwd).await;
        let new = NewSession { session_id: Some(session_id), ..new };
        let session = self.assemble(new, discovered, past, None)?.host();
        Ok(LoadedSession { session, history, title, damaged })
    }

    async fn delete_session(&self, id: &SessionId) -> Result<(), SessionError> {
        let id = id.to_string();
        self.keeper()?.run(move |records| records.delete(&id)).await
    }
}

impl AgentFactory {
    fn keeper(&self) -> Result<&RecordKeeper, SessionError> {
        self.records.as_deref().ok_or_else(|| SessionError::Record("use records: sessions are not recorded".to_owned()))
    }
}

/// The part of a list that a cursor asks for. A cursor names the last session of the page before, and when it was used:
/// that place in the order stays, whatever becomes of the session.
fn page(sessions: Vec<StoredSession>, cursor: Option<&str>, limit: Option<usize>) -> Result<SessionPage, SessionError> {
    let read = |text: &str| {
        let (ms, id) = text.split_once(' ')?;
        Some((ms.parse::<u64>().ok()?, id.to_owned())).filter(|(_, id)| SessionId::is_well_formed(id))
    };
    let cursor = cursor.map(|text| read(text).ok_or(SessionError::Cursor)).transpose()?;
    let is_behind = |session: &StoredSession| {
        cursor.as_ref().is_none_or(|(ms, id)| {
            session.updated_ms < *ms || (session.updated_ms == *ms && session.id.as_str() > id.as_str())
        })
    };
    let mut rest = sessions.into_iter().filter(is_behind);
    let sessions: Vec<_> = rest.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
    let more = rest.next().is_some();
    let next = sessions.last().filter(|_| more).map(|last| format!("{} {}", last.updated_ms, last.id));
    Ok(SessionPage { sessions, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_although_sessions_go() {
        let stored = |id: &str, updated_ms| StoredSession {
            id: id.into(),
            cwd: "/w".into(),
            title: None,
            created_ms: 0,
            updated_ms,
            message_count: 1,
        };
        let all = vec![stored("d", 9), stored("a", 5), stored("b", 5), stored("c", 1)];
        let ids = |page: &SessionPage| page.sessions.iter().map(|s| s.id.to_string()).collect::<Vec<_>>();
        let first = page(all.clone(), None, Some(2)).unwrap();
        assert_eq!(ids(&first), ["d", "a"]);
        let left = all.into_iter().filter(|session| session.id.as_str() != "a").collect();
        let second = page(left, first.next.as_deref(), Some(2)).unwrap();
        assert_eq!((ids(&second), second.next), (vec!["b".to_owned(), "c".to_owned()], None));
        for garbage in ["", "x", "9", " ", "nine b", "9 ", "9 ../b"] {
            assert!(matches!(page(vec![], Some(garbage), None), Err(SessionError::Cursor)), "{garbage:?}");
        }
    }
}
