//! The lattice behind the rules, by chance: hooks, rewritten input, lasting answers and calls in place of others, through
//! the scheduler that runs them.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::kit::{bench, call, probe};
use crate::policy::chance::{Called, calls, modes, rules};
use crate::policy::{Decision, Policy};
use crate::{
    AfterTool, ApprovalOutcome, ApprovalRequest, BeforeTool, HookCall, HookResult, Kind, Mode, PolicyOptions,
    SessionPolicy, TailCall, ToolOutput,
};

/// What a hook makes of the call that it is told of first.
#[derive(Clone, Debug)]
struct Wish {
    deny: bool,
    ask: bool,
    rewrite: Option<Value>,
    tail: Option<Called>,
}

fn wishes() -> impl Strategy<Value = Wish> {
    let rare = || proptest::bool::weighted(0.15);
    (rare(), rare(), proptest::option::of(calls()), proptest::option::weighted(0.3, calls()))
        .prop_map(|(deny, ask, rewrite, tail)| Wish { deny, ask, rewrite: rewrite.map(|called| called.args), tail })
}

#[derive(Default)]
struct Hook {
    wishes: Mutex<VecDeque<Wish>>,
    policy: OnceLock<SessionPolicy>,
    /// In which mode a call in the place of another was wished for. Answers change it, and so does that call.
    mode_of_tail: Mutex<Mode>,
}

#[async_trait]
impl ToolHooks for Hook {
    async fn before_tool(&self, _: &HookCall) -> BeforeTool {
        let Some(wish) = self.wishes.lock().unwrap().front().cloned() else { return BeforeTool::default() };
        let reason = |wanted: bool| wanted.then(|| "a hook".to_owned());
        BeforeTool { deny: reason(wish.deny), ask: reason(wish.ask), rewrite: wish.rewrite, stop: None }
    }

    async fn after_tool(&self, _: &HookCall, _: &HookResult) -> AfterTool {
        let tail = self.wishes.lock().unwrap().pop_front().and_then(|wish| wish.tail);
        if let Some(policy) = self.policy.get().filter(|_| tail.is_some()) {
            *self.mode_of_tail.lock().unwrap() = policy.mode();
        }
        AfterTool {
            tail_call: tail.map(|called| TailCall { name: called.name.to_owned(), args: called.args }),
            ..AfterTool::default()
        }
    }
}

/// Says yes to everything, for as long as it is offered.
#[derive(Default)]
struct Yes(Mutex<usize>);

#[async_trait]
impl Approver for Yes {
    async fn request(&self, request: ApprovalRequest) -> ApprovalOutcome {
        *self.0.lock().unwrap() += 1;
        let always = request.options.iter().find(|option| option.id.starts_with("proceed_always"));
        always.map_or(ApprovalOutcome::ProceedOnce, |option| ApprovalOutcome::ProceedAlways(option.id))
    }
}

const TOOLS: [&str; 6] = ["read_file", "write_file", "web_fetch", "ask_user", "exit_plan_mode", "run_shell_command"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    /// What runs was refused neither as the model wrote it nor as a hook rewrote it, was asked about if either says so,
    /// and is exactly what was judged. Whoever says yes to everything changes nothing about that.
    #[test]
    fn nothing_turns_a_refusal_into_anything_else(
        rules in rules(), mode in modes(), interactive in any::<bool>(), wish in wishes(),
        tries in proptest::collection::vec(calls(), 1..4),
    ) {
        let rules: Vec<_> = rules.into_iter().filter(|rule| rule.scope.subagent.is_none()).collect();
        let options = PolicyOptions { mode, interactive, rules, ..PolicyOptions::default() };
        let tries: Vec<Called> = tries.into_iter().filter(|called| called.server.is_none()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ran: Arc<Mutex<Vec<(&'static str, Value)>>> = Arc::default();
            let tools = TOOLS.map(|name| {
                let ran = ran.clone();
                probe(name, Kind::Other, move |args, _| {
                    ran.lock().unwrap().push((name, args));
                    async { Ok(ToolOutput::text("ran".to_owned())) }
                })
            });
            let person = Arc::new(Yes::default());
            let hook = Arc::new(Hook::default());
            let approver = person.clone();
            let plugged = hook.clone();
            let bench = bench(tools.to_vec(), options.clone(), |options| {
                options.hooks = plugged;
                options.approver = approver;
            });
            assert!(hook.policy.set(bench.policy.clone()).is_ok());
            // What no answer was given about.
            let unanswered = |called: &Called, mode: Mode| {
                let policy = Policy::new(PolicyOptions { mode, ..options.clone() }).unwrap();
                Called { subagent: None, ..called.clone() }.decided(&policy)
            };
            for (number, called) in tries.iter().enumerate() {
                ran.lock().unwrap().clear();
                *person.0.lock().unwrap() = 0;
                *hook.wishes.lock().unwrap() = VecDeque::from([wish.clone()]);
                let mode = bench.policy.mode();
                let rewritten = wish.rewrite.clone().map(|args| Called { args, ..called.clone() });
                let verdicts: Vec<Decision> = [Some(called), rewritten.as_ref()].into_iter().flatten().map(|called| unanswered(called, mode)).collect();
                let tail = wish.tail.as_ref().filter(|tail| tail.server.is_none());
                let outcome = bench.run(vec![call(&number.to_string(), called.name, called.args.clone())]).await;
                prop_assert_eq!(outcome.responses.len(), 1);
                let ran = ran.lock().unwrap().clone();
                let strictest = verdicts.iter().copied().max().unwrap();
                let refused = strictest == Decision::Deny || wish.deny || (wish.ask && !interactive);
                if refused {
                    prop_assert!(ran.is_empty(), "{:?} ran, though {:?} says no to {:?}", ran, verdicts, called);
                    continue;
                }
                let meant = rewritten.as_ref().unwrap_or(called);
                if let Some(first) = ran.first() {
                    prop_assert_eq!(first, &(meant.name, meant.args.clone()), "what ran is what was judged");
                    prop_assert!(!wish.ask || *person.0.lock().unwrap() > 0, "a hook's question was not asked");
                }
                // A call in the place of another is judged for itself.
                if let (Some(tail), Some(second)) = (tail, ran.get(1)) {
                    prop_assert_eq!(second, &(tail.name, tail.args.clone()));
                    let mode = *hook.mode_of_tail.lock().unwrap();
                    prop_assert!(unanswered(tail, mode) != Decision::Deny, "{:?} ran in the place of another", tail);
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_refused_call_is_not_rewritten_into_one_that_passes() {
    let rule =
        |text: &str| crate::policy::parse_policy(text, std::path::Path::new("/p/a.toml"), crate::policy::Tier::User);
    let text = "[[rule]]\ntoolName = 'run_shell_command'\ncommandPrefix = 'git push'\ndecision = 'deny'\npriority = 9\n\
                denyMessage = 'No pushing.'\n";
    let options = PolicyOptions { rules: rule(text).unwrap().rules, ..PolicyOptions::default() };
    let shell =
        probe("run_shell_command", Kind::Execute, |args, _| async move { Ok(ToolOutput::text(args.to_string())) });
    let wish = Wish { deny: false, ask: false, rewrite: Some(json!({"command": "ls"})), tail: None };
    let hook = Arc::new(Hook { wishes: Mutex::new(VecDeque::from([wish])), ..Hook::default() });
    let person = Arc::new(Yes::default());
    let approver = person.clone();
    let bench = bench(vec![shell], options, |options| {
        options.hooks = hook;
        options.approver = approver;
    });
    let command = |text: &str| vec![call("1", "run_shell_command", json!({"command": text}))];
    let refused = bench.run(command("git push")).await;
    assert_eq!(refused.responses[0].response, json!({"error": "Tool execution denied by policy. No pushing."}));
    assert_eq!(*person.0.lock().unwrap(), 0);
    // What is asked about as it was written is asked about, with the reason, and not for good.
    let asked = bench.run(command("make")).await;
    assert_eq!(asked.responses[0].response, json!({"output": "{\"command\":\"ls\"}"}));
    assert_eq!(*person.0.lock().unwrap(), 1);
}
