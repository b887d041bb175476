use convoke_adk::ModelErrorKind;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;
use crate::providers::join::join;

/// Runs chunks through; `[DONE]` is `null`.
fn answer(chunks: &[Value]) -> GenerateResponse {
    let mut assembler = Assembler::default();
    let mut pieces = Vec::new();
    for chunk in chunks {
        match chunk {
            Value::Null => assembler.done(),
            chunk => pieces.extend(assembler.take(chunk).unwrap()),
        }
    }
    pieces.extend(assembler.finish());
    join(pieces)
}

fn delta(delta: Value) -> Value {
    json!({"model": "m", "choices": [{"index": 0, "delta": delta}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(chunks: &[Value]) -> (Vec<Value>, Option<String>) {
    let answer = answer(chunks);
    let calls = answer.parts().filter_map(|part| part.get("functionCall").cloned()).collect();
    (calls, answer.finish_reason().map(str::to_owned))
}

fn fragments(fragments: &[Value]) -> (Vec<Value>, Option<String>) {
    let mut chunks: Vec<_> = fragments.iter().map(|fragment| delta(json!({"tool_calls": [fragment]}))).collect();
    chunks.push(end("tool_calls"));
    calls(&chunks)
}

fn stop() -> Option<String> {
    Some("STOP".into())
}

#[test]
fn text_thoughts_and_usage() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}});
    let answer = answer(&[
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"reasoning": "mm"})),
        delta(json!({"content": "a"})),
        delta(json!({"content": [{"type": "text", "text": "b"}]})),
        end("length"),
        json!({"choices": [], "usage": usage}),
        Value::Null,
    ]);
    let expected = json!({
        "modelVersion": "m",
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3, "totalTokenCount": 15,
            "thoughtsTokenCount": 2, "cachedContentTokenCount": 4},
        "candidates": [{"content": {"role": "model", "parts": [
            {"text": "hm", "thought": true}, {"text": "mm", "thought": true}, {"text": "a"}, {"text": "b"}]},
            "finishReason": "MAX_TOKENS"}],
    });
    assert_eq!(serde_json::to_value(&answer).unwrap(), expected);
}

#[test]
fn calls_in_fragments_by_index() {
    let found = fragments(&[
        json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
        json!({"index": 0, "function": {"arguments": "{\"x\""}}),
        json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}),
        json!({"index": 0, "function": {"arguments": ":1}"}}),
    ]);
    let expected = vec![json!({"id": "a", "name": "f", "args": {"x": 1}}), json!({"id": "b", "name": "g", "args": {}})];
    assert_eq!(found, (expected, stop()));
}

#[test]
fn servers_that_differ() {
    let f = |args: Value| json!({"name": "f", "args": args});
    for (name, sent, expected) in [
        (
            "whole, no index, no id",
            vec![json!({"function": {"name": "f", "arguments": "{}"}}); 2],
            vec![f(json!({})); 2],
        ),
        (
            "one index for all",
            vec![
                json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}),
                json!({"index": 0, "id": "b", "function": {"name": "f", "arguments": "{}"}}),
            ],
            vec![json!({"id": "a", "name": "f", "args": {}}), json!({"id": "b", "name": "f", "args": {}})],
        ),
        (
            "an object",
            vec![json!({"index": 0, "function": {"name": "f", "arguments": {"x": 1}}})],
            vec![f(json!({"x": 1}))],
        ),
        (
            "twice encoded",
            vec![json!({"function": {"name": "f", "arguments": "\"{\\\"x\\\":1}\""}})],
            vec![f(json!({"x": 1}))],
        ),
        ("no arguments", vec![json!({"function": {"name": "f"}})], vec![f(json!({}))]),
        (
            "name and id in every fragment",
            vec![
                json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\":"}}),
                json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "1}"}}),
            ],
            vec![json!({"id": "a", "name": "f", "args": {"x": 1}})],
        ),
        (
            "fragments without index or id",
            vec![
                json!({"id": "a", "function": {"name": "f", "arguments": "{"}}),
                json!({"function": {"arguments": "}"}}),
            ],
            vec![json!({"id": "a", "name": "f", "args": {}})],
        ),
    ] {
        assert_eq!(fragments(&sent), (expected, stop()), "{name}");
    }
}

#[test]
fn arguments_that_cannot_be_read_spoil_the_answer() {
    let malformed = Some("MALFORMED_FUNCTION_CALL".to_owned());
    for arguments in ["{\"x\":", "[1]", "7", "\"x\""] {
        let good = json!({"index": 0, "function": {"name": "f", "arguments": "{}"}});
        let bad = json!({"index": 1, "function": {"name": "g", "arguments": arguments}});
        assert_eq!(fragments(&[good, bad]), (vec![], malformed.clone()), "{arguments}");
    }
    assert_eq!(fragments(&[json!({"function": {"arguments": "{}"}})]), (vec![], malformed));
}

#[test]
fn the_end_may_be_told_in_several_ways() {
    let text = delta(json!({"content": "a"}));
    let reason = |chunks: &[Value]| answer(chunks).finish_reason().map(str::to_owned);
    assert_eq!(reason(&[text.clone(), end("stop")]), stop());
    assert_eq!(reason(&[text.clone(), Value::Null]), stop());
    assert_eq!(reason(&[text.clone(), json!({"usage": {}})]), stop());
    assert_eq!(reason(std::slice::from_ref(&text)), None, "cut");
    assert_eq!(reason(&[text.clone(), json!({"choices": [{"delta": {}}], "usage": {}})]), None, "counts so far");
    assert_eq!(reason(&[Value::Null]), None, "nothing said");
    assert_eq!(reason(&[text.clone(), end("content_filter")]).as_deref(), Some("SAFETY"));
    assert_eq!(reason(&[text, end("new_word")]).as_deref(), Some("OTHER"));
    let whole = json!({"choices": [{"message": {"role": "assistant", "content": "a"}}]});
    assert_eq!(reason(&[whole]), stop());
}

#[test]
fn an_error_in_the_stream_is_classified() {
    let chunk = json!({"error": {"message": "too many", "type": "rate_limit_error"}});
    let error = Assembler::default().take(&chunk).unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::RateLimit, "too many"));
}

#[test]
fn calls_are_bounded() {
    let many: Vec<_> = (0..CALLS_MAX + 5).map(|n| json!({"index": n, "function": {"name": "f"}})).collect();
    assert_eq!(fragments(&many).0.len(), CALLS_MAX);
}

/// Any JSON of small depth, with the words of the protocol as keys.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_u64..4).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "{}", "{", "stop", "tool_calls"]).prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "choices",
        "delta",
        "message",
        "content",
        "tool_calls",
        "index",
        "id",
        "function",
        "name",
        "arguments",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "completion_tokens_details",
        "reasoning",
    ]);
    leaf.prop_recursive(8, 64, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    /// Whatever a server sends, calls that come out have a name and an object for arguments.
    #[test]
    fn any_chunks_are_survived(choices in prop::collection::vec(any_json(), 0..6), usage in any_json()) {
        let mut chunks: Vec<_> = choices.into_iter().map(|choice| json!({"choices": [choice]})).collect();
        chunks.push(json!({"usage": usage}));
        let answer = answer(&chunks);
        for part in answer.parts().filter(|part| part.contains_key("functionCall")) {
            prop_assert!(part["functionCall"]["name"].is_string() && part["functionCall"]["args"].is_object());
        }
    }
}

#[test]
fn a_call_comes_back_under_the_tool_s_own_name() {
    let mut request = LlmRequest::default();
    for name in ["mcp_a.b_c", "mcp_a_b_c"] {
        let tool = convoke_adk::FunctionDeclaration {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
        };
        std::sync::Arc::make_mut(&mut request.tools).insert(name.into(), tool);
    }
    for (wire, own) in [("mcp_a_b_c_2", "mcp_a.b_c"), ("mcp_a_b_c", "mcp_a_b_c"), ("unknown", "unknown")] {
        let mut assembler = Assembler::new(&request);
        let call = json!({"index": 0, "id": "1", "function": {"name": wire, "arguments": "{}"}});
        let mut pieces: Vec<_> = assembler.take(&delta(json!({"tool_calls": [call]}))).unwrap().into_iter().collect();
        pieces.extend(assembler.take(&end("tool_calls")).unwrap());
        pieces.extend(assembler.finish());
        let answer = serde_json::to_value(join(pieces)).unwrap();
        assert_eq!(answer["candidates"][0]["content"]["parts"][0]["functionCall"]["name"], own);
    }
}
