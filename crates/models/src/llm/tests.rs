use std::sync::Mutex;
use std::time::Duration;

use convoke_adk::{Content, FunctionCall, FunctionResponse, Part, Role};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use futures::StreamExt;

use super::*;
use crate::ResponseStream;
use crate::fake::{FakeGenerator, FakeMode, FakeScript};

/// What came out: texts, `retract`, or the final error.
#[derive(Debug, PartialEq)]
enum Seen {
    Text(String),
    Retract,
    Failed(ModelErrorKind, String),
}

fn text(text: &str) -> Seen {
    Seen::Text(text.into())
}

fn line(chunks: &Value) -> Value {
    json!({"method": "generateContentStream", "response": chunks})
}

fn chunk(text: &str, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"parts": [{"text": text}]}});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({"candidates": [candidate]})
}

fn finish(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}]})
}

fn script(lines: &[Value]) -> GeneratorLlm {
    let text: Vec<_> = lines.iter().map(Value::to_string).collect();
    let script = FakeScript::parse(&text.join("\n"), "test").unwrap();
    GeneratorLlm::new(Arc::new(FakeGenerator::new(Arc::new(script), FakeMode::Strict)), LlmOptions::new("m"))
}

fn prompt() -> LlmRequest {
    LlmRequest { contents: vec![Arc::new(Content::user("hi"))], ..LlmRequest::default() }
}

fn after_tool() -> LlmRequest {
    let call = FunctionCall { id: None, name: "f".into(), args: json!({}) };
    let part = Part::response(&FunctionResponse::output(&call, "o"));
    LlmRequest { contents: vec![Arc::new(Content { role: Role::User, parts: vec![part] })], ..LlmRequest::default() }
}

async fn run(llm: &GeneratorLlm, request: LlmRequest) -> Vec<Seen> {
    let mut pieces = llm.generate(request, CancellationToken::new());
    let mut seen = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) if piece.retracted => seen.push(Seen::Retract),
            Ok(piece) => {
                let text = piece.content.map(|content| content.joined_text()).unwrap_or_default();
                if !text.is_empty() {
                    seen.push(Seen::Text(text));
                }
            }
            Err(error) => seen.push(Seen::Failed(error.kind, error.message)),
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_broken_call_is_repeated() {
    let llm = script(&[line(&json!([finish("MALFORMED_FUNCTION_CALL")])), line(&json!([chunk("a", Some("STOP"))]))]);
    assert_eq!(run(&llm, prompt()).await, [Seen::Retract, text("a")]);
}

#[tokio::test(start_paused = true)]
async fn text_of_a_cut_answer_is_taken_back() {
    let llm = script(&[line(&json!([chunk("ha", None)])), line(&json!([chunk("a", Some("STOP"))]))]);
    assert_eq!(run(&llm, prompt()).await, [text("ha"), Seen::Retract, text("a")]);
}

#[tokio::test(start_paused = true)]
async fn silence_is_given_up_after_three_repetitions() {
    let silent = line(&json!([chunk(" ", Some("STOP"))]));
    let llm =
        script(&[silent.clone(), silent.clone(), silent.clone(), silent, line(&json!([chunk("late", Some("STOP"))]))]);
    let start = tokio::time::Instant::now();
    let mut seen = run(&llm, prompt()).await;
    let last = seen.pop();
    assert_eq!(last, Some(Seen::Failed(ModelErrorKind::InvalidStream, "the model's answer is empty".into())));
    assert_eq!(seen.iter().filter(|seen| **seen == Seen::Retract).count(), 3, "the last attempt is not retracted");
    let waited = start.elapsed().as_secs_f64();
    assert!((7.0 * 0.7..=7.0 * 1.3).contains(&waited), "about 1 + 2 + 4 s, but {waited}");
}

#[tokio::test]
async fn after_a_tool_the_model_may_be_silent() {
    let llm = script(&[line(&json!([finish("STOP")]))]);
    assert_eq!(run(&llm, after_tool()).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_repeated_within_each_attempt() {
    let busy = json!({"method": "generateContentStream", "status": 503, "error": "busy"});
    let llm = script(&[
        busy.clone(),
        busy.clone(),
        line(&json!([chunk("x", None)])),
        busy,
        line(&json!([chunk("a", Some("STOP"))])),
    ]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let notices = Arc::clone(&told);
    let mut options = llm.options().clone();
    options.on_notice = Some(Arc::new(move |notice| {
        if let ModelNotice::Retrying { failed_attempts, error, .. } = notice {
            notices.lock().unwrap().push((*failed_attempts, error.kind));
        }
    }));
    let llm = GeneratorLlm::new(Arc::clone(llm.generator().unwrap()), options);
    assert_eq!(run(&llm, prompt()).await, [text("x"), Seen::Retract, text("a")]);
    let (server, broken) = (ModelErrorKind::Server, ModelErrorKind::InvalidStream);
    assert_eq!(*told.lock().unwrap(), [(1, server), (2, server), (1, broken), (1, server)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_halfway_is_repeated() {
    let mut cut = line(&json!([chunk("ha", None)]));
    cut["status"] = 500.into();
    cut["error"] = "boom".into();
    let llm = script(&[cut, line(&json!([chunk("a", Some("STOP"))]))]);
    assert_eq!(run(&llm, prompt()).await, [text("ha"), Seen::Retract, text("a")]);
}

#[tokio::test]
async fn what_repeating_cannot_mend_is_told_at_once() {
    for (line, kind, message) in [
        (json!({"method": "generateContentStream", "status": 400, "error": "bad"}), ModelErrorKind::BadRequest, "bad"),
        (json!({"method": "generateContentStream", "status": 401, "error": "who"}), ModelErrorKind::Auth, "who"),
        (
            line(&json!([{"promptFeedback": {"blockReason": "SAFETY"}}])),
            ModelErrorKind::BadRequest,
            "the provider refused the prompt (SAFETY)",
        ),
    ] {
        assert_eq!(run(&script(&[line]), prompt()).await, [Seen::Failed(kind, message.into())]);
    }
    let seen = run(&script(&[]), prompt()).await;
    let [Seen::Failed(ModelErrorKind::Other, message)] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(message.starts_with("No more mock responses for generateContentStream, got request:\n"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_a_wait() {
    let busy = json!({"method": "generateContentStream", "status": 429, "headers": {"Retry-After": 299}});
    let llm = script(&[busy]);
    let cancel = CancellationToken::new();
    let mut pieces = llm.generate(prompt(), cancel.clone());
    let start = tokio::time::Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    };
    let (piece, ()) = tokio::join!(pieces.next(), stop);
    assert_eq!(piece.unwrap().unwrap_err().kind, ModelErrorKind::Cancelled);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert!(pieces.next().await.is_none());
}

/// Answers silently, and keeps the requests.
struct Silent(Mutex<Vec<Arc<LlmRequest>>>);

#[async_trait::async_trait]
impl ContentGenerator for Silent {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        _: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        self.0.lock().unwrap().push(request);
        Err(ModelError::new(ModelErrorKind::Server, "busy"))
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, _: CancellationToken) -> ResponseStream {
        self.0.lock().unwrap().push(request);
        let piece: GenerateResponse = serde_json::from_value(finish("STOP")).unwrap();
        futures::stream::iter([Ok(piece)]).boxed()
    }

    async fn count_tokens(&self, _: Arc<LlmRequest>, _: CancellationToken) -> Result<crate::TokenCount, ModelError> {
        Ok(crate::TokenCount::default())
    }

    async fn embed_content(
        &self,
        _: crate::EmbedRequest,
        _: CancellationToken,
    ) -> Result<crate::EmbedResponse, ModelError> {
        Ok(crate::EmbedResponse::default())
    }
}

fn quick(model: &str) -> LlmOptions {
    let mut options = LlmOptions::new(model);
    options.retry = options.retry.without_waits();
    options.stream_retry = options.stream_retry.without_waits();
    options
}

#[tokio::test]
async fn silence_is_answered_with_one_nudge_and_chat_defaults_are_filled() {
    let silent = Arc::new(Silent(Mutex::default()));
    let generator: Arc<dyn ContentGenerator> = Arc::<Silent>::clone(&silent);
    let llm = GeneratorLlm::new(generator, quick("gemini-2.5-flash"));
    run(&llm, prompt()).await;
    let requests = silent.0.lock().unwrap();
    let nudges: Vec<_> = requests.iter().map(|request| request.system_instruction.len()).collect();
    assert_eq!(nudges, [0, 1, 1, 1]);
    assert_eq!(requests[0].model, "gemini-2.5-flash");
    assert_eq!(requests[0].config.extra["thinkingConfig"], json!({"thinkingBudget": 8192}));
}

#[tokio::test]
async fn side_requests_have_five_attempts_and_no_chat_defaults() {
    let silent = Arc::new(Silent(Mutex::default()));
    let generator: Arc<dyn ContentGenerator> = Arc::<Silent>::clone(&silent);
    let llm = GeneratorLlm::new(generator, quick("gemini-2.5-flash"));
    let error = llm.ask(prompt(), &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Server);
    let requests = silent.0.lock().unwrap();
    assert_eq!(requests.len(), 5);
    assert_eq!(requests[0].config, convoke_adk::GenerateConfig::default());
}
