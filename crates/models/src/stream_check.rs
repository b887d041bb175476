//! Streams: is this an answer, or did the model say nothing?
//!
//! Sans-IO: sees the pieces of one attempt and judges at its end. A stream with a function call is an answer. Without
//! one it needs a finish reason that is not a broken call, and text that is not blank. After a tool result the model
//! may end its turn without a word. Source: upstream's rejection of empty or broken streams, runtime specification §4.7.

use convoke_adk::{LlmRequest, ModelError, ModelErrorKind};
use serde_json::{Map, Value};

use crate::generator::{GenerateResponse, is_thought};

/// As much text as is kept to find out whether it is blank. More than this of comments is taken for text.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Why a stream is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It ended without saying why.
    NoFinishReason,
    /// The model wrote a call that can't be read, or of a tool it was not offered.
    BrokenCall(String),
    /// It thought and said nothing.
    ThoughtsOnly,
    /// It said nothing; why it ended.
    Blank(Option<String>),
}

impl Fault {
    /// Whether a word to the model may help.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self, Self::ThoughtsOnly | Self::Blank(_))
    }
}

impl From<&Fault> for ModelError {
    fn from(fault: &Fault) -> Self {
        let message = match fault {
            Fault::NoFinishReason => "the model's answer ended without a finish reason".to_owned(),
            Fault::BrokenCall(reason) => format!("the model's answer ended in a broken function call ({reason})"),
            Fault::ThoughtsOnly => "the model's answer holds thoughts and no text".to_owned(),
            Fault::Blank(Some(reason)) if reason != "STOP" => format!("the model's answer is empty ({reason})"),
            Fault::Blank(_) => "the model's answer is empty".to_owned(),
        };
        Self::new(ModelErrorKind::InvalidStream, message)
    }
}

/// Sees one attempt.
#[derive(Debug)]
pub(crate) struct StreamCheck {
    after_tool_result: bool,
    has_call: bool,
    has_thought: bool,
    /// Something besides text was said, such as an image.
    has_other: bool,
    finish_reason: Option<String>,
    text: String,
}

impl StreamCheck {
    pub(crate) fn new(request: &LlmRequest) -> Self {
        let last = request.contents.last();
        let after_tool_result =
            last.is_some_and(|content| content.parts.iter().any(|part| part.raw().contains_key("functionResponse")));
        Self {
            after_tool_result,
            has_call: false,
            has_thought: false,
            has_other: false,
            finish_reason: None,
            text: String::new(),
        }
    }

    pub(crate) fn see(&mut self, piece: &GenerateResponse) {
        if let Some(reason) = piece.finish_reason() {
            self.finish_reason = Some(reason.to_owned());
        }
        for part in piece.parts() {
            self.see_part(part);
        }
    }

    fn see_part(&mut self, part: &Map<String, Value>) {
        if is_thought(part) {
            self.has_thought = true;
        } else if let Some(text) = part.get("text").and_then(Value::as_str) {
            if self.text.len() < TEXT_BYTES_MAX {
                self.text.push_str(text);
            } else {
                self.has_other = true;
            }
        } else if let Some(call) = part.get("functionCall") {
            self.has_call |= call.get("name").is_some_and(Value::is_string);
        } else {
            self.has_other |= part.keys().any(|key| key != "thoughtSignature");
        }
    }

    /// The verdict at the end of the stream.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        if self.has_call {
            return Ok(());
        }
        match self.finish_reason {
            None if !self.after_tool_result => return Err(Fault::NoFinishReason),
            Some(reason) if matches!(reason.as_str(), "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") => {
                return Err(Fault::BrokenCall(reason));
            }
            _ => {}
        }
        if self.has_other || !is_blank(&self.text) {
            return Ok(());
        }
        if self.has_thought {
            return Err(Fault::ThoughtsOnly);
        }
        if self.after_tool_result { Ok(()) } else { Err(Fault::Blank(self.finish_reason)) }
    }
}

/// Whether nothing is left without white space, zero-width characters and HTML comments.
fn is_blank(mut text: &str) -> bool {
    let mark = |c: char| c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    loop {
        text = text.trim_start_matches(mark);
        match text.strip_prefix("<!--").and_then(|rest| rest.split_once("-->")) {
            Some((_, rest)) => text = rest,
            None => return text.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use convoke_adk::{Content, Part, Role};
    use serde_json::json;

    use super::*;

    fn judge(after_tool_result: bool, parts: Value, finish: Option<&str>) -> Result<(), Fault> {
        let mut request = LlmRequest::default();
        request.contents.push(Arc::new(Content::user("hi")));
        if after_tool_result {
            let part = json!({"functionResponse": {"name": "f", "response": {}}});
            let part = Part::from(part.as_object().unwrap().clone());
            request.contents.push(Arc::new(Content { role: Role::User, parts: vec![part] }));
        }
        let mut check = StreamCheck::new(&request);
        for part in parts.as_array().unwrap() {
            let piece = json!({"candidates": [{"content": {"parts": [part]}}]});
            check.see(&serde_json::from_value(piece).unwrap());
        }
        if let Some(finish) = finish {
            check.see(&serde_json::from_value(json!({"candidates": [{"finishReason": finish}]})).unwrap());
        }
        check.finish()
    }

    #[test]
    fn verdicts() {
        let text = json!([{"text": "a"}]);
        let thought = json!([{"text": "a", "thought": true}]);
        let call = json!([{"functionCall": {"name": "f", "args": {}}}]);
        let nameless = json!([{"functionCall": {"args": {}}}]);
        let none = json!([]);
        let stop = Some("STOP");
        let malformed = Some("MALFORMED_FUNCTION_CALL");
        let blank = || Err(Fault::Blank(Some("STOP".to_owned())));
        let broken = || Err(Fault::BrokenCall("MALFORMED_FUNCTION_CALL".to_owned()));
        for (parts, finish, fresh, after_tool) in [
            (&text, stop, Ok(()), Ok(())),
            (&text, Some("MAX_TOKENS"), Ok(()), Ok(())),
            (&text, None, Err(Fault::NoFinishReason), Ok(())),
            (&text, malformed, broken(), broken()),
            (&call, None, Ok(()), Ok(())),
            (&call, malformed, Ok(()), Ok(())),
            (&nameless, stop, blank(), Ok(())),
            (&none, stop, blank(), Ok(())),
            (&none, None, Err(Fault::NoFinishReason), Ok(())),
            (&none, malformed, broken(), broken()),
            (&thought, stop, Err(Fault::ThoughtsOnly), Err(Fault::ThoughtsOnly)),
            (&json!([{"text": " \n\u{200b}<!-- x -->"}, {"text": "<!--"}, {"text": "-->"}]), stop, blank(), Ok(())),
            (&json!([{"text": "<!-- open"}]), stop, Ok(()), Ok(())),
            (&json!([{"inlineData": {"data": ""}}]), stop, Ok(()), Ok(())),
        ] {
            assert_eq!(judge(false, parts.clone(), finish), fresh, "{parts} {finish:?}");
            assert_eq!(judge(true, parts.clone(), finish), after_tool, "after a tool: {parts} {finish:?}");
        }
    }
}
