//! Vertex AI and its tokens against scripted servers: what is sent, and how often?
#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::sync::Arc;

use convoke_adk::{Content, LlmRequest, ModelError, ModelErrorKind};
use convoke_models::{
    ContentGenerator, Credential, EmbedRequest, GenerateResponse, GoogleCredential, HttpOptions, Options, Provider,
    VertexAccess, VertexOptions, connect, list_models,
};
use convoke_testkit::fake_model::FakeModel;
use futures::TryStreamExt;
use futures::future::join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const KEY: &str = include_str!("google/service-account.key.pem");

fn with_token(model: &FakeModel, token: Credential) -> VertexOptions {
    let access = VertexAccess::Token {
        token,
        project: "my:project".into(),
        location: "europe-west4".into(),
        quota_project: Some("billed".into()),
    };
    VertexOptions { base_url: Some(model.gemini_url()), ..VertexOptions::new(access) }
}

fn vertex(options: VertexOptions) -> Arc<dyn ContentGenerator> {
    connect(Options::new(Provider::Vertex(options))).unwrap()
}

fn request() -> Arc<LlmRequest> {
    let contents = vec![Arc::new(Content::user("hi"))];
    let system_instruction = vec!["be good".into()];
    Arc::new(LlmRequest { model: "gemini-2.5-flash".into(), contents, system_instruction, ..LlmRequest::default() })
}

async fn ask(generator: &Arc<dyn ContentGenerator>) -> Result<String, ModelError> {
    let stream = generator.generate_content_stream(request(), CancellationToken::new());
    let pieces: Vec<GenerateResponse> = stream.try_collect().await?;
    Ok(pieces.iter().map(GenerateResponse::text).collect())
}

/// A token endpoint's answer.
fn token(name: &str, seconds: u64) -> String {
    json!({"access_token": name, "expires_in": seconds, "token_type": "Bearer"}).to_string()
}

fn user_tokens(endpoint: &FakeModel) -> Credential {
    let file = json!({"type": "authorized_user", "client_id": "id", "client_secret": "the-secret",
        "refresh_token": "the-refresh-token", "token_uri": format!("{}/token", endpoint.gemini_url())});
    GoogleCredential::parse(&file.to_string()).unwrap().into_tokens(HttpOptions::default()).unwrap()
}

#[tokio::test]
async fn a_project_s_models() {
    let model = FakeModel::start().await.unwrap();
    let generator = vertex(with_token(&model, "the-token".to_owned().into()));
    let cancel = CancellationToken::new();
    model.says("Hi.");
    assert_eq!(ask(&generator).await.unwrap(), "Hi.");
    model.sends([br#"{"totalTokens": 7}"#.as_slice()]);
    assert_eq!(generator.count_tokens(request(), cancel.clone()).await.unwrap().total_tokens, 7);
    for vector in [1.0, 2.0] {
        let answer = json!({"predictions": [{"embeddings": {"values": [vector], "statistics": {}}}]});
        model.sends([answer.to_string().as_bytes()]);
    }
    let texts = EmbedRequest { model: "gemini-embedding-001".into(), texts: vec!["a".into(), "b".into()] };
    let vectors = generator.embed_content(texts, cancel).await.unwrap();
    let vectors: Vec<_> = vectors.embeddings.into_iter().flat_map(|one| one.values).collect();
    assert_eq!(vectors, [1.0, 2.0]);

    let root = "/v1beta1/projects/my%3Aproject/locations/europe-west4/publishers/google/models";
    let sent = model.requests();
    let paths: Vec<_> = sent.iter().map(|sent| sent.path.strip_prefix(root).unwrap()).collect();
    let embedding = "/gemini-embedding-001:predict";
    let expected =
        ["/gemini-2.5-flash:streamGenerateContent?alt=sse", "/gemini-2.5-flash:countTokens", embedding, embedding];
    assert_eq!(paths, expected);
    assert_eq!(sent[0].header("authorization"), Some("Bearer the-token"));
    assert_eq!(sent[0].header("x-goog-user-project"), Some("billed"));
    let system = json!({"parts": [{"text": "be good"}]});
    let contents = json!([{"role": "user", "parts": [{"text": "hi"}]}]);
    assert_eq!(sent[0].body, json!({"contents": contents, "systemInstruction": system}));
    assert_eq!(sent[1].body, json!({"contents": contents, "systemInstruction": system}));
    assert_eq!(sent[3].body, json!({"instances": [{"content": "b"}]}));
}

#[tokio::test]
async fn express_mode() {
    let model = FakeModel::start().await.unwrap();
    let access = VertexAccess::ApiKey("the-key".to_owned().into());
    let options = VertexOptions { base_url: Some(model.gemini_url()), ..VertexOptions::new(access) };
    model.says("Hi.");
    ask(&vertex(options.clone())).await.unwrap();
    model.sends([br#"{"publisherModels": [{"name": "publishers/google/models/m"}]}"#.as_slice()]);
    let listed = list_models(&Provider::Vertex(options), &CancellationToken::new()).await.unwrap();
    assert_eq!(listed[0].id, "m");
    let sent = model.requests();
    assert_eq!(sent[0].path, "/v1beta1/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse");
    assert_eq!((sent[0].header("x-goog-api-key"), sent[0].header("authorization")), (Some("the-key"), None));
    assert_eq!(
        (sent[1].method.as_str(), sent[1].path.as_str()),
        ("GET", "/v1beta1/publishers/google/models?pageSize=1000")
    );
}

#[tokio::test]
async fn a_refresh_token_is_used_once_for_many_calls() {
    let (model, endpoint) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    endpoint.sends([token("first-token", 3600).as_bytes()]);
    let generator = vertex(with_token(&model, user_tokens(&endpoint)));
    for _ in 0..8 {
        model.says("Hi.");
    }
    let answers = join_all((0..8).map(|_| ask(&generator))).await;
    assert!(answers.iter().all(|answer| answer.as_deref() == Ok("Hi.")), "{answers:?}");
    let asked = endpoint.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].path.as_str(), asked[0].header("content-type")),
        ("/token", Some("application/x-www-form-urlencoded"))
    );
    let form = "grant_type=refresh_token&client_id=id&client_secret=the-secret&refresh_token=the-refresh-token";
    assert_eq!(asked[0].body, Value::String(form.to_owned()));
    assert_eq!(asked[0].header("x-goog-user-project"), None, "headers are for the model's server");
    assert!(model.requests().iter().all(|sent| sent.header("authorization") == Some("Bearer first-token")));
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_when_it_is_refused() {
    let (model, endpoint) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    let generator = vertex(with_token(&model, user_tokens(&endpoint)));
    // Good for less than the margin: the next call asks again.
    endpoint.sends([token("token-1", 60).as_bytes()]);
    endpoint.sends([token("token-2", 3600).as_bytes()]);
    endpoint.sends([token("token-3", 3600).as_bytes()]);
    endpoint.sends([token("token-4", 3600).as_bytes()]);
    model.says("1").says("2").fails(401, json!({"message": "revoked"})).says("3");
    for expected in ["1", "2", "3"] {
        assert_eq!(ask(&generator).await.as_deref(), Ok(expected));
    }
    let tokens = |requests: Vec<convoke_testkit::fake_model::RecordedRequest>| -> Vec<String> {
        requests.iter().map(|sent| sent.header("authorization").unwrap().replace("Bearer ", "")).collect()
    };
    assert_eq!(tokens(model.requests()), ["token-1", "token-2", "token-2", "token-3"]);
    // A new token that is refused as well ends the matter; the token is not told.
    model.fails(401, json!({"message": "no token-3"})).fails(401, json!({"message": "nor token-4"}));
    let error = ask(&generator).await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::Auth, "nor [redacted]"));
    assert_eq!(endpoint.requests().len(), 4);
}

#[tokio::test]
async fn a_service_account_signs() {
    let (model, endpoint) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    let file = json!({"type": "service_account", "client_email": "bot@p.iam.gserviceaccount.com", "private_key": KEY,
        "project_id": "p", "token_uri": format!("{}/token", endpoint.gemini_url())});
    let credential = GoogleCredential::parse(&file.to_string()).unwrap();
    assert_eq!(credential.project(), Some("p"));
    let tokens = credential.into_tokens(HttpOptions::default()).unwrap();
    endpoint.sends([token("signed-for", 3600).as_bytes()]);
    model.says("Hi.");
    ask(&vertex(with_token(&model, tokens))).await.unwrap();
    let form = endpoint.requests().remove(0).body;
    let form = form.as_str().unwrap();
    let assertion = form.strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=");
    assert_eq!(assertion.unwrap().split('.').count(), 3);
    assert_eq!(model.requests()[0].header("authorization"), Some("Bearer signed-for"));
}

#[tokio::test]
async fn a_token_endpoint_that_refuses() {
    let (model, endpoint) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    let body = json!({"error": "invalid_grant", "error_description": "the-refresh-token has been revoked."});
    endpoint.refuses(400, body.to_string().as_bytes());
    let error = ask(&vertex(with_token(&model, user_tokens(&endpoint)))).await.unwrap_err();
    let expected = format!(
        "get an access token for the user of the ADC file from {}: [redacted] has been revoked.",
        endpoint.gemini_url()
    );
    assert_eq!((error.kind, error.message), (ModelErrorKind::Auth, expected));
    assert!(model.requests().is_empty(), "nothing is asked without a token");

    // One that is down is another matter: the call may be repeated.
    endpoint.refuses(503, b"");
    let error = ask(&vertex(with_token(&model, user_tokens(&endpoint)))).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Server);
}

#[tokio::test]
async fn cancelling_does_not_wait_for_a_token() {
    let (model, endpoint) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    endpoint.sends([b"{".as_slice()]).then_stalls();
    let generator = vertex(with_token(&model, user_tokens(&endpoint)));
    let cancel = CancellationToken::new();
    let call = generator.generate_content(request(), cancel.clone());
    let stop = async {
        endpoint.wait_for_requests(1).await;
        cancel.cancel();
    };
    let (answer, ()) = futures::future::join(call, stop).await;
    assert_eq!(answer.unwrap_err().kind, ModelErrorKind::Cancelled);
    assert!(model.requests().is_empty());
}
