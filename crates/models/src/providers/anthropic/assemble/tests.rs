use pretty_assertions::assert_eq;

use super::*;

fn assemble(events: &[Value]) -> Result<(Value, GenerateResponse), ModelError> {
    let mut assembler = Assembler::default();
    let mut parts = Vec::new();
    for event in events {
        let piece = assembler.take(event.clone())?;
        parts.extend(piece.iter().flat_map(GenerateResponse::parts).cloned().map(Value::Object));
    }
    let last = assembler.finish()?;
    parts.extend(last.parts().cloned().map(Value::Object));
    Ok((parts.into(), last))
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
}

fn call(json: &str) -> [Value; 3] {
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}});
    [start(0, block), delta(0, json!({"type": "input_json_delta", "partial_json": json})), stop(0)]
}

#[test]
fn text_thoughts_and_calls() {
    let usage = json!({"input_tokens": 5, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20,
        "output_tokens": 1, "service_tier": "standard"});
    let (parts, last) = assemble(&[
        json!({"type": "message_start", "message": {"model": "claude-x", "usage": usage}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "si"})),
        delta(0, json!({"type": "signature_delta", "signature": "g"})),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "Hi"})),
        delta(1, json!({"type": "text_delta", "text": "."})),
        stop(1),
        start(2, json!({"type": "tool_use", "id": "t", "name": "ls", "input": {}, "caller": {"type": "direct"}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"path\": \"a"})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "b\"}"})),
        stop(2),
        end("tool_use"),
        json!({"type": "message_stop"}),
    ])
    .unwrap();
    let expected = json!([
        {"text": "h", "thought": true},
        {"text": "m", "thought": true},
        {"thought": true, "anthropic": {"type": "thinking", "thinking": "hm", "signature": "sig"}},
        {"text": "Hi"},
        {"text": "."},
        {"functionCall": {"id": "t", "name": "ls", "args": {"path": "ab"}}, "anthropic": {"caller": {"type": "direct"}}},
    ]);
    assert_eq!(parts, expected);
    let usage = last.usage().unwrap();
    assert_eq!((usage.prompt_token_count, usage.cached_content_token_count), (95, 70));
    assert_eq!((usage.candidates_token_count, usage.total_token_count), (9, 104));
    assert_eq!((last.finish_reason(), last.model_version()), (Some("STOP"), Some("claude-x")));
}

#[test]
fn blocks_and_deltas_of_unknown_kinds_arrive_whole() {
    let (parts, _) = assemble(&[
        start(0, json!({"type": "redacted_thinking", "data": "opaque"})),
        stop(0),
        start(1, json!({"type": "dream", "images": "a", "depth": 1})),
        delta(1, json!({"type": "dream_delta", "images": "b"})),
        delta(1, json!({"type": "dream_delta", "depth": 2, "mood": "calm"})),
        delta(1, json!({"type": "citations_delta", "citation": {"n": 1}})),
        delta(1, json!({"type": "citations_delta", "citation": {"n": 2}})),
        stop(1),
        start(2, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{\"query\":\"x\"}"})),
        stop(2),
        json!({"type": "brand_new_event", "index": 1}),
        end("end_turn"),
    ])
    .unwrap();
    let kept = |block: Value| json!({"thought": true, "anthropic": block});
    let expected = json!([
        kept(json!({"type": "redacted_thinking", "data": "opaque"})),
        kept(json!({"type": "dream", "images": "ab", "depth": 2, "mood": "calm", "citations": [{"n": 1}, {"n": 2}]})),
        kept(json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}})),
    ]);
    assert_eq!(parts, expected);
}

#[test]
fn a_thought_without_a_signature_is_only_shown() {
    let block = json!({"type": "thinking", "thinking": "hm"});
    let (parts, _) = assemble(&[start(0, block), stop(0), end("end_turn")]).unwrap();
    assert_eq!(parts, json!([{"text": "hm", "thought": true}]));
}

#[test]
fn reasons() {
    for (reason, expected) in [
        ("end_turn", "STOP"),
        ("stop_sequence", "STOP"),
        ("tool_use", "STOP"),
        ("pause_turn", "STOP"),
        ("max_tokens", "MAX_TOKENS"),
        ("model_context_window_exceeded", "MAX_TOKENS"),
        ("refusal", "SAFETY"),
        ("brand_new", "OTHER"),
    ] {
        assert_eq!(assemble(&[end(reason)]).unwrap().1.finish_reason(), Some(expected), "{reason}");
    }
}

#[test]
fn an_answer_without_its_end_broke_off() {
    let [start, delta, stop] = call("{}");
    for events in [vec![], vec![start.clone()], vec![start.clone(), delta.clone(), stop.clone()]] {
        let error = assemble(&events).unwrap_err();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ModelErrorKind::Network, "the model's answer broke off before its end")
        );
    }
    // The reason is an end, even if the last event or a block's stop never came.
    let (parts, last) = assemble(&[start, delta, end("tool_use")]).unwrap();
    assert_eq!((parts[0]["functionCall"]["name"].as_str(), last.finish_reason()), (Some("f"), Some("STOP")));
}

#[test]
fn calls_that_can_not_be_read() {
    for json in ["{\"a\": ", "[1]", "nonsense", "\"text\""] {
        let events: Vec<_> = call(json).into_iter().chain([end("tool_use")]).collect();
        let (parts, last) = assemble(&events).unwrap();
        assert_eq!((parts, last.finish_reason()), (json!([]), Some("MALFORMED_FUNCTION_CALL")), "{json}");
    }
    let cut: Vec<_> = call("{\"a\": ").into_iter().chain([end("max_tokens")]).collect();
    assert_eq!(assemble(&cut).unwrap().1.finish_reason(), Some("MAX_TOKENS"));
    let nameless = start(0, json!({"type": "tool_use", "id": "x", "input": {}}));
    let (parts, last) = assemble(&[nameless, stop(0), end("tool_use")]).unwrap();
    assert_eq!((parts, last.finish_reason()), (json!([]), Some("MALFORMED_FUNCTION_CALL")));
}

#[test]
fn errors_inside_of_a_stream() {
    for (kind, expected, status) in [
        ("overloaded_error", ModelErrorKind::Server, 503),
        ("rate_limit_error", ModelErrorKind::RateLimit, 429),
        ("api_error", ModelErrorKind::Server, 500),
        ("authentication_error", ModelErrorKind::Auth, 401),
        ("permission_error", ModelErrorKind::Auth, 403),
        ("billing_error", ModelErrorKind::Quota, 402),
        ("request_too_large", ModelErrorKind::BadRequest, 413),
        ("invalid_request_error", ModelErrorKind::BadRequest, 400),
        ("not_found_error", ModelErrorKind::NotFound, 404),
        ("timeout_error", ModelErrorKind::Server, 504),
    ] {
        let event = json!({"type": "error", "error": {"type": kind, "message": "so it is"}});
        let error = assemble(&[event]).unwrap_err();
        assert_eq!((error.kind, error.status, error.message.as_str()), (expected, Some(status), "so it is"), "{kind}");
    }
}

#[test]
fn open_blocks_are_bounded() {
    let events: Vec<_> = (0..100).map(|index| start(index, json!({"type": "text", "text": ""}))).collect();
    assert_eq!(assemble(&events).unwrap_err().kind, ModelErrorKind::InvalidStream);
}

#[test]
fn odd_events_are_passed_over() {
    let (parts, _) = assemble(&[
        json!(null),
        json!([]),
        json!({}),
        json!({"type": 3}),
        json!({"type": "message_start"}),
        json!({"type": "content_block_start", "index": 0}),
        delta(7, json!({"type": "text_delta", "text": "nobody's"})),
        stop(7),
        json!({"type": "content_block_delta"}),
        json!({"type": "message_delta"}),
        json!({"type": "message_stop"}),
    ])
    .unwrap();
    assert_eq!(parts, json!([]));
}
