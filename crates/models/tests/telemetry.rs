//! Telemetry: is each call told, and what was said only where it belongs?
//!
//! Alone in its process: whether a place in the code is listened to is remembered process-wide.
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use convoke_adk::{Content, LlmRequest};
use convoke_models::{FakeMode, FakeScript, Options, Provider, connect};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

fn request() -> Arc<LlmRequest> {
    let contents = vec![Arc::new(Content::user("prompt-text"))];
    Arc::new(LlmRequest { model: "m".into(), contents, ..LlmRequest::default() })
}

/// Keeps events as they are told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<ToldEvent>>>);

type ToldEvent = (&'static str, BTreeMap<String, String>);

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
        if event.metadata().target().starts_with("convoke") {
            let mut fields = BTreeMap::new();
            event.record(&mut Fields(&mut fields));
            self.0.lock().unwrap().push((event.metadata().target(), fields));
        }
    }
}

#[tokio::test]
async fn calls_are_told_and_texts_only_on_their_target() {
    let told = Told::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(told.clone()));
    let lines = [
        json!({"method": "generateContentStream", "response": [
            {"candidates": [{"content": {"parts": [{"text": "answer-text"}]}, "finishReason": "STOP"}],
             "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3}, "modelVersion": "m-1"}]}),
        json!({"method": "generateContentStream", "status": 429, "error": "busy"}),
        json!({"method": "generateContentStream", "response": [{}, {}]}),
    ];
    let script = FakeScript::parse(&lines.map(|line| line.to_string()).join("\n"), "test").unwrap();
    let generator = connect(Options::new(Provider::Fake { script: Arc::new(script), mode: FakeMode::Strict })).unwrap();
    let pieces = generator.generate_content_stream(request(), CancellationToken::new());
    assert_eq!(pieces.count().await, 1);
    for _ in 0..2 {
        let mut pieces = generator.generate_content_stream(request(), CancellationToken::new());
        // The second stream is dropped before its end.
        assert!(pieces.next().await.is_some());
    }
    let told = told.0.lock().unwrap();
    let on = |target| told.iter().filter(move |(of, _)| *of == target).map(|(_, fields)| fields);
    let told_events: Vec<_> = on("convoke::telemetry").collect();
    let names: Vec<_> = told_events.iter().map(|fields| fields["event.name"].as_str()).collect();
    let (request, response, error) = ("gemini_cli.api_request", "gemini_cli.api_response", "gemini_cli.api_error");
    assert_eq!(names, [request, response, request, error, request, error]);
    assert!(told_events[0]["request_text"].contains("prompt-text"));
    for (key, value) in [
        ("model", "m-1"),
        ("role", "main"),
        ("gen_ai.request.model", "m"),
        ("gen_ai.response.model", "m-1"),
        ("gen_ai.response.finish_reasons", "STOP"),
        ("input_token_count", "7"),
        ("gen_ai.usage.output_tokens", "3"),
        ("response_text", "answer-text"),
    ] {
        assert_eq!(told_events[1].get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!((told_events[3]["error_type"].as_str(), told_events[3]["status_code"].as_str()), ("RateLimit", "429"));
    assert_eq!(told_events[5]["error_type"], "Cancelled");
    let messages: Vec<_> = on("convoke::telemetry::messages").collect();
    assert_eq!(messages.len(), 1, "only the call that was answered");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&messages[0]["gen_ai.output.messages"]).unwrap(),
        json!([{"role": "assistant", "parts": [{"type": "text", "content": "answer-text"}], "finish_reason": "stop"}])
    );
    let lines: Vec<_> = told.iter().filter(|(target, _)| target.starts_with("convoke_models")).collect();
    assert!(!lines.is_empty() && !format!("{lines:?}").contains("-text"), "{lines:?}");
}
