//! Agents that will not go, under the real daemon: who is left when it ends, and when they do?

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail where it stands")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use convoke_testkit::{TestEnvironment, scripted_agent_binary};
use hyper::Method;
use serde_json::{Value, json};

// The demo's client is the client of these tests.
#[path = "../src/demo/client.rs"]
mod client;

use client::{Client, Events};

const TOKEN: &str = "test-token";

/// Nothing that is waited for here takes this long, unless it never comes.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running daemon; killed with the test.
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

/// A daemon whose agent does this once.
fn start(environment: &TestEnvironment, chaos: &str) -> Daemon {
    let armed = environment.write("home/armed", "");
    let agent = format!("{} --chaos={chaos} --armed-by={}", scripted_agent_binary().display(), armed.display());
    let mut command = environment.command(env!("CARGO_BIN_EXE_convoke"));
    command.args(["serve", "--port", "0", "--agent", &agent]).env("QWEN_SERVER_TOKEN", TOKEN);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.strip_prefix("convoke serve listening on http://").expect("the ready line");
    let address = url.split_once(' ').unwrap().0.parse().unwrap();
    Daemon { child, address }
}

/// What the processes run that work in the test's workspace, whoever started them.
fn processes_in(environment: &TestEnvironment) -> Vec<String> {
    let workspace = environment.workspace();
    let folders = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let ours = folders.filter(|folder| std::fs::read_link(folder.join("cwd")).is_ok_and(|cwd| cwd == workspace));
    ours.filter_map(|folder| std::fs::read_to_string(folder.join("cmdline")).ok()).collect()
}

async fn until(what: &str, fact: impl Fn() -> bool) {
    let waiting = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect(what);
}

/// Has the agent come to its misdeed, which takes the file away. Gives its client and the
/// session's events, if there is one.
async fn provoke(environment: &TestEnvironment, daemon: &Daemon, chaos: &str) -> (Client, Option<Events>) {
    let mut client = Client::new(daemon.address, TOKEN);
    let mut events = None;
    if !chaos.ends_with("@initialize") {
        let created = client.expect(Method::POST, "/session", Some(&json!({}))).await.unwrap();
        client.identify(created["clientId"].as_str().unwrap());
        let session = created["sessionId"].as_str().unwrap();
        events = Some(client.events(session).await.unwrap());
        let prompt = json!({"prompt": [{"type": "text", "text": "approval please"}]});
        client.expect(Method::POST, &format!("/session/{session}/prompt"), Some(&prompt)).await.unwrap();
        if chaos.ends_with("@close") {
            client.expect(Method::DELETE, &format!("/session/{session}"), None).await.unwrap();
        }
    }
    until(chaos, || environment.read("home/armed").is_none()).await;
    (client, events)
}

/// The last event of a stream that ends.
async fn last_of(mut events: Events) -> Value {
    let mut last = Value::Null;
    while let Some(event) = events.next().await.unwrap() {
        last = event;
    }
    last
}

/// Whoever is replaced by `sleep` is the one that has to go.
fn sleeps(environment: &TestEnvironment) -> bool {
    processes_in(environment).iter().any(|command| command.starts_with("sleep"))
}

#[tokio::test]
async fn agents_that_will_not_go_end_with_their_daemon() {
    let cases = [
        ("hang@turn", "-TERM"),
        ("hang@initialize", "-TERM"),
        ("hang@close", "-TERM"),
        ("mute@prompt", "-TERM"),
        ("deaf@permission", "-TERM"),
        ("deaf@initialize", "-TERM"),
        ("deaf@turn", "-KILL"),
        ("hang@permission", "-KILL"),
    ];
    let runs = cases.map(async |(chaos, signal)| {
        let environment = TestEnvironment::new();
        let mut daemon = start(&environment, chaos);
        provoke(&environment, &daemon, chaos).await;
        until(chaos, || sleeps(&environment)).await;
        let pid = daemon.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        // A daemon that has ended is waited for below, so it counts no more.
        until(chaos, || processes_in(&environment).is_empty()).await;
        daemon.child.wait().unwrap();
    });
    futures::future::join_all(runs).await;
}

#[tokio::test]
async fn what_an_agent_leaves_behind_ends_with_it_and_not_with_the_daemon() {
    let cases = ["orphan@initialize", "orphan@new", "orphan@turn", "orphan@permission", "orphan@close"];
    let runs = cases.map(async |chaos| {
        let environment = TestEnvironment::new();
        let mut daemon = start(&environment, chaos);
        // Events end with their client.
        let (_client, events) = provoke(&environment, &daemon, chaos).await;
        // The next session has a new agent, which is not started before the end of the other one is known. Only who
        // came while that one was starting is refused, and may come again.
        let mut client = Client::new(daemon.address, TOKEN);
        let thread = json!({"sessionScope": "thread"});
        let mut answer = client.call(Method::POST, "/session", Some(&thread)).await.unwrap();
        if chaos == "orphan@initialize" && answer.0 == 503 {
            answer = client.call(Method::POST, "/session", Some(&thread)).await.unwrap();
        }
        assert_eq!(answer.0, 200, "{chaos}: {}", answer.1);
        if matches!(chaos, "orphan@turn" | "orphan@permission") {
            let last = tokio::time::timeout(PATIENCE, last_of(events.unwrap())).await.expect(chaos);
            assert_eq!((&last["type"], &last["data"]["exitCode"]), (&json!("session_died"), &json!(0)), "{chaos}");
        }
        assert!(!sleeps(&environment), "{chaos}: {:?}", processes_in(&environment));
        assert!(daemon.child.try_wait().unwrap().is_none());
    });
    futures::future::join_all(runs).await;
}
