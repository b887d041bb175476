use super::*;
use convoke_adk::{FunctionCall, FunctionResponse, UsageMetadata};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

fn call() -> FunctionCall {
    FunctionCall { id: Some("c".into()), name: "f".into(), args: json!({"a": 1}) }
}

fn content(role: Role, parts: Vec<Part>) -> Arc<Content> {
    Arc::new(Content { role, parts })
}

/// A picture with a question, a thought with words and a call, its response, an answer.
fn request() -> LlmRequest {
    let contents = vec![
        content(Role::User, vec![Part::inline_data("image/png", "AAAA"), Part::text("what is it?")]),
        content(Role::Model, vec![Part::thought("hm"), Part::text("Let me look."), Part::call(&call())]),
        content(Role::User, vec![Part::response(&FunctionResponse::output(&call(), "a cat"))]),
        content(Role::Model, vec![Part::text("A cat.")]),
        content(Role::User, vec![Part::text("sure?")]),
    ];
    LlmRequest { model: "m".into(), contents, ..LlmRequest::default() }
}

fn changed(messages: Value) -> Vec<String> {
    let mut request = request();
    let change = json!({"messages": messages});
    change_request(&mut request, change.as_object().unwrap());
    let shown = request.contents.iter().map(|content| format!("{} {:?}", role_name(content.role), content.parts));
    shown.collect()
}

#[test]
fn a_request_shows_what_was_said() {
    assert_eq!(
        request_json(&request()),
        json!({"model": "m", "config": {}, "messages": [
            {"role": "user", "content": "what is it?"},
            {"role": "model", "content": "Let me look."},
            {"role": "model", "content": "A cat."},
            {"role": "user", "content": "sure?"},
        ]})
    );
}

#[test]
fn what_was_not_shown_survives_any_rewriting() {
    let original = request();
    let same = request_json(&original)["messages"].clone();
    let mut request = original.clone();
    change_request(&mut request, json!({"messages": same}).as_object().unwrap());
    assert_eq!(request.contents, original.contents);
    assert!(request.contents.iter().zip(&original.contents).all(|(a, b)| Arc::ptr_eq(a, b)), "nothing was copied");

    let mut edited = same.clone();
    edited[1]["content"] = "I look.".into();
    edited.as_array_mut().unwrap().push(json!({"role": "user", "content": "And be brief."}));
    let shown = changed(edited);
    assert_eq!(shown.len(), 6);
    assert!(shown[0].contains("image/png"));
    assert!(shown[1].contains("\"hm\"") && shown[1].contains("I look.") && shown[1].contains("functionCall"));
    assert!(shown[2].contains("functionResponse"));
    assert!(shown[5].contains("And be brief."));

    let shown = changed(json!([{"role": "user", "content": "only this"}]));
    assert!(shown[0].contains("image/png") && shown[0].contains("only this"), "{shown:#?}");
    assert!(shown[1].contains("functionCall") && !shown[1].contains("Let me look."), "{shown:#?}");
    assert!(shown[2].contains("functionResponse"));
    assert_eq!(shown.len(), 3, "{shown:#?}");
}

#[test]
fn instructions_models_and_parameters_are_merged() {
    let mut request = request();
    let change = json!({
        "model": "other", "config": {"temperature": 0.5, "topK": 7, "maxOutputTokens": 99},
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "tool", "content": "x"}],
    });
    request.config.top_p = Some(0.9);
    change_request(&mut request, change.as_object().unwrap());
    assert_eq!((request.model.as_str(), request.system_instruction), ("other", vec!["Be kind.".to_owned()]));
    let config = &request.config;
    assert_eq!((config.temperature, config.top_p, config.top_k), (Some(0.5), Some(0.9), Some(7)));
    assert_eq!(config.max_output_tokens, Some(99));
}

#[test]
fn a_piece_is_changed_around_its_call() {
    let usage = UsageMetadata { prompt_token_count: 3, ..UsageMetadata::default() };
    let parts = vec![Part::thought("hm"), Part::text("secret"), Part::call(&call())];
    let response = LlmResponse {
        content: Some(Content { role: Role::Model, parts }),
        usage: Some(usage.clone()),
        ..LlmResponse::default()
    };
    let shown = response_json(&response);
    assert_eq!(shown["text"], "secret");
    assert_eq!(shown["candidates"], json!([{"content": {"role": "model", "parts": ["secret"]}, "index": 0}]));
    assert_eq!(shown["usageMetadata"]["promptTokenCount"], 3);
    let own = json!({"candidates": [{"content": {"parts": ["***"]}, "finishReason": "STOP"}]});
    let changed = changed_response(&response, &own);
    let parts = changed.content.unwrap().parts;
    assert_eq!(parts, [Part::thought("hm"), Part::text("***"), Part::call(&call())]);
    assert_eq!((changed.finish_reason, changed.usage), (Some(FinishReason::stop()), Some(usage)));
    assert_eq!(synthetic(&json!({"text": "hi"})).content.unwrap().joined_text(), "hi");
}

fn any_messages() -> impl Strategy<Value = Vec<Value>> {
    let text =
        prop_oneof![Just("what is it?"), Just("Let me look."), Just("A cat."), Just("sure?"), Just("new"), Just("")];
    let role = prop_oneof![Just("user"), Just("model"), Just("system")];
    prop::collection::vec((role, text).prop_map(|(role, text)| json!({"role": role, "content": text})), 0..7)
}

proptest! {
    /// Whatever a hook writes back, what it could not see is there, once and in its order, and what it wrote is said.
    #[test]
    #[test]
    fn nothing_unseen_is_lost(messages in any_messages()) {
        let unseen = |contents: &[Arc<Content>]| -> Vec<Part> {
            contents.iter().flat_map(|content| content.parts.clone()).filter(|part| !is_said(part)).collect()
        };
        let mut request = request();
        let before = unseen(&request.contents);
        change_request(&mut request, json!({"messages": messages}).as_object().unwrap());
        prop_assert_eq!(unseen(&request.contents), before);
        let said: Vec<String> =
            request.contents.iter().map(|c| c.joined_text()).filter(|text| !text.is_empty()).collect();
        let written: Vec<&str> = messages
            .iter()
            .filter(|message| message["role"] != "system")
            .filter_map(|message| message["content"].as_str())
            .filter(|text| !text.is_empty())
            .collect();
        prop_assert_eq!(said, written);
    }
}
