//! Does a client see our sessions as ACP says? Against a scripted runtime, over an in-memory pipe.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests, outside of test functions"
)]

#[path = "agent/client.rs"]
mod client;
#[path = "agent/v2.rs"]
mod draft;
#[path = "agent/past.rs"]
mod past;
#[path = "agent/rubbish.rs"]
mod rubbish;
#[path = "agent/runtime.rs"]
mod runtime;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use convoke_acp::{
    AgentChild, AgentError, AgentEvents, AgentOptions, ChildEvent, PermissionAsk, PromptEnd, ServeError,
};
use convoke_protocol::SessionId;
use runtime::Runtime;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// No test waits for time to pass; this only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(SOON, what).await.expect("it hangs")
}

type Serving = JoinSet<Result<(), ServeError>>;

/// Both ends of this room, joined.
struct Joined {
    runtime: Arc<Runtime>,
    agent: AgentChild,
    events: AgentEvents,
    shutdown: CancellationToken,
    serving: Serving,
}

fn serve(runtime: &Arc<Runtime>, pipe: DuplexStream) -> (Serving, CancellationToken) {
    let (input, output) = tokio::io::split(pipe);
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(convoke_acp::serve(Arc::clone(runtime) as _, input, output, shutdown.clone()));
    (serving, shutdown)
}

async fn join() -> Joined {
    let runtime = Arc::new(Runtime::default());
    let (ours, theirs) = tokio::io::duplex(4096);
    let (serving, shutdown) = serve(&runtime, theirs);
    let (output, input) = tokio::io::split(ours);
    let (agent, events) = soon(AgentChild::connect(output, input, AgentOptions::default())).await.unwrap();
    Joined { runtime, agent, events, shutdown, serving }
}

impl Joined {
    async fn session(&self) -> SessionId {
        soon(self.agent.new_session(Path::new("/work"), None)).await.unwrap().session_id
    }

    fn prompt(&self, session: &SessionId, text: &str) -> JoinHandle<Result<PromptEnd, AgentError>> {
        let (agent, session) = (self.agent.clone(), session.clone());
        let blocks = json!([{"type": "text", "text": text}]);
        tokio::spawn(async move { agent.prompt(&session, blocks, None).await })
    }

    async fn update(&mut self) -> Value {
        match soon(self.events.recv()).await {
            Some(ChildEvent::Update(update)) => serde_json::from_str(update.update.get()).unwrap(),
            other => panic!("expected an update, got {other:?}"),
        }
    }

    async fn ask(&mut self) -> PermissionAsk {
        loop {
            match soon(self.events.recv()).await {
                Some(ChildEvent::Update(_)) => {}
                Some(ChildEvent::PermissionRequest(ask)) => return *ask,
                other => panic!("expected a permission request, got {other:?}"),
            }
        }
    }

    /// Takes updates until the turn ends.
    async fn end(&mut self, turn: JoinHandle<Result<PromptEnd, AgentError>>) -> Result<PromptEnd, AgentError> {
        let mut turn = std::pin::pin!(turn);
        soon(async {
            loop {
                tokio::select! {
                    Some(event) = self.events.recv() => {
                        assert!(!matches!(event, ChildEvent::PermissionRequest(_)), "{event:?}");
                    }
                    end = &mut turn => return end.unwrap(),
                }
            }
        })
        .await
    }

    async fn stop_reason(&mut self, session: &SessionId, text: &str) -> String {
        let turn = self.prompt(session, text);
        self.end(turn).await.unwrap().stop_reason
    }
}

fn refused(answer: Result<impl std::fmt::Debug, AgentError>) -> convoke_acp::RpcError {
    match answer {
        Err(AgentError::Refused { error, .. }) => *error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_end_of_a_stream_has_its_stop_reason() {
    let mut joined = join().await;
    let session = joined.session().await;
    for (reason, stop) in [
        ("completed", "end_turn"),
        ("max_turns", "max_turn_requests"),
        ("max_time", "max_turn_requests"),
        ("max_budget", "max_tokens"),
        ("refusal", "refusal"),
        ("aborted", "cancelled"),
    ] {
        assert_eq!(joined.stop_reason(&session, &format!("end {reason}")).await, stop, "{reason}");
    }
    let turn = joined.prompt(&session, "end max_turns");
    let end = joined.end(turn).await.unwrap();
    assert_eq!(end.meta, Some(json!({"convoke.end": {"code": "END"}})));
}

#[tokio::test]
async fn a_failed_turn_is_an_error_with_its_reason() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "fail quota");
    let error = refused(joined.end(turn).await);
    assert_eq!((error.code, error.message.as_str()), (429, "no quota is left"));
    assert_eq!(error.data.unwrap(), json!({"status": "RESOURCE_EXHAUSTED", "retryDelayMs": 1500, "code": "END"}));
    assert_eq!(joined.stop_reason(&session, "end completed").await, "end_turn", "the session lives on");
}

#[tokio::test]
async fn a_second_prompt_is_refused_and_the_first_goes_on() {
    let mut joined = join().await;
    let session = joined.session().await;
    let first = joined.prompt(&session, "ask once");
    let ask = joined.ask().await;
    let second = joined.prompt(&session, "end completed");
    let error = refused(soon(second).await.unwrap());
    assert_eq!((error.code, error.data), (-32600, Some(json!({"code": "busy"}))));
    ask.reply.selected("proceed_once");
    assert_eq!(joined.end(first).await.unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn a_question_comes_behind_the_call_it_is_about() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "ask once");
    assert_eq!(joined.update().await["sessionUpdate"], "agent_thought_chunk");
    assert_eq!(joined.update().await["sessionUpdate"], "tool_call");
    let ask = match soon(joined.events.recv()).await {
        Some(ChildEvent::PermissionRequest(ask)) => *ask,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask.session_id, session);
    ask.reply.selected("proceed_once");
    let done = joined.update().await;
    assert_eq!(
        (&done["status"], &done["content"][0]["content"]["text"]),
        (&json!("completed"), &json!("proceed_once"))
    );
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn several_questions_are_open_at_once() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "ask thrice");
    let [a, b, c] = [joined.ask().await, joined.ask().await, joined.ask().await];
    c.reply.selected("proceed_always");
    a.reply.selected("cancel");
    drop(b);
    let mut results = Vec::new();
    for _ in 0..3 {
        let update = joined.update().await;
        results.push(format!("{} {}", update["toolCallId"], update["content"][0]["content"]["text"]));
    }
    results.sort();
    assert_eq!(results, [r#""call-0" "cancel""#, r#""call-1" "cancelled""#, r#""call-2" "proceed_always""#]);
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn an_option_that_is_not_on_offer_is_no_answer() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "ask once");
    joined.ask().await.reply.selected("everything");
    assert_eq!(joined.update().await["content"][0]["content"]["text"], "cancelled");
    joined.end(turn).await.unwrap();
}

#[tokio::test]
async fn cancel_resolves_questions_without_the_client() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "ask thrice");
    let asks = [joined.ask().await, joined.ask().await, joined.ask().await];
    joined.agent.cancel(&session).unwrap();
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "cancelled");
    // The client was told by `$/cancel_request`, though it never answered.
    for ask in &asks {
        assert!(soon(ask.reply.withdrawal().wait()).await);
    }
    drop(asks);
    assert_eq!(joined.stop_reason(&session, "end completed").await, "end_turn");
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_is_withdrawn() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "ask and forget");
    let ask = joined.ask().await;
    assert!(soon(ask.reply.withdrawal().wait()).await);
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "end_turn");
}

#[tokio::test]
async fn cancel_ends_a_turn_and_is_harmless_otherwise() {
    let mut joined = join().await;
    let session = joined.session().await;
    joined.agent.cancel(&session).unwrap();
    joined.agent.cancel(&SessionId::from("nobody")).unwrap();
    let turn = joined.prompt(&session, "hang");
    assert_eq!(joined.update().await["content"]["text"], "hanging");
    joined.agent.cancel(&session).unwrap();
    joined.agent.cancel(&session).unwrap();
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "cancelled");
}

#[tokio::test]
async fn withdrawing_the_prompt_cancels_the_turn() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "hang");
    assert_eq!(joined.update().await["content"]["text"], "hanging");
    // Dropping the call sends `$/cancel_request`.
    turn.abort();
    soon(joined.runtime.aborted()).await;
    assert_eq!(joined.stop_reason(&session, "end completed").await, "end_turn");
}

#[tokio::test]
async fn modes_are_switched_and_reported() {
    let mut joined = join().await;
    let made = soon(joined.agent.new_session(Path::new("/work"), None)).await.unwrap();
    insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false}, {
        insta::assert_json_snapshot!("agent_session_new", made.raw, {".sessionId" => "[id]"});
    });
    let session = made.session_id;
    soon(joined.agent.set_mode(&session, "autoEdit")).await.unwrap();
    assert_eq!(joined.update().await, json!({"sessionUpdate": "current_mode_update", "currentModeId": "autoEdit"}));
    let error = refused(soon(joined.agent.set_mode(&session, "bold")).await);
    assert_eq!(error.data.unwrap()["allowed"], json!(["plan", "default", "autoEdit"]));
    let error = refused(soon(joined.agent.set_mode(&session, "yolo")).await);
    assert_eq!(error.code, -32602);
    // The runtime itself may switch, too.
    let turn = joined.prompt(&session, "switch to plan");
    assert_eq!(joined.update().await, json!({"sessionUpdate": "session_info_update", "title": "Planning"}));
    assert_eq!(joined.update().await, json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"}));
    joined.end(turn).await.unwrap();
}

#[tokio::test]
async fn options_are_set_and_told() {
    let joined = join().await;
    let session = joined.session().await;
    let set = async |id: &str, value: Value| {
        let params = json!({"sessionId": session, "configId": id, "value": value});
        soon(joined.agent.request("session/set_config_option", params)).await
    };
    let set_to = set("thought_level", json!("high")).await.unwrap();
    assert_eq!(set_to["configOptions"][0]["currentValue"], "high");
    assert_eq!(set_to["configOptions"][0]["type"], "select");
    let error = refused(set("colour", json!("red")).await);
    assert_eq!((error.code, error.data), (-32602, Some(json!({"code": "unknown_option"}))));
}

#[tokio::test]
async fn sessions_are_made_as_asked_for() {
    let joined = join().await;
    let chosen = SessionId::from("0198c0de-0000-4000-8000-000000000001");
    let made = soon(joined.agent.new_session(Path::new("/work"), Some(&chosen))).await.unwrap();
    assert_eq!(made.session_id, chosen);
    let error = refused(soon(joined.agent.new_session(Path::new("/work"), Some(&chosen))).await);
    assert_eq!(
        (error.code, error.message.as_str()),
        (-32600, "create session 0198c0de-0000-4000-8000-000000000001: the id is in use")
    );
    let error = refused(soon(joined.agent.new_session(Path::new("work"), None)).await);
    assert_eq!((error.code, error.message.as_str()), (-32602, "cwd must be an absolute path, not \"work\""));
    let error = refused(soon(joined.agent.new_session(Path::new("/no/credential"), None)).await);
    assert_eq!((error.code, error.message.as_str()), (-32000, "set GEMINI_API_KEY"));
    let error = refused(soon(joined.agent.prompt(&"nobody".into(), json!([]), None)).await);
    assert_eq!((error.code, error.data), (-32002, Some(json!({"code": "session_not_found", "sessionId": "nobody"}))));
    let error = refused(soon(joined.agent.prompt(&chosen, json!([]), None)).await);
    assert_eq!((error.code, error.message.as_str()), (-32602, "the prompt is empty"));
}

#[tokio::test]
async fn what_is_not_offered_is_refused_clearly() {
    let joined = join().await;
    let load = json!({"sessionId": "x", "cwd": "/", "mcpServers": []});
    assert_eq!(refused(soon(joined.agent.request("session/load", load)).await).code, -32601);
    assert_eq!(refused(soon(joined.agent.request("_vendor/thing", json!({}))).await).code, -32601);
    let error = refused(soon(joined.agent.request("authenticate", json!({"methodId": "oauth-personal"}))).await);
    assert_eq!(error.code, -32602);
    assert_eq!(error.message, "authenticate by \"oauth-personal\": there is no such method");
    let odd = refused(soon(joined.agent.request("session/prompt", json!({"prompt": 5}))).await);
    assert_eq!(odd.code, -32602);
}

#[tokio::test]
async fn a_session_is_closed_and_its_turn_ends() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "hang");
    joined.update().await;
    soon(joined.agent.close_session(&session)).await.unwrap();
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "cancelled");
    assert_eq!(joined.runtime.closed(), std::slice::from_ref(&session));
    assert_eq!(refused(soon(joined.agent.prompt(&session, json!([]), None)).await).code, -32002);
}

#[tokio::test]
async fn the_end_of_the_input_closes_every_session() {
    let mut joined = join().await;
    let (first, second) = (joined.session().await, joined.session().await);
    let turn = joined.prompt(&first, "hang");
    joined.update().await;
    soon(joined.agent.shutdown()).await;
    soon(joined.serving.join_next()).await.unwrap().unwrap().unwrap();
    let mut closed = joined.runtime.closed();
    closed.sort();
    let mut both = [first, second];
    both.sort();
    assert_eq!(closed, both);
    assert!(matches!(soon(turn).await.unwrap(), Err(AgentError::Gone { .. }) | Ok(_)));
}

#[tokio::test]
async fn a_shutdown_answers_what_runs_and_closes() {
    let mut joined = join().await;
    let session = joined.session().await;
    let turn = joined.prompt(&session, "ask once");
    let ask = joined.ask().await;
    joined.shutdown.cancel();
    assert_eq!(joined.end(turn).await.unwrap().stop_reason, "cancelled");
    assert!(soon(ask.reply.withdrawal().wait()).await);
    soon(joined.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(joined.runtime.closed(), [session]);
}

#[tokio::test]
async fn a_panic_in_one_session_leaves_the_others_alone() {
    let mut joined = join().await;
    let (broken, healthy) = (joined.session().await, joined.session().await);
    let turn = joined.prompt(&broken, "panic");
    let error = refused(joined.end(turn).await);
    assert_eq!(error.code, -32603);
    assert_eq!(joined.stop_reason(&healthy, "end completed").await, "end_turn");
    assert_eq!(refused(soon(joined.agent.prompt(&broken, json!([]), None)).await).code, -32002);
}

#[tokio::test]
async fn a_stream_that_ends_before_it_is_known_still_ends_its_turn() {
    let mut joined = join().await;
    let session = joined.session().await;
    assert_eq!(joined.stop_reason(&session, "hasty").await, "end_turn");
}

/// A client by hand, for what only the raw wire shows.
struct Raw {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    input: WriteHalf<DuplexStream>,
    serving: Serving,
}

fn raw(pipe_bytes: usize) -> (Arc<Runtime>, Raw) {
    raw_of(Runtime::default(), pipe_bytes)
}

fn raw_of(runtime: Runtime, pipe_bytes: usize) -> (Arc<Runtime>, Raw) {
    let runtime = Arc::new(runtime);
    let (ours, theirs) = tokio::io::duplex(pipe_bytes);
    let (serving, _) = serve(&runtime, theirs);
    let (output, input) = tokio::io::split(ours);
    (runtime, Raw { lines: BufReader::new(output).lines(), input, serving })
}

impl Raw {
    async fn send(&mut self, message: Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: u64, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    async fn tell(&mut self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    async fn read(&mut self) -> Value {
        let line = soon(self.lines.next_line()).await.unwrap().expect("the agent closed its output");
        serde_json::from_str(&line).unwrap()
    }

    async fn begin(&mut self) {
        self.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
        self.read().await;
        self.call(2, "session/new", json!({"cwd": "/work", "mcpServers": []})).await;
        self.read().await;
    }
}

#[tokio::test]
async fn a_turn_on_the_wire() {
    let (_runtime, mut client) = raw(4096);
    let mut wire = Vec::new();
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    wire.push(client.read().await);
    let meta = json!({"convoke.sessionId": "s1"});
    client.call(2, "session/new", json!({"cwd": "/work", "mcpServers": [], "_meta": meta})).await;
    wire.push(client.read().await);
    let prompt = json!([{"type": "text", "text": "everything"}]);
    client.call(3, "session/prompt", json!({"sessionId": "s1", "prompt": prompt})).await;
    loop {
        let mut message = client.read().await;
        if message["method"] == "session/request_permission" {
            let outcome = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
            client.send(json!({"jsonrpc": "2.0", "id": message["id"], "result": outcome})).await;
            message["id"] = json!("[id]");
        }
        if message["method"] == "session/update" {
            use agent_client_protocol::v1::schema::SessionNotification;
            let typed: SessionNotification = serde_json::from_value(message["params"].clone()).unwrap();
            let again = serde_json::to_value(typed).unwrap();
            assert_eq!(sorted(&again), sorted(&message["params"]), "ACP's own types lose something of it");
        }
        let last = message["id"] == 3;
        wire.push(message);
        if last {
            break;
        }
    }
    let lines: Vec<_> = wire.iter().map(Value::to_string).collect();
    insta::with_settings!({snapshot_path => "golden", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("agent_turn", lines.join("\n"));
    });
}

/// Without the order of keys, and without the values that ACP's types leave out as defaults.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let default = |value: &Value| *value == json!([]) || *value == json!("pending");
            let kept = map.iter().filter(|(_, value)| !default(value));
            let mut entries: Vec<_> = kept.map(|(key, value)| format!("{key}:{}", sorted(value))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[tokio::test]
async fn rubbish_from_a_client_is_answered_and_survived() {
    let (_runtime, mut client) = raw(4096);
    client.begin().await;
    client.input.write_all(b"no json\n\n{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\n[]\n").await.unwrap();
    let codes = [client.read().await, client.read().await].map(|answer| answer["error"]["code"].clone());
    assert_eq!(codes, [json!(-32700), json!(-32600)]);
    client.call(3, "session/new", json!({"cwd": "/work", "mcpServers": []})).await;
    assert_eq!(client.read().await["id"], 3);
}

#[tokio::test]
async fn nothing_works_before_initialize() {
    let (_runtime, mut client) = raw(4096);
    client.call(1, "session/new", json!({"cwd": "/work", "mcpServers": []})).await;
    assert!(client.read().await["error"]["code"].is_i64());
}

#[tokio::test]
async fn a_client_that_does_not_read_still_cancels() {
    let (runtime, mut client) = raw(1024);
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    client.read().await;
    let meta = json!({"convoke.sessionId": "s1"});
    client.call(2, "session/new", json!({"cwd": "/work", "mcpServers": [], "_meta": meta})).await;
    client.read().await;
    let prompt = json!([{"type": "text", "text": "flood"}]);
    client.call(3, "session/prompt", json!({"sessionId": "s1", "prompt": prompt})).await;
    soon(runtime.flooded()).await;
    client.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})).await;
    soon(runtime.aborted()).await;
    // Whoever reads at last finds all of it, in order, and the end behind it.
    let mut next = 0;
    loop {
        let message = client.read().await;
        if message["id"] == 3 {
            assert_eq!(message["result"]["stopReason"], "cancelled");
            break;
        }
        assert_eq!(message["params"]["update"]["content"]["text"], json!(format!("chunk {next}")));
        next += 1;
    }
    assert_eq!(next, runtime::FLOOD);
}

#[tokio::test]
async fn a_client_that_leaves_without_reading_is_no_obstacle() {
    let (runtime, mut client) = raw(1024);
    client.begin().await;
    client.input.shutdown().await.unwrap();
    soon(client.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(runtime.closed().len(), 1);
    let mut rest = String::new();
    soon(client.lines.into_inner().read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, "");
}
