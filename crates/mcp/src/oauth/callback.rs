//! Where does the browser go when its user has decided? To a port of this machine that answers once.
//!
//! Only the request with the state of this login counts: a page that guesses the address gets nowhere. Everything else is
//! refused, and does not end the waiting.

use std::net::Ipv4Addr;
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The longest head of a request.
const HEAD_MAX: usize = 16 * 1024;
/// How long a connection may take to say what it wants.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// Connections of one login: a browser opens a few, and asks for an icon.
const CONNECTIONS_MAX: usize = 64;

/// A port that waits for a browser.
pub(super) struct Callback {
    listener: TcpListener,
    /// Where the browser is sent.
    pub(super) redirect: Url,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// The whole address, with code and state.
    Yes(String),
    /// The word for a refusal.
    No(String),
    /// Not of this login.
    Foreign,
}

impl Callback {
    /// Listens on `port` of the loopback, any if 0, for `path`.
    pub(super) async fn bind(port: u16, host: &str, path: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        let redirect = Url::parse(&format!("http://{host}:{port}{path}")).map_err(std::io::Error::other)?;
        Ok(Self { listener, redirect })
    }

    /// Waits for the browser. Cancel-safe: a connection that is cut off is the browser's to repeat.
    pub(super) async fn wait(&self, state: &str) -> Result<Returned, String> {
        for _ in 0..CONNECTIONS_MAX {
            let (mut stream, _) =
                self.listener.accept().await.map_err(|error| format!("wait for the browser: {error}"))?;
            let Ok(Some(target)) = tokio::time::timeout(HEAD_WAIT, target(&mut stream)).await else { continue };
            let url = self.redirect.join(&target).ok();
            let returned = match &url {
                Some(url) if url.origin() == self.redirect.origin() && url.path() == self.redirect.path() => {
                    read(url, state)
                }
                _ => {
                    answer(&mut stream, "404 Not Found", "There is nothing here.").await;
                    continue;
                }
            };
            match &returned {
                Returned::Yes(_) => answer(&mut stream, "200 OK", "You are logged in. You can close this page.").await,
                Returned::No(_) => {
                    answer(&mut stream, "200 OK", "The login was refused. You can close this page.").await
                }
                Returned::Foreign => {
                    answer(&mut stream, "400 Bad Request", "This is not the login that is waited for.").await;
                    continue;
                }
            }
            return Ok(returned);
        }
        Err("too many other requests came".to_owned())
    }
}

/// What an address that a browser was sent to says.
pub(super) fn read(url: &Url, state: &str) -> Returned {
    let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if value("state").as_deref() != Some(state) {
        return Returned::Foreign;
    }
    match (value("code"), value("error")) {
        (_, Some(word)) => {
            let is_word = word.len() <= 64 && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            Returned::No(if is_word { word } else { "an error".to_owned() })
        }
        (Some(_), None) => Returned::Yes(url.to_string()),
        (None, None) => Returned::Foreign,
    }
}

/// The path of a GET request; the rest of its head is read and passed over.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(chunk.get(..count)?);
        if head.len() > HEAD_MAX {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next()?.split(' ');
    (words.next()? == "GET").then_some(())?;
    words.next().filter(|target| target.starts_with('/') && !target.starts_with("//")).map(ToOwned::to_owned)
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!("<!doctype html><meta charset=\"utf-8\"><title>convoke</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n",
        page.len()
    );
    // A browser that is gone already has no use for it.
    let _ = tokio::time::timeout(HEAD_WAIT, stream.write_all((head + &page).as_bytes())).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_state_of_this_login_counts() {
        let returned = |query: &str| read(&Url::parse(&format!("http://127.0.0.1:1/cb?{query}")).unwrap(), "st");
        assert!(matches!(returned("code=c&state=st"), Returned::Yes(_)));
        assert_eq!(returned("error=access_denied&state=st"), Returned::No("access_denied".to_owned()));
        assert_eq!(returned("error=%3Cb%3E&state=st"), Returned::No("an error".to_owned()));
        for query in ["code=c&state=other", "code=c", "state=st", "error=access_denied", ""] {
            assert_eq!(returned(query), Returned::Foreign, "{query}");
        }
    }
}
