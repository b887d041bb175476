//! Who is let in, and what the daemon says of itself.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use convoke_daemon::{BootError, Daemon, PortOption, TokenOption};
use serde_json::json;

use crate::client::{Client, Extra};
use crate::rig::{Rig, options};

fn with(headers: Vec<(&'static str, &'static str)>, body: Option<String>) -> Extra<'static> {
    Extra { headers, body }
}

#[tokio::test]
async fn a_generated_token_is_asked_for_and_left_for_local_clients() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run/token");
    let mut options = options(folder.path());
    options.token = TokenOption::Generate;
    options.token_file = Some(file.clone());
    let daemon = Daemon::bind(options).await.unwrap();
    assert!(daemon.generated_token().is_some());
    let address = daemon.address().unwrap();
    let workspace = folder.path().display();
    assert_eq!(
        daemon.ready_line(),
        format!("convoke serve listening on http://{address} (mode=http-bridge, workspace={workspace})")
    );
    let token = std::fs::read_to_string(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (shutdown, kill) = Default::default();
    let running = tokio::spawn(daemon.run(tokio_util::sync::CancellationToken::clone(&shutdown), kill));
    let stranger = Client { address, token: None };
    assert_eq!(stranger.get("/health").await.status, 200);
    let refused = stranger.get("/capabilities").await;
    assert_eq!((refused.status, refused.json()), (401, json!({"error": "Unauthorized"})));
    assert_eq!(refused.header("www-authenticate"), None);
    let friend = Client { address, token: Some(token) };
    assert_eq!(friend.get("/capabilities").await.status, 200);
    shutdown.cancel();
    running.await.unwrap();
    assert!(!file.exists(), "the token of a daemon that is gone");
}

#[tokio::test]
async fn require_auth_covers_health() {
    let rig = Rig::with(|options| {
        options.token = TokenOption::Given("tok123".into());
        options.require_auth = true;
    })
    .await;
    assert_eq!(rig.client.get("/health").await.status, 401);
    let friend = Client { token: Some("tok123".to_owned()), ..rig.client.clone() };
    assert_eq!(friend.get("/health").await.status, 200);
    let features = friend.get("/capabilities").await.json()["features"].clone();
    assert!(features.as_array().unwrap().contains(&json!("require_auth")));
}

#[tokio::test]
async fn a_given_port_that_is_taken_is_an_error() {
    let rig = Rig::new().await;
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.port = PortOption::Given(rig.client.address.port());
    assert!(matches!(Daemon::bind(options).await, Err(BootError::Bind { .. })));
}

#[tokio::test]
async fn the_usual_port_moves_on() {
    let folder = tempfile::tempdir().unwrap();
    let bind = || {
        let mut options = options(folder.path());
        options.port = PortOption::Default;
        Daemon::bind(options)
    };
    let (one, two) = (bind().await.unwrap(), bind().await.unwrap());
    assert!(two.address().unwrap().port() > one.address().unwrap().port());
    let last = two.notices().last().unwrap();
    assert_eq!(
        last,
        &format!("port {} is in use, trying {}...", two.address().unwrap().port() - 1, two.address().unwrap().port())
    );
}

#[tokio::test]
async fn unknown_paths_and_methods_are_html_404() {
    let rig = Rig::new().await;
    for (method, path) in [("GET", "/x"), ("PUT", "/session"), ("GET", "/session/x"), ("POST", "/health")] {
        let answer = rig.client.send(method, path, Extra::default()).await;
        assert_eq!(answer.status, 404, "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(answer.text().contains(&format!("<pre>Cannot {method} {path}</pre>")), "{}", answer.text());
    }
    let malformed = rig.client.get("/session/%zz/status").await;
    let body = json!({"error": "Malformed URL encoding", "code": "invalid_request"});
    assert_eq!((malformed.status, malformed.json()), (400, body));
    let options = rig.client.send("OPTIONS", "/session", Extra::default()).await;
    assert_eq!((options.status, options.header("allow")), (200, Some("POST")));
}

#[tokio::test]
async fn bodies_over_ten_megabytes_are_refused_and_the_client_gets_to_know() {
    let rig = Rig::new().await;
    let body = format!("{{\"cwd\":\"{}\"}}", "x".repeat(11 * 1024 * 1024));
    let answer =
        rig.client.send("POST", "/session", with(vec![("Content-Type", "application/json")], Some(body))).await;
    assert_eq!((answer.status, answer.json()), (413, json!({"error": "Request body too large (max 10 MB)"})));
}

#[tokio::test]
async fn the_page_is_served_before_the_token_is_asked_for() {
    let rig = Rig::with(|options| options.token = TokenOption::Given("tok123".into())).await;
    let script = rig.client.get("/assets/stream.js").await;
    assert_eq!(script.status, 200);
    let policy = script.header("content-security-policy").unwrap();
    assert_eq!(
        policy,
        "default-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; object-src \
         'none'; base-uri 'none'; frame-ancestors 'none'"
    );
    assert_eq!(rig.client.get("/assets/nope.js").await.status, 401);
    let visit = with(vec![("Accept", "text/html"), ("Host", "evil.example")], None);
    assert_eq!(rig.client.send("GET", "/", visit).await.status, 403);
}

#[tokio::test]
async fn one_connection_too_many_is_closed() {
    let rig = Rig::with(|options| options.limits.connections = 2).await;
    let member = rig.join("single").await;
    let (one, two) = (member.events().await, member.events().await);
    let mut third = tokio::net::TcpStream::connect(rig.client.address).await.unwrap();
    let mut buffer = [0];
    let read = crate::client::soon(tokio::io::AsyncReadExt::read(&mut third, &mut buffer)).await;
    assert!(matches!(read, Ok(0) | Err(_)));
    drop((one, two));
}

#[tokio::test]
async fn the_audit_needs_a_token() {
    let open = Rig::new().await;
    let refused = open.client.get("/audit").await;
    assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("token_required")));
    let rig = Rig::with(|options| options.token = TokenOption::Given("tok123".into())).await;
    let friend = Client { token: Some("tok123".to_owned()), ..rig.client.clone() };
    assert_eq!(friend.get("/audit").await.json(), json!({"v": 1, "records": []}));
}

#[tokio::test]
async fn deep_health_and_status_count() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let _stream = member.events().await;
    let health = rig.client.get("/health?deep=1").await.json();
    let some = ["status", "sessions", "connectedClients", "channelAlive", "pendingPermissions"].map(|key| &health[key]);
    assert_eq!(some, [&json!("ok"), &json!(1), &json!(1), &json!(true), &json!(0)]);
    let status = rig.client.get("/daemon/status").await.json();
    assert_eq!(status["runtime"]["sessions"]["active"], 1);
    assert_eq!(status["detail"], "summary");
    let bad = rig.client.get("/daemon/status?detail=x").await;
    let body = json!({"error": "detail must be one of: summary, full", "code": "invalid_detail"});
    assert_eq!((bad.status, bad.json()), (400, body));
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn requests_are_logged_without_their_secrets() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // With a single subscriber the first thread that reaches a log line decides for all whether anybody wants it, and
    // the threads of other tests have none.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let rig = Rig::with(|options| options.token = TokenOption::Given("tok-secret-123".into())).await;
    let rig = rig.authorized("tok-secret-123");
    let member = rig.join("single").await;
    rig.client.get(&member.path("status?token=tok-secret-123")).await;
    rig.client.post(&member.path("heartbeat"), &member.id, json!({})).await;
    rig.client.get("/health").await;
    let stranger = Client { token: Some("tok-wrong-456".to_owned()), ..rig.client.clone() };
    stranger.get(&member.path("status")).await;
    rig.client.post(&member.path("cancel"), &member.id, json!({})).await;
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("request completed")).collect();
    let fields = [
        (" INFO ", "route=POST /session durationMs=", "status=200"),
        (" INFO ", "route=GET /session/:id/status sessionId=", "status=200"),
        (" WARN ", "route=GET /session/:id/status sessionId=", "status=401"),
        (" INFO ", "route=POST /session/:id/cancel sessionId=", "status=204"),
    ];
    assert_eq!(lines.len(), fields.len(), "{lines:#?}");
    for (line, (level, route, status)) in lines.iter().zip(fields) {
        assert!(line.contains(level) && line.contains(route) && line.contains(status), "{line}");
    }
    assert!(lines[3].contains(&format!("clientId=\"{}\"", member.id)), "{}", lines[3]);
    assert!(!text.contains("tok-secret") && !text.contains("tok-wrong"), "a token was logged");
}
