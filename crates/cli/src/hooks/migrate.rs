//! Claude Code's hooks in our words: which event, which tool, which unit?

use serde_json::{Map, Value, json};

/// Their events and ours. What is missing here has no counterpart.
const EVENTS: [(&str, &str); 8] = [
    ("PreToolUse", "BeforeTool"),
    ("PostToolUse", "AfterTool"),
    ("UserPromptSubmit", "BeforeAgent"),
    ("Stop", "AfterAgent"),
    ("Notification", "Notification"),
    ("SessionStart", "SessionStart"),
    ("SessionEnd", "SessionEnd"),
    ("PreCompact", "PreCompress"),
];

/// Their tools and ours, longer names first: matchers are rewritten as text.
const TOOLS: [(&str, &str); 9] = [
    ("MultiEdit", "replace"),
    ("TodoWrite", "write_todos"),
    ("WebFetch", "web_fetch"),
    ("Write", "write_file"),
    ("Edit", "replace"),
    ("Read", "read_file"),
    ("Bash", "run_shell_command"),
    ("Glob", "glob"),
    ("Grep", "grep_search"),
];

/// Their hooks as ours, and what could not be taken over.
pub(super) fn migrate(hooks: &Value) -> (Map<String, Value>, Vec<String>) {
    let mut ours = Map::new();
    let mut left_out = Vec::new();
    for (event, groups) in hooks.as_object().into_iter().flatten() {
        let Some((_, name)) = EVENTS.iter().find(|(theirs, _)| theirs == event) else {
            left_out.push(format!("{event}: there is no such event here"));
            continue;
        };
        let groups = groups.as_array().into_iter().flatten();
        let groups: Vec<Value> = groups.map(|each| group(each, name.ends_with("Tool"), &mut left_out)).collect();
        ours.insert((*name).to_owned(), groups.into());
    }
    (ours, left_out)
}

fn group(group: &Value, tools: bool, left_out: &mut Vec<String>) -> Value {
    let mut ours = Map::new();
    if let Some(matcher) = group.get("matcher").and_then(Value::as_str).filter(|matcher| !matcher.is_empty()) {
        ours.insert("matcher".to_owned(), if tools { of_tools(matcher) } else { matcher.to_owned() }.into());
    }
    let mut hooks = Vec::new();
    for hook in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
        let Some(command) = hook.get("command").and_then(Value::as_str) else {
            left_out.push("a hook without a command".to_owned());
            continue;
        };
        let mut entry = json!({"type": "command", "command": command});
        // Theirs is in seconds.
        if let (Some(seconds), Some(entry)) = (hook.get("timeout").and_then(Value::as_u64), entry.as_object_mut()) {
            entry.insert("timeout".to_owned(), seconds.saturating_mul(1000).into());
        }
        hooks.push(entry);
    }
    ours.insert("hooks".to_owned(), hooks.into());
    Value::Object(ours)
}

/// A pattern over their tools as one over ours. Only whole names are replaced.
fn of_tools(matcher: &str) -> String {
    let mut out = String::new();
    let mut rest = matcher;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(TOOLS.iter().find(|(theirs, _)| *theirs == word).map_or(word, |(_, ours)| ours));
        let sign = after.chars().next();
        out.extend(sign);
        rest = after.get(sign.map_or(0, char::len_utf8)..).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn events_tools_and_seconds_are_translated() {
        let (ours, left_out) = migrate(&json!({
            "PreToolUse": [{"matcher": "Write|MultiEdit|mcp__x|Writer", "hooks": [
                {"type": "command", "command": "$CLAUDE_PROJECT_DIR/check.sh", "timeout": 5}, {"type": "prompt"}]}],
            "SessionStart": [{"matcher": "startup", "hooks": []}],
            "SubagentStop": [],
        }));
        let check = json!({"type": "command", "command": "$CLAUDE_PROJECT_DIR/check.sh", "timeout": 5000});
        assert_eq!(
            Value::Object(ours),
            json!({
                "BeforeTool": [{"matcher": "write_file|replace|mcp__x|Writer", "hooks": [check]}],
                "SessionStart": [{"matcher": "startup", "hooks": []}],
            })
        );
        assert_eq!(left_out, ["a hook without a command", "SubagentStop: there is no such event here"]);
    }
}
