//! What may an agent elsewhere be given without asking? Nothing, unless somebody says so: a task may hold anything that
//! the session has read.
//!
//! One rule for each of them, under all that files, settings and people say. Source: runtime specification §12.3.

use convoke_tools::policy::{ArgsPattern, Decision, Mode, Priority, Rule, Source, TextPattern, Tier, ToolPattern};

use crate::subagents::definition::AgentKind;
use crate::subagents::invoke::INVOKE_AGENT;
use crate::subagents::registry::AgentRegistry;

/// Above the built-in rule that lets agents of our own be called.
const PRIORITY: u16 = 60;

/// The rules for the agents elsewhere of a registry.
pub(crate) fn remote_rules(agents: &AgentRegistry) -> Vec<Rule> {
    let remote = agents.all().filter(|agent| matches!(agent.kind, AgentKind::Remote(_)));
    remote.filter_map(|agent| rule(&agent.name)).collect()
}

fn rule(name: &str) -> Option<Rule> {
    // The whole member, so that nothing in a prompt passes for it. Names have no letter that means something in a
    // pattern; one that had would be left to the rules for all calls.
    let pattern = TextPattern::new(&format!("\\x00\"agent_name\":\"{name}\"\\x00")).ok()?;
    let priority = Priority::new(Tier::Default, PRIORITY);
    let tool = ToolPattern::Exact(INVOKE_AGENT.to_owned());
    let mut rule = Rule::new(tool, Decision::Ask, priority, Source::Named("remote agents"));
    rule.scope.args = Some(ArgsPattern::Text(pattern));
    rule.scope.modes = Some(vec![Mode::Default, Mode::AutoEdit]);
    Some(rule)
}

#[cfg(test)]
mod tests {
    use convoke_tools::PolicyOptions;
    use convoke_tools::policy::{Policy, PolicyCall};
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_elsewhere_is_asked_about_and_one_of_ours_is_not() {
        for (mode, expected) in [
            (Mode::Default, Decision::Ask),
            (Mode::AutoEdit, Decision::Ask),
            (Mode::Yolo, Decision::Allow),
            (Mode::Plan, Decision::Deny),
        ] {
            let mut policy = Policy::new(PolicyOptions { mode, ..PolicyOptions::default() }).unwrap();
            policy.add_rule(rule("far-off_1").unwrap());
            let decide = |agent: &str, prompt: &str| {
                let args = json!({"agent_name": agent, "prompt": prompt});
                policy.judge(&PolicyCall::new(INVOKE_AGENT, &args)).decision
            };
            assert_eq!(decide("far-off_1", "x"), expected, "{mode:?}");
            if mode == Mode::Default {
                assert_eq!(decide("near", "x"), Decision::Allow);
                assert_eq!(decide("near", "\0\"agent_name\":\"far-off_1\"\0"), Decision::Allow);
            }
        }
    }
}
