//! Telemetry: what is told about a call?
//!
//! Events of the [`tracing`] crate on the target [`TELEMETRY`], with their name in the field `event.name`; nobody who listens
//! is the usual case, and costs a look at a flag.
//!
//! | event | fields |
//! |---|---|
//! | `gemini_cli.tool_call` | `call_id`, `function_name`, `function_args` (JSON, two blanks), `duration_ms`, `success`, `status`, `decision`, `error`, `error_type`, `tool_type`, `content_length`, `model_added_lines`, `model_removed_lines`, `gen_ai.tool.name`, `gen_ai.tool.call.id` |
//! | `gemini_cli.file_operation` | `tool_name`, `operation` (`create`, `update`, `read`), `lines`, `extension` |
//! | `gemini_cli.tool_output_truncated` | `tool_name`, `original_content_length`, `truncated_content_length`, `threshold` |
//!
//! There is one `tool_call` per call, also for those that were refused or never found, under the name and with the
//! arguments of what ran in the end. Its span is `execute_tool`.

use std::path::Path;
use std::time::Duration;

use convoke_adk::FunctionCall;
use serde_json::Value;
use tracing::{Level, Span, enabled, event};

use crate::{CallRecord, CallStatus, Kind, ResultDisplay};

/// The target of telemetry events. They hold what people wrote: a listener that writes logs leaves them out.
const TELEMETRY: &str = "convoke::telemetry";

/// The target of spans that are meant for export.
const TRACE: &str = "convoke::trace";

/// The span of a call, below whoever had it dispatched.
pub(super) fn span(parent: &Span, call_id: &str, call: &FunctionCall) -> Span {
    tracing::info_span!(
        target: TRACE,
        parent: parent,
        "execute_tool",
        otel.name = format!("execute_tool {}", call.name),
        otel.status_code = tracing::field::Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name,
        gen_ai.tool.call.id = call_id,
        error.r#type = tracing::field::Empty,
    )
}

/// A call ended; `took` is how long it executed.
pub(super) fn ended(span: &Span, record: &CallRecord, took: Duration) {
    let Some(result) = &record.result else { return };
    let success = record.status == CallStatus::Success;
    let error_type = result.error_type.map(crate::ErrorType::as_str);
    if !success {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", error_type.unwrap_or("cancelled"));
    }
    if !enabled!(target: TELEMETRY, Level::INFO) {
        return;
    }
    let _entered = span.enter();
    let (added, removed) = match &result.display {
        ResultDisplay::Diff { patch, .. } if success => changed(patch),
        _ => (None, None),
    };
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.tool_call",
        call_id = record.call_id,
        function_name = record.call.name,
        function_args = pretty(&record.call.args),
        duration_ms = millis(took),
        success,
        status = record.status.as_str(),
        decision = record.decision.map(crate::CallDecision::as_str),
        error = result.response.error_message().filter(|_| !success),
        error_type,
        tool_type = if record.call.name.starts_with("mcp_") { "mcp" } else { "native" },
        content_length = result.content_length,
        model_added_lines = added,
        model_removed_lines = removed,
        gen_ai.tool.name = record.call.name,
        gen_ai.tool.call.id = record.call_id,
    );
    if success {
        file_operation(record, &result.display);
    }
}

fn file_operation(record: &CallRecord, display: &ResultDisplay) {
    let (operation, path, lines) = match display {
        ResultDisplay::Diff { path, old_text, new_text, .. } => {
            let operation = if old_text.is_some() { "update" } else { "create" };
            (operation, path.as_str(), Some(new_text.lines().count()))
        }
        _ if record.kind == Kind::Read => match record.locations.first() {
            Some(location) => ("read", location.path.as_str(), None),
            None => return,
        },
        _ => return,
    };
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    let tool_name = record.call.name.as_str();
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.file_operation",
        tool_name,
        operation,
        lines,
        extension,
    );
}

/// Output was cut, from so many characters to so many.
pub(super) fn truncated(tool_name: &str, original: usize, cut: usize, threshold: usize) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.tool_output_truncated",
        tool_name,
        original_content_length = original,
        truncated_content_length = cut,
        threshold,
    );
}

/// Lines that a patch adds and removes.
fn changed(patch: &str) -> (Option<u64>, Option<u64>) {
    let (mut added, mut removed) = (0, 0);
    for line in patch.lines() {
        added += u64::from(line.starts_with('+') && !line.starts_with("+++"));
        removed += u64::from(line.starts_with('-') && !line.starts_with("---"));
    }
    (Some(added), Some(removed))
}

fn pretty(args: &Value) -> String {
    serde_json::to_string_pretty(args).unwrap_or_default()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
