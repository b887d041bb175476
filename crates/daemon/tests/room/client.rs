//! A client that writes HTTP by hand: nothing between a test and the bytes on the wire.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing that is waited for here takes this long, unless it never comes: floods beside compilers included.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that must come.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it did not come in time")
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {} {}", self.status, self.text()))
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// What a request carries besides method and path.
#[derive(Default)]
pub(crate) struct Extra<'a> {
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: Option<String>,
}

impl Client {
    /// Sends exactly this: `Host` and the token are added unless they are given, the body's length if there is one.
    pub(crate) async fn send(&self, method: &str, path: &str, extra: Extra<'_>) -> Response {
        soon(async {
            let mut socket = BufReader::new(self.write(method, path, &extra, "close").await);
            let (status, headers) = read_head(&mut socket).await.expect("an answer");
            let mut body = Vec::new();
            if method != "HEAD" {
                // A connection that is reset after the answer has still answered.
                let _ = socket.read_to_end(&mut body).await;
            }
            if header(&headers, "transfer-encoding").is_some() {
                body = dechunk(&body);
            }
            Response { status, headers, body }
        })
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, Extra::default()).await
    }

    /// A JSON request of a client; an empty id is anonymous.
    pub(crate) async fn call(&self, method: &str, path: &str, client: &str, body: Value) -> Response {
        let mut headers = vec![("Content-Type", "application/json")];
        if !client.is_empty() {
            headers.push(("X-Qwen-Client-Id", client));
        }
        self.send(method, path, Extra { headers, body: Some(body.to_string()) }).await
    }

    pub(crate) async fn post(&self, path: &str, client: &str, body: Value) -> Response {
        self.call("POST", path, client, body).await
    }

    /// Opens an event stream, which must be granted.
    pub(crate) async fn events(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let extra = Extra { headers: headers.to_vec(), body: None };
        let mut socket = BufReader::new(self.write("GET", path, &extra, "keep-alive").await);
        let (status, headers) = soon(read_head(&mut socket)).await.expect("an answer");
        assert_eq!(status, 200, "{path}");
        Events { socket, headers, blocks: VecDeque::new(), text: String::new() }
    }

    async fn write(&self, method: &str, path: &str, extra: &Extra<'_>, connection: &str) -> TcpStream {
        let request = self.text(method, path, extra, connection);
        let mut socket = TcpStream::connect(self.address).await.expect("a connection");
        socket.write_all(request.as_bytes()).await.expect("a request");
        socket
    }

    fn text(&self, method: &str, path: &str, extra: &Extra<'_>, connection: &str) -> String {
        let given = |name: &str| extra.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: {connection}\r\n");
        if !given("host") {
            request.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.address.port()));
        }
        if let Some(token) = &self.token
            && !given("authorization")
        {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in &extra.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &extra.body {
            request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        } else {
            request.push_str("\r\n");
        }
        request
    }
}

/// A connection that stays, for many requests one after the other.
pub(crate) struct Line {
    client: Client,
    socket: BufReader<TcpStream>,
}

impl Client {
    pub(crate) async fn line(&self) -> Line {
        let socket = BufReader::new(TcpStream::connect(self.address).await.expect("a connection"));
        Line { client: self.clone(), socket }
    }
}

impl Line {
    /// Sends a JSON request of a client; an empty id is anonymous.
    pub(crate) async fn call(&mut self, method: &str, path: &str, client: &str, body: Value) -> Response {
        let mut headers = vec![("Content-Type", "application/json")];
        if !client.is_empty() {
            headers.push(("X-Qwen-Client-Id", client));
        }
        let extra = Extra { headers, body: Some(body.to_string()) };
        let request = self.client.text(method, path, &extra, "keep-alive");
        soon(async {
            self.socket.get_mut().write_all(request.as_bytes()).await.expect("a request");
            let (status, headers) = read_head(&mut self.socket).await.expect("an answer");
            let length = header(&headers, "content-length").and_then(|text| text.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            self.socket.read_exact(&mut body).await.expect("a body");
            Response { status, headers, body }
        })
        .await
    }
}

async fn read_head(socket: &mut BufReader<TcpStream>) -> Option<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    socket.read_line(&mut line).await.ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        socket.read_line(&mut line).await.ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => return Some((status, headers)),
        }
    }
}

fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let (Some(size), start) = (size.unwrap_or(0).checked_add(0), end + 2) else { break };
        body.extend_from_slice(bytes.get(start..start + size).unwrap_or_default());
        bytes = bytes.get(start + size + 2..).unwrap_or_default();
    }
    body
}

/// One server-sent event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<u64>,
    pub(crate) kind: String,
    /// The envelope.
    pub(crate) frame: Value,
    /// A comment or `retry` line instead of an event.
    pub(crate) other: Option<String>,
}

/// An open event stream.
pub(crate) struct Events {
    socket: BufReader<TcpStream>,
    pub(crate) headers: Vec<(String, String)>,
    /// Blocks that came and were not asked for yet.
    blocks: VecDeque<String>,
    /// The beginning of a block.
    text: String,
}

/// How a stream goes on, unread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    Whole(String),
    /// It ended in good order.
    End,
    /// The connection broke off.
    Broken,
}

/// How a stream goes on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Next {
    Event(Event),
    /// It ended in good order.
    End,
    /// The connection broke off.
    Broken,
}

impl Events {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The next block of the stream as it came, without the blank line that ends it.
    pub(crate) async fn block(&mut self) -> Block {
        soon(async {
            loop {
                if let Some(block) = self.blocks.pop_front() {
                    return Block::Whole(block);
                }
                match self.chunk().await {
                    Some(chunk) if chunk.is_empty() => return Block::End,
                    Some(chunk) => self.text.push_str(&String::from_utf8(chunk).expect("UTF-8")),
                    None => return Block::Broken,
                }
                let mut used = 0;
                while let Some((block, _)) = self.text[used..].split_once("\n\n") {
                    self.blocks.push_back(block.to_owned());
                    used += block.len() + 2;
                }
                self.text.drain(..used);
            }
        })
        .await
    }

    /// The next block of the stream, whatever it is.
    pub(crate) async fn any(&mut self) -> Next {
        match self.block().await {
            Block::Whole(block) => Next::Event(parse(&block)),
            Block::End => Next::End,
            Block::Broken => Next::Broken,
        }
    }

    /// The next event; comments are skipped.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            match self.any().await {
                Next::Event(event) if event.other.is_some() => {}
                next => return next,
            }
        }
    }

    /// The next event of a kind.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await {
                Next::Event(event) if event.kind == kind => return event.frame,
                Next::Event(_) => {}
                end => panic!("no {kind} before {end:?}"),
            }
        }
    }

    /// Every event until the stream is over.
    pub(crate) async fn rest(&mut self) -> (Vec<Event>, Next) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Next::Event(event) => events.push(event),
                end => return (events, end),
            }
        }
    }

    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.socket.read_line(&mut line).await.ok()?;
        let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        self.socket.read_exact(&mut chunk).await.ok()?;
        chunk.truncate(size);
        Some(chunk)
    }
}

fn parse(block: &str) -> Event {
    let mut event = Event::default();
    for line in block.lines() {
        match line.split_once(": ") {
            Some(("id", value)) => event.id = value.parse().ok(),
            Some(("event", value)) => event.kind = value.to_owned(),
            Some(("data", value)) => event.frame = serde_json::from_str(value).expect("an envelope"),
            _ => event.other = Some(line.to_owned()),
        }
    }
    if event.other.is_none() {
        assert_eq!(event.frame["type"], event.kind.as_str(), "{block}");
        assert_eq!(event.frame["id"].as_u64(), event.id, "{block}");
    }
    event
}
