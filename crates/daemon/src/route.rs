//! Which route does a request address? A dictionary of method and path, without any handling.

use http::Method;

/// One route with the ids of its path, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `GET /health`.
    Health,
    /// `GET /capabilities`.
    Capabilities,
    /// `GET /daemon/status`.
    DaemonStatus,
    /// `GET /audit`.
    Audit,
    /// `GET /metrics`.
    Metrics,
    /// `GET /openapi.json`.
    OpenApi,
    /// `GET /acp`.
    AcpStream,
    /// `POST /acp`.
    AcpMessage,
    /// `DELETE /acp`.
    AcpLeave,
    /// `GET /workspace/:id/sessions`.
    Sessions(String),
    /// `POST /session`.
    Create,
    /// `DELETE /session/:id`.
    Close(String),
    /// `POST /session/:id/load`.
    Load(String),
    /// `POST /session/:id/resume`.
    Resume(String),
    /// `GET /session/:id/events`.
    Events(String),
    /// `POST /session/:id/prompt`.
    Prompt(String),
    /// `POST /session/:id/cancel`.
    Cancel(String),
    /// `POST /session/:id/permission/:requestId`.
    Vote(String, String),
    /// `POST /permission/:requestId`.
    LegacyVote(String),
    /// `GET /session/:id/status`.
    Status(String),
    /// `GET /session/:id/pending-prompts`.
    PendingPrompts(String),
    /// `GET /session/:id/turns/:promptId`; `current` is the running one.
    Turn(String, String),
    /// `POST /session/:id/heartbeat`.
    Heartbeat(String),
    /// `POST /session/:id/detach`.
    Detach(String),
    /// `PATCH /session/:id/metadata`.
    Metadata(String),
    /// `POST /session/:id/approval-mode`.
    ApprovalMode(String),
    /// `POST /session/:id/model`.
    Model(String),
    /// `POST /session/:id/rewind`.
    Rewind(String),
    /// `GET /session/:id/rewind/snapshots`.
    RewindSnapshots(String),
    /// `GET /session/:id/context`.
    Context(String),
    /// `GET /session/:id/supported-commands`.
    Commands(String),
}

/// What a method and a path come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// A route.
    Route(Route),
    /// The path is known under these other methods.
    OtherMethods(Vec<Method>),
    /// No such path.
    Unknown,
    /// A part of the path is no percent-encoded UTF-8.
    Malformed,
}

const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::PATCH, Method::DELETE];

/// Finds the route. `HEAD` is answered as `GET`, except for event streams; one slash at the end is ignored.
pub(crate) fn find(method: &Method, path: &str) -> Match {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(parts) = path.split('/').map(decode).collect::<Option<Vec<_>>>() else { return Match::Malformed };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let asked = if method == Method::HEAD { &Method::GET } else { method };
    match lookup(asked, &parts) {
        Some(Route::Events(_) | Route::AcpStream) if method == Method::HEAD => Match::Unknown,
        Some(route) => Match::Route(route),
        None => {
            let others: Vec<_> = METHODS.into_iter().filter(|other| lookup(other, &parts).is_some()).collect();
            if others.is_empty() { Match::Unknown } else { Match::OtherMethods(others) }
        }
    }
}

/// One route: its method, its path, and what becomes of the ids in it.
pub(crate) struct Line {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    make: fn(&mut Ids<'_>) -> Route,
}

const fn line(method: &'static str, path: &'static str, make: fn(&mut Ids<'_>) -> Route) -> Line {
    Line { method, path, make }
}

/// Every route. A variant that is missing here is never made, which the compiler tells.
pub(crate) const TABLE: &[Line] = &[
    line("GET", "/health", |_| Route::Health),
    line("GET", "/capabilities", |_| Route::Capabilities),
    line("GET", "/daemon/status", |_| Route::DaemonStatus),
    line("GET", "/audit", |_| Route::Audit),
    line("GET", "/metrics", |_| Route::Metrics),
    line("GET", "/openapi.json", |_| Route::OpenApi),
    line("GET", "/acp", |_| Route::AcpStream),
    line("POST", "/acp", |_| Route::AcpMessage),
    line("DELETE", "/acp", |_| Route::AcpLeave),
    line("GET", "/workspace/:id/sessions", |ids| Route::Sessions(ids.take())),
    line("POST", "/session", |_| Route::Create),
    line("DELETE", "/session/:id", |ids| Route::Close(ids.take())),
    line("POST", "/session/:id/load", |ids| Route::Load(ids.take())),
    line("POST", "/session/:id/resume", |ids| Route::Resume(ids.take())),
    line("GET", "/session/:id/events", |ids| Route::Events(ids.take())),
    line("POST", "/session/:id/prompt", |ids| Route::Prompt(ids.take())),
    line("POST", "/session/:id/cancel", |ids| Route::Cancel(ids.take())),
    line("POST", "/session/:id/permission/:requestId", |ids| Route::Vote(ids.take(), ids.take())),
    line("POST", "/permission/:requestId", |ids| Route::LegacyVote(ids.take())),
    line("GET", "/session/:id/status", |ids| Route::Status(ids.take())),
    line("GET", "/session/:id/pending-prompts", |ids| Route::PendingPrompts(ids.take())),
    line("GET", "/session/:id/turns/:promptId", |ids| Route::Turn(ids.take(), ids.take())),
    line("POST", "/session/:id/heartbeat", |ids| Route::Heartbeat(ids.take())),
    line("POST", "/session/:id/detach", |ids| Route::Detach(ids.take())),
    line("PATCH", "/session/:id/metadata", |ids| Route::Metadata(ids.take())),
    line("POST", "/session/:id/approval-mode", |ids| Route::ApprovalMode(ids.take())),
    line("POST", "/session/:id/model", |ids| Route::Model(ids.take())),
    line("POST", "/session/:id/rewind", |ids| Route::Rewind(ids.take())),
    line("GET", "/session/:id/rewind/snapshots", |ids| Route::RewindSnapshots(ids.take())),
    line("GET", "/session/:id/context", |ids| Route::Context(ids.take())),
    line("GET", "/session/:id/supported-commands", |ids| Route::Commands(ids.take())),
];

/// The parts of a path that stand at the places of ids, in their order.
struct Ids<'a> {
    pattern: &'static str,
    parts: &'a [&'a str],
}

impl Ids<'_> {
    /// The next id.
    fn take(&mut self) -> String {
        while let Some((name, rest)) = next_part(self.pattern) {
            let (part, parts) = self.parts.split_first().unwrap_or((&"", &[]));
            (self.pattern, self.parts) = (rest, parts);
            if name.starts_with(':') {
                return (*part).to_owned();
            }
        }
        String::new()
    }
}

/// The first part of a pattern such as `/session/:id`, and what follows it.
fn next_part(pattern: &'static str) -> Option<(&'static str, &'static str)> {
    let pattern = pattern.strip_prefix('/')?;
    Some(pattern.find('/').map_or((pattern, ""), |end| pattern.split_at(end)))
}

fn fits(mut pattern: &'static str, parts: &[&str]) -> bool {
    for part in parts {
        match next_part(pattern) {
            Some((name, rest)) if name.starts_with(':') || name == *part => pattern = rest,
            Some(_) | None => return false,
        }
    }
    pattern.is_empty()
}

fn lookup(method: &Method, parts: &[&str]) -> Option<Route> {
    if parts.contains(&"") {
        return None;
    }
    let line = TABLE.iter().find(|line| line.method == method.as_str() && fits(line.path, parts))?;
    Some((line.make)(&mut Ids { pattern: line.path, parts }))
}

impl Route {
    /// The route as the access log names it, and the session it addresses.
    pub(crate) fn name(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Health => ("GET /health", None),
            Self::Capabilities => ("GET /capabilities", None),
            Self::DaemonStatus => ("GET /daemon/status", None),
            Self::Audit => ("GET /audit", None),
            Self::Metrics => ("GET /metrics", None),
            Self::OpenApi => ("GET /openapi.json", None),
            Self::AcpStream => ("GET /acp", None),
            Self::AcpMessage => ("POST /acp", None),
            Self::AcpLeave => ("DELETE /acp", None),
            Self::Sessions(_) => ("GET /workspace/:id/sessions", None),
            Self::Create => ("POST /session", None),
            Self::Close(id) => ("DELETE /session/:id", Some(id)),
            Self::Load(id) => ("POST /session/:id/load", Some(id)),
            Self::Resume(id) => ("POST /session/:id/resume", Some(id)),
            Self::Events(id) => ("GET /session/:id/events", Some(id)),
            Self::Prompt(id) => ("POST /session/:id/prompt", Some(id)),
            Self::Cancel(id) => ("POST /session/:id/cancel", Some(id)),
            Self::Vote(id, _) => ("POST /session/:id/permission/:requestId", Some(id)),
            Self::LegacyVote(_) => ("POST /permission/:requestId", None),
            Self::Status(id) => ("GET /session/:id/status", Some(id)),
            Self::PendingPrompts(id) => ("GET /session/:id/pending-prompts", Some(id)),
            Self::Turn(id, _) => ("GET /session/:id/turns/:promptId", Some(id)),
            Self::Heartbeat(id) => ("POST /session/:id/heartbeat", Some(id)),
            Self::Detach(id) => ("POST /session/:id/detach", Some(id)),
            Self::Metadata(id) => ("PATCH /session/:id/metadata", Some(id)),
            Self::ApprovalMode(id) => ("POST /session/:id/approval-mode", Some(id)),
            Self::Model(id) => ("POST /session/:id/model", Some(id)),
            Self::Rewind(id) => ("POST /session/:id/rewind", Some(id)),
            Self::RewindSnapshots(id) => ("GET /session/:id/rewind/snapshots", Some(id)),
            Self::Context(id) => ("GET /session/:id/context", Some(id)),
            Self::Commands(id) => ("GET /session/:id/supported-commands", Some(id)),
        }
    }
}

/// Undoes percent-encoding; `None` if it is malformed. `+` is a plus: this is a path, not a form.
pub(crate) fn decode(part: &str) -> Option<String> {
    if !part.contains('%') {
        return Some(part.to_owned());
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        let text = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(text, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

/// The value of a query's parameter, decoded; the first one of its name.
pub(crate) fn query(query: Option<&str>, name: &str) -> Option<String> {
    query?.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key)? == name).then(|| decode(&value.replace('+', " "))).flatten()
    })
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: Method, path: &str) -> Match {
        find(&method, path)
    }

    #[test]
    fn ids_are_decoded_once() {
        assert_eq!(
            route(Method::GET, "/workspace/%2Ftmp%2Fa%20b/sessions"),
            Match::Route(Route::Sessions("/tmp/a b".into()))
        );
        assert_eq!(route(Method::DELETE, "/session/a%252Fb"), Match::Route(Route::Close("a%2Fb".into())));
        assert_eq!(route(Method::GET, "/session/a+b/status/"), Match::Route(Route::Status("a+b".into())));
        for bad in ["/session/%/status", "/session/%4/status", "/session/%zz/status", "/session/%ff/status", "/%+1"] {
            assert_eq!(route(Method::GET, bad), Match::Malformed, "{bad}");
        }
    }

    #[test]
    fn each_route_is_named_as_it_is_found() {
        for line in TABLE {
            let path = line.path.replace(':', "some-");
            let Match::Route(route) = find(&Method::from_bytes(line.method.as_bytes()).unwrap(), &path) else {
                panic!("{} {path} leads nowhere", line.method)
            };
            assert_eq!(route.name().0, format!("{} {}", line.method, line.path));
            assert!(route.name().1.is_none_or(|id| id == "some-id"));
        }
        let vote = route(Method::POST, "/session/s/permission/r");
        assert_eq!(vote, Match::Route(Route::Vote("s".into(), "r".into())));
    }

    #[test]
    fn methods() {
        assert_eq!(route(Method::PUT, "/session"), Match::OtherMethods(vec![Method::POST]));
        assert_eq!(route(Method::GET, "/session/x"), Match::OtherMethods(vec![Method::DELETE]));
        assert_eq!(route(Method::OPTIONS, "/nope"), Match::Unknown);
        assert_eq!(route(Method::HEAD, "/capabilities"), Match::Route(Route::Capabilities));
        assert_eq!(route(Method::HEAD, "/session/x/events"), Match::Unknown);
        assert_eq!(route(Method::GET, "/"), Match::Unknown);
    }

    #[test]
    fn queries() {
        let text = Some("deep=1&maxQueued=16&a=b%20c+d&empty");
        assert_eq!(query(text, "deep").as_deref(), Some("1"));
        assert_eq!(query(text, "a").as_deref(), Some("b c d"));
        assert_eq!(query(text, "empty").as_deref(), Some(""));
        assert_eq!(query(text, "none"), None);
        assert_eq!(query(None, "deep"), None);
    }
}
