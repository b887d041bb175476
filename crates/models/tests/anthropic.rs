//! The Anthropic provider against a scripted server: what is sent, and what comes back?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use convoke_adk::{Content, LlmRequest, ModelError, ModelErrorKind, Role};
use convoke_models::{
    AnthropicAuth, AnthropicOptions, ContentGenerator, EmbedRequest, GenerateResponse, Options, Provider, connect,
};
use convoke_testkit::fake_model::FakeModel;
use futures::TryStreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn options(base_url: &str) -> AnthropicOptions {
    AnthropicOptions {
        base_url: base_url.to_owned(),
        api_key: Some("sk-ant-secret".to_owned().into()),
        ..AnthropicOptions::default()
    }
}

fn anthropic(options: AnthropicOptions) -> Arc<dyn ContentGenerator> {
    connect(Options::new(Provider::Anthropic(options))).unwrap()
}

fn request() -> Arc<LlmRequest> {
    asking(vec![Content::user("hi")])
}

fn asking(contents: Vec<Content>) -> Arc<LlmRequest> {
    let contents = contents.into_iter().map(Arc::new).collect();
    Arc::new(LlmRequest { model: "claude-sonnet-4-5".into(), contents, ..LlmRequest::default() })
}

async fn stream(
    generator: &Arc<dyn ContentGenerator>,
    request: Arc<LlmRequest>,
) -> Result<Vec<GenerateResponse>, ModelError> {
    generator.generate_content_stream(request, CancellationToken::new()).try_collect().await
}

fn parts(pieces: &[GenerateResponse]) -> Value {
    pieces.iter().flat_map(GenerateResponse::parts).cloned().map(Value::Object).collect()
}

#[tokio::test]
async fn a_streamed_answer_and_its_way_back() {
    let model = FakeModel::start().await.unwrap();
    model.thinks("hm").then_says("Hi.").then_calls("ls", json!({"path": "ü"}));
    model.says("Done.");
    let generator = anthropic(options(&model.anthropic_url()));
    let pieces = stream(&generator, request()).await.unwrap();
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "signature-0"});
    let expected = json!([
        {"text": "hm", "thought": true},
        {"thought": true, "anthropic": thinking},
        {"text": "Hi."},
        {"functionCall": {"id": "toolu_2", "name": "ls", "args": {"path": "ü"}}},
    ]);
    assert_eq!(parts(&pieces), expected);
    let last = pieces.last().unwrap();
    let usage = last.usage().unwrap();
    assert_eq!((last.finish_reason(), last.model_version()), (Some("STOP"), Some("fake-model")));
    assert_eq!((usage.prompt_token_count, usage.cached_content_token_count, usage.total_token_count), (10, 3, 15));

    let sent = model.requests().remove(0);
    assert_eq!(sent.path, "/v1/messages");
    assert_eq!((sent.header("x-api-key"), sent.header("authorization")), (Some("sk-ant-secret"), None));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
    let mark = json!({"type": "ephemeral"});
    let text = json!({"type": "text", "text": "hi", "cache_control": mark});
    let expected = json!({"model": "claude-sonnet-4-5", "max_tokens": 32000, "stream": true,
        "messages": [{"role": "user", "content": [text]}]});
    assert_eq!(sent.body, expected);

    let said = Content { role: Role::Model, parts: serde_json::from_value(parts(&pieces)).unwrap() };
    let response = json!({"functionResponse": {"id": "toolu_2", "name": "ls", "response": {"output": "a.txt"}}});
    let result = serde_json::from_value(json!({"role": "user", "parts": [response]})).unwrap();
    stream(&generator, asking(vec![Content::user("hi"), said, result])).await.unwrap();
    let sent = model.requests().remove(1);
    assert_eq!(
        sent.body["messages"][1]["content"],
        json!([
            thinking,
            {"type": "text", "text": "Hi."},
            {"type": "tool_use", "id": "toolu_2", "name": "ls", "input": {"path": "ü"}},
        ])
    );
    assert_eq!(
        sent.body["messages"][2]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "a.txt", "cache_control": mark},
        ])
    );
}

#[tokio::test]
async fn base_urls_and_bearers() {
    for (suffix, path) in [
        ("", "/v1/messages"),
        ("/", "/v1/messages"),
        ("/v1", "/v1/messages"),
        ("/anthropic", "/anthropic/v1/messages"),
        ("/anthropic/v2/", "/anthropic/v2/messages"),
        ("/v1/messages", "/v1/messages"),
    ] {
        let model = FakeModel::start().await.unwrap();
        model.says("a");
        let mut options = options(&format!("http://{}{suffix}", model.address()));
        options.auth = AnthropicAuth::Bearer;
        stream(&anthropic(options), request()).await.unwrap();
        let sent = model.requests().remove(0);
        assert_eq!((sent.path.as_str(), sent.header("authorization")), (path, Some("Bearer sk-ant-secret")));
        assert_eq!(sent.header("x-api-key"), None);
    }
}

#[tokio::test]
async fn whole_answers_counts_and_no_vectors() {
    let model = FakeModel::start().await.unwrap();
    let generator = anthropic(options(&model.anthropic_url()));
    let cancel = CancellationToken::new();
    model.thinks("hm").then_says("Hi.").then_calls("f", json!({}));
    let answer = generator.generate_content(request(), cancel.clone()).await.unwrap();
    assert_eq!((answer.text().as_str(), answer.function_calls().len()), ("Hi.", 1));
    assert_eq!((answer.finish_reason(), answer.usage().unwrap().total_token_count), (Some("STOP"), 15));
    assert_eq!(model.requests()[0].body.get("stream"), None);

    model.sends([br#"{"input_tokens": 42}"#.as_slice()]);
    assert_eq!(generator.count_tokens(request(), cancel.clone()).await.unwrap().total_tokens, 42);
    let sent = &model.requests()[1];
    assert_eq!(sent.path, "/v1/messages/count_tokens");
    assert_eq!(sent.body.as_object().unwrap().keys().collect::<Vec<_>>(), ["model", "messages"]);

    let error = generator.embed_content(EmbedRequest::default(), cancel).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn refusals() {
    use ModelErrorKind::{Auth, Quota, RateLimit, Server};
    for (status, kind, expected) in [
        (529, "overloaded_error", Server),
        (429, "rate_limit_error", RateLimit),
        (402, "billing_error", Quota),
        (401, "authentication_error", Auth),
        (500, "api_error", Server),
    ] {
        let model = FakeModel::start().await.unwrap();
        let words = json!({"type": kind, "message": "it is so with sk-ant-secret"});
        model.fails(status, words).with_header("retry-after", "3");
        let error = stream(&anthropic(options(&model.anthropic_url())), request()).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (expected, "it is so with [redacted]"), "{kind}");
        let waits = (expected != Auth).then_some(Duration::from_secs(3));
        assert_eq!((error.retry_after, error.status), (waits, Some(status)));
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_its_end() {
    let model = FakeModel::start().await.unwrap();
    model.calls("f", json!({})).without_end();
    let error = stream(&anthropic(options(&model.anthropic_url())), request()).await.unwrap_err();
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ModelErrorKind::Network, "the model's answer broke off before its end")
    );
}
