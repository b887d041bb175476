use std::sync::Arc;

use convoke_adk::FunctionDeclaration;
use pretty_assertions::assert_eq;

use super::*;

fn request(contents: Value) -> LlmRequest {
    let contents = serde_json::from_value::<Vec<Content>>(contents).unwrap();
    LlmRequest { model: "m".into(), contents: contents.into_iter().map(Arc::new).collect(), ..LlmRequest::default() }
}

fn body(request: &LlmRequest, dialect: &Dialect, shape: Shape) -> Value {
    serde_json::to_value(chat(request, dialect, shape)).unwrap()
}

fn check(contents: Value, messages: Value) {
    let body = body(&request(contents), &Dialect::default(), Shape::Whole);
    assert_eq!(body, json!({"model": "m", "messages": messages}));
}

#[test]
fn a_whole_request() {
    let mut request = request(json!([{"role": "user", "parts": [{"text": "hi"}]}]));
    request.system_instruction = vec!["a".into(), "b".into()];
    request.config.temperature = Some(0.5);
    request.config.top_k = Some(64);
    request.config.max_output_tokens = Some(7);
    let extra = json!({"thinkingConfig": {}, "tools": [{"googleSearch": {}}], "seed": 3, "stopSequences": ["x"],
        "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}});
    request.config.extra = extra.as_object().unwrap().clone();
    for name in ["f", "g"] {
        let tool = FunctionDeclaration { name: name.into(), description: "d".into(), parameters: json!({}) };
        Arc::make_mut(&mut request.tools).insert(name.into(), tool);
    }
    request.allowed_tools = Some(vec!["g".into()]);
    let extra_body = json!({"temperature": 0.9, "reasoning_effort": "low"}).as_object().unwrap().clone();
    let dialect = Dialect { include_usage: true, max_completion_tokens: true, extra_body };
    let expected = json!({
        "model": "m",
        "messages": [{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "g", "description": "d", "parameters": {}}}],
        "tool_choice": "auto",
        "max_completion_tokens": 7,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "stop": ["x"],
        "stream": true,
        "stream_options": {"include_usage": true},
        "seed": 3,
        "temperature": 0.9,
        "reasoning_effort": "low",
    });
    assert_eq!(body(&request, &dialect, Shape::Stream), expected);
}

#[test]
fn calls_and_results() {
    check(
        json!([
            {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
            {"role": "model", "parts": [{"text": "t", "thought": true}, {"text": "x"}, {"text": "y"},
                {"functionCall": {"id": "adk-1", "name": "f", "args": {"q": "\""}}}, {"functionCall": {"name": "g"}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "adk-1", "name": "f", "response": {"output": "o"}}},
                {"functionResponse": {"name": "g", "response": {"error": "e"}}}]},
            {"role": "model", "parts": [{"text": "done"}]},
        ]),
        json!([
            {"role": "user", "content": "a\n\nb"},
            {"role": "assistant", "content": "xy", "tool_calls": [
                {"id": "adk-1", "type": "function", "function": {"name": "f", "arguments": "{\"q\":\"\\\"\"}"}},
                {"id": "call_1_1", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "content": "o", "tool_call_id": "adk-1"},
            {"role": "tool", "content": "{\"error\":\"e\"}", "tool_call_id": "call_1_1"},
            {"role": "assistant", "content": "done"},
        ]),
    );
}

#[test]
fn results_find_their_calls_in_any_order() {
    let call = |id: &str| json!({"functionCall": {"id": id, "name": "f", "args": {}}});
    let result = |id: &str| json!({"functionResponse": {"id": id, "name": "f", "response": {"output": id}}});
    let body = body(
        &request(json!([
            {"role": "model", "parts": [call("1"), call("2")]},
            {"role": "user", "parts": [result("2"), result("1")]},
        ])),
        &Dialect::default(),
        Shape::Whole,
    );
    let messages = body["messages"].as_array().unwrap();
    let told: Vec<_> = messages[1..].iter().map(|m| (m["tool_call_id"].clone(), m["content"].clone())).collect();
    assert_eq!(told, [(json!("2"), json!("2")), (json!("1"), json!("1"))]);
}

#[test]
fn broken_histories_are_mended() {
    let call = json!({"functionCall": {"id": "1", "name": "f", "args": {}}});
    let assistant = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let notice = "The call was interrupted and has no result.";
    check(
        json!([
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": [{"text": "hello?"}]},
            {"role": "model", "parts": [{"text": "t", "thought": true}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "9", "name": "lost", "response": {"output": [1]}}}]},
            {"role": "model", "parts": [call]},
        ]),
        json!([
            assistant,
            {"role": "tool", "content": notice, "tool_call_id": "1"},
            {"role": "user", "content": "hello?"},
            {"role": "user", "content": "Result of lost: [1]"},
            assistant,
            {"role": "tool", "content": notice, "tool_call_id": "1"},
        ]),
    );
}

#[test]
fn media() {
    check(
        json!([{"role": "user", "parts": [
            {"text": "see"},
            {"inlineData": {"mimeType": "image/png", "data": "QQ=="}},
            {"fileData": {"mimeType": "image/png", "fileUri": "https://x/y.png"}},
            {"inlineData": {"mimeType": "audio/wav", "data": "QQ=="}},
            {"inlineData": {"mimeType": "application/zip", "data": "QQ=="}},
        ]}]),
        json!([{"role": "user", "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
            {"type": "text", "text": "[An attachment of type application/zip that this model can't be shown.]"},
        ]}]),
    );
}

#[test]
fn names_that_the_protocol_refuses_travel_as_others_in_tools_and_history_alike() {
    let mut request = request(json!([
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "mcp_a.b_c", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "mcp_a.b_c", "response": {"output": "o"}}}]},
    ]));
    for name in ["mcp_a.b_c", "mcp_a_b_c"] {
        let tool = FunctionDeclaration { name: name.into(), description: "d".into(), parameters: json!({}) };
        Arc::make_mut(&mut request.tools).insert(name.into(), tool);
    }
    let body = body(&request, &Dialect::default(), Shape::Whole);
    assert_eq!(body["tools"][0]["function"]["name"], "mcp_a_b_c_2");
    assert_eq!(body["tools"][1]["function"]["name"], "mcp_a_b_c");
    assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["name"], "mcp_a_b_c_2");
    assert_eq!(body["messages"][2]["tool_call_id"], "1");
}
