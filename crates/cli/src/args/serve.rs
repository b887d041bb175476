//! The flags of `convoke serve`. Numbers are kept as text: the daemon refuses bad ones in the words of its peers.

use std::path::PathBuf;

use clap::Args;

use super::AgentArgs;

/// The daemon.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Port to listen on; 0 for any [default: 4170]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) hostname: String,

    /// The bearer token that clients must send; better given as QWEN_SERVER_TOKEN [default: generated]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// Serve without a token, on loopback only
    #[arg(long, conflicts_with_all = ["token", "require_auth"])]
    pub(crate) no_auth: bool,

    /// Ask for the token everywhere, /health included
    #[arg(long)]
    pub(crate) require_auth: bool,

    /// Folder to work in [default: the current one]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) workspace: Option<PathBuf>,

    /// Host this ACP agent instead of our own
    #[arg(long, value_name = "COMMAND LINE")]
    pub(crate) agent: Option<String>,

    /// Web origin that may call, or *
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,

    /// Sessions at the same time; 0 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_sessions: Option<String>,

    /// Prompts waiting or running in one session; 0 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_pending_prompts_per_session: Option<String>,

    /// Clients that follow one session at the same time, at most 1024 [default: 64]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_subscribers_per_session: Option<String>,

    /// Connections at the same time
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) max_connections: Option<String>,

    /// Events kept per session for clients that come back
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) event_ring_size: Option<String>,

    /// How long a permission request waits for an answer; 0 for ever [default: 300000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) permission_response_timeout_ms: Option<String>,

    /// How long an agent may take to answer its first message [default: 10000]
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) initialize_timeout_ms: Option<String>,

    #[command(flatten)]
    pub(crate) our_agent: AgentArgs,
}
