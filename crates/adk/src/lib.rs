//! The agent kernel, in ADK's nouns: what is an invocation?
//!
//! A [`Runner`] drives an [`LlmAgent`] over a [`Session`]. Each step walks one ordered list of [`RequestProcessor`]s,
//! declares tools, asks the [`Llm`], and hands all function calls of the answer to one [`ToolDispatcher`]. [`Plugin`]s
//! see every stage. The kernel knows no file, HTTP, MCP, ACP or vendor, and no product.

mod content;
mod context;
mod dispatch;
mod event;
mod flow;
mod inbox;
mod llm_agent;
mod model;
mod plugin;
mod processor;
pub mod processors;
mod runner;
mod session;
mod tool;

pub use content::{Content, FunctionCall, FunctionResponse, Part, Role};
pub use context::{InvocationContext, RunConfig, StopReason, StopSignal};
pub use dispatch::{DispatchEnd, DispatchOutcome, SequentialDispatcher, ToolDispatcher};
pub use event::{Event, EventActions, EventError};
pub use flow::{FlowError, REFUSED};
pub use inbox::{Accepted, Inbox, Interjection};
pub use llm_agent::LlmAgent;
pub use model::{
    FinishReason, FunctionDeclaration, GenerateConfig, Llm, LlmRequest, LlmResponse, ModelError, ModelErrorKind,
    OfferedTools, ThinkingLevel, UsageMetadata,
};
pub use plugin::{Plugin, PluginError, PluginManager};
pub use processor::{Instruction, InstructionProvider, RequestProcessor};
pub use runner::{RunControls, RunError, Runner};
pub use session::{
    GetSession, InMemorySessionService, LiveSession, Session, SessionKey, SessionService, SessionSummary,
};
pub use tool::{Tool, ToolContext, ToolError, Toolset};
