//! What a stranger can try before, beside and instead of a proper request.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use convoke_daemon::{RateOptions, TokenOption};
use convoke_protocol::daemon::capability::PermissionPolicy;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::client::{Client, Extra, soon};
use crate::rig::{Member, Rig, request_id};

fn with(headers: Vec<(&'static str, &'static str)>) -> Extra<'static> {
    Extra { headers, body: None }
}

#[tokio::test]
async fn the_rate_limit_counts_a_peer_whatever_it_calls_itself() {
    let rate = RateOptions { read: 3, window: Duration::from_secs(3600), ..RateOptions::default() };
    let rig = Rig::with(|options| options.rate = Some(rate)).await;
    for id in ["one", "two", "three"] {
        let answer = rig.client.send("GET", "/capabilities", with(vec![("X-Qwen-Client-Id", id)])).await;
        assert_eq!(answer.status, 200, "{id}");
        assert!(answer.json()["features"].as_array().unwrap().contains(&json!("rate_limit")));
    }
    let refused = rig.client.send("GET", "/capabilities", with(vec![("X-Qwen-Client-Id", "four")])).await;
    assert_eq!((refused.status, refused.header("x-ratelimit-limit")), (429, Some("3")));
    let body = refused.json();
    assert_eq!(body["error"], "Rate limit exceeded");
    assert_eq!((&body["code"], &body["tier"]), (&json!("rate_limit_exceeded"), &json!("read")));
    let millis = body["retryAfterMs"].as_u64().unwrap();
    assert!((1..=1_200_000).contains(&millis), "{millis}");
    assert_eq!(refused.header("retry-after"), Some(millis.div_ceil(1000).to_string().as_str()));
    // Other tiers and signs of life go on.
    assert_eq!(rig.client.get("/health").await.status, 200);
    assert_eq!(rig.client.post("/session", "", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_stranger_s_requests_cost_the_owner_nothing() {
    let rate = RateOptions { read: 1, window: Duration::from_secs(3600), ..RateOptions::default() };
    let rig = Rig::with(|options| {
        options.rate = Some(rate);
        options.token = TokenOption::Given("tok123".into());
    })
    .await;
    for _ in 0..5 {
        assert_eq!(rig.client.get("/capabilities").await.status, 401);
    }
    let rig = rig.authorized("tok123");
    assert_eq!(rig.client.get("/capabilities").await.status, 200);
    assert_eq!(rig.client.get("/capabilities").await.status, 429);
}

/// Sends bytes and waits for the daemon to close; what it said until then.
async fn until_closed(address: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut said = Vec::new();
    // A reset closes as well.
    let _ = soon(socket.read_to_end(&mut said)).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_connection_that_says_too_little_is_closed() {
    let rig = Rig::with(|options| options.limits.idle_connection = Duration::from_millis(200)).await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for begun in ["", "G", "PRI * HT", "GET /health HTTP/1.1\r\nHost: localh", preface] {
        let said = until_closed(rig.client.address, begun.as_bytes()).await;
        assert!(!said.contains("200 OK"), "{begun:?}: {said}");
    }
    let health = format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", rig.client.address);
    // One that did its work and keeps the connection, too.
    assert!(until_closed(rig.client.address, health.as_bytes()).await.contains("200 OK"));
}

#[tokio::test]
async fn an_event_stream_does_not_count_as_idle() {
    let rig = Rig::with(|options| {
        options.limits.idle_connection = Duration::from_millis(50);
        options.limits.heartbeat = Duration::from_millis(100);
    })
    .await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    for _ in 0..4 {
        // The preamble and three heartbeats: six times the idle limit.
        assert!(matches!(stream.any().await, crate::client::Next::Event(event) if event.other.is_some()));
    }
    member.prompt("hello").await;
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn a_body_that_never_comes_is_given_up() {
    let rig = Rig::with(|options| options.limits.body_time = Duration::from_millis(200)).await;
    let address = rig.client.address;
    let request = format!(
        "POST /session HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{{"
    );
    let said = until_closed(address, request.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    assert!(said.ends_with("{\"error\":\"Request body took too long\"}"), "{said}");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let rig = Rig::new().await;
    let long = "x".repeat(40 * 1024);
    let many: Vec<String> = (0..110).map(|n| format!("X-{n}")).collect();
    let many = many.iter().map(|name| (name.as_str(), "y")).collect();
    let path = format!("/health?{long}");
    for (path, headers) in [("/health", vec![("X-Long", long.as_str())]), ("/health", many), (path.as_str(), vec![])] {
        let answer = rig.client.send("GET", path, Extra { headers, body: None }).await;
        assert_eq!(answer.status, 431);
    }
    assert_eq!(rig.client.get("/health").await.status, 200);
}

#[tokio::test]
async fn a_refusal_is_heard_by_a_client_that_is_still_sending() {
    let rig = Rig::with(|options| options.token = TokenOption::Given("tok123".into())).await;
    let body = Some("x".repeat(900 * 1024));
    for (headers, status) in [
        (vec![("Content-Type", "application/json")], 401),
        (vec![("Host", "evil.example")], 403),
        (vec![("Origin", "http://evil.example")], 403),
    ] {
        let answer = rig.client.send("POST", "/session", Extra { headers, body: body.clone() }).await;
        assert_eq!(answer.status, status);
        assert!(answer.json()["error"].is_string());
    }
}

#[tokio::test]
async fn names_that_lead_here_are_not_ours() {
    let rig = Rig::new().await;
    let port = rig.client.address.port();
    for name in
        ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.2", "0.0.0.0", "[::]", "2130706433"]
    {
        let host = format!("{name}:{port}");
        let answer = rig.client.send("GET", "/health", Extra { headers: vec![("Host", &host)], body: None }).await;
        assert_eq!((answer.status, answer.json()), (403, json!({"error": "Invalid Host header"})), "{host}");
        // Nor in the request's target, whatever `Host` says.
        let answer = rig.client.send("GET", &format!("http://{host}/health"), Extra::default()).await;
        assert_eq!(answer.status, 403, "{host}");
    }
    for origin in ["null", "http://evil.example", "http://localhost", "http://localhost.evil.example", "file://", "*"] {
        let answer = rig.client.send("GET", "/health", with(vec![("Origin", origin)])).await;
        assert_eq!(answer.status, 403, "{origin}");
        assert_eq!(answer.json(), json!({"error": "Request denied by CORS policy"}), "{origin}");
        assert_eq!((answer.header("vary"), answer.header("access-control-allow-origin")), (Some("Origin"), None));
    }
}

#[tokio::test]
async fn without_the_page_there_is_only_the_api() {
    let rig = Rig::with(|options| options.page = false).await;
    assert_eq!(rig.client.get("/").await.status, 404);
    assert_eq!(rig.client.get("/assets/stream.js").await.status, 404);
    assert_eq!(rig.client.get("/health").await.status, 200);
}

/// An address of this machine that is not its loopback, if it has one.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: it only chooses a route.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

async fn vote(member: &Member, through: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), request: &str) -> String {
    let body = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}}).to_string();
    let path = member.path(&format!("permission/{request}"));
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: anything\r\nConnection: close\r\nAuthorization: Bearer tok123\r\nX-Forwarded-For: \
         127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    through.write_all(head.as_bytes()).await.unwrap();
    let mut said = String::new();
    soon(through.read_to_string(&mut said)).await.unwrap();
    said
}

#[tokio::test]
async fn local_only_counts_a_socket_file_as_local_and_an_address_beyond_loopback_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut rig = Rig::with(|options| {
        options.hostname = "0.0.0.0".to_owned();
        options.socket = Some(path.clone());
        options.token = TokenOption::Given("tok123".into());
        options.bridge.policy = PermissionPolicy::LocalOnly;
    })
    .await;
    let port = rig.client.address.port();
    rig.client = Client { address: ([127, 0, 0, 1], port).into(), token: Some("tok123".to_owned()) };
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    if let Some(own) = own_address() {
        let mut remote = TcpStream::connect((own, port)).await.unwrap();
        let said = vote(&member, &mut remote, &request).await;
        assert!(said.starts_with("HTTP/1.1 403 ") && said.contains("remote_not_allowed"), "{said}");
    }
    // 127.0.0.2 is this machine as well, and so is the file.
    let second = tokio::net::TcpSocket::new_v4().unwrap();
    second.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let health = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut second = second.connect(([127, 0, 0, 1], port).into()).await.unwrap();
    second.write_all(health.as_bytes()).await.unwrap();
    let mut said = String::new();
    soon(second.read_to_string(&mut said)).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 401 "), "beyond loopback, /health asks for the token: {said}");
    let mut unix = UnixStream::connect(&path).await.unwrap();
    let said = vote(&member, &mut unix, &request).await;
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    stream.until("turn_complete").await;
}
