//! Recording and telling: does a recording play as it was, and is no prompt told by the way?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use convoke_adk::{Content, LlmRequest};
use convoke_models::{
    ContentGenerator, EmbedRequest, FakeMode, FakeScript, GeminiOptions, GenerateResponse, Options, Provider, connect,
};
use convoke_testkit::fake_model::FakeModel;
use futures::{StreamExt, TryStreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

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

/// Keeps events as they are told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<ToldEvent>>>);

type ToldEvent = (tracing::Level, BTreeMap<String, String>);

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Told {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("convoke_models") {
            let mut fields = BTreeMap::new();
            event.record(&mut Fields(&mut fields));
            self.0.lock().unwrap().push((*event.metadata().level(), fields));
        }
    }
}

#[tokio::test]
async fn calls_are_told_without_prompts_above_debug() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(told.clone()));
    let lines = [
        json!({"method": "generateContentStream", "response": [
            {"candidates": [{"content": {"parts": [{"text": "answer-text"}]}, "finishReason": "STOP"}],
             "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3}, "modelVersion": "m-1"}]}),
        json!({"method": "generateContentStream", "status": 429, "error": "busy"}),
        json!({"method": "generateContentStream", "response": [{}, {}]}),
    ];
    let generator = connect(Options::new(fake(&lines.map(|line| line.to_string()).join("\n")))).unwrap();
    text(&*generator).await;
    for _ in 0..2 {
        let mut pieces = generator.generate_content_stream(request(), CancellationToken::new());
        // The second stream is dropped before its end.
        assert!(pieces.next().await.is_some());
    }
    let told = told.0.lock().unwrap();
    let info: Vec<_> = told.iter().filter(|(level, _)| *level == tracing::Level::INFO).map(|(_, f)| f).collect();
    let names: Vec<_> = info.iter().map(|fields| fields["event.name"].as_str()).collect();
    let (request, response, error) = ("gemini_cli.api_request", "gemini_cli.api_response", "gemini_cli.api_error");
    assert_eq!(names, [request, response, request, error, request, error]);
    for (key, value) in [
        ("gen_ai.request.model", "m"),
        ("gen_ai.response.model", "m-1"),
        ("gen_ai.response.finish_reasons", "STOP"),
        ("gen_ai.usage.input_tokens", "7"),
        ("gen_ai.usage.output_tokens", "3"),
    ] {
        assert_eq!(info[1].get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!((info[3]["error.type"].as_str(), info[3]["status_code"].as_str()), ("RateLimit", "429"));
    assert_eq!(info[5]["error.type"], "Cancelled");
    assert!(!format!("{info:?}").contains("-text"), "{info:?}");
    let debug = format!("{:?}", told.iter().filter(|(level, _)| *level == tracing::Level::DEBUG).collect::<Vec<_>>());
    assert!(debug.contains("prompt-text") && debug.contains("answer-text"), "{debug}");
}
