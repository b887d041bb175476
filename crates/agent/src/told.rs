//! Telemetry: what is told about a prompt?
//!
//! Each prompt is a span `invoke_agent` with `session.id` and `prompt_id`; whatever is told inside of it (model calls, tool
//! calls, hooks) belongs to both, without having to know them. Events are on the target [`TELEMETRY`], with their name in
//! the field `event.name`:
//!
//! | event | fields |
//! |---|---|
//! | `gemini_cli.user_prompt` | `prompt_length` (characters), `prompt` |
//! | `gemini_cli.conversation_finished` | `reason` |
//! | `gemini_cli.agent.start` | `agent_id`, `agent_name` |
//! | `gemini_cli.agent.recovery_attempt` | the same and `reason` |
//! | `gemini_cli.agent.finish` | the same as the start and `duration_ms`, `turn_count`, `terminate_reason`, `recovered_from` |
//! | `gemini_cli.tool_output_masking` | `tokens_before`, `tokens_after`, `masked_count`, `total_prunable_tokens` |
//! | `gemini_cli.chat_compression` | `tokens_before`, `tokens_after`, `trigger` |
//! | `loop_detected` | `loop_type`, `strike`, `detail` |
//! | `loop_detection_disabled` | – |
//! | `gemini_cli.llm_loop_check` | `flash_confidence`, `main_model_confidence` (if a larger model was asked too) |
//! | `gemini_cli.malformed_json_response` | `model` |
//! | `gemini_cli.rewind` | `outcome` |
//! | `gemini_cli.plan.approval_mode_switch` | `from_mode`, `to_mode` |
//! | `gemini_cli.plan.execution` | `approval_mode` |
//!
//! What happens between prompts has no such span and says itself which session it was.
//!
//! A subagent's run is a span `invoke_agent` inside of the one of its caller, with its own id as `prompt_id`.

use convoke_adk::Part;
use convoke_protocol::{RewindOutcome, StreamEndReason};
use convoke_tools::{Mode, ModeChange};
use tracing::{Level, Span, enabled, event};

use crate::context::masking::MaskingOutcome;
use crate::modes::from_tools;

/// The target of telemetry events. They hold what people wrote: a listener that writes logs leaves them out.
const TELEMETRY: &str = "convoke::telemetry";

/// The target of spans that are meant for export.
const TRACE: &str = "convoke::trace";

/// A prompt begins; the span that all of its work belongs to.
pub(crate) fn prompt(session_id: &str, number: u64, parts: &[Part]) -> Span {
    let span = tracing::info_span!(
        target: TRACE,
        "invoke_agent",
        otel.name = "invoke_agent convoke",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = "convoke",
        gen_ai.conversation.id = session_id,
        session.id = session_id,
        prompt_id = format!("{session_id}########{number}"),
    );
    if enabled!(target: TELEMETRY, Level::INFO) {
        let _entered = span.enter();
        let prompt: String = parts.iter().filter_map(Part::as_text).collect();
        event!(
            target: TELEMETRY,
            Level::INFO,
            event.name = "gemini_cli.user_prompt",
            prompt_length = prompt.chars().count(),
            prompt,
        );
    }
    span
}

/// A run of the subagent `name`; the span that all of its work belongs to.
pub(crate) fn run(id: &str, name: &str) -> Span {
    let span = tracing::info_span!(
        target: TRACE,
        "invoke_agent",
        otel.name = format!("invoke_agent {name}"),
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = name,
        gen_ai.agent.id = id,
        prompt_id = id,
    );
    span.in_scope(|| {
        event!(target: TELEMETRY, Level::INFO, event.name = "gemini_cli.agent.start", agent_id = id, agent_name = name);
    });
    span
}

/// A run met a limit and gets one more turn.
pub(crate) fn recovering(id: &str, name: &str, reason: &str) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.agent.recovery_attempt",
        agent_id = id,
        agent_name = name,
        reason,
    );
}

/// How a run ended.
pub(crate) struct RunEnd<'a> {
    pub(crate) turns: u32,
    pub(crate) reason: &'a str,
    /// The reason for its one more turn, if it got one.
    pub(crate) recovered_from: Option<&'a str>,
}

/// A run ended.
pub(crate) fn run_ended(id: &str, name: &str, duration_ms: u64, end: &RunEnd<'_>) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.agent.finish",
        agent_id = id,
        agent_name = name,
        duration_ms,
        turn_count = end.turns,
        terminate_reason = end.reason,
        recovered_from = end.recovered_from,
    );
}

/// A prompt's stream ended. Called within its span.
pub(crate) fn ended(reason: StreamEndReason) {
    let reason = match reason {
        StreamEndReason::Completed => "completed",
        StreamEndReason::Failed => "failed",
        StreamEndReason::Aborted => "aborted",
        StreamEndReason::MaxTurns => "max_turns",
        StreamEndReason::MaxBudget => "max_budget",
        StreamEndReason::MaxTime => "max_time",
        StreamEndReason::Refusal => "refusal",
    };
    event!(target: TELEMETRY, Level::INFO, event.name = "gemini_cli.conversation_finished", reason);
}

/// Old output was masked.
pub(crate) fn masked(session_id: &str, outcome: &MaskingOutcome) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.tool_output_masking",
        session.id = session_id,
        tokens_before = outcome.tokens_before,
        tokens_after = outcome.tokens_after,
        masked_count = outcome.masked,
        total_prunable_tokens = outcome.prunable_tokens,
    );
}

/// A session was compressed.
pub(crate) fn compressed(session_id: &str, tokens_before: u64, tokens_after: u64, trigger: &str) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.chat_compression",
        session.id = session_id,
        tokens_before,
        tokens_after,
        trigger,
    );
}

/// The agent goes round in circles.
pub(crate) fn looped(session_id: &str, loop_type: &str, strike: u32, detail: &str) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "loop_detected",
        session.id = session_id,
        loop_type,
        strike,
        detail,
    );
}

/// Nobody looks for loops in this session.
pub(crate) fn loops_ignored(session_id: &str) {
    event!(target: TELEMETRY, Level::INFO, event.name = "loop_detection_disabled", session.id = session_id);
}

/// A model was asked whether the agent goes round in circles; so sure were the small one and the large one that it does.
pub(crate) fn loop_checked(session_id: &str, small: f64, large: Option<f64>) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.llm_loop_check",
        session.id = session_id,
        flash_confidence = small,
        main_model_confidence = large,
    );
}

/// A side request was answered with something else than it asked for.
pub(crate) fn unreadable(session_id: &str, model: &str) {
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.malformed_json_response",
        session.id = session_id,
        model,
    );
}

/// Somebody took a session back, or tried to.
pub(crate) fn rewound(session_id: &str, outcome: &RewindOutcome) {
    let outcome = match outcome {
        RewindOutcome::Done(done) => done.what.name(),
        RewindOutcome::Conflicts(_) => "conflicts",
        RewindOutcome::UnknownPoint => "unknown_point",
        RewindOutcome::Unavailable { .. } => "unavailable",
        RewindOutcome::Failed { .. } => "failed",
        RewindOutcome::Busy => "busy",
    };
    event!(target: TELEMETRY, Level::INFO, event.name = "gemini_cli.rewind", session.id = session_id, outcome);
}

/// The approval mode changed.
pub(crate) fn mode_switched(session_id: &str, change: ModeChange) {
    let (from_mode, to_mode) = (from_tools(change.before).cli(), from_tools(change.after).cli());
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.plan.approval_mode_switch",
        session.id = session_id,
        from_mode,
        to_mode,
    );
}

/// A plan was approved and is carried out in this mode.
pub(crate) fn plan_begun(session_id: &str, mode: Mode) {
    let approval_mode = from_tools(mode).cli();
    event!(
        target: TELEMETRY,
        Level::INFO,
        event.name = "gemini_cli.plan.execution",
        session.id = session_id,
        approval_mode,
    );
}
