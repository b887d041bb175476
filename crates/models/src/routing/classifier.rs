//! Classifiers: what is a small model asked about a prompt, and what does its answer mean?
//!
//! Source: runtime specification §3.3; the wording is ours.

use std::sync::Arc;

use convoke_adk::{Content, GenerateConfig, LlmRequest, Part};
use convoke_stdx::cut;
use serde_json::{Map, Value, json};

use crate::catalog::Tier;

/// Of each content: enough to see what it is about. The classifier must be fast, and reads no files.
const TEXT_MAX: usize = 4 * 1024;
/// Most of a reason that is kept: it goes into events.
const REASON_MAX: usize = 400;

const CHOICE: &str = "\
You decide which of two language models works on the last request of a conversation between a user and a coding agent.
`flash` is fast and cheap: simple edits, single commands, questions with an answer in one or two places.
`pro` is slow and thorough: several dependent steps, design, unclear causes, changes across many files.
Judge the work, not the length of the request. Answer with JSON only: {\"reasoning\": \"one sentence\", \
\"model_choice\": \"flash\" or \"pro\"}.";

const SCORE: &str = "\
You rate how hard the last request of a conversation between a user and a coding agent is, from 1 to 100.
1 to 20: one obvious step. 21 to 50: a few steps, clear from the request. 51 to 80: several dependent steps, or code \
that must be understood first. 81 to 100: design, unclear causes, many files, high cost of a mistake.
Judge the work, not the length of the request. Answer with JSON only: {\"complexity_reasoning\": \"one sentence\", \
\"complexity_score\": a whole number}.";

/// Asks `flash` or `pro`: of the last 20 contents those without tools, at most 4, and the request.
pub(super) fn choice_request(contents: &[Arc<Content>]) -> Option<LlmRequest> {
    let (request, history) = contents.split_last()?;
    let recent = history.iter().rev().take(20).filter(|content| !has_tools(content)).take(4);
    let mut told: Vec<_> = recent.collect();
    told.reverse();
    told.push(request);
    let schema = json!({
        "type": "object",
        "properties": {"reasoning": {"type": "string"}, "model_choice": {"type": "string", "enum": ["flash", "pro"]}},
        "required": ["reasoning", "model_choice"],
    });
    request_of(CHOICE, &told, schema)
}

/// Asks for a score: of the last 8 contents those from the first without tools on, and the request.
pub(super) fn score_request(contents: &[Arc<Content>]) -> Option<LlmRequest> {
    let (request, history) = contents.split_last()?;
    let recent = history.get(history.len().saturating_sub(8)..)?;
    let mut told: Vec<_> = recent.iter().skip_while(|content| has_tools(content)).collect();
    if told.is_empty() && has_tools(request) {
        return None;
    }
    told.push(request);
    let schema = json!({
        "type": "object",
        "properties": {
            "complexity_reasoning": {"type": "string"},
            "complexity_score": {"type": "integer", "minimum": 1, "maximum": 100},
        },
        "required": ["complexity_reasoning", "complexity_score"],
    });
    request_of(SCORE, &told, schema)
}

fn has_tools(content: &Content) -> bool {
    content.parts.iter().any(|part| part.call_id().is_some() || part.response_id().is_some())
}

/// Texts only, one content for all: so the conversation can't be mistaken for one with the classifier.
fn request_of(instruction: &str, contents: &[&Arc<Content>], schema: Value) -> Option<LlmRequest> {
    let mut told = String::new();
    for content in contents {
        let text = content.parts.iter().filter(|part| !part.is_thought()).filter_map(Part::as_text);
        let text: String = text.collect();
        if !text.trim().is_empty() {
            let role = if content.role == convoke_adk::Role::User { "user" } else { "agent" };
            told.push_str(&format!("<{role}>\n{}\n</{role}>\n", tail(&text)));
        }
    }
    if told.is_empty() {
        return None;
    }
    let config = GenerateConfig {
        extra: Map::from_iter([
            ("responseMimeType".to_owned(), "application/json".into()),
            ("responseJsonSchema".to_owned(), schema),
        ]),
        ..GenerateConfig::default()
    };
    Some(LlmRequest {
        contents: vec![Arc::new(Content::user(told))],
        system_instruction: vec![instruction.to_owned()],
        config,
        purpose: "utility_router",
        ..LlmRequest::default()
    })
}

/// The end of a long text: what a user wants comes last, behind what was pasted.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(TEXT_MAX);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(from..).unwrap_or(text)
}

/// The object of an answer, with or without a fence around it.
fn object(answer: &str) -> Option<Map<String, Value>> {
    let answer = answer.trim();
    let answer = answer.strip_prefix("```json").or_else(|| answer.strip_prefix("```")).unwrap_or(answer);
    let answer = answer.trim_end().strip_suffix("```").unwrap_or(answer);
    serde_json::from_str(answer).ok()
}

fn reason(object: &Map<String, Value>, key: &str) -> String {
    cut::head(object.get(key).and_then(Value::as_str).unwrap_or_default(), REASON_MAX).to_owned()
}

pub(super) fn read_choice(answer: &str) -> Option<(Tier, String)> {
    let object = object(answer)?;
    let tier = match object.get("model_choice")?.as_str()? {
        "flash" => Tier::Flash,
        "pro" => Tier::Pro,
        _ => return None,
    };
    Some((tier, reason(&object, "reasoning")))
}

pub(super) fn read_score(answer: &str) -> Option<(u8, String)> {
    let object = object(answer)?;
    let score = object.get("complexity_score")?.as_u64().filter(|score| (1..=100).contains(score))?;
    Some((u8::try_from(score).ok()?, reason(&object, "complexity_reasoning")))
}

#[cfg(test)]
mod tests {
    use convoke_adk::{FunctionCall, FunctionResponse, Role};
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn answers_that_mean_something() {
        let choice = "```json\n{\"reasoning\": \"r\", \"model_choice\": \"pro\"}\n```";
        assert_eq!(read_choice(choice), Some((Tier::Pro, "r".to_owned())));
        assert_eq!(read_choice("{\"model_choice\": \"flash\"}"), Some((Tier::Flash, String::new())));
        assert_eq!(read_score("{\"complexity_score\": 90}"), Some((90, String::new())));
        for nonsense in ["", "pro", "[]", "{}", "{\"model_choice\": \"large\"}", "{\"model_choice\": 3}"] {
            assert_eq!(read_choice(nonsense), None, "{nonsense}");
        }
        for nonsense in ["{\"complexity_score\": 0}", "{\"complexity_score\": 101}", "{\"complexity_score\": \"9\"}"] {
            assert_eq!(read_score(nonsense), None, "{nonsense}");
        }
    }

    fn call() -> FunctionCall {
        FunctionCall { id: Some("1".into()), name: "f".into(), args: json!({}) }
    }

    fn conversation() -> Vec<Arc<Content>> {
        let model = |parts| Arc::new(Content { role: Role::Model, parts });
        let user = |parts| Arc::new(Content { role: Role::User, parts });
        vec![
            user(vec![Part::text("first")]),
            model(vec![Part::call(&call())]),
            user(vec![Part::response(&FunctionResponse::output(&call(), "secret"))]),
            model(vec![Part::thought("hm"), Part::text("done")]),
            user(vec![Part::text("second")]),
        ]
    }

    fn told(request: Option<LlmRequest>) -> String {
        request.map(|request| request.contents[0].joined_text()).unwrap_or_default()
    }

    #[test]
    fn tools_and_thoughts_are_not_told() {
        let all = "<user>\nfirst\n</user>\n<agent>\ndone\n</agent>\n<user>\nsecond\n</user>\n";
        assert_eq!(told(choice_request(&conversation())), all);
        assert_eq!(told(score_request(&conversation())), all);
        let late = conversation();
        assert_eq!(told(score_request(&late[1..])), all.strip_prefix("<user>\nfirst\n</user>\n").unwrap());
        assert!(score_request(&late[1..3]).is_none(), "nothing but tools");
        assert!(choice_request(&[]).is_none());
    }

    #[test]
    fn of_a_long_text_the_end_is_told() {
        let text = format!("{}é{}", "x".repeat(TEXT_MAX), "y".repeat(TEXT_MAX - 1));
        assert_eq!(tail(&text), "y".repeat(TEXT_MAX - 1));
    }
}
