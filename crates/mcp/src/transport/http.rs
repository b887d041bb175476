//! Servers behind an address: which headers go along, and where may a redirect lead?

use std::collections::HashMap;
use std::time::Duration;

use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::client::{ConnectError, told};
use crate::servers::Context;
use crate::{Remote, ServerConfig};

use super::sse::{SseError, SseTransport};

/// How long the connection itself may take.
const CONNECT_WAIT: Duration = Duration::from_secs(15);
/// Redirects within one server.
const REDIRECTS_MAX: usize = 4;

/// A client for one server. Its headers may be secrets, so it follows no redirect to another origin.
pub(super) fn client() -> Result<reqwest::Client, ConnectError> {
    // Somebody may have installed one before; either is ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let policy = Policy::custom(|attempt| {
        let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if !same {
            attempt.error("the server redirects to another origin")
        } else if attempt.previous().len() > REDIRECTS_MAX {
            attempt.error("too many redirects")
        } else {
            attempt.follow()
        }
    });
    let built = reqwest::Client::builder().connect_timeout(CONNECT_WAIT).redirect(policy).build();
    built.map_err(|error| ConnectError::new(format!("make an HTTP client: {}", told(&error)), false))
}

pub(super) fn headers(remote: &Remote) -> HashMap<http::HeaderName, http::HeaderValue> {
    let usable = remote.headers.iter().filter_map(|(name, value)| {
        let mut value = http::HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some((http::HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    });
    usable.collect()
}

/// Streamable HTTP.
pub(crate) async fn streamable(
    remote: &Remote,
    _config: &ServerConfig,
    _context: &Context,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, ConnectError> {
    let transport = StreamableHttpClientTransportConfig::with_uri(remote.url.as_str()).custom_headers(headers(remote));
    Ok(StreamableHttpClientTransport::with_client(client()?, transport.reinit_on_expired_session(true)))
}

/// The older way: a stream of events and posts beside it.
pub(crate) async fn sse(
    remote: &Remote,
    _config: &ServerConfig,
    _context: &Context,
) -> Result<SseTransport, ConnectError> {
    SseTransport::open(client()?, &remote.url, headers(remote)).await.map_err(|error| ConnectError {
        needs_login: matches!(error, SseError::Status(401)),
        again: matches!(error, SseError::Http(_) | SseError::Status(500..)),
        reason: told(&error),
    })
}
