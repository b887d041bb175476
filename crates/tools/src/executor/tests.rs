//! The whole way from calls to responses, with tools, people and hooks made for the test.

mod kit;
mod lattice;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_adk::FunctionDeclaration;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use super::*;
use crate::{
    AfterTool, ApprovalOutcome, BeforeTool, DeclarativeTool, ErrorType, HookCall, HookResult, Invocation, Kind, Mode,
    PolicyOptions, TailCall, ToolFailure, ToolOutput,
};
use kit::{Bench, Person, bench, call, probe, says, texts, waits, within, yolo};

#[tokio::test]
async fn every_call_gets_its_own_answer_in_order() {
    let tools = vec![
        says("read_file", Kind::Read),
        says("write_file", Kind::Edit),
        probe("glob", Kind::Search, |_, _| async { panic!("oh dear") }),
    ];
    let policy = PolicyOptions { interactive: false, ..PolicyOptions::default() };
    let bench = bench(tools, policy, |_| ());
    let outcome = bench
        .run(vec![
            call("1", "read_file", json!({"a": 1})),
            call("2", "read_files", json!({})),
            call("3", "ask_user", json!({})),
            call("4", "write_file", json!({})),
            call("5", "read_file", json!({"bad": 1})),
            call("6", "glob", json!({})),
            call("7", "read_file", json!({"build": "panic"})),
            call("8", "read_file", json!({})),
        ])
        .await;
    let expected = [
        "ran {\"a\":1}",
        "Tool \"read_files\" not found. Did you mean \"read_file\"?",
        "Tool \"ask_user\" not found.",
        "Tool \"write_file\" not found: policy: It requires user confirmation, which is not supported in \
         non-interactive mode.",
        "params/bad must not be there",
        "Tool \"glob\" failed unexpectedly: oh dear",
        "Tool \"read_file\" failed unexpectedly: built badly",
        "ran {}",
    ];
    assert_eq!(texts(&outcome), expected);
    assert_eq!(outcome.end, DispatchEnd::Continue);
    let error = |id: &str| bench.observer.last(id).result.and_then(|result| result.error_type).map(ErrorType::as_str);
    let errors = ["1", "2", "4", "5", "6"].map(error);
    let not_registered = Some("tool_not_registered");
    assert_eq!(
        errors,
        [None, not_registered, not_registered, Some("invalid_tool_params"), Some("unhandled_exception")]
    );
    assert_eq!(bench.observer.statuses("1"), ["validating", "scheduled", "executing", "success"]);
    assert_eq!(bench.observer.statuses("2"), ["validating", "error"]);
    assert!(!bench.observer.last("2").result.unwrap().ran && bench.observer.last("6").result.unwrap().ran);
}

#[tokio::test]
async fn readers_overlap_and_writers_do_not() {
    let barrier = Arc::new(Barrier::new(2));
    let running = Arc::new(AtomicUsize::new(0));
    let reader = {
        let running = Arc::clone(&running);
        probe("read_file", Kind::Read, move |_, _| {
            let (barrier, running) = (Arc::clone(&barrier), Arc::clone(&running));
            async move {
                running.fetch_add(1, Ordering::SeqCst);
                // Passes only if both are here at once.
                barrier.wait().await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(ToolOutput::text("read"))
            }
        })
    };
    let writer = probe("write_file", Kind::Edit, move |_, _| {
        let alone = running.fetch_add(1, Ordering::SeqCst) == 0;
        let running = Arc::clone(&running);
        async move {
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(ToolOutput::text(if alone { "alone" } else { "not alone" }))
        }
    });
    let bench = bench(vec![reader, writer], yolo(), |_| ());
    let names = ["read_file", "read_file", "write_file", "write_file", "read_file", "read_file"];
    let outcome = bench.run(names.iter().map(|name| call(name, name, json!({}))).collect()).await;
    assert_eq!(texts(&outcome), ["read", "read", "alone", "alone", "read", "read"]);
}

#[tokio::test]
async fn wait_for_previous_is_obeyed_and_not_passed_on() {
    let bench = bench(vec![says("read_file", Kind::Read)], yolo(), |_| ());
    let args = json!({"wait_for_previous": true, "a": 1});
    let outcome = bench.run(vec![call("1", "read_file", json!({})), call("2", "read_file", args)]).await;
    assert_eq!(texts(&outcome), ["ran {}", "ran {\"a\":1}"]);
    let records = bench.observer.records.lock().unwrap();
    let order: Vec<_> = records.iter().map(|record| (record.call_id.as_str(), record.status.as_str())).collect();
    let at = |what| order.iter().position(|entry| *entry == what).unwrap();
    assert!(at(("1", "success")) < at(("2", "scheduled")), "{order:?}");
}

#[tokio::test]
async fn questions_are_asked_and_answered() {
    let person = Person::who_says([
        ApprovalOutcome::ProceedOnce,
        ApprovalOutcome::Revise { args: json!({"n": 2}) },
        ApprovalOutcome::ProceedOnce,
    ]);
    let approver = Arc::clone(&person);
    let bench =
        bench(vec![says("web_fetch", Kind::Fetch)], PolicyOptions::default(), |options| options.approver = approver);
    let outcome = bench.run(vec![call("1", "web_fetch", json!({"n": 1}))]).await;
    assert_eq!(texts(&outcome), ["ran {\"n\":1}"]);
    let expected = ["validating", "awaiting_approval", "scheduled", "executing", "success"];
    assert_eq!(bench.observer.statuses("1"), expected);
    let question = person.asked.lock().unwrap()[0].clone();
    assert_eq!((question.title.as_str(), question.kind), ("{\"n\":1}", Kind::Fetch));
    let options: Vec<_> = question.options.iter().map(|option| (option.id, option.label.as_str())).collect();
    let always = ("proceed_always", "Always allow web_fetch in this session");
    assert_eq!(options, [("proceed_once", "Allow once"), always, ("cancel", "Reject")]);

    let outcome = bench.run(vec![call("2", "web_fetch", json!({"n": 1}))]).await;
    assert_eq!(texts(&outcome), ["ran {\"n\":2}"]);
    assert_eq!(person.asked.lock().unwrap()[2].args, json!({"n": 2}), "what was revised is asked about again");
    let record = bench.observer.last("2");
    assert_eq!((record.call.args, record.original.map(|call| call.args)), (json!({"n": 2}), Some(json!({"n": 1}))));
}

#[tokio::test]
async fn several_questions_can_be_open_at_once() {
    let person = Person { together: Some(Barrier::new(3)), ..Person::default() };
    person.answers.lock().unwrap().extend([
        ApprovalOutcome::ProceedOnce,
        ApprovalOutcome::ProceedOnce,
        ApprovalOutcome::ProceedOnce,
    ]);
    let bench = bench(vec![says("web_fetch", Kind::Fetch)], PolicyOptions::default(), |options| {
        options.approver = Arc::new(person);
    });
    let calls = ["1", "2", "3"].map(|id| call(id, "web_fetch", json!({}))).to_vec();
    assert_eq!(texts(&bench.run(calls).await), ["ran {}", "ran {}", "ran {}"]);
}

#[tokio::test]
async fn a_refusal_is_told_honestly_to_every_call() {
    for (answer, first) in [
        (ApprovalOutcome::Cancel, "[Operation Cancelled] Reason: User denied execution. The tool did not run."),
        (
            ApprovalOutcome::Unanswered { reason: "the question timed out".to_owned() },
            "[Operation Cancelled] Reason: Nobody approved the call, because the question timed out. \
             The tool did not run.",
        ),
    ] {
        let person = Person::who_says([answer]);
        let tools = vec![says("read_file", Kind::Read), says("write_file", Kind::Edit)];
        let bench = bench(tools, PolicyOptions::default(), |options| options.approver = person);
        let names = ["read_file", "write_file", "write_file", "read_file"];
        let outcome =
            bench.run(names.iter().enumerate().map(|(i, name)| call(&i.to_string(), name, json!({}))).collect()).await;
        let rest = "[Operation Cancelled] Reason: User cancelled operation. Another call of the same batch was not \
                    approved, so this tool never ran.";
        assert_eq!(texts(&outcome), ["ran {}", first, rest, rest]);
        assert_eq!(bench.observer.statuses("3"), ["validating", "cancelled"]);
        let outcome = bench.run(vec![call("9", "read_file", json!({}))]).await;
        assert_eq!(texts(&outcome), ["ran {}"], "the next batch is another matter");
    }
}

#[tokio::test]
async fn a_lasting_yes_is_kept_and_announced() {
    let person = Person::who_says([
        ApprovalOutcome::ProceedAlways("proceed_always"),
        ApprovalOutcome::ProceedAlways("proceed_always"),
    ]);
    let approver = Arc::clone(&person);
    let tools = vec![says("run_shell_command", Kind::Execute), says("write_file", Kind::Edit)];
    let bench = bench(tools, PolicyOptions::default(), |options| options.approver = approver);
    let shell = |text: &str| call("s", "run_shell_command", json!({"command": text}));
    bench
        .run(vec![
            shell("git fetch"),
            shell("git pull"),
            call("w", "write_file", json!({})),
            call("w", "write_file", json!({})),
        ])
        .await;
    assert_eq!(person.asked.lock().unwrap().len(), 2);
    assert_eq!(*bench.observer.modes.lock().unwrap(), [Mode::AutoEdit]);
    assert_eq!(bench.policy.mode(), Mode::AutoEdit);
}

/// Hooks that count, and do what the arguments of the call say.
#[derive(Default)]
struct Hooks {
    before: AtomicUsize,
    after: AtomicUsize,
}

#[async_trait]
impl ToolHooks for Hooks {
    async fn before_tool(&self, call: &HookCall) -> BeforeTool {
        self.before.fetch_add(1, Ordering::SeqCst);
        let text = |name: &str| call.args.get(name).and_then(Value::as_str).map(str::to_owned);
        assert!(text("hook") != Some("panic".to_owned()), "a hook that fails");
        BeforeTool {
            deny: text("deny"),
            ask: text("ask"),
            rewrite: call.args.get("rewrite").cloned(),
            stop: text("stop").map(|message| StopReason { code: "HOOK".to_owned(), message }),
        }
    }

    async fn after_tool(&self, call: &HookCall, result: &HookResult) -> AfterTool {
        self.after.fetch_add(1, Ordering::SeqCst);
        let text = |name: &str| call.args.get(name).and_then(Value::as_str).map(str::to_owned);
        assert!(!result.text.is_empty());
        AfterTool {
            deny: text("hide"),
            append: text("append"),
            replace: text("replace"),
            tail_call: text("tail").map(|name| TailCall { name, args: json!({"from": "tail"}) }),
            stop: text("stop_after").map(|message| StopReason { code: "HOOK".to_owned(), message }),
        }
    }
}

fn with_hooks(policy: PolicyOptions, approver: Arc<dyn Approver>) -> (Bench, Arc<Hooks>) {
    let hooks = Arc::new(Hooks::default());
    let tools = vec![says("read_file", Kind::Read), says("run_shell_command", Kind::Execute)];
    let plugged = Arc::clone(&hooks);
    let bench = bench(tools, policy, |options| {
        options.hooks = plugged;
        options.approver = approver;
    });
    (bench, hooks)
}

#[tokio::test]
async fn hooks_are_always_called_and_can_only_be_stricter() {
    let rules = vec![crate::policy::parse_allowed_tool("run_shell_command(git)").unwrap()];
    let policy = PolicyOptions { rules, interactive: false, ..PolicyOptions::default() };
    let (bench, hooks) = with_hooks(policy, Arc::new(NobodyApproves));
    let outcome = bench
        .run(vec![
            call("1", "read_file", json!({"deny": "not today"})),
            call("2", "run_shell_command", json!({"command": "git log", "rewrite": {"command": "git status"}})),
            call("3", "run_shell_command", json!({"command": "git log", "rewrite": {"command": "rm x"}})),
            call("4", "read_file", json!({"rewrite": {"bad": 1}})),
            call("5", "read_file", json!({"ask": "looks odd"})),
            call("6", "read_file", json!({"hook": "panic"})),
            call("7", "nope", json!({})),
        ])
        .await;
    let expected = [
        "Tool execution blocked: not today",
        "ran {\"command\":\"git status\"}",
        "Tool execution denied by policy. It requires user confirmation, which is not supported in non-interactive \
         mode.",
        "params/bad must not be there",
        "Tool execution denied by policy. looks odd",
        "Tool \"read_file\" failed unexpectedly: a hook that fails",
        "Tool \"nope\" not found.",
    ];
    assert_eq!(texts(&outcome), expected);
    assert_eq!((hooks.before.load(Ordering::SeqCst), hooks.after.load(Ordering::SeqCst)), (6, 1));
    let record = bench.observer.last("2");
    assert_eq!(record.original.map(|call| call.args["command"].clone()), Some(json!("git log")));
}

#[tokio::test]
async fn hooks_can_ask_and_change_results() {
    let person = Person::who_says([ApprovalOutcome::ProceedAlways("proceed_always"), ApprovalOutcome::ProceedOnce]);
    let (bench, hooks) = with_hooks(yolo(), Arc::clone(&person) as Arc<dyn Approver>);
    let outcome = bench
        .run(vec![
            call("1", "read_file", json!({"ask": "odd"})),
            call("2", "read_file", json!({"append": "more"})),
            call("3", "read_file", json!({"replace": "other"})),
            call("4", "read_file", json!({"tail": "run_shell_command"})),
            call("5", "read_file", json!({"tail": "nope"})),
        ])
        .await;
    let expected = [
        "ran {\"ask\":\"odd\"}",
        "ran {\"append\":\"more\"}\n\nmore",
        "other",
        "ran {\"from\":\"tail\"}",
        "Tool \"nope\" not found.",
    ];
    assert_eq!(texts(&outcome), expected);
    assert_eq!(outcome.responses[3].name, "read_file", "the response is to the call that the model made");
    let record = bench.observer.last("4");
    assert_eq!((record.call.name.as_str(), record.original.unwrap().name.as_str()), ("run_shell_command", "read_file"));
    assert_eq!((hooks.before.load(Ordering::SeqCst), hooks.after.load(Ordering::SeqCst)), (6, 6));
    let asked = person.asked.lock().unwrap();
    assert_eq!(asked[0].reason.as_deref(), Some("odd"));
    let ids: Vec<_> = asked[0].options.iter().map(|option| option.id).collect();
    assert_eq!(ids, ["proceed_once", "cancel"], "a hook's question has no lasting answer");
}

#[tokio::test]
async fn hooks_and_full_disks_end_the_invocation() {
    let (bench, _) = with_hooks(yolo(), Arc::new(NobodyApproves));
    for (args, message, ran) in
        [(json!({"stop": "enough"}), "enough", false), (json!({"stop_after": "done"}), "done", true)]
    {
        let outcome = bench.run(vec![call("1", "read_file", args), call("2", "read_file", json!({}))]).await;
        let stop = StopReason { code: "HOOK".to_owned(), message: message.to_owned() };
        assert_eq!(outcome.end, DispatchEnd::Stop(stop));
        assert_eq!(texts(&outcome)[0].starts_with("ran"), ran);
    }
    let full =
        probe("write_file", Kind::Edit, |_, _| async { Err(ToolFailure::new(ErrorType::NoSpaceLeft, "disk full")) });
    let bench = self::bench(vec![full], yolo(), |_| ());
    let outcome = bench.run(vec![call("1", "write_file", json!({}))]).await;
    let stop = StopReason { code: "no_space_left".to_owned(), message: "disk full".to_owned() };
    assert_eq!(outcome.end, DispatchEnd::Stop(stop));
}

#[tokio::test]
async fn cancelling_a_turn_says_what_ran_and_what_did_not() {
    let started = Arc::new(Notify::new());
    let tools = vec![waits("run_shell_command", Arc::clone(&started)), says("write_file", Kind::Edit)];
    let bench = bench(tools, yolo(), |_| ());
    let cancel = CancellationToken::new();
    let calls = vec![call("1", "run_shell_command", json!({})), call("2", "write_file", json!({}))];
    let batch = bench.scheduler.schedule(calls, &cancel);
    let queued = bench.scheduler.schedule(vec![call("3", "write_file", json!({}))], &cancel);
    let cancelling = async {
        started.notified().await;
        cancel.cancel();
    };
    let (outcome, queued, ()) = within(async { tokio::join!(batch, queued, cancelling) }).await;
    let expected = [
        "[Operation Cancelled] Reason: User cancelled tool execution.\n\nhalf of it",
        "[Operation Cancelled] Reason: User cancelled operation. The tool never ran.",
    ];
    assert_eq!(texts(&outcome), expected);
    assert!(texts(&queued)[0].ends_with("The tool never ran."));
    assert_eq!(bench.observer.last("1").status.as_str(), "cancelled");
    assert!(bench.observer.last("1").result.unwrap().ran && !bench.observer.last("2").result.unwrap().ran);
}

#[tokio::test]
async fn live_output_is_shown() {
    let started = Arc::new(Notify::new());
    let bench = bench(vec![waits("run_shell_command", Arc::clone(&started))], yolo(), |_| ());
    let cancel = CancellationToken::new();
    let batch = bench.scheduler.schedule(vec![call("1", "run_shell_command", json!({}))], &cancel);
    let watching = async {
        started.notified().await;
        while bench.observer.last("1").live.is_none() {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    within(async { tokio::join!(batch, watching) }).await;
    assert_eq!(bench.observer.last("1").live.map(|live| live.text), Some("half".to_owned()));
}

#[tokio::test]
async fn one_call_can_be_cancelled() {
    let started = Arc::new(Notify::new());
    let tools = vec![waits("run_shell_command", Arc::clone(&started)), says("write_file", Kind::Edit)];
    let bench = bench(tools, yolo(), |_| ());
    let cancelling = async {
        started.notified().await;
        bench.scheduler.cancel_call("1").await;
    };
    let batch = bench.run(vec![call("1", "run_shell_command", json!({})), call("2", "write_file", json!({}))]);
    let (outcome, ()) = within(async { tokio::join!(batch, cancelling) }).await;
    assert!(texts(&outcome)[0].contains("half of it"));
    assert_eq!(texts(&outcome)[1], "ran {}");
}

#[tokio::test]
async fn a_question_is_withdrawn_when_its_turn_is_cancelled() {
    let person = Person::who_says([]);
    let approver = Arc::clone(&person);
    let bench =
        bench(vec![says("web_fetch", Kind::Fetch)], PolicyOptions::default(), |options| options.approver = approver);
    let cancelling = async {
        while person.asked.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        bench.scheduler.cancel_all().await;
    };
    let batch = bench.run(vec![call("1", "web_fetch", json!({}))]);
    let (outcome, ()) = within(async { tokio::join!(batch, cancelling) }).await;
    assert_eq!(texts(&outcome), ["[Operation Cancelled] Reason: User cancelled operation. The tool never ran."]);
    assert_eq!(Arc::strong_count(&person), 2, "nobody waits for the answer any more");
}

#[tokio::test]
async fn a_tool_that_does_not_stop_is_dropped() {
    let started = Arc::new(Notify::new());
    let dropped = Arc::new(Notify::new());
    struct Tells(Arc<Notify>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let tool = {
        let (started, dropped) = (Arc::clone(&started), Arc::clone(&dropped));
        probe("run_shell_command", Kind::Execute, move |_, _| {
            let (started, tells) = (Arc::clone(&started), Tells(Arc::clone(&dropped)));
            async move {
                let _tells = tells;
                started.notify_one();
                std::future::pending().await
            }
        })
    };
    let bench = bench(vec![tool], yolo(), |options| options.limits.cancel_grace = Duration::from_millis(20));
    let cancelling = async {
        started.notified().await;
        bench.scheduler.cancel_all().await;
    };
    let batch = bench.run(vec![call("1", "run_shell_command", json!({}))]);
    let (outcome, ()) = within(async { tokio::join!(batch, cancelling) }).await;
    assert!(texts(&outcome)[0].contains("did not stop in time"), "{outcome:?}");
    within(dropped.notified()).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_its_batch() {
    let started = Arc::new(Notify::new());
    let tools = vec![waits("run_shell_command", Arc::clone(&started)), says("read_file", Kind::Read)];
    let bench = bench(tools, yolo(), |_| ());
    let never = CancellationToken::new();
    {
        let batch = bench.scheduler.schedule(vec![call("1", "run_shell_command", json!({}))], &never);
        tokio::select! {
            _ = batch => panic!("it can't be done"),
            () = started.notified() => {}
        }
    }
    let outcome = bench.run(vec![call("2", "read_file", json!({}))]).await;
    assert_eq!(texts(&outcome), ["ran {}"]);
    assert_eq!(bench.observer.last("1").status.as_str(), "cancelled");
}

#[tokio::test]
async fn calls_without_ids_are_told_apart() {
    let bench = bench(vec![says("read_file", Kind::Read)], yolo(), |_| ());
    let anonymous = |n: u32| FunctionCall { id: None, name: "read_file".to_owned(), args: json!({ "n": n }) };
    let outcome = bench.run(vec![anonymous(1), anonymous(2)]).await;
    assert_eq!(texts(&outcome), ["ran {\"n\":1}", "ran {\"n\":2}"]);
    let records = bench.observer.records.lock().unwrap();
    let ids: std::collections::BTreeSet<_> = records.iter().map(|record| record.call_id.clone()).collect();
    assert_eq!(ids.len(), 2);
}

#[tokio::test]
async fn large_output_of_commands_is_cut_and_kept() {
    struct Loud;
    impl DeclarativeTool for Loud {
        fn name(&self) -> &str {
            "run_shell_command"
        }
        fn display_name(&self) -> &str {
            "Shell"
        }
        fn kind(&self) -> Kind {
            Kind::Execute
        }
        fn declaration(&self, model: &str) -> FunctionDeclaration {
            says("run_shell_command", Kind::Execute).declaration(model)
        }
        fn truncates_output(&self) -> bool {
            true
        }
        fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
            probe("x", Kind::Execute, |_, _| async { Ok(ToolOutput::text("y".repeat(50_000))) }).build(args)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("tool-outputs/session-1");
    let bench = bench(vec![Arc::new(Loud)], yolo(), |options| options.truncation.folder = Some(folder));
    let outcome = bench.run(vec![call("call-1", "run_shell_command", json!({}))]).await;
    assert!(texts(&outcome)[0].starts_with("Output too large. Showing first 8000 and last 32000 characters."));
    let result = bench.observer.last("call-1").result.unwrap();
    let file = result.output_file.unwrap();
    assert!(file.ends_with("tool-outputs/session-1/run_shell_command_call-1.txt"), "{file}");
    assert_eq!(std::fs::read_to_string(file).unwrap().len(), 50_000);
}

#[tokio::test]
async fn declarations_follow_policy_in_a_stable_order() {
    let policy = SessionPolicy::new(PolicyOptions { interactive: false, ..PolicyOptions::default() }).unwrap();
    let registry = ToolRegistry::new(policy.clone());
    for name in ["write_file", "read_file", "glob"] {
        registry.register(says(name, Kind::Read)).unwrap();
    }
    assert!(registry.register(says("glob", Kind::Read)).is_err());
    let names = || registry.declarations("m").into_iter().map(|tool| tool.name).collect::<Vec<_>>();
    assert_eq!(names(), ["read_file", "glob"]);
    policy.set_mode(Mode::AutoEdit).unwrap();
    assert_eq!(names(), ["write_file", "read_file", "glob"]);
    registry.remove("read_file").unwrap();
    assert_eq!(names(), ["write_file", "glob"]);
    assert!(registry.get("search_file_content").is_none() && registry.get("GlobTool").is_some());
}

#[tokio::test]
async fn a_rule_about_a_subagent_says_what_it_is_offered_and_what_it_may() {
    let text = "[[rule]]\nsubagent = 'scout'\ntoolName = 'write_file'\ndecision = 'allow'\npriority = 9\n\
                [[rule]]\nsubagent = 'scout'\ntoolName = 'read_file'\ndecision = 'deny'\npriority = 9\n";
    let path = std::path::Path::new("/p/a.toml");
    let rules = crate::policy::parse_policy(text, path, crate::policy::Tier::User).unwrap().rules;
    let policy = SessionPolicy::new(PolicyOptions { rules, interactive: false, ..PolicyOptions::default() }).unwrap();
    for (subagent, offered) in [(None, "read_file"), (Some("scout"), "write_file"), (Some("other"), "read_file")] {
        let registry = ToolRegistry::new(policy.clone());
        let registry = Arc::new(match subagent {
            Some(name) => registry.of_subagent(name.to_owned()),
            None => registry,
        });
        for tool in [says("read_file", Kind::Read), says("write_file", Kind::Edit)] {
            registry.register(tool).unwrap();
        }
        let names: Vec<_> = registry.declarations("m").into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, [offered], "{subagent:?}");
        let mut options = SchedulerOptions::new(registry, policy.clone());
        options.subagent = subagent.map(str::to_owned);
        let scheduler = ToolScheduler::start(options);
        let calls = ["read_file", "write_file"].map(|name| call(name, name, json!({}))).to_vec();
        let outcome = within(scheduler.schedule(calls, &CancellationToken::new())).await;
        for (name, text) in ["read_file", "write_file"].into_iter().zip(texts(&outcome)) {
            assert_eq!(text == "ran {}", name == offered, "{subagent:?} {name}: {text}");
        }
    }
}
