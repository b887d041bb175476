//! A Unix-domain socket, and HTTP/2 without TLS.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use convoke_testkit::{TestEnvironment, run, scripted_agent_binary};
use hyper::{Method, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::UnixStream;

use crate::client::Client;
use crate::process::{Daemon, TOKEN, exchange, request, serve};

#[tokio::test]
async fn a_socket_alone_serves_its_owner_and_goes_with_the_daemon() {
    let environment = TestEnvironment::new();
    let path = environment.home().join("run/convoke.sock");
    let listen = format!("unix:{}", path.display());
    let daemon = Daemon::start(serve(&environment, &["--listen", &listen]));
    assert_eq!(daemon.place, listen);
    assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // Any Host passes; the token is asked for all the same.
    for (token, status) in [("", 401), ("wrong", 401), (TOKEN, 200)] {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let stream = UnixStream::connect(&path).await.unwrap();
            let answer = exchange(stream, version, request("http://any.example", "/capabilities", token)).await;
            assert_eq!(answer.0, status, "{token:?} {version:?}");
        }
    }
    let again = run(&mut serve(&environment, &["--listen", &listen]), "");
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("somebody answers there"), "{}", again.stderr);
    daemon.end().await;
    assert!(!path.exists(), "it must go with its daemon");
}

#[tokio::test]
async fn what_a_killed_daemon_left_is_replaced() {
    let environment = TestEnvironment::new();
    let path = environment.home().join("convoke.sock");
    let listen = format!("unix:{}", path.display());
    let mut first = Daemon::start(serve(&environment, &["--listen", &listen]));
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(path.exists());
    let second = Daemon::start(serve(&environment, &["--listen", &listen, "--port", "0"]));
    assert!(second.place.starts_with("http://127.0.0.1:"), "{}", second.place);
    assert_eq!(second.get("/health", "").await.0, 200);
    let stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(exchange(stream, Version::HTTP_11, request("http://x", "/health", "")).await.0, 200);
    let (_, said) = second.end().await;
    assert!(said.contains(&format!("listening on {listen} as well")), "{said}");
}

#[tokio::test]
async fn http_2_is_spoken_without_tls_and_its_authority_is_judged() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(serve(&environment, &["--port", "0"]));
    let own = format!("http://{}", daemon.authority());
    for (base, token, status) in [(own.as_str(), TOKEN, 200), (&own, "wrong", 401), ("http://evil.example", TOKEN, 403)]
    {
        let stream = daemon.connect().await;
        assert_eq!(exchange(stream, Version::HTTP_2, request(base, "/capabilities", token)).await.0, status, "{base}");
    }
}

/// Its stream is evicted, and its connection with it, since nothing else ends a stream that takes nothing.
#[tokio::test]
async fn a_reader_over_http_2_that_takes_nothing_is_let_go_and_nobody_else_notices() {
    let environment = TestEnvironment::new();
    let agent = scripted_agent_binary().display().to_string();
    let mut command = environment.command(env!("CARGO_BIN_EXE_convoke"));
    command.args(["serve", "--port=0", "--writer-idle-timeout-ms=300", "--agent", &agent]);
    let daemon = Daemon::start({
        command.env("QWEN_SERVER_TOKEN", TOKEN);
        command
    });
    let mut member = Client::new(daemon.authority().parse().unwrap(), TOKEN);
    let created = member.expect(Method::POST, "/session", Some(&json!({}))).await.unwrap();
    member.identify(created["clientId"].as_str().unwrap());
    let session = created["sessionId"].as_str().unwrap();
    let mut events = member.events(session).await.unwrap();
    let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    // The stream's first line, `retry: 3000`, fits into the window, and nothing after it.
    let handshake = http.initial_stream_window_size(13).handshake(TokioIo::new(daemon.connect().await));
    let (mut sender, connection) = handshake.await.unwrap();
    let ended = tokio::spawn(connection);
    let path = format!("/session/{session}/events");
    let request = request(&daemon.place, &path, TOKEN);
    let unread = sender.send_request(request).await.unwrap();
    assert_eq!(unread.status(), 200);
    let body = json!({"prompt": [{"type": "text", "text": "hello"}]});
    let path = format!("/session/{session}/prompt");
    let turns = async {
        // A turn that is over before the stream is first looked at leaves with its first write: then it is the next one.
        while !ended.is_finished() {
            member.expect(Method::POST, &path, Some(&body)).await.unwrap();
            while events.next().await.unwrap().expect("the stream goes on")["type"] != "turn_complete" {}
        }
    };
    tokio::time::timeout(Duration::from_secs(40), turns).await.expect("its connection must end");
}
