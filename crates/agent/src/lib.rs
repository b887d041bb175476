//! What makes it a coding agent?
//!
//! [`AgentFactory`] assembles a session out of the kernel, a model, the tools and their scheduler, and hands it out
//! behind `AgentProtocol`. [`AdkAgentProtocol`] runs one stream per prompt and translates the kernel's events and the
//! scheduler's records; it is the only interpreter between `adk` and `protocol`. Settings, environment and home are
//! read elsewhere: everything arrives as options.

mod assemble;
mod client_files;
mod client_terminals;
mod config;
mod context;
mod context_files;
mod control;
mod discovered;
mod emitter;
mod hooks;
mod instructions;
mod limits;
mod loops;
mod mcp;
mod models;
mod modes;
mod near_context;
mod options;
mod permission;
mod plans;
mod prompts;
mod protocol;
mod questions;
mod record;
mod rewind;
mod routing;
mod skills;
mod subagents;
mod told;
mod tool_events;
mod tool_options;
mod translate;
mod user_program;
mod web;

pub use assemble::AgentFactory;
pub use context::{Compressed, HistoryListener, MaskedOutput, MaskingOptions, MeasuredMasking, NoHistoryListener};
pub use context_files::{ContextFile, ContextFileOptions, find_context_files};
pub use discovered::DiscoveryOptions;
pub use hooks::{
    AfterAgent, BeforeAgent, CompressTrigger, HookDefinition, HookEvent, HookLayer, HookOptions, HookSettings,
    HookSource, HookTrust, LifecycleHooks, NoLifecycleHooks, SessionEndReason, SessionStartSource, TrustNothing,
};
pub use limits::PromptLimits;
pub use loops::{LoopDetector, LoopOptions};
pub use mcp::McpSettings;
pub use models::{ConnectModel, ModelPorts, SessionModel};
pub use options::AgentOptions;
pub use prompts::PromptOptions;
pub use protocol::AdkAgentProtocol;
pub use record::{LoadedRecord, MeasuredRecord, RecordError, RecordOptions, Recorder, Records, Retention};
pub use rewind::SnapshotBounds;
pub use subagents::{
    Acknowledgements, AgentCardSource, AgentDefinition, AgentKind, AgentOutput, AgentOverride, AgentProblem,
    AgentRegistry, AgentSource, Document, LocalAgent, RemoteAgent, RemoteAuth, RemoteState, SecretVariable,
    SubagentOptions, Variables, probe, read_overrides,
};
pub use tool_options::ToolOptions;
