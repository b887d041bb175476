//! `floor-daemon AGENT`: the least daemon that shares one agent.
//!
//! It prints a line with its address, answers `/health` and `/capabilities` from constants, starts sessions with the
//! agent, writes each of its updates once, as shared bytes, to every subscriber, and lets the first vote win. It checks
//! nothing, remembers nothing and knows no clients: whatever the product costs beyond this is the price of its duties.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Frames queued to one subscriber, as the product's default; a slower one is let go.
const QUEUED_FRAMES: usize = 256;
/// Messages on their way to the agent; a full queue makes the request wait.
const QUEUED_MESSAGES: usize = 64;

type Answer = Response<Either<Full<Bytes>, Subscription>>;

/// What the agent writes, as far as it is looked at.
#[derive(Deserialize)]
struct Message<'a> {
    id: Option<Value>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Addressed {
    #[serde(rename = "sessionId")]
    session: String,
}

#[derive(Default)]
struct Hub {
    sessions: HashMap<String, Session>,
    calls: HashMap<u64, oneshot::Sender<String>>,
    prompts: HashMap<u64, String>,
    last_call: u64,
    shared: Option<String>,
}

#[derive(Default)]
struct Session {
    subscribers: Vec<mpsc::Sender<Bytes>>,
    last_frame: u64,
    /// The agent's ids of its open questions, which serve as ours.
    open: Vec<String>,
}

impl Session {
    fn publish(&mut self, kind: &str, data: &str) {
        self.last_frame += 1;
        let id = self.last_frame;
        let frame = Bytes::from(format!(
            "id: {id}\nevent: {kind}\ndata: {{\"id\":{id},\"v\":1,\"type\":\"{kind}\",\"data\":{data}}}\n\n"
        ));
        self.subscribers.retain(|subscriber| subscriber.try_send(frame.clone()).is_ok());
    }
}

/// Everything requests share.
struct Floor {
    hub: Mutex<Hub>,
    agent: mpsc::Sender<String>,
}

struct Subscription(mpsc::Receiver<Bytes>);

impl Body for Subscription {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let program = std::env::args_os().nth(1).context("no agent named")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut child = Command::new(program)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdin = child.stdin.take().context("no pipe to the agent")?;
    let stdout = child.stdout.take().context("no pipe from the agent")?;
    let (agent, messages) = mpsc::channel(QUEUED_MESSAGES);
    let floor = Arc::new(Floor { hub: Mutex::default(), agent });

    let mut tasks = JoinSet::new();
    tasks.spawn(write_to_agent(stdin, messages));
    tasks.spawn(read_from_agent(stdout, Arc::clone(&floor)));
    floor
        .agent
        .send(json!({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}).to_string())
        .await?;
    {
        let mut out = std::io::stdout().lock();
        writeln!(out, "floor listening on http://{}", listener.local_addr()?)?;
        out.flush()?;
    }
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let floor = Arc::clone(&floor);
        tasks.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&floor), request));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            Ok(connection.await?)
        });
        while tasks.try_join_next().is_some() {}
    }
}

async fn write_to_agent(mut stdin: ChildStdin, mut messages: mpsc::Receiver<String>) -> anyhow::Result<()> {
    while let Some(mut message) = messages.recv().await {
        message.push('\n');
        stdin.write_all(message.as_bytes()).await?;
    }
    Ok(())
}

async fn read_from_agent(stdout: ChildStdout, floor: Arc<Floor>) -> anyhow::Result<()> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        floor.take(&line)?;
    }
    Ok(())
}

impl Floor {
    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One message of the agent.
    fn take(&self, line: &str) -> anyhow::Result<()> {
        let message: Message<'_> = serde_json::from_str(line)?;
        let mut hub = self.hub();
        match (message.method.as_deref(), message.id, message.params) {
            (Some("session/update"), _, Some(params)) => {
                let to: Addressed = serde_json::from_str(params.get())?;
                if let Some(session) = hub.sessions.get_mut(&to.session) {
                    session.publish("session_update", params.get());
                }
            }
            (Some("session/request_permission"), Some(Value::String(id)), Some(params)) => {
                let to: Addressed = serde_json::from_str(params.get())?;
                if let Some(session) = hub.sessions.get_mut(&to.session) {
                    let data = format!("{{\"requestId\":\"{id}\",\"request\":{}}}", params.get());
                    session.open.push(id);
                    session.publish("permission_request", &data);
                }
            }
            (None, Some(id), _) => {
                let id = id.as_u64().context("an answer to nobody")?;
                let result = message.result.map_or("{}", RawValue::get);
                if let Some(session) = hub.prompts.remove(&id) {
                    if let Some(session) = hub.sessions.get_mut(&session) {
                        session.publish("turn_complete", result);
                    }
                } else if let Some(caller) = hub.calls.remove(&id) {
                    // A caller that went away needs no answer.
                    let _gone = caller.send(result.to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

async fn answer(floor: Arc<Floor>, request: Request<Incoming>) -> anyhow::Result<Answer> {
    let (head, body) = request.into_parts();
    let path: Vec<&str> = head.uri.path().split('/').skip(1).collect();
    match (head.method.as_str(), path.as_slice()) {
        ("GET", ["health"]) => Ok(plain(StatusCode::OK, r#"{"status":"ok"}"#)),
        ("GET", ["capabilities"]) => Ok(plain(StatusCode::OK, include_str!("capabilities.json"))),
        ("POST", ["session"]) => floor.join(body.collect().await?.to_bytes()).await,
        ("GET", ["session", id, "events"]) => Ok(floor.subscribe(id)),
        ("POST", ["session", id, "prompt"]) => floor.prompt(id, body.collect().await?.to_bytes()).await,
        ("POST", ["session", id, "permission", request]) => {
            floor.vote(id, request, body.collect().await?.to_bytes()).await
        }
        _ => Ok(plain(StatusCode::NOT_FOUND, "{}")),
    }
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response
}

impl Floor {
    /// The shared session if there is one and it is wanted, else a new one.
    async fn join(&self, body: Bytes) -> anyhow::Result<Answer> {
        let body: Value = serde_json::from_slice(&body)?;
        let shared = body.get("sessionScope").and_then(Value::as_str) == Some("single");
        let known = if shared { self.hub().shared.clone() } else { None };
        let session = match known {
            Some(session) => session,
            None => self.start_session().await?,
        };
        if shared {
            self.hub().shared = Some(session.clone());
        }
        Ok(plain(StatusCode::OK, json!({"sessionId": session, "clientId": "anyone"}).to_string()))
    }

    async fn start_session(&self) -> anyhow::Result<String> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut hub = self.hub();
            hub.last_call += 1;
            let id = hub.last_call;
            hub.calls.insert(id, sender);
            id
        };
        let params = json!({"cwd": "/", "mcpServers": []});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "session/new", "params": params});
        self.agent.send(call.to_string()).await?;
        let result = receiver.await?;
        let started: Addressed = serde_json::from_str(&result)?;
        self.hub().sessions.insert(started.session.clone(), Session::default());
        Ok(started.session)
    }

    fn subscribe(&self, id: &str) -> Answer {
        let mut hub = self.hub();
        let Some(session) = hub.sessions.get_mut(id) else { return plain(StatusCode::NOT_FOUND, "{}") };
        let (sender, receiver) = mpsc::channel(QUEUED_FRAMES);
        // The first bytes, so that the subscriber knows it is one.
        let _first = sender.try_send(Bytes::from_static(b"retry: 3000\n\n"));
        session.subscribers.push(sender);
        Response::new(Either::Right(Subscription(receiver)))
    }

    async fn prompt(&self, session: &str, body: Bytes) -> anyhow::Result<Answer> {
        let body: Value = serde_json::from_slice(&body)?;
        let id = {
            let mut hub = self.hub();
            hub.last_call += 1;
            let id = hub.last_call;
            hub.prompts.insert(id, session.to_owned());
            id
        };
        let params = json!({"sessionId": session, "prompt": body.get("prompt")});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params});
        self.agent.send(call.to_string()).await?;
        Ok(plain(StatusCode::ACCEPTED, "{}"))
    }

    async fn vote(&self, session: &str, request: &str, body: Bytes) -> anyhow::Result<Answer> {
        let outcome: Value = serde_json::from_slice(&body)?;
        {
            let mut hub = self.hub();
            let session = hub.sessions.get_mut(session).context("no such session")?;
            let Some(at) = session.open.iter().position(|open| open == request) else {
                return Ok(plain(StatusCode::NOT_FOUND, "{}"));
            };
            session.open.remove(at);
            session.publish("permission_resolved", &format!("{{\"requestId\":\"{request}\"}}"));
        }
        self.agent.send(json!({"jsonrpc": "2.0", "id": request, "result": outcome}).to_string()).await?;
        Ok(plain(StatusCode::OK, "{}"))
    }
}
