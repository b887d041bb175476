//! A conversation as the kernel's events, so that a session can go on from it.
//!
//! Events are whole, never partial. Ids and timestamps are the recorded ones, and what a record does not have (the
//! invocation) follows from them, so that the same file makes the same session each time. Source: the implementation
//! details of the replatforming, "/rewind"; runtime specification §11.4.

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
    pub(crate) fn events(&self, agent: &str) -> Vec<Event> {
        let mut events = Vec::new();
        let mut invocation_id = "e-0".to_owned();
        for message in self.history() {
            if message.is("user") && message.line.author.is_none() {
                invocation_id = format!("e-{}", message.id());
            }
            let answer = message.is("gemini") || message.is("error");
            let author = message.line.author.as_deref().unwrap_or(if answer { agent } else { "user" });
            let role = if answer { Role::Model } else { Role::User };
            let base = Event { invocation_id: invocation_id.clone(), author: author.to_owned(), ..Event::default() };
            events.push(event(&message.line, role, base.clone()));
            events.extend(responses(message, Event { author: agent.to_owned(), ..base }));
        }
        events
    }
}

fn event(line: &Line<'_>, role: Role, base: Event) -> Event {
    let mut custom_metadata = line.metadata.as_deref().cloned().unwrap_or_default();
    if let Some(thoughts) = line.thoughts.as_ref().filter(|thoughts| thoughts.as_array().is_some_and(|t| !t.is_empty()))
    {
        custom_metadata.insert("thoughts".to_owned(), thoughts.clone());
    }
    if let Some(tokens) = line.tokens.and_then(|tokens| serde_json::to_value(tokens).ok()) {
        custom_metadata.insert("tokens".to_owned(), tokens);
    }
    let content = line.content.as_deref().map(|parts| Arc::new(Content { role, parts: parts.to_vec() }));
    Event {
        id: line.id.as_deref().unwrap_or_default().to_owned(),
        timestamp_ms: timestamp_ms(line),
        content,
        model: line.model.as_deref().map(ToOwned::to_owned),
        finish_reason: line.finish_reason.as_deref().map(|reason| FinishReason(reason.to_owned())),
        usage: line.tokens.map(UsageMetadata::from),
        error: line.error.as_ref().map(event_error),
        actions: EventActions {
            state_delta: line.state_delta.as_deref().cloned().unwrap_or_default(),
            skip_summarization: false,
            custom_metadata,
        },
        ..base
    }
}

/// The event with the results of an answer's calls. A call without a result is left to the kernel, which says that it
/// was interrupted.
fn responses(message: &Message, base: Event) -> Option<Event> {
    let told = message.responses.as_deref();
    let parts = match told.and_then(|line| line.content.as_deref()) {
        Some(changed) => changed.to_vec(),
        None => results(message),
    };
    if parts.is_empty() {
        return None;
    }
    let synthetic = Line {
        id: Some(format!("{}{RESULTS}", message.id()).into()),
        timestamp: message.calls.last().and_then(|call| call.timestamp.clone()),
        ..Line::default()
    };
    let line = told.unwrap_or(&synthetic);
    let author = line.author.as_deref().map_or(base.author.clone(), ToOwned::to_owned);
    let mut event = event(line, Role::User, Event { author, ..base });
    event.content = Some(Arc::new(Content { role: Role::User, parts }));
    Some(event)
}

/// The responses in the order of the calls, then what came beside them.
fn results(message: &Message) -> Vec<Part> {
    let mut left: Vec<&CallLine> = message.calls.iter().collect();
    let (mut responses, mut siblings) = (Vec::new(), Vec::new());
    for id in message.parts().iter().filter_map(Part::call_id).flatten() {
        let Some(at) = left.iter().position(|call| call.id == id) else { continue };
        for part in left.remove(at).result.as_deref().unwrap_or_default() {
            if part.response_id().is_some() { responses.push(part.clone()) } else { siblings.push(part.clone()) }
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
