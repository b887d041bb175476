//! The OpenAI provider against a scripted server: what is sent, and what comes back?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;

use convoke_adk::{Content, LlmRequest, ModelError, ModelErrorKind};
use convoke_models::{ContentGenerator, EmbedRequest, GenerateResponse, OpenAiOptions, Options, Provider, connect};
use convoke_testkit::fake_model::FakeModel;
use futures::TryStreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn openai(options: OpenAiOptions) -> Arc<dyn ContentGenerator> {
    connect(Options::new(Provider::OpenAi(options))).unwrap()
}

fn with_key(base_url: &str) -> OpenAiOptions {
    OpenAiOptions { api_key: Some("sk-secret".to_owned().into()), ..OpenAiOptions::new(base_url) }
}

fn request() -> Arc<LlmRequest> {
    let contents = vec![Arc::new(Content::user("hi"))];
    Arc::new(LlmRequest { model: "m".into(), contents, ..LlmRequest::default() })
}

async fn stream(generator: &Arc<dyn ContentGenerator>) -> Result<Vec<GenerateResponse>, ModelError> {
    generator.generate_content_stream(request(), CancellationToken::new()).try_collect().await
}

fn parts(pieces: &[GenerateResponse]) -> Value {
    pieces.iter().flat_map(GenerateResponse::parts).cloned().map(Value::Object).collect()
}

fn finish(pieces: &[GenerateResponse]) -> Option<&str> {
    pieces.iter().rev().find_map(GenerateResponse::finish_reason)
}

#[tokio::test]
async fn a_streamed_answer() {
    let model = FakeModel::start().await.unwrap();
    model
        .thinks("hm")
        .then_says("Hi")
        .then_says(".")
        .then_calls("ls", json!({"path": "."}))
        .then_calls("pwd", json!({}));
    let pieces = stream(&openai(with_key(&model.openai_url()))).await.unwrap();
    let expected = json!([
        {"text": "hm", "thought": true}, {"text": "Hi"}, {"text": "."},
        {"functionCall": {"id": "call_0", "name": "ls", "args": {"path": "."}}},
        {"functionCall": {"id": "call_1", "name": "pwd", "args": {}}},
    ]);
    assert_eq!((parts(&pieces), finish(&pieces)), (expected, Some("STOP")));
    let last = pieces.last().unwrap();
    assert_eq!(last.usage().unwrap().prompt_token_count, 10);
    assert_eq!(last.model_version(), Some("fake-model"));

    let sent = model.requests().remove(0);
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(sent.header("authorization"), Some("Bearer sk-secret"));
    let expected = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true,
        "stream_options": {"include_usage": true}});
    assert_eq!(sent.body, expected);
}

#[tokio::test]
async fn base_urls_without_a_key() {
    for (suffix, path) in [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/api/v1", "/api/v1/chat/completions"),
        ("/v1beta/openai/", "/v1beta/openai/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
    ] {
        let model = FakeModel::start().await.unwrap();
        model.says("a");
        let mut options = OpenAiOptions::new(format!("http://{}{suffix}", model.address()));
        options.include_usage = false;
        stream(&openai(options)).await.unwrap();
        let sent = model.requests().remove(0);
        assert_eq!((sent.path.as_str(), sent.header("authorization")), (path, None), "{suffix}");
        assert_eq!(sent.body.get("stream_options"), None);
    }
}

#[tokio::test]
async fn a_json_answer_to_a_stream_request() {
    let model = FakeModel::start().await.unwrap();
    let call = json!({"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
    let message = json!({"role": "assistant", "content": "Hi.", "tool_calls": [call]});
    let body = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    // With an event stream's content type, as some servers do it.
    model.sends([body.to_string().as_bytes()]);
    let pieces = stream(&openai(OpenAiOptions::new(model.openai_url()))).await.unwrap();
    let expected = json!([{"text": "Hi."}, {"functionCall": {"id": "x", "name": "f", "args": {"a": 1}}}]);
    assert_eq!((parts(&pieces), finish(&pieces)), (expected, Some("STOP")));
    assert_eq!(pieces.last().unwrap().usage().unwrap().total_token_count, 7);
}

#[tokio::test]
async fn a_stream_that_ends_early_has_no_finish_reason() {
    let model = FakeModel::start().await.unwrap();
    model.says("ha").without_end();
    let pieces = stream(&openai(OpenAiOptions::new(model.openai_url()))).await.unwrap();
    assert_eq!((parts(&pieces), finish(&pieces)), (json!([{"text": "ha"}]), None));
}

#[tokio::test]
async fn whole_answers_counts_and_vectors() {
    let model = FakeModel::start().await.unwrap();
    let generator = openai(OpenAiOptions::new(model.openai_url()));
    let cancel = CancellationToken::new();
    model.says("Hi.").then_calls("f", json!({}));
    let answer = generator.generate_content(request(), cancel.clone()).await.unwrap();
    assert_eq!((answer.text().as_str(), answer.function_calls().len()), ("Hi.", 1));
    assert_eq!(model.requests()[0].body.get("stream"), None);
    assert!(generator.count_tokens(request(), cancel.clone()).await.unwrap().total_tokens > 1);
    let vectors = json!({"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]});
    model.sends([vectors.to_string().as_bytes()]);
    let texts = EmbedRequest { model: "e".into(), texts: vec!["a".into(), "b".into()] };
    let vectors = generator.embed_content(texts, cancel).await.unwrap();
    let values: Vec<_> = vectors.embeddings.iter().map(|one| one.values[0]).collect();
    assert_eq!(values, [1.0, 2.0]);
    let sent = &model.requests()[1];
    assert_eq!((sent.path.as_str(), &sent.body), ("/v1/embeddings", &json!({"model": "e", "input": ["a", "b"]})));
}

#[tokio::test]
async fn a_key_that_the_server_quotes_is_not_told() {
    let model = FakeModel::start().await.unwrap();
    let error = json!({"message": "Incorrect API key provided: sk-secret.", "code": "invalid_api_key"});
    model.fails(401, error);
    let error = stream(&openai(with_key(&model.openai_url()))).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Auth, Some(401)));
    assert_eq!(error.message, "Incorrect API key provided: [redacted].");
}
