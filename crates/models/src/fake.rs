//! Fake responses: what if a file is the model?
//!
//! JSON Lines in upstream's format, `{"method", "response"}`, where a `generateContentStream` response is the array of
//! the stream's chunks. [`FakeScript`] is a file parsed once; each session has a [`FakeGenerator`] with a cursor of
//! its own. Consumption and messages are upstream's: strict mode takes line after line and loses a line whose method
//! differs; non-strict mode takes the first line left with the wanted method. Source: upstream's
//! `--fake-responses`, runtime specification §5.3.
//!
//! Keys of our own, which upstream ignores:
//!
//! * `"match": {"lastContains": "text", "callContains": "text"}` – non-strict only, either or both: the line fits only
//!   if the JSON of the request's last content, and that of the content before it (the calls that the last one
//!   answers), contain the texts. A line without it always fits.
//! * `"status": 429`, `"error": {…}|"text"`, `"headers": {"Retry-After": "2"}` – the call fails as if a server had
//!   answered so; with a stream's `response` beside them, after its chunks.
//! * `"delayMs": 20` – the wait before each chunk but the first.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{LlmRequest, ModelError, ModelErrorKind, Role};
use futures::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::error::{Refusal, classify};
use crate::generator::{
    ContentGenerator, EmbedRequest, EmbedResponse, GenerateResponse, ResponseStream, TokenCount, or_cancelled,
};
use crate::providers::gemini::request_as_json;

/// How lines are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FakeMode {
    /// Line after line.
    #[default]
    Strict,
    /// The first line left that has the wanted method and fits.
    NonStrict,
}

/// Why a script can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FakeScriptError {
    /// The file.
    #[error("read the fake responses in {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line.
    #[error("read the fake response in {name}, line {line}: {reason}")]
    Line {
        /// The file.
        name: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// A file of responses, parsed.
#[derive(Clone, Debug, Default)]
pub struct FakeScript {
    lines: Vec<Line>,
    looping: bool,
}

#[derive(Clone, Debug)]
struct Line {
    number: usize,
    method: String,
    response: Value,
    rule: Option<Match>,
    failure: Option<ModelError>,
    delay: Duration,
}

/// When a line fits.
#[derive(Clone, Debug, Default)]
struct Match {
    last_contains: Option<String>,
    call_contains: Option<String>,
}

impl Match {
    fn read(rule: &Value) -> Result<Self, String> {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let read = Self { last_contains: text("lastContains"), call_contains: text("callContains") };
        if read.last_contains.is_none() && read.call_contains.is_none() {
            return Err("its 'match' has no 'lastContains' or 'callContains' text".to_owned());
        }
        Ok(read)
    }

    fn fits(&self, [before, last]: &[String; 2]) -> bool {
        let within = |text: &Option<String>, content: &str| text.as_ref().is_none_or(|text| content.contains(text));
        within(&self.last_contains, last) && within(&self.call_contains, before)
    }
}

impl FakeScript {
    /// Reads a file. Blocks on the disk.
    pub fn load(path: &Path) -> Result<Self, FakeScriptError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| FakeScriptError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Reads lines; `name` is for errors. Blank lines are skipped, a carriage return at the end is white space.
    pub fn parse(text: &str, name: &str) -> Result<Self, FakeScriptError> {
        let mut lines = Vec::new();
        for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            let number = index + 1;
            let fail = |reason: String| FakeScriptError::Line { name: name.to_owned(), line: number, reason };
            let value = serde_json::from_str(text).map_err(|error| fail(error.to_string()))?;
            lines.push(Line::read(number, value).map_err(fail)?);
        }
        Ok(Self { lines, looping: false })
    }

    /// A script that comes with the program. If `looping`, each new prompt of the user starts over at the first line.
    pub fn embedded(text: &str, looping: bool) -> Result<Self, FakeScriptError> {
        Ok(Self { looping, ..Self::parse(text, "the embedded script")? })
    }
}

impl Line {
    fn read(number: usize, value: Value) -> Result<Self, String> {
        let Value::Object(mut line) = value else { return Err("it is not an object".to_owned()) };
        let method = match line.remove("method") {
            Some(Value::String(method)) => method,
            _ => return Err("it has no 'method'".to_owned()),
        };
        let failure = match line.get("status") {
            None | Some(Value::Null) => None,
            Some(status) => {
                let status = status.as_u64().and_then(|status| u16::try_from(status).ok());
                Some(failure(
                    status.ok_or("its 'status' is not an HTTP status")?,
                    line.get("error"),
                    line.get("headers"),
                ))
            }
        };
        let rule = match line.get("match") {
            None | Some(Value::Null) => None,
            Some(rule) => Some(Match::read(rule)?),
        };
        let delay = line.get("delayMs").and_then(Value::as_u64).map_or(Duration::ZERO, Duration::from_millis);
        Ok(Self { number, method, response: line.remove("response").unwrap_or(Value::Null), rule, failure, delay })
    }
}

/// The scripted failure, by the table that real ones go through.
fn failure(status: u16, error: Option<&Value>, headers: Option<&Value>) -> ModelError {
    let body = match error {
        Some(error) if error.get("error").is_none() && !error.is_array() => serde_json::json!({"error": error}),
        Some(error) => error.clone(),
        None => Value::Null,
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = headers.and_then(Value::as_object).into_iter().flatten();
    let mut named = headers.filter(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
    let retry_after = named.next().map(|(_, value)| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    classify(Refusal {
        status,
        retry_after: retry_after.as_deref(),
        body: body.as_bytes(),
        wall_ms: convoke_stdx::Clock::start().now().wall_ms,
    })
}

/// One session's way through a script.
#[derive(Debug)]
pub struct FakeGenerator {
    script: Arc<FakeScript>,
    mode: FakeMode,
    /// Held for a look at the script, never across an await.
    place: Mutex<Place>,
}

/// What of the script is used up.
#[derive(Debug)]
struct Place {
    /// Strict: the next line.
    cursor: usize,
    /// Non-strict: the lines that were taken.
    taken: Vec<bool>,
}

const STREAM: &str = "generateContentStream";
const WHOLE: &str = "generateContent";

impl FakeGenerator {
    /// Starts at the first line.
    #[must_use]
    pub fn new(script: Arc<FakeScript>, mode: FakeMode) -> Self {
        let taken = vec![false; script.lines.len()];
        Self { script, mode, place: Mutex::new(Place { cursor: 0, taken }) }
    }

    /// Takes the line for this call.
    fn take(&self, method: &str, request: &impl Asked) -> Result<&Line, ModelError> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if self.script.looping && request.is_fresh_prompt() {
            *place = Place { cursor: 0, taken: vec![false; self.script.lines.len()] };
        }
        let index = self.find(&place, method, request);
        let Some(line) = index.and_then(|index| self.script.lines.get(index)) else {
            let request = request.json();
            return Err(other(format!("No more mock responses for {method}, got request:\n{request}")));
        };
        place.cursor += 1;
        if let Some(taken) = index.and_then(|index| place.taken.get_mut(index)) {
            *taken = true;
        }
        if line.method != method {
            let found = &line.method;
            return Err(other(format!(
                "Unexpected response type, next response was for {found} but expected {method}"
            )));
        }
        Ok(line)
    }

    fn find(&self, place: &Place, method: &str, request: &impl Asked) -> Option<usize> {
        if self.mode == FakeMode::Strict {
            return (place.cursor < self.script.lines.len()).then_some(place.cursor);
        }
        let contents = self.script.lines.iter().any(|line| line.rule.is_some()).then(|| request.last_contents());
        let fits = |line: &Line| match (&line.rule, &contents) {
            (Some(rule), Some(contents)) => rule.fits(contents),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let mut left = self.script.lines.iter().zip(&place.taken);
        left.position(|(line, taken)| !taken && line.method == method && fits(line))
    }

    fn whole<T: DeserializeOwned>(&self, method: &str, request: &impl Asked) -> Result<T, ModelError> {
        let line = self.take(method, request)?;
        match &line.failure {
            Some(error) => Err(error.clone()),
            None => read(line, &line.response),
        }
    }
}

/// A response of the wrong shape is a fault of the script, told with its line.
fn read<T: DeserializeOwned>(line: &Line, value: &Value) -> Result<T, ModelError> {
    T::deserialize(value)
        .map_err(|error| other(format!("read the fake response for {} in line {}: {error}", line.method, line.number)))
}

fn other(message: String) -> ModelError {
    ModelError::new(ModelErrorKind::Other, message)
}

/// What a script looks at in a request.
trait Asked {
    /// The request as upstream would print it.
    fn json(&self) -> String;
    /// The JSON of the last content, and before it that of the one before; empty where there is none.
    fn last_contents(&self) -> [String; 2];
    /// Whether the user speaks last, and not a tool.
    fn is_fresh_prompt(&self) -> bool;
}

impl Asked for LlmRequest {
    fn json(&self) -> String {
        request_as_json(self)
    }

    fn last_contents(&self) -> [String; 2] {
        let mut newest_first = self.contents.iter().rev().map(as_json);
        let last = newest_first.next().unwrap_or_default();
        [newest_first.next().unwrap_or_default(), last]
    }

    fn is_fresh_prompt(&self) -> bool {
        self.contents.last().is_some_and(|content| {
            content.role == Role::User && !content.parts.iter().any(|part| part.raw().contains_key("functionResponse"))
        })
    }
}

impl Asked for EmbedRequest {
    fn json(&self) -> String {
        as_json(self)
    }

    fn last_contents(&self) -> [String; 2] {
        [String::new(), self.texts.last().map(as_json).unwrap_or_default()]
    }

    fn is_fresh_prompt(&self) -> bool {
        false
    }
}

fn as_json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The chunks of a line, each checked when it is due.
fn chunks(line: &Line) -> Result<Vec<Result<GenerateResponse, ModelError>>, ModelError> {
    let mut chunks: Vec<_> = match &line.response {
        Value::Array(chunks) => chunks.iter().map(|chunk| read(line, chunk)).collect(),
        Value::Null if line.failure.is_some() => Vec::new(),
        _ => {
            return Err(other(format!(
                "read the fake response for {STREAM} in line {}: it is not an array",
                line.number
            )));
        }
    };
    chunks.extend(line.failure.clone().map(Err));
    Ok(chunks)
}

#[async_trait]
impl ContentGenerator for FakeGenerator {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        _: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        self.whole(WHOLE, &*request)
    }

    /// Strict: a line that is next and no stream would fail the turn that comes after; any other is that turn's.
    fn has_answer_to_spare(&self) -> bool {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        self.mode == FakeMode::NonStrict || self.script.lines.get(place.cursor).is_some_and(|line| line.method == WHOLE)
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, cancel: CancellationToken) -> ResponseStream {
        let taken = self.take(STREAM, &*request).and_then(|line| Ok((chunks(line)?, line.delay)));
        let played = async_stream::try_stream! {
            let (chunks, delay) = taken?;
            for (index, chunk) in chunks.into_iter().enumerate() {
                if index > 0 && !delay.is_zero() {
                    or_cancelled(&cancel, async { tokio::time::sleep(delay).await; Ok(()) }).await?;
                }
                yield chunk?;
            }
        };
        played.boxed()
    }

    async fn count_tokens(&self, request: Arc<LlmRequest>, _: CancellationToken) -> Result<TokenCount, ModelError> {
        self.whole("countTokens", &*request)
    }

    async fn embed_content(&self, request: EmbedRequest, _: CancellationToken) -> Result<EmbedResponse, ModelError> {
        self.whole("embedContent", &request)
    }
}

#[cfg(test)]
mod tests;
