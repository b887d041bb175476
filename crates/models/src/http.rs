//! HTTP: how does a request reach a model's server, and what comes back?
//!
//! One [`Http`] per provider: base URL, credential, headers, and a client that is made at the first call, so that a
//! run which never asks a model pays nothing, and a plain `http://` server does not cost the reading of the system's
//! certificates. Redirects are not followed: they would carry the credential elsewhere. Nothing here logs, and no
//! error holds, a credential.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_adk::{ModelError, ModelErrorKind};
use convoke_stdx::Clock;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;

use crate::connect::ConnectError;
use crate::error::{ERROR_BODY_MAX, Refusal, classify};
use crate::sse::{EVENT_BYTES_MAX, SseDecoder};

mod failure;

use failure::transport_error;

/// The most that one answer may have in all. Generous: the longest text answers are below 1 MiB, and what is more are
/// images. A server that sends for ever ends here and not in our memory.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How to talk HTTP. Proxies are taken from the usual variables (`HTTPS_PROXY`, `NO_PROXY` …), except for servers on
/// this machine, which are reached without one.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Sent with every request. Values are treated as secret.
    pub headers: Vec<(String, SecretString)>,
    /// For DNS, TCP and TLS.
    pub connect_timeout: Duration,
    /// Between two reads, before the first byte too. There is no limit on the whole of a stream.
    pub read_timeout: Duration,
    /// Trust anchors besides the system's, each in PEM.
    pub extra_roots_pem: Vec<Vec<u8>>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(300),
            extra_roots_pem: Vec::new(),
        }
    }
}

/// Makes `ring` the process's TLS provider, unless there is one already. May be called any number of times.
pub fn install_tls_provider() {
    // The error says that another call was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// One server.
pub(crate) struct Http {
    base: Url,
    headers: HeaderMap,
    secrets: Vec<SecretString>,
    options: HttpOptions,
    client: OnceCell<Client>,
    clock: Clock,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("origin", &self.origin()).finish_non_exhaustive()
    }
}

impl Http {
    /// A server at `base`, whose path is a prefix of all requests. `credential` is a header and its value's prefix
    /// and secret.
    pub(crate) fn new(
        base: Url,
        credential: Option<(HeaderName, &str, SecretString)>,
        options: HttpOptions,
    ) -> Result<Self, ConnectError> {
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        headers.insert(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &options.headers {
            let key = HeaderName::try_from(name.as_str()).map_err(|_| ConnectError::Header(name.clone()))?;
            headers.insert(key, secret_value(name, value.expose_secret())?);
            secrets.push(value.clone());
        }
        if let Some((name, prefix, secret)) = credential {
            let value = secret_value(name.as_str(), &format!("{prefix}{}", secret.expose_secret()))?;
            headers.insert(name, value);
            secrets.push(secret);
        }
        // Short values would blank out ordinary words, and are no secrets.
        secrets.retain(|secret| secret.expose_secret().len() >= 6);
        if let Some(password) = base.password().filter(|password| !password.is_empty()) {
            secrets.push(SecretString::from(password.to_owned()));
        }
        Ok(Self { base, headers, secrets, options, client: OnceCell::new(), clock: Clock::start() })
    }

    /// Scheme, host and port: what may be told.
    pub(crate) fn origin(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    /// The host, for choices between dialects.
    pub(crate) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Sends `body` to `path` below the base and gives the answer's head, if its status is a success.
    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Answer, ModelError> {
        let client = self.client.get_or_try_init(|| self.make_client()).await?;
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        url.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        if query.is_some() {
            url.set_query(query);
        }
        let response = client.post(url).headers(self.headers.clone()).body(body).send().await;
        let response = response.map_err(|error| self.scrub(transport_error(&error, &self.origin())))?;
        if response.status().is_success() {
            Ok(Answer { response, sent: 0, origin: self.origin() })
        } else {
            Err(self.refused(response).await)
        }
    }

    async fn refused(&self, mut response: Response) -> ModelError {
        let status = response.status();
        let retry_after = response.headers().get(reqwest::header::RETRY_AFTER).cloned();
        let mut body = Vec::new();
        // A body that breaks off still has the status, and perhaps the message.
        while let Ok(Some(bytes)) = response.chunk().await {
            let room = ERROR_BODY_MAX - body.len();
            body.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
            if body.len() >= ERROR_BODY_MAX {
                break;
            }
        }
        let mut error = classify(Refusal {
            status: status.as_u16(),
            retry_after: retry_after.as_ref().and_then(|value| value.to_str().ok()),
            body: &body,
            wall_ms: self.clock.now().wall_ms,
        });
        if status.is_redirection() {
            error.message = format!("the server at {} redirects elsewhere; name the final address", self.origin());
        }
        self.scrub(error)
    }

    /// Takes credentials out of an error: some servers quote the key that they refuse.
    pub(crate) fn scrub(&self, mut error: ModelError) -> ModelError {
        for secret in &self.secrets {
            if error.message.contains(secret.expose_secret()) {
                error.message = error.message.replace(secret.expose_secret(), "[redacted]");
            }
        }
        error
    }

    async fn make_client(&self) -> Result<Client, ModelError> {
        let mut builder = Client::builder()
            .user_agent(concat!("convoke/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.options.connect_timeout)
            .read_timeout(self.options.read_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        if is_loopback(&self.base) {
            // A proxy has no business between us and ourselves, and could not reach us.
            builder = builder.no_proxy();
        }
        let failed = |error: String| ModelError::new(ModelErrorKind::Other, format!("make an HTTP client: {error}"));
        if self.base.scheme() == "http" {
            let tls = rootless_tls().map_err(|error| failed(error.to_string()))?;
            return builder.tls_backend_preconfigured(tls).build().map_err(|error| failed(error.to_string()));
        }
        install_tls_provider();
        for pem in &self.options.extra_roots_pem {
            let root = reqwest::Certificate::from_pem(pem).map_err(|error| failed(error.to_string()))?;
            builder = builder.tls_certs_merge([root]);
        }
        // Reads a few hundred files on some systems.
        match tokio::task::spawn_blocking(move || builder.build()).await {
            Ok(client) => client.map_err(|error| failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Reads a base URL: only `http` and `https`, without query and fragment.
pub(crate) fn parse_base(text: &str) -> Result<Url, ConnectError> {
    let mut base = Url::parse(text.trim()).map_err(|error| ConnectError::BaseUrl(error.to_string()))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err(ConnectError::BaseUrl(format!("scheme '{}' is neither http nor https", base.scheme())));
    }
    if base.host_str().is_none_or(str::is_empty) {
        return Err(ConnectError::BaseUrl("it has no host".to_owned()));
    }
    base.set_fragment(None);
    Ok(base)
}

/// A base URL for people: without a user's name, password and query.
pub(crate) fn shown(base_url: &str) -> String {
    match Url::parse(base_url) {
        Ok(url) => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        Err(_) => "(not a URL)".to_owned(),
    }
}

fn secret_value(name: &str, value: &str) -> Result<HeaderValue, ConnectError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| ConnectError::HeaderValue(name.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

/// TLS that trusts nobody: reqwest wants a TLS backend even where none will be used.
fn rootless_tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// An answer whose body is yet to be read.
#[derive(Debug)]
pub(crate) struct Answer {
    response: Response,
    sent: usize,
    origin: String,
}

impl Answer {
    /// The whole body.
    pub(crate) async fn bytes(mut self) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// The JSON texts that the body consists of: the data of each event, or the body where it is plain JSON.
    pub(crate) fn documents(self) -> Documents {
        Documents { answer: self, form: Form::Unknown, ready: VecDeque::new() }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, ModelError> {
        let bytes = self.response.chunk().await.map_err(|error| transport_error(&error, &self.origin))?;
        self.sent += bytes.as_ref().map_or(0, Bytes::len);
        if self.sent > ANSWER_BYTES_MAX {
            let message = format!("read an answer of more than {ANSWER_BYTES_MAX} bytes");
            return Err(ModelError::new(ModelErrorKind::Other, message));
        }
        Ok(bytes)
    }
}

/// The JSON texts of an answer, as they arrive.
#[derive(Debug)]
pub(crate) struct Documents {
    answer: Answer,
    form: Form,
    /// Complete texts: what one read brought, which [`EVENT_BYTES_MAX`] and the size of a read bound.
    ready: VecDeque<Vec<u8>>,
}

/// Told by the first byte rather than by the content type, which servers get wrong.
#[derive(Debug)]
enum Form {
    Unknown,
    Events(SseDecoder),
    Json(Vec<u8>),
    Done,
}

impl Documents {
    /// The next text; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ModelError> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Ok(Some(text));
            }
            if matches!(self.form, Form::Done) {
                return Ok(None);
            }
            match self.answer.chunk().await {
                Ok(Some(bytes)) => self.take(&bytes)?,
                Ok(None) => match std::mem::replace(&mut self.form, Form::Done) {
                    Form::Events(mut decoder) => decoder.finish(&mut self.ready).map_err(too_long)?,
                    Form::Json(body) => return Ok(Some(body)),
                    Form::Unknown | Form::Done => {}
                },
                Err(error) => {
                    self.form = Form::Done;
                    return Err(error);
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if matches!(self.form, Form::Unknown) {
            self.form = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[') => Form::Json(Vec::new()),
                Some(b'<') => {
                    let message = format!(
                        "{} answered with a web page where a model's answer was expected; check the base URL",
                        self.answer.origin
                    );
                    self.form = Form::Done;
                    return Err(ModelError::new(ModelErrorKind::Other, message));
                }
                Some(_) => Form::Events(SseDecoder::new(EVENT_BYTES_MAX)),
            };
        }
        match &mut self.form {
            Form::Events(decoder) => decoder.push(bytes, &mut self.ready).map_err(too_long),
            Form::Json(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            Form::Unknown | Form::Done => Ok(()),
        }
    }
}

fn too_long(error: crate::sse::EventTooLong) -> ModelError {
    ModelError::new(ModelErrorKind::Other, error.to_string())
}

/// Reads one JSON text of a stream.
///
/// A text that stops in the middle means that the stream was cut, any other fault that the server can't write JSON;
/// both are worth another attempt.
pub(crate) fn parse_json<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, ModelError> {
    serde_json::from_slice(text).map_err(|error| {
        if error.is_eof() {
            ModelError::new(ModelErrorKind::Network, "the model's answer broke off in the middle of a piece")
        } else {
            ModelError::new(ModelErrorKind::InvalidStream, format!("the model's answer is malformed: {error}"))
        }
    })
}
