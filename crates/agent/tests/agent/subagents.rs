//! Subagents against scripted models: how they are made, how they end, who is asked, what is told.

use std::path::PathBuf;
use std::sync::Arc;

use convoke_adk::{ModelError, ModelErrorKind};
use convoke_agent::Acknowledgements;
use convoke_protocol::{AgentEvent, AgentEventBody, PermissionOutcome};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::cast::*;
use crate::rig::{Answer, sketch, stop, text, told};

/// The answer to the first call of `invoke_agent`.
fn result(events: &[Arc<AgentEvent>]) -> (String, bool) {
    events
        .iter()
        .find_map(|event| match &event.body {
            AgentEventBody::ToolResponse { name, is_error, .. } if name == "invoke_agent" => {
                Some((told(event), *is_error))
            }
            _ => None,
        })
        .unwrap()
}

fn end(thread: &[Arc<AgentEvent>]) -> (String, Value) {
    let of_end = |body: &AgentEventBody| match body {
        AgentEventBody::AgentEnd { reason, data } => Some((format!("{reason:?}"), data.clone().unwrap_or_default())),
        _ => None,
    };
    of_end(&thread.last().unwrap().body).unwrap()
}

fn last() -> Vec<Answer> {
    vec![invoke(&["scout"]), vec![text("ok"), stop()]]
}

#[tokio::test]
async fn a_run_is_a_thread_with_a_session_of_its_own() {
    let look = calls(&[("read_file", json!({"file_path": "a.txt"}))]);
    let scout = vec![look, done("It says one.")];
    let stage =
        Stage::new(&[("scout", "tools: [read_file]\ntemperature: 0.3\n")], &[("main", last()), ("scout", scout)]).await;
    let events = stage.play().await;
    check(&events);
    let expected = "Subagent 'scout' finished.\nTermination Reason: GOAL\nResult:\nIt says one.";
    assert_eq!(result(&events), (expected.to_owned(), false));
    let thread = of_agent(&events, "scout").remove(0);
    assert_eq!(
        sketch(&thread),
        [
            "message help scout",
            "agent_start",
            "session_update scripted-1",
            "usage 10",
            "tool_request read_file",
            "tool_update scheduled",
            "tool_update executing",
            "tool_response read_file",
            "usage 10",
            "tool_request complete_task",
            "tool_update scheduled",
            "tool_update executing",
            "tool_response complete_task",
            "agent_end Completed",
        ]
    );
    assert_eq!(end(&thread).1, json!({"terminateReason": "GOAL"}));
    // The session's own stream is as it always was, with the run as one call in it.
    let own = sketch(&threads(&events)[""]);
    assert_eq!(own[own.len() - 4..], ["tool_response invoke_agent", "message ok", "usage 10", "agent_end Completed"]);
    assert!(own.iter().filter(|line| *line == "tool_update executing").count() > 2, "activity is told: {own:?}");
    // Calls are its own, also where ids of the models repeat.
    let id = thread[0].thread_id.clone().unwrap();
    let parent = threads(&events)[""].iter().find_map(|event| match &event.body {
        AgentEventBody::ToolRequest { request_id, .. } => Some(request_id.to_string()),
        _ => None,
    });
    let request = thread.iter().find(|event| matches!(event.body, AgentEventBody::ToolRequest { .. })).unwrap();
    let AgentEventBody::ToolRequest { request_id, .. } = &request.body else { panic!("it is one") };
    assert!(request_id.as_str().starts_with(&format!("{id}/")));
    assert_eq!(request.meta["parentToolCallId"], json!(parent));
    // What its model sees: its instruction, its caller's context files, its tools, its task.
    let asked = &stage.asked_by("scout")[0];
    let instruction = asked.system_instruction.join("\n");
    assert!(instruction.starts_with("You are scout. Task: help scout\n"), "{instruction}");
    assert!(instruction.contains("Speak plainly.") && instruction.contains("call `complete_task` with `result`"));
    assert_eq!(asked.tools.keys().collect::<Vec<_>>(), ["read_file", "complete_task"]);
    assert_eq!(asked.config.temperature, Some(0.3));
    assert!(asked.contents[0].joined_text().ends_with("help scout"));
    let main = &stage.asked_by("main")[0];
    assert!(main.tools["invoke_agent"].description.contains("\n- scout: Plays scout."));
    assert!(main.tools["invoke_agent"].description.contains("\n- codebase_investigator: "));
    assert!(!main.tools.contains_key("complete_task"));
    // The one without its tool is not on offer.
    assert!(!main.tools["invoke_agent"].description.contains("cli_help"));
}

#[tokio::test]
async fn every_way_to_end_has_its_name() {
    let look = || calls(&[("list_directory", json!({"dir_path": "."}))]);
    let say = || vec![text("I think it is fine."), stop()];
    let failed = || vec![Err(ModelError::new(ModelErrorKind::Server, "no model today"))];
    let silence = || vec![];
    type Case = (&'static str, &'static str, Vec<Answer>, &'static str, &'static str, &'static str);
    let cases: Vec<Case> = vec![
        ("no report", "", vec![say(), say()], "Failed", "ERROR_NO_COMPLETE_TASK_CALL", "I think it is fine."),
        ("turns", "max_turns: 2\n", vec![look(), look(), look()], "MaxTurns", "MAX_TURNS", "It used up its turns"),
        ("error", "", vec![failed()], "Failed", "ERROR", "It failed: no model today"),
        ("time", "timeout_mins: 0.002\n", silence(), "MaxTime", "TIMEOUT", "It used up its time"),
    ];
    for (name, keys, scout, reason, mode, says) in cases {
        let grace = |options: &mut convoke_agent::AgentOptions| {
            if name == "time" {
                options.subagents.recovery_grace = std::time::Duration::from_millis(50);
            }
        };
        let stage = Stage::with(&[("scout", keys)], &[("main", last()), ("scout", scout)], grace).await;
        let events = stage.play().await;
        check(&events);
        let (told, is_error) = result(&events);
        let head = format!("Subagent 'scout' finished.\nTermination Reason: {mode}\nResult:\n");
        assert!(told.starts_with(&head) && told.contains(says) && is_error, "{name}: {told}");
        let (ended, data) = end(&of_agent(&events, "scout")[0]);
        assert_eq!((ended.as_str(), &data["terminateReason"]), (reason, &json!(mode)), "{name}");
        assert_eq!(sketch(&threads(&events)[""]).last().unwrap(), "agent_end Completed", "{name}");
    }
}

#[tokio::test]
async fn one_more_turn_hands_in_what_there_is_and_the_result_says_so() {
    let look = || calls(&[("list_directory", json!({"dir_path": "."}))]);
    let cases = [
        ("", vec![vec![text("Done."), stop()], done("part")], "ERROR_NO_COMPLETE_TASK_CALL"),
        ("max_turns: 1\n", vec![look(), done("part")], "MAX_TURNS"),
        ("timeout_mins: 0.002\n", vec![vec![], done("part")], "TIMEOUT"),
    ];
    for (keys, mut scout, mode) in cases {
        if mode == "TIMEOUT" {
            // A model that answers with nothing at all, for ever, and then speaks.
            scout.remove(0);
        }
        let stage = if mode == "TIMEOUT" {
            let llm = Arc::new(SilentFirst::new(vec![("main", last()), ("scout", scout)]));
            let requests = llm.requests();
            Stage::of(llm, requests, &[("scout", keys)], |_| ()).await
        } else {
            Stage::new(&[("scout", keys)], &[("main", last()), ("scout", scout)]).await
        };
        let events = stage.play().await;
        check(&events);
        let (told, is_error) = result(&events);
        assert!(!is_error, "{told}");
        assert!(told.starts_with("Subagent 'scout' finished.\nTermination Reason: GOAL\n"), "{told}");
        assert!(told.contains(&format!("Recovered From: {mode} ")) && told.ends_with("Result:\npart"), "{told}");
        let thread = of_agent(&events, "scout").remove(0);
        assert_eq!(end(&thread).1, json!({"terminateReason": "GOAL", "recoveredFrom": mode}));
        let demand = stage.asked_by("scout").last().unwrap().contents.last().unwrap().joined_text();
        assert!(demand.contains("This is your last turn: call `complete_task` now"), "{demand}");
    }
}

#[tokio::test]
async fn the_last_turn_may_hand_in_and_nothing_else() {
    let say = vec![text("Done."), stop()];
    let both = calls(&[write("b.txt"), ("complete_task", json!({"result": "part"}))]);
    let stage = Stage::new(&[("scout", "")], &[("main", last()), ("scout", vec![say, both])]).await;
    let events = stage.play().await;
    check(&events);
    assert!(result(&events).0.ends_with("Result:\npart"));
    assert!(!stage.path("b.txt").exists());
}

#[tokio::test]
async fn a_report_is_checked_and_taken_once() {
    let wrong = calls(&[("complete_task", json!({"text": "x"}))]);
    let empty = calls(&[("complete_task", json!({"result": " "}))]);
    let twice = calls(&[("complete_task", json!({"result": "one"})), ("complete_task", json!({"result": "two"}))]);
    let stage = Stage::new(&[("scout", "")], &[("main", last()), ("scout", vec![wrong, empty, twice])]).await;
    let events = stage.play().await;
    check(&events);
    assert!(result(&events).0.ends_with("Result:\none"));
    let thread = of_agent(&events, "scout").remove(0);
    let answers: Vec<String> = thread.iter().map(|event| told(event)).filter(|text| !text.is_empty()).collect();
    assert_eq!(answers[0], "params must have required property 'result'");
    assert!(answers[1].starts_with("params/result must not be empty"));
    assert_eq!(answers[2], "The report was handed in.");
    assert!(answers[3].starts_with("The task is complete already"));
}

#[tokio::test]
async fn the_investigator_hands_in_its_report_as_data() {
    let report = json!({
        "SummaryOfFindings": "All is well.\nReally.",
        "ExplorationTrace": ["looked"],
        "RelevantLocations": [{"FilePath": "a.txt", "Reasoning": "the only one", "KeySymbols": ["one"]}],
    });
    let ask = calls(&[("invoke_agent", json!({"agent_name": "codebase_investigator", "prompt": "how?"}))]);
    let scripts = [(
        "main",
        vec![
            ask,
            calls(&[("complete_task", json!({"report": {"SummaryOfFindings": "x"}}))]),
            calls(&[("complete_task", json!({"report": report}))]),
            vec![text("ok"), stop()],
        ],
    )];
    let stage = Stage::new(&[], &scripts).await;
    let events = stage.play().await;
    check(&events);
    let (told, is_error) = result(&events);
    assert!(!is_error && told.contains("\"KeySymbols\": [\n"), "{told}");
    let data = events.iter().find_map(|event| match &event.body {
        AgentEventBody::ToolResponse { name, data, display, .. } if name == "invoke_agent" => {
            Some((data.clone().unwrap(), display.clone().unwrap().result_summary))
        }
        _ => None,
    });
    let (data, summary) = data.unwrap();
    assert_eq!(data["progress"]["result"], report);
    assert_eq!((&data["progress"]["state"], &data["progress"]["turns"]), (&json!("completed"), &json!(2)));
    assert_eq!(summary.as_deref(), Some("All is well."));
    let requests = stage.requests.lock().unwrap();
    let tools: Vec<_> = requests[1].1.tools.keys().map(String::as_str).collect();
    assert_eq!(tools, ["list_directory", "read_file", "grep_search", "glob", "complete_task"]);
}

#[tokio::test]
async fn two_that_ask_at_once_are_told_apart_and_answered_in_any_order() {
    let scripts = [
        ("main", vec![invoke(&["left", "right"]), vec![text("ok"), stop()]]),
        ("left", vec![calls(&[write("left.txt")]), done("l")]),
        ("right", vec![calls(&[write("right.txt")]), done("r")]),
    ];
    let mut stage = Stage::new(&[("left", ""), ("right", "")], &scripts).await;
    let running = stage.send("go").await;
    let (one, two) = (stage.question().await, stage.question().await);
    let mut origins = [one.0.origin.clone(), two.0.origin.clone()];
    origins.sort();
    assert_eq!(origins, [["left"], ["right"]]);
    assert_ne!(one.0.tool_call_id, two.0.tool_call_id);
    assert_eq!((one.0.session_id.as_str(), two.0.session_id.as_str()), ("s", "s"));
    let (first, second) = (one.0.origin[0].clone(), two.0.origin[0].clone());
    allow(two);
    // The second is through while the first still waits.
    let mut log = stage.session.agent.log().replay();
    while let Some(event) = futures::StreamExt::next(&mut log).await {
        let is_end = matches!(event.body, AgentEventBody::AgentEnd { .. });
        if is_end {
            break;
        }
    }
    assert!(stage.path(&format!("{second}.txt")).exists() && !stage.path(&format!("{first}.txt")).exists());
    allow(one);
    let events = stage.finish(running).await;
    check(&events);
    assert!(stage.path(&format!("{first}.txt")).exists());
    let waiting = events.iter().filter(|event| match &event.body {
        AgentEventBody::ToolUpdate { data: Some(data), .. } => {
            event.thread_id.is_none() && data["activity"]["type"] == "WAITING_FOR_CONFIRMATION"
        }
        _ => false,
    });
    assert_eq!(waiting.count(), 4, "each began to wait and ended");
    // Answers come in the order of the calls.
    let answers = stage.asked_by("main")[1].contents.last().unwrap().function_responses();
    let ends: Vec<_> =
        answers.iter().map(|answer| answer.response["output"].as_str().unwrap().chars().last()).collect();
    assert_eq!(ends, [Some('l'), Some('r')]);
}

#[tokio::test]
async fn time_stands_still_for_whoever_waits_and_for_nobody_else() {
    let scripts = [
        ("main", vec![invoke(&["asks", "idles"]), vec![text("ok"), stop()]]),
        ("asks", vec![calls(&[write("b.txt")]), done("in time")]),
        ("idles", vec![]),
    ];
    let keys = "timeout_mins: 0.03\n";
    let grace = |options: &mut convoke_agent::AgentOptions| {
        options.subagents.recovery_grace = std::time::Duration::from_millis(50);
    };
    let mut stage = Stage::with(&[("asks", keys), ("idles", keys)], &scripts, grace).await;
    let running = stage.send("go").await;
    let question = stage.question().await;
    let mut log = stage.session.agent.log().replay();
    while let Some(event) = futures::StreamExt::next(&mut log).await {
        if matches!(event.body, AgentEventBody::AgentEnd { .. }) {
            break;
        }
    }
    // The other one's time, which is as long, is up by now.
    allow(question);
    let events = stage.finish(running).await;
    check(&events);
    assert_eq!(end(&of_agent(&events, "idles")[0]).1["terminateReason"], "TIMEOUT");
    assert_eq!(end(&of_agent(&events, "asks")[0]).1, json!({"terminateReason": "GOAL"}));
}

#[tokio::test]
async fn a_rejection_is_soft() {
    let scout = vec![calls(&[write("b.txt")]), done("was not allowed to")];
    let mut stage = Stage::new(&[("scout", "")], &[("main", last()), ("scout", scout)]).await;
    let running = stage.send("go").await;
    let (_, answer) = stage.question().await;
    answer.send(PermissionOutcome::Selected { option_id: "cancel".into() }).unwrap();
    let events = stage.finish(running).await;
    check(&events);
    assert!(result(&events).0.ends_with("Result:\nwas not allowed to"));
    let heard = stage.asked_by("scout")[1].contents.last().unwrap().function_responses().remove(0);
    let heard = heard.error_message().unwrap();
    assert!(heard.contains("User rejected this operation.") && heard.contains("rethink"), "{heard}");
}

#[tokio::test]
async fn agents_call_agents_only_as_deep_as_may_be() {
    let scripts = |deep: bool| {
        let outer =
            if deep { vec![invoke(&["inner"]), done("outer")] } else { vec![invoke(&["inner"]), done("alone")] };
        [
            ("main", vec![invoke(&["outer"]), vec![text("ok"), stop()]]),
            ("outer", outer),
            ("inner", vec![calls(&[write("deep.txt")]), done("inner")]),
        ]
    };
    let stage = Stage::new(&[("outer", ""), ("inner", "")], &scripts(false)).await;
    let events = stage.play().await;
    check(&events);
    assert!(of_agent(&events, "inner").is_empty());
    let heard = stage.asked_by("outer")[1].contents.last().unwrap().function_responses().remove(0);
    assert!(heard.error_message().unwrap().starts_with("Tool \"invoke_agent\" not found."), "{heard:?}");
    // One deeper.
    let deeper = |options: &mut convoke_agent::AgentOptions| options.subagents.depth_max = 2;
    let mut stage = Stage::with(&[("outer", ""), ("inner", "")], &scripts(true), deeper).await;
    let running = stage.send("go").await;
    let question = stage.question().await;
    assert_eq!(question.0.origin, ["outer", "inner"]);
    allow(question);
    let events = stage.finish(running).await;
    check(&events);
    assert!(stage.path("deep.txt").exists());
    assert!(!stage.asked_by("inner")[0].tools.contains_key("invoke_agent"));
    let inner = of_agent(&events, "inner").remove(0);
    let outer = of_agent(&events, "outer").remove(0);
    let start = inner.iter().find(|event| matches!(event.body, AgentEventBody::AgentStart)).unwrap();
    assert_eq!(start.meta["agentPath"], json!(["outer", "inner"]));
    let call = start.meta["parentToolCallId"].as_str().unwrap();
    assert!(call.starts_with(outer[0].thread_id.as_deref().unwrap()), "{call}");
    // That somebody is asked below is told above.
    let waits = outer.iter().any(|event| match &event.body {
        AgentEventBody::ToolUpdate { data: Some(data), .. } => data["progress"]["waitingForConfirmation"] == true,
        _ => false,
    });
    assert!(waits);
}

#[tokio::test]
async fn an_abort_reaches_every_level_and_leaves_no_question_open() {
    let scripts = [
        ("main", vec![invoke(&["outer", "silent"])]),
        ("outer", vec![invoke(&["inner", "silent"])]),
        ("inner", vec![calls(&[write("b.txt")])]),
        ("silent", vec![]),
    ];
    let agents = [("outer", ""), ("inner", ""), ("silent", "")];
    let mut stage = Stage::with(&agents, &scripts, |options| options.subagents.depth_max = 2).await;
    let running = stage.send("go").await;
    let (request, answer) = stage.question().await;
    assert_eq!(request.origin, ["outer", "inner"]);
    stage.session.agent.abort().await;
    let events = stage.finish(running).await;
    check(&events);
    assert!(answer.is_closed());
    for (thread, events) in threads(&events) {
        assert_eq!(end(&events).0, "Aborted", "thread '{thread}'");
    }
    assert_eq!(threads(&events).len(), 5);
    let errors = events.iter().filter(|event| matches!(event.body, AgentEventBody::Error { .. })).count();
    assert_eq!(errors, 0);
}

#[tokio::test]
async fn a_workspace_agent_is_used_once_somebody_agreed_to_its_content() {
    let known = tempfile::tempdir().unwrap();
    let file = known.path().join("agents.json");
    let mut answers = [("cancel", false), ("proceed_once", true), ("proceed_always", true)].into_iter();
    for asked in [true, true, true, false] {
        let scripts = [
            ("main", vec![invoke(&["scout"]), invoke(&["scout"]), vec![text("ok"), stop()]]),
            ("scout", vec![done("x"), done("y")]),
        ];
        let mut stage = Stage::with(&[], &scripts, |options| {
            options.subagents.workspace_folders = vec![PathBuf::from("sub")];
            options.subagents.acknowledgements = Acknowledgements { file: Some(file.clone()), more: Vec::new() };
            let folder = options.subagents.user_folders[0].parent().unwrap().join("work/sub");
            std::fs::write(folder.join("scout.md"), definition("scout", "")).unwrap();
        })
        .await;
        // The same folder each time, as far as the file is concerned.
        if !asked {
            let text = std::fs::read_to_string(&file).unwrap();
            let folder: Value = serde_json::from_str(&text).unwrap();
            let known = folder.as_object().unwrap().values().next().unwrap().clone();
            std::fs::write(&file, json!({stage.path("").to_str().unwrap().trim_end_matches('/'): known}).to_string())
                .unwrap();
        }
        let running = stage.send("go").await;
        if asked {
            let (answer, used) = answers.next().unwrap();
            let (request, reply) = stage.question().await;
            assert_eq!(request.title, "Use the agent scout that comes with this folder?");
            assert!(request.locations[0].path.ends_with("work/sub/scout.md"));
            reply.send(PermissionOutcome::Selected { option_id: answer.into() }).unwrap();
            if !used {
                let (_, reply) = stage.question().await;
                reply.send(PermissionOutcome::Cancelled).unwrap();
            }
            let events = stage.finish(running).await;
            check(&events);
            assert_eq!(of_agent(&events, "scout").len(), if used { 2 } else { 0 });
            assert_eq!(result(&events).1, !used);
        } else {
            let events = stage.finish(running).await;
            assert_eq!(of_agent(&events, "scout").len(), 2);
        }
        assert!(stage.questions.try_recv().is_err());
    }
}

#[tokio::test]
async fn scope_is_narrower_than_the_callers() {
    let scout = || {
        vec![
            calls(&[
                ("read_file", json!({"file_path": "../a.txt"})),
                write("../AGENTS.md"),
                write("AGENTS.md"),
                write("ok.txt"),
            ]),
            done("x"),
        ]
    };
    let mut stage = Stage::with(
        &[("scout", "workspace_directories: [sub]\n")],
        &[("main", last()), ("scout", scout())],
        |options| options.policy.mode = convoke_tools::Mode::Yolo,
    )
    .await;
    let events = stage.play().await;
    check(&events);
    let heard = stage.asked_by("scout")[1].contents.last().unwrap().function_responses();
    let errors: Vec<_> = heard.iter().map(|answer| answer.error_message().unwrap_or("fine").to_owned()).collect();
    assert!(
        errors[0].starts_with("Path not in workspace") && errors[1].starts_with("Path not in workspace"),
        "{errors:?}"
    );
    assert_eq!(errors[2], "Failed to write \"AGENTS.md\": this agent may read files of that name and not write them.");
    assert_eq!(errors[3], "fine");
    assert!(stage.path("sub/ok.txt").exists() && !stage.path("sub/AGENTS.md").exists());
    assert!(stage.questions.try_recv().is_err());
    // Where the definition allows it, memory is written.
    let stage = Stage::with(
        &[("scout", "memory: write\n")],
        &[("main", last()), ("scout", vec![calls(&[write("AGENTS.md")]), done("x")])],
        |options| options.policy.mode = convoke_tools::Mode::Yolo,
    )
    .await;
    stage.play().await;
    assert_eq!(std::fs::read_to_string(stage.path("AGENTS.md")).unwrap(), "x");
}

/// The cast, but each actor's first call but `main`'s is never answered.
struct SilentFirst {
    cast: Cast,
    waited: std::sync::Mutex<std::collections::HashSet<String>>,
}

impl SilentFirst {
    fn new(scripts: Vec<(&str, Vec<Answer>)>) -> Self {
        Self { cast: Cast::new(&scripts), waited: std::sync::Mutex::default() }
    }

    fn requests(&self) -> Arc<std::sync::Mutex<Vec<(String, convoke_adk::LlmRequest)>>> {
        self.cast.requests.clone()
    }
}

impl convoke_adk::Llm for SilentFirst {
    fn model(&self) -> String {
        self.cast.model()
    }

    fn generate(
        &self,
        request: convoke_adk::LlmRequest,
        cancel: tokio_util::sync::CancellationToken,
    ) -> futures::stream::BoxStream<'static, Result<convoke_adk::LlmResponse, ModelError>> {
        let name = actor(&request);
        if name != "main" && self.waited.lock().unwrap().insert(name) {
            return Box::pin(futures::stream::pending());
        }
        self.cast.generate(request, cancel)
    }
}

#[tokio::test]
async fn our_own_documents_are_for_the_agent_that_answers_from_them_and_for_nobody_else() {
    const DOCUMENTS: &[convoke_agent::Document] = &[
        convoke_agent::Document { path: "README.md", text: "# The program\nIt runs." },
        convoke_agent::Document { path: "docs/policy.md", text: "Odd.\n## Policies\nThey decide." },
    ];
    let docs = |path: &str| ("get_internal_docs", json!({"path": path}));
    let answer = json!({"report": {"answer": "They decide.", "sources": ["docs/policy.md"]}});
    let scripts = || {
        let mut main = vec![calls(&[docs("README.md")]), invoke(&["cli_help"])];
        main.push(calls(&[
            ("get_internal_docs", json!({})),
            docs("./docs/policy.md"),
            docs("policy.md"),
            docs("/etc/passwd"),
        ]));
        main.extend([calls(&[("complete_task", answer.clone())]), vec![text("ok"), stop()]]);
        [("main", main)]
    };
    let stage = Stage::with(&[], &scripts(), |options| options.subagents.documents = DOCUMENTS).await;
    let events = stage.play().await;
    check(&events);
    assert!(!result(&events).1 && result(&events).0.contains("They decide."), "{:?}", result(&events));
    let requests = stage.asked_by("main");
    let refused = requests[1].contents.last().unwrap().function_responses().remove(0);
    assert!(refused.error_message().unwrap().starts_with("Tool \"get_internal_docs\" not found"), "{refused:?}");
    let tools: Vec<_> = requests[2].tools.keys().map(String::as_str).collect();
    assert_eq!(tools, ["get_internal_docs", "complete_task"]);
    let heard = requests[3].contents.last().unwrap().function_responses();
    assert_eq!(heard[0].response["output"], "README.md: The program\ndocs/policy.md: Policies\n");
    assert_eq!(heard[1].response["output"], DOCUMENTS[1].text);
    assert_eq!(heard[2].response["output"], DOCUMENTS[1].text);
    assert!(heard[3].error_message().unwrap().contains("There is no document \"/etc/passwd\"."), "{heard:?}");
    // Without documents it is not on offer.
    let stage = Stage::new(&[], &[("main", vec![invoke(&["cli_help"]), vec![text("ok"), stop()]])]).await;
    let events = stage.play().await;
    assert!(result(&events).1);
}
