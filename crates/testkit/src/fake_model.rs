//! A model's server that says what a test wants: what does a program make of it?
//!
//! Speaks the Gemini API, OpenAI's chat completions and Anthropic's Messages on one ephemeral port, chosen by the path of each request, from
//! one list of turns. Every request is kept for assertions. A request without a turn left is answered with 500 and a
//! message that says so.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use convoke_testkit::fake_model::FakeModel;
//! use serde_json::json;
//!
//! let model = FakeModel::start().await?;
//! model.says("Let me look.").then_calls("run_shell_command", json!({"command": "ls"}));
//! model.fails(429, json!({"message": "slow down"})).with_header("Retry-After", "1");
//! model.says("Done.");
//! // … run the program against `model.gemini_url()` or `model.openai_url()` …
//! assert_eq!(model.requests().len(), 3);
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod wire;

/// The most that one request may have: histories of tests are small, and a runaway should fail and not swap.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Chunks on their way to a slow reader; the rest waits.
const CHUNKS_QUEUED: usize = 1;

/// The server; stops when dropped.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    count: watch::Receiver<usize>,
    hang_ups: watch::Receiver<usize>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// What is left to say, and what was asked.
#[derive(Debug, Default)]
struct State {
    turns: VecDeque<Turn>,
    requests: Vec<RecordedRequest>,
    /// Opened by [`FakeModel::release`].
    gate: Option<CancellationToken>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Such as `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
}

impl RecordedRequest {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// One answer.
#[derive(Clone, Debug)]
struct Turn {
    status: u16,
    headers: Vec<(String, String)>,
    said: Vec<Said>,
    usage: bool,
    finish: Option<&'static str>,
    pause: Duration,
    end: End,
}

/// A piece of an answer.
#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Thought(String),
    Call(String, Value),
    /// Bytes as they are.
    Raw(Bytes),
    /// The error body of a turn that fails.
    Error(Value),
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// The connection breaks off.
    Cut,
    /// Nothing more comes until [`FakeModel::release`].
    Stall,
}

impl Turn {
    fn new(said: Vec<Said>) -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            said,
            usage: true,
            finish: Some("STOP"),
            pause: Duration::ZERO,
            end: End::Whole,
        }
    }
}

impl FakeModel {
    /// Listens on an ephemeral port of 127.0.0.1.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::default()));
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (counter, count) = watch::channel(0);
        let (hung_up, hang_ups) = watch::channel(0);
        let server = Server {
            state: Arc::clone(&state),
            counter: Arc::new(counter),
            hung_up: Arc::new(hung_up),
            stop: stop.clone(),
        };
        tasks.spawn(server.accept(listener, tasks.clone()));
        Ok(Self { address, state, count, hang_ups, stop, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for a Gemini client.
    #[must_use]
    pub fn gemini_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base URL for an OpenAI client.
    #[must_use]
    pub fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The base URL for a client of Anthropic's Messages.
    #[must_use]
    pub fn anthropic_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a turn with text.
    pub fn says(&self, text: &str) -> &Self {
        self.push(Turn::new(vec![Said::Text(text.to_owned())]))
    }

    /// Adds a turn with a thought.
    pub fn thinks(&self, text: &str) -> &Self {
        self.push(Turn::new(vec![Said::Thought(text.to_owned())]))
    }

    /// Adds a turn with a call.
    pub fn calls(&self, name: &str, args: Value) -> &Self {
        self.push(Turn::new(vec![Said::Call(name.to_owned(), args)]))
    }

    /// Adds a turn that fails with a status and an error object, sent as `{error: …}`.
    pub fn fails(&self, status: u16, error: Value) -> &Self {
        self.push(Turn { status, ..Turn::new(vec![Said::Error(error)]) })
    }

    /// Adds a turn that fails with a status and these bytes as its body.
    pub fn refuses(&self, status: u16, body: &[u8]) -> &Self {
        let said = vec![Said::Raw(Bytes::copy_from_slice(body))];
        self.push(Turn { status, finish: None, usage: false, ..Turn::new(said) })
    }

    /// Adds a turn of these bytes, a chunk each.
    pub fn sends<'a>(&self, chunks: impl IntoIterator<Item = &'a [u8]>) -> &Self {
        let said = chunks.into_iter().map(|chunk| Said::Raw(Bytes::copy_from_slice(chunk))).collect();
        self.push(Turn { finish: None, usage: false, ..Turn::new(said) })
    }

    /// More text in the last turn, as a chunk of its own.
    pub fn then_says(&self, text: &str) -> &Self {
        self.last(|turn| turn.said.push(Said::Text(text.to_owned())))
    }

    /// A call in the last turn.
    pub fn then_calls(&self, name: &str, args: Value) -> &Self {
        self.last(|turn| turn.said.push(Said::Call(name.to_owned(), args)))
    }

    /// A response header of the last turn.
    pub fn with_header(&self, name: &str, value: &str) -> &Self {
        self.last(|turn| turn.headers.push((name.to_owned(), value.to_owned())))
    }

    /// The last turn ends for this reason, in Gemini's words.
    pub fn finishing(&self, reason: &'static str) -> &Self {
        self.last(|turn| turn.finish = Some(reason))
    }

    /// The last turn has no finish reason and no token counts.
    pub fn without_end(&self) -> &Self {
        self.last(|turn| {
            turn.finish = None;
            turn.usage = false;
        })
    }

    /// The last turn waits before each chunk.
    pub fn slowly(&self, pause: Duration) -> &Self {
        self.last(|turn| turn.pause = pause)
    }

    /// The connection breaks off after what the last turn has so far.
    pub fn then_cuts(&self) -> &Self {
        self.without_end().last(|turn| turn.end = End::Cut)
    }

    /// After what the last turn has so far, nothing more comes until [`release`](Self::release).
    pub fn then_stalls(&self) -> &Self {
        self.without_end().last(|turn| turn.end = End::Stall)
    }

    /// Ends all stalls that have begun or been scripted.
    pub fn release(&self) {
        self.state().gate.get_or_insert_default().cancel();
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state().requests.clone()
    }

    /// Waits until this many requests came. Wants a deadline around it.
    pub async fn wait_for_requests(&self, count: usize) {
        let mut seen = self.count.clone();
        // It ends early only with the server.
        let _ = seen.wait_for(|seen| *seen >= count).await;
    }

    /// Waits until this many clients hung up in the middle of an answer. Wants a deadline around it.
    pub async fn wait_for_hang_ups(&self, count: usize) {
        let mut seen = self.hang_ups.clone();
        // It ends early only with the server.
        let _ = seen.wait_for(|seen| *seen >= count).await;
    }

    /// Turns that were not asked for.
    #[must_use]
    pub fn turns_left(&self) -> usize {
        self.state().turns.len()
    }

    fn push(&self, turn: Turn) -> &Self {
        self.state().turns.push_back(turn);
        self
    }

    fn last(&self, change: impl FnOnce(&mut Turn)) -> &Self {
        if let Some(turn) = self.state().turns.back_mut() {
            change(turn);
        }
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.tasks.close();
        self.stop.cancel();
    }
}

#[derive(Clone)]
struct Server {
    state: Arc<Mutex<State>>,
    counter: Arc<watch::Sender<usize>>,
    hung_up: Arc<watch::Sender<usize>>,
    stop: CancellationToken,
}

impl Server {
    async fn accept(self, listener: TcpListener, tasks: TaskTracker) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((socket, _)) = accepted else { continue };
            // Chunks are what a test counts; they must not be glued together on the way.
            let _ = socket.set_nodelay(true);
            let (server, bodies) = (self.clone(), tasks.clone());
            tasks.spawn(async move {
                let stop = server.stop.clone();
                let service = service_fn(move |request| server.clone().answer(request, bodies.clone()));
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                tokio::select! {
                    () = stop.cancelled() => {}
                    // A client that hangs up is the test's business.
                    _ = connection => {}
                }
            });
        }
    }

    async fn answer(self, request: Request<Incoming>, tasks: TaskTracker) -> Result<Response<Chunks>, Infallible> {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let body = read(body).await;
        let headers = head.headers.iter();
        let headers = headers.map(|(k, v)| (k.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned()));
        let method = head.method.to_string();
        let recorded = RecordedRequest { method, path: path.clone(), headers: headers.collect(), body: body.clone() };
        self.lock().requests.push(recorded);
        let turn = self.lock().turns.pop_front();
        let gate = self.lock().gate.get_or_insert_default().clone();
        self.counter.send_modify(|count| *count += 1);
        let Some(turn) = turn else {
            return Ok(plain(500, &json!({"error": {"message": "the script has no turn left"}})));
        };
        Ok(self.play(turn, wire::Dialect::of(&path, &body), gate, &tasks))
    }

    /// Starts to send a turn.
    fn play(
        &self,
        turn: Turn,
        dialect: wire::Dialect,
        gate: CancellationToken,
        tasks: &TaskTracker,
    ) -> Response<Chunks> {
        let (sender, chunks) = mpsc::channel(CHUNKS_QUEUED);
        let failed = turn.said.iter().any(|said| matches!(said, Said::Error(_)));
        let kind = if failed || !dialect.streams() { "application/json" } else { "text/event-stream" };
        let mut response = Response::new(Chunks::new(chunks, Some(Arc::clone(&self.hung_up))));
        *response.status_mut() = hyper::StatusCode::from_u16(turn.status).unwrap_or_default();
        let own_kind = turn.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = (!own_kind).then(|| ("content-type".to_owned(), kind.to_owned()));
        for (name, value) in kind.iter().chain(&turn.headers) {
            if let (Ok(name), Ok(value)) =
                (hyper::header::HeaderName::try_from(name), hyper::header::HeaderValue::try_from(value))
            {
                response.headers_mut().insert(name, value);
            }
        }
        let stop = self.stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = send(turn, dialect, gate, sender) => {}
            }
        });
        response
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the chunks of a turn; ends early if nobody listens any more.
async fn send(
    turn: Turn,
    dialect: wire::Dialect,
    gate: CancellationToken,
    mut sender: mpsc::Sender<io::Result<Bytes>>,
) {
    for chunk in dialect.chunks(&turn) {
        if !turn.pause.is_zero() {
            tokio::time::sleep(turn.pause).await;
        }
        if sender.send(Ok(chunk)).await.is_err() {
            return;
        }
    }
    match turn.end {
        End::Whole => {}
        End::Stall => gate.cancelled().await,
        End::Cut => {
            // Nobody left to see the cut is no fault.
            let _ = sender.send(Err(io::Error::other("cut by the script"))).await;
        }
    }
}

fn plain(status: u16, body: &Value) -> Response<Chunks> {
    let (mut sender, chunks) = mpsc::channel(1);
    // The channel is new and has room.
    let _ = sender.try_send(Ok(Bytes::from(body.to_string())));
    let mut response = Response::new(Chunks::new(chunks, None));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response
}

/// Reads a request's body; what is no JSON is kept as text.
async fn read(mut body: Incoming) -> Value {
    let mut bytes = Vec::new();
    let mut frames = futures::stream::poll_fn(move |cx| Pin::new(&mut body).poll_frame(cx));
    while let Some(Ok(frame)) = frames.next().await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > REQUEST_BYTES_MAX {
            break;
        }
    }
    serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

/// A body that is sent as it is made.
struct Chunks {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    /// A cut that is due.
    cut: Option<io::Error>,
    /// Told if nobody takes the body to its end.
    hung_up: Option<Arc<watch::Sender<usize>>>,
}

impl Chunks {
    fn new(chunks: mpsc::Receiver<io::Result<Bytes>>, hung_up: Option<Arc<watch::Sender<usize>>>) -> Self {
        Self { chunks, cut: None, hung_up }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if let Some(hung_up) = &self.hung_up {
            hung_up.send_modify(|count| *count += 1);
        }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(cut) = self.cut.take() {
            self.hung_up = None;
            return Poll::Ready(Some(Err(cut)));
        }
        match self.chunks.poll_next_unpin(cx) {
            Poll::Ready(Some(Err(cut))) => {
                // The server flushes when it has to wait for us; an error would throw away what is not yet flushed.
                self.cut = Some(cut);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.hung_up = None;
                Poll::Ready(None)
            }
            chunk => chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data))),
        }
    }
}
