//! Failures: what does a refusal mean?
//!
//! One table turns an HTTP status, its headers and its body into a [`ModelError`], for all providers and for scripted
//! failures. The first rule that matches wins. Source: runtime specification §4.6; additions: `Retry-After`, OpenAI's
//! error codes, and messages such as "try again in 6m0s". A used-up quota is [`ModelErrorKind::Quota`]; a model
//! without free capacity is [`ModelErrorKind::Capacity`], whatever status it came with.

use std::time::Duration;

use convoke_adk::{ModelError, ModelErrorKind};
use convoke_stdx::cut;
use serde_json::Value;

use crate::retry::SERVER_DELAY_MAX;

mod body;
mod reset;

use body::Report;

/// The most of an error's body that is read: the largest seen, with all details, are a few KiB.
pub(crate) const ERROR_BODY_MAX: usize = 64 * 1024;
/// The most of a server's message that is kept: it ends in a terminal or a chat.
const MESSAGE_MAX: usize = 2048;
/// The wait for a quota that is counted per minute, where the server names none.
const PER_MINUTE_DELAY: Duration = Duration::from_secs(60);

/// What a refusal came with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The `Retry-After` header, in either of its forms.
    pub retry_after: Option<&'a str>,
    /// The body: an error object, an array of one, or anything else.
    pub body: &'a [u8],
    /// The wall clock in milliseconds since the Unix epoch, for a `Retry-After` that is a date.
    pub wall_ms: u64,
}

/// Says what a refusal means.
#[must_use]
pub fn classify(refusal: Refusal<'_>) -> ModelError {
    let report = Report::parse(refusal.body);
    let header = refusal.retry_after.and_then(|text| retry_after(text, refusal.wall_ms));
    let (kind, delay) = kind_of(refusal.status, &report, header, refusal.wall_ms);
    let message = match report.message.trim() {
        "" => status_line(refusal.status),
        text => cut::head(text, MESSAGE_MAX).to_owned(),
    };
    ModelError { kind, status: Some(refusal.status), message, retry_after: delay }
}

/// Says what an error object inside a stream means; the status is what the object says it would have been.
#[must_use]
pub fn classify_inline(error: &Value) -> ModelError {
    let body = error.to_string();
    let report = Report::parse(body.as_bytes());
    let status = report.code.unwrap_or_else(|| match report.label.as_str() {
        label if label.contains("rate_limit") || label.contains("insufficient_quota") => 429,
        label if label.contains("permission_error") => 403,
        label if label.contains("billing_error") => 402,
        label if label.contains("request_too_large") => 413,
        label if label.contains("timeout_error") => 504,
        label if label.contains("authentication") || label.contains("invalid_api_key") => 401,
        label if label.contains("not_found") => 404,
        label if label.contains("invalid_request") || label.contains("context_length") => 400,
        label if label.contains("overloaded") => 503,
        _ => 500,
    });
    classify(Refusal { status, body: body.as_bytes(), ..Refusal::default() })
}

fn kind_of(status: u16, report: &Report, header: Option<Duration>, wall_ms: u64) -> (ModelErrorKind, Option<Duration>) {
    if status == 404 || report.status == "NOT_FOUND" {
        return (ModelErrorKind::NotFound, None);
    }
    if matches!(status, 401 | 403 | 407)
        || report.has_reason(&["API_KEY_INVALID"])
        || (status == 400 && report.message.contains("API key not valid"))
    {
        return (ModelErrorKind::Auth, None);
    }
    match status {
        402 => (ModelErrorKind::Quota, header),
        429 | 499 | 503 | 529 => busy(status, report, header, wall_ms),
        408 | 500.. => (ModelErrorKind::Server, header),
        400..=499 => (ModelErrorKind::BadRequest, None),
        _ => (ModelErrorKind::Other, None),
    }
}

/// 429 and its kin: is it worth waiting?
fn busy(status: u16, report: &Report, header: Option<Duration>, wall_ms: u64) -> (ModelErrorKind, Option<Duration>) {
    use ModelErrorKind::{Capacity, Quota, RateLimit, Server};
    let asked = report.retry_delay().or(header).max(header);
    if report.quotas().any(|quota| quota.contains("PerDay") || quota.contains("Daily")) {
        // What such an error asks to wait is about the minute, not about the day.
        let day = (wall_ms > 0).then(|| reset::until_pacific_midnight(wall_ms));
        return (Quota, asked.max(day));
    }
    if has_limit_zero(&report.message)
        || report.label.contains("insufficient_quota")
        || report.label.contains("billing_hard_limit_reached")
        || report.has_reason(&["INSUFFICIENT_G1_CREDITS_BALANCE", "QUOTA_EXHAUSTED"])
    {
        return (Quota, asked);
    }
    if report.has_reason(&["MODEL_CAPACITY_EXHAUSTED", "MODEL_CAPACITY_EXCEEDED"])
        || ["exhausted your capacity", "capacity exceeded", "MODEL_CAPACITY_EXHAUSTED"]
            .iter()
            .any(|text| report.message.contains(text))
    {
        return (Capacity, asked);
    }
    let asked = asked.or_else(|| delay_in_text(&report.message));
    let ordinary = if status == 429 { RateLimit } else { Server };
    match asked {
        Some(delay) if delay > SERVER_DELAY_MAX => (Quota, asked),
        Some(_) => (ordinary, asked),
        None if report.quotas().any(|quota| quota.contains("PerMinute")) => (RateLimit, Some(PER_MINUTE_DELAY)),
        None => (ordinary, None),
    }
}

/// Whether the text says `limit: 0`, and not `limit: 0.5` or `limit: 05`.
fn has_limit_zero(text: &str) -> bool {
    text.split("limit: 0").skip(1).any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

/// "Please retry in 12.5s", "Please try again in 6m0s".
fn delay_in_text(text: &str) -> Option<Duration> {
    ["retry in ", "try again in "].iter().find_map(|lead| {
        let (_, rest) = text.split_once(lead)?;
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
        duration(rest.get(..end)?.trim_end_matches('.'))
    })
}

/// `12.5s`, `900ms`, `1m30s`: numbers with units, added.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        let tail = rest.get(digits..)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        seconds += number
            * match tail.get(..unit_end)? {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 0.001,
                _ => return None,
            };
        rest = tail.get(unit_end..)?;
    }
    Duration::try_from_secs_f64(seconds).ok()
}

/// `Retry-After`: seconds, or an HTTP date (RFC 9110 §10.2.3). A date in the past is no wait.
fn retry_after(text: &str, wall_ms: u64) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    Some(Duration::from_millis(convoke_stdx::parse_http_date(text)?.saturating_sub(wall_ms)))
}

fn status_line(status: u16) -> String {
    let reason = reqwest::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    match reason {
        Some(reason) => format!("HTTP {status} {reason}"),
        None => format!("HTTP {status}"),
    }
}

#[cfg(test)]
mod tests;
