//! Tool results for protocols that take text: what did a tool give?

use std::borrow::Cow;

use serde_json::Value;

/// What a tool gave: its plain output, or its whole response as JSON.
pub(super) fn outcome(response: &Value) -> Cow<'_, str> {
    match response.get("response") {
        Some(Value::Object(map)) if map.len() == 1 => match map.get("output") {
            Some(Value::String(text)) => Cow::Borrowed(text),
            Some(output) => Cow::Owned(output.to_string()),
            None => Cow::Owned(Value::Object(map.clone()).to_string()),
        },
        Some(other) => Cow::Owned(other.to_string()),
        None => Cow::Borrowed("{}"),
    }
}
