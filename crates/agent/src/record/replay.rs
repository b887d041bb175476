//! A conversation as the events that a client would have seen: what `session/load` streams.
//!
//! Source: ACP v1 `session/load`; runtime specification §1.3. Ids are under streams of their own, `<session>-past-<n>`,
//! one for each prompt, so they never meet those of the session that goes on.

use convoke_adk::Part;
use convoke_protocol::{
    AgentEvent, AgentEventBody, ContentPart, ErrorStatus, EventId, MessageRole, Meta, StreamEndReason, StreamId,
};
use convoke_stdx::iso8601;
use serde_json::Value;

use super::conversation::{Conversation, Message};
use super::line::CallLine;
use super::shown;
use crate::translate::content_part;

impl Conversation {
    /// What was said and done, oldest first.
    pub(crate) fn replay(&self, session_id: &str) -> Vec<AgentEvent> {
        let mut replay = Replay { session_id, events: Vec::new(), stream: 0, number: 0, running: false, at_ms: 0 };
        for message in self.messages() {
            replay.at_ms = message.timestamp_ms();
            replay.message(message);
        }
        replay.end();
        replay.events
    }
}

struct Replay<'a> {
    session_id: &'a str,
    events: Vec<AgentEvent>,
    stream: usize,
    number: usize,
    running: bool,
    at_ms: u64,
}

impl Replay<'_> {
    fn emit(&mut self, body: AgentEventBody, meta: Meta) {
        let stream_id = StreamId(format!("{}-past-{}", self.session_id, self.stream));
        let id = EventId(format!("{stream_id}-{}", self.number));
        self.number += 1;
        let timestamp = iso8601(self.at_ms);
        self.events.push(AgentEvent { id, thread_id: None, stream_id, timestamp, body, meta });
    }

    fn say(&mut self, role: MessageRole, part: ContentPart, model: Option<&str>) {
        let model = model.map(|model| ("model".to_owned(), Value::from(model)));
        self.emit(AgentEventBody::Message { role, content: vec![part] }, Meta::from_iter(model));
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.running) {
            self.emit(AgentEventBody::AgentEnd { reason: StreamEndReason::Completed, data: None }, Meta::new());
        }
    }

    fn message(&mut self, message: &Message) {
        if let Some(prompt) = message.prompt() {
            self.end();
            (self.stream, self.number) = (self.stream + 1, 0);
            let content = prompt.iter().filter_map(content_part).collect();
            // The id that a rewind would be given.
            let meta = Meta::from_iter([("messageId".to_owned(), Value::from(message.id()))]);
            self.emit(AgentEventBody::Message { role: MessageRole::User, content }, meta);
            self.emit(AgentEventBody::AgentStart, Meta::new());
            self.running = true;
            return;
        }
        if message.is("user") {
            // Nobody wrote it: context, or a nudge.
            return;
        }
        if !self.running {
            self.stream += 1;
            self.number = 0;
            self.emit(AgentEventBody::AgentStart, Meta::new());
            self.running = true;
        }
        let model = message.line.model.as_deref();
        for thought in message.line.thoughts.iter().filter_map(Value::as_array).flatten() {
            let text = |key: &str| thought.get(key).and_then(Value::as_str).unwrap_or_default();
            let thought = format!("**{}**\n{}", text("subject"), text("description"));
            self.say(MessageRole::Agent, ContentPart::Thought { thought, thought_signature: None }, model);
        }
        let mut ended: Vec<&CallLine> = message.calls.iter().collect();
        for part in message.parts() {
            match part.call_id() {
                None => {
                    if let Some(part) = content_part(part) {
                        self.say(MessageRole::Agent, part, model);
                    }
                }
                Some(id) => {
                    let found = ended.iter().position(|call| Some(call.id.as_str()) == id);
                    let call = found.map(|at| ended.remove(at));
                    self.call(part, call);
                }
            }
        }
        if let Some(error) = &message.line.error {
            let meta = Meta::from_iter([("errorKind".to_owned(), Value::from(error.kind.as_str()))]);
            let status = error.status.map_or(ErrorStatus::Internal, ErrorStatus::from_http);
            self.emit(AgentEventBody::Error { status, message: error.message.clone(), fatal: false }, meta);
        }
    }

    fn call(&mut self, part: &Part, call: Option<&CallLine>) {
        let Some(written) = part.function_call() else { return };
        let lost = CallLine {
            id: written.id.clone().unwrap_or_default(),
            name: written.name.clone(),
            status: Some("cancelled".to_owned()),
            ..CallLine::default()
        };
        for body in shown::again(call.unwrap_or(&lost), Some(&written.args)) {
            self.emit(body, Meta::new());
        }
    }
}
