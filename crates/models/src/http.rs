//! HTTP: how does a request reach a model's server, and what comes back?
//!
//! One [`Http`] per provider: base URL, credential, headers, and a client that is made at the first call, so that a
//! run which never asks a model pays nothing, and a plain `http://` server does not cost the reading of the system's
//! certificates. Redirects are not followed: they would carry the credential elsewhere. Nothing here logs, and no
//! error holds, a credential.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_adk::{ModelError, ModelErrorKind};
use convoke_stdx::Clock;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use tokio::sync::OnceCell;

use crate::connect::ConnectError;
use crate::credential::{Credential, Renewed};
use crate::error::{ERROR_BODY_MAX, Refusal, classify};

mod answer;
mod failure;

pub(crate) use answer::{Answer, parse_json};
use failure::transport_error;

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

/// The header that proves who asks: its name, what stands before the secret, and the secret.
pub(crate) type Proof = (HeaderName, &'static str, Credential);

/// One server.
pub(crate) struct Http {
    base: Url,
    headers: HeaderMap,
    /// A secret that must be asked for before it can be sent.
    renewed: Option<(HeaderName, &'static str, Arc<Renewed>)>,
    secrets: Vec<SecretString>,
    options: HttpOptions,
    client: OnceCell<Client>,
    clock: Clock,
    /// Bytes of the last document that was written.
    written: AtomicUsize,
}

/// Bytes of room that a document may grow by, beyond a sixteenth of the last one: a tool's result, as a rule.
const ROOM: usize = 16 << 10;

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("origin", &self.origin()).finish_non_exhaustive()
    }
}

impl Http {
    /// A server at `base`, whose path is a prefix of all requests.
    pub(crate) fn new(base: Url, proof: Option<Proof>, options: HttpOptions) -> Result<Self, ConnectError> {
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        let mut renewed = None;
        for (name, value) in &options.headers {
            let key = HeaderName::try_from(name.as_str()).map_err(|_| ConnectError::Header(name.clone()))?;
            headers.insert(key, secret_value(name, value.expose_secret())?);
            secrets.push(value.clone());
        }
        match proof {
            Some((name, prefix, Credential::Fixed(secret))) => {
                let value = secret_value(name.as_str(), &format!("{prefix}{}", secret.expose_secret()))?;
                headers.insert(name, value);
                secrets.push(secret);
            }
            Some((name, prefix, Credential::Renewed(source))) => renewed = Some((name, prefix, source)),
            None => {}
        }
        // Short values would blank out ordinary words, and are no secrets.
        secrets.retain(|secret| secret.expose_secret().len() >= 6);
        if let Some(password) = base.password().filter(|password| !password.is_empty()) {
            secrets.push(SecretString::from(password.to_owned()));
        }
        Ok(Self {
            base,
            headers,
            renewed,
            secrets,
            options,
            client: OnceCell::new(),
            clock: Clock::start(),
            written: AtomicUsize::new(0),
        })
    }

    /// Sends this header as well, with every request, unless the options have one of that name.
    pub(crate) fn with_header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.entry(name).or_insert(value);
        self
    }

    /// Scheme, host and port: what may be told.
    pub(crate) fn origin(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    /// The host, for choices between dialects.
    pub(crate) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// A document to send.
    ///
    /// A conversation is sent again and again, and each time it is longer: a buffer that doubled until it fitted would
    /// leave holes of every size behind.
    pub(crate) fn json(&self, document: &impl Serialize) -> Result<Vec<u8>, ModelError> {
        let last = self.written.load(Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(last + last / 16 + ROOM);
        serde_json::to_writer(&mut bytes, document)
            .map_err(|error| ModelError::new(ModelErrorKind::Other, format!("write the request: {error}")))?;
        self.written.store(bytes.len(), Ordering::Relaxed);
        Ok(bytes)
    }

    /// Sends `body`, which is JSON, to `path` below the base and gives the answer's head, if its status is a success.
    pub(crate) async fn post(&self, path: &str, body: Vec<u8>) -> Result<Answer, ModelError> {
        self.send(Method::POST, path, "application/json", body).await
    }

    /// Sends a form.
    pub(crate) async fn post_form(&self, path: &str, body: Vec<u8>) -> Result<Answer, ModelError> {
        self.send(Method::POST, path, "application/x-www-form-urlencoded", body).await
    }

    /// Asks for what is at `path` below the base.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, ModelError> {
        self.send(Method::GET, path, "application/json", Vec::new()).await
    }

    async fn send(&self, method: Method, path: &str, kind: &'static str, body: Vec<u8>) -> Result<Answer, ModelError> {
        let client = self.client.get_or_try_init(|| self.make_client()).await?;
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let prefix = self.base.path().trim_end_matches('/');
        url.set_path(&if path.is_empty() { prefix.to_owned() } else { format!("{prefix}/{path}") });
        if query.is_some() {
            url.set_query(query);
        }
        let mut headers = self.headers.clone();
        headers.entry(reqwest::header::CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        // Shared, so that a second attempt with a new token costs no copy of a long conversation.
        let body = bytes::Bytes::from(body);
        let mut is_second = false;
        loop {
            let secret = self.prove(&mut headers).await?;
            let request = client.request(method.clone(), url.clone()).headers(headers.clone()).body(body.clone());
            let response = request.send().await;
            let response = response.map_err(|error| self.scrub(transport_error(&error, &self.origin())))?;
            if response.status().is_success() {
                return Ok(Answer::new(response, self.origin()));
            }
            let error = scrubbed(self.refused(response).await, secret.iter());
            // A token may be revoked before its time: a new one gets one chance.
            if let (Some(401), Some(secret), Some((_, _, source)), false) =
                (error.status, &secret, &self.renewed, is_second)
            {
                source.forget(secret);
                is_second = true;
                continue;
            }
            return Err(error);
        }
    }

    /// Adds the secret that is asked for at the time of sending, and gives it.
    async fn prove(&self, headers: &mut HeaderMap) -> Result<Option<SecretString>, ModelError> {
        let Some((name, prefix, source)) = &self.renewed else { return Ok(None) };
        let secret = source.get().await?;
        let value = secret_value(name.as_str(), &format!("{prefix}{}", secret.expose_secret()));
        let value = value.map_err(|error| ModelError::new(ModelErrorKind::Auth, error.to_string()))?;
        headers.insert(name.clone(), value);
        Ok(Some(secret))
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
    pub(crate) fn scrub(&self, error: ModelError) -> ModelError {
        let held = self.renewed.as_ref().and_then(|(_, _, source)| source.held());
        scrubbed(error, self.secrets.iter().chain(&held))
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

fn scrubbed<'a>(mut error: ModelError, secrets: impl Iterator<Item = &'a SecretString>) -> ModelError {
    for secret in secrets {
        if error.message.contains(secret.expose_secret()) {
            error.message = error.message.replace(secret.expose_secret(), "[redacted]");
        }
    }
    error
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
