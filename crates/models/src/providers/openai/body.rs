//! Bodies: a conversation in Gemini's shape as chat messages.
//!
//! The protocol is strict where Gemini is not: every tool message needs the id of a call in the assistant's message
//! right before, and every call needs its tool message. Missing ids are made up here, alike in each request; calls
//! that nobody answered are answered with a notice; results of unknown calls are told as text of the user.

use std::borrow::Cow;
use std::collections::VecDeque;

use convoke_adk::{Content, FunctionDeclaration, LlmRequest, Part, Role, ThinkingLevel};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::providers::OPENAI;
use crate::providers::extra::Extra;
use crate::providers::outcome::outcome;
use crate::providers::wire_names::WireNames;

/// What differs between servers.
#[derive(Debug, Default)]
pub(super) struct Dialect {
    pub(super) include_usage: bool,
    /// Whether the answer's bound is `max_completion_tokens` rather than `max_tokens`.
    pub(super) max_completion_tokens: bool,
    pub(super) extra_body: Map<String, Value>,
}

/// How the answer is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Stream,
    Whole,
}

/// The body of `chat/completions`.
pub(super) fn chat<'a>(request: &'a LlmRequest, dialect: &'a Dialect, shape: Shape) -> impl Serialize + use<'a> {
    Body { request, dialect, shape }
}

struct Body<'a> {
    request: &'a LlmRequest,
    dialect: &'a Dialect,
    shape: Shape,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, dialect, shape } = self;
        let config = &request.config;
        let ours = Extra::new(&config.extra, &dialect.extra_body);
        let mut map = serializer.serialize_map(None)?;
        ours.entry(&mut map, "model", Some(&request.model))?;
        let names = WireNames::of(request);
        ours.entry(&mut map, "messages", Some(messages(request, &names)))?;
        let tools = tools(request, &names);
        if !tools.is_empty() {
            ours.entry(&mut map, "tools", Some(tools))?;
            ours.entry(&mut map, "tool_choice", Some("auto"))?;
        }
        ours.entry(&mut map, "temperature", config.temperature)?;
        ours.entry(&mut map, "top_p", config.top_p)?;
        let bound = if dialect.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        ours.entry(&mut map, bound, config.max_output_tokens)?;
        // Only where somebody chose a level: servers without the parameter refuse it.
        let effort = config.thinking.map(|level| if level == ThinkingLevel::Off { "minimal" } else { level.name() });
        ours.entry(&mut map, "reasoning_effort", effort)?;
        ours.entry(&mut map, "response_format", response_format(&config.extra))?;
        ours.entry(&mut map, "stop", config.extra.get("stopSequences"))?;
        if *shape == Shape::Stream {
            ours.entry(&mut map, "stream", Some(true))?;
            let usage = dialect.include_usage.then(|| json!({"include_usage": true}));
            ours.entry(&mut map, "stream_options", usage)?;
        }
        ours.rest(&mut map)?;
        map.end()
    }
}

/// Gemini's way to ask for JSON.
fn response_format(extra: &Map<String, Value>) -> Option<Value> {
    let schema = extra.get("responseJsonSchema").or_else(|| extra.get("responseSchema"));
    match (extra.get("responseMimeType").and_then(Value::as_str), schema) {
        (_, Some(schema)) => Some(json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}})),
        (Some("application/json"), None) => Some(json!({"type": "json_object"})),
        _ => None,
    }
}

fn tools<'a>(request: &'a LlmRequest, names: &WireNames) -> Vec<ToolOut<'a>> {
    let allowed = |name: &String| request.allowed_tools.as_ref().is_none_or(|allowed| allowed.contains(name));
    let offered = request.tools.values().filter(|tool| allowed(&tool.name));
    let function = |tool: &'a FunctionDeclaration| FunctionOut {
        name: names.wire(&tool.name),
        description: &tool.description,
        parameters: &tool.parameters,
    };
    offered.map(|tool| ToolOut { r#type: "function", function: function(tool) }).collect()
}

#[derive(Serialize)]
struct ToolOut<'a> {
    r#type: &'static str,
    function: FunctionOut<'a>,
}

#[derive(Serialize)]
struct FunctionOut<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<Said<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Cow<'a, str>>,
    /// What a gateway added to the message.
    #[serde(flatten)]
    extra: Option<&'a Map<String, Value>>,
}

impl<'a> Message<'a> {
    fn new(role: &'static str, content: Said<'a>) -> Self {
        Self { role, content: Some(content), tool_calls: Vec::new(), tool_call_id: None, extra: None }
    }
}

enum Said<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

impl Serialize for Said<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Parts(parts) => parts.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct CallOut<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: CalledOut<'a>,
    /// What a gateway added to the call.
    #[serde(flatten)]
    extra: Option<&'a Map<String, Value>>,
}

#[derive(Serialize)]
struct CalledOut<'a> {
    name: Cow<'a, str>,
    #[serde(serialize_with = "as_text")]
    arguments: Option<&'a Value>,
}

/// Arguments travel as JSON inside a string.
fn as_text<S: Serializer>(args: &Option<&Value>, serializer: S) -> Result<S::Ok, S::Error> {
    match args {
        Some(args) => serializer.collect_str(args),
        None => serializer.serialize_str("{}"),
    }
}

fn messages<'a>(request: &'a LlmRequest, names: &'a WireNames) -> Vec<Message<'a>> {
    let mut out = Messages { names, list: Vec::with_capacity(request.contents.len() + 1), open: VecDeque::new() };
    match request.system_instruction.as_slice() {
        [] => {}
        [one] => out.list.push(Message::new("system", Said::Text(Cow::Borrowed(one)))),
        more => out.list.push(Message::new("system", Said::Text(Cow::Owned(more.join("\n\n"))))),
    }
    for (index, content) in request.contents.iter().enumerate() {
        match content.role {
            Role::Model => out.model(index, content),
            Role::User => out.user(content),
        }
    }
    out.close();
    out.list
}

/// The messages so far, and the calls of the last assistant's message that have no tool message yet.
struct Messages<'a> {
    names: &'a WireNames,
    list: Vec<Message<'a>>,
    open: VecDeque<(&'a str, Cow<'a, str>)>,
}

impl<'a> Messages<'a> {
    fn model(&mut self, index: usize, content: &'a Content) {
        self.close();
        let mut calls = Vec::new();
        let kept = |part: &'a Part| part.raw().get(OPENAI).and_then(Value::as_object);
        for part in &content.parts {
            let Some(raw) = part.raw().get("functionCall") else { continue };
            let Some(name) = raw.get("name").and_then(Value::as_str) else { continue };
            let id = match raw.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()) {
                Some(id) => Cow::Borrowed(id),
                None => Cow::Owned(format!("call_{index}_{}", calls.len())),
            };
            self.open.push_back((name, id.clone()));
            let arguments = raw.get("args").filter(|args| !args.is_null());
            let function = CalledOut { name: self.names.wire(name), arguments };
            calls.push(CallOut { id, r#type: "function", function, extra: kept(part) });
        }
        let text = joined(content.parts.iter().filter(|part| !part.is_thought()).filter_map(Part::as_text), "");
        if calls.is_empty() && text.is_none() {
            return;
        }
        self.list.push(Message {
            role: "assistant",
            content: text.map(Said::Text),
            tool_calls: calls,
            tool_call_id: None,
            extra: content.parts.iter().filter(|part| part.is_thought()).find_map(kept),
        });
    }

    fn user(&mut self, content: &'a Content) {
        let mut told = Vec::new();
        for part in &content.parts {
            let response = part.raw().get("functionResponse");
            match response.and_then(|response| Some((response.get("name")?.as_str()?, response))) {
                Some((name, response)) => match self.answered(name, response.get("id").and_then(Value::as_str)) {
                    Some(id) => self.tool(id, outcome(response)),
                    None => told.push(Piece::Text(Cow::Owned(format!("Result of {name}: {}", outcome(response))))),
                },
                None => told.extend(piece(part)),
            }
        }
        if told.is_empty() {
            return;
        }
        self.close();
        let plain = told.iter().all(|piece| matches!(piece, Piece::Text(_)));
        let said = if plain {
            let mut texts: Vec<_> = told.into_iter().filter_map(Piece::into_text).collect();
            match texts.pop() {
                Some(only) if texts.is_empty() => Said::Text(only),
                Some(last) => {
                    texts.push(last);
                    Said::Text(Cow::Owned(texts.join("\n\n")))
                }
                None => return,
            }
        } else {
            Said::Parts(told.into_iter().map(Piece::into_value).collect())
        };
        self.list.push(Message::new("user", said));
    }

    /// The id of the open call that a response belongs to: by id, else the first of that name.
    fn answered(&mut self, name: &str, id: Option<&str>) -> Option<Cow<'a, str>> {
        let by_id = self.open.iter().position(|(_, open)| Some(open.as_ref()) == id);
        let by_name = || self.open.iter().position(|(open, _)| *open == name);
        let place = by_id.or_else(by_name)?;
        self.open.remove(place).map(|(_, id)| id)
    }

    fn tool(&mut self, id: Cow<'a, str>, text: Cow<'a, str>) {
        self.list.push(Message { tool_call_id: Some(id), ..Message::new("tool", Said::Text(text)) });
    }

    /// Answers the calls that nobody answered.
    fn close(&mut self) {
        while let Some((_, id)) = self.open.pop_front() {
            self.tool(id, Cow::Borrowed("The call was interrupted and has no result."));
        }
    }
}

/// A piece of what the user says.
enum Piece<'a> {
    Text(Cow<'a, str>),
    Media(Value),
}

impl<'a> Piece<'a> {
    fn into_text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) => None,
        }
    }

    fn into_value(self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Media(value) => value,
        }
    }
}

fn piece(part: &Part) -> Option<Piece<'_>> {
    if part.is_thought() {
        return None;
    }
    if let Some(text) = part.as_text() {
        return (!text.is_empty()).then_some(Piece::Text(Cow::Borrowed(text)));
    }
    let (media, field) = match (part.raw().get("inlineData"), part.raw().get("fileData")) {
        (Some(media), _) => (media, "data"),
        (None, Some(media)) => (media, "fileUri"),
        (None, None) => return None,
    };
    let mime = media.get("mimeType").and_then(Value::as_str).unwrap_or("application/octet-stream");
    let data = media.get(field).and_then(Value::as_str)?;
    let inline = field == "data";
    Some(match mime {
        _ if mime.starts_with("image/") => {
            let url = if inline { format!("data:{mime};base64,{data}") } else { data.to_owned() };
            Piece::Media(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        "audio/wav" | "audio/x-wav" if inline => {
            Piece::Media(json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}))
        }
        "audio/mpeg" | "audio/mp3" if inline => {
            Piece::Media(json!({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}}))
        }
        "application/pdf" if inline => {
            let data = format!("data:{mime};base64,{data}");
            Piece::Media(json!({"type": "file", "file": {"filename": "attachment.pdf", "file_data": data}}))
        }
        _ => Piece::Text(Cow::Owned(format!("[An attachment of type {mime} that this model can't be shown.]"))),
    })
}

/// All texts as one; borrowed if there is only one.
fn joined<'a>(texts: impl Iterator<Item = &'a str>, between: &str) -> Option<Cow<'a, str>> {
    let mut whole: Option<Cow<'a, str>> = None;
    for text in texts.filter(|text| !text.is_empty()) {
        match &mut whole {
            None => whole = Some(Cow::Borrowed(text)),
            Some(whole) => {
                let whole = whole.to_mut();
                whole.push_str(between);
                whole.push_str(text);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests;
