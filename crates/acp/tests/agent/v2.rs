//! Does the SDK's own client of draft version 2 have a whole conversation, and does nobody else notice?

use agent_client_protocol as sdk;
use sdk::schema::{MaybeUndefined, ProtocolVersion};
use sdk::v2::{ConnectionTo, InitializeOutcome, Responder, schema};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

use super::*;

type Asked = (schema::RequestPermissionRequest, Responder<schema::RequestPermissionResponse>);

/// What a client hears beside its answers.
struct Heard {
    updates: UnboundedReceiver<schema::UpdateSessionNotification>,
    questions: UnboundedReceiver<Asked>,
}

impl Heard {
    async fn update(&mut self) -> schema::SessionUpdate {
        soon(self.updates.recv()).await.expect("the agent goes on").update
    }

    /// Updates until a state, and that state in words.
    async fn until_state(&mut self) -> (Vec<schema::SessionUpdate>, String) {
        let mut before = Vec::new();
        loop {
            match self.update().await {
                schema::SessionUpdate::StateUpdate(state) => {
                    let told = serde_json::to_value(state).unwrap();
                    let words = [told["state"].as_str(), told["stopReason"].as_str()];
                    return (before, words.into_iter().flatten().collect::<Vec<_>>().join(" "));
                }
                other => before.push(other),
            }
        }
    }

    async fn state(&mut self) -> String {
        self.until_state().await.1
    }
}

fn serve_v2(runtime: &Arc<Runtime>, pipe: DuplexStream) -> (Serving, CancellationToken) {
    let (input, output) = tokio::io::split(pipe);
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(convoke_acp::serve_with_v2(Arc::clone(runtime) as _, input, output, shutdown.clone()));
    (serving, shutdown)
}

fn raw_v2(runtime: Runtime, pipe_bytes: usize) -> (Arc<Runtime>, Raw, CancellationToken) {
    let runtime = Arc::new(runtime);
    let (ours, theirs) = tokio::io::duplex(pipe_bytes);
    let (serving, shutdown) = serve_v2(&runtime, theirs);
    let (output, input) = tokio::io::split(ours);
    (runtime, Raw { lines: BufReader::new(output).lines(), input, serving }, shutdown)
}

/// Lets a client of the SDK talk over `pipe`.
async fn talk(pipe: DuplexStream, talk: impl AsyncFnOnce(ConnectionTo<sdk::Agent>, Heard) -> sdk::Result<()>) {
    let (output, input) = tokio::io::split(pipe);
    let transport = sdk::ByteStreams::new(input.compat_write(), output.compat());
    let (tell, updates) = unbounded_channel();
    let (ask, questions) = unbounded_channel();
    let talked = sdk::Client
        .v2()
        .name("a test")
        .on_receive_notification(
            async move |told: schema::UpdateSessionNotification, _: ConnectionTo<sdk::Agent>| {
                tell.send(told).map_err(sdk::Error::into_internal_error)
            },
            sdk::on_receive_notification!(),
        )
        .on_receive_request(
            async move |asked: schema::RequestPermissionRequest,
                        responder: Responder<schema::RequestPermissionResponse>,
                        _: ConnectionTo<sdk::Agent>| {
                ask.send((asked, responder)).map_err(|_| sdk::Error::internal_error())
            },
            sdk::on_receive_request!(),
        )
        .connect_with(transport, async move |agent| talk(agent, Heard { updates, questions }).await);
    soon(talked).await.unwrap();
}

async fn introduce(agent: &ConnectionTo<sdk::Agent>) -> sdk::Result<InitializeOutcome> {
    let info = schema::Implementation::new("test", "1");
    agent.send_initialize(schema::InitializeRequest::new(ProtocolVersion::V2, info)).block_task().await
}

fn yes(option: &str) -> schema::RequestPermissionResponse {
    let selected = schema::SelectedPermissionOutcome::new(option.to_owned());
    schema::RequestPermissionResponse::new(schema::RequestPermissionOutcome::Selected(selected))
}

#[tokio::test]
async fn a_whole_conversation() {
    let runtime = Arc::new(Runtime::default());
    let (ours, theirs) = tokio::io::duplex(4096);
    let (mut serving, _) = serve_v2(&runtime, theirs);
    talk(ours, async |agent, mut heard| {
        let InitializeOutcome::Initialized(welcome) = introduce(&agent).await? else { panic!("the draft is on offer") };
        assert_eq!((welcome.info.name.as_str(), welcome.info.version.as_str()), ("fake", "1.2.3"));
        assert!(welcome.capabilities.session.is_some_and(|session| session.mcp.is_some()));
        let opened = agent.build_session("/work").start_session().block_task().await?;
        assert_eq!(opened.response.config_options[0].config_id.0.as_ref(), "thought_level");
        let session = opened.session;

        let accepted = session.send_prompt("everything").block_task().await?;
        let (said, state) = heard.until_state().await;
        assert_eq!(state, "running");
        let schema::SessionUpdate::UserMessage(echo) = &said[0] else { panic!("{said:?}") };
        assert_eq!(echo.message_id, accepted.message_id);
        let (before, state) = heard.until_state().await;
        assert_eq!(state, "requires_action");
        let call = before.iter().find_map(|update| match update {
            schema::SessionUpdate::ToolCallUpdate(call) => Some(call),
            _ => None,
        });
        let call = call.expect("a call is told before it is asked about");
        assert_eq!(call.name, MaybeUndefined::Value("replace".to_owned()));
        let (asked, responder) = soon(heard.questions.recv()).await.unwrap();
        assert_eq!(asked.title, "src/main.rs: a => b");
        responder.respond(yes("proceed_once"))?;
        assert_eq!(heard.state().await, "running");
        let (after, state) = heard.until_state().await;
        assert_eq!(state, "idle end_turn");
        let told = serde_json::to_value(&after).unwrap();
        let told = told.as_array().unwrap();
        let patch = told.iter().find_map(|update| update["content"][0]["patch"]["text"].as_str()).unwrap();
        assert!(patch.ends_with("@@ -1,1 +1,1 @@\n-a\n+b\n"), "{patch}");
        assert!(told.iter().any(|update| update["sessionUpdate"] == "notice"));
        assert!(told.iter().any(|update| update["sessionUpdate"] == "usage_update"));
        assert!(told.iter().any(|update| update["content"]["text"] == "Done."));
        assert!(!after.iter().any(|update| matches!(update, schema::SessionUpdate::Other(_))), "{after:?}");

        // A turn that is cancelled, and with it the prompt behind it, but not the one behind the cancellation.
        session.send_prompt("hang").block_task().await?;
        assert_eq!(heard.state().await, "running");
        let held = session.send_prompt("never");
        session.cancel_active_work()?;
        let next = session.send_prompt("end max_turns");
        assert_eq!(i32::from(held.block_task().await.unwrap_err().code), -32800);
        assert_eq!(heard.state().await, "idle cancelled");
        next.block_task().await?;
        assert_eq!(heard.state().await, "running");
        assert_eq!(heard.state().await, "idle max_turn_requests");

        session.send_prompt("fail quota").block_task().await?;
        assert_eq!(heard.state().await, "running");
        assert_eq!(heard.state().await, "idle error");

        // A question that a cancellation takes back.
        session.send_prompt("ask once").block_task().await?;
        assert_eq!(heard.state().await, "running");
        assert_eq!(heard.state().await, "requires_action");
        let (_, responder) = soon(heard.questions.recv()).await.unwrap();
        session.cancel_active_work()?;
        responder.respond(schema::RequestPermissionResponse::new(schema::CancelledPermissionOutcome::new().into()))?;
        while heard.state().await != "idle cancelled" {}

        session.send_prompt("hang").block_task().await?;
        assert_eq!(heard.state().await, "running");
        session.close().block_task().await?;
        assert_eq!(heard.state().await, "idle cancelled");
        session.close().block_task().await?;
        let gone = session.send_prompt("hello").block_task().await.unwrap_err();
        assert_eq!(i32::from(gone.code), -32002);
        Ok(())
    })
    .await;
    soon(serving.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(runtime.closed().len(), 1);
}

#[tokio::test]
async fn without_the_draft_its_client_is_offered_version_1() {
    let runtime = Arc::new(Runtime::default());
    let (ours, theirs) = tokio::io::duplex(4096);
    let (_serving, _) = serve(&runtime, theirs);
    talk(ours, async |agent, _| {
        let InitializeOutcome::LowerVersion(offer) = introduce(&agent).await? else { panic!("nobody asked for it") };
        assert_eq!(offer.selected(), ProtocolVersion::V1);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn what_was_said_is_replayed_to_who_wants_it() {
    let (_, mut client, _) = raw_v2(Runtime::recording(&["old"]), 64 * 1024);
    client.introduce().await;
    let resume = json!({"sessionId": "old", "cwd": "/work", "replayFrom": {"type": "start"}});
    client.call(2, "session/resume", resume).await;
    let mut kinds = Vec::new();
    let mut states = Vec::new();
    loop {
        let message = client.read().await;
        if message["id"] == 2 {
            assert!(message["result"].get("modes").is_none(), "{message}");
            break;
        }
        let update = &message["params"]["update"];
        kinds.push(update["sessionUpdate"].as_str().unwrap().to_owned());
        states.extend(update["state"].as_str().map(ToOwned::to_owned));
    }
    assert_eq!(&kinds[..3], ["user_message_chunk", "tool_call_update", "tool_call_update"]);
    assert_eq!((kinds.last().unwrap().as_str(), states), ("state_update", vec!["idle".to_owned()]));
}

impl Raw {
    /// As a client of version 2.
    async fn introduce(&mut self) -> Value {
        let info = json!({"name": "raw", "version": "1"});
        self.call(1, "initialize", json!({"protocolVersion": 2, "info": info})).await;
        let welcome = self.read().await;
        assert_eq!(welcome["result"]["protocolVersion"], 2, "{welcome}");
        welcome
    }

    /// All that is said until the answer to `id`, without what differs from run to run.
    async fn transcript(&mut self, id: u64) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let line = soon(self.lines.next_line()).await.unwrap().expect("the agent closed its output");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] == "session/request_permission" {
                let outcome = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
                self.send(json!({"jsonrpc": "2.0", "id": message["id"], "result": outcome})).await;
                said.push(message["params"].to_string());
                continue;
            }
            said.push(line);
            if message["id"] == id {
                return said;
            }
        }
    }
}

/// Every kind of event, some errors and lines that are none, as a client of version 1.
async fn conversation_of_version_1(mut client: Raw) -> Vec<String> {
    let mut said = Vec::new();
    client.call(9, "session/new", json!({"cwd": "/early", "mcpServers": []})).await;
    said.extend(client.transcript(9).await);
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    said.extend(client.transcript(1).await);
    client.call(2, "session/new", json!({"cwd": "/commands", "mcpServers": []})).await;
    said.extend(client.transcript(2).await);
    client
        .call(
            3,
            "session/prompt",
            json!({"sessionId": "session-0", "prompt": [{"type": "text", "text": "everything"}]}),
        )
        .await;
    said.extend(client.transcript(3).await);
    client.call(4, "nothing/known", json!({"protocolVersion": 2})).await;
    said.extend(client.transcript(4).await);
    client.call(5, "session/set_mode", json!({"sessionId": "session-0", "modeId": "plan"})).await;
    said.extend(client.transcript(5).await);
    client.call(6, "session/close", json!({"sessionId": "session-0"})).await;
    said.extend(client.transcript(6).await);
    said
}

#[tokio::test]
async fn a_client_of_version_1_hears_the_same_to_the_byte() {
    let (_, plain) = raw(4096);
    let (_, relayed, _) = raw_v2(Runtime::default(), 4096);
    let (plain, relayed) = (conversation_of_version_1(plain).await, conversation_of_version_1(relayed).await);
    assert!(plain.len() > 15, "{plain:?}");
    assert_eq!(plain, relayed);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_still_heard_and_left_in_the_end() {
    let (runtime, mut client, shutdown) = raw_v2(Runtime::default(), 4096);
    client.introduce().await;
    client.call(2, "session/new", json!({"cwd": "/work"})).await;
    assert_eq!(client.read().await["result"]["sessionId"], "session-0");
    let prompt = json!({"sessionId": "session-0", "prompt": [{"type": "text", "text": "flood"}]});
    client.call(3, "session/prompt", prompt).await;
    soon(runtime.flooded()).await;
    client.tell("session/cancel", json!({"sessionId": "session-0"})).await;
    soon(runtime.aborted()).await;
    shutdown.cancel();
    soon(client.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(runtime.closed().len(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_sessions() {
    let (runtime, mut client, _) = raw_v2(Runtime::default(), 4096);
    client.introduce().await;
    client.call(2, "session/new", json!({"cwd": "/work"})).await;
    client.read().await;
    client
        .call(3, "session/prompt", json!({"sessionId": "session-0", "prompt": [{"type": "text", "text": "hang"}]}))
        .await;
    assert!(client.read().await["result"]["messageId"].is_string());
    let Raw { lines, input, mut serving } = client;
    drop((lines, input));
    soon(serving.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(runtime.closed().len(), 1);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_left_out() {
    let (_, mut client, _) = raw_v2(Runtime::default(), 64 * 1024);
    client.introduce().await;
    let chunk = vec![b'x'; 1024 * 1024];
    for _ in 0..65 {
        soon(client.input.write_all(&chunk)).await.unwrap();
    }
    client.input.write_all(b"\n").await.unwrap();
    assert_eq!(client.read().await["error"]["code"], -32600);
    client.call(2, "session/list", json!({})).await;
    assert_eq!(client.read().await["result"], json!({"sessions": []}), "this runtime records nothing");
}
