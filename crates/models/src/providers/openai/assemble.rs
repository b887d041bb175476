//! Assembling: pieces of a chat completion as pieces of a Gemini answer.
//!
//! Sans-IO. Tolerated, because servers do it: calls in fragments by index, whole calls, calls without index or id,
//! one index for several calls; arguments as an object or as JSON twice encoded; `message` in place of `delta`;
//! thoughts as `reasoning_content` or `reasoning`; no finish reason before `[DONE]`; token counts in a chunk of their
//! own, in each chunk, or never. Arguments that can't be read make the whole answer a `MALFORMED_FUNCTION_CALL`,
//! which the stream rules repeat.

use std::collections::HashMap;

use convoke_adk::{LlmRequest, ModelError};
use serde_json::{Map, Value, json};

use crate::error::classify_inline;
use crate::generator::GenerateResponse;
use crate::providers::OPENAI;
use crate::providers::wire_names::WireNames;

/// The most calls in one answer: more than any model makes, and what a broken server may cost us.
const CALLS_MAX: usize = 256;
/// The most details of thoughts in one answer.
const DETAILS_MAX: usize = 1024;

/// One answer under way.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// Tools by the name that was sent, where that is another than their own.
    names: HashMap<String, String>,
    calls: Vec<Call>,
    /// OpenRouter's `reasoning_details`: what a model wants back.
    details: Vec<Map<String, Value>>,
    finish_reason: Option<String>,
    usage: Option<Value>,
    model: Option<String>,
    /// The model was told already.
    model_told: bool,
    has_text: bool,
    /// The server said that nothing follows: `[DONE]`, token counts, or a plain JSON answer.
    complete: bool,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: String,
    /// What a gateway added, such as a signature.
    extra: Map<String, Value>,
}

impl Assembler {
    pub(super) fn new(request: &LlmRequest) -> Self {
        Self { names: WireNames::of(request).back(), ..Self::default() }
    }

    /// Takes one chunk, or a whole completion, and gives what can be told at once.
    pub(super) fn take(&mut self, chunk: &Value) -> Result<Option<GenerateResponse>, ModelError> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(classify_inline(chunk));
        }
        if let Some(model) = chunk.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
            self.model = Some(model.to_owned());
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = Some(usage_metadata(usage));
            // A chunk without choices holds the final counts; in other chunks they may be counts so far.
            let is_last = chunk.get("choices").and_then(Value::as_array).is_none_or(Vec::is_empty);
            self.complete |= is_last;
        }
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else { return Ok(None) };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
        }
        let delta = match (choice.get("delta"), choice.get("message")) {
            (Some(delta), _) if delta.is_object() => delta,
            (_, Some(message)) => {
                self.complete = true;
                message
            }
            _ => return Ok(None),
        };
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.call(call);
        }
        for detail in delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
            self.detail(detail);
        }
        Ok(self.text_piece(delta))
    }

    /// The server said `[DONE]`.
    pub(super) fn done(&mut self) {
        self.complete = true;
    }

    /// The last piece: calls, finish reason, token counts.
    pub(super) fn finish(mut self) -> Option<GenerateResponse> {
        if !self.complete && self.finish_reason.is_none() {
            // The stream was cut: a call may be half there and look whole, and half a call must not run.
            self.calls.clear();
            self.details.clear();
        }
        let mut parts = Vec::with_capacity(self.calls.len());
        let mut malformed = false;
        for call in &self.calls {
            match call.part(&self.names) {
                Some(part) => parts.push(part),
                None => malformed = true,
            }
        }
        let reason = match self.finish_reason.as_deref() {
            _ if malformed => Some("MALFORMED_FUNCTION_CALL"),
            Some("stop" | "tool_calls" | "function_call" | "end_turn" | "eos") => Some("STOP"),
            Some("length" | "max_tokens") => Some("MAX_TOKENS"),
            Some("content_filter") => Some("SAFETY"),
            Some(_) => Some("OTHER"),
            None if self.complete && (self.has_text || !parts.is_empty()) => Some("STOP"),
            None => None,
        };
        if malformed {
            parts.clear();
        }
        if !self.details.is_empty() {
            parts.insert(0, json!({"thought": true, OPENAI: {"reasoning_details": self.details}}));
        }
        if reason.is_none() && parts.is_empty() && self.usage.is_none() {
            return None;
        }
        let mut candidate = Map::new();
        if !parts.is_empty() {
            candidate.insert("content".to_owned(), json!({"role": "model", "parts": parts}));
        }
        if let Some(reason) = reason {
            candidate.insert("finishReason".to_owned(), reason.into());
        }
        let mut response = Map::from_iter([("candidates".to_owned(), json!([candidate]))]);
        if let Some(usage) = self.usage {
            response.insert("usageMetadata".to_owned(), usage);
        }
        if let Some(model) = self.model {
            response.insert("modelVersion".to_owned(), model.into());
        }
        Some(response.into())
    }

    fn text_piece(&mut self, delta: &Value) -> Option<GenerateResponse> {
        let mut parts = Vec::new();
        let thought = ["reasoning_content", "reasoning"].iter().find_map(|key| text_of(delta.get(*key)?));
        if let Some(thought) = thought {
            parts.push(json!({"text": thought, "thought": true}));
        }
        for key in ["content", "refusal"] {
            if let Some(text) = delta.get(key).and_then(text_of) {
                self.has_text = true;
                parts.push(json!({"text": text}));
            }
        }
        if parts.is_empty() {
            return None;
        }
        let content = json!({"content": {"role": "model", "parts": parts}});
        let mut response = Map::from_iter([("candidates".to_owned(), json!([content]))]);
        if !self.model_told
            && let Some(model) = &self.model
        {
            self.model_told = true;
            response.insert("modelVersion".to_owned(), model.as_str().into());
        }
        Some(response.into())
    }

    /// Takes a detail of a thought, or a fragment of one: those of one index and type are one.
    fn detail(&mut self, detail: &Value) {
        let Some(detail) = detail.as_object() else { return };
        let same = |last: &&mut Map<String, Value>| {
            detail.contains_key("index") && ["index", "type"].iter().all(|key| last.get(*key) == detail.get(*key))
        };
        let Some(last) = self.details.last_mut().filter(same) else {
            if self.details.len() < DETAILS_MAX {
                self.details.push(detail.clone());
            }
            return;
        };
        for (key, value) in detail {
            match (last.get_mut(key), value) {
                (Some(Value::String(text)), Value::String(more))
                    if matches!(key.as_str(), "text" | "summary" | "data") =>
                {
                    text.push_str(more);
                }
                _ => {
                    last.insert(key.clone(), value.clone());
                }
            }
        }
    }

    /// Takes a fragment of a call.
    fn call(&mut self, fragment: &Value) {
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let index = fragment.get("index").and_then(Value::as_u64);
        let id = text(fragment.get("id"));
        let function = fragment.get("function");
        let name = text(function.and_then(|function| function.get("name")));
        let place = self.place(index, id.as_deref(), name.as_deref());
        let Some(call) = (match place {
            Some(place) => self.calls.get_mut(place),
            None if self.calls.len() < CALLS_MAX => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.last_mut()
            }
            None => None,
        }) else {
            return;
        };
        call.id = call.id.take().or(id);
        if call.name.is_empty() {
            call.name = name.unwrap_or_default();
        }
        let extra = fragment.as_object().into_iter().flatten();
        let extra = extra.filter(|(key, _)| !matches!(key.as_str(), "index" | "id" | "type" | "function"));
        call.extra.extend(extra.map(|(key, value)| (key.clone(), value.clone())));
        match function.and_then(|function| function.get("arguments")) {
            Some(Value::String(text)) => call.arguments.push_str(text),
            Some(Value::Null) | None => {}
            Some(whole) => call.arguments = whole.to_string(),
        }
    }

    /// Which call a fragment continues; `None` if it starts one.
    fn place(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let place = match (index, id) {
            (Some(index), _) => self.calls.iter().rposition(|call| call.index == Some(index)),
            (None, Some(id)) => self.calls.iter().rposition(|call| call.id.as_deref() == Some(id)),
            // Without both, a name starts a call and anything else goes on with the last one.
            (None, None) if name.is_none() => self.calls.len().checked_sub(1),
            (None, None) => None,
        }?;
        let call = self.calls.get(place)?;
        // Some servers number all calls 0 and tell them apart by id, or by name if those are missing too.
        let other_id = matches!((id, &call.id), (Some(new), Some(old)) if new != old);
        let other_name = id.is_none() && name.is_some_and(|new| !call.name.is_empty() && new != call.name);
        (!other_id && !other_name).then_some(place)
    }
}

impl Call {
    /// The call as a part; `None` if it has no name or its arguments are no object.
    fn part(&self, names: &HashMap<String, String>) -> Option<Value> {
        if self.name.is_empty() {
            return None;
        }
        let mut call = Map::new();
        if let Some(id) = &self.id {
            call.insert("id".to_owned(), id.as_str().into());
        }
        let name = names.get(&self.name).unwrap_or(&self.name);
        call.insert("name".to_owned(), name.as_str().into());
        call.insert("args".to_owned(), Value::Object(arguments(&self.arguments)?));
        let mut part = json!({"functionCall": call});
        if let (false, Some(part)) = (self.extra.is_empty(), part.as_object_mut()) {
            part.insert(OPENAI.to_owned(), Value::Object(self.extra.clone()));
        }
        Some(part)
    }
}

fn arguments(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    match serde_json::from_str(text).ok()? {
        Value::Object(args) => Some(args),
        Value::Null => Some(Map::new()),
        Value::String(inner) => serde_json::from_str(&inner).ok(),
        _ => None,
    }
}

/// Text as a string, or as a list of text parts.
fn text_of(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// Token counts in Gemini's words; thoughts are apart from the rest of the answer there.
fn usage_metadata(usage: &Value) -> Value {
    let count = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or_default();
    let detail = |group: &str, key: &str| count(usage.get(group).and_then(|group| group.get(key)));
    let prompt = count(usage.get("prompt_tokens"));
    let completion = count(usage.get("completion_tokens"));
    let thoughts = detail("completion_tokens_details", "reasoning_tokens").min(completion);
    json!({
        "promptTokenCount": prompt,
        "candidatesTokenCount": completion - thoughts,
        "totalTokenCount": usage.get("total_tokens").and_then(Value::as_u64).unwrap_or(prompt.saturating_add(completion)),
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": detail("prompt_tokens_details", "cached_tokens"),
    })
}

#[cfg(test)]
mod tests;
