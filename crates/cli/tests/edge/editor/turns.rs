//! Turns of an editor's sessions: side by side, spoken to, under hooks, and left in the middle.

use convoke_testkit::TestEnvironment;
use serde_json::{Value, json};

use super::{Editor, agent, call, say};

fn writes(file: &str) -> [Value; 2] {
    [call("write_file", json!({"file_path": file, "content": "one\n"})), say("It is written.")]
}

fn asks(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

#[tokio::test]
async fn a_question_in_one_session_holds_up_no_other() {
    let environment = TestEnvironment::new();
    let (mut editor, _) = Editor::start(agent(&environment, &writes("a.txt")), json!({})).await;
    let waiting = editor.session(&environment).await;
    let turn = editor.begin(&waiting, "write").await;
    let question = editor.until(asks).await;
    assert_eq!(question["params"]["sessionId"], json!(waiting));
    for _ in 0..3 {
        let other = editor.session(&environment).await;
        let mode = json!({"sessionId": other, "modeId": "yolo"});
        assert_eq!(editor.ask("session/set_mode", mode).await["result"], json!({}));
        let end = editor.prompt(&other, "write").await;
        assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
        assert_eq!(editor.ask("session/close", json!({"sessionId": other})).await["result"], json!({}));
    }
    let steer = json!({"sessionId": waiting, "text": "be quick"});
    assert_eq!(editor.ask("_convoke/session/steer", steer.clone()).await["result"], json!({"outcome": "taken"}));
    editor.permit(&question, "proceed_once").await;
    assert_eq!(editor.answer(turn).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.ask("_convoke/session/steer", steer).await["result"], json!({"outcome": "no_turn"}));
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn what_was_said_too_late_comes_back_with_the_answer() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", json!({"model": {"maxSessionTurns": 1}}).to_string());
    let (mut editor, welcome) = Editor::start(agent(&environment, &writes("a.txt")), json!({})).await;
    assert_eq!(
        welcome["agentCapabilities"]["_meta"]["convoke.methods"],
        json!([
            "_convoke/session/steer",
            "_convoke/session/rewind_points",
            "_convoke/session/rewind",
            "_convoke/session/branch",
        ])
    );
    let session = editor.session(&environment).await;
    let turn = editor.begin(&session, "write").await;
    let question = editor.until(asks).await;
    let steer = json!({"sessionId": session, "text": "in German"});
    assert_eq!(editor.ask("_convoke/session/steer", steer).await["result"], json!({"outcome": "taken"}));
    editor.permit(&question, "proceed_once").await;
    let end = editor.answer(turn).await["result"].clone();
    assert_eq!(end["stopReason"], "max_turn_requests", "{end}");
    assert_eq!(end["_meta"]["convoke.unread"], json!(["in German"]));
}

#[tokio::test]
async fn an_editor_that_goes_in_the_middle_of_a_turn_leaves_nothing_behind() {
    let environment = TestEnvironment::new();
    let command = json!({"command": "echo $$ > pid; exec sleep 1000"});
    let answers = [call("run_shell_command", command), say("Done.")];
    let (mut editor, _) = Editor::start(agent(&environment, &answers), json!({})).await;
    editor.choice = Some("proceed_once");
    let session = editor.session(&environment).await;
    editor.begin(&session, "sleep").await;
    // The question is answered on the way.
    editor.until(asks).await;
    let pid = async {
        loop {
            if let Some(pid) = environment.read("workspace/pid").filter(|pid| pid.ends_with('\n')) {
                return pid.trim().to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let pid = tokio::time::timeout(super::SOON, pid).await.unwrap();
    let process = std::path::PathBuf::from(format!("/proc/{pid}"));
    assert!(process.exists());
    let agent = std::path::PathBuf::from(format!("/proc/{}", editor.id()));
    assert!(editor.leave().await.success());
    assert!(!agent.exists() && !process.exists());
}

#[tokio::test]
async fn an_editor_that_is_killed_over_a_question_leaves_a_whole_record() {
    let environment = TestEnvironment::new();
    let (mut editor, _) = Editor::start(agent(&environment, &writes("a.txt")), json!({})).await;
    let session = editor.session(&environment).await;
    editor.begin(&session, "write it").await;
    editor.until(asks).await;
    let agent_process = std::path::PathBuf::from(format!("/proc/{}", editor.id()));
    assert!(editor.vanish().await.success());
    assert!(!agent_process.exists());
    assert_eq!(environment.read("workspace/a.txt"), None);

    let (mut editor, _) = Editor::start(agent(&environment, &[say("I know.")]), json!({})).await;
    let load = json!({"sessionId": session, "cwd": environment.workspace(), "mcpServers": []});
    let loaded = editor.ask("session/load", load).await;
    assert_eq!((&loaded["error"], &loaded["result"]["_meta"]["convoke.damagedLines"]), (&Value::Null, &Value::Null));
    assert_eq!(editor.said("user_message_chunk"), "write it");
    let ends = editor.updates("tool_call_update");
    assert_eq!(ends.last().unwrap()["status"], "failed", "{ends:?}");
    assert_eq!(editor.prompt(&session, "go on").await["result"]["stopReason"], "end_turn");
    assert!(editor.leave().await.success());
}

#[tokio::test]
async fn hooks_of_an_editor_s_session_begin_end_and_deny() {
    let environment = TestEnvironment::new();
    let note = |event: &str| json!([{"hooks": [{"type": "command", "command": format!("echo {event} >> noted")}]}]);
    let deny = json!([{"matcher": "write_file", "hooks": [
        {"type": "command", "command": "echo not here >&2; exit 2"},
    ]}]);
    let hooks = json!({"SessionStart": note("start"), "SessionEnd": note("end"), "BeforeTool": deny});
    environment.write("home/.convoke/settings.json", json!({"hooks": hooks}).to_string());
    let (mut editor, _) = Editor::start(agent(&environment, &writes("a.txt")), json!({})).await;
    editor.choice = Some("proceed_once");
    let session = editor.session(&environment).await;
    let end = editor.prompt(&session, "write").await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    assert_eq!(environment.read("workspace/a.txt"), None);
    let ends = editor.updates("tool_call_update");
    let denied = ends.last().unwrap();
    assert_eq!(denied["status"], "failed", "{denied}");
    assert!(denied["content"][0]["content"]["text"].as_str().unwrap().contains("not here"), "{denied}");
    assert_eq!(environment.read("workspace/noted").as_deref(), Some("start\n"));
    assert!(editor.leave().await.success());
    assert_eq!(environment.read("workspace/noted").as_deref(), Some("start\nend\n"));
}

/// The words of the agent since `from`.
fn words(editor: &Editor, from: usize) -> String {
    let updates = editor.heard[from..].iter().map(|message| &message["params"]["update"]);
    let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
}

#[tokio::test]
async fn an_editor_s_command_compresses_and_its_hook_hears_of_it_then() {
    let environment = TestEnvironment::new();
    let noted = environment.home().join("noted");
    let note = format!("cat >> {0}; echo >> {0}", noted.display());
    let hooks = json!({"PreCompress": [{"hooks": [{"type": "command", "command": note}]}]});
    environment.write("home/.convoke/settings.json", json!({ "hooks": hooks }).to_string());
    let long: String = (0..3_000).map(|n| format!("word {n} ")).collect();
    let (command, candidates) = (agent(&environment, &[say(&long)]), say("<state_snapshot>short</state_snapshot>"));
    let aside = json!({"method": "generateContent", "response": {"candidates": candidates}}).to_string();
    let script = environment.read("responses.jsonl").unwrap() + &format!("{aside}\n{aside}\n");
    environment.write("responses.jsonl", script);
    let (mut editor, _) = Editor::start(command, json!({})).await;
    let session = editor.session(&environment).await;
    let offers = |message: &Value| message["params"]["update"]["availableCommands"].is_array();
    let offered = match editor.heard.iter().find(|message| offers(message)).cloned() {
        Some(offered) => offered,
        None => editor.until(offers).await,
    };
    assert!(offered.to_string().contains("\"compress\""), "{offered}");
    assert_eq!(editor.prompt(&session, "say words").await["result"]["stopReason"], "end_turn");
    assert_eq!(environment.read("home/noted"), None);
    let before = editor.heard.len();
    assert_eq!(editor.prompt(&session, "/compress").await["result"]["stopReason"], "end_turn");
    let said = words(&editor, before);
    assert!(said.starts_with("Compressed the conversation from "), "{said}");
    let told: Value = serde_json::from_str(environment.read("home/noted").unwrap().trim()).unwrap();
    assert_eq!((&told["trigger"], &told["session_id"]), (&json!("manual"), &json!(session)));
    assert!(editor.leave().await.success());
}
