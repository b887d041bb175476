//! The dialects: how is a turn written?

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Said, Turn};

/// How a client wants its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dialect {
    Gemini { stream: bool },
    OpenAi { stream: bool },
    Anthropic { stream: bool },
}

impl Dialect {
    /// Told by the path, and for all but Gemini by `stream` in the body.
    pub(super) fn of(path: &str, body: &Value) -> Self {
        let stream = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
        if path.contains("chat/completions") {
            Self::OpenAi { stream }
        } else if path.contains("/messages") {
            Self::Anthropic { stream }
        } else {
            Self::Gemini { stream: path.contains(":streamGenerateContent") }
        }
    }

    pub(super) fn streams(self) -> bool {
        match self {
            Self::Gemini { stream } | Self::OpenAi { stream } | Self::Anthropic { stream } => stream,
        }
    }

    /// The turn as chunks of the body.
    pub(super) fn chunks(self, turn: &Turn) -> Vec<Bytes> {
        if let [Said::Error(error)] = turn.said.as_slice() {
            let body = match self {
                Self::Anthropic { .. } => json!({"type": "error", "error": error, "request_id": "req_fake"}),
                _ => json!({"error": error}),
            };
            return vec![Bytes::from(body.to_string())];
        }
        match self {
            Self::Gemini { stream: true } => gemini_stream(turn),
            Self::Gemini { stream: false } => gemini_whole(turn),
            Self::OpenAi { stream: true } => openai_stream(turn),
            Self::OpenAi { stream: false } => openai_whole(turn),
            Self::Anthropic { stream: true } => anthropic_stream(turn),
            Self::Anthropic { stream: false } => anthropic_whole(turn),
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

fn anthropic_reason(turn: &Turn) -> Option<&'static str> {
    let calls = turn.said.iter().any(|said| matches!(said, Said::Call(..)));
    Some(match turn.finish? {
        "MAX_TOKENS" => "max_tokens",
        "SAFETY" => "refusal",
        _ if calls => "tool_use",
        _ => "end_turn",
    })
}

/// A block as it starts, its deltas, and the block as it is when it has stopped.
fn anthropic_block(index: usize, said: &Said) -> Option<(Value, Vec<Value>, Value)> {
    Some(match said {
        Said::Text(text) => {
            let delta = json!({"type": "text_delta", "text": text});
            (json!({"type": "text", "text": ""}), vec![delta], json!({"type": "text", "text": text}))
        }
        Said::Thought(text) => {
            let signature = format!("signature-{index}");
            let deltas = vec![
                json!({"type": "thinking_delta", "thinking": text}),
                json!({"type": "signature_delta", "signature": signature}),
            ];
            let whole = json!({"type": "thinking", "thinking": text, "signature": signature});
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas, whole)
        }
        Said::Call(name, args) => {
            let id = format!("toolu_{index}");
            let input = args.to_string();
            let middle = (1..input.len()).rev().find(|at| *at <= input.len() / 2 && input.is_char_boundary(*at));
            let (head, tail) = input.split_at(middle.unwrap_or(0));
            let deltas = [head, tail].map(|json| json!({"type": "input_json_delta", "partial_json": json})).to_vec();
            let whole = json!({"type": "tool_use", "id": id, "name": name, "input": args});
            (json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas, whole)
        }
        Said::Raw(_) | Said::Error(_) => return None,
    })
}

fn named_event(value: &Value) -> Bytes {
    let name = value.get("type").and_then(Value::as_str).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

fn anthropic_stream(turn: &Turn) -> Vec<Bytes> {
    if let Some(chunks) = raw(turn) {
        return chunks;
    }
    let usage = json!({"input_tokens": 6, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 3,
        "output_tokens": 1});
    let message = json!({"id": "msg_fake", "type": "message", "role": "assistant", "model": "fake-model",
        "content": [], "stop_reason": null, "usage": usage});
    let mut chunks = vec![named_event(&json!({"type": "message_start", "message": message}))];
    chunks.push(named_event(&json!({"type": "ping"})));
    for (index, said) in turn.said.iter().enumerate() {
        if let Said::Raw(bytes) = said {
            chunks.push(bytes.clone());
        }
        let Some((start, deltas, _)) = anthropic_block(index, said) else { continue };
        chunks.push(named_event(&json!({"type": "content_block_start", "index": index, "content_block": start})));
        for delta in deltas {
            chunks.push(named_event(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
        }
        chunks.push(named_event(&json!({"type": "content_block_stop", "index": index})));
    }
    if let Some(reason) = anthropic_reason(turn) {
        let delta = json!({"stop_reason": reason, "stop_sequence": null});
        let mut last = json!({"type": "message_delta", "delta": delta});
        if turn.usage {
            last["usage"] = json!({"output_tokens": 5});
        }
        chunks.push(named_event(&last));
        chunks.push(named_event(&json!({"type": "message_stop"})));
    }
    chunks
}

fn anthropic_whole(turn: &Turn) -> Vec<Bytes> {
    if let Some(chunks) = raw(turn) {
        return chunks;
    }
    let blocks = turn.said.iter().enumerate().filter_map(|(index, said)| Some(anthropic_block(index, said)?.2));
    let usage = json!({"input_tokens": 6, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 3,
        "output_tokens": 5});
    let message = json!({"id": "msg_fake", "type": "message", "role": "assistant", "model": "fake-model",
        "content": blocks.collect::<Vec<_>>(), "stop_reason": anthropic_reason(turn), "usage": usage});
    vec![Bytes::from(message.to_string())]
}
