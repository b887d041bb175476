//! The Gemini provider against a scripted server: what is sent, and what comes back?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;

use convoke_adk::{Content, LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part};
use convoke_models::{
    ContentGenerator, EmbedRequest, GeminiAuth, GeminiOptions, GenerateResponse, Options, Provider, connect,
};
use convoke_testkit::fake_model::FakeModel;
use futures::{StreamExt, TryStreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn options(base_url: &str) -> GeminiOptions {
    GeminiOptions {
        base_url: base_url.to_owned(),
        api_key: Some("k-secret".to_owned().into()),
        ..GeminiOptions::default()
    }
}

fn gemini(options: GeminiOptions) -> Arc<dyn ContentGenerator> {
    connect(Options::new(Provider::Gemini(options))).unwrap()
}

fn request() -> Arc<LlmRequest> {
    let contents = vec![Arc::new(Content::user("hi"))];
    Arc::new(LlmRequest { model: "gemini-2.5-flash".into(), contents, ..LlmRequest::default() })
}

async fn pieces(generator: &Arc<dyn ContentGenerator>) -> Result<Vec<LlmResponse>, ModelError> {
    let stream = generator.generate_content_stream(request(), CancellationToken::new());
    stream.map_ok(GenerateResponse::into_piece).try_collect().await
}

#[tokio::test]
async fn a_streamed_answer() {
    let model = FakeModel::start().await.unwrap();
    model.thinks("hm").then_says("Hi.").then_calls("ls", json!({"path": "."}));
    let pieces = pieces(&gemini(options(&model.gemini_url()))).await.unwrap();
    let parts: Vec<&Part> = pieces.iter().filter_map(|piece| piece.content.as_ref()).flat_map(|c| &c.parts).collect();
    assert_eq!(
        serde_json::to_value(parts).unwrap(),
        json!([{"text": "hm", "thought": true}, {"text": "Hi."}, {"functionCall": {"name": "ls", "args": {"path": "."}}}])
    );
    let last = pieces.last().unwrap();
    assert_eq!(last.finish_reason.as_ref().unwrap().0, "STOP");
    assert_eq!(last.usage.as_ref().unwrap().total_token_count, 15);
    assert_eq!(last.model_version.as_deref(), Some("fake-model"));

    let requests = model.requests();
    let [sent] = requests.as_slice() else { panic!("one request, but {requests:?}") };
    assert_eq!(sent.path, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    assert_eq!(sent.header("x-goog-api-key"), Some("k-secret"));
    assert_eq!(sent.header("authorization"), None);
    assert_eq!(sent.header("content-type"), Some("application/json"));
    assert_eq!(sent.header("user-agent"), Some(concat!("convoke/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(sent.body, json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}));
}

#[tokio::test]
async fn base_urls_keys_and_headers() {
    for (suffix, path) in [
        ("", "/v1beta/models/"),
        ("/", "/v1beta/models/"),
        ("/v1beta", "/v1beta/models/"),
        ("/v1alpha/", "/v1alpha/models/"),
        ("/gateway", "/gateway/v1beta/models/"),
    ] {
        let model = FakeModel::start().await.unwrap();
        model.says("a");
        let mut options = options(&(model.gemini_url() + suffix));
        options.auth = GeminiAuth::Bearer;
        options.http.headers = vec![("X-Team".to_owned(), "blue team".to_owned().into())];
        pieces(&gemini(options)).await.unwrap();
        let sent = model.requests().remove(0);
        assert!(sent.path.starts_with(path), "{suffix}: {}", sent.path);
        assert_eq!((sent.header("authorization"), sent.header("x-goog-api-key")), (Some("Bearer k-secret"), None));
        assert_eq!(sent.header("x-team"), Some("blue team"));
    }
}

#[tokio::test]
async fn an_array_without_events() {
    let model = FakeModel::start().await.unwrap();
    let chunk = |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}}]});
    let body = json!([chunk("a"), chunk("b")]).to_string();
    let (head, tail) = body.as_bytes().split_at(20);
    model.sends([head, tail]).with_header("content-type", "application/json");
    let texts: Vec<_> = pieces(&gemini(options(&model.gemini_url()))).await.unwrap();
    let texts: Vec<_> = texts.into_iter().map(|piece| piece.content.unwrap().joined_text()).collect();
    assert_eq!(texts, ["a", "b"]);
}

#[tokio::test]
async fn whole_answers_counts_and_vectors() {
    let model = FakeModel::start().await.unwrap();
    let generator = gemini(options(&model.gemini_url()));
    let cancel = CancellationToken::new();
    model.says("Hi.");
    assert_eq!(generator.generate_content(request(), cancel.clone()).await.unwrap().text(), "Hi.");
    model.sends([br#"{"totalTokens": 9, "unknown": 1}"#.as_slice()]);
    assert_eq!(generator.count_tokens(request(), cancel.clone()).await.unwrap().total_tokens, 9);
    model.sends([br#"{"error": {"code": 503, "message": "k-secret is tired"}}"#.as_slice()]);
    let error = generator.count_tokens(request(), cancel.clone()).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Server, "[redacted] is tired"));
    model.sends([br#"{"embeddings": [{"values": [0.5, -1]}]}"#.as_slice()]);
    let texts = EmbedRequest { model: "gemini-embedding-001".into(), texts: vec!["t".into()] };
    let vectors = generator.embed_content(texts, cancel).await.unwrap();
    assert_eq!(vectors.embeddings[0].values, [0.5, -1.0]);
    let paths: Vec<_> = model.requests().into_iter().map(|request| request.path).collect();
    let prefix = "/v1beta/models/gemini-2.5-flash";
    let expected = [
        format!("{prefix}:generateContent"),
        format!("{prefix}:countTokens"),
        format!("{prefix}:countTokens"),
        "/v1beta/models/gemini-embedding-001:batchEmbedContents".to_owned(),
    ];
    assert_eq!(paths, expected);
}

#[tokio::test]
async fn an_error_in_the_stream_has_its_status_and_no_key() {
    let model = FakeModel::start().await.unwrap();
    let error = json!({"error": {"code": 429, "message": "k-secret is too busy", "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.5s"}]}});
    model.says("a").without_end();
    model.sends([format!("data: {}\n\ndata: {error}\n\n", json!({"candidates": []})).as_bytes()]);
    let generator = gemini(options(&model.gemini_url()));
    assert_eq!(pieces(&generator).await.unwrap().len(), 1);
    let error = pieces(&generator).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimit, Some(429)));
    assert_eq!(error.message, "[redacted] is too busy");
    assert_eq!(error.retry_after, Some(std::time::Duration::from_millis(1500)));
}

#[tokio::test]
async fn cancelling_hangs_up() {
    let model = FakeModel::start().await.unwrap();
    model.says("a").then_stalls();
    let cancel = CancellationToken::new();
    let generator = gemini(options(&model.gemini_url()));
    let mut stream = generator.generate_content_stream(request(), cancel.clone());
    assert_eq!(stream.next().await.unwrap().unwrap().text(), "a");
    let (next, ()) = tokio::join!(stream.next(), async { cancel.cancel() });
    assert_eq!(next.unwrap().unwrap_err().kind, ModelErrorKind::Cancelled);
    assert!(stream.next().await.is_none());

    let cancel = CancellationToken::new();
    model.says("late").then_stalls();
    model.release();
    cancel.cancel();
    let error = generator.generate_content(request(), cancel).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Cancelled);
    assert_eq!(model.requests().len(), 1, "nothing is sent any more");
}

#[tokio::test]
async fn nothing_is_said_about_options_that_are_secret() {
    let mut options = options("http://user:pass-word@127.0.0.1:9");
    options.http.headers = vec![("X-Key".to_owned(), "header-secret".to_owned().into())];
    let printed = format!("{:?}", Options::new(Provider::Gemini(options.clone())));
    assert!(printed.contains("127.0.0.1:9"), "{printed}");
    let error = gemini(options).generate_content(request(), CancellationToken::new()).await.unwrap_err();
    let told = format!("{printed} {error} {error:?}");
    for secret in ["k-secret", "header-secret", "pass-word"] {
        assert!(!told.contains(secret), "{told}");
    }
}

#[test]
fn wrong_options_are_refused_without_their_values() {
    let refused = |options: GeminiOptions| {
        let Err(error) = connect(Options::new(Provider::Gemini(options))) else { panic!("accepted") };
        error.to_string()
    };
    assert_eq!(refused(options("nonsense")), "read the base URL: relative URL without a base");
    assert_eq!(refused(options("ftp://x")), "read the base URL: scheme 'ftp' is neither http nor https");
    let mut bad = options("http://x");
    bad.http.headers = vec![("a b".to_owned(), "v".to_owned().into())];
    assert_eq!(refused(bad), "use 'a b' as a header name");
    let mut bad = options("http://x");
    bad.api_key = Some("line\nbreak".to_owned().into());
    let text = refused(bad);
    assert_eq!(text, "use the value of header 'x-goog-api-key': it holds characters that no header may have");
}

#[tokio::test]
async fn no_key_sends_no_header() {
    let model = FakeModel::start().await.unwrap();
    model.says("a");
    pieces(&gemini(GeminiOptions { api_key: None, ..options(&model.gemini_url()) })).await.unwrap();
    assert_eq!(model.requests()[0].header("x-goog-api-key"), None);
    assert_ne!(model.requests()[0].body, Value::Null);
}
