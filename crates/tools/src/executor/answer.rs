//! What the model is told of each call: the truth, also about calls that never ran.

use convoke_adk::{FunctionCall, FunctionResponse};

use crate::scheduler::{End, Reason};
use crate::{CallResult, CallStatus, ErrorType, ResultDisplay, ToolFailure, ToolOutput};

/// A session that ends while calls are being submitted.
pub(super) const CLOSED: &str = "[Operation Cancelled] Reason: The session was closed. The tool never ran.";

/// A call that a person refused.
pub(super) const DENIED: &str = "User denied execution. The tool did not run.";

/// What is known of a call when it ends.
#[derive(Default)]
pub(super) struct Known {
    /// How it came back, or why it was denied.
    pub(super) result: Option<Result<ToolOutput, ToolFailure>>,
    pub(super) output_file: Option<String>,
    /// Whether it executed.
    pub(super) ran: bool,
    /// Why a question was not answered.
    pub(super) unanswered: Option<String>,
    /// What is said of a refusal.
    pub(super) refusal: Option<&'static str>,
    /// The tool that ran first, if this call was to replace its result.
    pub(super) instead_of: Option<String>,
}

/// The status and the result of a call that ended so.
pub(super) fn of(call: &FunctionCall, end: End, known: Known) -> (CallStatus, CallResult) {
    let Known { result, output_file, ran, unanswered, refusal, instead_of } = known;
    match (end, result) {
        (End::Success, Some(Ok(output))) => {
            let response = FunctionResponse::output(call, output.text.as_str());
            let result = CallResult {
                response,
                content_length: output.text.chars().count(),
                parts: output.parts,
                display: output.display,
                summary: output.summary,
                error_type: None,
                data: output.data,
                output_file,
                ran,
            };
            (CallStatus::Success, result)
        }
        (End::Error, Some(Err(failure))) => {
            let (message, display, error_type) = take_apart(failure);
            let result = failed(call, message, display, error_type.or(Some(ErrorType::Unknown)), ran);
            (CallStatus::Error, CallResult { output_file, ..result })
        }
        (End::Stopped, Some(outcome)) => {
            let (message, display) = match outcome {
                Ok(output) => (output.text, output.display),
                Err(failure) => {
                    let (message, display, _) = take_apart(failure);
                    (message, display)
                }
            };
            let message = format!("[Operation Cancelled] Reason: User cancelled tool execution.\n\n{message}");
            let result = failed(call, message.trim_end().to_owned(), display, None, true);
            (CallStatus::Cancelled, CallResult { output_file, ..result })
        }
        (End::Dropped, _) => {
            let message = "[Operation Cancelled] Reason: User cancelled tool execution. The tool had begun, did not \
                           stop in time and was ended; what it did until then is not known.";
            (CallStatus::Cancelled, failed(call, message.to_owned(), ResultDisplay::Nothing, None, true))
        }
        (End::NeverRan(reason), _) => never_ran(call, reason, (unanswered, refusal.unwrap_or(DENIED)), instead_of),
        (End::Success | End::Error | End::Stopped, _) => {
            debug_assert!(false, "a call ended with {end:?} and nothing to say");
            let message = "The tool ended without a result.".to_owned();
            let error = Some(ErrorType::Unknown);
            (CallStatus::Error, failed(call, message, ResultDisplay::Nothing, error, ran))
        }
    }
}

fn never_ran(
    call: &FunctionCall,
    reason: Reason,
    (unanswered, refusal): (Option<String>, &str),
    instead_of: Option<String>,
) -> (CallStatus, CallResult) {
    let cancelled = |why: &str| (CallStatus::Cancelled, format!("[Operation Cancelled] Reason: {why}"), None);
    let failed_with = |why: &str| (CallStatus::Error, why.to_owned(), Some(ErrorType::ExecutionFailed));
    let (status, mut message, error_type) = match (reason, unanswered) {
        (Reason::Refused, None) => cancelled(refusal),
        (Reason::Refused, Some(why)) => {
            cancelled(&format!("Nobody approved the call, because {why}. The tool did not run."))
        }
        (Reason::OtherRefused, _) => cancelled(
            "User cancelled operation. Another call of the same batch was not approved, so this tool never ran.",
        ),
        (Reason::Cancelled, _) => cancelled("This call was cancelled. The tool never ran."),
        (Reason::BatchCancelled, _) => cancelled("User cancelled operation. The tool never ran."),
        (Reason::CancelledInQueue, _) => cancelled("Tool call cancelled while in queue. The tool never ran."),
        (Reason::TooMany, _) => failed_with("Too many tool calls at once. The tool never ran; call it again later."),
        (Reason::TooManyTailCalls, _) => {
            failed_with("The call led to too many further calls in its place; the last of them never ran.")
        }
    };
    let ran = instead_of.is_some();
    if let Some(first) = instead_of {
        message.push_str(&format!(" (It was to follow \"{first}\", which did run.)"));
    }
    (status, failed(call, message, ResultDisplay::Nothing, error_type, ran))
}

fn take_apart(failure: ToolFailure) -> (String, ResultDisplay, Option<ErrorType>) {
    match failure {
        ToolFailure::Error { error_type, message, display } => (message, display, Some(error_type)),
        ToolFailure::Cancelled { message, display } => (message, display, None),
    }
}

fn failed(
    call: &FunctionCall,
    message: String,
    display: ResultDisplay,
    error_type: Option<ErrorType>,
    ran: bool,
) -> CallResult {
    CallResult {
        content_length: message.chars().count(),
        display: if display == ResultDisplay::Nothing { ResultDisplay::Text(message.clone()) } else { display },
        response: FunctionResponse::error(call, message),
        parts: Vec::new(),
        summary: None,
        error_type,
        data: None,
        output_file: None,
        ran,
    }
}
