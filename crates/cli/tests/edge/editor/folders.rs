//! Sessions of several folders in one process: each is configured as its folder says.

use convoke_testkit::TestEnvironment;
use serde_json::{Value, json};

use super::{Editor, agent, say};

/// An agent that has no key of its own, and trusts every folder.
async fn start(environment: &TestEnvironment) -> Editor {
    environment.write(
        "home/.convoke/settings.json",
        json!({"security": {"folderTrust": {"enabled": false}, "auth": {"selectedType": "gemini-api-key"}}})
            .to_string(),
    );
    let mut command = agent(environment, &[say("Here I am.")]);
    command.env_remove("GEMINI_API_KEY");
    Editor::start(command, json!({})).await.0
}

async fn session_in(editor: &mut Editor, folder: &std::path::Path) -> Value {
    editor.ask("session/new", json!({"cwd": folder, "mcpServers": []})).await
}

#[tokio::test]
async fn a_session_has_the_key_and_the_settings_of_its_folder() {
    let environment = TestEnvironment::new();
    let other = environment.write("other/.env", "GEMINI_API_KEY=of-the-folder\n").parent().unwrap().to_owned();
    environment.write("other/.gemini/settings.json", r#"{"general": {"defaultApprovalMode": "auto_edit"}}"#);
    let mut editor = start(&environment).await;
    let own = session_in(&mut editor, &environment.workspace()).await;
    assert_eq!(own["error"]["code"], -32000, "{own}");
    let why = own["error"]["message"].as_str().unwrap();
    assert!(why.contains("Gemini API key is missing or not configured."), "{why}");

    // The second one finds the folder read.
    for _ in 0..2 {
        let made = session_in(&mut editor, &other).await;
        assert_eq!(made["result"]["modes"]["currentModeId"], "autoEdit", "{made}");
        let end = editor.prompt(made["result"]["sessionId"].as_str().unwrap(), "hello").await;
        assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    }
    assert_eq!(editor.said("agent_message_chunk"), "Here I am.Here I am.");
    assert!(session_in(&mut editor, &environment.workspace()).await["error"].is_object(), "it has none still");
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn what_a_client_hands_over_holds_in_every_folder_until_it_is_taken_back() {
    let environment = TestEnvironment::new();
    let [before, after] =
        ["before", "after"].map(|name| environment.write(&format!("{name}/a.txt"), "").parent().unwrap().to_owned());
    let mut editor = start(&environment).await;
    assert!(session_in(&mut editor, &before).await["error"].is_object(), "there is no key yet");
    let key = json!({"methodId": "gemini-api-key", "_meta": {"api-key": "handed-over"}});
    let taken = editor.ask("authenticate", key).await;
    assert!(taken["error"].is_null(), "{taken}");
    for folder in [&before, &after] {
        let made = session_in(&mut editor, folder).await;
        assert!(made["result"]["sessionId"].is_string(), "{made}");
    }
    editor.ask("logout", json!({})).await;
    for folder in [&before, &after] {
        assert!(session_in(&mut editor, folder).await["error"].is_object());
    }
    assert!(editor.leave().await.success());
}
