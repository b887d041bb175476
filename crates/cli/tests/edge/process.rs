//! A daemon for one test, and one exchange with it over whatever stream there is.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use convoke_testkit::TestEnvironment;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub(crate) const TOKEN: &str = "test-token";

/// An agent that never says a word: nothing here needs one.
pub(crate) const AGENT: [&str; 2] = ["--agent", "sleep 1000"];

/// `convoke serve` with arguments; it has the token of the environment.
pub(crate) fn serve(environment: &TestEnvironment, args: &[&str]) -> Command {
    let mut command = environment.command(env!("CARGO_BIN_EXE_convoke"));
    command.arg("serve").args(AGENT).args(args).env("QWEN_SERVER_TOKEN", TOKEN);
    command
}

/// A running daemon; killed with the test.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    /// What its line says: a URL, or `unix:PATH`.
    pub(crate) place: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.strip_prefix("convoke serve listening on ").unwrap_or_else(|| {
            let mut why = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut why);
            unreachable!("it must start: {why}")
        });
        let (place, rest) = rest.split_once(" (mode=http-bridge, workspace=").unwrap();
        assert!(rest.starts_with('/'), "{line}");
        Self { place: place.to_owned(), child }
    }

    /// `host:port` of its URL.
    pub(crate) fn authority(&self) -> &str {
        self.place.split_once("://").unwrap().1
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.authority()).await.unwrap()
    }

    /// `GET` over HTTP/1.1.
    pub(crate) async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let request = request(&format!("http://{}", self.authority()), path, token);
        exchange(self.connect().await, Version::HTTP_11, request).await
    }

    /// Ends it in good order; its exit code and what it said on stderr.
    pub(crate) async fn end(mut self) -> (Option<i32>, String) {
        signal(&self.child, "-TERM");
        let mut stderr = self.child.stderr.take().unwrap();
        let said = tokio::task::spawn_blocking(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            said
        });
        let said = tokio::time::timeout(Duration::from_secs(40), said).await.unwrap().unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

pub(crate) fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// A `GET` of a path below a base such as `http://127.0.0.1:4170`; an empty token is none.
pub(crate) fn request(base: &str, path: &str, token: &str) -> Request<Empty<Bytes>> {
    let mut request = Request::builder().uri(format!("{base}{path}"));
    if !token.is_empty() {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    request.body(Empty::new()).unwrap()
}

/// One exchange in a version of HTTP.
pub(crate) async fn exchange<S>(stream: S, version: Version, mut request: Request<Empty<Bytes>>) -> (u16, Value)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let exchanged = async {
        let mut tasks = tokio::task::JoinSet::new();
        let response = if version == Version::HTTP_2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tasks.spawn(async move { drop(connection.await) });
            sender.send_request(request).await.unwrap()
        } else {
            let host = request.uri().authority().unwrap().to_string();
            request.headers_mut().insert("Host", host.parse().unwrap());
            *request.uri_mut() = request.uri().path().parse().unwrap();
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tasks.spawn(async move { drop(connection.await) });
            sender.send_request(request).await.unwrap()
        };
        assert_eq!(response.version(), version);
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    };
    tokio::time::timeout(Duration::from_secs(30), exchanged).await.expect("an answer")
}
