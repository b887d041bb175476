//! One connection: HTTP/1.1 or HTTP/2, its bounds in time and size, and its end.
//!
//! Which of the two is read off the first bytes (RFC 9113 §3.3, prior knowledge) or was agreed on in TLS.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::traffic::{Evictions, Tasks, Traffic, Watched};
use crate::peer::{Connection, Peer};
use crate::service::{HEAD_BYTES, HEAD_FIELDS, Service};

/// Bytes of answers that hyper holds for a connection or an HTTP/2 stream, and of a request's head. Event frames beyond
/// it stay where the bridge counts them, so this is kept small.
const BUFFER_BYTES: usize = 64 * 1024;

/// Requests that one HTTP/2 connection may have open: a page with an event stream for each of its sessions needs a
/// dozen, and a proxy that bundles its clients some more.
const STREAMS_MAX: u32 = 128;

/// Streams that a peer reset while they waited to be looked at; more than these end the connection (CVE-2023-44487).
const RESETS_MAX: usize = 20;

/// How often an HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIME: Duration = Duration::from_secs(20);

/// How long an evicted stream's socket gets to take its last frame.
pub(super) const EVICT_TIME: Duration = Duration::from_millis(100);

/// How long a connection that was told to end may take.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Answers the requests of one connection until it ends, stalls, or `stop` comes.
pub(super) async fn serve<S>(stream: S, peer: Peer, service: Arc<Service>, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let idle = service.facts.limits.idle_connection;
    let traffic = Arc::new(Traffic::new());
    let destroy = CancellationToken::new();
    let (evictions, mut evicted) = Evictions::new(STREAMS_MAX);
    let answer = {
        let (traffic, destroy) = (Arc::clone(&traffic), destroy.clone());
        service_fn(move |request: Request<Incoming>| {
            let watch = traffic.begin();
            // A stream of HTTP/2 that is evicted ends alone if its peer lets it; one of HTTP/1.1 is the connection.
            let destroy = match request.version() {
                Version::HTTP_2 => evictions.follow(watch.ended()),
                _ => destroy.clone(),
            };
            let (service, about) = (Arc::clone(&service), Connection { peer, destroy });
            async move {
                let reply = service.answer(about, request).await;
                Ok::<_, Infallible>(reply.map(|body| Watched::new(body, watch)))
            }
        })
    };
    let tasks = Tasks::default();
    let http = protocol(tasks.clone(), idle);
    let mut connection = pin!(http.serve_connection_with_upgrades(TokioIo::new(stream), answer));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "a connection broke");
                }
                break;
            }
            () = destroy.cancelled() => {
                // A reader that is awake gets the last frame; the others lose the socket.
                let _ = tokio::time::timeout(EVICT_TIME, connection.as_mut()).await;
                break;
            }
            () = evicted.stuck() => break,
            () = traffic.idle_for(idle), if !stopping => {
                tracing::debug!(%peer, "a connection idled for too long");
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(LEAVE_TIME, connection.as_mut()).await;
                break;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    tasks.end().await;
}

fn protocol(tasks: Tasks, idle: Duration) -> auto::Builder<Tasks> {
    let mut http = auto::Builder::new(tasks);
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_headers(HEAD_FIELDS)
        .max_buf_size(BUFFER_BYTES)
        .half_close(false);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_send_buf_size(BUFFER_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME);
    http
}
