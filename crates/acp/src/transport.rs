//! How is an agent reached that speaks ACP on a WebSocket, such as a daemon's `/acp`?
//!
//! Messages pass as text; what is in them is for the caller. Source: RFC 6455; daemon specification, §g.

use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Request, StatusCode, Uri, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// How long the handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// Largest message that is taken: what a daemon takes of its agents, with room for the envelope.
const MESSAGE_BYTES: usize = 64 * 1024 * 1024;

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The address makes no sense.
    #[error("read {url:?} as the address of a daemon: {reason}")]
    Address {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The token can't be sent.
    #[error("send the token: it has characters that no header may have")]
    Token,
    /// The daemon said no.
    #[error("open {uri}: the daemon answered {status}")]
    Refused {
        /// Where.
        uri: Uri,
        /// Its status.
        status: u16,
    },
    /// Nobody is there, or not one that speaks this.
    #[error("open {uri}")]
    Unreachable {
        /// Where.
        uri: Uri,
        /// What happened.
        source: Box<Error>,
    },
    /// Nobody answered in time.
    #[error("open {uri}: no answer within {} s", HANDSHAKE.as_secs())]
    Silent {
        /// Where.
        uri: Uri,
    },
}

impl DialError {
    /// Whether trying again later may help: nobody was there, or the daemon is full or stopping.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Address { .. } | Self::Token => false,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::Unreachable { .. } | Self::Silent { .. } => true,
        }
    }

    /// Whether the daemon asks for another token.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED.as_u16())
    }
}

/// The connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("send a message: the connection is closed")]
pub struct Closed;

/// What is written to a connection.
#[derive(Debug)]
pub struct Outgoing(SplitSink<Stream, Message>);

/// What is read from a connection.
#[derive(Debug)]
pub struct Incoming(SplitStream<Stream>);

/// The address of a daemon's WebSocket: `http` and `https` are its schemes as well, and `/acp` its path if none is given.
pub fn address(url: &str) -> Result<Uri, DialError> {
    let wrong = |reason| DialError::Address { url: url.to_owned(), reason };
    let uri: Uri = url.trim().parse().map_err(|_| wrong("it is no URL"))?;
    let scheme = match uri.scheme_str() {
        Some("http" | "ws") => "ws",
        Some("https" | "wss") => "wss",
        Some(_) => return Err(wrong("its scheme is none of http, https, ws, wss")),
        None => return Err(wrong("it has no scheme, such as http://")),
    };
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("a user or password has no place in it"));
    }
    let path = match uri.path_and_query().map(|path| path.as_str()) {
        None | Some("/") => "/acp",
        Some(path) => path,
    };
    let built = Uri::builder().scheme(scheme).authority(authority.clone()).path_and_query(path).build();
    built.map_err(|_| wrong("it is no URL"))
}

/// Opens a connection. TLS trusts the certificates of the system, or of the file that `SSL_CERT_FILE` names.
pub async fn dial(uri: &Uri, token: Option<&str>) -> Result<(Outgoing, Incoming), DialError> {
    let request = request(uri, token)?;
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(MESSAGE_BYTES);
    config.max_frame_size = Some(MESSAGE_BYTES);
    let dialling = tokio_tungstenite::connect_async_with_config(request, Some(config), true);
    let uri = uri.clone();
    match tokio::time::timeout(HANDSHAKE, dialling).await {
        Ok(Ok((stream, _))) => {
            let (sink, stream) = stream.split();
            Ok((Outgoing(sink), Incoming(stream)))
        }
        Ok(Err(Error::Http(refused))) => Err(DialError::Refused { uri, status: refused.status().as_u16() }),
        Ok(Err(source)) => Err(DialError::Unreachable { uri, source: Box::new(source) }),
        Err(_) => Err(DialError::Silent { uri }),
    }
}

fn request(uri: &Uri, token: Option<&str>) -> Result<Request<()>, DialError> {
    let unreachable = |source| DialError::Unreachable { uri: uri.clone(), source: Box::new(source) };
    let mut request = uri.clone().into_client_request().map_err(unreachable)?;
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| DialError::Token)?;
        value.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    Ok(request)
}

impl Outgoing {
    /// Sends one message.
    pub async fn send(&mut self, message: String) -> Result<(), Closed> {
        self.0.send(Message::text(message)).await.map_err(|_| Closed)
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        // Whoever is gone needs no goodbye.
        let _ = self.0.send(Message::Close(None)).await;
    }
}

impl Incoming {
    /// The next message; `None` when the connection is over. Pings are answered on the way. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Some(text.as_str().to_owned()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, expected) in [
            ("http://127.0.0.1:4170", "ws://127.0.0.1:4170/acp"),
            ("http://127.0.0.1:4170/", "ws://127.0.0.1:4170/acp"),
            ("https://team.example/convoke/acp", "wss://team.example/convoke/acp"),
            ("ws://[::1]:1/acp", "ws://[::1]:1/acp"),
            (" wss://h ", "wss://h/acp"),
        ] {
            assert_eq!(address(url).unwrap().to_string(), expected, "{url}");
        }
        for bad in ["127.0.0.1:4170", "ftp://h", "", "http://", "http://user:secret@h/", "not a url"] {
            assert!(matches!(address(bad), Err(DialError::Address { .. })), "{bad}");
        }
    }

    #[test]
    fn what_may_pass() {
        let uri: Uri = "ws://h/acp".parse().unwrap();
        for (status, passes) in [(401, false), (403, false), (404, false), (429, true), (503, true)] {
            let refused = DialError::Refused { uri: uri.clone(), status };
            assert_eq!(refused.may_pass(), passes, "{status}");
            assert_eq!(refused.is_unauthorized(), status == 401);
        }
        assert!(DialError::Silent { uri: uri.clone() }.may_pass());
        assert!(matches!(request(&uri, Some("a\nb")), Err(DialError::Token)));
    }

    #[tokio::test]
    async fn nobody_is_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let uri = self::address(&format!("http://{address}")).unwrap();
        assert!(matches!(dial(&uri, None).await, Err(DialError::Unreachable { .. })));
    }
}
