//! An editor that takes its session back, and branches off.

use convoke_testkit::TestEnvironment;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{Editor, agent, call, say};

/// What is another one each time, and where the test is, under names of their own.
fn plain(mut value: Value, environment: &TestEnvironment, ids: &[(&str, &str)]) -> Value {
    if let Some(points) = value.get_mut("points").and_then(Value::as_array_mut) {
        points.iter_mut().for_each(|point| point["at"] = json!("<at>"));
    }
    let work = environment.workspace().canonicalize().unwrap().display().to_string();
    let mut text = value.to_string().replace(&work, "<work>");
    for (id, name) in ids {
        text = text.replace(id, name);
    }
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_session_goes_back_with_its_files_and_a_branch_goes_on() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "by hand\n");
    let write = |text: &str| call("write_file", json!({"file_path": "a.txt", "content": text}));
    let answers = [
        write("one\n"),
        say("first"),
        call("run_shell_command", json!({"command": "echo two > a.txt; echo new > b.txt"})),
        say("second"),
        say("third"),
    ];
    let (mut editor, _) = Editor::start(agent(&environment, &answers), json!({})).await;
    let session = editor.session(&environment).await;
    let mode = json!({"sessionId": session, "modeId": "yolo"});
    editor.ask("session/set_mode", mode).await;
    for prompt in ["one please", "two please"] {
        let end = editor.prompt(&session, prompt).await;
        assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    }
    let points = editor.ask("_convoke/session/rewind_points", json!({"sessionId": session})).await["result"].clone();
    let id = |at: usize| points["points"][at]["messageId"].as_str().unwrap().to_owned();
    let (first, second) = (id(0), id(1));
    let ids = [(first.as_str(), "<first>"), (second.as_str(), "<second>")];
    let lasting = json!([{"kind": "command", "what": "echo two > a.txt; echo new > b.txt"}]);
    assert_eq!(
        plain(points, &environment, &ids),
        json!({"outcome": "points", "points": [
            {"messageId": "<first>", "number": 1, "prompt": "one please", "at": "<at>", "filesTotal": 2,
             "files": ["<work>/a.txt", "<work>/b.txt"], "turn": {"files": 1, "added": 1, "removed": 1}, "lasting": lasting},
            {"messageId": "<second>", "number": 2, "prompt": "two please", "at": "<at>", "filesTotal": 2,
             "files": ["<work>/a.txt", "<work>/b.txt"], "turn": {"files": 2, "added": 2, "removed": 1}, "lasting": lasting},
        ]})
    );

    let branch = editor.ask("_convoke/session/branch", json!({"sessionId": session, "at": 2})).await["result"].clone();
    assert_eq!((&branch["outcome"], &branch["title"]), (&json!("branched"), &json!("one please (branch)")));

    environment.write("workspace/b.txt", "by hand\n");
    let back = |to: &str, force: bool| json!({"sessionId": session, "to": to, "what": "both", "force": force});
    let refused = editor.ask("_convoke/session/rewind", back(&second, false)).await["result"].clone();
    assert_eq!(
        plain(refused, &environment, &ids),
        json!({"outcome": "conflicts",
            "conflicts": [{"path": "<work>/b.txt", "why": "it was changed since by somebody else"}]})
    );
    assert_eq!(environment.read("workspace/a.txt").as_deref(), Some("two\n"));
    let done = editor.ask("_convoke/session/rewind", back(&second, true)).await["result"].clone();
    assert_eq!(
        plain(done, &environment, &ids),
        json!({"outcome": "done", "messageId": "<second>", "number": 2, "what": "both", "prompt": "two please",
            "files": ["<work>/a.txt", "<work>/b.txt"], "left": []})
    );
    assert_eq!(environment.read("workspace/a.txt").as_deref(), Some("one\n"));
    assert_eq!(environment.read("workspace/b.txt"), None);

    let unknown = editor.ask("_convoke/session/rewind", back(&second, false)).await;
    assert_eq!(unknown["result"], json!({"outcome": "unknown_point"}));
    for wrong in [json!({"to": true}), json!({"to": 1, "what": "all"}), json!({"what": "both"})] {
        let mut params = wrong;
        params["sessionId"] = json!(session);
        assert_eq!(editor.ask("_convoke/session/rewind", params).await["error"]["code"], -32602);
    }
    let turn = editor.begin(&session, "three please").await;
    let during = editor.ask("_convoke/session/rewind", back(&first, false)).await;
    let end = editor.answer(turn).await;
    assert_eq!(end["result"]["stopReason"], "end_turn", "{end}");
    // The turn may have been over by then.
    assert!(["busy", "done"].contains(&during["result"]["outcome"].as_str().unwrap()), "{during}");

    let branch = branch["sessionId"].clone();
    let load = json!({"sessionId": branch, "cwd": environment.workspace(), "mcpServers": []});
    editor.heard.clear();
    let loaded = editor.ask("session/load", load).await;
    assert!(loaded["error"].is_null(), "{loaded}");
    assert_eq!(editor.said("user_message_chunk"), "one please");
    assert!(editor.leave().await.success());
}
