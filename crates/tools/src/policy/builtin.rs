//! The rules that hold before anybody wrote any. Source: runtime specification §6.6, "Built-in rules".

use super::{Decision, Mode, Priority, Rule, Tier, ToolPattern};

/// Tools whose lasting approval means "edit without asking".
pub(super) const EDITS: [&str; 2] = ["replace", "write_file"];

const READS: [&str; 16] = [
    "glob",
    "grep_search",
    "list_directory",
    "read_file",
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
    "invoke_agent",
];
const WRITES: [&str; 5] = ["replace", "run_shell_command", "write_file", "activate_skill", "web_fetch"];
const AUTO_EDITS: [&str; 3] = ["replace", "write_file", "web_fetch"];

pub(super) fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for tool in READS {
        rules.push(rule(tool, Decision::Allow, 50));
    }
    for tool in WRITES.into_iter().chain(["discovered_tool_*"]) {
        rules.push(Rule { interactive: Some(true), ..rule(tool, Decision::Ask, 10) });
        rules.push(Rule {
            interactive: Some(false),
            deny_message: Some(super::NEEDS_USER.to_owned()),
            ..rule(tool, Decision::Deny, 10)
        });
    }
    for tool in AUTO_EDITS {
        rules.push(Rule { modes: Some(vec![Mode::AutoEdit]), ..rule(tool, Decision::Allow, 15) });
    }
    rules.push(Rule {
        interactive: Some(false),
        deny_message: Some(super::NEEDS_USER.to_owned()),
        ..rule("ask_user", Decision::Deny, 999)
    });
    rules.push(Rule { modes: Some(vec![Mode::Yolo]), ..rule("*", Decision::Allow, 998) });
    rules.push(Rule { modes: Some(vec![Mode::Yolo]), ..rule("ask_user", Decision::Ask, 999) });
    rules.push(Rule {
        modes: Some(vec![Mode::Plan]),
        deny_message: Some("Plan mode only reads and plans.".to_owned()),
        ..rule("*", Decision::Deny, 40)
    });
    for tool in ["ask_user", "web_fetch", "activate_skill"] {
        rules.push(Rule { modes: Some(vec![Mode::Plan]), ..rule(tool, Decision::Ask, 50) });
    }
    rules
}

fn rule(tool: &str, decision: Decision, p: u16) -> Rule {
    Rule::new(ToolPattern::parse(tool), decision, Priority::new(Tier::Default, p), "built-in")
}
