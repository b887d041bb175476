//! Error bodies: what did the server say, in which of the shapes that servers use?

use std::time::Duration;

use serde_json::{Map, Value};

/// How deep an error may be wrapped in another's message.
const NESTING_MAX: usize = 10;

/// An error body, read as far as it can be.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The innermost message.
    pub(super) message: String,
    /// A numeric code, which is an HTTP status.
    pub(super) code: Option<u16>,
    /// Google's status, such as `RESOURCE_EXHAUSTED`.
    pub(super) status: String,
    /// OpenAI's `type` and `code`, joined.
    pub(super) label: String,
    /// `google.rpc` details.
    details: Vec<Map<String, Value>>,
}

impl Report {
    /// Reads `{error: {…}}`, `[{error: {…}}]`, `{error: "…"}`, `{message}`, `{detail}`, or short plain text.
    pub(super) fn parse(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let mut report = Self::default();
        // One gateway is known to double commas.
        let value = serde_json::from_str::<Value>(&text).or_else(|_| serde_json::from_str(&text.replace(",,", ",")));
        match value {
            Ok(value) => report.read(&value, 0),
            // A page for people says nothing that fits in a line.
            Err(_) if text.trim_start().starts_with('<') => {}
            Err(_) => text.trim().clone_into(&mut report.message),
        }
        report
    }

    fn read(&mut self, value: &Value, depth: usize) {
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let error = match value.get("error") {
            Some(Value::Null) | None => value,
            Some(error) => error,
        };
        // OAuth's errors have a code where others have an object (RFC 6749 §5.2).
        let described = value.get("error_description").and_then(Value::as_str).filter(|text| !text.is_empty());
        let message = match error {
            Value::String(text) => Some(described.unwrap_or(text)),
            _ => ["message", "detail", "error_description"].iter().find_map(|key| error.get(*key)?.as_str()),
        };
        if let Some(code) = error.get("code") {
            self.code = code.as_u64().and_then(|code| u16::try_from(code).ok()).or(self.code);
        }
        if let Some(status) = error.get("status").and_then(Value::as_str) {
            status.clone_into(&mut self.status);
        }
        for key in ["type", "code"] {
            if let Some(text) = error.get(key).and_then(Value::as_str) {
                self.label.push_str(text);
                self.label.push(' ');
            }
        }
        let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
        self.details.extend(details.filter_map(Value::as_object).cloned());
        let Some(message) = message else { return };
        match serde_json::from_str::<Value>(message) {
            Ok(inner) if depth < NESTING_MAX && inner.is_object() => self.read(&inner, depth + 1),
            _ => message.clone_into(&mut self.message),
        }
    }

    /// Details of one `google.rpc` type. Some gateways put blanks into the key or the value.
    fn details(&self, name: &'static str) -> impl Iterator<Item = &Map<String, Value>> {
        self.details.iter().filter(move |detail| {
            let kind = detail.iter().find(|(key, _)| key.trim() == "@type").and_then(|(_, kind)| kind.as_str());
            kind.is_some_and(|kind| kind.trim().ends_with(name))
        })
    }

    /// Whether an `ErrorInfo` gives one of these reasons.
    pub(super) fn has_reason(&self, reasons: &[&str]) -> bool {
        self.details("google.rpc.ErrorInfo")
            .filter_map(|info| info.get("reason")?.as_str())
            .any(|reason| reasons.contains(&reason))
    }

    /// Ids and metrics of the quotas that were exceeded.
    pub(super) fn quotas(&self) -> impl Iterator<Item = &str> {
        let violations = self.details("google.rpc.QuotaFailure").filter_map(|failure| failure.get("violations"));
        let violations = violations.filter_map(Value::as_array).flatten();
        let violated = violations.flat_map(|v| [v.get("quotaId"), v.get("quotaMetric")]).flatten();
        let limits = self.details("google.rpc.ErrorInfo").filter_map(|info| info.get("metadata")?.get("quota_limit"));
        violated.chain(limits).filter_map(Value::as_str)
    }

    /// `RetryInfo.retryDelay`.
    pub(super) fn retry_delay(&self) -> Option<Duration> {
        self.details("google.rpc.RetryInfo").find_map(|info| super::duration(info.get("retryDelay")?.as_str()?))
    }
}
