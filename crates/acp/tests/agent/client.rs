//! What a client that can do more is told, asked and relied on for.

use serde_json::{Value, json};

use super::{Raw, raw};

/// A client with these abilities and a session in `cwd`.
async fn begin(cwd: &str, abilities: Value) -> Raw {
    let (_, mut client) = raw(64 * 1024);
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": abilities})).await;
    client.read().await;
    let meta = json!({"convoke.sessionId": "s1"});
    client.call(2, "session/new", json!({"cwd": cwd, "mcpServers": [], "_meta": meta})).await;
    assert_eq!(client.read().await["result"]["sessionId"], "s1");
    client
}

async fn prompt(client: &mut Raw, id: u64, text: &str) {
    let prompt = json!([{"type": "text", "text": text}]);
    client.call(id, "session/prompt", json!({"sessionId": "s1", "prompt": prompt})).await;
}

async fn answer(client: &mut Raw, request: &Value, answer: Value) {
    client.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": answer})).await;
}

/// What the session says, and how the turn ends.
async fn said(client: &mut Raw, id: u64) -> String {
    let mut said = String::new();
    loop {
        let message = client.read().await;
        if message["id"] == id {
            assert_eq!(message["result"]["stopReason"], "end_turn", "{message}");
            return said;
        }
        said.push_str(message["params"]["update"]["content"]["text"].as_str().unwrap_or_default());
    }
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

#[tokio::test]
async fn commands_are_told_behind_the_new_session_and_when_they_change() {
    let mut client = begin("/commands", json!({})).await;
    let told = client.read().await;
    let help = json!({"name": "help", "description": "Does help"});
    let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": [help]});
    assert_eq!(told["params"], json!({"sessionId": "s1", "update": update}));
    prompt(&mut client, 3, "learn").await;
    let told = client.read().await;
    let plan = json!({"name": "plan", "description": "Does plan", "input": {"hint": "goal"}});
    assert_eq!(told["params"]["update"]["availableCommands"], json!([help, plan]));
    assert_eq!(client.read().await["id"], 3, "the change is told before the turn ends, and once");
}

#[tokio::test]
async fn a_question_is_a_form_and_its_answer_comes_back() {
    let mut client = begin("/work", forms()).await;
    for (id, content, expected) in [
        (3, json!({"action": "accept", "content": {"answer": ["blue", "red"]}}), "red+blue"),
        (4, json!({"action": "accept", "content": {"answer": ["green"]}}), "cancelled"),
        (5, json!({"action": "decline"}), "declined"),
        (6, json!({"action": "cancel"}), "cancelled"),
    ] {
        prompt(&mut client, id, "question").await;
        let asked = client.read().await;
        assert_eq!(asked["method"], "elicitation/create");
        let params = &asked["params"];
        assert_eq!(
            (&params["mode"], &params["sessionId"], &params["toolCallId"]),
            (&json!("form"), &json!("s1"), &json!("call-0"))
        );
        assert_eq!(params["message"], "Which colours?");
        answer(&mut client, &asked, content).await;
        assert_eq!(said(&mut client, id).await, expected);
    }
    // A client that fails at it has not answered.
    prompt(&mut client, 7, "question").await;
    let asked = client.read().await;
    let error = json!({"code": -32603, "message": "no window"});
    client.send(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await;
    assert_eq!(said(&mut client, 7).await, "cancelled");
}

#[tokio::test]
async fn a_cancelled_turn_withdraws_its_form() {
    let mut client = begin("/work", forms()).await;
    prompt(&mut client, 3, "question").await;
    let asked = client.read().await;
    client.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})).await;
    let mut withdrawn = false;
    loop {
        let message = client.read().await;
        if message["method"] == "$/cancel_request" {
            assert_eq!(message["params"]["requestId"], asked["id"]);
            withdrawn = true;
        }
        if message["id"] == 3 {
            assert_eq!(message["result"]["stopReason"], "cancelled");
            break;
        }
    }
    assert!(withdrawn);
}

#[tokio::test]
async fn a_client_without_forms_or_files_is_asked_for_neither() {
    let mut client = begin("/work", json!({"elicitation": {"url": {}}, "fs": {"readTextFile": true}})).await;
    prompt(&mut client, 3, "question").await;
    assert_eq!(said(&mut client, 3).await, "nobody takes questions");
    prompt(&mut client, 4, "shout /work/a.txt").await;
    assert_eq!(said(&mut client, 4).await, "no files");
}

#[tokio::test]
async fn files_are_read_and_written_by_the_client() {
    let mut client = begin("/work", json!({"fs": {"readTextFile": true, "writeTextFile": true}})).await;
    prompt(&mut client, 3, "shout /work/a.txt").await;
    let read = client.read().await;
    assert_eq!(read["method"], "fs/read_text_file");
    assert_eq!(read["params"], json!({"sessionId": "s1", "path": "/work/a.txt"}));
    answer(&mut client, &read, json!({"content": "quiet"})).await;
    let written = client.read().await;
    assert_eq!(written["method"], "fs/write_text_file");
    assert_eq!(written["params"], json!({"sessionId": "s1", "path": "/work/a.txt", "content": "QUIET"}));
    answer(&mut client, &written, json!(null)).await;
    assert_eq!(said(&mut client, 3).await, "done");
    prompt(&mut client, 4, "shout /work/b.txt").await;
    let read = client.read().await;
    let error = json!({"code": -32002, "message": "no such buffer"});
    client.send(json!({"jsonrpc": "2.0", "id": read["id"], "error": error})).await;
    assert_eq!(said(&mut client, 4).await, "no such buffer");
    prompt(&mut client, 5, "shout /work/c.txt").await;
    let read = client.read().await;
    answer(&mut client, &read, json!({"text": "?"})).await;
    assert_eq!(said(&mut client, 5).await, "the client answered without content");
}

#[tokio::test]
async fn a_question_in_one_session_holds_up_no_other() {
    let mut client = begin("/work", forms()).await;
    client
        .call(8, "session/new", json!({"cwd": "/work", "mcpServers": [], "_meta": {"convoke.sessionId": "s2"}}))
        .await;
    assert_eq!(client.read().await["id"], 8);
    prompt(&mut client, 3, "question").await;
    let asked = client.read().await;
    for id in 10..20 {
        let prompt = json!([{"type": "text", "text": "end completed"}]);
        client.call(id, "session/prompt", json!({"sessionId": "s2", "prompt": prompt})).await;
        assert_eq!(client.read().await["id"], id);
    }
    answer(&mut client, &asked, json!({"action": "decline"})).await;
    assert_eq!(said(&mut client, 3).await, "declined");
}

#[tokio::test]
async fn a_running_turn_is_spoken_to_and_none_is_not() {
    let mut client = begin("/work", json!({})).await;
    let steer = json!({"sessionId": "s1", "text": "faster"});
    client.call(3, "_convoke/session/steer", steer.clone()).await;
    assert_eq!(client.read().await["result"], json!({"outcome": "no_turn"}));
    prompt(&mut client, 4, "listen").await;
    assert_eq!(client.read().await["params"]["update"]["content"]["text"], "listening");
    client.call(5, "_convoke/session/steer", steer).await;
    assert_eq!(client.read().await["result"], json!({"outcome": "taken"}));
    assert_eq!(said(&mut client, 4).await, "faster");
    client.call(6, "_convoke/session/steer", json!({"sessionId": "nobody", "text": "x"})).await;
    assert_eq!(client.read().await["error"]["code"], -32002);
    client.call(7, "_convoke/session/steer", json!({"sessionId": "s1"})).await;
    assert_eq!(client.read().await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_session_that_is_not_recorded_can_not_go_back_and_says_so() {
    let mut client = begin("/work", json!({})).await;
    let unavailable = json!({"outcome": "unavailable", "why": "this session is not recorded"});
    for (id, method, params) in [
        (3, "_convoke/session/rewind_points", json!({"sessionId": "s1"})),
        (4, "_convoke/session/rewind", json!({"sessionId": "s1", "to": 1})),
        (5, "_convoke/session/branch", json!({"sessionId": "s1"})),
    ] {
        client.call(id, method, params).await;
        assert_eq!(client.read().await["result"], unavailable, "{method}");
        client.call(id + 10, method, json!({"sessionId": "nobody", "to": "x"})).await;
        assert_eq!(client.read().await["error"]["code"], -32002, "{method}");
        client.call(id + 20, method, json!({})).await;
        assert_eq!(client.read().await["error"]["code"], -32602, "{method}");
    }
}

#[tokio::test]
async fn a_chosen_id_is_one_session_s_only() {
    let mut client = begin("/work", json!({})).await;
    client
        .call(3, "session/new", json!({"cwd": "/work", "mcpServers": [], "_meta": {"convoke.sessionId": "s1"}}))
        .await;
    let refused = client.read().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["data"]["code"]),
        (&json!(3), &json!("session_id_conflict")),
        "{refused}"
    );
    // The one that was there goes on.
    let prompt = json!({"sessionId": "s1", "prompt": [{"type": "text", "text": "end completed"}]});
    client.call(4, "session/prompt", prompt).await;
    assert_eq!(client.read().await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_cancellation_is_for_the_prompt_before_it() {
    let mut client = begin("/work", json!({})).await;
    for round in 0..20 {
        prompt(&mut client, 10 + round, "hang").await;
        assert_eq!(client.read().await["params"]["update"]["content"]["text"], "hanging");
        client.tell("session/cancel", json!({"sessionId": "s1"})).await;
        assert_eq!(client.read().await["result"]["stopReason"], "cancelled");
        // Nothing runs; what comes next is not meant.
        client.tell("session/cancel", json!({"sessionId": "s1"})).await;
        prompt(&mut client, 50 + round, "end completed").await;
        assert_eq!(client.read().await["result"]["stopReason"], "end_turn");
    }
}
