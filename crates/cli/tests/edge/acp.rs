//! `/acp` over one HTTP/2 connection: its streams and posts side by side.

use convoke_testkit::{TestEnvironment, scripted_agent_binary};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use crate::process::{Daemon, TOKEN};

struct Client {
    sender: SendRequest<Full<Bytes>>,
    url: String,
    connection: Option<String>,
}

impl Client {
    async fn send(&mut self, method: Method, session: Option<&str>, body: Option<Value>) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(&self.url);
        request = request.header("Authorization", format!("Bearer {TOKEN}")).header("Accept", "text/event-stream");
        for (name, value) in [("Acp-Connection-Id", self.connection.as_deref()), ("Acp-Session-Id", session)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        let body = Full::new(Bytes::from(body.map(|body| body.to_string()).unwrap_or_default()));
        self.sender.send_request(request.body(body).unwrap()).await.unwrap()
    }

    async fn post(&mut self, id: u64, method: &str, params: Value) -> Response<Incoming> {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(Method::POST, None, Some(message)).await
    }
}

/// Messages of a stream.
struct Messages {
    body: Incoming,
    text: String,
}

impl Messages {
    fn of(response: Response<Incoming>) -> Self {
        assert_eq!((response.status().as_u16(), response.version()), (200, hyper::Version::HTTP_2));
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next one; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let data = block.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
                self.text = rest.to_owned();
                if let Some(data) = data {
                    return Some(serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            let bytes = self.body.frame().await?.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next().await.expect("the stream goes on");
            if fits(&message) {
                return message;
            }
        }
    }
}

#[tokio::test]
async fn acp_is_spoken_over_one_connection_of_http_2() {
    let environment = TestEnvironment::new();
    let mut command = environment.command(env!("CARGO_BIN_EXE_convoke"));
    command.args(["serve", "--port=0", "--agent"]).arg(scripted_agent_binary()).env("QWEN_SERVER_TOKEN", TOKEN);
    let daemon = Daemon::start(command);
    let io = TokioIo::new(daemon.connect().await);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let mut client = Client { sender, url: format!("http://{}/acp", daemon.authority()), connection: None };
    let conversation = async {
        let welcome = client.post(0, "initialize", json!({"protocolVersion": 1})).await;
        assert_eq!(welcome.status(), 200);
        client.connection = Some(welcome.headers()["acp-connection-id"].to_str().unwrap().to_owned());
        let mut own = Messages::of(client.send(Method::GET, None, None).await);
        let made = json!({"cwd": environment.workspace(), "mcpServers": []});
        assert_eq!(client.post(1, "session/new", made).await.status(), 202);
        let made = own.until(|message| message["id"] == 1).await;
        let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
        let mut stream = Messages::of(client.send(Method::GET, Some(&session), None).await);
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "approval please"}]});
        assert_eq!(client.post(2, "session/prompt", prompt).await.status(), 202);
        let question = stream.until(|message| message["method"] == "session/request_permission").await;
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
        assert_eq!(client.send(Method::POST, None, Some(answer)).await.status(), 202);
        let end = stream.until(|message| message["id"] == 2).await;
        assert_eq!(end["result"]["stopReason"], "end_turn");
        assert_eq!(client.send(Method::DELETE, None, None).await.status(), 202);
        while own.next().await.is_some() {}
        while stream.next().await.is_some() {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(40), conversation).await.expect("it must end");
}
