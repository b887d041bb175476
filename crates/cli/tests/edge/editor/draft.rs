//! An editor of draft version 2: what it gets with the setting, and what without.

use convoke_testkit::TestEnvironment;
use serde_json::{Value, json};

use super::{Editor, agent, call, say};

fn hello() -> Value {
    json!({"protocolVersion": 2, "info": {"name": "editor", "version": "1"}, "capabilities": {}})
}

fn with_setting() -> TestEnvironment {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", json!({"experimental": {"acpV2": true}}).to_string());
    environment
}

fn writes() -> [Value; 3] {
    let write = |file: &str| call("write_file", json!({"file_path": file, "content": "one\n"}));
    [write("a.txt"), say("It is written."), write("b.txt")]
}

/// The states that were told, in words.
fn states(editor: &Editor) -> Vec<String> {
    let word = |update: &&Value| {
        let words = [update["state"].as_str(), update["stopReason"].as_str()];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    editor.updates("state_update").iter().map(word).collect()
}

fn is_idle(message: &Value) -> bool {
    message["params"]["update"]["state"] == "idle"
}

fn asks(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

#[tokio::test]
async fn a_whole_conversation_of_the_draft() {
    let environment = with_setting();
    let (mut editor, welcome) = Editor::begins(agent(&environment, &writes()), hello()).await;
    assert_eq!(welcome["protocolVersion"], 2);
    assert_eq!(welcome["info"]["name"], "convoke", "{welcome}");
    assert!(welcome["capabilities"]["session"]["mcp"]["stdio"].is_object());
    let made = editor.ask("session/new", json!({"cwd": environment.workspace()})).await["result"].clone();
    let session = made["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(made.get("modes"), None);
    let options = made["configOptions"].as_array().unwrap();
    let mode = options.iter().find(|option| option["category"] == "mode").expect("modes are an option");

    editor.choice = Some("proceed_once");
    let accepted = editor.prompt(&session, "write").await;
    let message = accepted["result"]["messageId"].clone();
    assert!(message.is_string(), "{accepted}");
    editor.until(is_idle).await;
    assert_eq!(states(&editor), ["running", "requires_action", "running", "idle end_turn"]);
    assert_eq!(editor.updates("user_message")[0]["messageId"], message);
    assert_eq!(editor.said("agent_message_chunk"), "It is written.");
    assert_eq!(std::fs::read_to_string(environment.workspace().join("a.txt")).unwrap(), "one\n");
    let question = editor.heard.iter().find(|message| asks(message)).unwrap();
    assert_eq!(question["params"]["subject"]["toolCall"]["name"], "write_file", "{question}");
    let calls = editor.updates("tool_call_update");
    let shown = calls.iter().find_map(|call| call["content"][0]["patch"]["text"].as_str()).expect("a diff is a patch");
    let file = environment.workspace().join("a.txt");
    assert!(shown.contains(&format!("\n--- /dev/null\n+++ {}", file.display())), "{shown}");
    assert_eq!(calls.last().unwrap()["status"], "completed");

    // The next is asked about, and cancelled there.
    editor.choice = None;
    editor.heard.clear();
    editor.prompt(&session, "write another").await;
    editor.until(asks).await;
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})).await;
    editor.until(is_idle).await;
    assert_eq!(states(&editor).last().unwrap(), "idle cancelled");
    assert!(!environment.workspace().join("b.txt").exists());

    let set = json!({"sessionId": session, "configId": mode["configId"], "type": "id", "value": "plan"});
    let set = editor.ask("session/set_config_option", set).await;
    assert!(set["result"]["configOptions"][0]["configId"].is_string(), "{set}");
    assert_eq!(editor.ask("session/set_mode", json!({})).await["error"]["code"], -32601);
    assert_eq!(editor.ask("session/close", json!({"sessionId": session})).await["result"], json!({}));

    // And there it is again, with what was said.
    editor.heard.clear();
    let resume = json!({"sessionId": session, "cwd": environment.workspace(), "replayFrom": {"type": "start"}});
    let resumed = editor.ask("session/resume", resume).await;
    assert!(resumed["result"]["configOptions"].is_array(), "{resumed}");
    assert_eq!(editor.said("user_message_chunk"), "writewrite another");
    assert_eq!(states(&editor), ["idle"]);
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn without_the_setting_it_gets_version_1() {
    let environment = TestEnvironment::new();
    let (editor, welcome) = Editor::begins(agent(&environment, &writes()), hello()).await;
    assert_eq!(welcome["protocolVersion"], 1);
    assert!(welcome["agentCapabilities"].is_object());
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn with_the_setting_an_editor_of_version_1_gets_that() {
    let environment = with_setting();
    let (mut editor, welcome) = Editor::start(agent(&environment, &writes()), json!({})).await;
    assert_eq!(welcome["protocolVersion"], 1);
    editor.choice = Some("proceed_once");
    let session = editor.session(&environment).await;
    let end = editor.prompt(&session, "write").await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert!(editor.leave().await.success());
}
