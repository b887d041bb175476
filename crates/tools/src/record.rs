//! The port to whoever watches: what is known of a call at each moment?

use convoke_adk::{FunctionCall, FunctionResponse, Part};
use serde_json::Value;

use crate::{ErrorType, Kind, LiveOutput, Location, ModeChange, ResultDisplay};

/// Hears of every change, in the order in which changes happen.
///
/// Called from the scheduler's own task: it must not block.
pub trait SchedulerObserver: Send + Sync {
    /// A call is new, moved on, or has more to show. `record` is the whole of what is known.
    fn on_change(&self, record: &CallRecord);

    /// A lasting answer of a person changed the approval mode.
    fn on_mode(&self, _change: ModeChange) {}
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl SchedulerObserver for NoObserver {
    fn on_change(&self, _record: &CallRecord) {}
}

/// Everything that is known of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The call's id; made up where the model gave none.
    pub call_id: String,
    /// The call as it runs: a hook, a person or a tail call may have changed it.
    pub call: FunctionCall,
    /// The call as the model wrote it, once it differs.
    pub original: Option<FunctionCall>,
    /// Where it stands.
    pub status: CallStatus,
    /// The tool's name for people; the called name for an unknown tool.
    pub display_name: String,
    /// What this call does, in one line; empty where that can't be told.
    pub description: String,
    /// What kind of tool it is.
    pub kind: Kind,
    /// Files it touches.
    pub locations: Vec<Location>,
    /// Who let it run, or kept it from running; `None` while nobody has.
    pub decision: Option<CallDecision>,
    /// What it has to show so far, while it runs.
    pub live: Option<LiveOutput>,
    /// How it ended; set exactly when [`CallStatus::is_terminal`].
    pub result: Option<CallResult>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// What the model is told.
    pub response: FunctionResponse,
    /// Media that go beside the response.
    pub parts: Vec<Part>,
    /// What a person sees.
    pub display: ResultDisplay,
    /// One line about the result.
    pub summary: Option<String>,
    /// What kind of failure, for [`CallStatus::Error`].
    pub error_type: Option<ErrorType>,
    /// The tool's own data.
    pub data: Option<Value>,
    /// Where the whole output is, if it was too large.
    pub output_file: Option<String>,
    /// Characters that the model is told.
    pub content_length: usize,
    /// Whether the tool ran at all: `false` for calls that were refused or cancelled before.
    pub ran: bool,
}

/// Who decided whether a call runs. The names are those of `totalDecisions` in a run's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallDecision {
    /// A person let it run.
    Accept,
    /// Policy, a hook or a person refused it.
    Reject,
    /// A person let it run with other arguments.
    Modify,
    /// Policy let it run without asking.
    AutoAccept,
}

impl CallDecision {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Modify => "modify",
            Self::AutoAccept => "auto_accept",
        }
    }
}

/// Where a call stands. Source: runtime specification §6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallStatus {
    /// Waiting for its turn, or being judged.
    Validating,
    /// A person is being asked.
    AwaitingApproval,
    /// Free to run.
    Scheduled,
    /// Running.
    Executing,
    /// Ended well.
    Success,
    /// Failed, or was denied.
    Error,
    /// Ended before its end.
    Cancelled,
}

impl CallStatus {
    /// The name in the specification.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Scheduled => "scheduled",
            Self::Executing => "executing",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing follows.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Error | Self::Cancelled)
    }
}
