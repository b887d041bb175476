//! The transport of protocol 2024-11-05: a GET for events, whose first one names the address to post to.
//!
//! The SDK has no such client any more, and servers that speak only this are still many.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use reqwest::Url;
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::oauth::{TokenError, Tokens};

/// The largest event: as much as the SDK takes of a line or an event.
const EVENT_MAX: usize = 16 * 1024 * 1024;
/// Messages that wait for the SDK; it takes them at once, and the stream waits where it does not.
const MESSAGES_MAX: usize = 64;

/// Why the stream or a post failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SseError {
    #[error("reach the server")]
    Http(#[from] reqwest::Error),
    #[error("the server answered {0}")]
    Status(u16),
    #[error("the server's answer is not a stream of events")]
    NotAStream,
    #[error("the stream ended before it named an address to post to")]
    NoEndpoint,
    #[error("the stream names an address on another server")]
    ForeignEndpoint,
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("write a message")]
    Message(#[from] serde_json::Error),
}

/// One stream and its posts.
pub(crate) struct SseTransport {
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    poster: Arc<Poster>,
    reader: JoinSet<()>,
}

struct Poster {
    caller: Caller,
    endpoint: Url,
}

/// What every request of one stream has in common.
struct Caller {
    client: reqwest::Client,
    headers: http::HeaderMap,
    tokens: Option<Arc<Tokens>>,
}

impl Caller {
    /// Asks, with the token that is good now. One that is refused is renewed once.
    async fn ask(
        &self,
        request: impl Fn(&reqwest::Client) -> reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, SseError> {
        let send = |token: Option<&str>| {
            let request = request(&self.client).headers(self.headers.clone());
            match token {
                Some(token) => request.bearer_auth(token).send(),
                None => request.send(),
            }
        };
        let token = match &self.tokens {
            Some(tokens) => tokens.current().await?,
            None => None,
        };
        let mut response = send(token.as_deref()).await?;
        if response.status() == reqwest::StatusCode::UNAUTHORIZED
            && let (Some(tokens), Some(refused)) = (&self.tokens, &token)
            && let Some(fresh) = tokens.instead_of(refused).await?
        {
            response = send(Some(&fresh)).await?;
        }
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(SseError::Status(status.as_u16())),
        }
    }
}

impl SseTransport {
    /// Opens the stream and waits for its first event.
    pub(crate) async fn open(
        client: reqwest::Client,
        url: &str,
        headers: HashMap<http::HeaderName, http::HeaderValue>,
        tokens: Option<Arc<Tokens>>,
    ) -> Result<Self, SseError> {
        let caller = Caller { client, headers: headers.into_iter().collect(), tokens };
        let response = caller.ask(|client| client.get(url).header(http::header::ACCEPT, "text/event-stream")).await?;
        let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Err(SseError::NotAStream);
        }
        let base = response.url().clone();
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let (named, endpoint) = oneshot::channel();
        let mut reader = JoinSet::new();
        reader.spawn(read(response, sender, named));
        let endpoint = endpoint.await.map_err(|_| SseError::NoEndpoint)?;
        let endpoint = base.join(&endpoint).map_err(|_| SseError::NoEndpoint)?;
        // The headers may be secrets of this server.
        if endpoint.origin() != base.origin() {
            return Err(SseError::ForeignEndpoint);
        }
        Ok(Self { messages, poster: Arc::new(Poster { caller, endpoint }), reader })
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let poster = self.poster.clone();
        async move {
            let body = serde_json::to_vec(&message)?;
            let post = |client: &reqwest::Client| {
                let request = client.post(poster.endpoint.clone());
                request.header(http::header::CONTENT_TYPE, "application/json").body(body.clone())
            };
            poster.caller.ask(post).await.map(drop)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.messages.close();
        self.reader.abort_all();
        Ok(())
    }
}

/// Reads events to the end of the stream; the first `endpoint` goes to `named`, messages to `sender`.
async fn read(response: reqwest::Response, sender: mpsc::Sender<ServerJsonRpcMessage>, named: oneshot::Sender<String>) {
    let mut named = Some(named);
    let mut parser = Parser::default();
    let mut bytes = response.bytes_stream();
    while let Some(chunk) = bytes.next().await {
        let Ok(chunk) = chunk else { return };
        for event in parser.feed(&chunk) {
            match event.name.as_str() {
                "endpoint" => {
                    if let Some(named) = named.take() {
                        let _ = named.send(event.data);
                    }
                }
                "" | "message" => match serde_json::from_str(&event.data) {
                    Ok(message) => {
                        if sender.send(message).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => tracing::debug!(%error, "ignored an event that is no message"),
                },
                _ => {}
            }
        }
    }
}

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

/// Lines to events; whatever its sender does, it holds one event at most.
#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    event: Event,
    skip: bool,
}

impl Parser {
    fn feed(&mut self, chunk: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let whole = part.ends_with(b"\n");
            if self.line.len() + self.event.data.len() + part.len() > EVENT_MAX {
                self.line.clear();
                self.event = Event::default();
                self.skip = true;
            } else {
                self.line.extend_from_slice(part);
            }
            if whole {
                self.end_of_line(part, &mut events);
            }
        }
        events
    }

    fn end_of_line(&mut self, part: &[u8], events: &mut Vec<Event>) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        // What is left of an event that was too large goes up to the empty line behind it.
        if self.skip {
            self.skip = !matches!(part, b"\n" | b"\r\n");
            return;
        }
        if text.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() || !event.name.is_empty() {
                events.push(event);
            }
            return;
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&str]) -> Vec<(String, String)> {
        let mut parser = Parser::default();
        let all = chunks.iter().flat_map(|chunk| parser.feed(chunk.as_bytes())).collect::<Vec<_>>();
        all.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[test]
    fn events_are_read_however_they_are_cut() {
        let text = "event: endpoint\r\ndata: /post?id=1\r\n\r\n: ping\n\ndata:{\"a\":\ndata: 1}\n\n";
        let expected = [("endpoint".to_owned(), "/post?id=1".to_owned()), (String::new(), "{\"a\":\n1}".to_owned())];
        assert_eq!(events(&[text]), expected);
        for cut in 1..text.len() {
            assert_eq!(events(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn an_event_that_is_too_large_is_left_out_and_the_next_one_is_not() {
        let mut parser = Parser::default();
        assert!(parser.feed(b"data: ").is_empty());
        for _ in 0..=EVENT_MAX / 65_536 {
            assert!(parser.feed(&[b'x'; 65_536]).is_empty());
        }
        assert!(parser.line.len() <= EVENT_MAX);
        assert!(parser.feed(b"\nmore\n\n").is_empty());
        assert_eq!(parser.feed(b"data: y\n\n"), [Event { name: String::new(), data: "y".to_owned() }]);
    }
}
