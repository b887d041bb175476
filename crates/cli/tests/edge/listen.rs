//! A Unix-domain socket, and HTTP/2 without TLS.

use std::os::unix::fs::PermissionsExt;

use convoke_testkit::{TestEnvironment, run};
use hyper::Version;
use tokio::net::UnixStream;

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
