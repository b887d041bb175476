//! The two dialects: how is a turn written?

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Said, Turn};

/// How a client wants its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dialect {
    Gemini { stream: bool },
    OpenAi { stream: bool },
}

impl Dialect {
    /// Told by the path, and for OpenAI by `stream` in the body.
    pub(super) fn of(path: &str, body: &Value) -> Self {
        if path.contains("chat/completions") {
            Self::OpenAi { stream: body.get("stream").and_then(Value::as_bool).unwrap_or(false) }
        } else {
            Self::Gemini { stream: path.contains(":streamGenerateContent") }
        }
    }

    pub(super) fn streams(self) -> bool {
        match self {
            Self::Gemini { stream } | Self::OpenAi { stream } => stream,
        }
    }

    /// The turn as chunks of the body.
    pub(super) fn chunks(self, turn: &Turn) -> Vec<Bytes> {
        if let [Said::Error(error)] = turn.said.as_slice() {
            return vec![Bytes::from(json!({"error": error}).to_string())];
        }
        match self {
            Self::Gemini { stream: true } => gemini_stream(turn),
            Self::Gemini { stream: false } => gemini_whole(turn),
            Self::OpenAi { stream: true } => openai_stream(turn),
            Self::OpenAi { stream: false } => openai_whole(turn),
        }
    }
}

fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\r\n\r\n"))
}

fn raw(turn: &Turn) -> Option<Vec<Bytes>> {
    let chunks = turn.said.iter().map(|said| match said {
        Said::Raw(bytes) => Some(bytes.clone()),
        _ => None,
    });
    chunks.collect()
}

fn gemini_part(said: &Said) -> Option<Value> {
    match said {
        Said::Text(text) => Some(json!({"text": text})),
        Said::Thought(text) => Some(json!({"text": text, "thought": true})),
        Said::Call(name, args) => Some(json!({"functionCall": {"name": name, "args": args}})),
        Said::Raw(_) | Said::Error(_) => None,
    }
}

fn gemini_usage() -> Value {
    json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15})
}

fn gemini_stream(turn: &Turn) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    for said in &turn.said {
        match (said, gemini_part(said)) {
            (Said::Raw(bytes), _) => chunks.push(bytes.clone()),
            (_, Some(part)) => {
                let content = json!({"role": "model", "parts": [part]});
                chunks.push(event(&json!({"candidates": [{"content": content, "index": 0}]})));
            }
            _ => {}
        }
    }
    if let Some(reason) = turn.finish {
        let mut last = json!({"candidates": [{"finishReason": reason, "index": 0}], "modelVersion": "fake-model"});
        if turn.usage {
            last["usageMetadata"] = gemini_usage();
        }
        chunks.push(event(&last));
    }
    chunks
}

fn gemini_whole(turn: &Turn) -> Vec<Bytes> {
    if let Some(chunks) = raw(turn) {
        return chunks;
    }
    let parts: Vec<_> = turn.said.iter().filter_map(gemini_part).collect();
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = turn.finish {
        candidate["finishReason"] = reason.into();
    }
    vec![Bytes::from(json!({"candidates": [candidate], "usageMetadata": gemini_usage()}).to_string())]
}

fn openai_reason(turn: &Turn) -> Option<&'static str> {
    let calls = turn.said.iter().any(|said| matches!(said, Said::Call(..)));
    Some(match turn.finish? {
        "MAX_TOKENS" => "length",
        "SAFETY" => "content_filter",
        _ if calls => "tool_calls",
        _ => "stop",
    })
}

fn openai_usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
}

fn openai_call(index: usize, name: &str, args: &Value) -> Value {
    let function = json!({"name": name, "arguments": args.to_string()});
    json!({"index": index, "id": format!("call_{index}"), "type": "function", "function": function})
}

fn openai_stream(turn: &Turn) -> Vec<Bytes> {
    let chunk = |delta: Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        event(&json!({"object": "chat.completion.chunk", "model": "fake-model", "choices": [choice]}))
    };
    let mut calls = 0;
    let mut chunks = Vec::new();
    for said in &turn.said {
        match said {
            Said::Text(text) => chunks.push(chunk(json!({"content": text}), None)),
            Said::Thought(text) => chunks.push(chunk(json!({"reasoning_content": text}), None)),
            Said::Call(name, args) => {
                chunks.push(chunk(json!({"tool_calls": [openai_call(calls, name, args)]}), None));
                calls += 1;
            }
            Said::Raw(bytes) => chunks.push(bytes.clone()),
            Said::Error(_) => {}
        }
    }
    if let Some(reason) = openai_reason(turn) {
        chunks.push(chunk(json!({}), Some(reason)));
        if turn.usage {
            chunks.push(event(&json!({"model": "fake-model", "choices": [], "usage": openai_usage()})));
        }
        chunks.push(Bytes::from_static(b"data: [DONE]\n\n"));
    }
    chunks
}

fn openai_whole(turn: &Turn) -> Vec<Bytes> {
    if let Some(chunks) = raw(turn) {
        return chunks;
    }
    let mut text = String::new();
    let mut calls = Vec::new();
    for said in &turn.said {
        match said {
            Said::Text(more) => text.push_str(more),
            Said::Call(name, args) => calls.push(openai_call(calls.len(), name, args)),
            _ => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": openai_reason(turn)});
    vec![Bytes::from(json!({"model": "fake-model", "choices": [choice], "usage": openai_usage()}).to_string())]
}
