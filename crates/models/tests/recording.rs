//! Recordings: does one play as it was?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;

use convoke_adk::{Content, LlmRequest};
use convoke_models::{
    ContentGenerator, EmbedRequest, FakeMode, FakeScript, GeminiOptions, GenerateResponse, Options, Provider, connect,
};
use convoke_testkit::fake_model::FakeModel;
use futures::{StreamExt, TryStreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn gemini(model: &FakeModel) -> Provider {
    Provider::Gemini(GeminiOptions { base_url: model.gemini_url(), ..GeminiOptions::default() })
}

fn fake(script: &str) -> Provider {
    Provider::Fake { script: Arc::new(FakeScript::parse(script, "test").unwrap()), mode: FakeMode::Strict }
}

fn request() -> Arc<LlmRequest> {
    let contents = vec![Arc::new(Content::user("prompt-text"))];
    Arc::new(LlmRequest { model: "m".into(), contents, ..LlmRequest::default() })
}

async fn text(generator: &dyn ContentGenerator) -> String {
    let pieces = generator.generate_content_stream(request(), CancellationToken::new());
    let pieces: Vec<GenerateResponse> = pieces.try_collect().await.unwrap();
    pieces.iter().map(GenerateResponse::text).collect()
}

#[tokio::test]
async fn a_recording_plays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recorded.jsonl");
    let model = FakeModel::start().await.unwrap();
    model.says("Let me").then_says(" look.").then_calls("ls", json!({}));
    model.fails(500, json!({"message": "not recorded"}));
    model.says("cut").then_cuts();
    model.says("Whole.");
    model.sends([br#"{"totalTokens": 9}"#.as_slice()]);
    model.sends([br#"{"embeddings": [{"values": [0.5]}]}"#.as_slice()]);
    let options = Options { record: Some(path.clone()), ..Options::new(gemini(&model)) };
    let generator = connect(options).unwrap();
    let cancel = CancellationToken::new();
    assert_eq!(text(&*generator).await, "Let me look.");
    for _ in 0..2 {
        let pieces = generator.generate_content_stream(request(), cancel.clone());
        assert!(pieces.collect::<Vec<_>>().await.last().unwrap().is_err());
    }
    generator.generate_content(request(), cancel.clone()).await.unwrap();
    generator.count_tokens(request(), cancel.clone()).await.unwrap();
    generator.embed_content(EmbedRequest::default(), cancel.clone()).await.unwrap();

    let recorded = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let methods: Vec<_> = lines.iter().map(|line| line["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["generateContentStream", "generateContent", "countTokens", "embedContent"]);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&lines[0]["response"][3]), ["candidates", "usageMetadata"], "no model version");
    assert!(!recorded.contains("prompt-text"));

    let replay = connect(Options::new(fake(&recorded))).unwrap();
    assert_eq!(text(&*replay).await, "Let me look.");
    assert_eq!(replay.generate_content(request(), cancel.clone()).await.unwrap().text(), "Whole.");
    assert_eq!(replay.count_tokens(request(), cancel.clone()).await.unwrap().total_tokens, 9);
    assert_eq!(replay.embed_content(EmbedRequest::default(), cancel).await.unwrap().embeddings[0].values, [0.5]);
}

#[tokio::test]
async fn a_recording_that_cannot_be_written_fails_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/recorded.jsonl");
    let script = r#"{"method":"countTokens","response":{"totalTokens":9}}"#;
    let options = Options { record: Some(path.clone()), ..Options::new(fake(script)) };
    let error = connect(options).unwrap().count_tokens(request(), CancellationToken::new()).await.unwrap_err();
    assert!(error.message.starts_with(&format!("record the answer in {}: ", path.display())), "{error}");
}
