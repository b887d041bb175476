//! Making the replacements, and putting them where the originals are.

use std::path::Path;
use std::sync::Arc;

use convoke_adk::{Content, Event, FunctionResponse, Part};
use serde_json::{Map, Value, json};

use super::super::listener::MaskedOutput;
use super::super::tokens::part_tokens;
use super::{Selected, files, preview};

/// One output and what stands in for it.
pub(super) struct Change {
    pub(super) masked: MaskedOutput,
    pub(super) tokens_before: u64,
    pub(super) tokens_after: u64,
    /// Where the event was; a hint.
    index: usize,
}

/// What came of a selection.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) made: Vec<Change>,
    /// What stays as it is, and need not be tried again.
    pub(super) refused: Vec<Selected>,
}

/// Keeps each selected output and makes its replacement. One that would not get smaller, or can't be kept, stays.
pub(super) fn changes(selected: Vec<Selected>, folder: &Path) -> Changes {
    let mut changes = Changes::default();
    if let Err(error) = std::fs::create_dir_all(folder) {
        tracing::warn!(%error, folder = %folder.display(), "old output can't be kept, so it stays in the session");
        changes.refused = selected;
        return changes;
    }
    for one in selected {
        match change(&one, folder) {
            Some(change) => changes.made.push(change),
            None => changes.refused.push(one),
        }
    }
    changes
}

fn change(selected: &Selected, folder: &Path) -> Option<Change> {
    let Selected { index, event_id, content, part, tokens } = selected;
    let original = content.parts.get(*part)?;
    let Value::Object(fields) = original.raw().get("functionResponse")? else { return None };
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    let call_id = fields.get("id").and_then(Value::as_str);
    let response = fields.get("response")?;
    let text = preview::text_of(response);
    // Before anything is written: a path and figures add about the same to every preview.
    let sample = preview::Kept {
        path: folder.display().to_string(),
        lines: text.len(),
        bytes: text.len(),
        sha256: "0".repeat(16),
    };
    let sample = json!({"output": preview::masked(name, response, &text, &sample)});
    if part_tokens(&replaced(original, &sample)) >= *tokens {
        return None;
    }
    let kept = files::keep(folder, name, call_id, &text)
        .inspect_err(|error| tracing::warn!(%error, tool = name, "an output can't be kept, so it stays in the session"))
        .ok()?;
    let replacement = json!({"output": preview::masked(name, response, &text, &kept)});
    let tokens_after = part_tokens(&replaced(original, &replacement));
    if tokens_after >= *tokens {
        return None;
    }
    Some(Change {
        masked: MaskedOutput {
            event_id: event_id.clone(),
            call_id: call_id.map(ToOwned::to_owned),
            ordinal: ordinal(content, *part, call_id),
            replacement: FunctionResponse {
                id: call_id.map(ToOwned::to_owned),
                name: name.to_owned(),
                response: replacement,
            },
            file: kept.path,
        },
        tokens_before: *tokens,
        tokens_after,
        index: *index,
    })
}

/// How many responses to the same call stand before this one.
fn ordinal(content: &Content, part: usize, call_id: Option<&str>) -> usize {
    content.parts.iter().take(part).filter(|other| other.response_id() == Some(call_id)).count()
}

/// The part with another body; its id, name and every other field stay.
fn replaced(original: &Part, body: &Value) -> Part {
    let fields = original.raw().iter().map(|(key, value)| match (key.as_str(), value) {
        ("functionResponse", Value::Object(fields)) => {
            let fields = fields.iter().map(|(key, value)| {
                let value = if key == "response" { body } else { value };
                (key.clone(), value.clone())
            });
            (key.clone(), Value::Object(fields.collect()))
        }
        _ => (key.clone(), value.clone()),
    });
    Part::from(fields.collect::<Map<String, Value>>())
}

/// Replaces the response that `change` names; whether it is still there. The content is made anew, since requests that
/// are under way share the old one.
pub(super) fn write_back(events: &mut [Event], change: &Change) -> bool {
    let MaskedOutput { event_id, call_id, ordinal, replacement, .. } = &change.masked;
    let at_hint = events.get(change.index).is_some_and(|event| event.id == *event_id);
    let index = if at_hint { Some(change.index) } else { events.iter().position(|event| event.id == *event_id) };
    let Some(event) = index.and_then(|index| events.get_mut(index)) else { return false };
    let Some(content) = &event.content else { return false };
    let answers = |part: &&(usize, &Part)| part.1.response_id() == Some(call_id.as_deref());
    let parts: Vec<(usize, &Part)> = content.parts.iter().enumerate().collect();
    let Some(&(place, original)) = parts.iter().filter(answers).nth(*ordinal) else { return false };
    let maskable = original.raw().get("functionResponse").and_then(Value::as_object).is_some_and(super::is_maskable);
    if !maskable {
        return false;
    }
    let parts = content
        .parts
        .iter()
        .enumerate()
        .map(|(index, part)| if index == place { replaced(part, &replacement.response) } else { part.clone() });
    event.content = Some(Arc::new(Content { role: content.role, parts: parts.collect() }));
    true
}
