//! What the rooms of Convoke say to each other.
//!
//! Types and ports, no logic, no clock, no socket, no runtime. The agent half speaks [`AgentProtocol`] and
//! [`AgentEvent`]; the daemon half speaks the `qwen serve` v1 wire in [`daemon`]; both meet in ACP, which is carried
//! here as raw JSON and named only by the `acp` room.

mod agent;
mod approval;
mod auth;
mod config_option;
mod content;
mod control;
pub mod daemon;
mod event;
mod exit;
mod files;
mod ids;
mod log;
mod permission;
mod question;
mod records;
mod rewind;
mod session;
mod terminals;

pub use agent::{AgentProtocol, AgentSend, SendError, SendMessage, SendReceipt, SessionUpdate};
pub use approval::ApprovalMode;
pub use auth::{AuthError, AuthMethod, Authenticator};
pub use config_option::{ConfigCategory, ConfigChoice, ConfigOption, SetConfigError};
pub use content::{ContentPart, DisplayContent, ToolDisplay, ToolKind, ToolLocation};
pub use control::{
    AgentInfo, CommandInfo, CompressOutcome, HostedSession, NewSession, SessionControl, SessionError, SessionFactory,
    SessionServer, SetModeError, SteerOutcome,
};
pub use event::{AgentEvent, AgentEventBody, ErrorStatus, MessageRole, Meta, StreamEndReason};
pub use exit::ExitCode;
pub use files::{ClientFiles, ClientFilesError};
pub use ids::{ClientId, EventId, PromptId, RequestId, SessionId, StreamId, ToolCallId};
pub use log::{EventLog, Subscription};
pub use permission::{
    PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome, PermissionPort, PermissionRequest,
};
pub use question::{AnswerChoice, AnswerKind, QuestionOutcome, QuestionRequest};
pub use records::{ListSessions, LoadFrom, LoadSession, LoadedSession, SessionPage, SessionRecords, StoredSession};
pub use rewind::{
    BranchOutcome, LastingEffect, RewindConflict, RewindOutcome, RewindPoint, RewindRequest, RewindWhat, Rewound,
    TurnChanges,
};
pub use session::{AgentSession, StreamError, StreamFrom};
pub use terminals::{
    ClientTerminal, ClientTerminalError, ClientTerminals, TerminalCommand, TerminalExit, TerminalOutput,
};
