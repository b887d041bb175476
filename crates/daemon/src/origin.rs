//! From which web pages may a browser call?
//!
//! A page of another origin is let in only if the operator named its origin. Pages of the daemon itself pass without
//! any CORS header, as do callers that send no `Origin`. Source: daemon specification, §b, "Origin".

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};

use crate::respond::{Reply, ReplyBody};

/// One `--allow-origin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllowedOrigin {
    /// `*`.
    Any,
    /// One origin in its canonical form.
    Exact(String),
}

impl AllowedOrigin {
    /// Reads a pattern; the error says what is wrong with it.
    pub(crate) fn parse(pattern: &str) -> Result<Self, String> {
        if pattern == "*" {
            return Ok(Self::Any);
        }
        let canonical = canonical(pattern).ok_or_else(|| "not a URL origin".to_owned())?;
        if canonical != pattern {
            return Err(format!(
                "expected the canonical origin \"{canonical}\" without trailing slash, path, userinfo, or query"
            ));
        }
        Ok(Self::Exact(canonical))
    }
}

/// `scheme://host[:port]` of a URL: lower case, without the scheme's usual port.
fn canonical(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
    if !scheme.starts_with(|c: char| c.is_ascii_lowercase()) || !scheme.bytes().all(legal) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    let (host, port) = split_port(&authority)?;
    let named = |h: &str| h.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let fine = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && named(host),
    };
    let port = port.filter(|p| usual_port(&scheme) != Some(*p));
    fine.then(|| port.map_or_else(|| format!("{scheme}://{host}"), |p| format!("{scheme}://{host}:{p}")))
}

/// Splits `host[:port]`; `None` if the port is no number. `[v6]` keeps its brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, Some(port.parse().ok()?))),
        _ => Some((authority, None)),
    }
}

fn usual_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        _ => None,
    }
}

/// Whether a canonical origin is a page of this machine.
pub(crate) fn is_loopback(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let Some((host, _)) = split_port(authority) else { return false };
    crate::boot::is_loopback_bind(host)
}

/// Names under which this machine reaches a daemon on its loopback address.
const OWN_NAMES: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "host.docker.internal"];

/// What the daemon accepts as `Host` and `Origin`.
#[derive(Debug)]
pub(crate) struct Wall {
    /// `None` on a bind that others can reach: any `Host` passes there.
    hosts: Option<Vec<String>>,
    own_origins: Vec<String>,
    allowed: Vec<AllowedOrigin>,
    /// Whether an `Origin` that equals the `Host` passes: beyond loopback, and with a token.
    same_authority: bool,
}

/// What an `Origin` header means for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No CORS header is due.
    Pass,
    /// The origin is on the list and gets the CORS headers.
    Allowed(HeaderValue),
    /// 403.
    Denied,
}

impl Wall {
    /// The wall of a daemon bound to `port`; `None` has no port, and so no page of its own.
    pub(crate) fn new(port: Option<u16>, loopback_bind: bool, has_token: bool, allowed: Vec<AllowedOrigin>) -> Self {
        let (mut own_origins, mut own_hosts) = (Vec::new(), Vec::new());
        for name in OWN_NAMES {
            let Some(port) = port else { break };
            for scheme in ["http", "https"] {
                own_origins.push(match usual_port(scheme) {
                    Some(usual) if usual == port => format!("{scheme}://{name}"),
                    _ => format!("{scheme}://{name}:{port}"),
                });
            }
            own_hosts.push(format!("{name}:{port}"));
            // Browsers leave the usual ports out: of HTTP, and of HTTPS.
            own_hosts.extend(matches!(port, 80 | 443).then(|| name.to_owned()));
        }
        let hosts = loopback_bind.then_some(own_hosts);
        Self { hosts, own_origins, allowed, same_authority: !loopback_bind && has_token }
    }

    /// Whether the `Host` header is one of ours. Guards a loopback daemon against DNS rebinding: a page that points its
    /// own name at 127.0.0.1 still sends its own name here.
    pub(crate) fn admits_host(&self, headers: &HeaderMap) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let mut values = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (values.next(), values.next()) else { return false };
        host.to_str().is_ok_and(|host| hosts.iter().any(|own| own.eq_ignore_ascii_case(host)))
    }

    /// Judges the `Origin` header.
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Verdict {
        let mut values = headers.get_all(header::ORIGIN).iter();
        let Some(value) = values.next() else { return Verdict::Pass };
        let (Ok(origin), None) = (value.to_str(), values.next()) else { return Verdict::Denied };
        if self.own_origins.iter().any(|own| own == origin) || (self.same_authority && is_own_host(origin, headers)) {
            return Verdict::Pass;
        }
        // Sandboxed frames and files are "null"; no list can mean them.
        if origin == "null" || origin.is_empty() {
            return Verdict::Denied;
        }
        let listed = self.allowed.iter().any(|allowed| match allowed {
            AllowedOrigin::Any => true,
            AllowedOrigin::Exact(exact) => exact == origin,
        });
        if listed { Verdict::Allowed(value.clone()) } else { Verdict::Denied }
    }

    /// How the operator opened the wall: `none`, `list` or `any`.
    pub(crate) fn mode(&self) -> &'static str {
        if self.allowed.is_empty() {
            "none"
        } else if self.allowed.contains(&AllowedOrigin::Any) {
            "any"
        } else {
            "list"
        }
    }
}

/// HTTP/2 names the host in `:authority`, and HTTP/1.1 may do so in the request's target (RFC 9113 §8.3.1, RFC 9112
/// §3.2.2). Afterwards the host is in `Host`; one that is told in two ways stands there twice, and is not let in.
pub(crate) fn unify_host(head: &mut Parts) {
    let Some(authority) = head.uri.authority() else { return };
    let Ok(value) = HeaderValue::from_str(authority.as_str()) else { return };
    if head.headers.get(header::HOST) != Some(&value) {
        head.headers.append(header::HOST, value);
    }
}

fn is_own_host(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    matches!((authority, host), (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host))
}

/// Adds the CORS headers that an allowed origin gets with every answer.
pub(crate) fn add_cors(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PATCH, DELETE, OPTIONS"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("Authorization, Content-Type, X-Qwen-Client-Id, Last-Event-ID, X-Qwen-Event-Epoch"),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("Retry-After, X-Qwen-Event-Epoch, X-Qwen-SSE-Stream-Id"),
    );
}

/// Whether a request of an allowed origin is the browser asking for leave.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The leave; the CORS headers are added by the caller.
pub(crate) fn preflight() -> Reply {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn patterns() {
        assert_eq!(AllowedOrigin::parse("*"), Ok(AllowedOrigin::Any));
        for fine in ["http://x.example", "https://x.example:8443", "http://[::1]:3000", "chrome-extension://abcdef"] {
            assert_eq!(AllowedOrigin::parse(fine), Ok(AllowedOrigin::Exact(fine.to_owned())), "{fine}");
        }
        for (bad, canonical) in [
            ("http://x.example/", "http://x.example"),
            ("http://X.example", "http://x.example"),
            ("http://x.example:80", "http://x.example"),
            ("https://x.example:443/a?b", "https://x.example"),
            ("http://u:p@x.example", "http://x.example"),
        ] {
            let problem = AllowedOrigin::parse(bad).unwrap_err();
            assert!(problem.contains(&format!("\"{canonical}\"")), "{bad}: {problem}");
        }
        for bad in ["", "x.example", "http://", "http://x:y", "http://a b", "://x", "http://[::1"] {
            assert_eq!(AllowedOrigin::parse(bad), Err("not a URL origin".to_owned()), "{bad}");
        }
    }

    #[test]
    fn hosts_of_a_loopback_bind() {
        let wall = Wall::new(Some(4170), true, true, Vec::new());
        for (host, expected) in [
            ("localhost:4170", true),
            ("LocalHost:4170", true),
            ("127.0.0.1:4170", true),
            ("[::1]:4170", true),
            ("host.docker.internal:4170", true),
            ("127.0.0.1", false),
            ("127.0.0.1:1", false),
            ("127.0.0.2:4170", false),
            ("evil.example:4170", false),
            ("", false),
        ] {
            assert_eq!(wall.admits_host(&headers(&[(header::HOST, host)])), expected, "{host:?}");
        }
        assert!(!wall.admits_host(&HeaderMap::new()));
        let twice = headers(&[(header::HOST, "localhost:4170"), (header::HOST, "evil.example")]);
        assert!(!wall.admits_host(&twice));
        assert!(Wall::new(Some(80), true, true, Vec::new()).admits_host(&headers(&[(header::HOST, "localhost")])));
        let open = Wall::new(Some(4170), false, true, Vec::new());
        assert!(open.admits_host(&headers(&[(header::HOST, "evil.example")])));
    }

    #[test]
    fn a_host_that_is_told_in_two_ways_is_not_let_in() {
        let wall = Wall::new(Some(4170), true, true, Vec::new());
        for (uri, host, expected) in [
            ("/health", Some("localhost:4170"), true),
            ("http://localhost:4170/health", None, true),
            ("http://localhost:4170/health", Some("localhost:4170"), true),
            ("http://evil.example/health", None, false),
            ("http://evil.example/health", Some("localhost:4170"), false),
            ("http://localhost:4170/health", Some("evil.example"), false),
            ("/health", None, false),
        ] {
            let mut request = http::Request::builder().uri(uri);
            if let Some(host) = host {
                request = request.header(header::HOST, host);
            }
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            unify_host(&mut head);
            assert_eq!(wall.admits_host(&head.headers), expected, "{uri} {host:?}");
        }
    }

    #[test]
    fn origins() {
        let exact = AllowedOrigin::Exact("http://app.example".to_owned());
        let wall = Wall::new(Some(4170), true, true, vec![exact]);
        let app = HeaderValue::from_static("http://app.example");
        for (origin, expected) in [
            ("http://127.0.0.1:4170", Verdict::Pass),
            ("https://localhost:4170", Verdict::Pass),
            ("http://[::1]:4170", Verdict::Pass),
            ("http://localhost:1", Verdict::Denied),
            ("http://localhost", Verdict::Denied),
            ("http://app.example", Verdict::Allowed(app)),
            ("http://app.example:80", Verdict::Denied),
            ("http://evil.example", Verdict::Denied),
            ("null", Verdict::Denied),
            ("", Verdict::Denied),
        ] {
            assert_eq!(wall.judge(&headers(&[(header::ORIGIN, origin)])), expected, "{origin:?}");
        }
        assert_eq!(wall.judge(&HeaderMap::new()), Verdict::Pass);
        let any = Wall::new(Some(4170), true, true, vec![AllowedOrigin::Any]);
        assert_eq!(any.judge(&headers(&[(header::ORIGIN, "null")])), Verdict::Denied);
        let evil = HeaderValue::from_static("http://evil.example");
        assert_eq!(any.judge(&headers(&[(header::ORIGIN, "http://evil.example")])), Verdict::Allowed(evil));
    }

    #[test]
    fn beyond_loopback_the_own_authority_passes_only_with_a_token() {
        let request = headers(&[(header::HOST, "box.lan:4170"), (header::ORIGIN, "http://box.lan:4170")]);
        assert_eq!(Wall::new(Some(4170), false, true, Vec::new()).judge(&request), Verdict::Pass);
        assert_eq!(Wall::new(Some(4170), false, false, Vec::new()).judge(&request), Verdict::Denied);
        assert_eq!(Wall::new(Some(4170), true, true, Vec::new()).judge(&request), Verdict::Denied);
    }
}
