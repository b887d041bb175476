//! Sessions that were recorded: listing them, going on with one, forgetting one.

use std::path::PathBuf;

use async_trait::async_trait;

use crate::{AgentEvent, HostedSession, NewSession, SessionError, SessionId};

/// What can be done with recorded sessions. A factory that records has it; see
/// [`SessionFactory::records`](crate::SessionFactory::records).
#[async_trait]
pub trait SessionRecords: Send + Sync {
    /// The sessions that have something in them, the one that was used last first.
    ///
    /// Errors: [`SessionError::Cursor`].
    async fn list_sessions(&self, list: ListSessions) -> Result<SessionPage, SessionError>;

    /// Goes on with a session: with its history in the model's mind, and on request for the client to see.
    ///
    /// Errors: [`SessionError::Unknown`]; [`SessionError::Open`] while this or another process has it open;
    /// [`SessionError::WrongFolder`]; [`SessionError::Record`] for a file that can't be read.
    async fn load_session(&self, load: LoadSession) -> Result<LoadedSession, SessionError>;

    /// Removes a session's record and what belongs to it.
    ///
    /// Errors: [`SessionError::Unknown`], [`SessionError::Open`].
    async fn delete_session(&self, id: &SessionId) -> Result<(), SessionError>;
}

/// Which sessions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListSessions {
    /// Those of this folder; all of them otherwise.
    pub cwd: Option<PathBuf>,
    /// Where the page before ended: [`SessionPage::next`].
    pub cursor: Option<String>,
    /// At most so many; all of them otherwise.
    pub limit: Option<usize>,
}

/// Some sessions of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<StoredSession>,
    /// Where the next page begins, if there is one. It stays right when sessions come and go meanwhile.
    pub next: Option<String>,
}

/// A recorded session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// Its id.
    pub id: SessionId,
    /// The folder it works in.
    pub cwd: PathBuf,
    /// A name for people.
    pub title: Option<String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// When it was used last, in milliseconds since the Unix epoch.
    pub updated_ms: u64,
    /// Prompts and answers.
    pub message_count: usize,
}

/// Where a session comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadFrom {
    /// The record of this session.
    Session(SessionId),
    /// Any file with a conversation. The session is a new one that begins with it.
    File(PathBuf),
}

/// What a session is to go on with.
pub struct LoadSession {
    /// Where it comes from.
    pub from: LoadFrom,
    /// What else it is made from. The folder is the one of the record; a chosen id is not looked at.
    pub session: NewSession,
    /// Whether the client wants to see what was said before.
    pub replay: bool,
}

/// A session that goes on.
pub struct LoadedSession {
    /// The session. Its log begins here.
    pub session: HostedSession,
    /// What was said and done before, as it would have been streamed; empty unless it was asked for.
    pub history: Vec<AgentEvent>,
    /// Its name for people.
    pub title: Option<String>,
    /// Lines of the record that could not be read, and are missing.
    pub damaged: usize,
}
