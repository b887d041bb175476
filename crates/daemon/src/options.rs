//! What a daemon is told when it starts. Read from settings, environment and arguments by `cli`; nothing here looks
//! around by itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use convoke_acp::AgentCommand;
use convoke_bridge::{AuditRecord, BridgeOptions};
use convoke_protocol::ApprovalMode;
use convoke_stdx::guard::Spawner;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::roster::{Isolation, NamedAgents};

/// Environment variables that only the daemon may see: its token, and where that is kept. No child inherits them.
pub const SECRET_VARIABLES: &[&str] =
    &["QWEN_SERVER_TOKEN", "QWEN_SERVER_TOKEN_FILE", "CONVOKE_TOKEN", "CONVOKE_TOKEN_FILE"];

/// How one daemon listens, whom it lets in, and which agent it hosts.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Whether to listen on `hostname` and `port` at all; `false` needs a `socket`.
    pub tcp: bool,
    /// Address or name to bind: an IP address, `[v6]`, or `localhost`.
    pub hostname: String,
    /// Where to listen.
    pub port: PortOption,
    /// A Unix-domain socket to listen on, with mode 0600; its callers count as callers of this machine.
    pub socket: Option<PathBuf>,
    /// What to prove its name with; TCP connections are then TLS only.
    pub tls: Option<TlsFiles>,
    /// How often a peer may call; `None` does not count.
    pub rate: Option<RateOptions>,
    /// Whether the page is served.
    pub page: bool,
    /// The workspace: absolute, an existing folder.
    pub workspace: PathBuf,
    /// What the API asks its callers for.
    pub token: TokenOption,
    /// Whether `/health` asks for the token, too; needs a [`TokenOption::Given`].
    pub require_auth: bool,
    /// `*` or canonical origins of browsers that may call from another site.
    pub allow_origins: Vec<String>,
    /// Where the token is left for clients of the same user, with mode 0600; `None` leaves none.
    pub token_file: Option<PathBuf>,
    /// Where the audit of permissions is written, one JSON object a line; `None` keeps it in memory only.
    pub audit_file: Option<PathBuf>,
    /// Who gets every audit record as well, for embedders.
    pub audit_sink: Option<AuditSink>,
    /// Where the list of sessions that can be loaded again is kept, one file for each workspace; `None` keeps it in
    /// memory only.
    pub sessions_folder: Option<PathBuf>,
    /// The agent that runs the workspace's sessions.
    pub agent: AgentSource,
    /// What it is called, and others that a session can ask for.
    pub agents: NamedAgents,
    /// Who shares an agent's process.
    pub isolation: Isolation,
    /// How children are started.
    pub spawner: Spawner,
    /// How the bridge decides, and its bounds.
    pub bridge: BridgeOptions,
    /// The daemon's own bounds.
    pub limits: DaemonLimits,
    /// Our version, as `/capabilities` tells it.
    pub version: String,
    /// The approval mode of sessions that ask for none.
    pub approval_mode: ApprovalMode,
    /// Whether the workspace's folder is trusted, for `/capabilities`.
    pub trusted: bool,
}

/// How many requests a peer may send in a window, by what they are. Each is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    /// Prompts.
    pub prompt: u32,
    /// Other changes.
    pub mutation: u32,
    /// Reads.
    pub read: u32,
    /// The window.
    pub window: Duration,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { prompt: 10, mutation: 30, read: 120, window: Duration::from_secs(60) }
    }
}

/// The PEM files of a TLS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that signed it, in this order.
    pub certificate: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

/// Takes audit records, in their order, on the driver's own thread: it must neither block nor panic.
#[derive(Clone)]
pub struct AuditSink(pub Arc<dyn Fn(&AuditRecord) + Send + Sync>);

impl fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditSink")
    }
}

/// Which port to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortOption {
    /// The usual one, or the next that is free.
    Default,
    /// This one and no other; 0 lets the system choose.
    Given(u16),
}

impl PortOption {
    /// The usual port.
    pub const USUAL: u16 = 4170;
}

/// What the API asks its callers for.
#[derive(Clone, Debug)]
pub enum TokenOption {
    /// The operator's token.
    Given(SecretString),
    /// A token made at start. Satisfies neither `require_auth` nor `allow_origins`.
    Generate,
    /// Nothing: everyone who reaches the socket may call.
    NoAuth,
}

/// Where agents come from: one at a time, started when it is needed.
#[derive(Clone)]
pub enum AgentSource {
    /// A child process; its `cwd` is the workspace. It does not inherit [`SECRET_VARIABLES`].
    Command(AgentCommand),
    /// Whatever is at the other end of two streams, for embedders and tests.
    Streams(Arc<dyn Fn() -> AgentStreams + Send + Sync>),
}

/// What an agent writes, and what it reads.
pub struct AgentStreams {
    /// The agent's output.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// The agent's input.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
}

impl fmt::Debug for AgentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.debug_tuple("Command").field(&command.program).finish(),
            Self::Streams(_) => f.write_str("Streams"),
        }
    }
}

/// The daemon's bounds. Source: daemon specification, §a and §j.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonLimits {
    /// Connections open at once; one more is closed at once. 0 lifts the limit up to [`Self::CONNECTIONS_HARD`].
    pub connections: usize,
    /// How long a connection may take to send the head of a request, and how long it may idle between two.
    pub idle_connection: Duration,
    /// How long a client may take to send the body of a request.
    pub body_time: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// How long an agent may take to answer `initialize`.
    pub initialize_timeout: Duration,
    /// How long an agent may take to start a new session.
    pub session_start_timeout: Duration,
    /// How long an agent may take to load a session.
    pub restore_timeout: Duration,
    /// How long an agent may take to end a turn that was cancelled, to close a session, or to change its model or mode.
    pub cancel_timeout: Duration,
    /// How long an agent may stay once its stdin was closed.
    pub agent_grace: Duration,
    /// Bytes of what an agent tells again of one session that it loads. Source: daemon specification §a,
    /// `--compacted-replay-max-bytes`.
    pub replay_bytes: usize,
    /// Events of a session's stream that a load answers with.
    pub journal_events: usize,
    /// Their bytes.
    pub journal_bytes: usize,
    /// How long an agent without sessions is kept; `None` keeps it.
    pub agent_idle: Option<Duration>,
    /// How long the socket of an event stream may take nothing; `None` waits for ever.
    pub writer_idle: Option<Duration>,
    /// Time between two comments on an event stream.
    pub heartbeat: Duration,
    /// How long a stopping daemon waits for its agents.
    pub shutdown: Duration,
}

impl DaemonLimits {
    /// Connections when the configured limit is off: more than a process may have files open.
    pub const CONNECTIONS_HARD: usize = 65_536;

    /// The connections that are really taken.
    pub(crate) fn connections_max(&self) -> usize {
        if self.connections == 0 { Self::CONNECTIONS_HARD } else { self.connections }
    }
}

impl Default for DaemonLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            idle_connection: Duration::from_secs(75),
            body_time: Duration::from_secs(120),
            body_bytes: 10 * 1024 * 1024,
            initialize_timeout: Duration::from_secs(10),
            session_start_timeout: Duration::from_secs(30),
            restore_timeout: Duration::from_secs(60),
            cancel_timeout: Duration::from_secs(10),
            agent_grace: Duration::from_secs(5),
            replay_bytes: 4 << 20,
            journal_events: 10_000,
            journal_bytes: 8 << 20,
            agent_idle: Some(Duration::from_secs(600)),
            writer_idle: None,
            heartbeat: Duration::from_secs(15),
            shutdown: Duration::from_secs(10),
        }
    }
}
