//! What to start, and within which limits.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How an agent is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentCommand {
    /// The executable.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The folder to start it in.
    pub cwd: PathBuf,
    /// Variables that the agent must not inherit, such as the daemon's own token.
    pub env_remove: Vec<OsString>,
    /// Variables to add; they win over [`Self::env_remove`].
    pub env_set: Vec<(OsString, OsString)>,
}

/// Limits and deadlines of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOptions {
    /// How long `initialize` may take. Source: daemon spec §a, `--initialize-timeout-ms`.
    pub initialize_timeout: Duration,
    /// The longest line that is read from the agent. The largest honest one is an edit with a whole file before and
    /// after, or an image in base64; 16 MiB leaves room for both.
    pub line_bytes_max: usize,
    /// How long a prompt may go on after its session was cancelled before [`AgentChild::prompt`] stops waiting.
    ///
    /// [`AgentChild::prompt`]: crate::AgentChild::prompt
    pub cancel_timeout: Duration,
    /// How long the agent has to exit by itself once its stdin was closed. The Gemini CLI needs two seconds on a quiet
    /// machine; the peer gives ten in all.
    pub close_grace: Duration,
    /// Whether the owner serves files and terminals: then the agent is told so, and what it asks for is a
    /// [`ChildEvent::Call`](crate::ChildEvent::Call).
    pub serves: bool,
    /// How this client introduces itself: name and version.
    pub client: (String, String),
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            initialize_timeout: Duration::from_secs(10),
            line_bytes_max: 16 * 1024 * 1024,
            cancel_timeout: Duration::from_secs(10),
            close_grace: Duration::from_secs(5),
            serves: false,
            client: ("convoke".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        }
    }
}
