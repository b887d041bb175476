//! Servers that fail: is each failure told for what it is, by every provider?
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail where it stands")]

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use convoke_adk::{Content, Llm, LlmRequest, ModelError, ModelErrorKind};
use convoke_models::{
    AnthropicOptions, ContentGenerator, GeminiOptions, GeneratorLlm, HttpOptions, LlmOptions, OpenAiOptions, Options,
    Provider, connect,
};
use convoke_testkit::fake_model::FakeModel;
use futures::{StreamExt, TryStreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn gemini(base_url: &str, http: HttpOptions) -> Arc<dyn ContentGenerator> {
    let options = GeminiOptions {
        base_url: base_url.to_owned(),
        api_key: Some("k-secret".to_owned().into()),
        http,
        ..GeminiOptions::default()
    };
    connect(Options::new(Provider::Gemini(options))).unwrap()
}

fn openai(base_url: &str, http: HttpOptions) -> Arc<dyn ContentGenerator> {
    let options = OpenAiOptions { api_key: Some("k-secret".to_owned().into()), http, ..OpenAiOptions::new(base_url) };
    connect(Options::new(Provider::OpenAi(options))).unwrap()
}

fn anthropic(base_url: &str, http: HttpOptions) -> Arc<dyn ContentGenerator> {
    let api_key = Some("k-secret".to_owned().into());
    let options = AnthropicOptions { base_url: base_url.to_owned(), api_key, http, ..AnthropicOptions::default() };
    connect(Options::new(Provider::Anthropic(options))).unwrap()
}

fn request() -> Arc<LlmRequest> {
    let contents = vec![Arc::new(Content::user("hi"))];
    Arc::new(LlmRequest { model: "m".into(), contents, ..LlmRequest::default() })
}

/// How many pieces came, and the failure.
async fn failure(generator: Arc<dyn ContentGenerator>) -> (usize, ModelError) {
    let mut stream = generator.generate_content_stream(request(), CancellationToken::new());
    let mut count = 0;
    loop {
        match stream.next().await {
            Some(Ok(_)) => count += 1,
            Some(Err(error)) => {
                assert!(stream.next().await.is_none(), "nothing after a failure");
                assert!(!format!("{error:?}").contains("k-secret"), "{error:?}");
                return (count, error);
            }
            None => panic!("no failure"),
        }
    }
}

/// Runs every provider against a script.
async fn all(script: impl Fn(&FakeModel), http: HttpOptions, check: impl Fn(usize, ModelError)) {
    let model = FakeModel::start().await.unwrap();
    script(&model);
    let (count, error) = failure(gemini(&model.gemini_url(), http.clone())).await;
    check(count, error);
    script(&model);
    let (count, error) = failure(openai(&model.openai_url(), http.clone())).await;
    check(count, error);
    script(&model);
    let (count, error) = failure(anthropic(&model.anthropic_url(), http)).await;
    check(count, error);
    assert_eq!(model.turns_left(), 0);
}

#[tokio::test]
async fn statuses() {
    use ModelErrorKind::{Auth, BadRequest, NotFound, RateLimit, Server};
    for (status, kind) in
        [(400, BadRequest), (401, Auth), (403, Auth), (404, NotFound), (429, RateLimit), (500, Server), (503, Server)]
    {
        let script = |model: &FakeModel| {
            model.fails(status, json!({"message": "the server's words"})).with_header("Retry-After", "7");
        };
        all(script, HttpOptions::default(), |count, error| {
            let waits = matches!(kind, RateLimit | Server).then_some(Duration::from_secs(7));
            let message = "the server's words".to_owned();
            let expected = ModelError { kind, status: Some(status), message, retry_after: waits };
            assert_eq!((count, error), (0, expected));
        })
        .await;
    }
}

#[tokio::test]
async fn a_stream_that_is_cut() {
    let script = |model: &FakeModel| {
        model.says("ha").then_cuts();
    };
    all(script, HttpOptions::default(), |count, error| {
        assert_eq!((count, error.kind, error.status), (1, ModelErrorKind::Network, None));
        assert!(error.message.starts_with("the answer of http://127.0.0.1:"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn an_event_that_is_cut() {
    let script = |model: &FakeModel| {
        model.sends([b"data: {\"candidates\": [{\"con".as_slice()]);
    };
    all(script, HttpOptions::default(), |_, error| {
        assert_eq!(error.kind, ModelErrorKind::Network);
        assert_eq!(error.message, "the model's answer broke off in the middle of a piece");
    })
    .await;
}

#[tokio::test]
async fn malformed_json_and_bytes() {
    for body in [b"data: {\"x\": nonsense}\n\n".as_slice(), b"data: {\"x\": \"\xff\"}\n\n", b"data: }\n\n"] {
        let script = |model: &FakeModel| {
            model.sends([body]);
        };
        all(script, HttpOptions::default(), |_, error| {
            assert_eq!(error.kind, ModelErrorKind::InvalidStream);
            assert!(error.message.starts_with("the model's answer is malformed: "), "{error}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_web_page() {
    let script = |model: &FakeModel| {
        model.sends([b"\n<!doctype html>hello".as_slice()]).with_header("content-type", "text/html");
    };
    all(script, HttpOptions::default(), |_, error| {
        assert_eq!(error.kind, ModelErrorKind::Other);
        assert!(error.message.ends_with("check the base URL"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = FakeModel::start().await.unwrap();
    let script = |model: &FakeModel| {
        model.fails(307, Value::Null).with_header("Location", &elsewhere.gemini_url());
    };
    all(script, HttpOptions::default(), |_, error| {
        assert_eq!((error.kind, error.status), (ModelErrorKind::Other, Some(307)));
        assert!(error.message.ends_with("name the final address"), "{error}");
    })
    .await;
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_server_that_falls_silent() {
    let http = HttpOptions { read_timeout: Duration::from_millis(500), ..HttpOptions::default() };
    let script = |model: &FakeModel| {
        model.says("ha").then_stalls();
    };
    all(script, http.clone(), |count, error| {
        assert_eq!((count, error.kind), (1, ModelErrorKind::Network));
        assert!(error.message.ends_with("stopped answering"), "{error}");
    })
    .await;
    let mute = |model: &FakeModel| {
        model.sends([]).then_stalls();
    };
    all(mute, http, |count, error| assert_eq!((count, error.kind), (0, ModelErrorKind::Network))).await;
}

#[tokio::test]
async fn noise_is_bounded() {
    let model = FakeModel::start().await.unwrap();
    model.sends(vec![[b'x'; 100_000].as_slice(); 20]);
    model.fails(500, json!({"message": "y".repeat(1_000_000)}));
    let generator = gemini(&model.gemini_url(), HttpOptions::default());
    let stream = generator.generate_content_stream(request(), CancellationToken::new());
    assert_eq!(stream.try_collect::<Vec<_>>().await.unwrap().len(), 0, "no events in a line of noise");
    let (_, error) = failure(generator).await;
    assert_eq!((error.kind, error.message.len()), (ModelErrorKind::Server, 2048));
}

#[tokio::test]
async fn an_event_without_end_is_refused() {
    let mib = vec![b'x'; 1024 * 1024];
    let script = |model: &FakeModel| {
        model.sends(std::iter::once(b"data: ".as_slice()).chain(std::iter::repeat_n(mib.as_slice(), 33)));
    };
    all(script, HttpOptions::default(), |_, error| {
        assert_eq!(error.kind, ModelErrorKind::Other);
        assert_eq!(error.message, "read an event of more than 33554432 bytes");
    })
    .await;
}

#[tokio::test]
async fn nobody_listens() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_, error) = failure(openai(&format!("http://{address}"), HttpOptions::default())).await;
    assert_eq!(error.kind, ModelErrorKind::Network);
    let expected = format!("no connection to http://{address}: Connection refused");
    assert!(error.message.starts_with(&expected), "{error}");
}

/// A TLS server for one connection, on a blocking thread: it answers any request with one JSON body.
fn tls_server(body: &'static str) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/server.key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        // The client may refuse the certificate, which is for the test to see.
        if std::io::Read::read(&mut stream, &mut [0; 16 * 1024]).is_ok() {
            let _ = stream.write_all((head + body).as_bytes());
        }
    };
    (address, tokio::task::spawn_blocking(serve))
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for() {
    let (address, server) = tls_server("{}");
    let (_, error) = failure(gemini(&format!("https://{address}"), HttpOptions::default())).await;
    assert_eq!(error.kind, ModelErrorKind::Other, "waiting would not help: {error}");
    assert!(error.message.starts_with(&format!("no secure connection to https://{address}: ")), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_ones_own() {
    let (address, server) = tls_server(r#"{"candidates": [{"content": {"parts": [{"text": "Hi."}]}}]}"#);
    let http = HttpOptions { extra_roots_pem: vec![include_bytes!("tls/ca.pem").to_vec()], ..HttpOptions::default() };
    let generator = gemini(&format!("https://{address}"), http);
    let answer = generator.generate_content(request(), CancellationToken::new()).await.unwrap();
    assert_eq!(answer.text(), "Hi.");
    server.await.unwrap();
}

#[tokio::test]
async fn tls_to_a_server_without_it() {
    let model = FakeModel::start().await.unwrap();
    let (_, error) = failure(gemini(&format!("https://{}", model.address()), HttpOptions::default())).await;
    assert_eq!(error.kind, ModelErrorKind::Other);
    assert!(error.message.starts_with("no secure connection to https://"), "{error}");
}

#[tokio::test]
async fn the_kernel_sees_a_cut_stream_taken_back() {
    let model = FakeModel::start().await.unwrap();
    model.says("ha").then_cuts();
    model.fails(503, json!({"message": "busy"}));
    model.says("Hi.");
    let mut options = LlmOptions::new("m");
    options.retry = options.retry.without_waits();
    options.stream_retry = options.stream_retry.without_waits();
    let llm = GeneratorLlm::new(openai(&model.openai_url(), HttpOptions::default()), options);
    let contents = vec![Arc::new(Content::user("hi"))];
    let request = LlmRequest { contents, ..LlmRequest::default() };
    let pieces: Vec<_> = llm.generate(request, CancellationToken::new()).try_collect().await.unwrap();
    let seen: Vec<_> = pieces
        .into_iter()
        .map(|piece| (piece.retracted, piece.content.map(|content| content.joined_text()).unwrap_or_default()))
        .collect();
    let expected = [(false, "ha"), (true, ""), (false, "Hi."), (false, "")];
    assert_eq!(seen, expected.map(|(retracted, text)| (retracted, text.to_owned())));
    assert_eq!(model.requests().len(), 3);
}
