use std::sync::Arc;

use convoke_adk::{FunctionDeclaration, GenerateConfig};
use indexmap::IndexMap;
use pretty_assertions::assert_eq;

use super::*;

fn content(value: Value) -> Arc<Content> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn request(contents: &[Value]) -> LlmRequest {
    let contents = contents.iter().cloned().map(content).collect();
    LlmRequest { model: "claude-sonnet-4-5".into(), contents, ..LlmRequest::default() }
}

fn body_of(request: &LlmRequest, shape: Shape) -> Value {
    let dialect = Dialect { caching: false, extra_body: Map::new() };
    serde_json::to_value(messages(request, &dialect, shape)).unwrap()
}

fn sent(contents: &[Value]) -> Value {
    body_of(&request(contents), Shape::Stream)["messages"].take()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

fn calls(ids: &[Value]) -> Value {
    let call = |id: &Value| json!({"functionCall": {"id": id, "name": "f", "args": {"a": 1}}});
    json!({"role": "model", "parts": ids.iter().map(call).collect::<Vec<_>>()})
}

fn result(id: &Value, response: Value) -> Value {
    json!({"functionResponse": {"id": id, "name": "f", "response": response}})
}

fn with_tool(mut request: LlmRequest, name: &str, parameters: Value) -> LlmRequest {
    let tool = FunctionDeclaration { name: name.to_owned(), description: "does".into(), parameters };
    request.tools = Arc::new(IndexMap::from([(name.to_owned(), tool)]));
    request
}

#[test]
fn a_conversation_with_tools() {
    let contents = [
        user("hi"),
        json!({"role": "model", "parts": [
            {"text": "hm", "thought": true},
            {"thought": true, "anthropic": {"type": "thinking", "thinking": "hm", "signature": "s", "new": [1]}},
            {"text": "Let me look."},
            {"functionCall": {"id": "toolu_1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "gemini's",
                "anthropic": {"caller": {"type": "direct"}}},
        ]}),
        json!({"role": "user", "parts": [result(&json!("toolu_1"), json!({"output": "seen"})), {"text": "and?"}]}),
        json!({"role": "model", "parts": [{"text": "Done."}]}),
    ];
    let expected = json!([
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s", "new": [1]},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"},
            {"type": "text", "text": "and?"},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]);
    assert_eq!(sent(&contents), expected);
}

#[test]
fn results_stand_first_and_find_their_calls() {
    let contents = [
        user("hi"),
        calls(&[json!("a"), json!("b"), json!(null)]),
        // In two contents, in another order, one without an id, one that nobody asked for.
        json!({"role": "user", "parts": [{"text": "meanwhile"}, result(&json!("b"), json!({"error": "broken"}))]}),
        json!({"role": "user", "parts": [result(&json!("a"), json!({"output": {"x": 1}}))]}),
        json!({"role": "user", "parts": [result(&json!(null), json!({"output": "third"}))]}),
        json!({"role": "user", "parts": [{"functionResponse": {"name": "g", "response": {"output": "lost"}}}]}),
    ];
    let last = sent(&contents)[2].take();
    let expected = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "b", "content": "broken", "is_error": true},
        {"type": "tool_result", "tool_use_id": "a", "content": "{\"x\":1}"},
        {"type": "tool_result", "tool_use_id": "call_1_2", "content": "third"},
        {"type": "text", "text": "meanwhile"},
        {"type": "text", "text": "Result of g: lost"},
    ]});
    assert_eq!(last, expected);
}

#[test]
fn calls_without_results_are_answered() {
    let contents = [user("hi"), calls(&[json!("a")]), user("never mind")];
    let expected = json!([
        {"type": "tool_result", "tool_use_id": "a", "content": "The call was interrupted and has no result.",
            "is_error": true},
        {"type": "text", "text": "never mind"},
    ]);
    assert_eq!(sent(&contents)[2]["content"], expected);
    let open_at_the_end = sent(&[user("hi"), calls(&[json!("a")])]);
    assert_eq!(open_at_the_end[2]["content"][0]["type"], "tool_result");
}

#[test]
fn ids_are_plain_and_never_repeat() {
    let answer = |id: &str| json!({"role": "user", "parts": [result(&json!(id), json!({"output": "x"}))]});
    let odd = "functions.f:0";
    let contents = [user("hi"), calls(&[json!(odd)]), answer(odd), calls(&[json!(odd)]), answer(odd)];
    let sent = sent(&contents);
    let ids: Vec<_> = [1, 3].map(|at| sent[at]["content"][0]["id"].as_str().unwrap().to_owned()).into();
    assert_eq!(ids, ["functions_f_0", "call_3_0"]);
    let answered: Vec<_> = [2, 4].map(|at| sent[at]["content"][0]["tool_use_id"].as_str().unwrap().to_owned()).into();
    assert_eq!(answered, ids);
}

#[test]
fn roles_alternate_from_the_user_on_and_nothing_is_blank() {
    let model = |text: &str| json!({"role": "model", "parts": [{"text": text}]});
    let contents = [model("a"), model("b"), user("c"), user(" \n"), user("d"), model("")];
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!([
        {"role": "user", "content": [text("[The beginning of the conversation is not here.]")]},
        {"role": "assistant", "content": [text("a"), text("b")]},
        {"role": "user", "content": [text("c"), text("d")]},
    ]);
    assert_eq!(sent(&contents), expected);
}

#[test]
fn attachments() {
    let inline = |mime: &str| json!({"inlineData": {"mimeType": mime, "data": "QQ=="}});
    let contents = [json!({"role": "user", "parts": [
        inline("image/png"), inline("application/pdf"), inline("video/mp4"),
        {"fileData": {"mimeType": "image/webp", "fileUri": "https://x/y.webp"}},
    ]})];
    let base64 = |mime: &str| json!({"type": "base64", "media_type": mime, "data": "QQ=="});
    let expected = json!([
        {"type": "image", "source": base64("image/png")},
        {"type": "document", "source": base64("application/pdf")},
        {"type": "text", "text": "[An attachment of type video/mp4 that this model can't be shown.]"},
        {"type": "image", "source": {"type": "url", "url": "https://x/y.webp"}},
    ]);
    assert_eq!(sent(&contents)[0]["content"], expected);
}

#[test]
fn the_cache_is_marked_twice() {
    let mut request = request(&[user("a"), user("b")]);
    request.system_instruction = vec!["be".into(), "good".into()];
    let dialect = Dialect { caching: true, extra_body: Map::new() };
    let body: Value = serde_json::to_value(messages(&request, &dialect, Shape::Stream)).unwrap();
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body["system"], json!([{"type": "text", "text": "be\n\ngood", "cache_control": mark}]));
    let expected = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": mark}]);
    assert_eq!(body["messages"][0]["content"], expected);
    let marks = body.to_string().matches("cache_control").count();
    assert_eq!(marks, 2);
}

#[test]
fn tools_and_choices() {
    let any = json!({"functionCallingConfig": {"mode": "ANY"}});
    let mut request = with_tool(request(&[user("a")]), "mcp.x:f", json!({"properties": {}}));
    let body = body_of(&request, Shape::Stream);
    let schema = json!({"properties": {}, "type": "object"});
    assert_eq!(body["tools"], json!([{"name": "mcp_x_f", "description": "does", "input_schema": schema}]));
    assert_eq!(body.get("tool_choice"), None);
    request.config.extra.insert("toolConfig".into(), any);
    assert_eq!(body_of(&request, Shape::Stream)["tool_choice"], json!({"type": "any"}));
    request.allowed_tools = Some(vec![]);
    let body = body_of(&request, Shape::Stream);
    assert_eq!((&body["tool_choice"], body["tools"].as_array().unwrap().len()), (&json!({"type": "none"}), 1));
    request.allowed_tools = Some(vec!["other".into()]);
    assert_eq!(body_of(&request, Shape::Stream).get("tools"), None);
}

#[test]
fn parameters() {
    let mut request = request(&[user("a")]);
    request.config =
        GenerateConfig { temperature: Some(0.5), max_output_tokens: Some(99), ..GenerateConfig::default() };
    for (key, value) in [
        ("stopSequences", json!(["END"])),
        ("responseMimeType", json!("application/json")),
        ("thinkingConfig", json!({"thinkingBudget": 1})),
        ("service_tier", json!("auto")),
    ] {
        request.config.extra.insert(key.into(), value);
    }
    let extra_body = Map::from_iter([("max_tokens".to_owned(), json!(7)), ("metadata".to_owned(), json!({}))]);
    let dialect = Dialect { caching: false, extra_body };
    let body: Value = serde_json::to_value(messages(&request, &dialect, Shape::Stream)).unwrap();
    let system = "Answer with one JSON value and nothing else, no fence and no word around it.";
    let expected = json!({
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": system}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "temperature": 0.5, "stop_sequences": ["END"], "stream": true,
        "service_tier": "auto", "max_tokens": 7, "metadata": {},
    });
    assert_eq!(body, expected);
    let counted: Value = serde_json::to_value(messages(&request, &dialect, Shape::Count)).unwrap();
    let keys: Vec<_> = counted.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model", "system", "messages"]);
}

#[test]
fn two_names_that_would_be_one_on_the_wire_stay_two() {
    let request = request(&[
        json!({"role": "user", "parts": [{"text": "hi"}]}),
        json!({"role": "model", "parts": [{"functionCall": {"id": "1", "name": "mcp_a.b", "args": {}}}]}),
    ]);
    let mut request = with_tool(request, "mcp_a.b", json!({}));
    let other = with_tool(LlmRequest::default(), "mcp_a_b", json!({}));
    Arc::make_mut(&mut request.tools).extend(other.tools.iter().map(|(name, tool)| (name.clone(), tool.clone())));
    let dialect = Dialect { caching: false, extra_body: Map::new() };
    let body: Value = serde_json::to_value(messages(&request, &dialect, Shape::Stream)).unwrap();
    assert_eq!([&body["tools"][0]["name"], &body["tools"][1]["name"]], ["mcp_a_b_2", "mcp_a_b"]);
    assert_eq!(body["messages"][1]["content"][0]["name"], "mcp_a_b_2");
}
