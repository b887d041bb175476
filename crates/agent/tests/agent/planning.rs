//! Plan mode: who enters it, what may be done in it, who ends it, and what the model is told meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use convoke_adk::Part;
use convoke_agent::NoLifecycleHooks;
use convoke_protocol::{AgentEventBody, ApprovalMode, PermissionContent, PermissionOutcome, ToolKind};
use convoke_tools::Mode;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::rig::*;

struct Planned {
    rig: Rig,
    /// Holds the folder of plans.
    _kept: tempfile::TempDir,
}

impl Planned {
    /// A session whose model answers with what `answers` makes of the folder of plans.
    async fn new(answers: impl FnOnce(&str) -> Vec<Answer>, mode: Mode, interactive: bool) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let outputs = kept.path().canonicalize().unwrap().join("outputs");
        let plans = outputs.join("session-s").join("plans");
        let (mut options, requests) = options(answers(&plans.display().to_string()), Arc::new(NoLifecycleHooks));
        options.interactive = interactive;
        options.policy.interactive = interactive;
        options.policy.mode = mode;
        options.max_turns = Some(8);
        options.output_folder = Some(outputs);
        Self { rig: Rig::with_options((options, requests)).await, _kept: kept }
    }

    /// What the request of that number told the model, and which tools it offered.
    fn asked(&self, request: usize) -> (String, Vec<String>) {
        let requests = self.rig.requests.lock().unwrap();
        let request = &requests[request];
        (request.system_instruction.join("\n"), request.tools.keys().cloned().collect())
    }

    fn offers(&self, request: usize, tool: &str) -> bool {
        self.asked(request).1.iter().any(|name| name == tool)
    }

    fn mode(&self) -> ApprovalMode {
        self.rig.session.control.approval_mode()
    }

    fn written(&self) -> String {
        std::fs::read_to_string(self.rig.dir.path().join("a.txt")).unwrap()
    }
}

fn reply(parts: Vec<Part>) -> Answer {
    vec![piece(parts), stop()]
}

fn write_file(path: &str) -> Part {
    call("write_file", json!({"file_path": path, "content": "# Plan\n1. Look.\n"}))
}

fn exit() -> Part {
    call("exit_plan_mode", json!({"plan_filename": "a.md"}))
}

#[tokio::test]
async fn with_nobody_to_ask_it_ends_where_it_began() {
    let answers = |plans: &str| {
        vec![
            reply(vec![call("enter_plan_mode", json!({"reason": "It is large."}))]),
            reply(vec![write_file("a.txt"), call("run_shell_command", json!({"command": "touch b.txt"}))]),
            reply(vec![write_file(&format!("{plans}/a.md")), exit()]),
            reply(vec![write_file("a.txt")]),
            vec![text("Done."), stop()],
        ]
    };
    for (begins, ends, written) in [
        (Mode::AutoEdit, ApprovalMode::AutoEdit, "# Plan\n1. Look.\n"),
        // A run that could not write before can't write because it planned.
        (Mode::Default, ApprovalMode::Default, "one\n"),
    ] {
        let planned = Planned::new(answers, begins, false).await;
        let events = planned.rig.run("go").await;
        let sketch = sketch(&events);
        assert_eq!(sketch.last().unwrap(), "agent_end Completed", "{sketch:?}");
        let modes: Vec<_> = sketch.iter().filter(|event| event.contains("approvalMode")).collect();
        assert_eq!(modes.len(), 2, "{sketch:?}");
        assert!(modes[0].contains("plan") && modes[1].contains(ends.acp()), "{modes:?}");
        let refused = ["tool_response write_file error", "tool_response run_shell_command error"];
        assert!(refused.iter().all(|refused| sketch.iter().any(|event| event == refused)), "{sketch:?}");
        assert_eq!((planned.mode(), planned.written().as_str()), (ends, written));
        assert!(!planned.rig.dir.path().join("b.txt").exists());
        assert!(planned.offers(0, "enter_plan_mode") && !planned.offers(0, "exit_plan_mode"));
        assert!(!planned.offers(1, "enter_plan_mode") && planned.offers(1, "exit_plan_mode"));
        assert!(!planned.offers(1, "run_shell_command") && planned.offers(1, "read_file"));
        let (before, planning, after) = (planned.asked(0).0, planned.asked(1).0, planned.asked(3).0);
        assert!(!before.contains("# Plan mode") && planning.contains("# Plan mode"), "{planning}");
        assert!(!after.contains("# Plan mode") && after.contains("The user approved the plan in"), "{after}");
    }
}

#[tokio::test]
async fn a_run_that_only_plans_is_not_let_loose_by_its_plan() {
    let answers = |plans: &str| {
        vec![
            reply(vec![write_file(&format!("{plans}/a.md")), exit()]),
            reply(vec![write_file("a.txt"), call("run_shell_command", json!({"command": "touch b.txt"}))]),
            vec![text("Done."), stop()],
        ]
    };
    let planned = Planned::new(answers, Mode::Plan, false).await;
    planned.rig.run("go").await;
    assert_eq!((planned.mode(), planned.written().as_str()), (ApprovalMode::Default, "one\n"));
    assert!(!planned.rig.dir.path().join("b.txt").exists());
}

#[tokio::test]
async fn a_person_reads_the_plan_and_chooses_the_mode_that_follows() {
    let answers = |plans: &str| {
        vec![
            reply(vec![write_file(&format!("{plans}/a.md")), exit()]),
            reply(vec![exit()]),
            reply(vec![write_file("a.txt")]),
            vec![text("Done."), stop()],
        ]
    };
    let mut planned = Planned::new(answers, Mode::Plan, true).await;
    let events = planned.rig.send("go").await.unwrap();
    let (request, answer) = planned.rig.questions.recv().await.unwrap();
    assert_eq!((request.tool_name.as_str(), request.kind), ("exit_plan_mode", ToolKind::SwitchMode));
    assert_eq!(request.content, [PermissionContent::Text("# Plan\n1. Look.\n".to_owned())]);
    let options: Vec<_> = request.options.iter().map(|option| (&*option.option_id, &*option.name)).collect();
    assert_eq!(
        options,
        [
            ("proceed_once", "Approve, and ask before edits"),
            ("proceed_always", "Approve, and allow all edits in this session"),
            ("cancel", "Keep planning"),
        ]
    );
    answer.send(PermissionOutcome::Selected { option_id: "cancel".into() }).unwrap();
    let (_, answer) = planned.rig.questions.recv().await.unwrap();
    assert_eq!(planned.mode(), ApprovalMode::Plan);
    answer.send(PermissionOutcome::Selected { option_id: "proceed_always".into() }).unwrap();
    let events: Vec<_> = futures::StreamExt::collect(events).await;
    let events: Vec<_> = events;
    let refused = events.iter().map(|event| told(event)).find(|text| text.contains("did not approve")).unwrap();
    assert!(refused.contains("Plan mode stays on"), "{refused}");
    // Nobody was asked about the edit.
    assert_eq!((planned.mode(), planned.written().as_str()), (ApprovalMode::AutoEdit, "# Plan\n1. Look.\n"));
    assert!(planned.asked(2).0.contains("The user approved the plan in"));
}

#[tokio::test]
async fn a_client_switches_it_on_and_off() {
    let answers = |_: &str| vec![vec![text("A plan."), stop()], vec![text("No plan."), stop()]];
    let planned = Planned::new(answers, Mode::Default, true).await;
    let control = &planned.rig.session.control;
    assert!(control.approval_modes().contains(&ApprovalMode::Plan));
    control.set_approval_mode(ApprovalMode::Plan).unwrap();
    let events = planned.rig.run("go").await;
    // Whoever set it knows.
    let told = |event: &&Arc<convoke_protocol::AgentEvent>| matches!(&event.body, AgentEventBody::SessionUpdate { config: Some(config), .. } if config.get("approvalMode").is_some());
    assert_eq!(events.iter().filter(told).count(), 0);
    assert!(planned.asked(0).0.contains("# Plan mode") && planned.offers(0, "exit_plan_mode"));
    control.set_approval_mode(ApprovalMode::Default).unwrap();
    planned.rig.run("go").await;
    assert!(!planned.asked(1).0.contains("# Plan mode") && planned.offers(1, "run_shell_command"));
}

#[tokio::test]
async fn the_folder_of_plans_may_lie_in_the_workspace_and_not_outside() {
    let named = |folder: &str| {
        let mut answers = vec![reply(vec![write_file("docs/plans/a.md"), write_file("docs/b.md")])];
        answers.push(vec![text("Done."), stop()]);
        let (mut options, requests) = options(answers, Arc::new(NoLifecycleHooks));
        options.policy.mode = Mode::Plan;
        options.plan_folder = Some(PathBuf::from(folder));
        (options, requests)
    };
    let rig = Rig::with_options(named("docs/plans")).await;
    rig.run("go").await;
    assert!(rig.dir.path().join("docs/plans/a.md").exists() && !rig.dir.path().join("docs/b.md").exists());

    let (options, _) = named("../plans");
    let dir = tempfile::tempdir().unwrap();
    let asked = Arc::new(Asked(tokio::sync::mpsc::channel(1).0));
    let new = convoke_protocol::NewSession::new(dir.path().canonicalize().unwrap(), asked);
    let error = convoke_protocol::SessionFactory::new_session(&convoke_agent::AgentFactory::new(options), new).await;
    let error = error.err().unwrap().to_string();
    assert!(error.contains("general.plan.directory") && error.contains("outside of the workspace"), "{error}");
}
