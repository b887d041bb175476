//! Commands that run in the editor's terminals, where that was asked for.

use convoke_testkit::TestEnvironment;
use serde_json::{Value, json};

use super::{Editor, agent, call, say};

fn settings(environment: &TestEnvironment) {
    environment.write("home/.convoke/settings.json", json!({"tools": {"shell": {"clientTerminal": true}}}).to_string());
}

fn answers() -> [Value; 2] {
    [call("run_shell_command", json!({"command": "echo hello > said"})), say("Done.")]
}

async fn reply(editor: &mut Editor, request: &Value, result: Value) {
    editor.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
}

#[tokio::test]
async fn a_command_runs_in_the_editor_s_terminal_once_it_was_allowed() {
    let environment = TestEnvironment::new();
    settings(&environment);
    let (mut editor, _) = Editor::start(agent(&environment, &answers()), json!({"terminal": true})).await;
    editor.choice = Some("proceed_once");
    let session = editor.session(&environment).await;
    let turn = editor.begin(&session, "go").await;
    let create = editor.until(|message| message["method"] == "terminal/create").await;
    assert!(editor.heard.iter().any(|message| message["method"] == "session/request_permission"));
    let params = &create["params"];
    assert_eq!((&params["sessionId"], &params["cwd"]), (&json!(session), &json!(environment.workspace())));
    assert_eq!(params["command"], "env");
    let args: Vec<_> = params["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(args.ends_with(&["bash", "-c", "echo hello > said"]), "{args:?}");
    assert!(args.windows(2).any(|pair| pair == ["-u", "GEMINI_API_KEY"]), "{args:?}");
    reply(&mut editor, &create, json!({"terminalId": "t1"})).await;
    let wait = editor.until(|message| message["method"] == "terminal/wait_for_exit").await;
    assert_eq!(wait["params"], json!({"sessionId": session, "terminalId": "t1"}));
    reply(&mut editor, &wait, json!({"exitCode": 3, "signal": null})).await;
    let output = editor.until(|message| message["method"] == "terminal/output").await;
    reply(&mut editor, &output, json!({"output": "hello\n", "truncated": false})).await;
    let release = editor.until(|message| message["method"] == "terminal/release").await;
    reply(&mut editor, &release, json!({})).await;
    assert_eq!(editor.answer(turn).await["result"]["stopReason"], "end_turn");
    let updates = editor.updates("tool_call_update");
    let shown = json!([{"type": "terminal", "terminalId": "t1"}]);
    assert!(updates.iter().any(|update| update["status"] == "in_progress" && update["content"] == shown));
    let end = updates.last().unwrap();
    assert_eq!(
        (&end["status"], &end["content"], &end["rawOutput"]["exitCode"]),
        (&json!("completed"), &shown, &json!(3))
    );
    assert_eq!(environment.read("workspace/said"), None);
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn a_cancelled_turn_ends_the_command_in_the_editor_s_terminal() {
    let environment = TestEnvironment::new();
    settings(&environment);
    let (mut editor, _) = Editor::start(agent(&environment, &answers()), json!({"terminal": true})).await;
    editor.choice = Some("proceed_once");
    let session = editor.session(&environment).await;
    let turn = editor.begin(&session, "go").await;
    let create = editor.until(|message| message["method"] == "terminal/create").await;
    reply(&mut editor, &create, json!({"terminalId": "t1"})).await;
    editor.until(|message| message["method"] == "terminal/wait_for_exit").await;
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})).await;
    let kill = editor.until(|message| message["method"] == "terminal/kill").await;
    reply(&mut editor, &kill, json!({})).await;
    let output = editor.until(|message| message["method"] == "terminal/output").await;
    reply(&mut editor, &output, json!({"output": "", "truncated": false})).await;
    editor.until(|message| message["method"] == "terminal/release").await;
    assert_eq!(editor.answer(turn).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn without_the_setting_or_without_terminals_commands_are_children_of_ours() {
    for (set, terminal) in [(false, true), (true, false)] {
        let environment = TestEnvironment::new();
        if set {
            settings(&environment);
        }
        let (mut editor, _) = Editor::start(agent(&environment, &answers()), json!({"terminal": terminal})).await;
        editor.choice = Some("proceed_once");
        let session = editor.session(&environment).await;
        assert_eq!(editor.prompt(&session, "go").await["result"]["stopReason"], "end_turn");
        assert_eq!(environment.read("workspace/said").as_deref(), Some("hello\n"));
    }
}
