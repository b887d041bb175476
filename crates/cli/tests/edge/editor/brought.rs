//! What an editor brings along: servers for its sessions, and the key of a model.

use std::path::Path;

use convoke_testkit::{TestEnvironment, scripted_mcp_binary};
use serde_json::{Value, json};

use super::{Editor, agent, call, say};

/// Processes that have this among their arguments.
fn running(argument: &Path) -> usize {
    let argument = argument.to_str().unwrap().as_bytes();
    let has = |process: &std::fs::DirEntry| {
        let args = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        args.split(|byte| *byte == 0).any(|given| given == argument)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(|process| has(process)).count()
}

#[tokio::test]
async fn a_server_of_an_editor_is_its_session_s_and_is_asked_about() {
    let environment = TestEnvironment::new();
    let log = environment.home().join("server.log");
    let server = json!({"name": "db", "command": scripted_mcp_binary(), "args": ["--log", log], "env": []});
    let answers = [call("mcp_db_echo", json!({"text": "from the server"})), say("It says so.")];
    let (mut editor, welcome) = Editor::start(agent(&environment, &answers), json!({})).await;
    assert_eq!(welcome["agentCapabilities"]["mcpCapabilities"], json!({"http": true, "sse": true}));
    let with = |servers: Value| json!({"cwd": environment.workspace(), "mcpServers": servers});
    let plain = editor.session(&environment).await;
    let made = editor.ask("session/new", with(json!([server]))).await;
    let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
    assert!(!log.exists(), "it is not started before it is needed");

    let turn = editor.begin(&session, "ask the server").await;
    let question = editor.until(|message| message["method"] == "session/request_permission").await;
    assert_eq!(question["params"]["toolCall"]["_meta"]["toolName"], "mcp_db_echo", "{question}");
    editor.permit(&question, "proceed_once").await;
    assert_eq!(editor.answer(turn).await["result"]["stopReason"], "end_turn");
    let ends = editor.updates("tool_call_update");
    assert!(ends.iter().any(|end| end["status"] == "completed" && end.to_string().contains("from the server")));
    assert!(running(&log) > 0);

    // Another session of the same editor does not have it.
    editor.heard.clear();
    assert_eq!(editor.prompt(&plain, "ask the server").await["result"]["stopReason"], "end_turn");
    let ends = editor.updates("tool_call_update");
    assert!(ends.last().unwrap().to_string().contains("not found"), "{ends:?}");

    assert_eq!(editor.ask("session/close", json!({"sessionId": session})).await["result"], json!({}));
    assert_eq!(running(&log), 0, "it ends with its session");
    let mut load = with(json!([server]));
    load["sessionId"] = json!(session);
    let loaded = editor.ask("session/load", load).await;
    assert!(loaded["error"].is_null(), "{loaded}");
    let turn = editor.begin(&session, "again").await;
    let question = editor.until(|message| message["method"] == "session/request_permission").await;
    editor.permit(&question, "cancel").await;
    editor.answer(turn).await;
    assert!(running(&log) > 0);
    assert!(editor.leave().await.success());
    assert_eq!(running(&log), 0);
}

#[tokio::test]
async fn a_key_is_handed_over_for_as_long_as_the_editor_likes() {
    let environment = TestEnvironment::new();
    let mut command = agent(&environment, &[say("hello")]);
    command.env_remove("GEMINI_API_KEY");
    let (mut editor, welcome) = Editor::start(command, json!({})).await;
    let methods: Vec<_> =
        welcome["authMethods"].as_array().unwrap().iter().map(|method| method["id"].clone()).collect();
    assert_eq!(methods, ["gemini-api-key", "openai-api-key", "anthropic-api-key"]);
    assert_eq!(welcome["agentCapabilities"]["auth"], json!({"logout": {}}));
    let new = json!({"cwd": environment.workspace(), "mcpServers": []});
    let code = |answer: &Value| answer["error"]["code"].clone();
    assert_eq!(code(&editor.ask("session/new", new.clone()).await), -32000);
    for (params, expected) in [
        (json!({"methodId": "oauth-personal"}), -32602),
        (json!({"methodId": "gemini-api-key"}), -32000),
        (json!({"methodId": "gemini-api-key", "_meta": {"api-key": ""}}), -32000),
    ] {
        assert_eq!(code(&editor.ask("authenticate", params.clone()).await), expected, "{params}");
    }
    let key = json!({"methodId": "gemini-api-key", "_meta": {"api-key": "handed-over"}});
    assert_eq!(editor.ask("authenticate", key).await["result"], json!({}));
    let session = editor.session(&environment).await;
    assert_eq!(editor.ask("logout", json!({})).await["result"], json!({}));
    assert_eq!(code(&editor.ask("session/new", new).await), -32000);
    // A session that has its key keeps it.
    assert_eq!(editor.prompt(&session, "hi").await["result"]["stopReason"], "end_turn");
    assert!(editor.leave().await.success());
}
