//! Does the client end survive the agents of this world? Against the scripted agent, in this process and as a child.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of test functions"
)]

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_acp::{
    AgentChild, AgentCommand, AgentError, AgentEvents, AgentOptions, ChildEvent, EndCause, Exit, PermissionAsk,
    PromptEnd, StartError, UpdateEvent,
};
use convoke_protocol::SessionId;
use convoke_stdx::guard::Spawner;
use convoke_testkit::{Script, run_scripted_agent, scripted_agent_binary};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, ReadBuf};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// No test waits for time to pass; this only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("it hangs")
}

fn command(args: &[&str]) -> AgentCommand {
    AgentCommand {
        program: scripted_agent_binary().into(),
        args: args.iter().map(Into::into).collect(),
        cwd: "/".into(),
        ..AgentCommand::default()
    }
}

fn shell(script: &str) -> AgentCommand {
    AgentCommand {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        cwd: "/".into(),
        ..AgentCommand::default()
    }
}

async fn start(command: AgentCommand) -> Result<(AgentChild, AgentEvents), StartError> {
    start_with(command, AgentOptions::default()).await
}

async fn start_with(command: AgentCommand, options: AgentOptions) -> Result<(AgentChild, AgentEvents), StartError> {
    soon(AgentChild::start(command, &Spawner::unguarded(), options)).await
}

/// An agent in this process, and the session it made.
async fn connect(script: Script, options: AgentOptions) -> (AgentChild, AgentEvents, SessionId, JoinSet<u8>) {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (agent_input, agent_output) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let mut agents = JoinSet::new();
    agents.spawn(run_scripted_agent(script, agent_input, agent_output));
    let (agent, events) = soon(AgentChild::connect(output, input, options)).await.unwrap();
    let session = soon(agent.new_session(Path::new("/work"), None)).await.unwrap().session_id;
    (agent, events, session, agents)
}

fn prompt(agent: &AgentChild, session: &SessionId, text: &str) -> JoinHandle<Result<PromptEnd, AgentError>> {
    let (agent, session, blocks) = (agent.clone(), session.clone(), json!([{"type": "text", "text": text}]));
    tokio::spawn(async move { agent.prompt(&session, blocks, None).await })
}

async fn next_update(events: &mut AgentEvents) -> UpdateEvent {
    match soon(events.recv()).await {
        Some(ChildEvent::Update(update)) => update,
        other => panic!("expected an update, got {other:?}"),
    }
}

async fn next_ask(events: &mut AgentEvents) -> PermissionAsk {
    loop {
        match soon(events.recv()).await {
            Some(ChildEvent::Update(_)) => {}
            Some(ChildEvent::PermissionRequest(ask)) => return *ask,
            other => panic!("expected a permission request, got {other:?}"),
        }
    }
}

async fn next_exit(events: &mut AgentEvents) -> Arc<Exit> {
    loop {
        match soon(events.recv()).await {
            Some(ChildEvent::Exited(exit)) => {
                assert!(soon(events.recv()).await.is_none(), "something came after the exit");
                return exit;
            }
            Some(_) => {}
            None => panic!("no exit was told"),
        }
    }
}

fn value(update: &UpdateEvent) -> Value {
    serde_json::from_str(update.update.get()).unwrap()
}

/// The text of the turn's updates, up to its end.
async fn turn_text(
    events: &mut AgentEvents,
    turn: JoinHandle<Result<PromptEnd, AgentError>>,
) -> (String, Result<PromptEnd, AgentError>) {
    let mut turn = std::pin::pin!(turn);
    let mut text = String::new();
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(ChildEvent::Update(update)) => {
                    text.push_str(value(&update)["content"]["text"].as_str().unwrap_or_default());
                }
                Some(ChildEvent::PermissionRequest(ask)) => ask.reply.selected("proceed_once"),
                Some(ChildEvent::Call(call)) => panic!("a call was not offered: {call:?}"),
                Some(ChildEvent::Exited(_)) | None => return (text, soon(&mut turn).await.unwrap()),
            },
            end = &mut turn => return (text, end.unwrap()),
        }
    }
}

#[tokio::test]
async fn a_turn_is_relayed_in_order_up_to_its_end() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    assert_eq!(agent.about().name.as_deref(), Some("scripted"));
    assert_eq!(agent.about().capabilities["_meta"]["scripted"], json!(true));
    let turn = prompt(&agent, &session, "hi");
    let text = next_update(&mut events).await;
    assert_eq!(text.session_id, session);
    assert_eq!(
        text.update.get(),
        r#"{"content":{"text":"Hello from mock.","type":"text"},"sessionUpdate":"agent_message_chunk"}"#
    );
    assert!(!turn.is_finished(), "the turn ended before its last update was taken");
    assert_eq!(value(&next_update(&mut events).await)["_meta"]["usage"]["totalTokens"], json!(15));
    let end = soon(turn).await.unwrap().unwrap();
    assert_eq!(end, PromptEnd { stop_reason: "end_turn".into(), meta: None });
}

#[tokio::test]
async fn a_permission_request_comes_raw_and_its_answer_decides() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "run the approval scenario");
    let ask = next_ask(&mut events).await;
    let raw = json!({"toolCall": ask.tool_call, "options": ask.options, "meta": ask.meta});
    insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false}, {
        insta::assert_json_snapshot!("client_permission_of_the_peer", raw);
    });
    let withdrawal = ask.reply.withdrawal();
    ask.reply.selected("proceed_once");
    assert!(!soon(withdrawal.wait()).await, "an answered request is not withdrawn");
    let (text, end) = turn_text(&mut events, turn).await;
    assert_eq!((text.as_str(), end.unwrap().stop_reason.as_str()), ("Done after the tool.", "end_turn"));
}

#[tokio::test]
async fn every_way_not_to_allow_reaches_the_agent() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let answers: [fn(PermissionAsk); 4] = [
        |ask| ask.reply.selected("cancel"),
        |ask| ask.reply.cancelled(Some("timeout")),
        |ask| ask.reply.error(convoke_acp::RpcError { code: -32603, message: "no".into(), data: None }),
        drop,
    ];
    for answer in answers {
        let turn = prompt(&agent, &session, "approval");
        answer(next_ask(&mut events).await);
        let failed = value(&next_update(&mut events).await);
        assert_eq!(failed["status"], json!("failed"));
        assert_eq!(soon(turn).await.unwrap().unwrap().stop_reason, "end_turn");
    }
}

#[tokio::test]
async fn several_requests_are_open_at_once_and_answered_in_any_order() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "approvals at once");
    let first = next_ask(&mut events).await;
    let second = next_ask(&mut events).await;
    assert_ne!(first.tool_call["toolCallId"], second.tool_call["toolCallId"]);
    second.reply.selected("proceed_once");
    first.reply.selected("cancel");
    let statuses = [value(&next_update(&mut events).await), value(&next_update(&mut events).await)];
    assert_eq!([&statuses[0]["status"], &statuses[1]["status"]], ["failed", "completed"]);
    assert_eq!(soon(turn).await.unwrap().unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn a_withdrawn_request_says_so() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "withdraw");
    let ask = next_ask(&mut events).await;
    assert!(soon(ask.reply.withdrawal().wait()).await);
    ask.reply.cancelled(Some("agent_cancelled"));
    let (text, _) = turn_text(&mut events, turn).await;
    assert_eq!(text, "withdrawn: \"cancelled\"");
}

#[tokio::test]
async fn unknown_updates_keep_every_byte() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "unknown update");
    let update = next_update(&mut events).await;
    assert_eq!(
        update.update.get(),
        r#"{"sessionUpdate":"brand_new_thing","zzz":{"b":1,"a":[null,1.5]},"_meta":{"x":1}}"#
    );
    assert_eq!(update.meta.unwrap().get(), r#"{"beside":true}"#);
    turn_text(&mut events, turn).await.1.unwrap();
}

#[tokio::test]
async fn methods_that_are_not_offered_are_refused() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "read a file");
    assert_eq!(turn_text(&mut events, turn).await.0, "-32601");
}

#[tokio::test]
async fn an_error_answer_keeps_code_message_and_data() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "fail");
    let (_, end) = turn_text(&mut events, turn).await;
    let Err(AgentError::Refused { method, error }) = end else { panic!("{end:?}") };
    assert_eq!((method.as_str(), error.code, error.message.as_str()), ("session/prompt", 429, "quota exceeded"));
    assert_eq!(error.data, Some(json!({"retryDelayMs": 1000})));
}

#[tokio::test]
async fn cancel_ends_the_turn_of_its_session_only() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let other = soon(agent.new_session(Path::new("/work"), None)).await.unwrap().session_id;
    let (turn, rest) = (prompt(&agent, &session, "hang"), prompt(&agent, &other, "approval"));
    let ask = next_ask(&mut events).await;
    agent.cancel(&session).unwrap();
    assert_eq!(soon(turn).await.unwrap().unwrap().stop_reason, "cancelled");
    ask.reply.selected("proceed_once");
    assert_eq!(turn_text(&mut events, rest).await.1.unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn an_agent_that_ignores_cancel_is_not_waited_for() {
    let options = AgentOptions { cancel_timeout: Duration::from_millis(10), ..AgentOptions::default() };
    let (agent, mut events, session, _agents) = connect(Script::default(), options).await;
    let turn = prompt(&agent, &session, "ignore cancel");
    // The other session's answer proves that the prompt before it was taken.
    let other = soon(agent.new_session(Path::new("/work"), None)).await.unwrap().session_id;
    agent.cancel(&session).unwrap();
    assert!(matches!(soon(turn).await.unwrap(), Err(AgentError::CancelIgnored { .. })));
    let turn = prompt(&agent, &other, "hi");
    assert_eq!(turn_text(&mut events, turn).await.0, "Hello from mock.");
    assert_eq!(soon(agent.shutdown()).await.cause, EndCause::Closed);
}

#[tokio::test]
async fn modes_and_chosen_ids_travel() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let chosen = SessionId::from("0198c0de-0000-4000-8000-000000000001");
    let made = soon(agent.new_session(Path::new("/work"), Some(&chosen))).await.unwrap();
    assert_eq!(made.session_id, chosen);
    assert_eq!(made.modes.unwrap()["currentModeId"], json!("default"));
    assert!(made.models.is_none());
    soon(agent.set_mode(&session, "yolo")).await.unwrap();
    let update = value(&next_update(&mut events).await);
    assert_eq!(update, json!({"sessionUpdate": "current_mode_update", "currentModeId": "yolo"}));
}

#[tokio::test]
async fn rubbish_on_stdout_is_counted_and_ignored() {
    let script = Script { rubbish: true, ..Script::default() };
    let (agent, mut events, session, _agents) = connect(script, AgentOptions::default()).await;
    assert_eq!(agent.ignored_lines(), 5);
    let turn = prompt(&agent, &session, "rubbish");
    assert_eq!(turn_text(&mut events, turn).await.0, "Hello from mock.");
    assert_eq!(agent.ignored_lines(), 10);
}

#[tokio::test]
async fn a_flood_waits_for_its_reader() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "flood scenario n=5000 pad=2000");
    // Nobody reads, so the turn stays where the queue is full: until this test takes an update, none but these exist.
    let mut count = 0;
    for _ in 0..5000 {
        let update = value(&next_update(&mut events).await);
        let text = update["content"]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with(&format!("{count} ")), "update {count} is missing or out of order");
        count += 1;
        assert!(count == 5000 || !turn.is_finished());
    }
    assert_eq!(soon(turn).await.unwrap().unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn an_unread_flood_is_no_obstacle_to_the_end() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let turn = prompt(&agent, &session, "flood scenario n=1000000 pad=100");
    next_update(&mut events).await;
    assert_eq!(soon(agent.shutdown()).await.cause, EndCause::Closed);
    assert!(matches!(soon(turn).await.unwrap(), Err(AgentError::Gone { .. })));
    assert_eq!(next_exit(&mut events).await.cause, EndCause::Closed);
}

#[tokio::test]
async fn an_endless_line_ends_the_connection() {
    let options = AgentOptions { line_bytes_max: 100_000, ..AgentOptions::default() };
    let (agent, mut events, session, _agents) = connect(Script::default(), options).await;
    let turn = prompt(&agent, &session, "endless line");
    let exit = next_exit(&mut events).await;
    assert_eq!(exit.cause, EndCause::LineTooLong { limit: 100_000 });
    let error = soon(turn).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "call session/prompt: the agent wrote a line of more than 100000 bytes");
    assert!(matches!(soon(agent.new_session(Path::new("/"), None)).await, Err(AgentError::Gone { .. })));
}

#[tokio::test]
async fn an_agent_that_goes_takes_its_open_calls_with_it() {
    let (agent, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let (hanging, turn) = (prompt(&agent, &session, "hang"), prompt(&agent, &session, "approval"));
    let ask = next_ask(&mut events).await;
    prompt(&agent, &session, "exit 7");
    let exit = next_exit(&mut events).await;
    assert_eq!(exit.cause, EndCause::Exited);
    // An answer to nobody is no error.
    ask.reply.selected("proceed_once");
    for turn in [hanging, turn] {
        assert!(matches!(soon(turn).await.unwrap(), Err(AgentError::Gone { .. })));
    }
}

#[tokio::test]
async fn dropping_the_events_ends_the_agent() {
    let (agent, events, _session, mut agents) = connect(Script::default(), AgentOptions::default()).await;
    drop(events);
    assert_eq!(soon(agent.exited()).await.cause, EndCause::Closed);
    assert_eq!(soon(agents.join_next()).await.unwrap().unwrap(), 0, "its input ended");
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_agent() {
    let (agent, mut events, _session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let other = agent.clone();
    drop(agent);
    assert!(other.cancel(&SessionId::from("x")).is_ok());
    drop(other);
    assert_eq!(next_exit(&mut events).await.cause, EndCause::Closed);
}

#[tokio::test]
async fn another_version_is_refused() {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (agent_input, agent_output) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let mut agents = JoinSet::new();
    let script = Script { protocol_version: 2, ..Script::default() };
    agents.spawn(run_scripted_agent(script, agent_input, agent_output));
    let error = soon(AgentChild::connect(output, input, AgentOptions::default())).await.unwrap_err();
    assert_eq!(error.to_string(), "start the agent: it speaks protocol version 2, not 1");
}

#[tokio::test]
async fn a_child_that_exits_at_once_is_reported_with_status_and_last_words() {
    let Err(StartError::Exited(exit)) = start(command(&["--exit-at-start=3"])).await else { panic!() };
    assert_eq!((exit.exit_code, exit.signal), (Some(3), None));
    assert_eq!(exit.stderr_tail, "starting\nboom: no such model\n");
    assert_eq!(exit.to_string(), "the agent exited (exit code 3): boom: no such model");
}

#[tokio::test]
async fn a_program_that_can_not_run_is_named() {
    let error = start(AgentCommand { program: "/no/such/agent".into(), ..shell("") }).await.unwrap_err();
    assert_eq!(error.to_string(), "run /no/such/agent");
}

#[tokio::test]
async fn a_child_works_and_is_shut_down() {
    let (agent, mut events) = start(command(&[])).await.unwrap();
    let session = soon(agent.new_session(Path::new("/work"), None)).await.unwrap().session_id;
    let turn = prompt(&agent, &session, "approval");
    assert_eq!(turn_text(&mut events, turn).await.0, "Done after the tool.");
    let exit = soon(agent.shutdown()).await;
    assert_eq!((exit.cause.clone(), exit.exit_code), (EndCause::Closed, Some(0)));
    assert_eq!(next_exit(&mut events).await, exit);
    assert_eq!(soon(agent.shutdown()).await, exit, "twice is fine");
}

#[tokio::test]
async fn a_child_that_exits_in_a_turn_ends_it() {
    let (agent, mut events) = start(command(&[])).await.unwrap();
    let session = soon(agent.new_session(Path::new("/work"), None)).await.unwrap().session_id;
    let turn = prompt(&agent, &session, "exit 9");
    let exit = next_exit(&mut events).await;
    assert_eq!((exit.cause.clone(), exit.exit_code), (EndCause::Exited, Some(9)));
    let Err(AgentError::Gone { exit: told, .. }) = soon(turn).await.unwrap() else { panic!() };
    assert_eq!(told, exit);
}

#[tokio::test]
async fn a_child_that_ignores_the_end_of_its_stdin_is_killed() {
    let options = AgentOptions { close_grace: Duration::from_millis(50), ..AgentOptions::default() };
    let (agent, _events) = start_with(command(&["--ignore-eof"]), options).await.unwrap();
    let exit = soon(agent.shutdown()).await;
    assert_eq!((exit.cause.clone(), exit.signal), (EndCause::Closed, Some(9)));
}

#[tokio::test]
async fn a_child_that_never_answers_initialize_is_ended() {
    let options = AgentOptions { initialize_timeout: Duration::from_millis(50), ..AgentOptions::default() };
    let Err(StartError::InitializeTimeout { after, .. }) = start_with(command(&["--silent"]), options).await else {
        panic!()
    };
    assert_eq!(after, Duration::from_millis(50));
}

#[tokio::test]
async fn an_endless_line_of_a_child_ends_it() {
    let options = AgentOptions { line_bytes_max: 1_000_000, ..AgentOptions::default() };
    let started = start_with(command(&["--endless-line"]), options).await;
    let Err(StartError::Exited(exit)) = started else { panic!() };
    assert_eq!(exit.cause, EndCause::LineTooLong { limit: 1_000_000 });
}

#[tokio::test]
async fn a_child_sees_the_environment_it_should() {
    let echo = shell("echo \"home=$HOME added=$ADDED path=${PATH:+set}\" >&2; exit 1");
    let echo = AgentCommand { env_remove: vec!["HOME".into()], env_set: vec![("ADDED".into(), "yes".into())], ..echo };
    let Err(StartError::Exited(exit)) = start(echo).await else { panic!() };
    assert_eq!(exit.stderr_tail, "home= added=yes path=set\n");
}

/// Answers the handshake by hand, then writes `rest` and keeps reading.
async fn raw_agent(stream: tokio::io::DuplexStream, rest: Vec<u8>) {
    let (input, mut output) = tokio::io::split(stream);
    let mut lines = BufReader::new(input).lines();
    let initialize: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": initialize["id"], "result": {"protocolVersion": 1}});
    let read = async { while let Ok(Some(_)) = lines.next_line().await {} };
    let write = async {
        // The connection may end in the middle.
        let _ = output.write_all(&[format!("{answer}\n").into_bytes(), rest].concat()).await;
    };
    tokio::join!(read, write);
}

async fn connect_raw(rest: impl Into<Vec<u8>>) -> (AgentChild, AgentEvents, JoinSet<()>) {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (output, input) = tokio::io::split(ours);
    let mut agents = JoinSet::new();
    agents.spawn(raw_agent(theirs, rest.into()));
    let (agent, events) = soon(AgentChild::connect(output, input, AgentOptions::default())).await.unwrap();
    (agent, events, agents)
}

fn ask_line(id: &Value) -> String {
    let params = json!({"sessionId": "s", "toolCall": {}, "options": []});
    let ask = json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params});
    format!("{ask}\n")
}

#[tokio::test]
async fn open_requests_without_end_are_cut_off() {
    let flood: String = (0..2000).map(|n| ask_line(&json!(n))).collect();
    let (_agent, mut events, _agents) = connect_raw(flood).await;
    let mut open = Vec::new();
    let exit = loop {
        match soon(events.recv()).await {
            Some(ChildEvent::PermissionRequest(ask)) => open.push(ask),
            Some(ChildEvent::Exited(exit)) => break exit,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(exit.cause, EndCause::TooManyRequests { limit: 1024 });
    assert_eq!(open.len(), 1024);
}

#[tokio::test]
async fn answered_requests_make_room_for_more() {
    let many: String = (0..2000).map(|n| ask_line(&json!(n))).collect();
    let (_agent, mut events, _agents) = connect_raw(many).await;
    for _ in 0..2000 {
        next_ask(&mut events).await.reply.selected("x");
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_reach_nobody() {
    let update = |id: &str| format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":\"session/update\",\"params\":{{}}}}\n");
    let lines = [
        // Twice the same id while it is open, no id, a fraction, and a request of a client's own method.
        ask_line(&json!("a")),
        ask_line(&json!("a")),
        ask_line(&Value::Null),
        ask_line(&json!(1.5)),
        "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"initialize\",\"params\":{}}\n".to_owned(),
        update(""),
        update("\"id\":9,"),
        "{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":\"other\"}}\n".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"method\":\"_vendor/news\"}\n".to_owned(),
        ask_line(&json!("b")),
    ];
    let (agent, mut events, _agents) = connect_raw(lines.concat()).await;
    let first = next_ask(&mut events).await;
    let second = next_ask(&mut events).await;
    assert_eq!(agent.ignored_lines(), 4);
    drop((first, second));
    assert!(events.try_recv().is_none());
}

#[tokio::test]
async fn broken_lines_of_every_kind_are_survived() {
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "é"}});
    let good = [
        ask_line(&json!("x")),
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
        ),
        format!("{}\n", json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "x"}})),
        format!("{}\n", json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "m"}})),
        format!("{}\n", json!({"jsonrpc": "2.0", "id": 9, "method": "fs/read_text_file", "params": {"path": "/"}})),
    ];
    for seed in 1..=20_u64 {
        // xorshift64: enough to hit every place of a short line.
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut noise = Vec::new();
        for _ in 0..200 {
            let mut line = good[random(good.len())].clone().into_bytes();
            for _ in 0..=random(3) {
                let at = random(line.len() - 1);
                match random(3) {
                    0 => line[at] = u8::try_from(random(256)).unwrap(),
                    1 => _ = line.remove(at),
                    _ => line.insert(at, b"\\\"{}[]:,0\n"[random(10)]),
                }
            }
            line.push(b'\n');
            noise.extend(line);
        }
        noise.extend(ask_line(&json!("the last one")).replace("\"s\"", "\"last\"").into_bytes());
        let (_agent, mut events, _agents) = connect_raw(noise).await;
        loop {
            match soon(events.recv()).await {
                Some(ChildEvent::PermissionRequest(ask)) if ask.session_id.as_str() == "last" => break,
                Some(ChildEvent::PermissionRequest(_) | ChildEvent::Update(_)) => {}
                other => panic!("seed {seed}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_panic_on_one_connection_leaves_the_others_alone() {
    /// A stream that breaks its contract on the first read after the handshake.
    struct Panics<R>(R, usize);
    impl<R: AsyncRead + Unpin> AsyncRead for Panics<R> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let polled = Pin::new(&mut self.0).poll_read(cx, buf);
            if polled.is_ready() {
                assert!(self.1 > 0, "a bug, on purpose");
                self.1 -= 1;
            }
            polled
        }
    }
    let (healthy, mut events, session, _agents) = connect(Script::default(), AgentOptions::default()).await;
    let (ours, theirs) = tokio::io::duplex(4096);
    let (agent_input, agent_output) = tokio::io::split(theirs);
    let (output, input) = tokio::io::split(ours);
    let mut agents = JoinSet::new();
    agents.spawn(run_scripted_agent(Script::default(), agent_input, agent_output));
    let connected = AgentChild::connect(Panics(output, 1), input, AgentOptions::default());
    let (agent, mut broken) = soon(connected).await.unwrap();
    let error = soon(agent.new_session(Path::new("/"), None)).await.unwrap_err();
    assert!(matches!(error, AgentError::Gone { .. }), "{error}");
    assert!(matches!(next_exit(&mut broken).await.cause, EndCause::Broken(_)));
    let turn = prompt(&healthy, &session, "hi");
    assert_eq!(turn_text(&mut events, turn).await.0, "Hello from mock.");
}
