//! One page: what does a server send, as text?
//!
//! Each hop of a redirect is checked like the first address. Time, hops and bytes are bounded; bytes are counted after
//! decompression. What a name resolved to when it was checked is what is connected to; behind a proxy, which resolves
//! names by itself, the check is all there is.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url};
use tokio::sync::OnceCell;

use super::super::media;
use super::{address, html, urls};

// As many as browsers' ancestors took.
const HOPS_MAX: usize = 5;
// Some six times what is shown of all pages together: markup is most of a page.
const BYTES_MAX: usize = 2 << 20;
const ACCEPTED: &str = "text/html,text/markdown,text/plain;q=0.9,application/json;q=0.9,*/*;q=0.5";

/// A page that was fetched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Where it was at last.
    pub(super) url: Url,
    pub(super) text: String,
    /// What is there in place of a text, with its kind; only if it was asked for.
    pub(super) media: Option<(String, Vec<u8>)>,
    /// Whether there is more of it than was read.
    pub(super) cut: bool,
}

/// The pages of one call.
pub(super) struct Getter {
    plain: OnceCell<Client>,
    encrypted: OnceCell<Client>,
    pinned: Arc<Pinned>,
    allowed: Arc<[String]>,
    time_max: Duration,
    media: bool,
}

/// What names resolved to when they were checked.
#[derive(Default)]
struct Pinned {
    // One call's pages and their hops: at most twenty times HOPS_MAX.
    addresses: Mutex<HashMap<String, Vec<IpAddr>>>,
}

impl Resolve for Pinned {
    fn resolve(&self, name: Name) -> Resolving {
        let known = self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(name.as_str()).cloned();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = match known {
                Some(known) => known.into_iter().map(|address| SocketAddr::new(address, 0)).collect(),
                // Not a name that was checked: a proxy's, which the user chose.
                None => tokio::net::lookup_host((name.as_str(), 0)).await?.collect(),
            };
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

impl Getter {
    /// For the pages of one call. Hosts in `allowed` may be on a private network.
    pub(super) fn new(allowed: Arc<[String]>, time_max: Duration) -> Self {
        Self {
            plain: OnceCell::new(),
            encrypted: OnceCell::new(),
            pinned: Arc::default(),
            allowed,
            time_max,
            media: false,
        }
    }

    /// Takes pictures, sound, films and documents as well.
    pub(super) fn with_media(self) -> Self {
        Self { media: true, ..self }
    }

    async fn client(&self, encrypted: bool) -> Result<&Client, String> {
        let cell = if encrypted { &self.encrypted } else { &self.plain };
        cell.get_or_try_init(async || self.make_client(encrypted).await).await
    }

    async fn make_client(&self, encrypted: bool) -> Result<Client, String> {
        let mut builder = Client::builder()
            .user_agent(concat!("Mozilla/5.0 (compatible; convoke/", env!("CARGO_PKG_VERSION"), ")"))
            .timeout(self.time_max)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .dns_resolver(Arc::clone(&self.pinned));
        let failed = |error: String| format!("no HTTP client could be made: {error}");
        if !encrypted {
            let tls = rootless_tls().map_err(|error| failed(error.to_string()))?;
            return builder.tls_backend_preconfigured(tls).build().map_err(|error| failed(error.to_string()));
        }
        // The error says that another call was first, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        builder = builder.https_only(true);
        // Reads the certificates of the system, a few hundred files on some.
        let client = tokio::task::spawn_blocking(move || builder.build()).await;
        client.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))
    }

    /// Fetches one page; the error is a phrase.
    pub(super) async fn get(&self, url: &Url) -> Result<Page, String> {
        let whole = tokio::time::timeout(self.time_max, self.follow(url)).await;
        whole.unwrap_or_else(|_| Err(format!("it took longer than {} ms", self.time_max.as_millis())))
    }

    async fn follow(&self, url: &Url) -> Result<Page, String> {
        let mut url = urls::raw(url);
        for _ in 0..=HOPS_MAX {
            let response = self.ask(&url).await?;
            if !response.status().is_redirection() {
                return read(url, response, self.media).await;
            }
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.ok_or("it redirects to nowhere")?;
            url = url.join(target).map_err(|error| format!("it redirects to {target}: {error}"))?;
        }
        Err(format!("it redirects more than {HOPS_MAX} times"))
    }

    async fn ask(&self, url: &Url) -> Result<Response, String> {
        let addresses = address::check(url, &self.allowed).await?;
        if let Some(host) = url.host_str() {
            let mut pinned = self.pinned.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            pinned.insert(host.to_owned(), addresses);
        }
        let client = self.client(url.scheme() == "https").await?;
        let response = client.get(url.clone()).header(ACCEPT, ACCEPTED).send().await;
        response.map_err(|error| {
            let kind = if error.is_connect() { "can't be reached" } else { "did not answer" };
            format!("{} {kind}", url.host_str().unwrap_or_default())
        })
    }
}

/// TLS that trusts nobody: reqwest wants a TLS backend even where none will be used.
fn rootless_tls() -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

async fn read(url: Url, response: Response, media: bool) -> Result<Page, String> {
    let status = response.status();
    if !status.is_success() {
        return Err(format!("the server answered {status}"));
    }
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("text/plain");
    let (kind, charset) = parse_content_type(kind);
    let (mut bytes, mut cut) = (Vec::new(), false);
    let mut body = response.bytes_stream();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|_| "the answer broke off".to_owned())?;
        let room = BYTES_MAX - bytes.len();
        bytes.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        if piece.len() >= room {
            cut = true;
            break;
        }
    }
    if let Some(mime) = media::mime_type(&bytes).filter(|_| media && !is_text(&kind)) {
        if cut {
            return Err(format!("it is larger than {BYTES_MAX} bytes ({mime})"));
        }
        return Ok(Page { url, text: String::new(), media: Some((mime.to_owned(), bytes)), cut });
    }
    let text = tokio::task::spawn_blocking(move || text_of(&kind, charset.as_deref(), &bytes)).await;
    let text = text.map_err(|_| "the page could not be read".to_owned())??;
    Ok(Page { url, text, media: None, cut })
}

fn parse_content_type(header: &str) -> (String, Option<String>) {
    let mut parts = header.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_owned())
    });
    (kind, charset)
}

fn text_of(kind: &str, charset: Option<&str>, bytes: &[u8]) -> Result<String, String> {
    if !is_text(kind) {
        return Err(format!("it is no text ({kind})"));
    }
    let encoding = charset.and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()));
    let (text, ..) = encoding.unwrap_or(encoding_rs::UTF_8).decode(bytes);
    Ok(if is_html(kind) { html::to_text(&text) } else { text.into_owned() })
}

fn is_html(kind: &str) -> bool {
    matches!(kind, "text/html" | "application/xhtml+xml")
}

fn is_text(kind: &str) -> bool {
    is_html(kind)
        || kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || ["json", "xml", "javascript", "x-javascript", "yaml", "x-yaml", "toml", "x-ndjson", "graphql"]
            .iter()
            .any(|name| kind.strip_prefix("application/") == Some(name))
}
