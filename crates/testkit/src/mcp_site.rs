//! A web site with an MCP server, and if it is to be logged in to, with the authorization server for it.
//!
//! Streamable HTTP at `/mcp`, the event stream of old servers at `/sse`; what both offer is [`McpScript`]'s. Metadata,
//! registration, codes, proofs, tokens and device codes are those of the RFCs, checked as strictly as they allow: a
//! client that leaves something out is refused. Whatever is secret has `SECRET` in it, so that a test can look for it.

mod login;

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::scripted_mcp::{McpScript, Server};
use login::Login;

/// Messages on their way to a slow reader; tests send few.
const QUEUED: usize = 256;
/// Redirects that [`browse`] follows.
const REDIRECTS_MAX: usize = 4;

/// What the site is like.
#[derive(Clone, Debug, Default)]
pub struct SiteOptions {
    /// What the MCP server does.
    pub script: McpScript,
    /// It wants a token.
    pub login: bool,
    /// Its 401 says nothing of where to log in.
    pub silent_challenge: bool,
    /// It has no metadata at all.
    pub no_metadata: bool,
    /// Seconds that a token is good for.
    pub expires_in: u64,
    /// It gives device codes, and these words before the token.
    pub device: Option<Vec<&'static str>>,
    /// Clients that register get a secret, and must show it.
    pub client_secret: bool,
}

/// A request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRequest {
    /// Such as `POST`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The body, as text.
    pub body: String,
}

/// The site; stops when dropped.
#[derive(Debug)]
pub struct McpSite {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Shared {
    base: String,
    options: SiteOptions,
    state: Mutex<State>,
    stop: CancellationToken,
}

struct State {
    server: Server<Vec<u8>>,
    login: Login,
    sessions: HashSet<String>,
    next_session: u64,
    /// Open event streams: those of `/mcp`, and those of `/sse` by session.
    streams: Vec<(Option<String>, mpsc::Sender<Frame<Bytes>>)>,
    requests: Vec<SiteRequest>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

type Sent = Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

impl McpSite {
    /// Starts on a port of its own.
    pub async fn start(options: SiteOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = State {
            server: Server { script: options.script.clone(), output: Vec::new(), grown: false },
            login: Login::default(),
            sessions: HashSet::new(),
            next_session: 1,
            streams: Vec::new(),
            requests: Vec::new(),
        };
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            base: format!("http://{address}"),
            options,
            state: Mutex::new(state),
            stop: stop.clone(),
        });
        let tasks = TaskTracker::new();
        let (site, connections) = (shared.clone(), tasks.clone());
        tasks.spawn(async move {
            loop {
                let socket = tokio::select! {
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => match accepted {
                        Ok((socket, _)) => socket,
                        Err(_) => continue,
                    },
                };
                let (site, stop) = (site.clone(), stop.clone());
                connections.spawn(async move {
                    let service = service_fn(move |request| site.clone().answer(request));
                    let connection =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                    tokio::select! {
                        () = stop.cancelled() => {}
                        // A client that hangs up is the test's business.
                        _ = connection => {}
                    }
                });
            }
        });
        Ok(Self { address, shared, tasks })
    }

    /// The MCP server, over streamable HTTP.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The MCP server, as of old.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://{}/sse", self.address)
    }

    /// Everything that was asked so far.
    #[must_use]
    pub fn requests(&self) -> Vec<SiteRequest> {
        self.shared.state().requests.clone()
    }

    /// How often a path was asked.
    #[must_use]
    pub fn asked(&self, path: &str) -> usize {
        self.requests().iter().filter(|request| request.path.split('?').next() == Some(path)).count()
    }

    /// How often a token was asked for in this way.
    #[must_use]
    pub fn granted(&self, grant: &str) -> usize {
        let wanted = format!("grant_type={grant}");
        self.requests().iter().filter(|request| request.path == "/token" && request.body.contains(&wanted)).count()
    }

    /// No access token is good any more.
    pub fn revoke(&self) {
        self.shared.state().login.access.clear();
    }

    /// No token is renewed any more.
    pub fn refuse_renewal(&self) {
        self.shared.state().login.refresh.clear();
    }

    /// Forgets its sessions and closes its streams, as after a restart.
    pub fn restart(&self) {
        let mut state = self.shared.state();
        state.sessions.clear();
        state.streams.clear();
    }
}

impl Drop for McpSite {
    fn drop(&mut self) {
        self.tasks.close();
        self.shared.stop.cancel();
    }
}

/// Opens an address as a browser does, and gives the status and text of the page where it ends; one that is sent away from
/// this machine ends there, and gives the address.
pub async fn browse(url: &str) -> io::Result<(u16, String)> {
    let mut url = url.to_owned();
    for _ in 0..=REDIRECTS_MAX {
        let wrong = || io::Error::other(format!("not an address that can be opened: {url}"));
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').ok_or_else(wrong)?;
        let mut stream = TcpStream::connect(host).await?;
        let head = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no answer"))?;
        let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let location = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
        });
        match location {
            Some(location) if (300..400).contains(&status) => match location.starts_with("http://127.0.0.1:") {
                true => url = location,
                false => return Ok((status, location)),
            },
            _ => return Ok((status, body.to_owned())),
        }
    }
    Err(io::Error::other("too many redirects"))
}

/// A whole answer.
fn whole(status: u16, kind: &str, body: impl Into<Bytes>) -> Sent {
    let mut response = Response::new(http_body_util::Full::new(body.into()).boxed());
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

fn object(status: u16, body: &Value) -> Sent {
    whole(status, "application/json", body.to_string())
}

/// An answer that goes on, and what it is written with.
fn events() -> (mpsc::Sender<Frame<Bytes>>, Sent) {
    let (sender, frames) = mpsc::channel(QUEUED);
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames.map(Ok::<_, Infallible>))));
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("text/event-stream"));
    (sender, response)
}

fn event(name: &str, data: &str) -> Frame<Bytes> {
    Frame::data(Bytes::from(format!("event: {name}\ndata: {data}\n\n")))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error closes the connection.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Sent> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
        let target = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let request = SiteRequest {
            method: head.method.to_string(),
            path: target,
            authorization: header("authorization"),
            body: body.clone(),
        };
        self.state().requests.push(request.clone());
        let (path, query) = request.path.split_once('?').unwrap_or((request.path.as_str(), ""));
        if !matches!(path, "/mcp" | "/sse" | "/messages") {
            return Ok(login::answer(&self, path, query, &request));
        }
        if self.options.login && !self.state().login.admits(request.authorization.as_deref()) {
            let mut response = object(401, &Value::Null);
            let what = if path == "/mcp" { "mcp" } else { "sse" };
            let metadata =
                format!("Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/{what}\"", self.base);
            if let Ok(value) = metadata.parse::<hyper::header::HeaderValue>()
                && !self.options.silent_challenge
            {
                response.headers_mut().insert("www-authenticate", value);
            }
            return Ok(response);
        }
        match (request.method.as_str(), path) {
            ("POST", "/mcp") => self.post(&body, header("mcp-session-id")),
            ("GET", "/mcp") => Ok(self.listen(None)),
            ("DELETE", "/mcp") => {
                self.state().sessions.remove(&header("mcp-session-id").unwrap_or_default());
                Ok(object(200, &Value::Null))
            }
            ("GET", "/sse") => {
                let id = self.new_session();
                Ok(self.listen(Some(id)))
            }
            ("POST", "/messages") => self.message(&body, query.strip_prefix("session=").unwrap_or_default()),
            _ => Ok(object(405, &Value::Null)),
        }
    }

    fn new_session(&self) -> String {
        let mut state = self.state();
        let id = format!("s{}", state.next_session);
        state.next_session += 1;
        state.sessions.insert(id.clone());
        id
    }

    fn listen(&self, session: Option<String>) -> Sent {
        let (mut sender, response) = events();
        if let Some(id) = &session {
            // The channel is new and has room.
            let _ = sender.try_send(event("endpoint", &format!("/messages?session={id}")));
        }
        self.state().streams.push((session, sender));
        response
    }

    /// What the server says to a message. An error is a crash.
    fn said(&self, body: &str) -> io::Result<(Value, Vec<String>)> {
        let message: Value = serde_json::from_str(body).map_err(io::Error::other)?;
        let mut state = self.state();
        if !state.server.take(&message)? {
            state.sessions.clear();
            state.streams.clear();
            return Err(io::Error::other("the server crashed"));
        }
        let output = std::mem::take(&mut state.server.output);
        Ok((message, String::from_utf8_lossy(&output).lines().map(ToOwned::to_owned).collect()))
    }

    fn post(&self, body: &str, session: Option<String>) -> io::Result<Sent> {
        let method = serde_json::from_str::<Value>(body).unwrap_or_default()["method"].clone();
        if !matches!(method.as_str(), Some("initialize" | "server/discover")) {
            let known = session.as_ref().is_some_and(|id| self.state().sessions.contains(id));
            if !known {
                return Ok(object(404, &Value::Null));
            }
        }
        let (message, lines) = self.said(body)?;
        if message.get("id").is_none() || message.get("method").is_none() {
            return Ok(whole(202, "application/json", ""));
        }
        let (mut said, mut announced) = (Vec::new(), Vec::new());
        for line in lines {
            if line.contains("list_changed") { announced.push(line) } else { said.push(line) }
        }
        for line in announced {
            self.state().streams.retain_mut(|(_, stream)| stream.try_send(event("message", &line)).is_ok());
        }
        if method == "tools/call" {
            let (mut sender, response) = events();
            if said.is_empty() {
                // It never answers: the stream stays open for as long as the site is there.
                self.state().streams.push((Some(String::new()), sender));
                return Ok(response);
            }
            for line in said {
                // As many as a test has steps.
                let _ = sender.try_send(event("message", &line));
            }
            return Ok(response);
        }
        let mut response = whole(200, "application/json", said.into_iter().next().unwrap_or_default());
        if method == "initialize"
            && let Ok(id) = self.new_session().parse()
        {
            response.headers_mut().insert("mcp-session-id", id);
        }
        Ok(response)
    }

    fn message(&self, body: &str, session: &str) -> io::Result<Sent> {
        let (_, lines) = self.said(body)?;
        let mut state = self.state();
        for line in lines {
            for (id, stream) in &mut state.streams {
                if id.as_deref() == Some(session) {
                    // Who hung up hears nothing.
                    let _ = stream.try_send(event("message", &line));
                }
            }
        }
        Ok(whole(202, "text/plain", "Accepted"))
    }
}
