//! A whole session against a scripted model: order of events, permission, cancellation, failure.

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use convoke_adk::{FinishReason, LlmResponse, ModelError, ModelErrorKind, Part};
use convoke_agent::{AfterAgent, AgentFactory, BeforeAgent, LifecycleHooks, NoLifecycleHooks};
use convoke_protocol::{
    AgentSend, AgentSession, ApprovalMode, NewSession, PermissionContent, PermissionOutcome, SendError, SendMessage,
    SessionError, SessionFactory, SetModeError, StreamEndReason, StreamFrom,
};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio::sync::mpsc;

use crate::rig::*;

#[tokio::test]
async fn the_order_of_a_turn_with_tools() {
    let thought = piece(vec![Part::thought("hm")]);
    let calls =
        piece(vec![call("read_file", json!({"file_path": "a.txt"})), call("list_directory", json!({"dir_path": "."}))]);
    let rig =
        Rig::new(vec![vec![thought, text("Let me "), text("look."), calls, stop()], vec![text("Done."), stop()]]).await;
    let events = rig.run("hi").await;
    let all = sketch(&events);
    assert_eq!(
        all[..8],
        [
            "agent_start",
            "session_update scripted-1",
            "thought hm",
            "message Let me ",
            "message look.",
            "usage 10",
            "tool_request read_file",
            "tool_request list_directory",
        ]
    );
    assert_eq!(all[all.len() - 3..], ["message Done.", "usage 10", "agent_end Completed"]);
    assert_eq!(all.iter().filter(|line| line.starts_with("tool_response")).count(), 2);
    assert!(all.iter().all(|line| !line.ends_with("error")));
    // The prompt comes before the start and carries the stream's id.
    let first = &rig.session.agent.events()[0];
    assert_eq!(
        (sketch(std::slice::from_ref(first))[0].as_str(), &first.stream_id),
        ("message hi", &events[0].stream_id)
    );
    let ids: std::collections::HashSet<_> = rig.session.agent.events().iter().map(|e| e.id.clone()).collect();
    assert_eq!(ids.len(), events.len() + 1);
    let requests = rig.requests.lock().unwrap();
    assert!(requests[0].system_instruction[0].contains("Speak plainly."));
    assert!(requests[0].contents[0].joined_text().contains("<session_context>"));
    assert!(requests[1].contents[2].function_responses()[0].response["output"].as_str().unwrap().contains("one"));
}

#[tokio::test]
async fn a_write_is_asked_about_with_its_diff_and_carried_out() {
    let write = piece(vec![call("write_file", json!({"file_path": "b.txt", "content": "two\n"}))]);
    let mut rig = Rig::new(vec![vec![write, stop()], vec![text("Written."), stop()]]).await;
    let events = rig.send("write").await.unwrap();
    let (request, answer) = rig.questions.recv().await.unwrap();
    let path = rig.dir.path().canonicalize().unwrap().join("b.txt").display().to_string();
    assert_eq!(
        request.content,
        [PermissionContent::Diff { path: path.clone(), old_text: None, new_text: "two\n".into() }]
    );
    assert_eq!(request.locations[0].path, path);
    let ids: Vec<_> = request.options.iter().map(|option| option.option_id.as_str()).collect();
    assert_eq!(ids, ["proceed_once", "proceed_always", "cancel"]);
    assert!(!Path::new(&path).exists());
    answer.send(PermissionOutcome::Selected { option_id: "proceed_once".into() }).unwrap();
    let all = sketch(&events.collect::<Vec<_>>().await);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    let tool: Vec<_> = all.iter().filter(|line| line.starts_with("tool")).collect();
    assert_eq!(
        tool,
        [
            "tool_request write_file",
            "tool_update awaiting_approval",
            "tool_update scheduled",
            "tool_update executing",
            "tool_response write_file"
        ]
    );
}

#[tokio::test]
async fn a_rejection_is_told_to_the_model_and_the_run_goes_on() {
    let shell = piece(vec![call("run_shell_command", json!({"command": "touch made"}))]);
    let mut rig = Rig::new(vec![vec![shell, stop()], vec![text("As you wish."), stop()]]).await;
    let events = rig.send("run").await.unwrap();
    let (request, answer) = rig.questions.recv().await.unwrap();
    assert_eq!(request.title, "touch made");
    answer.send(PermissionOutcome::Selected { option_id: "cancel".into() }).unwrap();
    let events: Vec<_> = events.collect().await;
    let all = sketch(&events);
    assert!(all.contains(&"tool_response run_shell_command error".to_owned()), "{all:?}");
    assert_eq!(all.last().unwrap(), "agent_end Completed");
    assert!(!rig.dir.path().join("made").exists());
    assert!(events.iter().any(|event| told(event).contains("did not run")));
}

#[tokio::test]
async fn an_always_answer_switches_the_mode_and_says_so() {
    let write = || piece(vec![call("write_file", json!({"file_path": "b.txt", "content": "x"}))]);
    let answers = vec![vec![write(), stop()], vec![write(), stop()], vec![text("ok"), stop()]];
    let mut rig = Rig::new(answers).await;
    let events = rig.send("write twice").await.unwrap();
    let (_, answer) = rig.questions.recv().await.unwrap();
    answer.send(PermissionOutcome::Selected { option_id: "proceed_always".into() }).unwrap();
    let all = sketch(&events.collect::<Vec<_>>().await);
    assert!(all.contains(&"session_update {\"approvalMode\":\"autoEdit\"}".to_owned()), "{all:?}");
    assert_eq!(rig.session.control.approval_mode(), ApprovalMode::AutoEdit);
    assert!(rig.questions.try_recv().is_err());
}

#[tokio::test]
async fn aborting_ends_a_silent_model_and_a_pending_question() {
    let mut rig =
        Rig::new(vec![vec![piece(vec![call("run_shell_command", json!({"command": "touch asked"}))]), stop()]]).await;
    let events = rig.send("run").await.unwrap();
    let question = rig.questions.recv().await.unwrap();
    assert_eq!(rig.send("again").await.err(), Some(SendError::Busy));
    rig.session.agent.abort().await;
    drop(question);
    let all = sketch(&events.collect::<Vec<_>>().await);
    assert_eq!(all.last().unwrap(), "agent_end Aborted");
    assert!(all.iter().all(|line| !line.starts_with("error")), "{all:?}");
    // Now the model says nothing at all.
    let events = rig.send("again").await.unwrap();
    rig.session.agent.abort().await;
    rig.session.agent.abort().await;
    assert_eq!(sketch(&events.collect::<Vec<_>>().await).last().unwrap(), "agent_end Aborted");
}

#[tokio::test]
async fn a_model_error_is_fatal_and_says_what_kind() {
    let refused = ModelError { status: Some(429), ..ModelError::new(ModelErrorKind::Quota, "used up") };
    let rig = Rig::new(vec![vec![Err(refused)], vec![text("fine"), stop()]]).await;
    let events = rig.run("hi").await;
    assert_eq!(sketch(&events)[2..], ["error used up fatal=true", "agent_end Failed"]);
    assert_eq!(events[2].meta["errorKind"], "quota");
    assert_eq!(events[2].meta["status"], 429);
    // The session survives it.
    assert_eq!(sketch(&rig.run("again").await).last().unwrap(), "agent_end Completed");
}

#[tokio::test]
async fn limits_and_finish_reasons_end_a_stream_honestly() {
    let again = || vec![piece(vec![call("list_directory", json!({"dir_path": "."}))]), stop()];
    let rig = Rig::new((0..6).map(|_| again()).collect()).await;
    assert_eq!(sketch(&rig.run("loop").await).last().unwrap(), "agent_end MaxTurns");
    for (finish, reason) in [
        ("MAX_TOKENS", StreamEndReason::MaxBudget),
        ("SAFETY", StreamEndReason::Refusal),
        ("OTHER", StreamEndReason::Failed),
    ] {
        let end = LlmResponse { finish_reason: Some(FinishReason(finish.into())), ..LlmResponse::default() };
        let rig = Rig::new(vec![vec![text("x"), Ok(end)]]).await;
        assert_eq!(sketch(&rig.run("hi").await).last().unwrap(), &format!("agent_end {reason:?}"));
    }
}

#[tokio::test]
async fn an_unknown_tool_is_an_answer() {
    let rig = Rig::new(vec![vec![piece(vec![call("teleport", json!({}))]), stop()], vec![text("ok"), stop()]]).await;
    let events = rig.run("hi").await;
    let all = sketch(&events);
    assert!(all.contains(&"tool_request teleport".to_owned()), "{all:?}");
    assert!(events.iter().any(|event| told(event).contains("Tool \"teleport\" not found")), "{events:?}");
    assert_eq!(all.last().unwrap(), "agent_end Completed");
}

#[derive(Default)]
struct Hooks(Mutex<Vec<String>>);

#[async_trait]
impl LifecycleHooks for Hooks {
    async fn before_agent(&self, prompt: &str) -> BeforeAgent {
        self.0.lock().unwrap().push(format!("before {prompt}"));
        let block = prompt.contains("secret").then(|| "not that".to_owned());
        BeforeAgent { block, additional_context: Some("by the way".into()), ..BeforeAgent::default() }
    }

    async fn after_agent(&self, _: &str, response: &str, active: bool) -> AfterAgent {
        self.0.lock().unwrap().push(format!("after {response} {active}"));
        AfterAgent { continue_with: (!active).then(|| "go on".into()), ..AfterAgent::default() }
    }
}

#[tokio::test]
async fn lifecycle_hooks_are_called_and_heard() {
    let hooks = Arc::new(Hooks::default());
    let rig = Rig::with_hooks(vec![vec![text("one"), stop()], vec![text("two"), stop()]], hooks.clone()).await;
    assert_eq!(sketch(&rig.run("hi").await).last().unwrap(), "agent_end Completed");
    assert_eq!(*hooks.0.lock().unwrap(), ["before hi", "after one false", "after two true"]);
    assert!(rig.requests.lock().unwrap()[0].contents[0].joined_text().ends_with("by the way"));
    let all = sketch(&rig.run("a secret").await);
    assert_eq!(all[2..], ["error Agent execution blocked: not that fatal=false", "agent_end Completed"]);
}

#[tokio::test]
async fn output_that_is_too_large_is_kept_and_can_be_read_back() {
    let answers = vec![
        vec![piece(vec![call("run_shell_command", json!({"command": "seq 1 20000"}))]), stop()],
        vec![text("ok"), stop()],
    ];
    let (mut options, requests) = options(answers, Arc::new(NoLifecycleHooks));
    let dir = tempfile::tempdir().unwrap();
    let (work, outputs) = (dir.path().join("work"), dir.path().join("outputs"));
    std::fs::create_dir(&work).unwrap();
    options.output_folder = Some(outputs.clone());
    options.policy.mode = convoke_tools::Mode::Yolo;
    let new = NewSession { session_id: Some("s".into()), ..NewSession::new(work, Arc::new(Asked(mpsc::channel(1).0))) };
    let session = AgentFactory::new(options).new_session(new).await.unwrap();
    let view = AgentSession::new(session.agent.clone());
    let events = view.send_stream(AgentSend::Message(SendMessage::text("go"))).await.unwrap();
    events.for_each(|_| std::future::ready(())).await;
    let told = requests.lock().unwrap()[1].contents[2].function_responses()[0].response["output"].to_string();
    assert!(told.contains("characters omitted") && told.len() < 60_000, "{}", told.len());
    let kept = std::fs::read_dir(outputs.join("session-s")).unwrap().next().unwrap().unwrap().path();
    assert!(told.contains(kept.file_name().unwrap().to_str().unwrap()));
    assert!(std::fs::read_to_string(kept).unwrap().contains("\n10000\n"));
    session.control.close().await;
    assert!(!outputs.join("session-s").exists());
}

/// A program that never ends.
struct Stuck;

#[async_trait]
impl LifecycleHooks for Stuck {
    async fn before_agent(&self, _: &str) -> BeforeAgent {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_stuck_hook_does_not_hold_an_abort_up() {
    let rig = Rig::with_hooks(Vec::new(), Arc::new(Stuck)).await;
    let events = rig.send("hi").await.unwrap();
    rig.session.agent.abort().await;
    assert_eq!(sketch(&events.collect::<Vec<_>>().await).last().unwrap(), "agent_end Aborted");
}

#[tokio::test]
async fn a_session_can_be_closed_and_its_modes_are_guarded() {
    let (mut options, requests) = options(Vec::new(), Arc::new(NoLifecycleHooks));
    options.policy.plan_enabled = false;
    let rig = Rig::with_options((options, requests)).await;
    let control = &rig.session.control;
    assert_eq!(control.approval_modes(), [ApprovalMode::Default, ApprovalMode::AutoEdit, ApprovalMode::Yolo]);
    assert_eq!(control.set_approval_mode(ApprovalMode::Yolo), Ok(()));
    let unavailable = Err(SetModeError::Unavailable(ApprovalMode::Plan));
    assert_eq!(control.set_approval_mode(ApprovalMode::Plan), unavailable);
    let events = rig.send("hi").await.unwrap();
    control.close().await;
    assert_eq!(sketch(&events.collect::<Vec<_>>().await).last().unwrap(), "agent_end Aborted");
    assert_eq!(rig.send("hi").await.err(), Some(SendError::Closed));
    let view = AgentSession::new(rig.session.agent.clone());
    assert_eq!(view.stream(StreamFrom::Current).unwrap().count().await, 0);
}

#[tokio::test]
async fn unusable_folders_and_taken_ids_are_refused() {
    let (options, _) = options(Vec::new(), Arc::new(NoLifecycleHooks));
    let factory = AgentFactory::new(options);
    let new = |cwd: &str| NewSession {
        session_id: Some("same".into()),
        ..NewSession::new(cwd.into(), Arc::new(Asked(mpsc::channel(1).0)))
    };
    for cwd in ["relative", "/no/such/folder"] {
        assert!(matches!(factory.new_session(new(cwd)).await.err(), Some(SessionError::Workspace { .. })));
    }
    factory.new_session(new("/tmp")).await.unwrap();
    assert!(matches!(factory.new_session(new("/tmp")).await.err(), Some(SessionError::Taken(_))));
}
