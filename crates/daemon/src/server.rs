//! The listener: which connections are taken, and how do they end?

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::peer::Connection;
use crate::service::Service;

/// Bytes of answers that hyper holds for a connection, and of a request's head. Event frames beyond it stay where the
/// bridge counts them, so this is kept small.
const BUFFER_BYTES: usize = 64 * 1024;

/// How long a client may take to send the head of a request; keep-alive connections may idle for as long.
const HEAD_TIME: Duration = Duration::from_secs(75);

/// How long an evicted stream's socket gets to take its last frame.
const EVICT_TIME: Duration = Duration::from_millis(100);

/// How long connections may take to finish once the daemon stops. Source: daemon specification, §a.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// How long accepting rests after an error such as too many open files, which would only repeat at once.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Serves until `stop`, then until the connections are done or had their time.
pub(crate) async fn serve(listener: TcpListener, service: Arc<Service>, stop: CancellationToken) {
    let limit = service.facts.limits.connections;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        // Connections that ended meanwhile give their places back before the new one is judged.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((socket, peer)) if connections.len() < limit => {
                connections.spawn(connection(socket, peer, Arc::clone(&service), stop.clone()));
            }
            // As the peer: one too many is closed at once.
            Ok((_, peer)) => tracing::warn!(%peer, limit, "too many connections; closed one"),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    // From here on the port refuses.
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_TIME, finished).await.is_err() {
        tracing::warn!(open = connections.len(), "connections did not finish in time");
        connections.shutdown().await;
    }
}

async fn connection(socket: TcpStream, peer: SocketAddr, service: Arc<Service>, stop: CancellationToken) {
    // Frames are small and each matters now; failing to say so costs time only.
    let _ = socket.set_nodelay(true);
    let destroy = CancellationToken::new();
    let about = Connection { peer, destroy: destroy.clone() };
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, about) = (Arc::clone(&service), about.clone());
        async move { Ok::<_, Infallible>(service.answer(about, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(BUFFER_BYTES).half_close(false);
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), answer));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "a connection broke");
                }
                return;
            }
            () = destroy.cancelled() => {
                // A reader that is awake gets the last frame; the others lose the socket.
                let _ = tokio::time::timeout(EVICT_TIME, connection.as_mut()).await;
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
