//! The events that stand in for what was summarised.

use std::sync::Arc;

use convoke_adk::{Content, Event, Part, Role};
use serde_json::Value;
use uuid::Uuid;

use super::super::ledger::SUMMARY_SOURCE;
use super::super::tokens::content_tokens;
use super::split::is_prompt;
use crate::instructions::is_session_context;

/// What the model is told it said, so that turns alternate. Source: runtime specification §8, step 10.
const ACKNOWLEDGED: &str = "Got it. Thanks for the additional context!";
/// What a request that lies before the summary, and is still being worked on, is introduced by.
const REQUEST: &str = "The request that is being worked on, word for word:\n";
/// Most characters of such a request: beyond it, the summary has to do.
const REQUEST_MAX: usize = 20_000;

/// One summary, and an acknowledgement where the model has the next word otherwise.
pub(super) fn summary_events(prefix: &[Event], tail: &[Event], summary: &str, agent: &str, now_ms: u64) -> Vec<Event> {
    let invocation_id = format!("e-{}", Uuid::new_v4());
    let event = |author: &str, content: Content| {
        let mut event = Event {
            id: Uuid::new_v4().simple().to_string(),
            invocation_id: invocation_id.clone(),
            author: author.to_owned(),
            timestamp_ms: now_ms,
            content: Some(Arc::new(content)),
            ..Event::default()
        };
        event.actions.custom_metadata.insert("source".to_owned(), SUMMARY_SOURCE.into());
        event
    };
    let mut parts: Vec<Part> = session_context(prefix).into_iter().collect();
    parts.push(Part::text(format!("Summary of the conversation so far, in place of it:\n\n{summary}")));
    if !tail.iter().any(is_prompt) {
        parts.extend(request(prefix));
    }
    let mut events = vec![event("user", Content { role: Role::User, parts })];
    let next = tail.iter().find_map(|event| event.content.as_ref().filter(|content| !content.parts.is_empty()));
    if next.is_none_or(|content| content.role == Role::User) {
        events.push(event(agent, Content::model(ACKNOWLEDGED)));
    }
    events
}

pub(super) fn tokens(events: &[Event]) -> u64 {
    events.iter().filter_map(|event| event.content.as_ref()).map(|content| content_tokens(content)).sum()
}

fn parts(event: &Event) -> &[Part] {
    event.content.as_ref().map_or(&[], |content| content.parts.as_slice())
}

/// Where the agent works, which was told with the first prompt.
fn session_context(prefix: &[Event]) -> Option<Part> {
    let first = prefix.iter().find(|event| is_prompt(event))?;
    parts(first).iter().find(|part| part.as_text().is_some_and(is_session_context)).cloned()
}

/// Whose an event is, where it is not what its author said.
fn source(event: &Event) -> Option<&str> {
    event.actions.custom_metadata.get("source").and_then(Value::as_str)
}

/// The newest thing that the user said.
fn request(prefix: &[Event]) -> Option<Part> {
    // What was put in between (a nudge, a word of the user's) is no request of its own.
    let mut newest = prefix.iter().rev().filter(|event| is_prompt(event));
    let newest = newest.find(|event| matches!(source(event), None | Some(SUMMARY_SOURCE)))?;
    if source(newest).is_some() {
        // A summary of a summary carries on what the first one carried.
        return parts(newest).iter().find(|part| part.as_text().is_some_and(|text| text.starts_with(REQUEST))).cloned();
    }
    let texts = parts(newest).iter().filter_map(Part::as_text).filter(|text| !is_session_context(text));
    let text: String = texts.collect::<Vec<_>>().join("\n").chars().take(REQUEST_MAX).collect();
    (!text.is_empty()).then(|| Part::text(format!("{REQUEST}{text}")))
}
