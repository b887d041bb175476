//! `/acp` over posts and event streams: statuses, headers, which stream hears of what.

use convoke_daemon::RateOptions;
use serde_json::{Value, json};

use crate::acp_client::{Messages, Posts, Socket, clients, initialize, prompt, request, select};
use crate::client::{Client, Extra, soon};
use crate::rig::{Rig, request_id};

async fn status(client: &Client, method: &str, headers: &[(&str, &str)], body: Option<&str>) -> (u16, Value) {
    let extra = Extra { headers: headers.to_vec(), body: body.map(str::to_owned) };
    let reply = client.send(method, "/acp", extra).await;
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

const JSON: (&str, &str) = ("Content-Type", "application/json");
const SSE: (&str, &str) = ("Accept", "text/event-stream");

#[tokio::test]
async fn what_is_accepted() {
    let rig = Rig::new().await;
    let call = request(1, "session/list", json!({})).to_string();
    let nowhere = ("Acp-Connection-Id", "nowhere");
    for (method, headers, body, expected, code) in [
        ("POST", &[("Content-Type", "text/plain")][..], Some(call.as_str()), 415, None),
        ("POST", &[JSON], Some("[]"), 501, Some(-32600)),
        ("POST", &[JSON], Some("{bad"), 400, None),
        ("POST", &[JSON], Some("{}"), 400, Some(-32600)),
        ("POST", &[JSON], Some(call.as_str()), 400, Some(-32600)),
        ("POST", &[JSON, nowhere], Some(call.as_str()), 404, Some(-32600)),
        ("GET", &[nowhere], None, 406, None),
        ("GET", &[nowhere, ("Accept", "application/json")], None, 406, None),
        ("GET", &[SSE], None, 400, Some(-32600)),
        ("GET", &[SSE, nowhere], None, 404, Some(-32600)),
        ("DELETE", &[], None, 400, Some(-32600)),
        ("DELETE", &[nowhere], None, 404, Some(-32600)),
        ("PATCH", &[], None, 404, None),
    ] {
        let (status, body) = status(&rig.client, method, headers, body).await;
        assert_eq!((status, body["error"]["code"].as_i64()), (expected, code), "{method} {headers:?} {body}");
    }
    let connection = Posts::open(&rig.client).await;
    let id = ("Acp-Connection-Id", connection.id.as_str());
    let (forbidden, _) = status(&rig.client, "GET", &[SSE, id, ("Acp-Session-Id", "foreign")], None).await;
    assert_eq!(forbidden, 403);
    let (answered, _) =
        status(&rig.client, "POST", &[JSON, id], Some(r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#)).await;
    assert_eq!(answered, 202, "an answer to nothing");
    let (gone, _) = status(&rig.client, "DELETE", &[id], None).await;
    assert_eq!(gone, 202);
}

#[tokio::test]
async fn the_wall_stands_before_it() {
    let rig = Rig::with(|options| options.token = convoke_daemon::TokenOption::Given("tok".into())).await;
    let body = initialize().to_string();
    for (headers, expected) in [
        (vec![JSON], 401),
        (vec![JSON, ("Authorization", "Bearer nope")], 401),
        (vec![JSON, ("Authorization", "Bearer tok"), ("Host", "evil.example")], 403),
        (vec![JSON, ("Authorization", "Bearer tok"), ("Origin", "http://evil.example")], 403),
        (vec![JSON, ("Authorization", "Bearer tok")], 200),
    ] {
        assert_eq!(status(&rig.client, "POST", &headers, Some(&body)).await.0, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn a_turn_with_a_question() {
    let rig = Rig::new().await;
    let connection = Posts::open(&rig.client).await;
    let mut own = connection.stream(None, &[]).await;
    let session = connection.session(&mut own, &rig.workspace).await;
    let mut stream = connection.stream(Some(&session), &[]).await;
    assert!(stream.events.header("x-qwen-event-epoch").is_some_and(|epoch| epoch.len() == 36));
    connection.send(prompt(2, &session, "approval please")).await;
    let mut told = Vec::new();
    let end = loop {
        let message = stream.message().await.unwrap();
        if message["method"] == "session/request_permission" {
            connection.send(select(&message, "proceed_once")).await;
        }
        let last = message["id"] == 2;
        told.push(message);
        if last {
            break told;
        }
    };
    let masked = Value::Array(end).to_string().replace(&connection.id, "CONNECTION").replace(&session, "SESSION");
    let mut masked: Value = serde_json::from_str(&masked).unwrap();
    mask(&mut masked, &rig.workspace.display().to_string());
    insta::assert_snapshot!("a_turn_with_a_question", serde_json::to_string_pretty(&masked).unwrap());
}

/// Ids, times and the workspace differ from run to run.
fn mask(value: &mut Value, workspace: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "promptId" | "requestId" | "serverTimestamp" | "voterClientId" | "toolCallId" => {
                        *value = json!(format!("<{name}>"));
                    }
                    _ => mask(value, workspace),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, workspace)),
        Value::String(text) => {
            *text = text.replace(workspace, "WORKSPACE");
            if let Some((head, tail)) = text.split_once("/made_") {
                let rest = tail.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
                *text = format!("{head}/made_N{rest}");
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn what_initialize_says() {
    let rig = Rig::new().await;
    let reply = rig.client.post("/acp", "", initialize()).await;
    let id = reply.header("acp-connection-id").unwrap().to_owned();
    let text = reply.text().replace(&id, "CONNECTION").replace(&rig.workspace.display().to_string(), "WORKSPACE");
    let said: Value = serde_json::from_str(&text).unwrap();
    insta::assert_snapshot!("what_initialize_says", serde_json::to_string_pretty(&said).unwrap());
}

/// A session is the daemon's: it goes on while anybody is in it.
#[tokio::test]
async fn a_session_of_its_own_outlives_its_connection() {
    let rig = Rig::new().await;
    let shared = rig.join("single").await;
    let connection = Posts::open(&rig.client).await;
    let mut own = connection.stream(None, &[]).await;
    let session = connection.session(&mut own, &rig.workspace).await;
    assert_ne!(session, shared.session);
    let mut stream = connection.stream(Some(&session), &[]).await;
    let joined = rig.client.post(&format!("/session/{session}/resume"), "", json!({})).await;
    assert_eq!(joined.status, 200);
    clients(&rig.client, &session, 2).await;
    assert_eq!(connection.delete().await.status, 202);
    own.ended().await;
    stream.ended().await;
    let gone = connection.post(request(3, "session/list", json!({}))).await;
    assert_eq!(gone.status, 404);
    clients(&rig.client, &session, 1).await;
}

/// What happened before a session's stream was opened, and while it was gone, is told when it comes.
#[tokio::test]
async fn a_stream_starts_where_the_last_one_stopped() {
    let rig = Rig::new().await;
    let connection = Posts::open(&rig.client).await;
    let mut own = connection.stream(None, &[]).await;
    let session = connection.session(&mut own, &rig.workspace).await;
    let path = format!("/session/{session}/events");
    let mut watch = rig.client.events(&path, &[("Last-Event-ID", "0")]).await;
    connection.send(prompt(2, &session, "echo one")).await;
    watch.until("turn_complete").await;
    let mut stream = connection.stream(Some(&session), &[]).await;
    let text = |message: &Value| message["params"]["update"]["content"]["text"] == "echo one";
    let mut ids = Vec::new();
    let first = loop {
        let block = stream.block().await.unwrap();
        ids.extend(block.lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok()));
        let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
        let message: Value = serde_json::from_str(data).unwrap();
        if message["id"] == 2 {
            assert!(!block.contains("id: "), "a reply has no number");
            break message;
        }
    };
    assert_eq!(first["result"]["stopReason"], "end_turn");
    assert_eq!(ids, (1..=u64::try_from(ids.len()).unwrap()).collect::<Vec<_>>());
    drop(stream);
    let mut again = connection.stream(Some(&session), &[("Last-Event-ID", "0")]).await;
    again.until(text).await;
    let marked = again.notice("replay_complete").await;
    assert_eq!(marked["params"]["data"]["replayedCount"], json!(ids.len()));
}

/// Ids of two levels: what REST votes on is in `_meta`, and everybody hears of the end.
#[tokio::test]
async fn rest_votes_on_an_acp_session() {
    let rig = Rig::new().await;
    let connection = Posts::open(&rig.client).await;
    let mut own = connection.stream(None, &[]).await;
    let session = connection.session(&mut own, &rig.workspace).await;
    let mut stream = connection.stream(Some(&session), &[]).await;
    connection.send(prompt(2, &session, "approval please")).await;
    let question = stream.method("session/request_permission").await;
    assert_eq!(question["id"], format!("_qwen_perm_{}_1", connection.id));
    let request = question["params"]["_meta"]["qwen"]["requestId"].as_str().unwrap();
    let body = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
    let voted = rig.client.post(&format!("/session/{session}/permission/{request}"), "", body).await;
    assert_eq!(voted.status, 200, "{}", voted.text());
    stream.notice("permission_resolved").await;
    let taken_back = stream.method("$/cancel_request").await;
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    connection.send(select(&question, "cancel")).await;
    // The late answer and the end of the turn come in either order.
    let (mut late, mut end) = (Value::Null, Value::Null);
    while late.is_null() || end.is_null() {
        let message = stream.message().await.unwrap();
        if message["params"]["kind"] == "permission_already_resolved" {
            late = message;
        } else if message["id"] == 2 {
            end = message;
        }
    }
    assert_eq!(late["params"]["data"]["outcome"]["optionId"], "proceed_once");
    assert_eq!(end["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn an_option_that_was_not_offered_cancels() {
    for answer in [
        json!({"result": {"outcome": {"outcome": "selected", "optionId": "made up"}}}),
        json!({"result": {"outcome": {"outcome": "selected", "optionId": "__cancelled__"}}}),
        json!({"result": {}}),
        json!({"error": {"code": -32000, "message": "user declined"}}),
    ] {
        let rig = Rig::new().await;
        let mut socket = Socket::open(&rig.client).await;
        let session = socket.session(&rig.workspace).await;
        socket.send(prompt(2, &session, "approval please")).await;
        let question = socket.method("session/request_permission").await;
        let mut message = json!({"jsonrpc": "2.0", "id": question["id"]});
        message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        socket.send(message).await;
        let resolved = socket.notice("permission_resolved").await;
        assert_eq!(resolved["params"]["data"]["outcome"], json!({"outcome": "cancelled"}), "{answer}");
    }
}

/// Two ACP clients and one of REST answer the same question at once: one wins, and all hear the same.
#[tokio::test]
async fn racing_answers_of_three_clients() {
    let rig = Rig::new().await;
    let mut first = Socket::open(&rig.client).await;
    let session = first.session(&rig.workspace).await;
    let second = Posts::open(&rig.client).await;
    let mut own = second.stream(None, &[]).await;
    second
        .send(request(5, "session/load", json!({"sessionId": session, "cwd": rig.workspace, "mcpServers": []})))
        .await;
    own.reply(5).await;
    let mut stream = second.stream(Some(&session), &[]).await;
    let third = rig.client.post(&format!("/session/{session}/load"), "", json!({})).await.json();
    let third = third["clientId"].as_str().unwrap().to_owned();
    let mut watch = rig.client.events(&format!("/session/{session}/events"), &[]).await;
    for turn in 0..5 {
        first.send(prompt(10 + turn, &session, "approval please")).await;
        let (one, two) =
            (first.method("session/request_permission").await, stream.method("session/request_permission").await);
        let request = request_id(&watch.until("permission_request").await);
        let path = format!("/session/{session}/permission/{request}");
        let body = json!({"outcome": {"outcome": "selected", "optionId": "proceed_always_user"}});
        let (_, (), voted) = tokio::join!(
            first.send(select(&one, "proceed_once")),
            second.send(select(&two, "proceed_always_project")),
            rig.client.post(&path, &third, body),
        );
        let heard = [
            first.notice("permission_resolved").await["params"]["data"]["outcome"].clone(),
            stream.notice("permission_resolved").await["params"]["data"]["outcome"].clone(),
            watch.until("permission_resolved").await["data"]["outcome"].clone(),
        ];
        assert!(heard.iter().all(|outcome| *outcome == heard[0]), "{heard:?}");
        let by_rest = heard[0]["optionId"] == "proceed_always_user";
        assert_eq!(voted.status == 200, by_rest, "{} {heard:?}", voted.text());
        assert_eq!(first.reply(10 + turn).await["result"]["stopReason"], "end_turn");
        watch.until("turn_complete").await;
        stream.notice("turn_complete").await;
    }
}

#[tokio::test]
async fn there_are_64_connections() {
    let rig = Rig::new().await;
    let mut connections = Vec::new();
    for _ in 0..64 {
        connections.push(Posts::open(&rig.client).await);
    }
    let refused = rig.client.post("/acp", "", initialize()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(Socket::dial(&rig.client, &[]).await.err(), Some(503));
    connections[0].delete().await;
    soon(async { while rig.client.post("/acp", "", initialize()).await.status != 200 {} }).await;
}

#[tokio::test]
async fn small_methods() {
    let rig = Rig::new().await;
    let mut socket = Socket::open(&rig.client).await;
    let session = socket.session(&rig.workspace).await;
    let about = |more: Value| {
        let mut params = json!({"sessionId": session});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    socket.send(request(1, "_qwen/session/update_metadata", about(json!({"displayName": "mine"})))).await;
    assert_eq!(socket.reply(1).await["result"]["displayName"], "mine");
    socket.send(request(2, "_qwen/session/heartbeat", about(json!({})))).await;
    assert!(socket.reply(2).await["result"]["lastSeenAt"].is_u64());
    socket.send(request(3, "session/list", json!({}))).await;
    let list = socket.reply(3).await;
    assert_eq!(list["result"]["sessions"][0]["sessionId"], json!(session));
    assert_eq!(list["result"]["sessions"][0]["title"], "mine");
    socket.send(request(4, "session/set_mode", about(json!({"modeId": "yolo"})))).await;
    assert_eq!(socket.reply(4).await["result"], json!({}));
    socket.send(request(5, "session/prompt", json!({"sessionId": "foreign", "prompt": [{}]}))).await;
    assert_eq!(socket.reply(5).await["error"]["code"], -32602);
    socket.send(request(6, "session/fork", about(json!({})))).await;
    assert_eq!(socket.reply(6).await["error"]["code"], -32601);
    socket.send(request(7, "session/load", json!({"sessionId": "never", "cwd": rig.workspace}))).await;
    let missing = socket.reply(7).await;
    assert_eq!(missing["error"]["data"]["errorKind"], "session_not_found", "{missing}");
    assert_eq!(missing["error"]["data"]["httpStatus"], 404);
    socket.send(request(8, "session/close", about(json!({})))).await;
    socket.reply(8).await;
    assert_eq!(rig.client.get(&format!("/session/{session}/status")).await.status, 404);
}

/// A request over the limit is answered, not carried out; `/acp` is no way around it.
#[tokio::test]
async fn it_is_counted() {
    let rig = Rig::with(|options| options.rate = Some(RateOptions { prompt: 1, ..RateOptions::default() })).await;
    let connection = Posts::open(&rig.client).await;
    let mut own = connection.stream(None, &[]).await;
    let session = connection.session(&mut own, &rig.workspace).await;
    assert_eq!(connection.post(prompt(2, &session, "hang")).await.status, 202);
    let refused = connection.post(prompt(3, &session, "hang")).await;
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (429, true));
    let mut socket = Socket::open(&rig.client).await;
    let session = socket.session(&rig.workspace).await;
    socket.send(prompt(4, &session, "hang")).await;
    let refused = socket.reply(4).await;
    assert_eq!(refused["error"]["data"]["httpStatus"], 429, "{refused}");
    assert_eq!(refused["error"]["data"]["tier"], "prompt");
}
