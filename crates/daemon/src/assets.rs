//! The page: which file of `web/` answers a path, and with which headers?
//!
//! `index.html` answers `/` and a browser's visit to `/session/:id`; every other file is under `/assets/`. They hold no
//! secrets and are served before the bearer check: a browser that opens the page has no token yet.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::respond::{Reply, ReplyBody};

#[derive(RustEmbed)]
#[folder = "$CARGO_MANIFEST_DIR/../../web"]
#[exclude = "tests/*"]
#[exclude = "node_modules/*"]
#[exclude = "*.md"]
#[exclude = "*.d.ts"]
#[exclude = "package*.json"]
#[exclude = "jsconfig.json"]
struct Web;

/// Nothing from elsewhere, no inline script, no frame around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; object-src \
     'none'; base-uri 'none'; frame-ancestors 'none'",
);

/// The answer if `path` is part of the page.
pub(crate) fn serve(method: &Method, path: &str, headers: &HeaderMap) -> Option<Reply> {
    if method != Method::GET && method != Method::HEAD {
        return None;
    }
    let name = match path {
        "/" | "/index.html" => "index.html",
        _ if is_session_page(path) && wants_html(headers) => "index.html",
        _ => path.strip_prefix("/assets/").filter(|name| *name != "index.html")?,
    };
    // The folder is compiled in: a name either is in its list or is not, `..` included.
    let file = Web::get(name)?;
    Some(answer(name, file, headers))
}

fn is_session_page(path: &str) -> bool {
    path.strip_prefix("/session/").is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|part| part.trim().starts_with("text/html"))
}

fn answer(name: &str, file: EmbeddedFile, request: &HeaderMap) -> Reply {
    let tag = etag(&file);
    let known = request.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut reply = if known {
        let mut reply = Response::new(ReplyBody::empty());
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        reply
    } else {
        let bytes = match file.data {
            std::borrow::Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            std::borrow::Cow::Owned(bytes) => Bytes::from(bytes),
        };
        Response::new(ReplyBody::bytes(bytes))
    };
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    // Names carry no version: a browser asks each time, and mostly hears 304.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    reply
}

fn etag(file: &EmbeddedFile) -> String {
    let mut tag = String::from("\"");
    // Half of a SHA-256 tells two versions of a file apart.
    for byte in file.metadata.sha256_hash().iter().take(16) {
        // Writing to a string can't fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json; charset=utf-8",
        Some("webmanifest") => "application/manifest+json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, pairs: &[(header::HeaderName, &str)]) -> Option<Reply> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        serve(&Method::GET, path, &headers)
    }

    #[test]
    fn scripts_are_assets_with_their_guards() {
        let reply = get("/assets/stream.js", &[]).unwrap();
        let header = |name: header::HeaderName| reply.headers().get(name).unwrap().to_str().unwrap();
        assert_eq!(header(header::CONTENT_TYPE), "text/javascript; charset=utf-8");
        assert_eq!(header(header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(header(header::REFERRER_POLICY), "no-referrer");
        let policy = header(header::CONTENT_SECURITY_POLICY);
        assert!(policy.starts_with("default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'"));
        assert!(!policy.contains("unsafe"));
        let tag = header(header::ETAG);
        let again = get("/assets/stream.js", &[(header::IF_NONE_MATCH, tag)]).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn what_is_not_the_page_is_not_served() {
        for path in [
            "/assets/",
            "/assets/nope.js",
            "/assets/../Cargo.toml",
            "/assets/tests/anything.js",
            "/assets/package.json",
            "/assets/vendor/README.md",
            "/assets/index.html",
            "/stream.js",
            "/session/x",
            "/session/x/events",
        ] {
            assert!(get(path, &[]).is_none(), "{path}");
        }
        assert!(serve(&Method::POST, "/", &HeaderMap::new()).is_none());
    }

    #[test]
    fn a_visit_to_a_session_is_the_page() {
        let html = "text/html,application/xhtml+xml";
        let page = get("/session/x", &[(header::ACCEPT, html)]).unwrap();
        assert_eq!(page.headers().get(header::CONTENT_TYPE).unwrap(), "text/html; charset=utf-8");
        assert_eq!(get("/", &[]).unwrap().headers().get(header::ETAG), page.headers().get(header::ETAG));
        assert!(get("/session/x/status", &[(header::ACCEPT, html)]).is_none());
        assert!(get("/session/x", &[(header::ACCEPT, "application/json")]).is_none());
    }

    /// Everything that the page itself names is there, and nothing that only developers need.
    #[test]
    fn the_page_is_whole() {
        let index = Web::get("index.html").unwrap();
        let text = String::from_utf8(index.data.into_owned()).unwrap();
        let mut named = 0;
        for part in text.split("\"/assets/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(Web::get(name).is_some(), "{name}");
            named += 1;
        }
        assert!(named > 0);
        for name in Web::iter() {
            assert!(!name.starts_with("tests/") && !name.ends_with(".md") && !name.ends_with(".d.ts"), "{name}");
        }
    }
}
