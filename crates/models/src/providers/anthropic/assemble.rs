//! Assembling: events of a message as pieces of a Gemini answer.
//!
//! Sans-IO. A message is a list of blocks; each block starts as an object, grows by deltas, and stops. A delta's text
//! is appended to the block's field of the same name, whatever the field: so blocks and deltas of kinds that are not
//! known here arrive whole as well. Text and thoughts are told as they grow, calls when they stop. A message has an
//! end; one without is an answer that broke off, however much was said before.

use std::collections::HashMap;

use convoke_adk::{LlmRequest, ModelError, ModelErrorKind};
use serde_json::{Map, Value, json};

use crate::error::classify_inline;
use crate::generator::GenerateResponse;
use crate::providers::ANTHROPIC;
use crate::providers::wire_names::WireNames;

/// The most blocks that may be open at once. Servers send one after the other; this is what a broken one may cost us.
const OPEN_MAX: usize = 64;

/// One answer under way.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// Tools by the name that was sent, where that is another than their own.
    names: HashMap<String, String>,
    open: Vec<(u64, Block)>,
    usage: Map<String, Value>,
    model: Option<String>,
    model_told: bool,
    stop_reason: Option<String>,
    broken_call: bool,
    over: bool,
}

/// A block under way.
#[derive(Debug, Default)]
struct Block {
    raw: Map<String, Value>,
    /// The input of a tool, which comes as fragments of JSON.
    input: String,
}

impl Assembler {
    pub(super) fn new(request: &LlmRequest) -> Self {
        Self { names: WireNames::of(request).back(), ..Self::default() }
    }

    /// Takes one event, or a whole message, and gives what can be told at once. Unknown events are passed over.
    pub(super) fn take(&mut self, event: Value) -> Result<Option<GenerateResponse>, ModelError> {
        let Value::Object(mut event) = event else { return Ok(None) };
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind == "error" || event.get("error").is_some_and(|error| !error.is_null()) {
            return Err(classify_inline(&Value::Object(event)));
        }
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        let parts = match kind.as_str() {
            "message_start" => {
                if let Some(Value::Object(message)) = event.remove("message") {
                    self.head(&message);
                }
                Vec::new()
            }
            "content_block_start" => match event.remove("content_block") {
                Some(Value::Object(raw)) => self.start(index, raw)?,
                _ => Vec::new(),
            },
            "content_block_delta" => match event.remove("delta") {
                Some(Value::Object(delta)) => self.grow(index, delta),
                _ => Vec::new(),
            },
            "content_block_stop" => {
                let place = self.open.iter().position(|(open, _)| *open == index);
                place.and_then(|place| self.stop(place)).into_iter().collect()
            }
            "message_delta" => {
                self.tail(&event);
                Vec::new()
            }
            "message_stop" => {
                self.over = true;
                Vec::new()
            }
            "message" => self.whole(event)?,
            _ => Vec::new(),
        };
        Ok(self.piece(parts))
    }

    /// Whether the message said that it has ended.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// The last piece: why it ended, and token counts.
    pub(super) fn finish(mut self) -> Result<GenerateResponse, ModelError> {
        if !self.over && self.stop_reason.is_none() {
            let message = "the model's answer broke off before its end";
            return Err(ModelError::new(ModelErrorKind::Network, message));
        }
        let mut parts = Vec::new();
        while !self.open.is_empty() {
            parts.extend(self.stop(0));
        }
        let reason = match self.stop_reason.as_deref() {
            // A call that the bound cut in two would be cut again.
            Some("max_tokens" | "model_context_window_exceeded") => "MAX_TOKENS",
            _ if self.broken_call => "MALFORMED_FUNCTION_CALL",
            Some("refusal") => "SAFETY",
            Some("end_turn" | "tool_use" | "stop_sequence" | "pause_turn") | None => "STOP",
            Some(_) => "OTHER",
        };
        let mut candidate = Map::new();
        if !parts.is_empty() {
            candidate.insert("content".to_owned(), json!({"role": "model", "parts": parts}));
        }
        candidate.insert("finishReason".to_owned(), reason.into());
        let mut response = Map::from_iter([("candidates".to_owned(), json!([candidate]))]);
        if !self.usage.is_empty() {
            response.insert("usageMetadata".to_owned(), usage_metadata(&self.usage));
        }
        if let Some(model) = self.model {
            response.insert("modelVersion".to_owned(), model.into());
        }
        Ok(response.into())
    }

    /// Model and token counts, at the start.
    fn head(&mut self, message: &Map<String, Value>) {
        if let Some(model) = message.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
            self.model = Some(model.to_owned());
        }
        self.count(message.get("usage"));
    }

    /// Counts at the end replace those at the start; what the end does not count stays.
    fn count(&mut self, usage: Option<&Value>) {
        for (key, count) in usage.and_then(Value::as_object).into_iter().flatten().filter(|(_, v)| v.is_u64()) {
            self.usage.insert(key.clone(), count.clone());
        }
    }

    fn tail(&mut self, event: &Map<String, Value>) {
        let reason = event.get("delta").and_then(|delta| delta.get("stop_reason")?.as_str());
        self.stop_reason = reason.map(str::to_owned).or(self.stop_reason.take());
        self.count(event.get("usage"));
    }

    fn whole(&mut self, mut message: Map<String, Value>) -> Result<Vec<Value>, ModelError> {
        self.head(&message);
        self.stop_reason = message.get("stop_reason").and_then(Value::as_str).map(str::to_owned);
        self.over = true;
        let mut parts = Vec::new();
        if let Some(Value::Array(blocks)) = message.remove("content") {
            for (index, raw) in (0..).zip(blocks) {
                if let Value::Object(raw) = raw {
                    parts.extend(self.start(index, raw)?);
                    parts.extend(self.stop(0));
                }
            }
        }
        Ok(parts)
    }

    fn start(&mut self, index: u64, raw: Map<String, Value>) -> Result<Vec<Value>, ModelError> {
        if self.open.len() >= OPEN_MAX {
            let message = format!("the model's answer has more than {OPEN_MAX} unfinished parts");
            return Err(ModelError::new(ModelErrorKind::InvalidStream, message));
        }
        let told = shown(&raw, raw.get("type")).into_iter().collect();
        self.open.push((index, Block { raw, input: String::new() }));
        Ok(told)
    }

    fn grow(&mut self, index: u64, delta: Map<String, Value>) -> Vec<Value> {
        let Some((_, block)) = self.open.iter_mut().find(|(open, _)| *open == index) else { return Vec::new() };
        let told = shown(&delta, block.raw.get("type"));
        for (key, value) in delta.into_iter().filter(|(key, _)| key != "type") {
            match (key.as_str(), value) {
                ("partial_json", Value::String(more)) => block.input.push_str(&more),
                ("citation", citation) => match block.raw.get_mut("citations") {
                    Some(Value::Array(citations)) => citations.push(citation),
                    _ => {
                        block.raw.insert("citations".to_owned(), json!([citation]));
                    }
                },
                (_, Value::String(more)) => match block.raw.get_mut(&key) {
                    Some(Value::String(text)) => text.push_str(&more),
                    _ => {
                        block.raw.insert(key, Value::String(more));
                    }
                },
                (_, value) => {
                    block.raw.insert(key, value);
                }
            }
        }
        told.into_iter().collect()
    }

    /// What a block that has stopped says as a whole.
    fn stop(&mut self, place: usize) -> Option<Value> {
        let (_, Block { mut raw, input }) = (place < self.open.len()).then(|| self.open.remove(place))?;
        let kind = raw.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !input.trim().is_empty() {
            match serde_json::from_str::<Value>(&input) {
                Ok(value) => {
                    raw.insert("input".to_owned(), value);
                }
                Err(_) => {
                    self.broken_call = true;
                    return None;
                }
            }
        }
        match kind.as_str() {
            // Already told.
            "text" => None,
            // Without its signature it would be refused.
            "thinking" if raw.get("signature").and_then(Value::as_str).is_none_or(str::is_empty) => None,
            "tool_use" => {
                let part = self.call(raw);
                self.broken_call |= part.is_none();
                part
            }
            _ => Some(json!({"thought": true, ANTHROPIC: raw})),
        }
    }

    /// A call; `None` if it has no name or its input is no object. Fields that have no place in a call are kept.
    fn call(&self, mut raw: Map<String, Value>) -> Option<Value> {
        raw.remove("type");
        let name = raw.remove("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
        let name = self.names.get(&name).cloned().unwrap_or(name);
        let args = match raw.remove("input") {
            Some(Value::Object(args)) => args,
            Some(Value::Null) | None => Map::new(),
            Some(_) => return None,
        };
        let mut call = Map::new();
        if let Some(id) = raw.remove("id").filter(Value::is_string) {
            call.insert("id".to_owned(), id);
        }
        call.insert("name".to_owned(), name.into());
        call.insert("args".to_owned(), Value::Object(args));
        let mut part = json!({"functionCall": call});
        if let (false, Some(part)) = (raw.is_empty(), part.as_object_mut()) {
            part.insert(ANTHROPIC.to_owned(), Value::Object(raw));
        }
        Some(part)
    }

    fn piece(&mut self, parts: Vec<Value>) -> Option<GenerateResponse> {
        if parts.is_empty() {
            return None;
        }
        let candidate = json!({"content": {"role": "model", "parts": parts}});
        let mut piece = Map::from_iter([("candidates".to_owned(), json!([candidate]))]);
        if let Some(model) = self.model.as_ref().filter(|_| !self.model_told) {
            piece.insert("modelVersion".to_owned(), model.as_str().into());
            self.model_told = true;
        }
        Some(piece.into())
    }
}

/// The text or thought in a block or delta, as a part for people.
fn shown(fields: &Map<String, Value>, kind: Option<&Value>) -> Option<Value> {
    let (key, thought) = match kind.and_then(Value::as_str)? {
        "text" => ("text", false),
        "thinking" => ("thinking", true),
        _ => return None,
    };
    let text = fields.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())?;
    Some(if thought { json!({"text": text, "thought": true}) } else { json!({"text": text}) })
}

/// Token counts in Gemini's words, where what is cached counts as sent.
fn usage_metadata(usage: &Map<String, Value>) -> Value {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
    let cached = count("cache_read_input_tokens");
    let prompt = count("input_tokens").saturating_add(count("cache_creation_input_tokens")).saturating_add(cached);
    let answer = count("output_tokens");
    json!({
        "promptTokenCount": prompt,
        "candidatesTokenCount": answer,
        "totalTokenCount": prompt.saturating_add(answer),
        "cachedContentTokenCount": cached,
    })
}

#[cfg(test)]
mod tests;
