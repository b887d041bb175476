//! The flags of `convoke serve`. Numbers are kept as text: the daemon refuses bad ones in the words of its peers.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::AgentArgs;
use crate::logging::LogFormat;

/// The daemon.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Port to listen on; 0 for any [default: 4170]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) hostname: Option<String>,

    /// Listen on a socket of this machine as well; alone, if neither --port nor --hostname is given
    #[arg(long, value_name = "unix:PATH")]
    pub(crate) listen: Option<String>,

    /// Certificate chain of the address, as PEM; HTTPS from then on
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The bearer token that clients must send; better given as QWEN_SERVER_TOKEN [default: generated]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// File that holds the bearer token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,

    /// Serve without a token, on loopback only
    #[arg(long, conflicts_with_all = ["token", "token_file", "require_auth"])]
    pub(crate) no_auth: bool,

    /// Ask for the token everywhere, /health included
    #[arg(long)]
    pub(crate) require_auth: bool,

    /// Folder to work in [default: the current one]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) workspace: Option<PathBuf>,

    /// The agent of sessions that ask for none: a name from the settings, or any ACP agent's command line
    #[arg(long, value_name = "NAME|COMMAND LINE")]
    pub(crate) agent: Option<String>,

    /// Who shares an agent's process
    #[arg(long, value_enum, value_name = "BY", default_value = "workspace")]
    pub(crate) isolation: IsolationArg,

    /// How log lines are written to stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) log_format: LogFormat,

    /// Web origin that may call, or *
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,

    /// Serve the page at /, as is usual
    #[arg(long, overrides_with = "no_web")]
    pub(crate) web: bool,

    /// Serve the API only
    #[arg(long)]
    pub(crate) no_web: bool,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,

    #[command(flatten)]
    pub(crate) our_agent: AgentArgs,
}

/// The bounds.
#[derive(Debug, Default, Args)]
pub(crate) struct LimitArgs {
    /// Sessions of the workspace at the same time; 0 for no limit [default: 32]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_sessions: Option<String>,

    /// Sessions of all workspaces at the same time; 0 for no limit [default: 800]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_total_sessions: Option<String>,

    /// Prompts waiting or running in one session; 0 for no limit [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_pending_prompts_per_session: Option<String>,

    /// Clients that follow one session at the same time, at most 1024 [default: 64]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_subscribers_per_session: Option<String>,

    /// Connections at the same time; 0 for no limit of ours [default: 256]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_connections: Option<String>,

    /// Events kept per session for clients that come back [default: 8000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) event_ring_size: Option<String>,

    /// Count how often each peer calls, and refuse what is too much
    #[arg(long)]
    pub(crate) rate_limit: bool,

    /// Prompts of a peer in a window [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) rate_limit_prompt: Option<String>,

    /// Other changes of a peer in a window [default: 30]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) rate_limit_mutation: Option<String>,

    /// Reads of a peer in a window [default: 120]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) rate_limit_read: Option<String>,

    /// Length of the window [default: 60000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) rate_limit_window_ms: Option<String>,

    /// Bytes of a loaded session's history that clients get [default: 4194304]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(crate) compacted_replay_max_bytes: Option<String>,

    /// How long a permission request waits for an answer; 0 for ever [default: 300000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) permission_response_timeout_ms: Option<String>,

    /// How long a turn may take when its prompt says nothing about it [default: no limit]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) prompt_deadline_ms: Option<String>,

    /// How long a client's event stream may take nothing before it is ended [default: no limit]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) writer_idle_timeout_ms: Option<String>,

    /// How long a session that nobody uses is kept; 0 keeps it [default: 1800000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) session_idle_timeout_ms: Option<String>,

    /// How often sessions that idled for too long are ended, many at once; 0 ends none [default: each when it is due]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) session_reap_interval_ms: Option<String>,

    /// How long a session that everybody left is kept after its turn [default: 0]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) session_prompt_settled_close_grace_ms: Option<String>,

    /// Events of a session that a client gets with a load [default: 10000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_journal_events: Option<String>,

    /// Their bytes [default: 8388608]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub(crate) max_journal_bytes: Option<String>,

    /// How long an agent may take to answer its first message [default: 10000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) initialize_timeout_ms: Option<String>,

    /// How long an agent may take to load a session [default: 60000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) session_restore_timeout_ms: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationArg {
    /// The workspace's sessions
    Workspace,
    /// Nobody: one process for each session
    Session,
}
