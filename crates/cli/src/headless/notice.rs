//! What hooks have to say to the user.

use std::fmt;

use convoke_protocol::{AgentEvent, AgentEventBody};
use serde_json::Value;

/// A sentence for the user that is no part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice<'a> {
    pub(super) text: &'a str,
    warning: bool,
}

impl<'a> Notice<'a> {
    /// The notice that `event` is, if a hook gave it.
    pub(super) fn of_hook(event: &'a AgentEvent) -> Option<Self> {
        let AgentEventBody::Custom { kind, data: Some(data) } = &event.body else { return None };
        let text = data.get("message").and_then(Value::as_str).filter(|_| kind == "hook_message")?;
        Some(Self { text, warning: data.get("severity").and_then(Value::as_str) == Some("warning") })
    }
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.warning { "warning: " } else { "" };
        write!(f, "convoke: {prefix}{}", self.text)
    }
}
