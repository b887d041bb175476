//! How does the outside reach the bridge?
//!
//! The shell around [`convoke_bridge::Bridge`]: a listener, a wall of Host, Origin and bearer checks, REST routes and
//! event streams of the `qwen serve` v1 wire, and the agents that run the sessions. It carries; the bridge decides.
//!
//! ```text
//! socket ─▶ server ─▶ service ─▶ routes ─┐            ┌─▶ stream ─▶ socket
//!                    (let in?)           ├─▶ driver ──┤
//! agent process ◀─▶ acp ◀─▶ agents ──────┘  (Bridge)  └─▶ audit log
//! ```
//! ```no_run
//! # async fn demo(options: convoke_daemon::DaemonOptions) -> Result<(), convoke_daemon::BootError> {
//! let daemon = convoke_daemon::Daemon::bind(options).await?;
//! println!("{}", daemon.ready_line());
//! let (shutdown, kill) = Default::default();
//! daemon.run(shutdown, kill).await;
//! # Ok(()) }
//! ```

mod acp_http;
mod agents;
mod api;
mod assets;
mod audit_log;
mod auth;
mod body;
mod boot;
mod daemon;
mod driver;
mod facts;
mod fallen;
mod http_error;
mod line_file;
mod listener;
mod metrics;
mod options;
mod origin;
mod peer;
mod rate;
mod respond;
mod roster;
mod route;
mod routes;
mod server;
mod service;
mod session_store;
mod stream;
mod tls;
mod toll;
mod traces;

pub use boot::{BootError, NumberRule, apply_policy, validate};
pub use convoke_acp::AgentCommand;
pub use daemon::{Daemon, ExitOutcome};
pub use options::{
    AgentSource, AgentStreams, AuditSink, DaemonLimits, DaemonOptions, PortOption, RateOptions, SECRET_VARIABLES,
    TlsFiles, TokenOption,
};
pub use roster::{Isolation, NamedAgents};
