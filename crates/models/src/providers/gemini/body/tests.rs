use std::sync::Arc;
use std::time::{Duration, Instant};

use convoke_adk::FunctionDeclaration;
use pretty_assertions::assert_eq;

use super::*;

fn contents(value: Value) -> Vec<Arc<Content>> {
    serde_json::from_value::<Vec<Content>>(value).unwrap().into_iter().map(Arc::new).collect()
}

fn request(model: &str, value: Value) -> LlmRequest {
    LlmRequest { model: model.into(), contents: contents(value), ..LlmRequest::default() }
}

fn body(request: &LlmRequest) -> Value {
    serde_json::to_value(generate(request)).unwrap()
}

#[test]
fn a_whole_request() {
    let mut request = request("gemini-2.5-flash", json!([{"role": "user", "parts": [{"text": "hi"}]}]));
    request.system_instruction = vec!["a".into(), "b".into()];
    request.config.temperature = Some(1.0);
    request.config.include_thoughts = Some(true);
    request.config.max_output_tokens = Some(7);
    let extra = json!({"thinkingConfig": {"thinkingBudget": 8192}, "seed": 3, "safetySettings": [],
        "tools": [{"googleSearch": {}}]});
    request.config.extra = extra.as_object().unwrap().clone();
    let parameters = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let tool = FunctionDeclaration { name: "f".into(), description: "does".into(), parameters: parameters.clone() };
    Arc::make_mut(&mut request.tools).insert("f".into(), tool);
    request.allowed_tools = Some(vec!["f".into()]);
    let text = serde_json::to_string(&generate(&request)).unwrap();
    let expected = json!({
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "systemInstruction": {"parts": [{"text": "a\n\nb"}]},
        "tools": [
            {"functionDeclarations": [{"name": "f", "description": "does", "parametersJsonSchema": parameters}]},
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}},
        "safetySettings": [],
        "generationConfig": {
            "temperature": 1.0, "maxOutputTokens": 7,
            "thinkingConfig": {"thinkingBudget": 8192, "includeThoughts": true}, "seed": 3,
        },
    });
    // As text, because the order of keys is part of what a provider caches.
    assert_eq!(text, expected.to_string());
}

#[test]
fn nothing_is_made_up() {
    let request = request("gemini-2.0-flash", json!([{"role": "user", "parts": [{"text": "hi"}]}]));
    assert_eq!(body(&request), json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}));
    let mut silent = request.clone();
    silent.config.include_thoughts = Some(true);
    assert_eq!(body(&silent), body(&request), "the model has no thoughts");
}

#[test]
fn parts_go_back_as_they_came() {
    let history = json!([
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [
            {"text": "t", "thought": true, "thoughtSignature": "s0"},
            {"text": "a", "thoughtSignature": "s1"},
            {"text": "", "thoughtSignature": "s2"},
            {"functionCall": {"id": "theirs", "name": "f", "args": {"b": 1, "a": 2}, "x": 1}, "brandNew": [1]},
        ]},
        {"role": "user", "parts": [{"functionResponse": {"id": "theirs", "name": "f", "response": {"output": "o"}}}]},
    ]);
    assert_eq!(body(&request("gemini-2.5-pro", history.clone()))["contents"].to_string(), history.to_string());
}

#[test]
fn what_the_api_would_refuse_is_left_away() {
    let request = request(
        "gemini-2.5-pro",
        json!([
            {"role": "user", "parts": [{"text": "hi"}, {"text": ""}]},
            {"role": "model", "parts": [{"text": "t", "thought": true}]},
            {"role": "model", "parts": []},
            {"role": "model", "parts": [{"functionCall": {"id": "adk-1", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "adk-1", "name": "f", "response": {}}}]},
        ]),
    );
    let expected = json!([
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
    ]);
    assert_eq!(body(&request)["contents"], expected);
}

#[test]
fn gemini_3_gets_signatures_in_the_current_loop() {
    let call = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
    let signed = |name: &str, signature: &str| json!({"functionCall": {"name": name, "args": {}}, "thoughtSignature": signature});
    let answer = json!({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]});
    let user = json!({"role": "user", "parts": [{"text": "hi"}]});
    let history = |first: Value, second: Value, third: Value| {
        json!([
            user, {"role": "model", "parts": [call("old")]}, answer,
            user, {"role": "model", "parts": [{"text": "a"}, first, call("parallel")]}, answer,
            {"role": "model", "parts": [second]}, answer,
            {"role": "model", "parts": [third]}, answer,
        ])
    };
    let sent = history(call("a"), signed("b", "real"), call("c"));
    let expected = history(signed("a", NO_SIGNATURE), signed("b", "real"), signed("c", NO_SIGNATURE));
    assert_eq!(body(&request("gemini-3-flash-preview", sent.clone()))["contents"], expected);
    assert_eq!(body(&request("gemini-2.5-flash", sent.clone()))["contents"], sent);
}

#[test]
fn counts_and_vectors() {
    let mut request = request("gemini-2.5-flash", json!([{"role": "user", "parts": [{"text": "hi"}]}]));
    let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
    let counted = |request: &LlmRequest| serde_json::to_value(count(request)).unwrap();
    assert_eq!(counted(&request), json!({"contents": contents}));
    request.system_instruction = vec!["a".into()];
    let whole = json!({"model": "models/gemini-2.5-flash", "contents": contents,
        "systemInstruction": {"parts": [{"text": "a"}]}});
    assert_eq!(counted(&request), json!({"generateContentRequest": whole}));
    let body = serde_json::to_vec(&embed(&EmbedRequest { model: "e".into(), texts: vec!["t".into()] })).unwrap();
    let one = json!({"model": "models/e", "content": {"parts": [{"text": "t"}]}});
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), json!({"requests": [one]}));
}

/// Prints what writing a long history costs; the figure is for people, and not asserted.
#[test]
fn long_histories_are_written_in_one_pass() {
    let mut history = Vec::new();
    for n in 0..200 {
        history.push(json!({"role": "model", "parts": [
            {"functionCall": {"id": format!("adk-{n}"), "name": "read_file", "args": {"file_path": format!("src/{n}.rs")}}}]}));
        history.push(json!({"role": "user", "parts": [{"functionResponse":
            {"id": format!("adk-{n}"), "name": "read_file", "response": {"output": "line of a file\n".repeat(90)}}}]}));
    }
    let request = request("gemini-3-flash-preview", Value::Array(history));
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        let body = serde_json::to_vec(&generate(&request)).unwrap();
        best = best.min(start.elapsed());
        assert!(body.len() > 270_000 && !body.windows(4).any(|bytes| bytes == b"adk-"));
    }
    println!("200 calls of history: {best:?}");
}
