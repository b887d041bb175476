//! Subagents: who else can do a part of the work, and what came of it?
//!
//! ```text
//! definition files, built-in ones, settings ── AgentRegistry
//!                                                   │
//! invoke_agent (a tool of the calling session) ── run ── AgentFactory::assemble with a seat, or a2a for an agent elsewhere
//!                                                   │        its own runner, tools, scheduler, session
//!                                                   │        its caller's policy, people, log, marks of failed models
//!                                                   └── RunGuide ── Course (time, limits, recovery; sans-IO)
//! ```
//! A run is a thread of its caller's log: one `agent_start`, one `agent_end` that says how it ended, events with a
//! `threadId` in between. Its questions go to the same people, with the path of agents that led to them. Source:
//! runtime specification §1.9 and §12. Left out: an inbox of memories and their automatic extraction, which belong to
//! a memory of its own.

mod a2a;
mod acknowledge;
mod builtin;
mod caller;
mod complete_task;
mod course;
mod definition;
mod documents;
mod front_matter;
mod guide;
mod invoke;
mod keys;
mod plugin;
mod progress;
mod prompt;
mod registry;
mod run;
mod thread;

pub(crate) use a2a::{RemoteAgents, remote_rules};
pub use a2a::{RemoteState, SecretVariable, Variables, probe};
pub use acknowledge::Acknowledgements;
pub(crate) use caller::{Caller, ChildSeat};
pub(crate) use complete_task::{COMPLETE_TASK, CompleteTask};
pub(crate) use course::Mode;
pub use definition::{
    AgentCardSource, AgentDefinition, AgentKind, AgentOutput, AgentOverride, AgentSource, LocalAgent, RemoteAgent,
    RemoteAuth,
};
pub use documents::Document;
pub(crate) use documents::{GetInternalDocs, reads_documents};
pub(crate) use invoke::InvokeAgent;
pub(crate) use plugin::RunPlugin;
pub use registry::{AgentProblem, AgentRegistry, SubagentOptions, read_overrides};
pub(crate) use thread::{Asker, Thread};
