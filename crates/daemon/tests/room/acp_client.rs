//! An ACP client that writes its JSON by hand, over posts and event streams or over a WebSocket.

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Response as Handshake};

use crate::client::{Block, Client, Extra, Response, soon};

pub(crate) const INITIALIZE: &str = "initialize";

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn initialize() -> Value {
    request(0, INITIALIZE, json!({"protocolVersion": 1, "clientCapabilities": {}}))
}

pub(crate) fn prompt(id: u64, session: &str, text: &str) -> Value {
    request(id, "session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}))
}

/// The answer to a question.
pub(crate) fn select(question: &Value, option: &str) -> Value {
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
    json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome})
}

/// Waits until a session has so many clients.
pub(crate) async fn clients(client: &Client, session: &str, count: u64) {
    let path = format!("/session/{session}/status");
    soon(async {
        while client.get(&path).await.json()["clientCount"] != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Where messages come from.
pub(crate) trait Messages {
    async fn message(&mut self) -> Option<Value>;

    /// The next message that fits, skipping others.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        let mut skipped = Vec::new();
        loop {
            match self.message().await {
                Some(message) if fits(&message) => return message,
                Some(message) => skipped.push(message),
                None => panic!("it ended after {skipped:#?}"),
            }
        }
    }

    async fn reply(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none()).await
    }

    async fn method(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method).await
    }

    async fn notice(&mut self, kind: &str) -> Value {
        self.until(|message| message["method"] == "_qwen/notify" && message["params"]["kind"] == kind).await
    }
}

/// One ACP connection made of posts.
pub(crate) struct Posts {
    pub(crate) client: Client,
    pub(crate) id: String,
}

impl Posts {
    pub(crate) async fn open(client: &Client) -> Self {
        let reply = client.post("/acp", "", initialize()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let id = reply.header("acp-connection-id").expect("an id").to_owned();
        Self { client: client.clone(), id }
    }

    pub(crate) async fn post(&self, message: Value) -> Response {
        let headers = vec![("Content-Type", "application/json"), ("Acp-Connection-Id", self.id.as_str())];
        self.client.send("POST", "/acp", Extra { headers, body: Some(message.to_string()) }).await
    }

    pub(crate) async fn send(&self, message: Value) {
        let reply = self.post(message).await;
        assert_eq!((reply.status, reply.text().as_str()), (202, ""));
    }

    pub(crate) async fn stream(&self, session: Option<&str>, more: &[(&str, &str)]) -> Stream {
        let mut headers = vec![("Accept", "text/event-stream"), ("Acp-Connection-Id", self.id.as_str())];
        headers.extend(session.map(|session| ("Acp-Session-Id", session)));
        headers.extend(more);
        Stream { events: self.client.events("/acp", &headers).await }
    }

    /// A session of its own.
    pub(crate) async fn session(&self, connection: &mut Stream, cwd: &std::path::Path) -> String {
        self.send(request(900, "session/new", json!({"cwd": cwd, "mcpServers": []}))).await;
        let made = connection.reply(900).await;
        made["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    pub(crate) async fn delete(&self) -> Response {
        let headers = vec![("Acp-Connection-Id", self.id.as_str())];
        self.client.send("DELETE", "/acp", Extra { headers, body: None }).await
    }
}

/// An event stream of `/acp`.
pub(crate) struct Stream {
    pub(crate) events: crate::client::Events,
}

impl Stream {
    /// The next block as it is on the wire; `None` at the end.
    pub(crate) async fn block(&mut self) -> Option<String> {
        match self.events.block().await {
            Block::Whole(block) => Some(block),
            Block::End | Block::Broken => None,
        }
    }

    pub(crate) async fn ended(&mut self) {
        while self.block().await.is_some() {}
    }
}

impl Messages for Stream {
    async fn message(&mut self) -> Option<Value> {
        loop {
            let block = self.block().await?;
            assert!(!block.contains("event:"), "frames are data only: {block}");
            if let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) {
                return Some(serde_json::from_str(data).expect("JSON"));
            }
        }
    }
}

/// One ACP connection on a WebSocket.
pub(crate) struct Socket {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) handshake: Handshake<Option<Vec<u8>>>,
    /// The code with which it was closed.
    pub(crate) closed: Option<u16>,
}

impl Socket {
    /// A WebSocket that is agreed to; else the status of the refusal.
    pub(crate) async fn dial(client: &Client, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{}/acp", client.address).into_client_request().expect("a request");
        let given = |name: &str| headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        if let Some(token) = client.token.as_ref().filter(|_| !given("sec-websocket-protocol")) {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a header");
            request.headers_mut().insert("authorization", value);
        }
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let stream = TcpStream::connect(client.address).await.expect("a connection");
        match soon(tokio_tungstenite::client_async(request, stream)).await {
            Ok((socket, handshake)) => Ok(Self { socket, handshake, closed: None }),
            Err(tokio_tungstenite::tungstenite::Error::Http(refused)) => Err(refused.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// A WebSocket that has said `initialize`.
    pub(crate) async fn open(client: &Client) -> Self {
        let mut socket = Self::dial(client, &[]).await.expect("a WebSocket");
        socket.send(initialize()).await;
        socket.reply(0).await;
        socket
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.expect("to send");
    }

    pub(crate) async fn session(&mut self, cwd: &std::path::Path) -> String {
        self.send(request(900, "session/new", json!({"cwd": cwd, "mcpServers": []}))).await;
        let made = self.reply(900).await;
        made["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    }

    pub(crate) async fn close(mut self) {
        self.socket.close(None).await.expect("to close");
        while let Some(Ok(_)) = soon(self.socket.next()).await {}
    }
}

impl Messages for Socket {
    async fn message(&mut self) -> Option<Value> {
        loop {
            match soon(self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).expect("JSON")),
                Some(Ok(Message::Close(frame))) => self.closed = frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }
}
