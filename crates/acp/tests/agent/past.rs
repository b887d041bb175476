//! Sessions that were recorded: listed, gone on with, forgotten.

use std::sync::Arc;

use serde_json::{Value, json};

use super::runtime::{FLOOD, Runtime};
use super::{Raw, raw, raw_of, soon};

/// A client of an agent with records of `a` and `b`, and what the agent says it can do.
async fn begin(pipe_bytes: usize) -> (Arc<Runtime>, Raw, Value) {
    let (runtime, mut client) = raw_of(Runtime::recording(&["a", "b"]), pipe_bytes);
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    let able = client.read().await["result"]["agentCapabilities"].clone();
    (runtime, client, able)
}

async fn ask(client: &mut Raw, method: &str, params: Value) -> Value {
    client.call(9, method, params).await;
    let answer = client.read().await;
    assert_eq!(answer["id"], 9, "{answer}");
    answer
}

fn of(id: &str) -> Value {
    json!({"sessionId": id, "cwd": "/work", "mcpServers": []})
}

#[tokio::test]
async fn what_records_make_possible_is_offered_where_there_are_some() {
    let (_runtime, _client, able) = begin(4096).await;
    assert_eq!(able["loadSession"], true);
    for method in ["list", "resume", "delete", "close"] {
        assert_eq!(able["sessionCapabilities"][method], json!({}), "{method}");
    }
    let (_runtime, mut client) = raw(4096);
    client.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    let able = client.read().await["result"]["agentCapabilities"].clone();
    assert_ne!(able["loadSession"], true);
    assert_eq!(able["sessionCapabilities"].get("list"), None);
    for (method, params) in [
        ("session/load", of("a")),
        ("session/resume", of("a")),
        ("session/list", json!({})),
        ("session/delete", of("a")),
    ] {
        assert_eq!(ask(&mut client, method, params).await["error"]["code"], -32601, "{method}");
    }
}

#[tokio::test]
async fn a_list_comes_in_pages_and_takes_no_cursor_of_others() {
    let (_runtime, mut client, _) = begin(4096).await;
    let first = ask(&mut client, "session/list", json!({"cwd": "/work"})).await["result"].clone();
    let meta = json!({"createdAt": "1970-01-01T00:00:00.000Z", "messageCount": 2});
    let stored = json!({
        "sessionId": "a", "cwd": "/work", "title": "About a", "updatedAt": "1970-01-01T00:00:01.000Z", "_meta": meta,
    });
    assert_eq!(first["sessions"], json!([stored]));
    let second = ask(&mut client, "session/list", json!({"cursor": first["nextCursor"]})).await["result"].clone();
    assert_eq!(second["sessions"][0]["sessionId"], "b");
    assert_eq!(second.get("nextCursor"), None);
    let elsewhere = ask(&mut client, "session/list", json!({"cwd": "/elsewhere"})).await;
    assert_eq!(elsewhere["result"], json!({"sessions": []}));
    for params in [json!({"cursor": "garbage"}), json!({"cursor": ""}), json!({"cwd": "work"})] {
        assert_eq!(ask(&mut client, "session/list", params.clone()).await["error"]["code"], -32602, "{params}");
    }
}

#[tokio::test]
async fn a_loaded_session_tells_its_history_before_the_answer() {
    // A pipe that holds a few updates only: the rest waits until they are read.
    let (_runtime, mut client, _) = begin(1024).await;
    client.call(3, "session/load", of("a")).await;
    let mut updates = Vec::new();
    let answer = loop {
        let message = client.read().await;
        if message["id"] == 3 {
            break message["result"].clone();
        }
        assert_eq!(message["params"]["sessionId"], "a");
        updates.push(message["params"]["update"].clone());
    };
    let words = json!({"type": "text", "text": "do it"});
    assert_eq!(updates[0], json!({"sessionUpdate": "user_message_chunk", "content": words, "messageId": "past-0"}));
    assert_eq!((&updates[1]["sessionUpdate"], &updates[1]["toolCallId"]), (&json!("tool_call"), &json!("old-call")));
    assert_eq!(
        (&updates[2]["sessionUpdate"], &updates[2]["status"]),
        (&json!("tool_call_update"), &json!("completed"))
    );
    assert_eq!(updates.len(), 4 + FLOOD);
    assert_eq!(updates[2 + FLOOD]["content"]["text"], format!("chunk {}", FLOOD - 1));
    assert_eq!(answer["modes"]["currentModeId"], "default");
    assert_eq!(answer["_meta"]["convoke.damagedLines"], 3);
    assert_eq!(answer.get("sessionId"), None);
    assert_eq!(updates[3 + FLOOD], json!({"sessionUpdate": "session_info_update", "title": "Old things"}));
    let prompt = json!([{"type": "text", "text": "end completed"}]);
    client.call(4, "session/prompt", json!({"sessionId": "a", "prompt": prompt})).await;
    assert_eq!(client.read().await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_resumed_session_tells_no_history() {
    let (_runtime, mut client, _) = begin(4096).await;
    let answer = ask(&mut client, "session/resume", of("b")).await;
    assert_eq!(answer["result"]["modes"]["currentModeId"], "default");
    assert_eq!(client.read().await["params"]["update"]["title"], "Old things");
}

#[tokio::test]
async fn what_is_not_recorded_or_not_absolute_is_refused() {
    let (_runtime, mut client, _) = begin(4096).await;
    for method in ["session/load", "session/resume"] {
        let error = ask(&mut client, method, of("nobody")).await["error"].clone();
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32002), &json!("session_not_found")), "{method}");
    }
    let error = ask(&mut client, "session/load", json!({"sessionId": "a", "cwd": "work", "mcpServers": []})).await;
    assert_eq!(error["error"]["code"], -32602);
    assert_eq!(ask(&mut client, "session/load", json!({"cwd": "/work"})).await["error"]["code"], -32602);
    // None of it left anything open.
    let error = ask(&mut client, "session/prompt", json!({"sessionId": "a", "prompt": []})).await;
    assert_eq!(error["error"]["code"], -32002);
}

#[tokio::test]
async fn a_deleted_session_is_listed_no_more() {
    let (_runtime, mut client, _) = begin(4096).await;
    assert_eq!(ask(&mut client, "session/delete", json!({"sessionId": "a"})).await["result"], json!({}));
    // What is gone already, or never was, is no error.
    for id in ["a", "nobody"] {
        assert_eq!(ask(&mut client, "session/delete", json!({"sessionId": id})).await["result"], json!({}), "{id}");
    }
    let left = ask(&mut client, "session/list", json!({})).await;
    assert_eq!(left["result"]["sessions"][0]["sessionId"], "b");
    assert_eq!(left["result"].get("nextCursor"), None);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_the_history_leaves_nothing() {
    let (runtime, mut client, _) = begin(1024).await;
    client.call(3, "session/load", of("a")).await;
    assert_eq!(client.read().await["params"]["update"]["sessionUpdate"], "user_message_chunk");
    drop(client.lines);
    drop(client.input);
    soon(client.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(runtime.closed(), ["a".into()]);
}

#[tokio::test]
async fn ids_that_are_none_are_refused_at_the_edge() {
    let (_runtime, mut client, _) = begin(8192).await;
    let long = "x".repeat(129);
    for id in ["../../etc", "a/b", "a\\b", "a\nb", "..", &long] {
        let chosen = json!({"cwd": "/work", "mcpServers": [], "_meta": {"convoke.sessionId": id}});
        for (method, params) in
            [("session/new", chosen), ("session/load", of(id)), ("session/resume", of(id)), ("session/delete", of(id))]
        {
            let error = ask(&mut client, method, params).await["error"].clone();
            let told = (&error["code"], &error["data"]["code"]);
            assert_eq!(told, (&json!(-32602), &json!("invalid_session_id")), "{method} {id:?}");
        }
    }
    assert_eq!(ask(&mut client, "session/load", of("")).await["error"]["data"]["code"], "invalid_session_id");
}

#[tokio::test]
async fn a_load_that_is_taken_back_ends_with_the_session_closed() {
    let (runtime, mut client, _) = begin(1024).await;
    client.call(3, "session/load", of("a")).await;
    assert_eq!(client.read().await["params"]["update"]["sessionUpdate"], "user_message_chunk");
    let prompt = json!({"sessionId": "a", "prompt": [{"type": "text", "text": "too early"}]});
    client.call(4, "session/prompt", prompt).await;
    client.tell("$/cancel_request", json!({"requestId": 3})).await;
    let mut answers = Vec::new();
    while answers.len() < 2 {
        let message = client.read().await;
        if message.get("id").is_some() {
            answers.push((message["id"].clone(), message["error"]["code"].clone()));
        }
    }
    answers.sort_by_key(|(id, _)| id.as_u64());
    assert_eq!(answers, [(json!(3), json!(-32800)), (json!(4), json!(-32600))]);
    assert_eq!(runtime.closed(), ["a".into()]);
}

#[tokio::test]
async fn a_session_that_was_closed_is_loaded_again_on_the_same_connection() {
    let (_runtime, mut client, _) = begin(8192).await;
    for _ in 0..5 {
        let answer = ask(&mut client, "session/resume", of("b")).await;
        assert_eq!(answer["error"], Value::Null);
        assert_eq!(client.read().await["params"]["update"]["title"], "Old things");
        assert_eq!(ask(&mut client, "session/close", json!({"sessionId": "b"})).await["result"], json!({}));
    }
}
