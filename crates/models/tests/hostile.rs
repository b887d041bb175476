//! Hostile and unlucky servers, byte by byte: is every provider's answer what was sent, or known to be broken?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;
use std::time::Duration;

use convoke_adk::{Content, LlmRequest, ModelError, ModelErrorKind, Role};
use convoke_models::{
    AnthropicOptions, ContentGenerator, GeminiOptions, HttpOptions, OpenAiOptions, Options, Provider, VertexAccess,
    VertexOptions, connect, list_models,
};
use convoke_testkit::fake_model::FakeModel;
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// For whatever must happen: a machine under load is no failure.
const DEADLINE: Duration = Duration::from_secs(60);

const GEMINI: &str = include_str!("streams/gemini.sse");
const OPENAI: &str = include_str!("streams/openai.sse");
const ANTHROPIC: &str = include_str!("streams/anthropic.sse");

/// A provider of each kind at the server, with a recorded stream of its protocol.
fn providers(model: &FakeModel, http: &HttpOptions) -> [(&'static str, Provider, &'static str); 4] {
    let key = || Some("k-secret".to_owned().into());
    let token = VertexAccess::Token {
        token: "k-secret".to_owned().into(),
        project: "p".into(),
        location: "global".into(),
        quota_project: None,
    };
    let gemini =
        GeminiOptions { base_url: model.gemini_url(), api_key: key(), http: http.clone(), ..Default::default() };
    let vertex = VertexOptions { base_url: Some(model.gemini_url()), http: http.clone(), ..VertexOptions::new(token) };
    let openai = OpenAiOptions { api_key: key(), http: http.clone(), ..OpenAiOptions::new(model.openai_url()) };
    let anthropic =
        AnthropicOptions { base_url: model.anthropic_url(), api_key: key(), http: http.clone(), ..Default::default() };
    [
        ("gemini", Provider::Gemini(gemini), GEMINI),
        ("vertex", Provider::Vertex(vertex), GEMINI),
        ("openai", Provider::OpenAi(openai), OPENAI),
        ("anthropic", Provider::Anthropic(anthropic), ANTHROPIC),
    ]
}

fn generator(provider: &Provider) -> Arc<dyn ContentGenerator> {
    connect(Options::new(provider.clone())).unwrap()
}

fn asking(contents: Vec<Content>) -> Arc<LlmRequest> {
    let contents = contents.into_iter().map(Arc::new).collect();
    Arc::new(LlmRequest { model: "m".into(), contents, ..LlmRequest::default() })
}

fn request() -> Arc<LlmRequest> {
    asking(vec![Content::user("hi")])
}

/// What came before the end, and how it ended.
#[derive(Debug, PartialEq)]
struct Heard {
    parts: Vec<Value>,
    finish: Option<String>,
    error: Option<ModelError>,
}

async fn hear(generator: &Arc<dyn ContentGenerator>, request: Arc<LlmRequest>) -> Heard {
    let mut heard = Heard { parts: Vec::new(), finish: None, error: None };
    let mut stream = generator.generate_content_stream(request, CancellationToken::new());
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => {
                heard.parts.extend(piece.parts().cloned().map(Value::Object));
                heard.finish = piece.finish_reason().map(str::to_owned).or(heard.finish);
            }
            Err(error) => heard.error = Some(error),
        }
    }
    heard
}

#[tokio::test]
async fn an_answer_is_the_same_wherever_it_is_split() {
    let model = FakeModel::start().await.unwrap();
    for (name, provider, recorded) in providers(&model, &HttpOptions::default()) {
        if name == "vertex" {
            // Reads as Gemini does, with the same code.
            continue;
        }
        let generator = generator(&provider);
        let bytes = recorded.as_bytes();
        model.sends([bytes]);
        let whole = hear(&generator, request()).await;
        assert_eq!((whole.finish.as_deref(), &whole.error), (Some("STOP"), &None), "{name}");
        assert!(whole.parts.iter().any(|part| part.get("functionCall").is_some()), "{name}: {:?}", whole.parts);
        for at in 1..bytes.len() {
            let (head, tail) = bytes.split_at(at);
            model.sends([head, tail]);
            assert_eq!(hear(&generator, request()).await, whole, "{name}, split at {at}");
        }
        model.sends(bytes.chunks(1));
        assert_eq!(hear(&generator, request()).await, whole, "{name}, byte by byte");
    }
}

/// Wherever the connection ends, in order or by a cut: what was heard is the beginning of the answer, and unless the
/// server said that the answer was whole, the end is an error or has no finish reason. No half call is ever heard.
#[tokio::test]
async fn no_cut_answer_passes_for_a_whole_one() {
    let model = FakeModel::start().await.unwrap();
    for (name, provider, recorded) in providers(&model, &HttpOptions::default()) {
        if name == "vertex" {
            // Reads as Gemini does, with the same code.
            continue;
        }
        let generator = generator(&provider);
        let bytes = recorded.as_bytes();
        model.sends([bytes]);
        let whole = hear(&generator, request()).await;
        for at in 0..bytes.len() {
            let (head, _) = bytes.split_at(at);
            // In turns, as both take long.
            let heard = if at % 2 == 0 {
                model.sends([head]);
                hear(&generator, request()).await
            } else {
                model.sends([head]).then_cuts();
                hear(&generator, request()).await
            };
            assert!(whole.parts.starts_with(&heard.parts), "{name}, cut at {at}: {heard:?}");
            if heard.error.is_none() && heard.finish.is_some() {
                assert_eq!(heard.finish, whole.finish, "{name}, cut at {at}");
                assert_eq!(heard.parts, whole.parts, "{name}, cut at {at}");
            }
            if let Some(error) = heard.error {
                let kinds = [ModelErrorKind::Network, ModelErrorKind::InvalidStream];
                assert!(kinds.contains(&error.kind), "{name}, cut at {at}: {error:?}");
            }
        }
    }
}

#[tokio::test]
async fn parts_go_back_as_they_came() {
    let model = FakeModel::start().await.unwrap();
    for (name, provider, recorded) in providers(&model, &HttpOptions::default()) {
        let generator = generator(&provider);
        model.sends([recorded.as_bytes()]).says("ok");
        let heard = hear(&generator, request()).await;
        let calls: Vec<_> = heard.parts.iter().filter_map(|part| part.get("functionCall")).collect();
        let answer = |call: &&Value| {
            let response = json!({"id": call.get("id"), "name": call["name"], "response": {"output": "done"}});
            json!({"functionResponse": response})
        };
        let answers: Vec<_> = calls.iter().map(answer).collect();
        let said = Content { role: Role::Model, parts: serde_json::from_value(heard.parts.into()).unwrap() };
        let told = Content { role: Role::User, parts: serde_json::from_value(answers.into()).unwrap() };
        hear(&generator, asking(vec![Content::user("hi"), said, told])).await;
        let sent = model.requests().pop().unwrap().body;
        let expected: Value = match name {
            "gemini" | "vertex" => json!([
                {"text": "", "thoughtSignature": "sig-empty"},
                {"text": "Grüße", "thoughtSignature": "sig-text", "newField": {"deep": [1, null]}},
                {"functionCall": {"name": "ls", "args": {"path": "ö"}, "newer": true}, "thoughtSignature": "sig-call"},
                {"brandNewPart": {"x": 1}},
            ]),
            "openai" => json!([
                {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{\"path\":\"ö\"}"},
                    "extra_content": {"google": {"thought_signature": "sig-call"}}},
                {"id": "call_2", "type": "function", "function": {"name": "pwd", "arguments": "{}"}},
            ]),
            _ => json!([
                {"type": "thinking", "thinking": "hm, ü", "signature": "sig-thought"},
                {"type": "redacted_thinking", "data": "opaque"},
                {"type": "text", "text": "Grü"},
                {"type": "text", "text": "ße"},
                {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "ö"},
                    "caller": {"type": "direct"}},
                {"type": "brand_new_block", "x": [1], "y": "ab"},
            ]),
        };
        let back = match name {
            "gemini" | "vertex" => &sent["contents"][1]["parts"],
            "openai" => &sent["messages"][1]["tool_calls"],
            _ => &sent["messages"][1]["content"],
        };
        assert_eq!(back, &expected, "{name}");
        if name == "openai" {
            let details =
                json!([{"type": "reasoning.encrypted", "data": "opaque"}, {"type": "reasoning.text", "text": "ü"}]);
            assert_eq!(sent["messages"][1]["reasoning_details"], details);
        }
    }
}

#[tokio::test]
async fn error_bodies_of_every_shape() {
    let model = FakeModel::start().await.unwrap();
    let object = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow down"}});
    let typed = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}});
    let bodies = [
        object.clone(),
        json!([object]),
        typed.clone(),
        json!([typed]),
        json!({"error": "slow down"}),
        json!({"message": "slow down"}),
        json!({"detail": "slow down"}),
    ];
    for (name, provider, _) in providers(&model, &HttpOptions::default()) {
        for body in &bodies {
            model.refuses(429, body.to_string().as_bytes()).with_header("Retry-After", "2");
            let error = hear(&generator(&provider), request()).await.error.unwrap();
            let expected = ModelError {
                kind: ModelErrorKind::RateLimit,
                status: Some(429),
                message: "slow down".to_owned(),
                retry_after: Some(Duration::from_secs(2)),
            };
            assert_eq!(error, expected, "{name}: {body}");
        }
        model.refuses(502, b"<html>Bad Gateway</html>");
        let error = hear(&generator(&provider), request()).await.error.unwrap();
        assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Server, "HTTP 502 Bad Gateway"), "{name}");
    }
}

#[tokio::test]
async fn cancelling_ends_a_stalled_answer_and_hangs_up() {
    let model = FakeModel::start().await.unwrap();
    for (hung_up, (name, provider, _)) in (1..).zip(providers(&model, &HttpOptions::default())) {
        model.says("ha").then_stalls();
        let cancel = CancellationToken::new();
        let mut stream = generator(&provider).generate_content_stream(request(), cancel.clone());
        let first = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
        assert!(first.unwrap().is_ok(), "{name}");
        cancel.cancel();
        // The server is stalled for ever: only the cancellation can end this.
        let end = tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
        assert_eq!(end.unwrap().unwrap_err().kind, ModelErrorKind::Cancelled, "{name}");
        assert!(stream.next().await.is_none(), "{name}");
        drop(stream);
        tokio::time::timeout(DEADLINE, model.wait_for_hang_ups(hung_up)).await.unwrap();
    }
}

/// Ready at once: not even the executor is asked to come back.
#[tokio::test]
async fn cancelling_needs_no_further_event() {
    let model = FakeModel::start().await.unwrap();
    for (name, provider, _) in providers(&model, &HttpOptions::default()) {
        model.says("ha").then_stalls();
        let cancel = CancellationToken::new();
        let mut stream = generator(&provider).generate_content_stream(request(), cancel.clone());
        tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
        cancel.cancel();
        match futures::future::poll_immediate(stream.next()).await {
            Some(Some(Err(error))) => assert_eq!(error.kind, ModelErrorKind::Cancelled, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn dropping_a_stream_hangs_up() {
    let model = FakeModel::start().await.unwrap();
    for (hung_up, (_, provider, _)) in (1..).zip(providers(&model, &HttpOptions::default())) {
        model.says("ha").then_stalls();
        let mut stream = generator(&provider).generate_content_stream(request(), CancellationToken::new());
        tokio::time::timeout(DEADLINE, stream.next()).await.unwrap();
        drop(stream);
        tokio::time::timeout(DEADLINE, model.wait_for_hang_ups(hung_up)).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let provider = Provider::OpenAi(OpenAiOptions::new(format!("http://{address}")));
    let cancel = CancellationToken::new();
    let mut stream = generator(&provider).generate_content_stream(request(), cancel.clone());
    let mut connection = None;
    let next = async {
        let accept = async {
            connection = Some(silent.accept().await.unwrap());
            cancel.cancel();
        };
        futures::future::join(stream.next(), accept).await.0
    };
    let end = tokio::time::timeout(DEADLINE, next).await.unwrap();
    assert_eq!(end.unwrap().unwrap_err().kind, ModelErrorKind::Cancelled);
}

#[tokio::test]
async fn a_slow_stream_may_take_longer_than_a_read() {
    let http = HttpOptions { read_timeout: Duration::from_secs(4), ..HttpOptions::default() };
    let model = FakeModel::start().await.unwrap();
    let tasks = providers(&model, &http).map(|(name, provider, _)| {
        let model = &model;
        async move {
            let answer = hear(&generator(&provider), request()).await;
            assert_eq!((answer.error, answer.finish.as_deref()), (None, Some("STOP")), "{name}");
            let _ = model;
        }
    });
    for _ in 0..4 {
        model.says("0");
        for piece in 1..10 {
            model.then_says(&piece.to_string());
        }
        model.slowly(Duration::from_millis(450));
    }
    futures::future::join_all(tasks).await;
}

#[tokio::test]
async fn compressed_bodies() {
    let model = FakeModel::start().await.unwrap();
    for (name, provider, recorded) in providers(&model, &HttpOptions::default()) {
        let generator = generator(&provider);
        model.sends([recorded.as_bytes()]);
        let whole = hear(&generator, request()).await;
        let packed = gzip(recorded.as_bytes());
        model.sends(packed.chunks(7)).with_header("content-encoding", "gzip");
        assert_eq!(hear(&generator, request()).await, whole, "{name}");
        assert!(model.requests()[0].header("accept-encoding").unwrap().contains("gzip"));
        model.sends([&packed[..packed.len() / 2]]).with_header("content-encoding", "gzip");
        let half = hear(&generator, request()).await;
        assert_eq!(half.error.map(|error| error.kind), Some(ModelErrorKind::Network), "{name}");
    }
}

/// RFC 1952 around one stored block of RFC 1951: a compressed body without a compressor.
fn gzip(data: &[u8]) -> Vec<u8> {
    let mut crc = u32::MAX;
    for byte in data {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    let length = u16::try_from(data.len()).unwrap();
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    packed.extend(length.to_le_bytes());
    packed.extend((!length).to_le_bytes());
    packed.extend(data);
    packed.extend((!crc).to_le_bytes());
    packed.extend(u32::from(length).to_le_bytes());
    packed
}

#[tokio::test]
async fn lists_of_models() {
    let model = FakeModel::start().await.unwrap();
    let cancel = CancellationToken::new();
    for (name, provider, _) in providers(&model, &HttpOptions::default()) {
        let (path, header) = match name {
            "gemini" => ("/v1beta/models?pageSize=1000", "x-goog-api-key"),
            "vertex" => ("/v1beta1/publishers/google/models?pageSize=1000", "authorization"),
            "openai" => ("/v1/models", "authorization"),
            _ => ("/v1/models?limit=1000", "x-api-key"),
        };
        model.sends([br#"{"data": [{"id": "one"}, {"id": "two"}]}"#.as_slice()]);
        let listed = list_models(&provider, &cancel).await.unwrap();
        assert_eq!(listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        let sent = model.requests().pop().unwrap();
        assert_eq!((sent.method.as_str(), sent.path.as_str()), ("GET", path));
        assert!(sent.header(header).unwrap().ends_with("k-secret"), "{name}");

        model.refuses(401, br#"{"error": {"message": "bad k-secret"}}"#);
        let error = list_models(&provider, &cancel).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Auth, "bad [redacted]"), "{name}");
        model.sends([b"[1]".as_slice(), b"garbage"]);
        assert_eq!(list_models(&provider, &cancel).await.unwrap_err().kind, ModelErrorKind::InvalidStream, "{name}");
        let mib = vec![b' '; 1024 * 1024];
        model.sends(std::iter::repeat_n(mib.as_slice(), 17));
        let error = list_models(&provider, &cancel).await.unwrap_err();
        assert!(error.message.starts_with("read an answer of more than 16777216 bytes"), "{name}: {error}");
    }
}
