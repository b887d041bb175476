//! What tests of several rooms share: a scripted model server, a scripted ACP agent, a place of their own.
//!
//! Used from tests only. What may panic here fails the test that called it.

mod binary;
#[expect(clippy::expect_used, reason = "a test that can't have its folder fails, with these words")]
mod environment;
pub mod fake_model;
mod fuzz;
pub mod mcp_site;
mod scripted_agent;
mod scripted_mcp;

pub use environment::{Ran, TestEnvironment, run};
pub use fuzz::fuzz;
pub use scripted_agent::{Chaos, Script, run_scripted_agent, scripted_agent_binary};
pub use scripted_mcp::{McpScript, run_scripted_mcp, scripted_mcp_binary};
