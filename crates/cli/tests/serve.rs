//! The real daemon as a process: how it starts, how it refuses to, and what it leaves behind.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use convoke_testkit::{TestEnvironment, run, scripted_agent_binary};
use hyper::Method;
use serde_json::{Value, json};

// The demo's client is the client of these tests.
#[path = "../src/demo/client.rs"]
mod client;
#[path = "serve/ours.rs"]
mod ours;

use client::{Client, Events};

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");
const TOKEN: &str = "test-token";

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

fn serve(environment: &TestEnvironment, args: &[&str]) -> Command {
    let mut command = environment.command(CONVOKE);
    command.args(["serve", "--port", "0"]).args(args).env("QWEN_SERVER_TOKEN", TOKEN);
    command
}

fn scripted(environment: &TestEnvironment) -> Command {
    serve(environment, &["--agent", &scripted_agent_binary().display().to_string()])
}

fn start(mut command: Command) -> Daemon {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.strip_prefix("convoke serve listening on http://").expect("the ready line");
    let (address, rest) = url.split_once(' ').unwrap();
    assert!(rest.starts_with("(mode=http-bridge, workspace=/"), "{line}");
    Daemon { child, address: address.parse().unwrap() }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// A client that is attached to the shared session, its id, and its events.
async fn attach(daemon: &Daemon) -> (Client, String, Events) {
    let mut client = Client::new(daemon.address, TOKEN);
    let created = client.expect(Method::POST, "/session", Some(&json!({}))).await.unwrap();
    client.identify(created["clientId"].as_str().unwrap());
    let session = created["sessionId"].as_str().unwrap().to_owned();
    let events = client.events(&session).await.unwrap();
    (client, session, events)
}

async fn prompt(client: &mut Client, session: &str, text: &str) {
    let body = json!({"prompt": [{"type": "text", "text": text}]});
    client.expect(Method::POST, &format!("/session/{session}/prompt"), Some(&body)).await.unwrap();
}

async fn next_of(events: &mut Events, kind: &str) -> Value {
    let waiting = async {
        loop {
            let event = events.next().await.unwrap().expect("the stream must go on");
            if event["type"] == kind {
                return event;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap_or_else(|_| panic!("no {kind} came"))
}

async fn until(fact: impl Fn() -> bool) {
    let waiting = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it must become true");
}

/// Processes that work in the test's workspace, whoever started them.
fn processes_in(environment: &TestEnvironment) -> usize {
    let workspace = environment.workspace();
    let cwds =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok());
    cwds.filter(|cwd| *cwd == workspace).count()
}

#[test]
fn refusals_to_start_end_with_1_and_say_why() {
    let environment = TestEnvironment::new();
    let agent = scripted_agent_binary().display().to_string();
    let cases: &[(&[&str], &str)] = &[
        (&["--hostname", "localhost:4170"], "looks like a \"host:port\" combination"),
        (&["--hostname", ""], "empty value binds every interface"),
        (&["--workspace", "/nope"], "directory does not exist"),
        (&["--workspace", "relative"], "must be an absolute path"),
        (&["--event-ring-size", "0"], "Must be a positive integer in [1, 1000000]"),
        (&["--max-subscribers-per-session", "0"], "Must be a positive integer in [1, 1024]"),
        (&["--max-sessions", "-1"], "Must be a number >= 0"),
        (&["--permission-response-timeout-ms", "-1"], "Must be a non-negative integer"),
        (&["--no-auth", "--hostname", "0.0.0.0"], "Refusing to start with --no-auth"),
        (&["--agent", "unclosed 'quote"], "a quote is not closed"),
    ];
    for (args, why) in cases {
        let mut command = environment.command(CONVOKE);
        command.args(["serve", "--port", "0"]);
        if !args.contains(&"--agent") {
            command.args(["--agent", &agent]);
        }
        let ran = run(command.args(*args), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
    }
    // A generated token satisfies neither.
    for args in [["--require-auth", "--agent", &agent], ["--allow-origin=*", "--agent", &agent]] {
        let ran = run(environment.command(CONVOKE).args(["serve", "--port", "0"]).args(args), "");
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains("no bearer token configured"), "{}", ran.stderr);
    }
}

#[test]
fn settings_choose_the_policy_or_refuse_to_start() {
    let environment = TestEnvironment::new();
    for (policy, why) in [
        (
            json!({"permissionStrategy": "majority"}),
            "must be one of first-responder, designated, consensus, local-only",
        ),
        (json!({"consensusQuorum": 1.5}), "must be a positive integer"),
        (json!("consensus"), "must be an object"),
    ] {
        environment.write("home/.convoke/settings.json", json!({"policy": policy}).to_string());
        let ran = run(&mut scripted(&environment), "");
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
    environment.write("home/.convoke/settings.json", "{ broken");
    assert_eq!(run(&mut scripted(&environment), "").code, Some(1));
}

#[tokio::test]
async fn settings_reach_the_capabilities() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", r#"{"policy": {"permissionStrategy": "consensus"}}"#);
    let daemon = start(scripted(&environment));
    let mut client = Client::new(daemon.address, TOKEN);
    let capabilities = client.expect(Method::GET, "/capabilities", None).await.unwrap();
    assert_eq!(capabilities["policy"]["permission"], "consensus");
    let mut stranger = Client::new(daemon.address, "wrong");
    assert_eq!(stranger.call(Method::GET, "/capabilities", None).await.unwrap().0, 401);
}

#[tokio::test]
async fn a_given_port_that_is_taken_is_an_error() {
    let environment = TestEnvironment::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = environment.command(CONVOKE);
    command.args(["serve", "--port", &port, "--agent", &scripted_agent_binary().display().to_string()]);
    let ran = tokio::task::spawn_blocking(move || run(&mut command, "")).await.unwrap();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("can't listen on"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_term_resolves_what_is_pending_and_ends_the_agent() {
    let environment = TestEnvironment::new();
    let mut daemon = start(scripted(&environment));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "run the approval scenario").await;
    next_of(&mut events, "permission_request").await;
    signal(&daemon.child, "-TERM");
    let resolved = next_of(&mut events, "permission_resolved").await;
    assert_eq!(resolved["data"]["outcome"]["outcome"], "cancelled");
    assert_eq!(next_of(&mut events, "session_died").await["data"]["reason"], "daemon_shutdown");
    until(|| processes_in(&environment) == 0).await;
    until(|| !std::path::Path::new(&format!("/proc/{}/exe", daemon.child.id())).exists()).await;
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn killing_the_daemon_leaves_no_agent_behind() {
    let environment = TestEnvironment::new();
    let mut daemon = start(scripted(&environment));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "run the approval scenario").await;
    next_of(&mut events, "permission_request").await;
    assert!(processes_in(&environment) >= 2);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    until(|| processes_in(&environment) == 0).await;
}

#[tokio::test]
async fn an_agent_that_exits_ends_its_session_and_a_new_one_can_start() {
    let environment = TestEnvironment::new();
    let daemon = start(scripted(&environment));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "exit 7").await;
    next_of(&mut events, "turn_error").await;
    let died = next_of(&mut events, "session_died").await;
    assert_eq!(died["data"]["exitCode"], 7, "{died}");
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "hello").await;
    next_of(&mut events, "turn_complete").await;
}

/// Our own agent, whose model says what the file holds.
fn ours(environment: &TestEnvironment, command: &str) -> Command {
    let call = json!({"functionCall": {"name": "run_shell_command", "args": {"command": command}}});
    let candidate = json!({"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"});
    let line = json!({"method": "generateContentStream", "response": [{"candidates": [candidate]}]});
    let file = environment.write("responses.jsonl", line.to_string()).display().to_string();
    let mut command = serve(environment, &["--fake-responses", &file]);
    command.env("GEMINI_API_KEY", "x");
    command
}

#[tokio::test]
async fn killing_the_daemon_leaves_no_shell_of_our_agent_behind() {
    let environment = TestEnvironment::new();
    let mut daemon = start(ours(&environment, "touch begun; setsid sleep 1000 & sleep 1001"));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "go").await;
    let request = next_of(&mut events, "permission_request").await;
    assert_eq!(request["data"]["toolCall"]["rawInput"]["command"], "touch begun; setsid sleep 1000 & sleep 1001");
    let vote = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
    let path = format!("/session/{session}/permission/{}", request["data"]["requestId"].as_str().unwrap());
    client.expect(Method::POST, &path, Some(&vote)).await.unwrap();
    until(|| environment.read("workspace/begun").is_some()).await;
    assert!(processes_in(&environment) >= 4);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    until(|| processes_in(&environment) == 0).await;
}

#[tokio::test]
async fn cancelling_a_turn_of_our_agent_ends_its_shell() {
    let environment = TestEnvironment::new();
    let daemon = start(ours(&environment, "touch begun; sleep 1001"));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "go").await;
    let request = next_of(&mut events, "permission_request").await;
    let vote = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
    let path = format!("/session/{session}/permission/{}", request["data"]["requestId"].as_str().unwrap());
    client.expect(Method::POST, &path, Some(&vote)).await.unwrap();
    until(|| environment.read("workspace/begun").is_some()).await;
    let with_shell = processes_in(&environment);
    client.expect(Method::POST, &format!("/session/{session}/cancel"), Some(&json!({}))).await.unwrap();
    assert_eq!(next_of(&mut events, "turn_complete").await["data"]["stopReason"], "cancelled");
    until(|| processes_in(&environment) < with_shell).await;
    // The session goes on: its next prompt is answered, if only with the end of the script.
    prompt(&mut client, &session, "again").await;
    let error = next_of(&mut events, "turn_error").await;
    assert!(error["data"]["message"].as_str().unwrap().contains("No more mock responses"), "{error}");
}

/// A collector of traces: answers every request with 200 and hands out what was posted to which path.
fn collector() -> (SocketAddr, std::sync::mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (posted, posts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut reader = BufReader::new(socket.unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                match line.trim_end().split_once(':') {
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.trim().parse().unwrap();
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            if posted.send((path, body)).is_err() {
                return;
            }
        }
    });
    (address, posts)
}

#[tokio::test]
async fn a_turn_and_its_permission_request_reach_a_trace_collector() {
    let environment = TestEnvironment::new();
    let (address, posts) = collector();
    let mut command = scripted(&environment);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
    let mut daemon = start(command);
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "approval please").await;
    let asked = next_of(&mut events, "permission_request").await;
    let request = asked["data"]["requestId"].as_str().unwrap();
    let vote = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
    client.expect(Method::POST, &format!("/session/{session}/permission/{request}"), Some(&vote)).await.unwrap();
    next_of(&mut events, "turn_complete").await;
    drop(events);
    // What is left is sent at the end.
    signal(&daemon.child, "-TERM");
    assert!(daemon.child.wait().unwrap().success());
    let mut sent = Vec::new();
    while let Ok((path, body)) = posts.try_recv() {
        assert_eq!(path, "/v1/traces");
        sent.extend(body);
    }
    let sent = String::from_utf8_lossy(&sent);
    for name in ["invoke_agent", "permission_request", "first-responder", "proceed_once", request, session.as_str()] {
        assert!(sent.contains(name), "{name} is in no trace");
    }
    assert!(sent.contains("POST /session/:id/prompt"), "requests are traced by their route");
    assert!(!sent.contains(TOKEN), "a secret was exported");
}

#[test]
fn log_lines_are_json_if_that_is_wanted() {
    let environment = TestEnvironment::new();
    let mut command = scripted(&environment);
    command.args(["--log-format", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').nth(4).and_then(|url| url.strip_prefix("http://")).unwrap();
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    write!(socket, "GET /nope HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    socket.read_to_end(&mut Vec::new()).unwrap();
    signal(&child, "-TERM");
    let mut logged = String::new();
    child.stderr.take().unwrap().read_to_string(&mut logged).unwrap();
    child.wait().unwrap();
    let lines: Vec<Value> = logged.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let access = lines.iter().find(|line| line["target"] == "convoke::access").expect("an access line");
    assert_eq!(
        (&access["level"], &access["status"], &access["route"]),
        (&json!("WARN"), &json!(401), &json!("GET /nope"))
    );
    assert_eq!(access["message"], "request completed");
    assert!(access["timestamp"].is_string());
}

/// The scripted agent, which keeps what was said.
fn keeping(environment: &TestEnvironment) -> Command {
    let agent = scripted_agent_binary().display().to_string();
    let store = environment.home().join("agent.jsonl").display().to_string();
    serve(environment, &["--agent", &format!("{agent} --store={store}")])
}

#[tokio::test]
async fn a_session_survives_the_killing_of_its_daemon() {
    let environment = TestEnvironment::new();
    let mut daemon = start(keeping(&environment));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "echo remember me").await;
    next_of(&mut events, "turn_complete").await;
    let folder = environment.home().join(".convoke/sessions");
    let list = || std::fs::read_dir(&folder).ok()?.next()?.ok().map(|entry| entry.path());
    until(|| list().is_some_and(|list| std::fs::metadata(list).unwrap().len() > 0)).await;
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    // The kill came in the middle of another line.
    let list = list().unwrap();
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, format!("{text}{{\"v\":1,\"sessionId\":\"torn")).unwrap();
    let daemon = start(keeping(&environment));
    let mut client = Client::new(daemon.address, TOKEN);
    let workspace = environment.workspace().display().to_string().replace('/', "%2F");
    let sessions = client.expect(Method::GET, &format!("/workspace/{workspace}/sessions"), None).await.unwrap();
    assert_eq!(sessions["sessions"][0]["sessionId"], json!(session), "{sessions}");
    let path = format!("/session/{session}/load");
    let loaded = client.expect(Method::POST, &path, Some(&json!({}))).await.unwrap();
    assert_eq!(loaded["compactedReplay"][0]["data"]["update"]["content"]["text"], "echo remember me", "{loaded}");
    client.identify(loaded["clientId"].as_str().unwrap());
    let mut events = client.events(&session).await.unwrap();
    prompt(&mut client, &session, "hello").await;
    next_of(&mut events, "turn_complete").await;
    let name = json!({"displayName": "Kept"});
    client.expect(Method::PATCH, &format!("/session/{session}/metadata"), Some(&name)).await.unwrap();
    until(|| std::fs::read_to_string(&list).unwrap().lines().any(|line| line.ends_with("\"displayName\":\"Kept\"}")))
        .await;
}

/// Our own agent, whose model answers so.
fn answering(environment: &TestEnvironment, answers: &[Value], args: &[&str]) -> Command {
    let line = |parts: &Value| {
        let candidate = json!({"content": {"role": "model", "parts": parts}, "finishReason": "STOP"});
        json!({"method": "generateContentStream", "response": [{"candidates": [candidate]}]}).to_string() + "\n"
    };
    let file = environment.write("responses.jsonl", answers.iter().map(line).collect::<String>());
    let mut command = serve(environment, &["--model", "gemini-2.5-flash", "--fake-responses"]);
    command.arg(file).args(args).env("GEMINI_API_KEY", "x");
    command
}

fn saying(environment: &TestEnvironment, words: &str) -> Command {
    answering(environment, &[json!([{"text": words}])], &[])
}

#[tokio::test]
async fn a_session_of_our_agent_survives_the_killing_of_its_daemon() {
    let environment = TestEnvironment::new();
    let mut daemon = start(saying(&environment, "I keep it in mind."));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "remember me").await;
    next_of(&mut events, "turn_complete").await;
    let folder = environment.home().join(".convoke/sessions");
    let list = || std::fs::read_dir(&folder).ok()?.next()?.ok().map(|entry| entry.path());
    until(|| list().is_some_and(|list| std::fs::metadata(list).unwrap().len() > 0)).await;
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    until(|| processes_in(&environment) == 0).await;
    let daemon = start(saying(&environment, "You are the one I know."));
    let mut client = Client::new(daemon.address, TOKEN);
    let path = format!("/session/{session}/load");
    let loaded = client.expect(Method::POST, &path, Some(&json!({}))).await.unwrap();
    let replay = loaded["compactedReplay"].as_array().unwrap();
    let said: Vec<_> = replay.iter().filter_map(|frame| frame["data"]["update"]["content"]["text"].as_str()).collect();
    assert!(said.contains(&"remember me") && said.contains(&"I keep it in mind."), "{loaded}");
    client.identify(loaded["clientId"].as_str().unwrap());
    let mut events = client.events(&session).await.unwrap();
    prompt(&mut client, &session, "hello").await;
    next_of(&mut events, "turn_complete").await;
}

#[tokio::test]
async fn hooks_of_a_hosted_session_begin_end_and_deny() {
    let environment = TestEnvironment::new();
    let note = |event: &str| json!([{"hooks": [{"type": "command", "command": format!("echo {event} >> noted")}]}]);
    let deny = json!([{"matcher": "write_file", "hooks": [
        {"type": "command", "command": "echo not here >&2; exit 2"},
    ]}]);
    let hooks = json!({"SessionStart": note("start"), "SessionEnd": note("end"), "BeforeTool": deny});
    environment.write("home/.convoke/settings.json", json!({"hooks": hooks}).to_string());
    let part = json!({"functionCall": {"name": "write_file", "args": {"file_path": "a.txt", "content": "x"}}});
    let command = answering(&environment, &[json!([part]), json!([{"text": "I may not."}])], &["--approval-mode=yolo"]);
    let daemon = start(command);
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "write").await;
    next_of(&mut events, "turn_complete").await;
    assert_eq!(environment.read("workspace/a.txt"), None);
    assert_eq!(environment.read("workspace/noted").as_deref(), Some("start\n"));
    client.expect(Method::DELETE, &format!("/session/{session}"), None).await.unwrap();
    until(|| environment.read("workspace/noted").as_deref() == Some("start\nend\n")).await;
}

#[tokio::test]
async fn a_session_whose_record_stopped_says_so_in_its_snapshot() {
    let environment = TestEnvironment::new();
    // Where the records would be, a file is in the way.
    environment.write("home/.convoke/tmp", "in the way");
    let daemon = start(answering(&environment, &[json!([{"text": "Hello."}])], &[]));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "hello").await;
    next_of(&mut events, "turn_complete").await;
    let mut snapshot = client.stream(&format!("/session/{session}/events?snapshot=1")).await.unwrap();
    assert_eq!(next_of(&mut snapshot, "session_snapshot").await["data"]["recordingDegraded"], true);
}

#[tokio::test]
async fn agents_of_the_settings_are_hosted_without_the_daemon_s_secrets() {
    let environment = TestEnvironment::new();
    let agent = scripted_agent_binary().display().to_string();
    let spy = |file: &str| {
        let file = environment.home().join(file).display().to_string();
        json!({"command": "sh", "args": ["-c", format!("env > {file}; exec {agent}")], "env": {"EXTRA": "given"}})
    };
    let settings = json!({"agents": {"one": spy("one"), "two": spy("two")}, "serve": {"agent": "one"}});
    environment.write("home/.convoke/settings.json", settings.to_string());
    let mut command = serve(&environment, &[]);
    for name in ["CONVOKE_TOKEN", "QWEN_SERVER_TOKEN_FILE", "CONVOKE_TOKEN_FILE"] {
        command.env(name, "secret");
    }
    let daemon = start(command);
    let mut client = Client::new(daemon.address, TOKEN);
    let capabilities = client.expect(Method::GET, "/capabilities", None).await.unwrap();
    assert_eq!((&capabilities["agents"], &capabilities["defaultAgent"]), (&json!(["one", "two"]), &json!("one")));
    for agent in [json!({"sessionScope": "thread"}), json!({"sessionScope": "thread", "agent": "two"})] {
        client.expect(Method::POST, "/session", Some(&agent)).await.unwrap();
    }
    for file in ["home/one", "home/two"] {
        let seen = environment.read(file).unwrap();
        assert!(seen.contains("EXTRA=given") && seen.contains("HOME="), "{seen}");
        assert!(!seen.contains("TOKEN") && !seen.contains(TOKEN), "{seen}");
    }
}

#[test]
fn agents_of_the_settings_are_checked_before_the_start() {
    let environment = TestEnvironment::new();
    for (agents, why) in [
        (json!({"one": {"command": "sh", "args": "-c"}}), "agents.one.args: it must be a list of texts"),
        (json!({"one": {"command": "sh", "env": {"A": 1}}}), "agents.one.env: its values must be texts"),
        (json!({"one": {"command": "sh", "env": {"QWEN_SERVER_TOKEN": "x"}}}), "is the daemon's own"),
        (json!({"convoke": {"command": "sh"}}), "agents.convoke: a name has up to 64"),
        (json!({"a b": {"command": "sh"}}), "agents.a b: a name has up to 64"),
    ] {
        environment.write("home/.convoke/settings.json", json!({"agents": agents}).to_string());
        let ran = run(&mut scripted(&environment), "");
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn isolated_sessions_have_a_process_each() {
    let environment = TestEnvironment::new();
    let agent = scripted_agent_binary().display().to_string();
    let daemon = start(serve(&environment, &["--isolation", "session", "--agent", &agent]));
    let mut client = Client::new(daemon.address, TOKEN);
    let thread = json!({"sessionScope": "thread"});
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(client.expect(Method::POST, "/session", Some(&thread)).await.unwrap());
    }
    // The daemon itself, and for each session a guard and its agent.
    until(|| processes_in(&environment) == 7).await;
    let session = sessions[0]["sessionId"].as_str().unwrap();
    client.identify(sessions[0]["clientId"].as_str().unwrap());
    client.expect(Method::DELETE, &format!("/session/{session}"), None).await.unwrap();
    until(|| processes_in(&environment) == 5).await;
}

#[tokio::test]
async fn a_session_goes_back_everybody_hears_of_it_and_what_was_decided_stays_decided() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "by hand\n");
    let shell = |command: &str| json!([{"functionCall": {"name": "run_shell_command", "args": {"command": command}}}]);
    let say = |text: &str| json!([{"text": text}]);
    let answers = [say("hello"), shell("echo agent > a.txt"), say("done"), shell("sleep 1001")];
    let daemon = start(answering(&environment, &answers, &[]));
    let (mut client, session, mut events) = attach(&daemon).await;
    prompt(&mut client, &session, "first").await;
    next_of(&mut events, "turn_complete").await;
    prompt(&mut client, &session, "second").await;
    let request = next_of(&mut events, "permission_request").await;
    let request = request["data"]["requestId"].as_str().unwrap().to_owned();
    let vote = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
    client.expect(Method::POST, &format!("/session/{session}/permission/{request}"), Some(&vote)).await.unwrap();
    next_of(&mut events, "turn_complete").await;
    assert_eq!(environment.read("workspace/a.txt").as_deref(), Some("agent\n"));

    let path = format!("/session/{session}/rewind");
    let seen = client.expect(Method::GET, &format!("{path}/snapshots"), None).await.unwrap();
    let point = seen["snapshots"][1].clone();
    let id = point["promptId"].as_str().unwrap().to_owned();
    let mut plain = point;
    for changing in ["promptId", "timestamp"] {
        assert!(plain[changing].is_string());
        plain[changing] = json!("<>");
    }
    assert_eq!(
        plain,
        json!({"promptId": "<>", "turnIndex": 1, "timestamp": "<>", "prompt": "second", "filesSince": 1,
            "diffStats": {"filesChanged": 1, "insertions": 1, "deletions": 1},
            "lasting": [{"kind": "command", "what": "echo agent > a.txt"}]})
    );

    environment.write("workspace/a.txt", "by hand again\n");
    let body = json!({"promptId": id});
    let (status, refused) = client.call(Method::POST, &path, Some(&body)).await.unwrap();
    assert_eq!((status, &refused["code"]), (409, &json!("rewind_conflict")), "{refused}");
    let file = environment.workspace().canonicalize().unwrap().join("a.txt").display().to_string();
    assert_eq!(refused["conflicts"][0]["path"], json!(file));
    let body = json!({"promptId": id, "force": true});
    let done = client.expect(Method::POST, &path, Some(&body)).await.unwrap();
    assert_eq!(
        done,
        json!({"rewound": true, "targetTurnIndex": 1, "filesChanged": [file], "filesFailed": [], "prompt": "second"})
    );
    assert_eq!(environment.read("workspace/a.txt").as_deref(), Some("by hand\n"));
    let told = next_of(&mut events, "session_rewound").await;
    assert_eq!(
        told["data"],
        json!({"sessionId": session, "promptId": id, "targetTurnIndex": 1, "what": "both", "filesChanged": [file],
            "filesFailed": []})
    );
    assert!(told["originatorClientId"].is_string(), "{told}");
    let (status, gone) = client.call(Method::POST, &path, Some(&body)).await.unwrap();
    assert_eq!((status, &gone["code"]), (404, &json!("rewind_point_not_found")), "{gone}");
    // The decision that let the command run is where it was.
    let audit = client.expect(Method::GET, "/audit", None).await.unwrap().to_string();
    assert!(audit.contains(&request) && audit.contains("proceed_once"), "{audit}");

    // Asked for in a prompt, everybody hears of it as well, and once.
    prompt(&mut client, &session, "/rewind 1 files").await;
    let told = next_of(&mut events, "session_rewound").await;
    let data = &told["data"];
    let seen = (&data["targetTurnIndex"], &data["what"], &data["filesChanged"]);
    assert_eq!(seen, (&json!(0), &json!("files"), &json!([])), "{told}");
    next_of(&mut events, "turn_complete").await;
    prompt(&mut client, &session, "third").await;
    next_of(&mut events, "permission_request").await;
    let body = json!({"promptId": "1"});
    let (status, busy) = client.call(Method::POST, &path, Some(&body)).await.unwrap();
    assert_eq!((status, &busy["code"]), (409, &json!("session_busy")), "{busy}");
}
