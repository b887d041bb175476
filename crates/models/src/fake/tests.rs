use convoke_adk::{Content, FunctionCall, FunctionResponse, Part};
use futures::TryStreamExt;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn stream_line(text: &str) -> String {
    json!({"method": STREAM, "response": [{"candidates": [{"content": {"parts": [{"text": text}]}}]}]}).to_string()
}

fn generator(text: &str, mode: FakeMode) -> FakeGenerator {
    FakeGenerator::new(Arc::new(FakeScript::parse(text, "f.jsonl").unwrap()), mode)
}

fn request(content: Content) -> Arc<LlmRequest> {
    Arc::new(LlmRequest { model: "m".into(), contents: vec![Arc::new(content)], ..LlmRequest::default() })
}

fn hi() -> Arc<LlmRequest> {
    request(Content::user("hi"))
}

fn tool_result() -> Arc<LlmRequest> {
    let call = FunctionCall { id: None, name: "f".into(), args: json!({}) };
    let part = Part::response(&FunctionResponse::output(&call, "done"));
    request(Content { role: Role::User, parts: vec![part] })
}

async fn stream(generator: &FakeGenerator, request: Arc<LlmRequest>) -> Result<String, String> {
    let pieces = generator.generate_content_stream(request, CancellationToken::new());
    let pieces: Vec<_> = pieces.try_collect().await.map_err(|error: ModelError| error.message)?;
    Ok(pieces.iter().map(GenerateResponse::text).collect())
}

async fn whole(generator: &FakeGenerator) -> Result<String, String> {
    let response = generator.generate_content(hi(), CancellationToken::new()).await;
    response.map(|response| response.text()).map_err(|error| error.message)
}

const EXHAUSTED: &str = "No more mock responses for generateContentStream, got request:\n\
    {\"model\":\"m\",\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"hi\"}]}],\"config\":{}}";

#[tokio::test]
async fn strict_takes_line_after_line() {
    let text = format!("{}\r\n  \r\n\n{}\r\n", stream_line("a"), stream_line("b"));
    let fake = generator(&text, FakeMode::Strict);
    assert_eq!(stream(&fake, hi()).await, Ok("a".into()));
    assert_eq!(stream(&fake, hi()).await, Ok("b".into()));
    assert_eq!(stream(&fake, hi()).await, Err(EXHAUSTED.into()));
    assert_eq!(stream(&fake, hi()).await, Err(EXHAUSTED.into()));
}

#[tokio::test]
async fn strict_loses_a_line_of_another_method() {
    let fake = generator(&format!("{}\n{}", stream_line("a"), stream_line("b")), FakeMode::Strict);
    let message = "Unexpected response type, next response was for generateContentStream but expected generateContent";
    assert_eq!(whole(&fake).await, Err(message.into()));
    assert_eq!(stream(&fake, hi()).await, Ok("b".into()));
}

#[tokio::test]
async fn non_strict_takes_the_first_of_the_method() {
    let whole_line = r#"{"method":"generateContent","response":{"candidates":[{"content":{"parts":[{"text":"w"}]}}]}}"#;
    let text = format!("{}\n{whole_line}\n{}", stream_line("a"), stream_line("b"));
    let fake = generator(&text, FakeMode::NonStrict);
    assert_eq!(whole(&fake).await, Ok("w".into()));
    assert_eq!(stream(&fake, hi()).await, Ok("a".into()));
    assert!(whole(&fake).await.unwrap_err().starts_with("No more mock responses for generateContent, got request:\n{"));
    assert_eq!(stream(&fake, hi()).await, Ok("b".into()));
    assert_eq!(stream(&fake, hi()).await, Err(EXHAUSTED.into()));
}

#[tokio::test]
async fn sessions_do_not_share_lines() {
    let script = Arc::new(FakeScript::parse(&stream_line("a"), "f").unwrap());
    let one = FakeGenerator::new(Arc::clone(&script), FakeMode::Strict);
    let two = FakeGenerator::new(script, FakeMode::Strict);
    assert_eq!(stream(&one, hi()).await, Ok("a".into()));
    assert_eq!(stream(&two, hi()).await, Ok("a".into()));
}

#[tokio::test]
async fn counts_and_vectors() {
    let text = "{\"method\":\"countTokens\",\"response\":{\"totalTokens\":9}}\n\
        {\"method\":\"embedContent\",\"response\":{\"embeddings\":[{\"values\":[0.5]}]}}";
    let fake = generator(text, FakeMode::Strict);
    let cancel = CancellationToken::new();
    assert_eq!(fake.count_tokens(hi(), cancel.clone()).await.unwrap().total_tokens, 9);
    let vectors = fake.embed_content(EmbedRequest::default(), cancel).await.unwrap();
    assert_eq!(vectors.embeddings[0].values, [0.5]);
}

#[test]
fn a_bad_line_is_named() {
    for (line, reason) in [
        ("nonsense", "expected ident at line 1 column 2"),
        ("[]", "it is not an object"),
        ("{}", "it has no 'method'"),
        (r#"{"method":"x","status":"429"}"#, "its 'status' is not an HTTP status"),
        (r#"{"method":"x","match":{}}"#, "its 'match' has no 'lastContains' or 'callContains' text"),
    ] {
        let error = FakeScript::parse(&format!("\n{}\n{line}", stream_line("a")), "dir/f.jsonl").unwrap_err();
        assert_eq!(error.to_string(), format!("read the fake response in dir/f.jsonl, line 3: {reason}"));
    }
    let missing = FakeScript::load(Path::new("/nowhere/f")).unwrap_err().to_string();
    assert!(missing.starts_with("read the fake responses in /nowhere/f: "), "{missing}");
    assert!(FakeScript::parse("", "empty").unwrap().lines.is_empty());
}

#[tokio::test]
async fn a_response_of_the_wrong_shape_is_named() {
    let fake = generator(r#"{"method":"generateContentStream","response":{}}"#, FakeMode::Strict);
    let message = "read the fake response for generateContentStream in line 1: it is not an array";
    assert_eq!(stream(&fake, hi()).await, Err(message.into()));
}

#[tokio::test]
async fn lines_are_chosen_by_the_last_content() {
    let line = |text: &str, rule: Option<&str>| {
        let mut line: Value = serde_json::from_str(&stream_line(text)).unwrap();
        if let Some(rule) = rule {
            line["match"] = json!({"lastContains": rule});
        }
        line.to_string()
    };
    let text = [line("after f", Some("functionResponse")), line("any", None), line("hello", Some("hi"))].join("\n");
    let fake = generator(&text, FakeMode::NonStrict);
    assert_eq!(stream(&fake, hi()).await, Ok("any".into()));
    assert_eq!(stream(&fake, hi()).await, Ok("hello".into()));
    assert!(stream(&fake, hi()).await.is_err());
    assert_eq!(stream(&fake, tool_result()).await, Ok("after f".into()));
    let strict = generator(&text, FakeMode::Strict);
    assert_eq!(stream(&strict, hi()).await, Ok("after f".into()), "strict ignores the rule");
}

#[tokio::test]
async fn lines_are_chosen_by_the_call_that_was_answered() {
    let mut line: Value = serde_json::from_str(&stream_line("after read")).unwrap();
    line["match"] = json!({"callContains": "read_file", "lastContains": "functionResponse"});
    let call = |name: &str| {
        let call = FunctionCall { id: None, name: name.into(), args: json!({}) };
        Arc::new(Content { role: Role::Model, parts: vec![Part::call(&call)] })
    };
    let asked = |name: &str| {
        let mut request = LlmRequest::clone(&tool_result());
        request.contents.insert(0, call(name));
        Arc::new(request)
    };
    let fake = generator(&line.to_string(), FakeMode::NonStrict);
    assert!(stream(&fake, asked("write_file")).await.is_err());
    assert_eq!(stream(&fake, asked("read_file")).await, Ok("after read".into()));
}

#[tokio::test]
async fn failures_are_classified_like_real_ones() {
    let text = json!({"method": STREAM, "status": 429, "error": {"message": "slow down"},
        "headers": {"retry-after": 2}});
    let fake = generator(&text.to_string(), FakeMode::Strict);
    let pieces = fake.generate_content_stream(hi(), CancellationToken::new());
    let error = pieces.try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(
        error,
        ModelError {
            kind: ModelErrorKind::RateLimit,
            status: Some(429),
            message: "slow down".into(),
            retry_after: Some(Duration::from_secs(2)),
        }
    );
}

#[tokio::test(start_paused = true)]
async fn chunks_before_a_failure_come_with_delays() {
    let text = json!({"method": STREAM, "delayMs": 20, "status": 503, "error": "gone",
        "response": [{"candidates": []}, {"candidates": []}]});
    let fake = generator(&text.to_string(), FakeMode::Strict);
    let start = tokio::time::Instant::now();
    let pieces: Vec<_> = fake.generate_content_stream(hi(), CancellationToken::new()).collect().await;
    assert_eq!(pieces.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(start.elapsed(), Duration::from_millis(40));
}

#[tokio::test(start_paused = true)]
async fn a_delay_can_be_cancelled() {
    let text = json!({"method": STREAM, "delayMs": 3_600_000, "response": [{}, {}]});
    let fake = generator(&text.to_string(), FakeMode::Strict);
    let cancel = CancellationToken::new();
    let mut pieces = fake.generate_content_stream(hi(), cancel.clone());
    assert!(pieces.next().await.unwrap().is_ok());
    cancel.cancel();
    assert_eq!(pieces.next().await.unwrap().unwrap_err().kind, ModelErrorKind::Cancelled);
}

#[tokio::test]
async fn a_loop_starts_over_at_a_fresh_prompt() {
    let script = FakeScript::embedded(&[stream_line("a"), stream_line("b")].join("\n"), true).unwrap();
    for mode in [FakeMode::Strict, FakeMode::NonStrict] {
        let fake = FakeGenerator::new(Arc::new(script.clone()), mode);
        assert_eq!(stream(&fake, hi()).await, Ok("a".into()));
        assert_eq!(stream(&fake, tool_result()).await, Ok("b".into()));
        assert!(stream(&fake, tool_result()).await.is_err(), "a tool's result is no fresh prompt");
        assert_eq!(stream(&fake, hi()).await, Ok("a".into()));
    }
}
