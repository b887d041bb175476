//! The runtime behind `AgentProtocol`, against a scripted model. One binary, so that it links once.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

mod cast;
mod catalogue;
mod client;
mod context;
mod discovered;
mod far;
mod hooks;
mod mcp;
mod planning;
mod record;
mod remote;
mod rewind;
mod rig;
mod session;
mod skills;
mod subagents;
mod walks;
