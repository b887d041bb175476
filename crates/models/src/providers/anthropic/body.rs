//! Bodies: a conversation in Gemini's shape as Anthropic's messages.
//!
//! The protocol is strict where Gemini is not: the user speaks first, roles alternate, each call has an id of its own,
//! and the message after a call begins with the results of all its calls. Missing and repeated ids are made up here,
//! alike in each request; calls that nobody answered are answered with a notice; results of unknown calls are told as
//! text. Two marks are set for the prompt cache: after the instructions, which covers the tools too, and at the end.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};

use convoke_adk::{Content, LlmRequest, Part, Role};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::generation::Generation;
use crate::providers::ANTHROPIC;
use crate::providers::extra::Extra;
use crate::providers::outcome::outcome;
use crate::providers::wire_names::WireNames;

/// What differs between servers.
#[derive(Debug)]
pub(super) struct Dialect {
    pub(super) caching: bool,
    pub(super) extra_body: Map<String, Value>,
}

/// What the body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Stream,
    Whole,
    Count,
}

/// The body of `messages` and `messages/count_tokens`.
pub(super) fn messages<'a>(request: &'a LlmRequest, dialect: &'a Dialect, shape: Shape) -> impl Serialize + use<'a> {
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
        let generation = Generation::of(request);
        let mut map = serializer.serialize_map(None)?;
        // What counts tokens refuses what generates.
        let (none, counts) = (Map::new(), *shape == Shape::Count);
        let ours =
            if counts { Extra::new(&none, &none) } else { Extra::new(&request.config.extra, &dialect.extra_body) };
        ours.entry(&mut map, "model", Some(&request.model))?;
        if !counts {
            ours.entry(&mut map, "max_tokens", Some(generation.max_tokens))?;
        }
        ours.entry(&mut map, "system", system(request, dialect.caching))?;
        let names = WireNames::of(request);
        let tools = tools(request, &names);
        if !tools.is_empty() {
            ours.entry(&mut map, "tools", Some(tools))?;
            ours.entry(&mut map, "tool_choice", tool_choice(request, generation.thinking.is_some()))?;
        }
        ours.entry(&mut map, "messages", Some(conversation(request, &names, dialect.caching)))?;
        ours.entry(&mut map, "thinking", generation.thinking)?;
        if !counts {
            ours.entry(&mut map, "output_config", generation.effort.map(|effort| json!({"effort": effort})))?;
            ours.entry(&mut map, "temperature", generation.temperature)?;
            ours.entry(&mut map, "top_p", generation.top_p)?;
            ours.entry(&mut map, "top_k", generation.top_k)?;
            ours.entry(&mut map, "stop_sequences", request.config.extra.get("stopSequences"))?;
            ours.entry(&mut map, "stream", (*shape == Shape::Stream).then_some(true))?;
        }
        ours.rest(&mut map)?;
        map.end()
    }
}

/// The instructions as one block, and what is asked of the answer's form.
fn system(request: &LlmRequest, caching: bool) -> Option<Vec<Block<'_>>> {
    let mut texts: Vec<Cow<'_, str>> =
        request.system_instruction.iter().map(|text| Cow::Borrowed(text.as_str())).collect();
    texts.extend(answer_form(&request.config.extra).map(Cow::Owned));
    let text = match texts.len() {
        0 | 1 => texts.pop()?,
        _ => Cow::Owned(texts.join("\n\n")),
    };
    if is_blank(&text) {
        return None;
    }
    let block = Block::new(What::Text(text));
    Some(vec![Block { mark: caching, ..block }])
}

/// Gemini's way to ask for JSON. Said in words: every model takes them, whatever its schema dialect.
fn answer_form(extra: &Map<String, Value>) -> Option<String> {
    let schema = extra.get("responseJsonSchema").or_else(|| extra.get("responseSchema"));
    match (extra.get("responseMimeType").and_then(Value::as_str), schema) {
        (_, Some(schema)) => Some(format!(
            "Answer with one JSON value and nothing else, no fence and no word around it. It must fit this JSON \
             schema: {schema}"
        )),
        (Some("application/json"), None) => {
            Some("Answer with one JSON value and nothing else, no fence and no word around it.".to_owned())
        }
        _ => None,
    }
}

fn tools<'a>(request: &'a LlmRequest, names: &WireNames) -> Vec<ToolOut<'a>> {
    // With none allowed they all stay, since earlier messages may name them; the choice forbids them.
    let allowed = |name: &String| match &request.allowed_tools {
        Some(allowed) if !allowed.is_empty() => allowed.contains(name),
        _ => true,
    };
    let offered = request.tools.values().filter(|tool| allowed(&tool.name));
    let tool = offered.map(|tool| ToolOut {
        name: names.wire(&tool.name),
        description: &tool.description,
        input_schema: schema(&tool.parameters),
    });
    tool.collect()
}

/// The protocol insists on an object's schema.
fn schema(parameters: &Value) -> Cow<'_, Value> {
    match parameters {
        Value::Object(map) if map.get("type").and_then(Value::as_str) == Some("object") => Cow::Borrowed(parameters),
        Value::Object(map) => {
            let mut map = map.clone();
            map.insert("type".to_owned(), "object".into());
            Cow::Owned(Value::Object(map))
        }
        _ => Cow::Owned(json!({"type": "object"})),
    }
}

fn tool_choice(request: &LlmRequest, thinks: bool) -> Option<Value> {
    if request.allowed_tools.as_ref().is_some_and(Vec::is_empty) {
        return Some(json!({"type": "none"}));
    }
    let config = request.config.extra.get("toolConfig").and_then(|config| config.get("functionCallingConfig"));
    match config.and_then(|config| config.get("mode")?.as_str()) {
        // Beside thoughts nothing can be forced.
        Some("ANY") if !thinks => Some(json!({"type": "any"})),
        Some("NONE") => Some(json!({"type": "none"})),
        _ => None,
    }
}

#[derive(Serialize)]
struct ToolOut<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// A block of a message.
struct Block<'a> {
    what: What<'a>,
    /// Whether the cache may keep everything up to here.
    mark: bool,
}

enum What<'a> {
    Text(Cow<'a, str>),
    /// As it came.
    Raw(&'a Map<String, Value>),
    Call {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        args: Option<&'a Value>,
        extra: Option<&'a Map<String, Value>>,
    },
    Result {
        id: Cow<'a, str>,
        text: Cow<'a, str>,
        is_error: bool,
    },
    Media(Value),
}

impl<'a> Block<'a> {
    fn new(what: What<'a>) -> Self {
        Self { what, mark: false }
    }
}

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.what {
            What::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            What::Raw(raw) => {
                for (key, value) in *raw {
                    map.serialize_entry(key, value)?;
                }
            }
            What::Call { id, name, args, extra } => {
                map.serialize_entry("type", "tool_use")?;
                map.serialize_entry("id", id)?;
                map.serialize_entry("name", name)?;
                match args {
                    Some(args) => map.serialize_entry("input", args)?,
                    None => map.serialize_entry("input", &json!({}))?,
                }
                for (key, value) in extra.iter().flat_map(|extra| extra.iter()) {
                    map.serialize_entry(key, value)?;
                }
            }
            What::Result { id, text, is_error } => {
                map.serialize_entry("type", "tool_result")?;
                map.serialize_entry("tool_use_id", id)?;
                map.serialize_entry("content", text)?;
                if *is_error {
                    map.serialize_entry("is_error", &true)?;
                }
            }
            What::Media(value) => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    map.serialize_entry(key, value)?;
                }
            }
        }
        if self.mark {
            map.serialize_entry("cache_control", &json!({"type": "ephemeral"}))?;
        }
        map.end()
    }
}

fn conversation<'a>(request: &'a LlmRequest, names: &'a WireNames, caching: bool) -> Vec<Message<'a>> {
    let mut out = Conversation::new(names);
    for (index, content) in request.contents.iter().enumerate() {
        match content.role {
            Role::Model => out.model(index, content),
            Role::User => out.user(content),
        }
    }
    out.flush();
    if let Some(last) = out.list.last_mut().and_then(|message| message.content.last_mut()) {
        // A thought can't be marked.
        last.mark = caching && !matches!(last.what, What::Raw(_));
    }
    out.list
}

/// The messages so far, and the user's next one.
struct Conversation<'a> {
    names: &'a WireNames,
    list: Vec<Message<'a>>,
    /// Ids that were given out; they must not repeat.
    ids: HashSet<String>,
    /// The calls of the last message that have no result yet.
    open: VecDeque<Open<'a>>,
    results: Vec<Block<'a>>,
    told: Vec<Block<'a>>,
}

struct Open<'a> {
    name: &'a str,
    own_id: Option<&'a str>,
    id: Cow<'a, str>,
}

impl<'a> Conversation<'a> {
    fn new(names: &'a WireNames) -> Self {
        let (list, results, told) = (Vec::new(), Vec::new(), Vec::new());
        Self { names, list, ids: HashSet::new(), open: VecDeque::new(), results, told }
    }

    fn model(&mut self, index: usize, content: &'a Content) {
        self.flush();
        let mut blocks = Vec::new();
        for part in &content.parts {
            let kept = part.raw().get(ANTHROPIC).and_then(Value::as_object);
            if let Some(call) = part.raw().get("functionCall") {
                let Some(name) = call.get("name").and_then(Value::as_str) else { continue };
                let own_id = call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
                let id = self.id(own_id, index);
                self.open.push_back(Open { name, own_id, id: id.clone() });
                let args = call.get("args").filter(|args| args.is_object());
                blocks.push(Block::new(What::Call { id, name: self.names.wire(name), args, extra: kept }));
            } else if part.is_thought() {
                blocks.extend(kept.map(|raw| Block::new(What::Raw(raw))));
            } else if let Some(text) = part.as_text().filter(|text| !is_blank(text)) {
                blocks.push(Block::new(What::Text(Cow::Borrowed(text))));
            }
        }
        if blocks.is_empty() {
            return;
        }
        match self.list.last_mut() {
            Some(last) if last.role == "assistant" => last.content.extend(blocks),
            Some(_) => self.list.push(Message { role: "assistant", content: blocks }),
            None => {
                let text = Cow::Borrowed("[The beginning of the conversation is not here.]");
                self.list.push(Message { role: "user", content: vec![Block::new(What::Text(text))] });
                self.list.push(Message { role: "assistant", content: blocks });
            }
        }
    }

    /// An id that the protocol takes and that was not given out before.
    fn id(&mut self, own: Option<&'a str>, index: usize) -> Cow<'a, str> {
        let id = own.map(plain).filter(|id| !self.ids.contains(id.as_ref()));
        let id = id.unwrap_or_else(|| Cow::Owned(format!("call_{index}_{}", self.open.len())));
        self.ids.insert(id.clone().into_owned());
        id
    }

    fn user(&mut self, content: &'a Content) {
        for part in &content.parts {
            let response = part.raw().get("functionResponse");
            match response.and_then(|response| Some((response.get("name")?.as_str()?, response))) {
                Some((name, response)) => self.result(name, response),
                None => self.told.extend(said(part).map(Block::new)),
            }
        }
    }

    fn result(&mut self, name: &str, response: &'a Value) {
        let error = response.get("response").and_then(|response| response.get("error"));
        let text = match error.and_then(Value::as_str) {
            Some(message) => Cow::Borrowed(message),
            None => outcome(response),
        };
        let id = response.get("id").and_then(Value::as_str);
        let by_id = self.open.iter().position(|open| open.own_id.is_some() && open.own_id == id);
        let by_name = || self.open.iter().position(|open| open.name == name);
        let what = match by_id.or_else(by_name).and_then(|place| self.open.remove(place)) {
            Some(open) => What::Result { id: open.id, text, is_error: error.is_some() },
            None => What::Text(Cow::Owned(format!("Result of {name}: {text}"))),
        };
        match what {
            What::Result { .. } => self.results.push(Block::new(what)),
            _ => self.told.push(Block::new(what)),
        }
    }

    /// Ends the user's message: results first, then what was said.
    fn flush(&mut self) {
        while let Some(open) = self.open.pop_front() {
            let text = Cow::Borrowed("The call was interrupted and has no result.");
            self.results.push(Block::new(What::Result { id: open.id, text, is_error: true }));
        }
        let mut content = std::mem::take(&mut self.results);
        content.append(&mut self.told);
        if !content.is_empty() {
            self.list.push(Message { role: "user", content });
        }
    }
}

fn said(part: &Part) -> Option<What<'_>> {
    if part.is_thought() {
        return None;
    }
    if let Some(text) = part.as_text() {
        return (!is_blank(text)).then_some(What::Text(Cow::Borrowed(text)));
    }
    let (media, field) = match (part.raw().get("inlineData"), part.raw().get("fileData")) {
        (Some(media), _) => (media, "data"),
        (None, Some(media)) => (media, "fileUri"),
        (None, None) => return None,
    };
    let mime = media.get("mimeType").and_then(Value::as_str).unwrap_or("application/octet-stream");
    let data = media.get(field).and_then(Value::as_str)?;
    let source = if field == "data" {
        json!({"type": "base64", "media_type": mime, "data": data})
    } else {
        json!({"type": "url", "url": data})
    };
    Some(match mime {
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => {
            What::Media(json!({"type": "image", "source": source}))
        }
        "application/pdf" => What::Media(json!({"type": "document", "source": source})),
        _ => What::Text(Cow::Owned(format!("[An attachment of type {mime} that this model can't be shown.]"))),
    })
}

/// The API refuses text without a visible character.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Letters, digits, `_` and `-`, the most that ids may have.
fn plain(text: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.chars().all(fits) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}

#[cfg(test)]
mod tests;
