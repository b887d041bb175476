//! `convoke attach --stdio` between a real daemon and an editor that knows nothing of daemons.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use convoke_acp::{AgentChild, AgentError, AgentEvents, AgentOptions, ChildEvent, PermissionAsk};
use convoke_protocol::SessionId;
use convoke_testkit::{TestEnvironment, run, scripted_agent_binary};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

// The demo's client is the REST client of these tests.
#[path = "../src/demo/client.rs"]
mod client;

use client::Client;

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");
const TOKEN: &str = "test-token";

async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it did not come in time")
}

struct Daemon {
    child: Child,
    address: SocketAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(environment: &TestEnvironment, port: u16) -> Self {
        let mut command = environment.command(CONVOKE);
        command.args(["serve", "--port", &port.to_string(), "--agent"]).arg(scripted_agent_binary());
        command.env("QWEN_SERVER_TOKEN", TOKEN).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("convoke serve listening on http://").expect("the ready line");
        let (address, _) = url.split_once(' ').unwrap();
        Self { child, address: address.parse().unwrap() }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn client(&self) -> Client {
        Client::new(self.address, TOKEN)
    }
}

/// An editor, and the relay that it takes for an agent.
struct Editor {
    agent: AgentChild,
    events: AgentEvents,
    relay: tokio::process::Child,
}

impl Editor {
    /// The token is found where the daemon left it.
    async fn start(environment: &TestEnvironment, daemon: &Daemon, args: &[&str]) -> Self {
        let mut command = environment.command(CONVOKE);
        command.args(["attach", "--stdio", &daemon.url()]).args(args);
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut relay = command.spawn().unwrap();
        let (stdin, stdout) = (relay.stdin.take().unwrap(), relay.stdout.take().unwrap());
        let (agent, events) = soon(AgentChild::connect(stdout, stdin, AgentOptions::default())).await.unwrap();
        assert_eq!(agent.about().name.as_deref(), Some("convoke"));
        Self { agent, events, relay }
    }

    async fn session(&self, environment: &TestEnvironment) -> SessionId {
        soon(self.agent.new_session(&environment.workspace(), None)).await.unwrap().session_id
    }

    fn prompt(&self, session: &SessionId, text: &str) -> tokio::task::JoinHandle<Result<String, AgentError>> {
        let (agent, session) = (self.agent.clone(), session.clone());
        let blocks = json!([{"type": "text", "text": text}]);
        tokio::spawn(async move { agent.prompt(&session, blocks, None).await.map(|end| end.stop_reason) })
    }

    async fn question(&mut self) -> PermissionAsk {
        loop {
            match soon(self.events.recv()).await.expect("the relay must live") {
                ChildEvent::PermissionRequest(ask) => return *ask,
                ChildEvent::Update(_) | ChildEvent::Call(_) => {}
                ChildEvent::Exited(exit) => panic!("{exit:?}"),
            }
        }
    }

    /// How a turn ends, whatever else is said meanwhile.
    async fn end(
        &mut self,
        mut turn: tokio::task::JoinHandle<Result<String, AgentError>>,
    ) -> Result<String, AgentError> {
        soon(async {
            loop {
                tokio::select! {
                    end = &mut turn => return end.unwrap(),
                    event = self.events.recv() => drop(event.expect("the relay must live")),
                }
            }
        })
        .await
    }

    /// Texts of updates of a kind, until one is `last`.
    async fn texts(&mut self, kind: &str, last: &str) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.last().is_none_or(|text| text != last) {
            if let ChildEvent::Update(update) = soon(self.events.recv()).await.expect("the relay must live") {
                let update: Value = serde_json::from_str(&update.update.to_string()).unwrap();
                if update["sessionUpdate"] == kind {
                    texts.extend(update["content"]["text"].as_str().map(str::to_owned));
                }
            }
        }
        texts
    }

    /// Hangs up, and waits for a good end. Returns what it said to stderr.
    async fn leave(mut self) -> String {
        assert_eq!(self.agent.ignored_lines(), 0, "only ACP goes to stdout");
        let mut stderr = self.relay.stderr.take().unwrap();
        drop((self.agent, self.events));
        let mut said = String::new();
        let status = soon(async {
            stderr.read_to_string(&mut said).await.unwrap();
            self.relay.wait().await.unwrap()
        });
        assert!(status.await.success(), "{said}");
        said
    }
}

fn outcome(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

#[tokio::test]
async fn an_editor_works_in_a_session_of_its_own() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(&environment, 0);
    let mut editor = Editor::start(&environment, &daemon, &[]).await;
    let session = editor.session(&environment).await;
    let turn = editor.prompt(&session, "approval please");
    editor.question().await.reply.selected("proceed_once");
    assert_eq!(
        editor.texts("agent_message_chunk", "Done after the tool.").await.last().unwrap(),
        "Done after the tool."
    );
    assert_eq!(editor.end(turn).await.unwrap(), "end_turn");
    let status = daemon.client().expect(Method::GET, &format!("/session/{session}/status"), None).await.unwrap();
    assert_eq!(status["clientCount"], 1);
    assert_eq!(editor.leave().await, "");
}

/// What was said before is shown; others see what the editor does, and decide what it is asked.
#[tokio::test]
async fn an_editor_joins_a_session_that_others_are_in() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(&environment, 0);
    let mut rest = daemon.client();
    let created = rest.expect(Method::POST, "/session", Some(&json!({}))).await.unwrap();
    rest.identify(created["clientId"].as_str().unwrap());
    let id = created["sessionId"].as_str().unwrap().to_owned();
    let mut events = rest.events(&id).await.unwrap();
    let mut until = async |kind: &str| loop {
        let event = soon(events.next()).await.unwrap().expect("the stream must go on");
        if event["type"] == kind {
            return event;
        }
    };
    let body = json!({"prompt": [{"type": "text", "text": "echo before you came"}]});
    rest.expect(Method::POST, &format!("/session/{id}/prompt"), Some(&body)).await.unwrap();
    until("turn_complete").await;

    let mut editor = Editor::start(&environment, &daemon, &["--session", &id]).await;
    let session = editor.session(&environment).await;
    assert_eq!(session.as_str(), id);
    let told = editor.texts("user_message_chunk", "echo before you came").await;
    assert_eq!(told, ["echo before you came"]);

    let turn = editor.prompt(&session, "approval please");
    let question = editor.question().await;
    let withdrawn = question.reply.withdrawal();
    let request = until("permission_request").await["data"]["requestId"].as_str().unwrap().to_owned();
    assert_eq!(question.meta.unwrap()["qwen"]["requestId"], json!(request));
    let path = format!("/session/{id}/permission/{request}");
    rest.expect(Method::POST, &path, Some(&outcome("proceed_once"))).await.unwrap();
    assert!(soon(withdrawn.wait()).await);
    // The editor shows its own prompts by itself.
    let told = editor.texts("agent_message_chunk", "Done after the tool.").await;
    assert!(!told.contains(&"approval please".to_owned()), "{told:?}");
    assert_eq!(editor.end(turn).await.unwrap(), "end_turn");
    assert_eq!(editor.leave().await, "");
}

#[tokio::test]
async fn two_editors_and_one_question() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(&environment, 0);
    let mut first = Editor::start(&environment, &daemon, &[]).await;
    let session = first.session(&environment).await;
    let mut second = Editor::start(&environment, &daemon, &["--session", session.as_str()]).await;
    assert_eq!(second.session(&environment).await, session);
    for _ in 0..3 {
        let turn = first.prompt(&session, "approval please");
        let (one, two) = (first.question().await, second.question().await);
        one.reply.selected("proceed_once");
        two.reply.selected("cancel");
        assert_eq!(first.end(turn).await.unwrap(), "end_turn");
    }
    first.leave().await;
    second.leave().await;
}

#[tokio::test]
async fn a_session_that_is_not_there() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(&environment, 0);
    let editor = Editor::start(&environment, &daemon, &["--session", "11111111-1111-4111-8111-111111111111"]).await;
    let refused = soon(editor.agent.new_session(&environment.workspace(), None)).await.unwrap_err();
    assert!(matches!(&refused, AgentError::Refused { .. }), "{refused}");
    assert!(editor.leave().await.contains("the session could not be joined"));
}

/// Open turns fail, the daemon is found again, and the editor goes on with the same relay.
#[tokio::test]
async fn a_daemon_that_comes_back() {
    let environment = TestEnvironment::new();
    let mut daemon = Daemon::start(&environment, 0);
    let mut editor = Editor::start(&environment, &daemon, &[]).await;
    let session = editor.session(&environment).await;
    let turn = editor.prompt(&session, "approval please");
    let question = editor.question().await;
    let withdrawn = question.reply.withdrawal();
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    let error = editor.end(turn).await.unwrap_err();
    assert!(error.to_string().contains("session/prompt"), "{error}");
    assert!(soon(withdrawn.wait()).await);
    let _again = Daemon::start(&environment, daemon.address.port());
    let session = editor.session(&environment).await;
    let turn = editor.prompt(&session, "echo here again");
    assert_eq!(editor.end(turn).await.unwrap(), "end_turn");
    let said = editor.leave().await;
    assert!(said.contains("the connection to the daemon was lost"), "{said}");
    assert!(said.contains("the connection to the daemon is back"), "{said}");
}

#[test]
fn refusals_say_why_and_leave_stdout_alone() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(&environment, 0);
    let url = daemon.url();
    let wrong = environment.write("home/wrong", "not the token");
    let wrong = wrong.to_str().unwrap();
    for (args, why) in [
        (&["attach", "--stdio", &url, "--token-file", wrong][..], "the token is missing or wrong"),
        (&["attach", "--stdio", &url, "--token-file", "/nowhere"], "use --token-file /nowhere"),
        (&["attach", "--stdio", "http://127.0.0.1:1"], "open ws://127.0.0.1:1/acp"),
        (&["attach", "--stdio", &format!("{url}/nowhere")], "the daemon answered 404"),
        (&["attach", "--stdio", "ftp://h"], "its scheme is none of"),
        (&["attach", &url], "--stdio"),
    ] {
        let ran = run(environment.command(CONVOKE).args(args), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("not the token"), "{}", ran.stderr);
    }
}

#[test]
fn an_editor_that_stops_reading_first_has_left_in_good_order() {
    let environment = TestEnvironment::new();
    let daemon = Daemon::start(&environment, 0);
    let mut command = environment.command(CONVOKE);
    command.args(["attach", "--stdio", &daemon.url()]);
    let mut relay = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(relay.stdout.take());
    let mut stdin = relay.stdin.take().unwrap();
    // Its answer has nobody to go to, while stdin is still open.
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}});
    writeln!(stdin, "{initialize}").unwrap();
    let ended = relay.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    drop(stdin);
}
