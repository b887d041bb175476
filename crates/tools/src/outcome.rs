//! What a tool call comes to: what the model reads, what a person sees, and what kind of failure it was.

use std::sync::Arc;

use convoke_adk::Part;
use serde_json::Value;

/// What a call that worked gives back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model reads: `{output: …}`.
    pub text: String,
    /// Media that go to the model beside the response.
    pub parts: Vec<Part>,
    /// What a person sees.
    pub display: ResultDisplay,
    /// One line about the result, for a person.
    pub summary: Option<String>,
    /// The tool's own data, for programs.
    pub data: Option<Value>,
    /// A call to make in place of this one's result.
    pub tail_call: Option<TailCall>,
}

impl ToolOutput {
    /// The same text for the model and for people.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { display: ResultDisplay::Text(text.clone()), text, ..Self::default() }
    }
}

/// A result as a person sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultDisplay {
    /// Nothing beyond the call itself.
    #[default]
    Nothing,
    /// Text.
    Text(String),
    /// A file before and after.
    Diff {
        /// Absolute path.
        path: String,
        /// Content before; `None` for a new file.
        old_text: Option<Arc<str>>,
        /// Content after.
        new_text: Arc<str>,
        /// The unified patch between the two.
        patch: String,
    },
    /// Output of a command.
    Terminal {
        /// Process id, while it is known.
        pid: Option<u32>,
        /// Exit code, once it exited.
        exit_code: Option<i32>,
        /// What it printed.
        text: String,
    },
}

/// What a running call has to show so far. Only the newest one matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveOutput {
    /// The end of the output so far.
    pub text: String,
    /// Process id, for commands.
    pub pid: Option<u32>,
    /// All bytes so far.
    pub total_bytes: u64,
    /// Where the call stands, for programs.
    pub data: Option<Value>,
}

/// A call to make in place of a result. It keeps the first call's id and is judged like any other.
#[derive(Clone, Debug, PartialEq)]
pub struct TailCall {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub args: Value,
}

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ToolFailure {
    /// It failed.
    #[error("{message}")]
    Error {
        /// What kind of failure.
        error_type: ErrorType,
        /// What the model reads.
        message: String,
        /// What a person sees, where that is more than the message.
        display: ResultDisplay,
    },
    /// It was cancelled, and stopped.
    #[error("{message}")]
    Cancelled {
        /// What the model reads, with the output so far.
        message: String,
        /// What a person sees.
        display: ResultDisplay,
    },
}

impl ToolFailure {
    /// A failure of this kind.
    pub fn new(error_type: ErrorType, message: impl Into<String>) -> Self {
        Self::Error { error_type, message: message.into(), display: ResultDisplay::Nothing }
    }

    /// The call was cancelled and left nothing behind.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::Cancelled { message: message.into(), display: ResultDisplay::Nothing }
    }

    /// What the model reads.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Error { message, .. } | Self::Cancelled { message, .. } => message,
        }
    }

    /// What kind of failure; `None` when it was cancelled.
    #[must_use]
    pub fn error_type(&self) -> Option<ErrorType> {
        match self {
            Self::Error { error_type, .. } => Some(*error_type),
            Self::Cancelled { .. } => None,
        }
    }
}

/// Kinds of failures; [`Self::as_str`] is the name on the wire. Source: runtime specification §13.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it, and the specification lists them")]
pub enum ErrorType {
    PolicyViolation,
    InvalidToolParams,
    Unknown,
    UnhandledException,
    ToolNotRegistered,
    ExecutionFailed,
    FileNotFound,
    FileWriteFailure,
    ReadContentFailure,
    AttemptToCreateExistingFile,
    FileTooLarge,
    PermissionDenied,
    NoSpaceLeft,
    TargetIsDirectory,
    PathNotInWorkspace,
    SearchPathNotFound,
    SearchPathNotADirectory,
    EditPreparationFailure,
    EditNoOccurrenceFound,
    EditExpectedOccurrenceMismatch,
    EditNoChange,
    GlobExecutionError,
    GrepExecutionError,
    LsExecutionError,
    PathIsNotADirectory,
    McpToolError,
    McpResourceNotFound,
    ReadManyFilesSearchError,
    ShellExecuteError,
    WebFetchNoUrlInPrompt,
    WebFetchFallbackFailed,
    WebFetchProcessingError,
    WebSearchFailed,
    DiscoveredToolExecutionError,
    StopExecution,
}

impl ErrorType {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PolicyViolation => "policy_violation",
            Self::InvalidToolParams => "invalid_tool_params",
            Self::Unknown => "unknown",
            Self::UnhandledException => "unhandled_exception",
            Self::ToolNotRegistered => "tool_not_registered",
            Self::ExecutionFailed => "execution_failed",
            Self::FileNotFound => "file_not_found",
            Self::FileWriteFailure => "file_write_failure",
            Self::ReadContentFailure => "read_content_failure",
            Self::AttemptToCreateExistingFile => "attempt_to_create_existing_file",
            Self::FileTooLarge => "file_too_large",
            Self::PermissionDenied => "permission_denied",
            Self::NoSpaceLeft => "no_space_left",
            Self::TargetIsDirectory => "target_is_directory",
            Self::PathNotInWorkspace => "path_not_in_workspace",
            Self::SearchPathNotFound => "search_path_not_found",
            Self::SearchPathNotADirectory => "search_path_not_a_directory",
            Self::EditPreparationFailure => "edit_preparation_failure",
            Self::EditNoOccurrenceFound => "edit_no_occurrence_found",
            Self::EditExpectedOccurrenceMismatch => "edit_expected_occurrence_mismatch",
            Self::EditNoChange => "edit_no_change",
            Self::GlobExecutionError => "glob_execution_error",
            Self::GrepExecutionError => "grep_execution_error",
            Self::LsExecutionError => "ls_execution_error",
            Self::PathIsNotADirectory => "path_is_not_a_directory",
            Self::McpToolError => "mcp_tool_error",
            Self::McpResourceNotFound => "mcp_resource_not_found",
            Self::ReadManyFilesSearchError => "read_many_files_search_error",
            Self::ShellExecuteError => "shell_execute_error",
            Self::WebFetchNoUrlInPrompt => "web_fetch_no_url_in_prompt",
            Self::WebFetchFallbackFailed => "web_fetch_fallback_failed",
            Self::WebFetchProcessingError => "web_fetch_processing_error",
            Self::WebSearchFailed => "web_search_failed",
            Self::DiscoveredToolExecutionError => "discovered_tool_execution_error",
            Self::StopExecution => "stop_execution",
        }
    }

    /// Whether the invocation must end: going on can't help.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        self == Self::NoSpaceLeft
    }

    /// The kind that an operating-system error stands for, or `otherwise`.
    #[must_use]
    pub(crate) fn of_io(error: &std::io::Error, otherwise: Self) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => Self::FileNotFound,
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => Self::PermissionDenied,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::NoSpaceLeft,
            std::io::ErrorKind::IsADirectory => Self::TargetIsDirectory,
            _ => otherwise,
        }
    }
}
