//! Bodies: a request as the Gemini API reads it, written in one pass.
//!
//! Parts are written from what was read, borrowed from the history; nothing of it is copied into a tree first. On the
//! way out: ids that the kernel made up are left away, unsigned thoughts and empty texts too, and the first call of
//! each model turn in the current loop gets a placeholder where Gemini 3 insists on a signature and the conversation
//! came from elsewhere.

use convoke_adk::{Content, GenerateConfig, LlmRequest, Part, Role};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::path;
use crate::catalog;
use crate::generator::EmbedRequest;
use crate::providers::FOREIGN;

/// Marks ids that the kernel gave to calls that came without one.
const KERNEL_ID: &str = "adk-";
/// What Gemini 3 takes in place of a signature that it never gave.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";
/// Keys of [`GenerateConfig::extra`] that belong beside `contents`; all others go into `generationConfig`.
const TOP_LEVEL: [&str; 4] = ["safetySettings", "cachedContent", "labels", "serviceTier"];

/// The body of `generateContent` and `streamGenerateContent`.
pub(super) fn generate(request: &LlmRequest) -> impl Serialize {
    Body { model: None, request }
}

/// The body of `countTokens`.
pub(super) fn count(request: &LlmRequest) -> impl Serialize {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    enum Count<'a> {
        Contents(Contents<'a>),
        GenerateContentRequest(Body<'a>),
    }
    if request.system_instruction.is_empty() && request.tools.is_empty() {
        return Count::Contents(Contents(request));
    }
    Count::GenerateContentRequest(Body { model: Some(path::name(&request.model)), request })
}

/// The body of `countTokens` as Vertex AI takes it: nothing that only generates.
pub(super) fn count_flat(request: &LlmRequest) -> impl Serialize {
    Counted(request)
}

struct Counted<'a>(&'a LlmRequest);

impl Serialize for Counted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("contents", &Contents(self.0))?;
        system(self.0, &mut body)?;
        let tools = Tools(self.0);
        if !tools.is_empty() {
            body.serialize_entry("tools", &tools)?;
        }
        body.end()
    }
}

/// The body of `batchEmbedContents`.
pub(super) fn embed(request: &EmbedRequest) -> impl Serialize {
    let model = path::name(&request.model);
    let one = |text: &String| json!({"model": model, "content": {"parts": [{"text": text}]}});
    json!({"requests": request.texts.iter().map(one).collect::<Vec<_>>()})
}

/// A request as upstream prints it: `{model, contents, config}`.
pub(crate) fn request_as_json(request: &LlmRequest) -> String {
    #[derive(Serialize)]
    struct Printed<'a> {
        model: &'a str,
        contents: Contents<'a>,
        config: Config<'a>,
    }
    let printed = Printed { model: &request.model, contents: Contents(request), config: Config(request) };
    serde_json::to_string(&printed).unwrap_or_default()
}

struct Body<'a> {
    model: Option<String>,
    request: &'a LlmRequest,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.request;
        let mut body = serializer.serialize_map(None)?;
        if let Some(model) = &self.model {
            body.serialize_entry("model", model)?;
        }
        body.serialize_entry("contents", &Contents(request))?;
        around(request, &mut body)?;
        let generation = Generation::of(request);
        if !generation.is_empty() {
            body.serialize_entry("generationConfig", &generation)?;
        }
        body.end()
    }
}

/// All but model and contents, in one object.
struct Config<'a>(&'a LlmRequest);

impl Serialize for Config<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut config = serializer.serialize_map(None)?;
        around(self.0, &mut config)?;
        Generation::of(self.0).write(&mut config)?;
        config.end()
    }
}

fn system<M: SerializeMap>(request: &LlmRequest, body: &mut M) -> Result<(), M::Error> {
    if request.system_instruction.is_empty() {
        return Ok(());
    }
    let text = request.system_instruction.join("\n\n");
    body.serialize_entry("systemInstruction", &json!({"parts": [{"text": text}]}))
}

/// Writes instructions, tools and the like.
fn around<M: SerializeMap>(request: &LlmRequest, body: &mut M) -> Result<(), M::Error> {
    system(request, body)?;
    let tools = Tools(request);
    if !tools.is_empty() {
        body.serialize_entry("tools", &tools)?;
    }
    match &request.allowed_tools {
        // `VALIDATED` leaves the model free to answer in words; `ANY` would force a call.
        Some(allowed) if !allowed.is_empty() && !request.tools.is_empty() => {
            let calling = json!({"mode": "VALIDATED", "allowedFunctionNames": allowed});
            body.serialize_entry("toolConfig", &json!({"functionCallingConfig": calling}))?;
        }
        Some(_) if !request.tools.is_empty() => {
            body.serialize_entry("toolConfig", &json!({"functionCallingConfig": {"mode": "NONE"}}))?;
        }
        _ => {
            if let Some(config) = request.config.extra.get("toolConfig") {
                body.serialize_entry("toolConfig", config)?;
            }
        }
    }
    for key in TOP_LEVEL {
        if let Some(value) = request.config.extra.get(key) {
            body.serialize_entry(key, value)?;
        }
    }
    Ok(())
}

/// One entry with all declarations, then the provider's own tools from `extra.tools`, such as `{googleSearch: {}}`.
struct Tools<'a>(&'a LlmRequest);

impl Tools<'_> {
    fn own(&self) -> &[Value] {
        self.0.config.extra.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn is_empty(&self) -> bool {
        self.0.tools.is_empty() && self.own().is_empty()
    }
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Declarations<'a> {
            function_declarations: Vec<Declaration<'a>>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Declaration<'a> {
            name: &'a str,
            description: &'a str,
            parameters_json_schema: &'a Value,
        }
        let mut list = serializer.serialize_seq(None)?;
        if !self.0.tools.is_empty() {
            let declarations = self.0.tools.values().map(|tool| Declaration {
                name: &tool.name,
                description: &tool.description,
                parameters_json_schema: &tool.parameters,
            });
            list.serialize_element(&Declarations { function_declarations: declarations.collect() })?;
        }
        for tool in self.own() {
            list.serialize_element(tool)?;
        }
        list.end()
    }
}

/// The generation parameters.
struct Generation<'a> {
    config: &'a GenerateConfig,
    thinking: Option<Map<String, Value>>,
}

impl<'a> Generation<'a> {
    fn of(request: &'a LlmRequest) -> Self {
        let config = &request.config;
        let thinking = catalog::has_thoughts(&request.model).then(|| {
            let mut thinking =
                config.extra.get("thinkingConfig").and_then(Value::as_object).cloned().unwrap_or_default();
            if let Some(include) = config.include_thoughts {
                thinking.entry("includeThoughts").or_insert(Value::Bool(include));
            }
            thinking
        });
        Self { config, thinking: thinking.filter(|thinking| !thinking.is_empty()) }
    }

    fn extra(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let elsewhere =
            |key: &str| TOP_LEVEL.contains(&key) || matches!(key, "tools" | "toolConfig" | "thinkingConfig");
        self.config.extra.iter().filter(move |(key, _)| !elsewhere(key))
    }

    fn is_empty(&self) -> bool {
        let GenerateConfig { temperature, top_p, top_k, max_output_tokens, .. } = self.config;
        self.thinking.is_none()
            && temperature.is_none()
            && top_p.is_none()
            && top_k.is_none()
            && max_output_tokens.is_none()
            && self.extra().next().is_none()
    }

    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let GenerateConfig { temperature, top_p, top_k, max_output_tokens, extra, .. } = self.config;
        // A vendor parameter of the same name wins.
        let open = |key: &str| !extra.contains_key(key);
        for (key, value) in [("temperature", temperature), ("topP", top_p)] {
            if let Some(value) = value.filter(|_| open(key)) {
                map.serialize_entry(key, &value)?;
            }
        }
        for (key, value) in [("topK", top_k), ("maxOutputTokens", max_output_tokens)] {
            if let Some(value) = value.filter(|_| open(key)) {
                map.serialize_entry(key, &value)?;
            }
        }
        if let Some(thinking) = &self.thinking {
            map.serialize_entry("thinkingConfig", thinking)?;
        }
        for (key, value) in self.extra() {
            map.serialize_entry(key, value)?;
        }
        Ok(())
    }
}

impl Serialize for Generation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write(&mut map)?;
        map.end()
    }
}

/// The conversation.
struct Contents<'a>(&'a LlmRequest);

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let contents = &self.0.contents;
        let signs = catalog::is_gemini_3(&self.0.model);
        let loop_start = contents.iter().rposition(|content| is_prompt(content)).unwrap_or(0);
        let mut list = serializer.serialize_seq(None)?;
        for (index, content) in contents.iter().enumerate() {
            // The API refuses a content without parts.
            if !content.parts.iter().any(is_sent) {
                continue;
            }
            let unsigned = (signs && index >= loop_start && content.role == Role::Model)
                .then(|| content.parts.iter().position(|part| part.raw().contains_key("functionCall")))
                .flatten();
            list.serialize_element(&ContentOut { content, placeholder_at: unsigned })?;
        }
        list.end()
    }
}

/// Whether the user speaks, which is where a loop of calls begins.
fn is_prompt(content: &Content) -> bool {
    content.role == Role::User && !content.parts.iter().any(|part| part.raw().contains_key("functionResponse"))
}

fn is_sent(part: &Part) -> bool {
    if part.thought_signature().is_some() {
        return true;
    }
    let is_empty_text = || part.raw().len() == 1 && part.as_text().is_some_and(str::is_empty);
    !part.is_thought() && !part.raw().is_empty() && !is_empty_text()
}

struct ContentOut<'a> {
    content: &'a Content,
    /// The part that needs a signature, if it has none.
    placeholder_at: Option<usize>,
}

impl Serialize for ContentOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("role", &self.content.role)?;
        map.serialize_entry("parts", &PartsOut(self))?;
        map.end()
    }
}

struct PartsOut<'a>(&'a ContentOut<'a>);

impl Serialize for PartsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for (index, part) in self.0.content.parts.iter().enumerate().filter(|(_, part)| is_sent(part)) {
            let placeholder = self.0.placeholder_at == Some(index) && part.thought_signature().is_none();
            list.serialize_element(&PartOut { part, placeholder })?;
        }
        list.end()
    }
}

struct PartOut<'a> {
    part: &'a Part,
    placeholder: bool,
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        // The API refuses fields that it does not know.
        for (key, value) in self.part.raw().iter().filter(|(key, _)| !FOREIGN.contains(&key.as_str())) {
            match value {
                Value::Object(inner) if matches!(key.as_str(), "functionCall" | "functionResponse") => {
                    map.serialize_entry(key, &WithoutKernelId(inner))?;
                }
                value => map.serialize_entry(key, value)?,
            }
        }
        if self.placeholder {
            map.serialize_entry("thoughtSignature", NO_SIGNATURE)?;
        }
        map.end()
    }
}

/// A call or its response, without an id that the provider never gave.
struct WithoutKernelId<'a>(&'a Map<String, Value>);

impl Serialize for WithoutKernelId<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ours = |value: &Value| value.as_str().is_some_and(|id| id.starts_with(KERNEL_ID));
        serializer.collect_map(self.0.iter().filter(|(key, value)| key.as_str() != "id" || !ours(value)))
    }
}

#[cfg(test)]
mod tests;
