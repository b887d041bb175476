//! The client end: how is somebody else's agent driven, without trusting it?
//!
//! ```text
//!  agent's stdout ─▶ lines (bounded) ─▶ intake ──updates, permission requests──▶ AgentEvents (bounded)
//!                                         └──requests and answers──▶ SDK ─┐
//!  agent's stdin ◀────────────────── outlet ◀─────────────────────────────┘◀── AgentChild::prompt …
//! ```
//! The SDK's own queues are unbounded, and its typed notifications lose what they do not know. So [`intake`] reads the
//! pipe itself: updates go past the SDK as they came, byte for byte, and the SDK is handed at most one request at a
//! time. A reader that is behind therefore stops the pipe, never fills the memory. This room does not decide about
//! permissions and keeps no session state.

mod backlog;
mod child;
mod command;
mod error;
mod event;
mod intake;
mod permission;
mod process;
mod served;
mod supervise;

pub use child::{AgentChild, AgentDescription, PromptEnd, StartedSession};
pub use command::{AgentCommand, AgentOptions};
pub use error::{AgentError, EndCause, Exit, StartError};
pub use event::{AgentEvents, ChildEvent, UpdateEvent};
pub use permission::{PermissionAsk, PermissionReply, Withdrawal};
pub use served::{CallReply, ClientCall};
