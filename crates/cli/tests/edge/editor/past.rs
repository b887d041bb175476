//! Sessions that an editor comes back to, in other processes than the one that they began in.

use convoke_testkit::TestEnvironment;
use serde_json::{Value, json};

use super::{Editor, agent, call, say};

fn of(environment: &TestEnvironment, id: &str) -> Value {
    json!({"sessionId": id, "cwd": environment.workspace(), "mcpServers": []})
}

/// A session with a plan, a file that was written and an answer.
async fn work(environment: &TestEnvironment) -> String {
    let todos = json!([{"description": "write it", "status": "completed"}]);
    let answers = [
        call("write_todos", json!({"todos": todos})),
        call("write_file", json!({"file_path": "a.txt", "content": "one\n"})),
        say("It is written."),
    ];
    let (mut editor, welcome) = Editor::start(agent(environment, &answers), json!({})).await;
    let able = &welcome["agentCapabilities"];
    assert_eq!(able["loadSession"], true);
    for method in ["list", "resume", "delete", "close", "additionalDirectories"] {
        assert_eq!(able["sessionCapabilities"][method], json!({}), "{method}");
    }
    editor.choice = Some("proceed_once");
    let session = editor.session(environment).await;
    let end = editor.prompt(&session, "write a.txt please").await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(editor.updates("plan").len(), 1);
    assert!(editor.leave().await.success());
    session
}

#[tokio::test]
async fn a_session_is_listed_loaded_and_goes_on_in_another_process() {
    let environment = TestEnvironment::new();
    let session = work(&environment).await;
    let (mut editor, _) = Editor::start(agent(&environment, &[say("I know.")]), json!({})).await;
    let listed = editor.ask("session/list", json!({"cwd": environment.workspace()})).await["result"].clone();
    let first = &listed["sessions"][0];
    assert_eq!((&first["sessionId"], &first["title"]), (&json!(session), &json!("write a.txt please")), "{listed}");
    assert_eq!(first["cwd"], json!(environment.workspace()));
    let elsewhere = editor.ask("session/list", json!({"cwd": environment.home()})).await;
    assert_eq!(elsewhere["result"], json!({"sessions": []}));
    let loaded = editor.ask("session/load", of(&environment, &session)).await;
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "default", "{loaded}");
    assert_eq!(editor.said("user_message_chunk"), "write a.txt please");
    assert_eq!(editor.said("agent_message_chunk"), "It is written.");
    for chunk in editor.updates("user_message_chunk").iter().chain(&editor.updates("agent_message_chunk")) {
        assert!(chunk["messageId"].is_string(), "{chunk}");
    }
    let calls: Vec<_> = editor.updates("tool_call").iter().map(|call| call["_meta"]["toolName"].clone()).collect();
    assert_eq!(calls, ["write_todos", "write_file"]);
    let ends = editor.updates("tool_call_update");
    assert!(ends.iter().all(|end| end["status"] == "completed"), "{ends:?}");
    let diff = &ends[1]["content"][0];
    assert_eq!((&diff["type"], &diff["newText"]), (&json!("diff"), &json!("one\n")), "{diff}");
    let plan = json!([{"content": "write it", "priority": "medium", "status": "completed"}]);
    assert_eq!(editor.updates("plan")[0]["entries"], plan);
    assert_eq!(editor.updates("session_info_update")[0]["title"], "write a.txt please");
    // It can't be opened twice, nor deleted while it is open.
    let twice = editor.ask("session/load", of(&environment, &session)).await;
    assert_eq!(twice["error"]["data"]["code"], "session_in_use");
    let busy = editor.ask("session/delete", json!({"sessionId": session})).await;
    assert_eq!(busy["error"]["data"]["code"], "session_in_use");
    editor.heard.clear();
    let end = editor.prompt(&session, "what did you do?").await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(editor.said("agent_message_chunk"), "I know.");
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn a_session_is_resumed_without_its_past_and_deleted() {
    let environment = TestEnvironment::new();
    let session = work(&environment).await;
    let (mut editor, _) = Editor::start(agent(&environment, &[say("I know.")]), json!({})).await;
    let elsewhere = json!({"sessionId": session, "cwd": environment.home(), "mcpServers": []});
    let wrong = editor.ask("session/resume", elsewhere).await;
    assert_eq!(
        (&wrong["error"]["code"], &wrong["error"]["data"]["code"]),
        (&json!(-32602), &json!("invalid_workspace"))
    );
    let resumed = editor.ask("session/resume", of(&environment, &session)).await;
    assert_eq!(resumed["result"]["modes"]["currentModeId"], "default", "{resumed}");
    assert_eq!(editor.heard, Vec::<Value>::new());
    let end = editor.prompt(&session, "go on").await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(editor.ask("session/close", json!({"sessionId": session})).await["result"], json!({}));
    assert_eq!(editor.ask("session/delete", json!({"sessionId": session})).await["result"], json!({}));
    let gone = editor.ask("session/load", of(&environment, &session)).await;
    assert_eq!((&gone["error"]["code"], &gone["error"]["data"]["code"]), (&json!(-32002), &json!("session_not_found")));
    assert_eq!(editor.ask("session/list", json!({})).await["result"], json!({"sessions": []}));
    for cursor in ["garbage", "", "1 ../../x"] {
        let refused = editor.ask("session/list", json!({"cursor": cursor})).await;
        assert_eq!(refused["error"]["code"], -32602, "{cursor}: {refused}");
    }
    assert!(editor.leave().await.success());
}
