//! A client of the daemon, as anybody could write one: JSON over HTTP, and the event stream.

use std::net::SocketAddr;

use anyhow::{Context, anyhow, bail};
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Largest event that is taken: a frame holds one update, and the daemon bounds those far below this.
const EVENT_MAX: usize = 16 * 1024 * 1024;

/// One caller of one daemon.
pub(super) struct Client {
    address: SocketAddr,
    token: String,
    id: Option<String>,
    /// Connections are driven by tasks of their own; they end with the client.
    connections: JoinSet<()>,
}

impl Client {
    pub(super) fn new(address: SocketAddr, token: &str) -> Self {
        Self { address, token: token.to_owned(), id: None, connections: JoinSet::new() }
    }

    /// Sends `X-Qwen-Client-Id` from now on.
    pub(super) fn identify(&mut self, id: &str) {
        self.id = Some(id.to_owned());
    }

    async fn send(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.address).await.context("connect to the daemon")?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        self.connections.spawn(async move {
            // The exchange reports its own failure; there is nothing to add here.
            let _ = connection.await;
        });
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", self.address.to_string())
            .header("Authorization", format!("Bearer {}", self.token));
        if let Some(id) = &self.id {
            request = request.header("X-Qwen-Client-Id", id);
        }
        if path.ends_with("/events") {
            request = request.header("Accept", "text/event-stream").header("Last-Event-ID", "0");
        }
        let request = match body {
            Some(body) => request
                .header("Content-Type", "application/json")
                .body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?,
            None => request.body(Full::new(Bytes::new()))?,
        };
        sender.send_request(request).await.context("send a request")
    }

    /// One exchange; the body is `null` if it is empty or not JSON.
    pub(super) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(u16, Value)> {
        let response = self.send(method, path, body).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// One exchange that must succeed.
    pub(super) async fn expect(&mut self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let (status, answer) = self.call(method.clone(), path, body).await?;
        if !(200..300).contains(&status) {
            bail!("{method} {path} answered {status}: {answer}");
        }
        Ok(answer)
    }

    /// Opens a session's event stream from its beginning.
    pub(super) async fn events(&mut self, session: &str) -> anyhow::Result<Events> {
        self.stream(&format!("/session/{session}/events")).await
    }

    /// Opens an event stream.
    pub(super) async fn stream(&mut self, path: &str) -> anyhow::Result<Events> {
        let response = self.send(Method::GET, path, None).await?;
        if response.status() != 200 {
            bail!("the event stream answered {}", response.status());
        }
        Ok(Events { body: BodyStream::new(response.into_body()), buffer: Vec::new() })
    }
}

/// An event stream.
pub(super) struct Events {
    body: BodyStream<Incoming>,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event's envelope; `None` when the daemon ends the stream.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                if let Some(event) = parse(&block)? {
                    return Ok(Some(event));
                }
                continue;
            }
            if self.buffer.len() > EVENT_MAX {
                return Err(anyhow!("an event larger than 16 MiB"));
            }
            match self.body.next().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// The JSON behind `data:`; comments and `retry:` have none.
fn parse(block: &[u8]) -> anyhow::Result<Option<Value>> {
    let text = std::str::from_utf8(block)?;
    let data: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("data:")).map(|data| data.trim_start_matches(' ')).collect();
    if data.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&data.join("\n"))?)) }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn blocks_with_and_without_data() {
        assert_eq!(parse(b"retry: 3000\n\n").unwrap(), None);
        assert_eq!(parse(b": heartbeat\n\n").unwrap(), None);
        assert_eq!(parse(b"id: 1\nevent: x\ndata: {\"a\":1}\n\n").unwrap(), Some(serde_json::json!({"a": 1})));
        assert!(parse(b"data: {\n\n").is_err());
    }
}
