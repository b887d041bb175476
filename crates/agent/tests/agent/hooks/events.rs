//! The events around prompts, tools and sessions: their inputs and their effects.

use convoke_protocol::{AgentEventBody, PermissionOutcome};
use convoke_tools::Mode;
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::rig::*;
use crate::rig::*;

fn specific(inner: Value) -> Value {
    json!({"hookSpecificOutput": inner})
}

fn reads() -> Vec<Answer> {
    vec![vec![piece(vec![call("read_file", json!({"file_path": "a.txt"}))]), stop()], vec![text("ok"), stop()]]
}

#[tokio::test]
async fn before_tool_is_told_the_call_and_may_rewrite_it() {
    let hook = notes(specific(json!({"tool_input": {"file_path": "b.txt"}})));
    let hooked = Setup::new(reads()).start(json!({"BeforeTool": [{"matcher": "^read_", "hooks": [hook]}]})).await;
    std::fs::write(hooked.dir().join("b.txt"), "two\n").unwrap();
    hooked.rig.run("go").await;
    let noted = &hooked.noted()[0];
    assert_eq!((noted["session_id"].as_str(), noted["hook_event_name"].as_str()), (Some("s"), Some("BeforeTool")));
    assert_eq!((&noted["tool_name"], &noted["tool_input"]), (&json!("read_file"), &json!({"file_path": "a.txt"})));
    assert_eq!(noted["cwd"], json!(hooked.dir().canonicalize().unwrap()));
    assert!(noted["timestamp"].as_str().unwrap().ends_with('Z') && noted["transcript_path"].is_string());
    assert!(hooked.told(1)[0]["output"].as_str().unwrap().contains("two"));
}

#[tokio::test]
async fn before_tool_refuses_stops_and_asks() {
    let said = |output: Value| json!({"BeforeTool": [{"matcher": "read_file", "hooks": [notes(output)]}]});
    let hooked = Setup::new(reads()).start(said(json!({"decision": "block", "reason": "no"}))).await;
    hooked.rig.run("go").await;
    assert_eq!(hooked.told(1)[0], json!({"error": "Tool execution blocked: no"}));

    let hooked = Setup::new(reads()).start(said(json!({"continue": false, "stopReason": "enough"}))).await;
    let events = hooked.rig.run("go").await;
    assert_eq!(messages(&events), ["Agent execution stopped by hook: enough"]);
    assert_eq!(sketch(&events).last().unwrap(), "agent_end Completed");
    assert_eq!(hooked.rig.requests.lock().unwrap().len(), 1);

    // Even where nothing is asked about otherwise.
    let mut hooked = Setup::new(reads()).start(said(json!({"decision": "ask", "reason": "sure?"}))).await;
    let events = hooked.rig.send("go").await.unwrap();
    let (request, answer) = hooked.rig.questions.recv().await.unwrap();
    assert!(format!("{:?}", request.content).contains("sure?"));
    answer.send(PermissionOutcome::Selected { option_id: "cancel".into() }).unwrap();
    events.collect::<Vec<_>>().await;

    // Nobody to ask: a question is a refusal. And an allow allows nothing that policy does not.
    let mut setup = Setup::new(reads());
    setup.interactive = false;
    let hooked = setup.start(said(json!({"decision": "ask", "reason": "sure?"}))).await;
    hooked.rig.run("go").await;
    assert!(hooked.told(1)[0]["error"].as_str().unwrap().contains("sure?"));
    let writes = vec![
        vec![piece(vec![call("write_file", json!({"file_path": "c.txt", "content": "x"}))]), stop()],
        vec![text("ok"), stop()],
    ];
    let mut setup = Setup::new(writes);
    (setup.interactive, setup.mode) = (false, Mode::Default);
    let hooked = setup.start(json!({"BeforeTool": one(notes(json!({"decision": "allow"})))})).await;
    hooked.rig.run("go").await;
    assert!(hooked.told(1)[0]["error"].is_string() && !hooked.dir().join("c.txt").exists());
}

#[tokio::test]
async fn after_tool_adds_hides_replaces_and_stops() {
    let said = |output: Value| json!({"AfterTool": one(notes(output))});
    let hooked = Setup::new(reads()).start(said(specific(json!({"additionalContext": "<b>"})))).await;
    hooked.rig.run("go").await;
    let noted = &hooked.noted()[0];
    assert!(noted["tool_response"]["llmContent"].as_str().unwrap().contains("one"));
    let told = hooked.told(1)[0]["output"].as_str().unwrap().to_owned();
    assert!(told.contains("one") && told.ends_with("<hook_context>&lt;b&gt;</hook_context>"), "{told}");

    let hooked = Setup::new(reads()).start(said(json!({"decision": "deny", "reason": "private"}))).await;
    let events = hooked.rig.run("go").await;
    assert_eq!(hooked.told(1)[0], json!({"error": "Tool result blocked: private"}));
    assert!(!format!("{events:?}").contains("one\\n"), "what is hidden is hidden from everybody");

    let hooked = Setup::new(reads()).start(said(json!({"continue": false}))).await;
    let events = hooked.rig.run("go").await;
    assert!(messages(&events)[0].starts_with("Agent execution stopped by hook: no reason"), "{events:?}");

    let tail = json!({"tailToolCallRequest": {"name": "list_directory", "args": {"dir_path": "."}}});
    let hook = json!({"AfterTool": [{"matcher": "read_file", "hooks": [notes(specific(tail))]}],
        "BeforeTool": [{"matcher": "list_directory", "hooks": [notes(json!({}))]}]});
    let hooked = Setup::new(reads()).start(hook).await;
    hooked.rig.run("go").await;
    assert!(hooked.told(1)[0]["output"].as_str().unwrap().contains("a.txt"));
    let noted = hooked.noted();
    assert_eq!(noted[1]["original_request_name"], "read_file");
}

#[tokio::test]
async fn before_agent_adds_blocks_and_stops_once_per_prompt() {
    let said = |output: Value| json!({"BeforeAgent": one(notes(output))});
    let hooked = Setup::new(reads()).start(said(specific(json!({"additionalContext": "mind the gap"})))).await;
    hooked.rig.run("go").await;
    assert!(hooked.asked(0).contains("go<hook_context>mind the gap</hook_context>"), "{}", hooked.asked(0));
    assert_eq!(hooked.noted().len(), 1, "two model calls, one prompt");
    assert_eq!(hooked.noted()[0]["prompt"], "go");

    let hooked = Setup::new(reads()).start(said(json!({"decision": "deny", "reason": "not today"}))).await;
    let events = hooked.rig.run("go").await;
    assert_eq!(sketch(&events)[2..], ["error Agent execution blocked: not today fatal=false", "agent_end Completed"]);
    assert!(hooked.rig.requests.lock().unwrap().is_empty());

    let hooked = Setup::new(reads()).start(said(json!({"continue": false, "stopReason": "closed"}))).await;
    let events = hooked.rig.run("go").await;
    assert_eq!(messages(&events), ["Agent execution stopped by hook: closed"]);
    assert!(hooked.rig.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn after_agent_sends_back_to_work_and_clears() {
    // In Python: content on the second look.
    let program = r#"
import json, sys
told = json.load(sys.stdin)
open("noted", "a").write(json.dumps(told) + "\n")
if not told["stop_hook_active"]:
    print(json.dumps({"decision": "block", "reason": "run the tests"}))
elif told["prompt"] == "go":
    print(json.dumps({"hookSpecificOutput": {"clearContext": True}}))
"#;
    let answers = ["done", "tested", "new", "tested too"].map(|said| vec![text(said), stop()]).to_vec();
    let hooks = json!({"AfterAgent": one(python(program)),
        "SessionStart": one(command("cat >> started; echo >> started")), "SessionEnd": one(command("cat >> ended; echo >> ended"))});
    let hooked = Setup::new(answers).start(hooks).await;
    let events = hooked.rig.run("go").await;
    assert_eq!(sketch(&events).last().unwrap(), "agent_end Completed");
    assert!(sketch(&events).contains(&"custom context_cleared".to_owned()));
    assert!(hooked.asked(1).ends_with("run the tests\n"));
    assert_eq!(messages(&events), ["Agent execution blocked: run the tests"]);
    let noted = hooked.noted();
    assert_eq!((&noted[0]["prompt_response"], &noted[0]["prompt"]), (&json!("done"), &json!("go")));
    assert_eq!(noted[1]["stop_hook_active"], true);
    hooked.rig.run("again").await;
    assert!(!hooked.asked(2).contains("tested"), "the conversation was forgotten");
    hooked.rig.session.control.close().await;
    let of = |file: &str, field: &str| {
        let text = std::fs::read_to_string(hooked.dir().join(file)).unwrap();
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()[field].as_str().unwrap().to_owned();
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(of("started", "source"), ["startup", "clear"]);
    assert_eq!(of("ended", "reason"), ["clear", "exit"]);
}

#[tokio::test]
async fn a_session_s_start_adds_once_and_its_end_is_told() {
    let started = notes(specific(json!({"additionalContext": "it is Monday"})));
    let ended = notes(json!({}));
    let hooks = json!({"SessionStart": [{"matcher": "startup", "hooks": [started]}, {"matcher": "resume", "hooks": [command("exit 2")]}],
        "SessionEnd": [{"matcher": "exit", "hooks": [ended]}]});
    let hooked = Setup::new(vec![vec![text("a"), stop()], vec![text("b"), stop()]]).start(hooks).await;
    hooked.rig.run("go").await;
    hooked.rig.run("on").await;
    assert!(hooked.asked(0).contains("<hook_context>it is Monday</hook_context>go"), "{}", hooked.asked(0));
    assert_eq!(hooked.asked(1).matches("Monday").count(), 1);
    hooked.rig.session.control.close().await;
    let names: Vec<_> = hooked.noted().iter().map(|noted| noted["hook_event_name"].clone()).collect();
    assert_eq!(names, ["SessionStart", "SessionEnd"]);
    assert_eq!((&hooked.noted()[0]["source"], &hooked.noted()[1]["reason"]), (&json!("startup"), &json!("exit")));
}

#[tokio::test]
async fn a_question_is_notified_and_waits_for_nobody() {
    let writes = vec![
        vec![piece(vec![call("write_file", json!({"file_path": "c.txt", "content": "x"}))]), stop()],
        vec![text("ok"), stop()],
    ];
    let mut setup = Setup::new(writes);
    setup.mode = Mode::Default;
    // One that hangs: the session's end ends it.
    let group =
        json!([{"matcher": "ToolPermission", "hooks": [notes(json!({})), command("echo > hangs; sleep 1000")]}]);
    let mut hooked = setup.start(json!({"Notification": group})).await;
    let events = hooked.rig.send("go").await.unwrap();
    let (_, answer) = hooked.rig.questions.recv().await.unwrap();
    answer.send(PermissionOutcome::Selected { option_id: "proceed_once".into() }).unwrap();
    events.collect::<Vec<_>>().await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while hooked.noted().is_empty() || !hooked.dir().join("hangs").exists() {
        assert!(tokio::time::Instant::now() < deadline, "nobody was notified");
        tokio::task::yield_now().await;
    }
    let noted = &hooked.noted()[0];
    assert_eq!((&noted["notification_type"], &noted["details"]["type"]), (&json!("ToolPermission"), &json!("edit")));
    assert_eq!((&noted["details"]["fileName"], &noted["details"]["newContent"]), (&json!("c.txt"), &json!("x")));
    assert!(noted["message"].as_str().unwrap().contains("write_file"));
    let closed = tokio::time::timeout(std::time::Duration::from_secs(20), hooked.rig.session.control.close());
    closed.await.expect("a hook that hangs does not hold the end up");
}

#[tokio::test]
async fn a_message_is_shown_unless_it_is_suppressed() {
    let group = json!([{"hooks": [
        notes(json!({"systemMessage": "look"})), notes(json!({"systemMessage": "don't", "suppressOutput": true}))]}]);
    let hooked = Setup::new(vec![vec![text("a"), stop()]]).start(json!({"BeforeAgent": group})).await;
    let events = hooked.rig.run("go").await;
    assert_eq!(messages(&events), ["look"]);
    let data = events.iter().find_map(|event| match &event.body {
        AgentEventBody::Custom { data, .. } => data.clone(),
        _ => None,
    });
    assert_eq!(data.unwrap()["eventName"], "BeforeAgent");
}
