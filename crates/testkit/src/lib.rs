//! testkit
pub mod fake_model;

mod scripted_agent;

pub use scripted_agent::{Script, run_scripted_agent, scripted_agent_binary};
