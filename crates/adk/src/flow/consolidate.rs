//! Joining the pieces of an answer into the one event that is kept.

use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Content, Event, EventError, FinishReason, LlmResponse, ModelError, Part, Role, UsageMetadata};

/// Collects pieces. Neighbouring text of the same kind is joined; everything else keeps its place and its fields.
pub(super) struct Consolidator {
    model: String,
    parts: Vec<Part>,
    finish_reason: Option<FinishReason>,
    usage: Option<UsageMetadata>,
    /// Of the request, and what pieces added.
    metadata: Map<String, Value>,
}

impl Consolidator {
    pub(super) fn new(model: String, metadata: Map<String, Value>) -> Self {
        Self { model, parts: Vec::new(), finish_reason: None, usage: None, metadata }
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn add(&mut self, piece: &LlmResponse) {
        // The name that was asked says more than a version that its server calls itself.
        if let Some(model) = piece.model.as_ref().or(piece.model_version.as_ref()) {
            self.model.clone_from(model);
        }
        self.metadata.extend(piece.metadata.iter().map(|(key, value)| (key.clone(), value.clone())));
        if let Some(reason) = &piece.finish_reason {
            self.finish_reason = Some(reason.clone());
        }
        if let Some(usage) = &piece.usage {
            self.usage = Some(usage.clone());
        }
        for part in piece.content.iter().flat_map(|content| &content.parts) {
            self.add_part(part);
        }
    }

    fn add_part(&mut self, part: &Part) {
        if let Some(text) = part.as_text()
            && part.is_plain_text()
            && let Some(last) = self.parts.last_mut()
            && last.is_plain_text()
            && last.is_thought() == part.is_thought()
        {
            last.append_text(text);
            return;
        }
        let mut part = part.compact();
        if part.function_call().is_some_and(|call| call.id.is_none()) {
            // The prefix tells providers that the id is ours and not to be sent.
            part.set_call_id(&format!("adk-{}", Uuid::new_v4().simple()));
        }
        self.parts.push(part);
    }

    /// Forgets what was said so far: the model starts its answer over.
    pub(super) fn retract(&mut self) {
        self.parts.clear();
        self.finish_reason = None;
    }

    /// The whole answer.
    pub(super) fn finish(self, mut event: Event) -> Event {
        event.actions.custom_metadata.extend(self.metadata);
        Event {
            content: Some(Arc::new(Content { role: Role::Model, parts: self.parts })),
            model: Some(self.model),
            finish_reason: self.finish_reason,
            usage: self.usage,
            ..event
        }
    }

    /// The failure that an answer ended in.
    pub(super) fn failed(self, mut event: Event, error: ModelError) -> Event {
        let ModelError { kind, status, message, .. } = error;
        event.actions.custom_metadata.extend(self.metadata);
        Event { model: Some(self.model), error: Some(EventError { kind, status, message }), ..event }
    }

    /// What was said before the answer broke off, without calls that may be half written; `None` if nothing was.
    pub(super) fn interrupted(&mut self, event: Event) -> Option<Event> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.retain(|part| part.as_text().is_some_and(|text| !text.is_empty()));
        if parts.is_empty() {
            return None;
        }
        parts.push(Part::text("\n[The previous response was interrupted before it completed.]"));
        let mut event = Event {
            content: Some(Arc::new(Content { role: Role::Model, parts })),
            model: Some(self.model.clone()),
            ..event
        };
        event.actions.custom_metadata.insert("interrupted".to_owned(), true.into());
        Some(event)
    }
}
