//! Servers behind an address: which headers go along, and where may a redirect lead?

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::client::{ConnectError, told};
use crate::oauth::Tokens;
use crate::servers::Context;
use crate::{Remote, ServerConfig, TransportConfig};

use super::bearer::Bearer;
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

/// The tokens of this server, if there are to be any: a header that is written down stands for one.
fn tokens(remote: &Remote, config: &ServerConfig, context: &Context) -> Result<Option<Arc<Tokens>>, ConnectError> {
    let written = remote.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
    let Some(path) = context.tokens.as_deref().filter(|_| config.oauth.enabled && !written) else { return Ok(None) };
    let tokens = Tokens::new(path, &config.name, &remote.url);
    tokens.map(|tokens| Some(Arc::new(tokens))).map_err(|error| ConnectError::new(error.to_string(), false))
}

/// The same, for a server of whichever kind.
pub(crate) fn tokens_of(config: &ServerConfig, context: &Context) -> Option<Arc<Tokens>> {
    match &config.transport {
        TransportConfig::Http(remote) | TransportConfig::Sse(remote) | TransportConfig::Detect(remote) => {
            tokens(remote, config, context).ok().flatten()
        }
        TransportConfig::Stdio(_) => None,
    }
}

/// Streamable HTTP.
pub(crate) async fn streamable(
    remote: &Remote,
    config: &ServerConfig,
    context: &Context,
) -> Result<StreamableHttpClientTransport<Bearer>, ConnectError> {
    let transport = StreamableHttpClientTransportConfig::with_uri(remote.url.as_str()).custom_headers(headers(remote));
    let client = Bearer::new(client()?, tokens(remote, config, context)?);
    Ok(StreamableHttpClientTransport::with_client(client, transport.reinit_on_expired_session(true)))
}

/// The older way: a stream of events and posts beside it.
pub(crate) async fn sse(
    remote: &Remote,
    config: &ServerConfig,
    context: &Context,
) -> Result<SseTransport, ConnectError> {
    let opened = SseTransport::open(client()?, &remote.url, headers(remote), tokens(remote, config, context)?).await;
    opened.map_err(|error| ConnectError {
        needs_login: matches!(error, SseError::Status(401)),
        again: matches!(error, SseError::Http(_) | SseError::Status(500..) | SseError::Token(_)),
        reason: told(&error),
    })
}
