//! The kernel's events as the protocol's.
//!
//! Text comes from partial events, once; the consolidated event brings usage, the finish reason and what was not
//! text. Calls and their responses are told by the scheduler, see `tool_events`, but for those that never came to it. Source: runtime specification §1.7
//! and §1.8.

use std::sync::Arc;

use convoke_adk::{Content, Event, FunctionCall, ModelErrorKind, Part, REFUSED, Role};
use convoke_protocol::{
    AgentEventBody, ContentPart, ErrorStatus, EventId, MessageRole, Meta, StreamEndReason, ToolKind,
};
use convoke_tools::CallStatus;
use serde_json::{Map, Value, json};

use crate::emitter::Emitter;
use crate::protocol::STEERING;
use crate::tool_events::fitted;

/// Translates the events of one stream.
pub(crate) struct Translator {
    emitter: Arc<Emitter>,
    model: String,
    /// What was said since the model was asked; taken back if it starts over.
    said: Vec<EventId>,
    finish_reason: Option<String>,
    failed: bool,
    /// The agent's words of the last answer.
    response: String,
    /// The calls of the last answer.
    calls: Vec<FunctionCall>,
}

impl Translator {
    pub(crate) fn new(emitter: Arc<Emitter>, model: String) -> Self {
        Self {
            emitter,
            model,
            said: Vec::new(),
            finish_reason: None,
            failed: false,
            response: String::new(),
            calls: Vec::new(),
        }
    }

    /// The agent's last answer, as text.
    pub(crate) fn response(&self) -> &str {
        &self.response
    }

    pub(crate) fn event(&mut self, event: &Event) {
        if event.author == "user" {
            self.interjection(event);
            return;
        }
        if event.partial {
            self.partial(event);
        } else if event.content.as_ref().is_some_and(|content| content.role == Role::Model) || event.error.is_some() {
            self.consolidated(event);
        } else if event.actions.custom_metadata.contains_key(REFUSED) {
            self.refused(event);
        }
    }

    /// Calls that were cancelled before the scheduler saw them: whoever watches sees what the model wanted, and that it
    /// did not happen.
    fn refused(&mut self, event: &Event) {
        let responses = event.content.iter().flat_map(|content| content.function_responses());
        for (call, response) in self.calls.drain(..).zip(responses) {
            let request_id = self.emitter.call_id(call.id.as_deref().unwrap_or_default());
            self.emitter.emit(AgentEventBody::ToolRequest {
                request_id: request_id.clone(),
                name: call.name.clone(),
                args: call.args,
                display: None,
                kind: ToolKind::Other,
                locations: Vec::new(),
            });
            self.emitter.emit(AgentEventBody::ToolResponse {
                request_id,
                name: call.name,
                display: None,
                content: response.error_message().map(|message| vec![ContentPart::text(message)]),
                data: Some(json!({"status": CallStatus::Cancelled.as_str(), "ran": false})),
                is_error: true,
            });
        }
    }

    /// What the user said to the running turn. The prompt was told before the stream began, and a nudge is between us and
    /// the model.
    fn interjection(&self, event: &Event) {
        let metadata = &event.actions.custom_metadata;
        if metadata.get("source").and_then(Value::as_str) != Some(STEERING) {
            return;
        }
        let parts = event.content.iter().flat_map(|content| &content.parts).filter_map(content_part);
        let body = AgentEventBody::Message { role: MessageRole::User, content: parts.collect() };
        self.emitter.emit_with(body, metadata.clone());
    }

    fn partial(&mut self, event: &Event) {
        self.announce(event);
        if event.actions.custom_metadata.contains_key("retract") {
            let ids = json!({"ids": std::mem::take(&mut self.said)});
            self.emitter.emit(AgentEventBody::Custom { kind: "retract".to_owned(), data: Some(ids) });
        }
        if let Some(content) = &event.content {
            self.say(content, |_| true);
        }
    }

    /// What a consolidated event has beyond the pieces that came before it.
    fn consolidated(&mut self, event: &Event) {
        self.announce(event);
        if let Some(content) = &event.content {
            let streamed = !self.said.is_empty();
            self.say(content, |part| !streamed || part.as_text().is_none());
            self.response = content.joined_text();
        }
        self.calls = event.function_calls();
        self.said.clear();
        if let Some(usage) = &event.usage {
            let body = AgentEventBody::Usage {
                model: event.model.clone().unwrap_or_else(|| self.model.clone()),
                input_tokens: Some(usage.prompt_token_count),
                output_tokens: Some(usage.candidates_token_count + usage.thoughts_token_count),
                cached_tokens: Some(usage.cached_content_token_count).filter(|tokens| *tokens > 0),
            };
            let details =
                serde_json::to_value(usage).ok().and_then(|details| Some(fitted(details.as_object()?.clone())));
            let details = ("usageMetadata".to_owned(), details.into());
            let meta = std::iter::once(details).chain(event.actions.custom_metadata.clone()).collect();
            self.emitter.emit_with(body, meta);
        }
        self.finish_reason = event.finish_reason.as_ref().map(|reason| reason.0.clone());
        if let Some(error) = &event.error {
            self.failed = true;
            let status = match (error.status, error.kind) {
                (Some(status), _) => ErrorStatus::from_http(status),
                (None, kind) => status_of(kind),
            };
            let mut meta = Map::from_iter([("errorKind".to_owned(), Value::from(kind_name(error.kind)))]);
            meta.extend(self.named());
            meta.extend(event.actions.custom_metadata.clone());
            if let Some(status) = error.status {
                meta.insert("status".to_owned(), status.into());
            }
            let message = error.message.clone();
            self.emitter.emit_with(AgentEventBody::Error { status, message, fatal: true }, meta);
        }
    }

    /// The model that speaks, as metadata.
    fn named(&self) -> Option<(String, Value)> {
        Some(("model".to_owned(), self.model.as_str().into())).filter(|_| !self.model.is_empty())
    }

    /// Keeps in mind which model answers.
    fn announce(&mut self, event: &Event) {
        if let Some(model) = event.model.as_ref().filter(|model| !model.is_empty() && **model != self.model) {
            self.model.clone_from(model);
        }
    }

    fn say(&mut self, content: &Content, wanted: impl Fn(&Part) -> bool) {
        for part in content.parts.iter().filter(|part| wanted(part)) {
            if let Some(part) = content_part(part) {
                let source = matches!(part, ContentPart::Thought { .. }).then(|| ("source".to_owned(), "agent".into()));
                let body = AgentEventBody::Message { role: MessageRole::Agent, content: vec![part] };
                let meta = Meta::from_iter(source.into_iter().chain(self.named()));
                self.said.push(self.emitter.emit_with(body, meta));
            }
        }
    }

    /// Why the stream ends, if nothing but the model decided.
    pub(crate) fn end_reason(&self) -> StreamEndReason {
        if self.failed {
            return StreamEndReason::Failed;
        }
        match self.finish_reason.as_deref() {
            None | Some("STOP" | "FINISH_REASON_UNSPECIFIED") => StreamEndReason::Completed,
            Some("MAX_TOKENS") => StreamEndReason::MaxBudget,
            Some(
                "SAFETY"
                | "RECITATION"
                | "LANGUAGE"
                | "BLOCKLIST"
                | "PROHIBITED_CONTENT"
                | "SPII"
                | "IMAGE_SAFETY"
                | "IMAGE_PROHIBITED_CONTENT",
            ) => StreamEndReason::Refusal,
            Some(_) => StreamEndReason::Failed,
        }
    }

    /// The finish reason behind [`Self::end_reason`], where it says more.
    pub(crate) fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref().filter(|reason| *reason != "STOP")
    }
}

/// A model's part for people; calls and responses are events of their own.
pub(crate) fn content_part(part: &Part) -> Option<ContentPart> {
    if let Some(text) = part.as_text() {
        if text.is_empty() {
            return None;
        }
        return Some(if part.is_thought() {
            let thought_signature = part.thought_signature().map(ToOwned::to_owned);
            ContentPart::Thought { thought: text.to_owned(), thought_signature }
        } else {
            ContentPart::text(text)
        });
    }
    let text_of = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    if let Some(inline) = part.raw().get("inlineData") {
        let (data, mime_type) = (text_of(inline, "data"), text_of(inline, "mimeType"));
        return Some(ContentPart::Media { data, uri: None, mime_type });
    }
    if let Some(file) = part.raw().get("fileData") {
        let (uri, mime_type) = (text_of(file, "fileUri"), text_of(file, "mimeType"));
        return Some(ContentPart::Media { data: None, uri, mime_type });
    }
    None
}

/// A prompt's parts for the model.
pub(crate) fn model_parts(content: &[ContentPart]) -> Vec<Part> {
    content
        .iter()
        .filter_map(|part| match part {
            ContentPart::Text { text } => Some(Part::text(text)),
            ContentPart::Thought { thought, .. } => Some(Part::thought(thought)),
            ContentPart::Reference { text, .. } => Some(Part::text(text)),
            ContentPart::Media { data: Some(data), mime_type, .. } => {
                Some(Part::inline_data(mime_type.as_deref().unwrap_or("application/octet-stream"), data))
            }
            ContentPart::Media { data: None, uri, .. } => uri.as_ref().map(Part::text),
        })
        .collect()
}

fn status_of(kind: ModelErrorKind) -> ErrorStatus {
    match kind {
        ModelErrorKind::Auth => ErrorStatus::Unauthenticated,
        ModelErrorKind::Quota | ModelErrorKind::RateLimit | ModelErrorKind::Capacity => ErrorStatus::ResourceExhausted,
        ModelErrorKind::Server | ModelErrorKind::Network => ErrorStatus::Unavailable,
        ModelErrorKind::BadRequest => ErrorStatus::InvalidArgument,
        ModelErrorKind::NotFound => ErrorStatus::NotFound,
        ModelErrorKind::Cancelled => ErrorStatus::Cancelled,
        ModelErrorKind::InvalidStream | ModelErrorKind::Other => ErrorStatus::Internal,
    }
}

/// The stable name of a kind of model failure, for programs.
fn kind_name(kind: ModelErrorKind) -> &'static str {
    match kind {
        ModelErrorKind::Auth => "auth",
        ModelErrorKind::Quota => "quota",
        ModelErrorKind::RateLimit => "rate_limit",
        ModelErrorKind::Capacity => "capacity",
        ModelErrorKind::Server => "server",
        ModelErrorKind::Network => "network",
        ModelErrorKind::BadRequest => "bad_request",
        ModelErrorKind::NotFound => "not_found",
        ModelErrorKind::InvalidStream => "invalid_stream",
        ModelErrorKind::Cancelled => "cancelled",
        ModelErrorKind::Other => "other",
    }
}
