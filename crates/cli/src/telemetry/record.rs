//! One event, as attributes.

use std::fmt::Debug;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};

/// Attributes that hold what people, models and programs wrote. Left out where `telemetry.logPrompts` is off.
const TEXTS: [&str; 16] = [
    "prompt",
    "request_text",
    "response_text",
    "function_args",
    "hook_input",
    "hook_output",
    "stdout",
    "stderr",
    "error",
    "command_args",
    "reasoning",
    "detail",
    "error_message",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
];

/// An event with its attributes, in the order in which they were told.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// Milliseconds since 1970.
    pub(super) wall_ms: u64,
    attributes: Vec<(&'static str, Value)>,
}

/// The two that a record may take from the span that it was told in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Belongs {
    pub(super) session_id: Option<String>,
    pub(super) prompt_id: Option<String>,
}

const SESSION: &str = "session.id";
const PROMPT: &str = "prompt_id";

impl Record {
    /// `event.name`, such as `gemini_cli.tool_call`.
    pub(super) fn name(&self) -> &str {
        self.text("event.name").unwrap_or_default()
    }

    pub(super) fn attributes(&self) -> &[(&'static str, Value)] {
        &self.attributes
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    pub(super) fn drop_texts(&mut self) {
        // The kind of an error is told by its type; its text may quote anything.
        self.attributes.retain(|(name, _)| !TEXTS.contains(name));
    }

    pub(super) fn add_missing(&mut self, more: &[(&'static str, Value)]) {
        for (name, value) in more {
            if self.get(name).is_none() {
                self.attributes.push((name, value.clone()));
            }
        }
    }

    pub(super) fn belong(&mut self, to: &Belongs) {
        for (name, value) in [(SESSION, &to.session_id), (PROMPT, &to.prompt_id)] {
            if let Some(value) = value.as_ref().filter(|_| self.get(name).is_none()) {
                self.attributes.push((name, json!(value)));
            }
        }
    }

    /// As one object.
    pub(super) fn object(&self) -> Map<String, Value> {
        self.attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn put(&mut self, field: &Field, value: Value) {
        self.attributes.push((field.name(), value));
    }
}

impl Visit for Record {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, json!(format!("{value:?}")));
    }
}

impl Visit for Belongs {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            SESSION => self.session_id = Some(value.to_owned()),
            PROMPT => self.prompt_id = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if matches!(field.name(), SESSION | PROMPT) {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}
