//! The lattice, by chance: deny over ask over allow, over all sources, and nothing that lifts a refusal.

use proptest::prelude::*;

use super::chance::{Called, calls, commands, decisions, modes, rules};
use super::*;
use Decision::{Ask, Deny};

fn policy(mode: Mode, rules: &[Rule]) -> Policy {
    Policy::new(PolicyOptions { mode, rules: rules.to_vec(), ..PolicyOptions::default() }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Nothing that comes behind the rules makes a decision weaker.
    #[test]
    fn joining_only_tightens(first in decisions(), more in proptest::collection::vec(decisions(), 0..6)) {
        let mut judged = Judgement { decision: first, message: None, source: String::new(), steps: Vec::new() };
        for decision in &more {
            let before = judged.decision;
            let changed = judged.tighten(*decision, "x", None);
            prop_assert!(judged.decision >= before);
            prop_assert_eq!(changed, judged.decision > before);
        }
        prop_assert_eq!(judged.decision, more.into_iter().chain([first]).max().unwrap());
    }

    /// No lasting answer, whichever is offered and given in whichever mode, turns a refusal into anything else.
    #[test]
    fn lasting_answers_never_lift_a_refusal(rules in rules(), asked in calls(), call in calls(), mode in modes()) {
        let before = policy(mode, &rules);
        let offers = asked.with(|call| before.lasting(call));
        for offer in offers.iter().filter(|offer| offer.always != Always::AutoEdit) {
            let mut after = before.clone();
            after.remember(&offer.always).unwrap();
            let (was, is) = (call.decided(&before), call.decided(&after));
            prop_assert!(is <= was, "{:?} {:?}", offer, call);
            prop_assert!(was != Deny || is == Deny, "{:?} lifted {:?}", offer, call);
        }
    }

    /// A rule that refuses never makes another call pass, and the call that it is about is refused, whatever the others
    /// say and whatever the mode: nothing is stronger than the administrator.
    #[test]
    fn one_more_refusal_never_weakens(
        rules in rules(), call in calls(), mode in modes(), server in any::<bool>(),
        tool in proptest::sample::select(vec!["*", "write_file", "run_shell_command", "mcp_x_*"]), prefix in any::<bool>(),
    ) {
        let mut refusal = Rule::new(ToolPattern::parse(tool), Deny, Priority::new(Tier::Admin, 999), Source::Named("test"));
        if prefix && tool == "run_shell_command" {
            refusal.scope.args = Some(ArgsPattern::CommandPrefix(vec!["rm".to_owned()]));
        }
        if server && tool == "*" {
            refusal.scope.mcp_server = Some("x".to_owned());
        }
        let concerned = refusal.scope.args.is_none() && call.with(|call| refusal.covers(&call.tool));
        let with: Vec<Rule> = rules.iter().cloned().chain([refusal]).collect();
        let (was, is) = (call.decided(&policy(mode, &rules)), call.decided(&policy(mode, &with)));
        prop_assert!(is >= was, "{:?}: {:?} became {:?}", call, was, is);
        prop_assert!(!concerned || is == Deny);
    }

    /// A refusal of no mode's is one of every mode's: going from one to another doesn't lift it.
    #[test]
    fn no_mode_lifts_a_refusal_of_all_modes(rules in rules(), call in calls(), from in modes(), to in modes()) {
        let spoken: Vec<Rule> = rules.iter().filter(|rule| rule.decision == Deny).cloned().map(|mut rule| {
            rule.scope.modes = None;
            rule
        }).collect();
        // With nothing but refusals, what one of them is about is refused wherever it goes.
        let concerned = spoken.iter().any(|rule| {
            rule.scope.args.is_none() && rule.scope.interactive != Some(false) && rule.priority.tier() > Tier::Default
                && call.with(|call| rule.covers(&call.tool))
        });
        let mut policy = policy(from, &spoken);
        prop_assert!(!concerned || call.decided(&policy) == Deny);
        policy.set_mode(to).unwrap();
        prop_assert!(!concerned || call.decided(&policy) == Deny);
    }

    /// A command is never judged more kindly than any of its parts.
    #[test]
    fn a_whole_is_no_safer_than_its_parts(rules in rules(), first in commands(), second in commands()) {
        let text = |called: &Called| called.args["command"].as_str().unwrap().to_owned();
        let (a, b) = (text(&first), text(&second));
        // What is open at its end goes on in the next line.
        prop_assume!(!a.trim_end().ends_with(['|', '&']));
        prop_assume!(!a.contains("a (") && !b.contains("a (") && !a.is_empty() && !b.is_empty());
        let policy = policy(Mode::Default, &rules);
        let whole = Called::command(&format!("{a}\n{b}")).decided(&policy);
        prop_assert!(whole >= first.decided(&policy).max(second.decided(&policy)), "{:?} {:?}", a, b);
    }

    /// With nobody to ask nothing is asked, and nothing is allowed that was not before.
    #[test]
    fn nobody_to_ask_only_tightens(rules in rules(), call in calls(), mode in modes()) {
        // Plan mode's own tools are answered by themselves without a listener.
        prop_assume!(call.name != "exit_plan_mode");
        // Rules may say of themselves that they are for one of the two.
        let rules: Vec<Rule> = rules.into_iter().map(|mut rule| {
            rule.scope.interactive = None;
            rule
        }).collect();
        let with = |interactive| {
            let options = PolicyOptions { mode, interactive, rules: rules.clone(), ..PolicyOptions::default() };
            call.decided(&Policy::new(options).unwrap())
        };
        prop_assert!(with(false) != Ask);
        prop_assert!(with(false) >= with(true));
    }
}
