//! Tools: what happens between a `FunctionCall` and a `FunctionResponse`?
//!
//! ```text
//! adk ── Vec<FunctionCall> ──▶ ToolScheduler ── Scheduler (order, parallelism, cancellation; sans-IO)
//!                                  ├── ToolRegistry ── DeclarativeTool::build ── Invocation::execute
//!                                  ├── ToolHooks     (before_tool, after_tool)
//!                                  ├── SessionPolicy (allow | ask | deny: decided here and nowhere else)
//!                                  ├── Approver      (a person, somewhere)
//!                                  ├── FileWatch     (what calls change)
//!                                  └── SchedulerObserver (every change of every call)
//! ```
//! The room knows no model, no protocol and no settings: `cli` gives options, `agent` translates what the ports say.
//! Source: runtime specification §6 and §13.

mod approval;
pub mod builtin;
mod client_files;
mod client_terminals;
mod diff;
mod executor;
mod hooks;
mod ignored;
mod outcome;
mod params;
pub mod policy;
mod process;
mod record;
mod redaction;
mod registry;
mod sandbox;
pub mod scheduler;
mod suggest;
mod text;
mod tool;
mod truncate;
mod watch;
mod workspace;

pub use approval::{ApprovalOption, ApprovalOptionKind, ApprovalOutcome, ApprovalRequest, Approver, NobodyApproves};
pub use client_files::ClientFiles;
pub use client_terminals::{ClientTerminal, ClientTerminals, TerminalCommand, TerminalExit, TerminalOutput};
pub use diff::{stat as patch_stat, unified_patch};
pub use executor::{CheckerHost, SchedulerOptions, ToolScheduler};
pub use hooks::{AfterTool, BeforeTool, HookCall, HookResult, NoHooks, ToolHooks};
pub use ignored::FileFiltering;
pub use outcome::{ErrorType, LiveOutput, ResultDisplay, TailCall, ToolFailure, ToolOutput};
pub use params::check as check_arguments;
pub use policy::{Mode, ModeChange, ModeRefused, PlanFolder, PolicyOptions, SessionPolicy};
pub use process::{BackgroundLimits, BackgroundProcess, BackgroundProcesses, BackgroundStatus, Guards};
pub use record::{CallDecision, CallRecord, CallResult, CallStatus, NoObserver, SchedulerObserver};
pub use redaction::Redaction;
pub use registry::{RegisterError, ToolRegistry};
pub use sandbox::SandboxOptions;
pub use tool::{ConfirmationDetails, DeclarativeTool, ExecutionContext, Invocation, Kind, Location, ToolOrigin};
pub use truncate::{Truncated, Truncation, output_file_name};
pub use watch::{FileWatch, NobodyWatches, Reach, WatchTicket, WritingCall};
pub use workspace::{Access, PathError, ResolvedPath, Workspace, WorkspaceOptions};
