//! An agent elsewhere that says what the test tells it to: A2A over HTTP/1.1, written by hand, so that it can be wrong.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What comes back.
#[derive(Clone)]
pub(crate) enum Reply {
    /// One result.
    One(Value),
    /// An error.
    Error(i64, &'static str),
    /// A stream of these results, which ends behind them.
    Events(Vec<Value>),
    /// A stream of these results, and then nothing for ever.
    Held(Vec<Value>),
    /// A stream that breaks off within an event, behind these results.
    Broken(Vec<Value>),
    /// Nothing, ever.
    Silence,
    /// This, byte for byte.
    Raw(String),
    /// As much as is read of it.
    Flood(&'static str),
}

/// What was asked: `card`, or a method.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) what: String,
    pub(crate) head: String,
    pub(crate) params: Value,
}

pub(crate) struct Far {
    pub(crate) url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
    serving: JoinHandle<()>,
}

impl Drop for Far {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Answer = dyn Fn(&Heard, usize) -> Reply + Send + Sync;

impl Far {
    /// `answer` gets what is asked and how often that was asked before; `card` is asked for first.
    pub(crate) async fn new(answer: impl Fn(&str, &Heard, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let (log, at) = (heard.clone(), url.clone());
        let answer: Arc<Answer> = Arc::new(move |heard: &Heard, before: usize| answer(&at, heard, before));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                connections.spawn(serve(socket, answer.clone(), log.clone()));
            }
        });
        Self { url, heard, serving }
    }

    /// One with a card of 1.0.
    pub(crate) async fn v1(streams: bool, answer: impl Fn(&Heard, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::new(move |url, heard, before| match heard.what.as_str() {
            "card" => card(&card_v1(url, streams)),
            _ => answer(heard, before),
        })
        .await
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn methods(&self) -> Vec<String> {
        self.heard().into_iter().map(|heard| heard.what).collect()
    }
}

pub(crate) fn card_v1(url: &str, streams: bool) -> Value {
    json!({
        "name": "Far", "version": "7", "description": "x", "capabilities": {"streaming": streams}, "skills": [],
        "supportedInterfaces": [{"url": format!("{url}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    })
}

pub(crate) fn card(card: &Value) -> Reply {
    Reply::Raw(response("200 OK", "application/json", &card.to_string()))
}

pub(crate) fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn serve(socket: TcpStream, answer: Arc<Answer>, log: Arc<Mutex<Vec<Heard>>>) -> std::io::Result<()> {
    let mut socket = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    socket.read_exact(&mut body).await?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let what = body["method"].as_str().unwrap_or("card").to_owned();
    let heard = Heard { what, head, params: body["params"].clone() };
    let before = {
        let mut log = log.lock().unwrap();
        let before = log.iter().filter(|known| known.what == heard.what).count();
        log.push(heard.clone());
        before
    };
    let said = |result: &Value| json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
    let stream =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hello\r\n\r\n".to_owned();
    let events = |results: &[Value]| -> String {
        let events: String = results.iter().map(|result| format!("data: {}\r\n\r\n", said(result))).collect();
        format!("{stream}{events}")
    };
    let (text, holds) = match answer(&heard, before) {
        Reply::One(result) => (response("200 OK", "application/json", &said(&result)), false),
        Reply::Error(code, message) => {
            let error = json!({"jsonrpc": "2.0", "id": body["id"], "error": {"code": code, "message": message}});
            (response("200 OK", "application/json", &error.to_string()), false)
        }
        Reply::Events(results) => (events(&results), false),
        Reply::Held(results) => (events(&results), true),
        Reply::Broken(results) => {
            // A length that is never reached: the connection breaks in the middle.
            let text = events(&results).replace("connection: close", "content-length: 1000000");
            (format!("{text}data: {{\"jsonrpc\""), false)
        }
        Reply::Silence => (String::new(), true),
        Reply::Raw(text) => (text, false),
        Reply::Flood(head) => {
            socket.write_all(head.as_bytes()).await?;
            let much = vec![b'x'; 64 << 10];
            loop {
                socket.write_all(&much).await?;
            }
        }
    };
    socket.write_all(text.as_bytes()).await?;
    socket.flush().await?;
    if holds {
        // Until the other side goes.
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await?;
    }
    socket.shutdown().await
}
