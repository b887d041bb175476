//! Tools that a project brings as programs.

use std::sync::Arc;

use convoke_agent::{AgentFactory, DiscoveryOptions, NoLifecycleHooks};
use convoke_protocol::{AgentSend, AgentSession, NewSession, SendMessage, SessionFactory};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::sync::mpsc;

use crate::rig::*;

const DISCOVER: &str = r#"#!/bin/sh
echo '[{"function_declarations": [{"name": "shout", "description": "Says it louder.", "parameters": {"type": "object"}}]}]'
"#;
/// Answers with the tool's name and what it was told; fails when it was told to.
const CALL: &str = r#"#!/bin/sh
args=$(cat)
case $args in *fail*) echo no >&2; exit 3;; esac
echo "$1 $args"
"#;

#[tokio::test]
async fn a_project_s_tools_are_offered_and_run_as_programs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("discover.sh"), DISCOVER).unwrap();
    std::fs::write(dir.path().join("call.sh"), CALL).unwrap();
    let say = |text: &str| piece(vec![call("discovered_tool_shout", json!({"text": text}))]);
    let answers = vec![vec![say("hi"), stop()], vec![say("fail"), stop()], vec![text("Done."), stop()]];
    let (mut options, requests) = options(answers, Arc::new(NoLifecycleHooks));
    options.policy.mode = convoke_tools::Mode::Yolo;
    options.tools.discovery =
        Some(DiscoveryOptions { discover: "sh discover.sh".to_owned(), call: "sh call.sh".to_owned() });
    let new = NewSession::new(dir.path().canonicalize().unwrap(), Arc::new(Asked(mpsc::channel(1).0)));
    let session = AgentFactory::new(options).new_session(new).await.unwrap();
    let view = AgentSession::new(session.agent.clone());
    let events = view.send_stream(AgentSend::Message(SendMessage::text("go"))).await.unwrap();
    let events: Vec<_> = events.collect().await;
    let answered: Vec<_> = events.iter().map(|event| told(event)).filter(|text| !text.is_empty()).collect();
    assert_eq!(
        answered,
        ["shout {\"text\":\"hi\"}\n", "Stderr: no\n\nError: it exited with code 3"].map(str::to_owned)
    );
    session.control.close().await;
    let requests = requests.lock().unwrap();
    let declared = &requests[0].tools["discovered_tool_shout"];
    assert!(declared.description.starts_with("Says it louder."), "{}", declared.description);
}
