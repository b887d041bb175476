//! A conversation as the kernel's events, so that a session can go on from it.
//!
//! Events are whole, never partial. Ids and timestamps are the recorded ones, and what a record does not have (the
//! invocation) follows from them, so that the same file makes the same session each time. Source: the implementation
//! details of the replatforming, "/rewind"; runtime specification §11.4.

use std::borrow::Cow;
use std::sync::Arc;

use convoke_adk::{Content, Event, EventActions, EventError, FinishReason, ModelErrorKind, Part, Role, UsageMetadata};
use serde_json::{Map, Value};

use super::conversation::{Conversation, Message, RESULTS, timestamp_ms};
use super::line::{CallLine, ErrorRecord, Line};

/// Kinds of failures and their names in a record.
const ERROR_KINDS: [(ModelErrorKind, &str); 11] = [
    (ModelErrorKind::Auth, "auth"),
    (ModelErrorKind::Quota, "quota"),
    (ModelErrorKind::RateLimit, "rate_limit"),
    (ModelErrorKind::Capacity, "capacity"),
    (ModelErrorKind::Server, "server"),
    (ModelErrorKind::Network, "network"),
    (ModelErrorKind::BadRequest, "bad_request"),
    (ModelErrorKind::NotFound, "not_found"),
    (ModelErrorKind::InvalidStream, "invalid_stream"),
    (ModelErrorKind::Cancelled, "cancelled"),
    (ModelErrorKind::Other, "other"),
];

pub(super) fn error_record(error: &EventError) -> ErrorRecord {
    let kind = ERROR_KINDS.iter().find(|(kind, _)| *kind == error.kind).map_or("other", |(_, name)| name);
    ErrorRecord { kind: kind.to_owned(), status: error.status, message: error.message.clone() }
}

fn event_error(record: &ErrorRecord) -> EventError {
    let kind =
        ERROR_KINDS.iter().find(|(_, name)| *name == record.kind).map_or(ModelErrorKind::Other, |(kind, _)| *kind);
    EventError { kind, status: record.status, message: record.message.clone() }
}

impl Conversation {
    /// What the model is to know, as events of a session. `agent` says what the record does not give to others.
    pub(crate) fn into_events(self, agent: &str) -> Vec<Event> {
        let mut events = Vec::with_capacity(2 * self.messages.len());
        let mut invocation_id = "e-0".to_owned();
        for mut message in self.into_history() {
            if message.is("user") && message.line.author.is_none() {
                invocation_id = format!("e-{}", message.id());
            }
            let answer = message.is("gemini") || message.is("error");
            let role = if answer { Role::Model } else { Role::User };
            let author = if answer { agent } else { "user" };
            let base = Event { invocation_id: invocation_id.clone(), ..Event::default() };
            let told = responses(&mut message, Event { author: agent.to_owned(), ..base.clone() });
            events.push(event(*message.line, role, Event { author: author.to_owned(), ..base }));
            events.extend(told);
        }
        events
    }
}

/// What `base` says of the author counts where the line says nothing.
fn event(line: Line<'static>, role: Role, base: Event) -> Event {
    let timestamp_ms = timestamp_ms(&line);
    let mut custom_metadata = line.metadata.map(Cow::into_owned).unwrap_or_default();
    if let Some(thoughts) = line.thoughts.filter(|thoughts| thoughts.as_array().is_some_and(|t| !t.is_empty())) {
        custom_metadata.insert("thoughts".to_owned(), thoughts);
    }
    if let Some(tokens) = line.tokens.and_then(|tokens| serde_json::to_value(tokens).ok()) {
        custom_metadata.insert("tokens".to_owned(), tokens);
    }
    Event {
        id: line.id.map(Cow::into_owned).unwrap_or_default(),
        author: line.author.map_or(base.author, Cow::into_owned),
        timestamp_ms,
        content: line.content.map(|parts| Arc::new(Content { role, parts: parts.into_owned() })),
        model: line.model.map(Cow::into_owned),
        finish_reason: line.finish_reason.map(|reason| FinishReason(reason.into_owned())),
        usage: line.tokens.map(UsageMetadata::from),
        error: line.error.as_deref().map(event_error),
        actions: EventActions {
            state_delta: line.state_delta.map(Cow::into_owned).unwrap_or_default(),
            skip_summarization: false,
            custom_metadata,
        },
        invocation_id: base.invocation_id,
        ..Event::default()
    }
}

/// The event with the results of an answer's calls. A call without a result is left to the kernel, which says that it
/// was interrupted.
fn responses(message: &mut Message, base: Event) -> Option<Event> {
    let told = message.responses.take();
    let timestamp = message.calls.last().and_then(|call| call.timestamp.clone());
    let mut line = told.map_or_else(
        || Line { id: Some(format!("{}{RESULTS}", message.id()).into()), timestamp, ..Line::default() },
        |line| *line,
    );
    let parts = line.content.take().map_or_else(|| results(message), Cow::into_owned);
    if parts.is_empty() {
        return None;
    }
    line.content = Some(Cow::Owned(parts));
    Some(event(line, Role::User, base))
}

/// The responses in the order of the calls, then what came beside them.
fn results(message: &mut Message) -> Vec<Part> {
    let mut left: Vec<CallLine> = std::mem::take(&mut message.calls);
    let (mut responses, mut siblings) = (Vec::new(), Vec::new());
    for id in message.parts().iter().filter_map(Part::call_id).flatten() {
        let Some(at) = left.iter().position(|call| call.id == id) else { continue };
        for part in left.remove(at).result.map(Cow::into_owned).unwrap_or_default() {
            if part.response_id().is_some() { responses.push(part) } else { siblings.push(part) }
        }
    }
    responses.append(&mut siblings);
    responses
}

/// What the state of a session is after these events.
pub(crate) fn state_after(events: &[Event]) -> Map<String, Value> {
    let deltas = events.iter().flat_map(|event| event.actions.state_delta.iter());
    deltas.filter(|(key, _)| !key.starts_with("temp:")).map(|(key, value)| (key.clone(), value.clone())).collect()
}
