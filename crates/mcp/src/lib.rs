//! Tools from elsewhere: which MCP servers are there, how do they live, and what do they offer?
//!
//! ```text
//! configs ──▶ McpServers ── one task a server ── Lifecycle (connect, back off, list again, give up; sans-IO)
//!                 │                                  └── stdio child │ streamable HTTP │ SSE of old servers
//!                 ├── tools()      names that are looked up, never taken apart
//!                 ├── prompts(), resources()
//!                 └── statuses()
//! ```
//! The room knows no session, no policy and no settings: `cli` gives configurations, `agent` makes tools of what is
//! here, and a file for tokens. It is the only room that names the MCP SDK, and none of its types leave.
//! Source: runtime specification §14; Model Context Protocol 2024-11-05 to 2026-07-28.

mod answer;
mod call;
mod catalogue;
mod client;
mod config;
mod fetch;
mod filter;
mod handler;
mod handshake;
mod lifecycle;
mod names;
mod oauth;
mod schema;
mod server;
mod servers;
mod transport;

pub use answer::{Answer, untrusted};
pub use call::{CallError, Progress};
pub use catalogue::{Annotations, PromptArgument, PromptInfo, ResourceInfo};
pub use config::{ConfigError, Remote, ServerConfig, Stdio, TransportConfig, merge};
pub use filter::{Selection, ToolFilter};
pub use names::qualified;
pub use oauth::{Flow, LoggedIn, LoginError, LoginRequest, LoginStep, OAuthSettings, login, logout};
pub use servers::{McpOptions, McpPrompt, McpResource, McpServers, McpTool, Pending, ServerReport, ServerState};
