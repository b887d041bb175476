//! What an agent has the daemon do, and what it does without asking.

use serde_json::{Value, json};

use crate::client::{Events, Next};
use crate::rig::{Rig, request_id};

/// The texts that the agent says until its turn ends.
async fn said(stream: &mut Events) -> Vec<String> {
    let mut said = Vec::new();
    loop {
        let Next::Event(event) = stream.next().await else { panic!("the stream must go on") };
        if event.kind == "turn_complete" {
            return said;
        }
        let update = &event.frame["data"]["update"];
        if update["sessionUpdate"] == "agent_message_chunk" {
            said.extend(update.pointer("/content/text").and_then(Value::as_str).map(str::to_owned));
        }
    }
}

async fn agents(rig: &Rig, detail: &str) -> Value {
    rig.client.get(&format!("/daemon/status?detail={detail}")).await.json()["runtime"]["agents"].clone()
}

#[tokio::test]
async fn files_and_terminals_are_served_inside_of_the_workspace_and_counted() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    assert_eq!(agents(&rig, "full").await[0]["unasked"], json!({"total": 0, "kinds": {}, "calls": []}));
    member.prompt("deeds").await;
    let expected = [
        "fs/write_text_file: {}",
        "fs/read_text_file: {\"content\":\"noted\\n\"}",
        "fs/read_text_file: -32602",
        "terminal/wait_for_exit: {\"exitCode\":4,\"signal\":null}",
        "terminal/output: {\"exitStatus\":{\"exitCode\":4,\"signal\":null},\"output\":\"noted\\n\",\"truncated\":false}",
        "terminal/release: {}",
        "terminal/output: -32002",
    ];
    let said = said(&mut stream).await;
    let sorted = |text: &str| {
        let (method, value) = text.split_once(": ").unwrap();
        (method.to_owned(), serde_json::from_str::<Value>(value).unwrap())
    };
    assert_eq!(said.iter().map(|s| sorted(s)).collect::<Vec<_>>(), expected.map(sorted));
    assert_eq!(std::fs::read_to_string(rig.workspace.join("note.txt")).unwrap(), "noted\n");
    let summary = agents(&rig, "summary").await;
    assert_eq!((&summary[0]["name"], &summary[0]["sessions"]), (&json!("default"), &json!(1)));
    let kinds = json!({"edit": 1, "fs/read_text_file": 1, "fs/write_text_file": 1, "terminal/create": 1});
    assert_eq!(summary[0]["unasked"], json!({"total": 4, "kinds": kinds}));
    let full = agents(&rig, "full").await;
    let calls = full[0]["unasked"]["calls"].as_array().unwrap();
    assert!(calls.contains(&json!({"kind": "edit", "title": "Edit note.txt", "count": 1})), "{full}");
    assert!(calls.iter().any(|call| call["title"] == "sh -c cat note.txt; exit 4"), "{full}");
}

#[tokio::test]
async fn what_was_asked_about_does_not_count() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    member.vote(&request, "proceed_once").await;
    stream.until("turn_complete").await;
    assert_eq!(agents(&rig, "summary").await[0]["unasked"]["total"], 0);
}
