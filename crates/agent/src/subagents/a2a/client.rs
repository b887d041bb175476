//! One agent elsewhere over HTTP: its card, requests and streams, within bounds.
//!
//! Only `https://`, or `http://` on this machine. Redirects are not followed, and a credential goes to the origin that
//! the definition names and to no other. No error tells a credential or what was sent.

use std::net::IpAddr;
use std::time::Duration;

use convoke_models::{SseDecoder, install_tls_provider};
use convoke_stdx::cut;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url};
use serde_json::{Value, json};
use uuid::Uuid;

use super::credential::{CredentialError, Variables, proof};
use super::wire::{Interface, Method};
use crate::subagents::definition::{AgentCardSource, RemoteAgent};

/// Most bytes of a card: the largest seen have some tens of KiB.
const CARD_MAX: usize = 1 << 20;
/// Most bytes of an answer, or of one event: text for a model is far below.
const BODY_MAX: usize = 8 << 20;
/// Most bytes of one stream.
const STREAM_MAX: usize = 64 << 20;
/// Most bytes of what an agent says about its failure.
const REASON_MAX: usize = 2 << 10;
/// For DNS, TCP and TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// Between two reads of a stream. A task whose agent is silent for longer is asked for.
const READ: Duration = Duration::from_secs(120);
/// For an answer that an agent has at hand: its card, or how a task stands.
const AT_HAND: Duration = Duration::from_secs(30);
/// Where a card is by convention. Source: the A2A specification, "Agent discovery".
const CARD_PATH: &str = "/.well-known/agent-card.json";

/// Why an agent did not answer: what could not be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum A2aError {
    #[error("use the address {address}: {why}")]
    Address { address: String, why: &'static str },
    #[error("prove who we are: {0}")]
    Credential(#[from] CredentialError),
    #[error("use its card: {0}")]
    Card(String),
    #[error("use its card: it is at {from} and sends us to {to}")]
    Elsewhere { from: String, to: String },
    #[error("reach it: {0}")]
    Transport(String),
    #[error("get an answer: HTTP status {0}")]
    Status(u16),
    #[error("get an answer: it redirects elsewhere (HTTP status {0}); name the final address")]
    Redirect(u16),
    #[error("get an answer: {message} ({code})")]
    Rpc { code: i64, message: String },
    #[error("read its answer: {0}")]
    Answer(String),
}

impl A2aError {
    /// Whether another attempt may do better.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Transport(_) | Self::Status(429 | 500..))
    }
}

impl From<reqwest::Error> for A2aError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::Transport(text)
    }
}

/// What an agent's card says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) version: String,
}

/// An agent that can be spoken to.
#[derive(Debug)]
pub(super) struct A2aClient {
    http: Client,
    url: Url,
    pub(super) interface: Interface,
    pub(super) about: About,
}

impl A2aClient {
    /// Reads the agent's card.
    pub(super) async fn connect(agent: &RemoteAgent, variables: &Variables) -> Result<Self, A2aError> {
        let mut headers = proof(agent.auth.as_ref(), variables)?;
        let proves = !headers.is_empty();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let (card, from) = match &agent.card {
            AgentCardSource::Inline(card) => (card.clone(), None),
            AgentCardSource::Url(text) => {
                let mut url = address(text)?;
                if !url.path().ends_with(".json") {
                    let path = format!("{}{CARD_PATH}", url.path().trim_end_matches('/'));
                    url.set_path(&path);
                }
                let http = client(&url, headers.clone()).await?;
                let response = http.get(url.clone()).timeout(AT_HAND).send().await?;
                (json_body(response, CARD_MAX).await?, Some(url))
            }
        };
        let interface = Interface::of_card(&card).map_err(|why| A2aError::Card(why.to_owned()))?;
        let url = address(&interface.url)?;
        if let Some(from) = from {
            let elsewhere = from.origin() != url.origin();
            // A credential stays where it was meant for, and a stranger's card opens no door of this machine.
            if elsewhere && (proves || (is_loopback(&url) && !is_loopback(&from))) {
                let origin = |url: &Url| url.origin().ascii_serialization();
                return Err(A2aError::Elsewhere { from: origin(&from), to: origin(&url) });
            }
        }
        let text = |key: &str| {
            let text = card.get(key).and_then(Value::as_str).unwrap_or_default();
            cut::head(text, REASON_MAX).to_owned()
        };
        let about = About { name: text("name"), version: text("version") };
        Ok(Self { http: client(&url, headers).await?, url, interface, about })
    }

    async fn post(&self, method: Method, params: Value, timeout: Option<Duration>) -> Result<Response, A2aError> {
        let body = self.interface.request(method, &Uuid::new_v4().to_string(), params);
        let mut request = self
            .http
            .post(self.url.clone())
            .header("A2A-Version", self.interface.version.as_str())
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        let response = request.send().await?;
        check(&response)?;
        Ok(response)
    }

    /// Asks how a task stands.
    pub(super) async fn task(&self, id: &str) -> Result<Value, A2aError> {
        let response = self.post(Method::Get, json!({"id": id}), Some(AT_HAND)).await?;
        result(json_body(response, BODY_MAX).await?)
    }

    /// Asks for a task to be ended.
    pub(super) async fn cancel(&self, id: &str) -> Result<Value, A2aError> {
        let response = self.post(Method::Cancel, json!({"id": id}), Some(AT_HAND)).await?;
        result(json_body(response, BODY_MAX).await?)
    }

    /// Sends a message; what comes of it comes one by one.
    pub(super) async fn send(
        &self,
        text: &str,
        context: Option<&str>,
        task: Option<&str>,
    ) -> Result<Results, A2aError> {
        let params = self.interface.message(text, &Uuid::new_v4().to_string(), context, task);
        let method = if self.interface.streams { Method::Stream } else { Method::Send };
        let response = self.post(method, params, None).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // Some answer a stream's request with one answer, such as an error.
        let is_stream = kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
        Ok(if is_stream { Results::Stream(Box::new(EventStream::new(response))) } else { Results::One(Some(response)) })
    }
}

/// What comes of a message.
pub(super) enum Results {
    One(Option<Response>),
    Stream(Box<EventStream>),
}

impl Results {
    /// The next result; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, A2aError> {
        match self {
            Self::One(response) => match response.take() {
                Some(response) => result(json_body(response, BODY_MAX).await?).map(Some),
                None => Ok(None),
            },
            Self::Stream(events) => events.next().await,
        }
    }
}

pub(super) struct EventStream {
    response: Response,
    decoder: SseDecoder,
    /// Events of one read, the next one last: as many as fit into it.
    ready: Vec<Vec<u8>>,
    read: usize,
    is_over: bool,
}

impl EventStream {
    fn new(response: Response) -> Self {
        Self { response, decoder: SseDecoder::new(BODY_MAX), ready: Vec::new(), read: 0, is_over: false }
    }

    async fn next(&mut self) -> Result<Option<Value>, A2aError> {
        let unreadable = |error: &dyn std::fmt::Display| A2aError::Answer(error.to_string());
        loop {
            if let Some(event) = self.ready.pop() {
                let answer = serde_json::from_slice(&event).map_err(|error| unreadable(&error))?;
                return result(answer).map(Some);
            }
            if self.is_over {
                return Ok(None);
            }
            let decoded = match self.response.chunk().await? {
                Some(bytes) => {
                    self.read += bytes.len();
                    self.decoder.push(&bytes, &mut self.ready)
                }
                None => {
                    self.is_over = true;
                    self.decoder.finish(&mut self.ready)
                }
            };
            decoded.map_err(|error| unreadable(&error))?;
            if self.read > STREAM_MAX {
                return Err(A2aError::Answer(format!("the stream has more than {} MiB", STREAM_MAX >> 20)));
            }
            self.ready.reverse();
        }
    }
}

fn address(text: &str) -> Result<Url, A2aError> {
    let wrong = |why| A2aError::Address { address: shown(text), why };
    let url = Url::parse(text.trim()).map_err(|_| wrong("it is no URL"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it holds a credential, which belongs into `auth`"));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        "http" => Err(wrong("beyond this machine it must be https://")),
        _ => Err(wrong("it is no https:// address")),
    }
}

/// An address for people: without credentials and query.
pub(super) fn shown(text: &str) -> String {
    match Url::parse(text.trim()) {
        Ok(url) if url.has_host() => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        Ok(_) | Err(_) => "(not a URL)".to_owned(),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn client(url: &Url, headers: HeaderMap) -> Result<Client, A2aError> {
    install_tls_provider();
    let mut builder = Client::builder()
        .user_agent(concat!("convoke/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .read_timeout(READ);
    if is_loopback(url) {
        // A proxy has no business between us and ourselves.
        builder = builder.no_proxy();
    }
    // Reads a few hundred files on some systems.
    match tokio::task::spawn_blocking(move || builder.build()).await {
        Ok(client) => Ok(client?),
        Err(error) => Err(A2aError::Transport(error.to_string())),
    }
}

fn check(response: &Response) -> Result<(), A2aError> {
    match response.status() {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => Err(A2aError::Redirect(status.as_u16())),
        status => Err(A2aError::Status(status.as_u16())),
    }
}

async fn json_body(mut response: Response, most: usize) -> Result<Value, A2aError> {
    check(&response)?;
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        if body.len() + bytes.len() > most {
            return Err(A2aError::Answer(format!("it has more than {} MiB", most >> 20)));
        }
        body.extend_from_slice(&bytes);
    }
    serde_json::from_slice(&body).map_err(|error| A2aError::Answer(error.to_string()))
}

/// The result of an answer, or the error that it is.
fn result(mut answer: Value) -> Result<Value, A2aError> {
    if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("it says no more");
        let message = cut::head(message, REASON_MAX).to_owned();
        return Err(A2aError::Rpc { code: error.get("code").and_then(Value::as_i64).unwrap_or_default(), message });
    }
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(A2aError::Answer("it has neither a result nor an error".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn addresses_beyond_this_machine_are_encrypted() {
        for good in ["https://h/a", "http://localhost:1", "http://127.0.0.1:1/x", "http://[::1]:2", " https://h "] {
            assert!(address(good).is_ok(), "{good}");
        }
        for (bad, expected) in [
            ("http://h/a?k=v", "use the address http://h/a: beyond this machine it must be https://"),
            (
                "http://127.0.0.1.evil",
                "use the address http://127.0.0.1.evil/: beyond this machine it must be https://",
            ),
            ("file:///etc/passwd", "use the address (not a URL): it is no https:// address"),
            ("h/a", "use the address (not a URL): it is no URL"),
            ("https://u:p@h/", "use the address https://h/: it holds a credential, which belongs into `auth`"),
        ] {
            assert_eq!(address(bad).unwrap_err().to_string(), expected);
        }
    }
}
