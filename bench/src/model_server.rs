//! A model on loopback that says what the bench tells it to, and remembers when.
//!
//! Speaks the streaming half of the Gemini API. A request for anything else is counted and refused: the product has no
//! business asking.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use convoke_bench::clock::monotonic_nanos;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// What the model answers with.
#[derive(Clone, Debug)]
pub(crate) enum Story {
    /// Two pieces of text.
    Text,
    /// Calls of `read_file`, one a turn, for `file_NNN.txt` in a folder, then text.
    Reads { calls: usize, folder: PathBuf },
    /// Calls of `run_shell_command`, one a turn, for a command that does nothing, then text.
    Shells { calls: usize },
}

/// One request that was answered; times on the clock of [`convoke_bench::clock`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// When the whole request was there.
    pub(crate) asked_ns: u64,
    /// When the last byte of the answer went to the socket.
    pub(crate) answered_ns: u64,
    /// Length of the request's body.
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct State {
    story: Story,
    exchanges: Vec<Exchange>,
    refused: Vec<String>,
}

/// A running server; ends with this value.
#[derive(Debug)]
pub(crate) struct ModelServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    _accepting: AbortOnDropHandle<()>,
}

impl ModelServer {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State { story: Story::Text, exchanges: Vec::new(), refused: Vec::new() }));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state, _accepting: AbortOnDropHandle::new(accepting) })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The name of the file that call `number` reads.
    pub(crate) fn file(folder: &Path, number: usize) -> PathBuf {
        folder.join(format!("file_{number:03}.txt"))
    }

    /// Begins a story; what was remembered is forgotten.
    pub(crate) fn tell(&self, story: Story) {
        *lock(&self.state) = State { story, exchanges: Vec::new(), refused: Vec::new() };
    }

    /// What was asked since the story began.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.state).exchanges.clone()
    }

    /// Paths of requests that were refused since the story began.
    pub(crate) fn refused(&self) -> Vec<String> {
        lock(&self.state).refused.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Without it the answer's second half would wait for an acknowledgement.
        let _slower_if_refused = stream.set_nodelay(true);
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            // A client that goes away is its own matter.
            let _ended =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> Result<Response<Telling>, hyper::Error> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes().len();
    let asked_ns = monotonic_nanos();
    let mut response;
    if head.uri.path().ends_with(":streamGenerateContent") {
        let frames = {
            let mut state = lock(&state);
            state.exchanges.push(Exchange { asked_ns, answered_ns: 0, bytes });
            frames(&state.story, state.exchanges.len() - 1)
        };
        response = Response::new(Telling { frames: frames.into_iter(), state: Some(state) });
        response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("text/event-stream"));
    } else {
        lock(&state).refused.push(head.uri.path().to_owned());
        let body = Bytes::from_static(br#"{"error":{"code":404,"message":"not scripted","status":"NOT_FOUND"}}"#);
        response = Response::new(Telling { frames: vec![body].into_iter(), state: None });
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

/// The answer to request `number`, from 0.
fn frames(story: &Story, number: usize) -> Vec<Bytes> {
    match story {
        Story::Reads { calls, folder } if number < *calls => {
            let path = ModelServer::file(folder, number);
            let call = json!({"functionCall": {"name": "read_file", "args": {"file_path": path}}});
            vec![frame(call, true)]
        }
        // A number, since the same call again and again is a loop.
        Story::Shells { calls } if number < *calls => {
            let args = json!({"command": format!("true {number}")});
            vec![frame(json!({"functionCall": {"name": "run_shell_command", "args": args}}), true)]
        }
        Story::Text | Story::Reads { .. } | Story::Shells { .. } => {
            vec![frame(json!({"text": "Hello from "}), false), frame(json!({"text": "the model."}), true)]
        }
    }
}

fn frame(part: Value, last: bool) -> Bytes {
    let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
    if last && let Some(fields) = candidate.as_object_mut() {
        fields.insert("finishReason".to_owned(), json!("STOP"));
    }
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
    let chunk = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"});
    Bytes::from(format!("data: {chunk}\r\n\r\n"))
}

/// An answer on its way; notes the time when its last frame is taken, which is when it is written.
struct Telling {
    frames: std::vec::IntoIter<Bytes>,
    state: Option<Arc<Mutex<State>>>,
}

impl Body for Telling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.frames.next();
        if self.frames.len() == 0
            && let Some(state) = self.state.take()
            && let Some(exchange) = lock(&state).exchanges.last_mut()
        {
            exchange.answered_ns = monotonic_nanos();
        }
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }
}
