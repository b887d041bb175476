//! `stream-json`: one object per line, as it happens. Source: runtime specification §15.5.

use std::io::{self, Write};

use convoke_protocol::{
    AgentEvent, AgentEventBody, ContentPart, DisplayContent, ExitCode, HostedSession, MessageRole, SessionId,
    ToolCallId,
};
use convoke_stdx::{Clock, iso8601};
use serde_json::{Map, Value, json};

use super::notice::Notice;
use super::{Outcome, Report};

/// Writes events to stdout. Results of a batch of calls come together, in the order of the calls, once all are there.
pub(super) struct StreamJson {
    batch: Vec<(ToolCallId, Option<Map<String, Value>>)>,
}

/// Writes one line: `type` and `timestamp` first, then `fields`.
pub(super) fn line(kind: &str, fields: Value) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("type".to_owned(), kind.into());
    object.insert("timestamp".to_owned(), iso8601(Clock::start().now().wall_ms).into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    // One write, so that a question and an event never mix.
    let mut text = Value::Object(object).to_string();
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

impl StreamJson {
    pub(super) fn new() -> Self {
        Self { batch: Vec::new() }
    }

    fn line(&self, kind: &str, fields: Value) -> io::Result<()> {
        line(kind, fields)
    }

    fn answered(&mut self, id: &ToolCallId, fields: Value) -> io::Result<()> {
        let Value::Object(fields) = fields else { return Ok(()) };
        match self.batch.iter_mut().find(|(open, result)| open == id && result.is_none()) {
            Some((_, result)) => *result = Some(fields),
            None => return self.line("tool_result", Value::Object(fields)),
        }
        if self.batch.iter().all(|(_, result)| result.is_some()) {
            for (_, result) in std::mem::take(&mut self.batch) {
                self.line("tool_result", Value::Object(result.unwrap_or_default()))?;
            }
        }
        Ok(())
    }
}

impl Report for StreamJson {
    fn begin(&mut self, session: &HostedSession) -> io::Result<()> {
        self.line("init", json!({"session_id": session.id, "model": session.control.model()}))
    }

    fn warn(&mut self, message: &str) -> io::Result<()> {
        self.line("error", json!({"severity": "warning", "message": message}))
    }

    fn prompt(&mut self, prompt: &str) -> io::Result<()> {
        self.line("message", json!({"role": "user", "content": prompt}))
    }

    fn event(&mut self, event: &AgentEvent) -> io::Result<()> {
        match &event.body {
            AgentEventBody::Message { role: MessageRole::Agent, content } => {
                content.iter().filter_map(ContentPart::as_text).try_for_each(|text| {
                    self.line("message", json!({"role": "assistant", "content": text, "delta": true}))
                })
            }
            // A prompt was told before its run; this is what was said to the running one, where the model reads it.
            AgentEventBody::Message { role: MessageRole::User, content } if event.meta.contains_key("source") => {
                content.iter().filter_map(ContentPart::as_text).try_for_each(|text| self.prompt(text))
            }
            AgentEventBody::Custom { kind, .. } if kind == "retract" => {
                let message = "the model starts its answer over; what it said since its last call is void";
                self.line("error", json!({"severity": "warning", "message": message}))
            }
            AgentEventBody::Custom { .. } if let Some(notice) = Notice::of_hook(event) => {
                self.line("error", json!({"severity": "warning", "message": notice.text}))
            }
            AgentEventBody::Custom { kind, .. } if kind == "notice" => {
                super::outcome::warning(event).map_or(Ok(()), |message| self.warn(message))
            }
            AgentEventBody::ToolRequest { request_id, name, args, .. } => {
                self.batch.push((request_id.clone(), None));
                self.line("tool_use", json!({"tool_name": name, "tool_id": request_id, "parameters": args}))
            }
            AgentEventBody::ToolResponse { request_id, content, display, data, is_error, .. } => {
                let told: String = content.iter().flatten().filter_map(ContentPart::as_text).collect();
                let result = match (is_error, display.as_ref().and_then(|display| display.result.as_ref())) {
                    (true, _) => {
                        let kind = data.as_ref().and_then(|data| data.get("errorType")).cloned();
                        let error = json!({"type": kind.unwrap_or("cancelled".into()), "message": told});
                        json!({"tool_id": request_id, "status": "error", "output": told, "error": error})
                    }
                    (false, Some(DisplayContent::Text { text } | DisplayContent::Terminal { ansi: text, .. })) => {
                        json!({"tool_id": request_id, "status": "success", "output": text})
                    }
                    (false, _) => json!({"tool_id": request_id, "status": "success"}),
                };
                self.answered(request_id, result)
            }
            AgentEventBody::Error { message, fatal: false, .. } => {
                self.line("error", json!({"severity": "warning", "message": message}))
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &SessionId, outcome: &Outcome) -> io::Result<()> {
        if let Some(note) = outcome.note {
            self.line("error", json!({"severity": "warning", "message": note}))?;
        }
        let mut result = Map::new();
        let status = if outcome.error.is_some() { "error" } else { "success" };
        result.insert("status".to_owned(), status.into());
        if let Some(error) = &outcome.error {
            // The limits of a run are told as they are met; what a model answers is in the result alone.
            if matches!(error.exit, ExitCode::Turns | ExitCode::Denied | ExitCode::Budget) {
                self.line("error", json!({"severity": "error", "message": error.message}))?;
            }
            result.insert("error".to_owned(), json!({"type": error.kind, "message": error.message}));
        }
        result.insert("stats".to_owned(), outcome.stats.stream_stats());
        self.line("result", Value::Object(result))
    }
}
