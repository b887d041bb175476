//! Servers of a session and of a subagent, behind the same questions as any tool.

use std::sync::Arc;

use convoke_mcp::ServerConfig;
use convoke_protocol::{AgentEvent, AgentEventBody, PermissionOutcome};
use convoke_testkit::scripted_mcp_binary;
use serde_json::json;

use crate::cast::*;
use crate::rig::{stop, text, told};

fn answers(events: &[Arc<AgentEvent>], tool: &str) -> Vec<String> {
    let of_tool =
        |event: &&Arc<AgentEvent>| matches!(&event.body, AgentEventBody::ToolResponse { name, .. } if name == tool);
    events.iter().filter(of_tool).map(|event| told(event)).collect()
}

#[tokio::test]
async fn an_answer_for_a_whole_server_is_asked_for_once_and_holds_for_that_server() {
    let echo = |server: &str| (format!("mcp_{server}_echo"), json!({"text": "one"}));
    let (first, other) = (echo("a"), echo("b"));
    let script = vec![
        calls(&[(&first.0, first.1.clone())]),
        calls(&[("mcp_a_with_under_scores", json!({"text": "two"})), (&first.0, first.1)]),
        calls(&[(&other.0, other.1)]),
        vec![text("ok"), stop()],
    ];
    let mut stage = Stage::with(&[], &[("main", script)], |options| {
        let entry = json!({"command": scripted_mcp_binary()});
        options.mcp.servers = ["a", "b"].map(|name| ServerConfig::parse(name, &entry).unwrap()).to_vec();
        options.mcp.wait = std::time::Duration::from_secs(60);
    })
    .await;
    let events = stage.send("go").await;
    let (request, answer) = stage.question().await;
    let offered: Vec<&str> = request.options.iter().map(|option| option.option_id.as_str()).collect();
    assert!(offered.contains(&"proceed_always_server"), "{offered:?}");
    answer.send(PermissionOutcome::Selected { option_id: "proceed_always_server".into() }).unwrap();
    // The next question is about the other server.
    let (_, answer) = stage.question().await;
    answer.send(PermissionOutcome::Selected { option_id: "cancel".into() }).unwrap();
    let events = stage.finish(events).await;
    assert_eq!(answers(&events, "mcp_a_echo").len(), 2);
    assert!(answers(&events, "mcp_a_echo").iter().all(|answer| answer.contains("one")));
    assert!(answers(&events, "mcp_a_with_under_scores")[0].contains("two"));
    assert!(!answers(&events, "mcp_b_echo")[0].contains("one"), "it was refused");
    stage.session.control.close().await;
}

#[tokio::test]
async fn a_subagent_brings_no_server_in_the_name_of_one_that_people_trust() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let keys = format!(
        "mcp_servers:\n  db:\n    command: {}\n    args: [\"--log\", \"{}\"]\n",
        scripted_mcp_binary().display(),
        log.display()
    );
    let scout = vec![calls(&[("mcp_db_echo", json!({"text": "hello"}))]), done("It says hello.")];
    let main = vec![invoke(&["scout"]), vec![text("ok"), stop()]];
    let stage = Stage::with(&[("scout", &keys)], &[("main", main), ("scout", scout)], |options| {
        let entry = json!({"command": scripted_mcp_binary(), "trust": true});
        options.mcp.servers = vec![ServerConfig::parse("db", &entry).unwrap()];
        options.mcp.wait = std::time::Duration::from_secs(60);
        options.policy.trusted = true;
    })
    .await;
    let events = stage.send("go").await;
    // Nobody is asked: it is the trusted server that answers.
    let events = stage.finish(events).await;
    assert!(answers(&events, "mcp_db_echo")[0].contains("hello"));
    assert!(!log.exists(), "what the definition brought was started");
    stage.session.control.close().await;
}

#[tokio::test]
async fn a_subagent_s_own_server_lives_as_long_as_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let keys = format!(
        "tools: [read_file]\nmcp_servers:\n  own_db:\n    command: {}\n    args: [\"--log\", \"{}\"]\n    exclude_tools: [hang]\n",
        scripted_mcp_binary().display(),
        log.display()
    );
    let scout = vec![
        calls(&[("mcp_own_db_echo", json!({"text": "hello"})), ("mcp_own_db_hang", json!({}))]),
        done("It says hello."),
    ];
    let main = vec![invoke(&["scout"]), calls(&[("mcp_own_db_echo", json!({"text": "x"}))]), vec![text("ok"), stop()]];
    let mut stage = Stage::with(&[("scout", &keys)], &[("main", main), ("scout", scout)], |options| {
        options.mcp.wait = std::time::Duration::from_secs(60);
    })
    .await;
    let events = stage.send("go").await;
    assert!(!log.exists(), "it is not started before it is needed");
    let (_, answer) = stage.question().await;
    answer.send(PermissionOutcome::Selected { option_id: "proceed_once".into() }).unwrap();
    let events = stage.finish(events).await;
    let said = answers(&events, "mcp_own_db_echo");
    assert!(said[0].contains("hello"), "{said:?}");
    // Neither what was left out nor its caller have any of it.
    assert!(answers(&events, "mcp_own_db_hang")[0].contains("not found"), "{events:?}");
    assert!(said[1].contains("not found"), "{said:?}");
    assert!(std::fs::read_to_string(&log).unwrap().contains("tools/call"));
    stage.session.control.close().await;
}
