//! A model's request and answer as hooks read and write them: text only. Source: runtime specification §10.3.
//!
//! Hooks see roles and texts. What they can't see (calls, responses, pictures, thoughts, signatures) is never lost when
//! they write something back: it keeps its place and its content.

use std::sync::Arc;

use convoke_adk::{Content, FinishReason, LlmRequest, LlmResponse, Part, Role};
use serde_json::{Map, Value, json};

fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Model => "model",
    }
}

/// Whether a hook sees this part.
fn is_said(part: &Part) -> bool {
    part.as_text().is_some_and(|text| !text.is_empty()) && !part.is_thought()
}

/// The request as hooks read it.
pub(super) fn request_json(request: &LlmRequest) -> Value {
    let messages: Vec<Value> = request
        .contents
        .iter()
        .filter(|content| content.parts.iter().any(is_said))
        .map(|content| json!({"role": role_name(content.role), "content": content.joined_text()}))
        .collect();
    let mut config = Map::new();
    let ours = &request.config;
    config.extend(ours.temperature.map(|value| ("temperature".to_owned(), json!(value))));
    config.extend(ours.max_output_tokens.map(|value| ("maxOutputTokens".to_owned(), json!(value))));
    config.extend(ours.top_p.map(|value| ("topP".to_owned(), json!(value))));
    config.extend(ours.top_k.map(|value| ("topK".to_owned(), json!(value))));
    let mut object = json!({"model": request.model, "messages": messages, "config": config});
    if let (Some(allowed), Some(object)) = (&request.allowed_tools, object.as_object_mut()) {
        let mode = if allowed.is_empty() { "NONE" } else { "ANY" };
        object.insert("toolConfig".to_owned(), json!({"mode": mode, "allowedFunctionNames": allowed}));
    }
    object
}

/// Writes what hooks changed back into the request. Fields that are not given stay.
pub(super) fn change_request(request: &mut LlmRequest, changed: &Map<String, Value>) {
    if let Some(model) = changed.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
        request.turn_to(model);
    }
    if let Some(config) = changed.get("config").and_then(Value::as_object) {
        let number = |key: &str| config.get(key).and_then(Value::as_f64);
        let whole = |key: &str| config.get(key).and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
        let ours = &mut request.config;
        ours.temperature = number("temperature").or(ours.temperature);
        ours.top_p = number("topP").or(ours.top_p);
        ours.top_k = whole("topK").or(ours.top_k);
        ours.max_output_tokens = whole("maxOutputTokens").or(ours.max_output_tokens);
    }
    if let Some(messages) = changed.get("messages").and_then(Value::as_array) {
        let messages: Vec<Message> = messages.iter().filter_map(Message::read).collect();
        let system = messages.iter().filter(|message| message.role.is_none());
        request.system_instruction.extend(system.map(|message| message.text.clone()));
        let said: Vec<Message> = messages.into_iter().filter(|message| message.role.is_some()).collect();
        request.contents = rewritten(&request.contents, &said);
    }
}

/// What a hook wrote.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    /// `None` for an instruction.
    role: Option<Role>,
    text: String,
}

impl Message {
    fn read(value: &Value) -> Option<Self> {
        let role = match value.get("role")?.as_str()? {
            "user" => Some(Role::User),
            "model" | "assistant" => Some(Role::Model),
            "system" => None,
            _ => return None,
        };
        Some(Self { role, text: text_of(value.get("content")?)? })
    }

    fn is_of(&self, content: &Content) -> bool {
        self.role == Some(content.role)
    }

    fn says(&self, content: &Content) -> bool {
        self.is_of(content) && self.text == content.joined_text()
    }

    /// As a content of its own; providers refuse empty ones.
    fn content(&self) -> Option<Arc<Content>> {
        let parts = (!self.text.is_empty()).then(|| vec![Part::text(self.text.as_str())])?;
        Some(Arc::new(Content { role: self.role.unwrap_or(Role::User), parts }))
    }
}

/// A text, or a list of texts or of parts with a text.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(
            parts
                .iter()
                .filter_map(|part| part.as_str().or_else(|| part.get("text").and_then(Value::as_str)))
                .collect(),
        ),
        _ => None,
    }
}

/// The contents with the messages that a hook wrote in place of those that it read.
///
/// What is the same at the beginning and at the end stays untouched; in between, messages take the places of what was
/// said there as long as the roles agree, further ones are added, and what has no message any more loses its text.
fn rewritten(contents: &[Arc<Content>], messages: &[Message]) -> Vec<Arc<Content>> {
    let said: Vec<&Arc<Content>> = contents.iter().filter(|content| content.parts.iter().any(is_said)).collect();
    let same = |(message, content): &(&Message, &&Arc<Content>)| message.says(content);
    let head = messages.iter().zip(&said).take_while(same).count();
    let most = messages.len().min(said.len()).saturating_sub(head);
    let tail = messages.iter().rev().zip(said.iter().rev()).take(most).take_while(same).count();
    let (first, last) = (head, said.len() - tail);
    let mut middle = messages.get(head..messages.len() - tail).unwrap_or_default().iter().peekable();
    let mut out = Vec::with_capacity(contents.len() + messages.len());
    let mut index = 0;
    for content in contents {
        if !content.parts.iter().any(is_said) {
            out.push(content.clone());
            continue;
        }
        if index == last {
            out.extend(middle.by_ref().filter_map(Message::content));
        }
        if index < first || index >= last {
            out.push(content.clone());
        } else {
            let new = middle.next_if(|message| message.is_of(content));
            let text = new.map(|message| message.text.as_str());
            let mut changed = content.clone();
            put_text(&mut Arc::make_mut(&mut changed).parts, text);
            if !changed.parts.is_empty() {
                out.push(changed);
            }
        }
        index += 1;
    }
    out.extend(middle.filter_map(Message::content));
    out
}

/// Replaces what is said in `parts` by `text`, at the place of the first; everything else stays.
fn put_text(parts: &mut Vec<Part>, text: Option<&str>) {
    let at = parts.iter().position(is_said).unwrap_or(parts.len());
    // A signature belongs to the turn and not to the words: the provider wants it back.
    let signature =
        parts.iter().filter(|part| is_said(part)).find_map(|part| part.raw().get("thoughtSignature")).cloned();
    parts.retain(|part| !is_said(part));
    let text = text.filter(|text| !text.is_empty());
    if text.is_some() || signature.is_some() {
        let mut part = Part::text(text.unwrap_or_default());
        if let Some(signature) = signature {
            part.raw_mut().insert("thoughtSignature".to_owned(), signature);
        }
        parts.insert(at.min(parts.len()), part);
    }
}

/// A piece of an answer as hooks read it.
pub(super) fn response_json(response: &LlmResponse) -> Value {
    let texts: Vec<&str> = response
        .content
        .iter()
        .flat_map(|content| &content.parts)
        .filter(|part| is_said(part))
        .filter_map(Part::as_text)
        .collect();
    let mut candidate = json!({"content": {"role": "model", "parts": texts}, "index": 0});
    if let (Some(reason), Some(candidate)) = (&response.finish_reason, candidate.as_object_mut()) {
        candidate.insert("finishReason".to_owned(), json!(reason));
    }
    let mut object = Map::new();
    if !texts.is_empty() {
        object.insert("text".to_owned(), texts.concat().into());
    }
    object.insert("candidates".to_owned(), json!([candidate]));
    object.extend(response.usage.as_ref().map(|usage| ("usageMetadata".to_owned(), json!(usage))));
    Value::Object(object)
}

/// What a hook wrote as an answer.
struct Written {
    text: Option<String>,
    finish_reason: Option<FinishReason>,
}

impl Written {
    fn read(value: &Value) -> Self {
        let candidate = value.get("candidates").and_then(|candidates| candidates.get(0));
        let parts = candidate.and_then(|candidate| candidate.get("content")).and_then(|content| content.get("parts"));
        let text = parts.and_then(text_of).or_else(|| value.get("text").and_then(text_of));
        let reason = candidate.and_then(|candidate| candidate.get("finishReason")).and_then(Value::as_str);
        Self { text, finish_reason: reason.map(|reason| FinishReason(reason.to_owned())) }
    }
}

/// An answer in the model's place.
pub(super) fn synthetic(value: &Value) -> LlmResponse {
    let Written { text, finish_reason } = Written::read(value);
    LlmResponse {
        content: Some(Content::model(text.unwrap_or_default())),
        finish_reason: Some(finish_reason.unwrap_or_else(FinishReason::stop)),
        ..LlmResponse::default()
    }
}

/// The piece with what a hook wrote in place of its text.
pub(super) fn changed_response(response: &LlmResponse, value: &Value) -> LlmResponse {
    let Written { text, finish_reason } = Written::read(value);
    let mut changed = response.clone();
    if let Some(text) = text {
        let content = changed.content.get_or_insert_with(|| Content { role: Role::Model, parts: Vec::new() });
        put_text(&mut content.parts, Some(&text));
    }
    changed.finish_reason = finish_reason.or(changed.finish_reason);
    changed
}

#[cfg(test)]
mod tests;
