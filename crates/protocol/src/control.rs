//! Making sessions, and what can be done with one besides prompting it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    AgentProtocol, ApprovalMode, Authenticator, BranchOutcome, ClientFiles, ClientTerminals, ConfigOption,
    PermissionPort, RewindOutcome, RewindPoint, RewindRequest, SessionId, SessionRecords, SetConfigError,
};

/// Makes sessions. Implemented by the runtime, consumed by `acp` and the front ends, wired in `cli`.
#[async_trait]
pub trait SessionFactory: Send + Sync {
    /// Who serves the sessions.
    fn info(&self) -> AgentInfo;

    /// A new session.
    async fn new_session(&self, new: NewSession) -> Result<HostedSession, SessionError>;

    /// What can be done with sessions that were recorded; `None` if none are.
    fn records(&self) -> Option<&dyn SessionRecords> {
        None
    }

    /// Where a credential can be given; `None` if the agent has all it needs.
    fn authenticator(&self) -> Option<&dyn Authenticator> {
        None
    }
}

/// Who serves the sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo {
    /// Name for programs.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Version.
    pub version: String,
}

/// What a session is made from.
pub struct NewSession {
    /// Working folder, absolute.
    pub cwd: PathBuf,
    /// Further folders to work in, absolute.
    pub additional_directories: Vec<PathBuf>,
    /// A chosen id; the factory makes one up otherwise.
    pub session_id: Option<SessionId>,
    /// Where its questions go.
    pub permission: Arc<dyn PermissionPort>,
    /// Text files as its client has them open; the disk's otherwise.
    pub files: Option<Arc<dyn ClientFiles>>,
    /// Terminals of its client, for commands that may run there.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
    /// Its first approval mode; the factory's default otherwise.
    pub approval_mode: Option<ApprovalMode>,
    /// MCP servers that the client brings along.
    pub mcp_servers: Vec<SessionServer>,
}

/// An MCP server that a client brings to a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionServer {
    /// What it is called.
    pub name: String,
    /// How it is reached, in the words of `mcpServers` in settings.
    pub config: Value,
}

impl NewSession {
    /// A session in `cwd` whose questions go to `permission`; everything else as the factory has it.
    #[must_use]
    pub fn new(cwd: PathBuf, permission: Arc<dyn PermissionPort>) -> Self {
        Self {
            cwd,
            additional_directories: Vec::new(),
            session_id: None,
            permission,
            files: None,
            terminals: None,
            approval_mode: None,
            mcp_servers: Vec::new(),
        }
    }
}

/// A session and its controls.
#[derive(Clone)]
pub struct HostedSession {
    /// Its id.
    pub id: SessionId,
    /// The agent.
    pub agent: Arc<dyn AgentProtocol>,
    /// What else can be done with it.
    pub control: Arc<dyn SessionControl>,
}

/// What can be done with a session besides prompting it. Front ends call this; slash commands end here.
#[async_trait]
pub trait SessionControl: Send + Sync {
    /// The approval mode.
    fn approval_mode(&self) -> ApprovalMode;

    /// The modes that this session may be switched to.
    fn approval_modes(&self) -> Vec<ApprovalMode>;

    /// Switches the approval mode; holds from the next decision on.
    fn set_approval_mode(&self, mode: ApprovalMode) -> Result<(), SetModeError>;

    /// The model that the next turn starts with.
    fn model(&self) -> String;

    /// What may be typed behind a `/`, for clients that offer it.
    fn commands(&self) -> Vec<CommandInfo> {
        Vec::new()
    }

    /// How many tokens fit into a request to [`Self::model`], where that is known.
    fn context_window(&self) -> Option<u64>;

    /// What else may be set while the session lives, in the order of importance. The approval mode is among it.
    fn config_options(&self) -> Vec<ConfigOption>;

    /// Sets one of [`Self::config_options`] to a value on offer; holds from the next model call on.
    fn set_config_option(&self, id: &str, value: &str) -> Result<(), SetConfigError>;

    /// Replaces the older part of the session by a summary, now.
    async fn compress(&self) -> CompressOutcome {
        CompressOutcome::Failed { why: "this session can't be compressed".to_owned() }
    }

    /// Says something to the running turn: the agent reads it before its next model call.
    fn steer(&self, _text: &str) -> SteerOutcome {
        SteerOutcome::NoTurn
    }

    /// The points that this session can go back to, oldest first. `Err` says why it can't.
    async fn rewind_points(&self) -> Result<Vec<RewindPoint>, String> {
        Err("this session is not recorded".to_owned())
    }

    /// Goes back to a point.
    async fn rewind(&self, _request: RewindRequest) -> RewindOutcome {
        RewindOutcome::Unavailable { why: "this session is not recorded".to_owned() }
    }

    /// Begins another session with what was said before a point, or with everything.
    async fn branch(&self, _at: Option<&str>) -> BranchOutcome {
        BranchOutcome::Unavailable { why: "this session is not recorded".to_owned() }
    }

    /// Ends the session: aborts what runs, ends its background processes, closes its log.
    async fn close(&self);
}

/// A command that a prompt may begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    /// Its name, without the `/`.
    pub name: String,
    /// What it does, in one line.
    pub description: String,
    /// What may follow it, for people; `None` if nothing.
    pub hint: Option<String>,
}

/// What became of a wish to compress a session. Sizes are in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompressOutcome {
    /// It is smaller now.
    Compressed {
        /// Its size before.
        before: u64,
        /// And now.
        after: u64,
    },
    /// There was nothing to gain.
    Noop,
    /// It is as it was.
    Failed {
        /// Why.
        why: String,
    },
    /// A turn is running; ask again when it is over.
    Busy,
}

/// What became of something that was said to a running turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerOutcome {
    /// The agent reads it before its next model call.
    Taken,
    /// No turn runs, or it is just over: send a prompt.
    NoTurn,
    /// Too much waits already.
    Full,
}

/// Why a session could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No usable credential.
    #[error("{0}")]
    Auth(String),
    /// The working folder can't be used.
    #[error("open the workspace {path}: {reason}")]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The id is taken.
    #[error("create session {0}: the id is in use")]
    Taken(SessionId),
    /// There is no record of it.
    #[error("load session {0}: there is no record of it")]
    Unknown(SessionId),
    /// It is in use, here or in another process.
    #[error("open session {0}: it is in use")]
    Open(SessionId),
    /// It belongs to another folder.
    #[error("load session {id} in {asked}: it belongs to {recorded}")]
    WrongFolder {
        /// The session.
        id: SessionId,
        /// Where it was asked for.
        asked: PathBuf,
        /// Where it belongs.
        recorded: PathBuf,
    },
    /// The cursor of a list is none of ours.
    #[error("list sessions: the cursor is none of this agent's")]
    Cursor,
    /// Its record can't be used. The text says what was attempted.
    #[error("{0}")]
    Record(String),
    /// Anything else.
    #[error("create a session: {0}")]
    Failed(String),
}

/// Why a mode could not be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetModeError {
    /// The session does not offer it.
    #[error("switch to mode {}: not available in this session", .0.cli())]
    Unavailable(ApprovalMode),
    /// Privileged modes need a trusted folder.
    #[error("switch to mode {}: this folder is not trusted", .0.cli())]
    Untrusted(ApprovalMode),
}
