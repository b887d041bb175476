//! The listener's loop: which connections are taken, and how do they end with the daemon?

mod connection;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::listener::{Accepted, Listeners, Tls};
use crate::peer::Peer;
use crate::service::Service;

/// How long connections may take to finish once the daemon stops. Source: daemon specification, §a.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// How long accepting rests after an error such as too many open files, which would only repeat at once.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Serves until `stop`, then until the connections are done or had their time.
pub(crate) async fn serve(listeners: Listeners, tls: Option<Tls>, service: Arc<Service>, stop: CancellationToken) {
    let limit = service.facts.limits.connections_max();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listeners.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        // Connections that ended meanwhile give their places back before the new one is judged.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok(accepted) if connections.len() < limit => {
                connections.spawn(take(accepted, tls.clone(), Arc::clone(&service), stop.clone()));
            }
            // As the peer: one too many is closed at once.
            Ok(_) => tracing::warn!(limit, "too many connections; closed one"),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    // From here on the port refuses.
    drop(listeners);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_TIME, finished).await.is_err() {
        tracing::warn!(open = connections.len(), "connections did not finish in time");
        connections.shutdown().await;
    }
}

async fn take(accepted: Accepted, tls: Option<Tls>, service: Arc<Service>, stop: CancellationToken) {
    match accepted {
        Accepted::Unix(stream) => connection::serve(stream, Peer::Unix, service, stop).await,
        Accepted::Tcp(stream, address) => {
            // Frames are small and each matters now; failing to say so costs time only.
            let _ = stream.set_nodelay(true);
            let peer = Peer::Tcp(address);
            let Some(tls) = tls else { return connection::serve(stream, peer, service, stop).await };
            match tokio::time::timeout(HANDSHAKE_TIME, tls.accept(stream)).await {
                Ok(Ok(stream)) => connection::serve(stream, peer, service, stop).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
            }
        }
    }
}
