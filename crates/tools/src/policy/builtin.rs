//! The rules that hold before anybody wrote any. Source: runtime specification §6.6, "Built-in rules".

use super::pattern::TextPattern;
use super::{ArgsPattern, Decision, Mode, Priority, Rule, Source, Tier, ToolPattern};

/// Tools whose lasting approval means "edit without asking".
pub(super) const EDITS: [&str; 2] = ["replace", "write_file"];

/// Tools whose every call is a question of its own.
pub(super) const ALWAYS_ASKED: [&str; 3] = ["ask_user", "enter_plan_mode", "exit_plan_mode"];

const READS: [&str; 16] = [
    "glob",
    "grep_search",
    "list_directory",
    "read_file",
    "read_many_files",
    "google_web_search",
    "codebase_investigator",
    "cli_help",
    "get_internal_docs",
    "update_topic",
    "write_todos",
    "complete_task",
    "read_mcp_resource",
    "list_mcp_resources",
    "list_background_processes",
    "read_background_output",
];
const WRITES: [&str; 5] = ["replace", "run_shell_command", "write_file", "activate_skill", "web_fetch"];
const AUTO_EDITS: [&str; 3] = ["replace", "write_file", "web_fetch"];

const PLAN_ONLY: &str = "Plan mode only reads and plans.";
const PLANS_ONLY: &str = "In plan mode only Markdown files in the folder of plans may be written.";

pub(super) fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for tool in READS {
        rules.push(rule(tool, Decision::Allow, 50));
    }
    for tool in WRITES.into_iter().chain(["discovered_tool_*"]) {
        rules.push(with(tool, Decision::Ask, 10, &[], Some(true)));
        rules.push(unheard(with(tool, Decision::Deny, 10, &[], Some(false))));
    }
    for tool in AUTO_EDITS {
        rules.push(with(tool, Decision::Allow, 15, &[Mode::AutoEdit], None));
    }
    rules.push(with("invoke_agent", Decision::Allow, 50, &[Mode::Default, Mode::AutoEdit, Mode::Yolo], None));
    rules.push(unheard(with("ask_user", Decision::Deny, 999, &[], Some(false))));
    let all = with("*", Decision::Allow, 998, &[Mode::Yolo], None);
    rules.push(Rule { allow_redirection: true, ..all });
    rules.push(with("ask_user", Decision::Ask, 999, &[Mode::Yolo], None));
    planning(&mut rules);
    rules
}

fn planning(rules: &mut Vec<Rule>) {
    let plan = &[Mode::Plan][..];
    let outside = &[Mode::Default, Mode::AutoEdit, Mode::Yolo][..];
    let says = |rule: Rule, message: &str| Rule { deny_message: Some(message.to_owned()), ..rule };
    rules.push(with("enter_plan_mode", Decision::Ask, 50, &[], Some(true)));
    rules.push(with("enter_plan_mode", Decision::Allow, 50, &[], Some(false)));
    rules.push(says(with("enter_plan_mode", Decision::Deny, 70, plan, None), "Plan mode is on already."));
    rules.push(with("exit_plan_mode", Decision::Ask, 70, plan, Some(true)));
    rules.push(with("exit_plan_mode", Decision::Allow, 70, plan, Some(false)));
    rules.push(says(with("exit_plan_mode", Decision::Deny, 50, outside, None), "Plan mode is not on."));
    let not_in_yolo = "In yolo mode there is nothing to plan for: just do it.";
    rules.push(says(with("enter_plan_mode", Decision::Deny, 999, &[Mode::Yolo], Some(true)), not_in_yolo));
    rules.push(says(with("exit_plan_mode", Decision::Deny, 999, &[Mode::Yolo], None), "Plan mode is not on."));
    rules.push(says(with("*", Decision::Deny, 40, plan, None), PLAN_ONLY));
    let mut remote = with("*", Decision::Ask, 50, plan, None);
    remote.scope.mcp_server = Some("*".to_owned());
    remote.scope.annotations.insert("readOnlyHint".to_owned(), true.into());
    rules.push(remote);
    // A pattern of ours that does not compile would be seen by every test.
    if let Ok(readers) = TextPattern::new(r#"\x00"agent_name":"(codebase_investigator|cli_help)"\x00"#) {
        let mut agents = with("invoke_agent", Decision::Allow, 50, plan, None);
        agents.scope.args = Some(ArgsPattern::Text(readers));
        rules.push(agents);
    }
    for tool in ["ask_user", "web_fetch", "activate_skill"] {
        rules.push(with(tool, Decision::Ask, 50, plan, None));
    }
    for tool in EDITS {
        let mut inside = with(tool, Decision::Allow, 70, plan, None);
        inside.scope.args = Some(ArgsPattern::PlanFiles);
        rules.push(inside);
        rules.push(says(with(tool, Decision::Deny, 65, plan, None), PLANS_ONLY));
    }
}

fn unheard(rule: Rule) -> Rule {
    Rule { deny_message: Some(super::NEEDS_USER.to_owned()), ..rule }
}

fn with(tool: &str, decision: Decision, p: u16, modes: &[Mode], interactive: Option<bool>) -> Rule {
    let mut rule = rule(tool, decision, p);
    rule.scope.modes = (!modes.is_empty()).then(|| modes.to_vec());
    rule.scope.interactive = interactive;
    rule
}

fn rule(tool: &str, decision: Decision, p: u16) -> Rule {
    Rule::new(ToolPattern::parse(tool), decision, Priority::new(Tier::Default, p), Source::Named("built-in"))
}
