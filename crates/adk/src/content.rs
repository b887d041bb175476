//! What is said: contents of parts, kept as the provider wrote them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Who a [`Content`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user, and the results of tools.
    User,
    /// The model.
    Model,
}

/// One turn's worth of parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    #[serde(default)]
    pub parts: Vec<Part>,
}

impl Content {
    /// Text of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![Part::text(text)] }
    }

    /// Text of the model.
    pub fn model(text: impl Into<String>) -> Self {
        Self { role: Role::Model, parts: vec![Part::text(text)] }
    }

    /// All plain text, joined; thoughts are left out.
    #[must_use]
    pub fn joined_text(&self) -> String {
        self.parts.iter().filter(|p| !p.is_thought()).filter_map(Part::as_text).collect()
    }

    /// The function calls, in order.
    #[must_use]
    pub fn function_calls(&self) -> Vec<FunctionCall> {
        self.parts.iter().filter_map(Part::function_call).collect()
    }

    /// The function responses, in order.
    #[must_use]
    pub fn function_responses(&self) -> Vec<FunctionResponse> {
        self.parts.iter().filter_map(Part::function_response).collect()
    }
}

/// One part in the shape of the Gemini API, with every field that came with it.
///
/// Fields that have no view here (signatures, whatever a provider adds next) go back to the provider unchanged:
/// a part is serialised from what was read, never from a typed copy.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Part {
    raw: Map<String, Value>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Value::Object(self.raw.clone()).to_string())
    }
}

impl From<Map<String, Value>> for Part {
    fn from(raw: Map<String, Value>) -> Self {
        Self { raw }
    }
}

impl Part {
    fn single(key: &str, value: Value) -> Self {
        Self { raw: Map::from_iter([(key.to_owned(), value)]) }
    }

    /// `{text}`.
    pub fn text(text: impl Into<String>) -> Self {
        Self::single("text", Value::String(text.into()))
    }

    /// `{text, thought: true}`.
    pub fn thought(text: impl Into<String>) -> Self {
        let mut part = Self::text(text);
        part.raw.insert("thought".to_owned(), Value::Bool(true));
        part
    }

    /// `{functionCall: {id?, name, args}}`.
    #[must_use]
    pub fn call(call: &FunctionCall) -> Self {
        Self::single("functionCall", serde_json::to_value(call).unwrap_or(Value::Null))
    }

    /// `{functionResponse: {id?, name, response}}`.
    #[must_use]
    pub fn response(response: &FunctionResponse) -> Self {
        Self::single("functionResponse", serde_json::to_value(response).unwrap_or(Value::Null))
    }

    /// `{inlineData: {mimeType, data}}`; `data` is base64.
    pub fn inline_data(mime_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::single("inlineData", json!({"mimeType": mime_type.into(), "data": data.into()}))
    }

    /// The part as it came.
    #[must_use]
    pub fn raw(&self) -> &Map<String, Value> {
        &self.raw
    }

    /// The part as it came, to be changed.
    pub fn raw_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.raw
    }

    /// The text, of a thought too.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        self.raw.get("text").and_then(Value::as_str)
    }

    /// Whether the text is a thought.
    #[must_use]
    pub fn is_thought(&self) -> bool {
        self.raw.get("thought").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The provider's signature of what came before.
    #[must_use]
    pub fn thought_signature(&self) -> Option<&str> {
        self.raw.get("thoughtSignature").and_then(Value::as_str)
    }

    /// The function call, if it is one with a name.
    #[must_use]
    pub fn function_call(&self) -> Option<FunctionCall> {
        FunctionCall::deserialize(self.raw.get("functionCall")?).ok()
    }

    /// The function response, if it is one with a name.
    #[must_use]
    pub fn function_response(&self) -> Option<FunctionResponse> {
        FunctionResponse::deserialize(self.raw.get("functionResponse")?).ok()
    }

    /// The id of a function call, without copying its arguments; the inner `None` is a call without an id.
    #[must_use]
    pub fn call_id(&self) -> Option<Option<&str>> {
        self.id_under("functionCall")
    }

    /// The id of a function response, without copying it.
    #[must_use]
    pub fn response_id(&self) -> Option<Option<&str>> {
        self.id_under("functionResponse")
    }

    fn id_under(&self, key: &str) -> Option<Option<&str>> {
        let inner = self.raw.get(key)?.as_object()?;
        inner.get("name").and_then(Value::as_str)?;
        Some(inner.get("id").and_then(Value::as_str))
    }

    /// Whether this holds text only and may be joined with a neighbour of the same kind.
    #[must_use]
    pub(crate) fn is_plain_text(&self) -> bool {
        self.raw.contains_key("text") && self.raw.keys().all(|key| key == "text" || key == "thought")
    }

    /// A copy whose maps have no room to grow: it stays in the history, and what was parsed has up to three times as much.
    pub(crate) fn compact(&self) -> Self {
        Self { raw: compact(&self.raw) }
    }

    /// Appends text to a text part.
    pub(crate) fn append_text(&mut self, more: &str) {
        if let Some(Value::String(text)) = self.raw.get_mut("text") {
            text.push_str(more);
        }
    }

    /// Sets the id of a function call that came without one.
    pub(crate) fn set_call_id(&mut self, id: &str) {
        if let Some(Value::Object(call)) = self.raw.get_mut("functionCall") {
            call.insert("id".to_owned(), Value::String(id.to_owned()));
        }
    }
}

/// What the model wants done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Correlates the response; the kernel fills it where the provider gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its arguments, an object.
    #[serde(default = "empty_object")]
    pub args: Value,
}

/// What the model is told of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionResponse {
    /// The call's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// `{output: …}` or `{error: …}`.
    #[serde(default = "empty_object")]
    pub response: Value,
}

impl FunctionResponse {
    /// `{output}` for `call`.
    pub fn output(call: &FunctionCall, output: impl Into<Value>) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), response: json!({"output": output.into()}) }
    }

    /// `{error}` for `call`.
    pub fn error(call: &FunctionCall, message: impl Into<String>) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), response: json!({"error": message.into()}) }
    }

    /// The error's text, if this is one.
    #[must_use]
    pub fn error_message(&self) -> Option<&str> {
        self.response.get("error").and_then(Value::as_str)
    }
}

fn compact(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().map(|(name, value)| (name.clone(), compact_value(value))).collect()
}

/// Goes as deep as the parser did, which has a limit.
fn compact_value(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(compact(map)),
        Value::Array(list) => list.iter().map(compact_value).collect(),
        other => other.clone(),
    }
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive() {
        let text = r#"{"functionCall":{"name":"f","args":{"a":1},"x":2},"thoughtSignature":"s","brandNew":[1]}"#;
        let part: Part = serde_json::from_str(text).unwrap();
        assert_eq!(part.function_call().unwrap().name, "f");
        assert_eq!(part.thought_signature(), Some("s"));
        assert_eq!(serde_json::to_string(&part).unwrap(), text);
        assert_eq!(serde_json::to_string(&part.compact()).unwrap(), text);
    }

    #[test]
    fn a_call_without_a_name_is_no_call() {
        let part: Part = serde_json::from_value(json!({"functionCall": {"args": {}}})).unwrap();
        assert_eq!(part.function_call(), None);
    }
}
