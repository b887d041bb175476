//! What a person is told when no model answers.

use convoke_adk::ModelError;
use convoke_stdx::{Now, iso8601};

use super::Failed;
use crate::catalog::ModelName;
use crate::chain::FailureKind;
use crate::fallback::{FallbackQuestion, Intent};

/// Where more quota is to be had.
const MORE_QUOTA: &str = "https://ai.google.dev/gemini-api/docs/rate-limits";

/// The error of a call after which nobody is left to ask.
pub(super) fn nothing_left(
    now: Now,
    model: &ModelName,
    failed: &Failed,
    has_others: bool,
    reset_wall_ms: Option<u64>,
) -> ModelError {
    let mut error = failed.error.clone();
    let mut more = Vec::new();
    if failed.kind == FailureKind::Quota && !error.message.starts_with(model.as_str()) {
        more.push(format!("the quota of {model} is used up"));
    }
    if has_others {
        more.push("no other model can take over".to_owned());
    }
    if let Some(reset) = reset_wall_ms {
        more.push(format!("the next one is back {}", when(now, reset)));
    }
    if !more.is_empty() {
        let end = if error.message.ends_with(['.', '!', '?']) { " " } else { ": " };
        error.message = format!("{}{end}{}", error.message, more.join("; "));
    }
    error
}

/// The error of a turn that somebody ended rather than go on with another model.
pub(super) fn declined(question: &FallbackQuestion, intent: Option<Intent>) -> ModelError {
    let mut error = question.error.clone();
    let reset = question.reset_wall_ms.map(|reset| format!(" after {}", iso8601(reset))).unwrap_or_default();
    let more = match intent {
        Some(Intent::RetryLater) => format!("to be tried again{reset}"),
        Some(Intent::Upgrade) => format!("more quota is to be had at {MORE_QUOTA}"),
        Some(Intent::Stop) => format!("stopped rather than go on with {}", question.stand_in),
        Some(Intent::RetryAlways | Intent::RetryOnce) | None => "nobody said to go on with another model".to_owned(),
    };
    error.message = format!("{} ({more})", error.message);
    error
}

/// `at 2026-11-21T08:00:00.000Z, in 5 h 12 min`.
pub(crate) fn when(now: Now, wall_ms: u64) -> String {
    let minutes = wall_ms.saturating_sub(now.wall_ms).div_ceil(60_000);
    let wait = match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    };
    format!("at {}, in {wait}", iso8601(wall_ms))
}
