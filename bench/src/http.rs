//! A client of a daemon: single requests on a connection that stays, and event streams.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use bytes::Bytes;
use convoke_bench::clock::monotonic_nanos;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

/// Where a daemon listens.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The bearer token that it wants.
    pub(crate) token: &'static str,
}

/// One connection, closed with this value.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    server: Server,
    _driver: AbortOnDropHandle<Result<(), hyper::Error>>,
}

/// What came back, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Answer {
    /// A string field of a JSON object; an answer without it is an error that carries the answer.
    pub(crate) fn text(&self, name: &str) -> anyhow::Result<String> {
        let body: Option<Value> = serde_json::from_slice(&self.body).ok();
        let field = body.as_ref().and_then(|body| body.get(name)?.as_str());
        field
            .map(ToOwned::to_owned)
            .with_context(|| format!("find {name} in {}: {}", self.status, String::from_utf8_lossy(&self.body)))
    }
}

impl Connection {
    pub(crate) async fn open(server: &Server) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = AbortOnDropHandle::new(tokio::spawn(connection));
        Ok(Self { sender, server: server.clone(), _driver: driver })
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: &str,
        client: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.server.address.to_string())
            .header("authorization", format!("Bearer {}", self.server.token));
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        if !client.is_empty() {
            request = request.header("x-qwen-client-id", client);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        let response = self.send(Method::GET, path, "", "").await?;
        Self::read(response).await
    }

    /// `client` is the id that the daemon gave us, or empty.
    pub(crate) async fn post(&mut self, path: &str, body: &str, client: &str) -> anyhow::Result<Answer> {
        let response = self.send(Method::POST, path, body, client).await?;
        Self::read(response).await
    }

    pub(crate) async fn delete(&mut self, path: &str, client: &str) -> anyhow::Result<Answer> {
        let response = self.send(Method::DELETE, path, "", client).await?;
        Self::read(response).await
    }

    async fn read(response: Response<Incoming>) -> anyhow::Result<Answer> {
        let status = response.status();
        Ok(Answer { status, body: response.into_body().collect().await?.to_bytes() })
    }

    /// The event stream at `path`; `None` if the daemon has no room for another subscriber.
    pub(crate) async fn events(mut self, path: &str) -> anyhow::Result<Option<EventStream>> {
        let response = self.send(Method::GET, path, "", "").await?;
        match response.status() {
            StatusCode::OK => {
                Ok(Some(EventStream { body: response.into_body(), pending: Vec::new(), _connection: self }))
            }
            StatusCode::TOO_MANY_REQUESTS => Ok(None),
            status => bail!("subscribe to {path}: {status}"),
        }
    }
}

/// A subscription.
#[derive(Debug)]
pub(crate) struct EventStream {
    body: Incoming,
    /// The beginning of an event whose end is not there yet.
    pending: Vec<u8>,
    _connection: Connection,
}

impl EventStream {
    /// Waits for what comes next and hands each whole event, with the time it was there, to `each`.
    ///
    /// Errors when the stream ends: no bench expects that.
    pub(crate) async fn read(&mut self, mut each: impl FnMut(&[u8], u64)) -> anyhow::Result<()> {
        let piece = match self.body.frame().await {
            None => bail!("the event stream ended"),
            Some(frame) => frame.context("read the event stream")?.into_data().unwrap_or_default(),
        };
        let now = monotonic_nanos();
        if self.pending.is_empty() {
            let rest = split(&piece, |event| each(event, now));
            self.pending.extend_from_slice(rest);
            return Ok(());
        }
        self.pending.extend_from_slice(&piece);
        let rest = split(&self.pending, |event| each(event, now)).len();
        self.pending.drain(..self.pending.len() - rest);
        Ok(())
    }
}

/// Hands every whole event to `each` and returns what is left.
fn split(mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> &[u8] {
    let mut searched = 0;
    while let Some(at) = bytes.get(searched..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
        searched += at + 1;
        if bytes.get(searched) != Some(&b'\n') {
            continue;
        }
        let (event, rest) = bytes.split_at(searched + 1);
        each(event);
        (bytes, searched) = (rest, 0);
    }
    bytes
}

/// The type of an event, or an empty one.
pub(crate) fn event_type(event: &[u8]) -> &[u8] {
    event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"event: ")).unwrap_or_default()
}

/// A string field of the event's `data` object within its envelope.
pub(crate) fn event_text(event: &[u8], name: &str) -> Option<String> {
    let line = event.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data: "))?;
    let envelope: Value = serde_json::from_slice(line).ok()?;
    envelope.get("data")?.get(name)?.as_str().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_where_they_end() {
        let mut events = Vec::new();
        let rest = split(b"retry: 3000\n\nid: 1\nevent: a\ndata: {}\n\nid: 2\nev", |event| events.push(event.to_vec()));
        assert_eq!(rest, b"id: 2\nev");
        assert_eq!(events, [b"retry: 3000\n\n".to_vec(), b"id: 1\nevent: a\ndata: {}\n\n".to_vec()]);
        assert_eq!(split(b"data: {}\n", |_| panic!("not whole yet")), b"data: {}\n");
    }

    #[test]
    fn an_event_tells_its_type_and_its_fields() {
        let event = b"id: 3\nevent: permission_request\ndata: {\"data\":{\"requestId\":\"r\"}}\n\n";
        assert_eq!(event_type(event), b"permission_request");
        assert_eq!(event_text(event, "requestId").as_deref(), Some("r"));
        assert_eq!(event_type(b"retry: 3000\n\n"), b"");
        assert_eq!(event_text(b"retry: 3000\n\n", "requestId"), None);
    }
}
