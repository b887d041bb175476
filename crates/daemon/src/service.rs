//! What happens to a request between the socket and its route? The order in which it is let in.
//!
//! ```text
//! head ─▶ Host ─▶ Origin ─▶ page files, /health ─▶ bearer ─▶ rate ─▶ JSON body ─▶ route
//! 431     403     403       200                     401      429     400, 413     404 as HTML
//! ```
//! The Host is judged first of all, so that a rebound name learns nothing. One function instead of a stack of layers:
//! the order is the law here, and no framework's 404, 405 or 415 gets between. Source: daemon specification, §b.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Body;
use serde_json::json;
use tracing::Instrument;

use crate::acp_http::AcpDesk;
use crate::assets;
use crate::auth::Auth;
use crate::body;
use crate::driver::Handle;
use crate::facts::Facts;
use crate::http_error::HttpError;
use crate::metrics::Metrics;
use crate::origin::{self, Verdict, Wall};
use crate::peer::{Connection, Peer};
use crate::rate::{Admission, Tier};
use crate::respond::{self, Reply};
use crate::route::{self, Match, Route};
use crate::routes::{self, Incoming};
use crate::toll::Toll;
use crate::traces;

/// The header by which a client names itself.
pub(crate) const CLIENT_ID: &str = "x-qwen-client-id";

/// Bytes of a request's head, as HTTP/2 counts them: names, values, and 32 for each field (RFC 9113 §6.5.2).
pub(crate) const HEAD_BYTES: usize = 32 * 1024;

/// Fields of a request's head.
pub(crate) const HEAD_FIELDS: usize = 100;

/// Answers requests.
pub(crate) struct Service {
    pub(crate) wall: Wall,
    pub(crate) auth: Auth,
    /// Whether `/health` needs no token.
    pub(crate) health_open: bool,
    /// Whether there is a page.
    pub(crate) page: bool,
    pub(crate) handle: Handle,
    pub(crate) facts: Arc<Facts>,
    pub(crate) metrics: Arc<Metrics>,
    /// Who asked how often; `None` does not count.
    pub(crate) rate: Option<Arc<Toll>>,
    pub(crate) acp: AcpDesk,
}

impl Service {
    /// Answers one request, logs it, and turns a panic into a 500 of this one request.
    pub(crate) async fn answer<B>(&self, connection: Connection, request: Request<B>) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let begin = Instant::now();
        let (mut head, mut body) = request.into_parts();
        origin::unify_host(&mut head);
        let found = route::find(&head.method, head.uri.path());
        let (route, session) = route_of(&found);
        let span = traces::request(route, session);
        let answer = AssertUnwindSafe(self.wall(&connection, &head, &found, &mut body)).catch_unwind();
        let answer = answer.instrument(span.clone()).await;
        let reply = answer.unwrap_or_else(|_| {
            tracing::error!(path = head.uri.path(), "a route panicked");
            HttpError::internal().reply()
        });
        if reply.status().is_client_error() {
            body::drain(&mut body).await;
        }
        let status = reply.status();
        traces::answered(&span, status);
        self.metrics.request(route, status.as_u16());
        log(&head, &found, status, begin);
        reply
    }

    async fn wall<B>(&self, connection: &Connection, head: &Parts, found: &Match, body: B) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if is_too_large(head) {
            let body = json!({"error": "Request head too large"});
            return respond::json(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, &body);
        }
        // No browser reaches a socket's file: a name in `Host` means nothing there.
        if connection.peer != Peer::Unix && !self.wall.admits_host(&head.headers) {
            return respond::json(StatusCode::FORBIDDEN, &json!({"error": "Invalid Host header"}));
        }
        match self.wall.judge(&head.headers) {
            Verdict::Pass => self.inside(connection, head, found, body).await,
            Verdict::Denied => {
                let body = json!({"error": "Request denied by CORS policy"});
                let mut reply = respond::json(StatusCode::FORBIDDEN, &body);
                reply.headers_mut().insert(header::VARY, HeaderValue::from_static("Origin"));
                reply
            }
            Verdict::Allowed(origin) => {
                let mut reply = if origin::is_preflight(&head.method, &head.headers) {
                    origin::preflight()
                } else {
                    self.inside(connection, head, found, body).await
                };
                origin::add_cors(reply.headers_mut(), origin);
                reply
            }
        }
    }

    async fn inside<B>(&self, connection: &Connection, head: &Parts, found: &Match, body: B) -> Reply
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if self.page
            && let Some(page) = assets::serve(&head.method, head.uri.path(), &head.headers)
        {
            return page;
        }
        if let Match::Route(Route::AcpStream | Route::AcpMessage | Route::AcpLeave) = found {
            return self.acp.answer(self, connection, head, body).await;
        }
        let open = self.health_open && matches!(found, Match::Route(Route::Health));
        if !open && !self.auth.admits(&head.headers) {
            return respond::json(StatusCode::UNAUTHORIZED, &json!({"error": "Unauthorized"}));
        }
        if let Some(tier) = Tier::of(&head.method, found)
            && let Some(refused) = self.charge(connection.peer, tier)
        {
            return refused;
        }
        let reads_body = !matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let fields = if reads_body {
            match body::read(&head.headers, body, &self.facts.limits).await {
                Ok(fields) => fields,
                Err(error) => return error.reply(),
            }
        } else {
            body::Fields::new()
        };
        match found {
            Match::Route(route) => {
                let incoming = Incoming { connection, head, fields };
                match routes::answer(self, route, incoming).await {
                    Ok(reply) => reply,
                    Err(error) => error.reply(),
                }
            }
            Match::OtherMethods(methods) if head.method == Method::OPTIONS => options(methods),
            Match::OtherMethods(_) | Match::Unknown => respond::cannot(&head.method, head.uri.path()),
            Match::Malformed => HttpError::bad_request("Malformed URL encoding", "invalid_request").reply(),
        }
    }

    /// Counts a request against its peer's share; the answer is a 429 if that is used up.
    pub(crate) fn charge(&self, peer: Peer, tier: Tier) -> Option<Reply> {
        match self.rate.as_ref()?.take(peer, tier) {
            Admission::Pass => None,
            Admission::Wait { retry_after, limit } => Some(respond::too_many(tier.name(), retry_after, limit)),
        }
    }
}

/// What a request is counted as: a route, or nothing that a client could make up.
fn route_of(found: &Match) -> (&'static str, Option<&str>) {
    match found {
        Match::Route(route) => route.name(),
        Match::OtherMethods(_) | Match::Unknown | Match::Malformed => ("other", None),
    }
}

/// Whether a head is beyond what is looked at. hyper bounds what it reads; this holds for both versions of HTTP.
fn is_too_large(head: &Parts) -> bool {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    head.headers.len() > HEAD_FIELDS || path + fields.sum::<usize>() > HEAD_BYTES
}

/// The answer to `OPTIONS` of a caller that is no browser.
fn options(methods: &[Method]) -> Reply {
    let mut names: Vec<&str> = Vec::new();
    for method in methods {
        names.push(method.as_str());
        if method == Method::GET {
            names.push("HEAD");
        }
    }
    let names = names.join(", ");
    let mut reply = http::Response::new(respond::ReplyBody::bytes(Bytes::from(names.clone())));
    if let Ok(value) = HeaderValue::from_str(&names) {
        reply.headers_mut().insert(header::ALLOW, value);
    }
    reply
}

/// The client that a request names itself: `None` is anonymous, and a header of another shape is refused.
pub(crate) fn client_id(headers: &HeaderMap) -> Result<Option<convoke_protocol::ClientId>, HttpError> {
    let Some(value) = headers.get(CLIENT_ID) else { return Ok(None) };
    match value.to_str() {
        Ok(text) if convoke_protocol::ClientId::is_well_formed(text) => Ok(Some(text.into())),
        Ok(_) | Err(_) => Err(HttpError::client_id_shape()),
    }
}

/// The one line per request. Never the query and never a header but the client's id, which is no secret.
fn log(head: &Parts, found: &Match, status: StatusCode, begin: Instant) {
    if matches!(found, Match::Route(Route::Health | Route::Heartbeat(_))) {
        return;
    }
    let unknown = || format!("{} {}", head.method, convoke_stdx::cut::head(head.uri.path(), 200));
    let (route, session) = match found {
        Match::Route(route) => (std::borrow::Cow::Borrowed(route.name().0), route.name().1),
        Match::OtherMethods(_) | Match::Unknown | Match::Malformed => (unknown().into(), None),
    };
    let client = client_id(&head.headers).ok().flatten();
    let client = client.as_ref().map(|id| id.as_str());
    let duration = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let status = status.as_u16();
    if status >= 400 {
        tracing::warn!(
            target: "convoke::access", route = %route, sessionId = session, clientId = client, durationMs = duration, status,
            "request completed"
        );
    } else {
        tracing::info!(
            target: "convoke::access", route = %route, sessionId = session, clientId = client, durationMs = duration, status,
            "request completed"
        );
    }
}
