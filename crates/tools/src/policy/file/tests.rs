//! What is read as the peer reads it, and what is refused with a place.

use serde_json::json;

use super::*;
use crate::policy::{Policy, PolicyCall, PolicyOptions};

fn read(text: &str) -> PolicyFile {
    parse_policy(text, Path::new("/p/a.toml"), Tier::User).unwrap()
}

/// Every key of the peer's documentation, in its own words.
const DOCUMENTED: &str = r##"
[[rule]]
name = "everything"
description = "For people."
toolName = "run_shell_command"
subagent = "codebase_investigator"
mcpName = "my-server"
toolAnnotations = { readOnlyHint = true }
argsPattern = '"command":"(git|npm)'
decision = "ask_user"
priority = 10
denyMessage = "Deletion is permanent"
modes = ["default", "autoEdit", "yolo", "plan"]
interactive = true
allowRedirection = true

[[rule]]
toolName = ["write_file", "replace"]
decision = "ask_user"
priority = 10

[[rule]]
toolName = "run_shell_command"
commandPrefix = ["git log", "git diff"]
decision = "allow"
priority = 100

[[rule]]
toolName = "run_shell_command"
commandRegex = "git (commit|push)"
decision = "deny"
priority = 999

[[rule]]
mcpName = "untrusted-server"
decision = "deny"
priority = 500
denyMessage = "This server is not trusted by the admin."

[[rule]]
mcpName = ["a"]
decision = "deny"
priority = 0
"##;

#[test]
fn the_documented_keys_are_read_and_lists_expand() {
    let text = DOCUMENTED.replace("[[rule]]\nmcpName = [\"a\"]\ndecision = \"deny\"\npriority = 0\n", "");
    let rules = read(&text).rules;
    assert_eq!(rules.len(), 7);
    let first = &rules[0];
    assert_eq!(first.name.as_deref(), Some("everything"));
    assert_eq!(first.scope.mcp_server.as_deref(), Some("my-server"));
    assert_eq!(first.scope.subagent.as_deref(), Some("codebase_investigator"));
    assert_eq!(first.scope.annotations["readOnlyHint"], json!(true));
    assert_eq!(first.scope.modes.as_ref().map(Vec::len), Some(4));
    assert_eq!((first.scope.interactive, first.allow_redirection), (Some(true), true));
    assert_eq!(first.deny_message.as_deref(), Some("Deletion is permanent"));
    assert_eq!(first.origin(), "/p/a.toml:2 \"everything\" (user, 4.010)");
    assert_eq!(rules[2].scope.tool, ToolPattern::Exact("replace".to_owned()));
    assert_eq!(rules[6].scope.tool, ToolPattern::Any);
}

/// The built-in policies of the peer, by their tables: what is special in each of them.
#[test]
fn the_shapes_that_the_peer_ships_load_unchanged() {
    let older = "[[rule]]\ndecision = \"deny\"\npriority = 20\nmodes = [\"plan\"]\ndeny_message = \"Plan mode.\"\n\
                 [[rule]]\ntoolName = \"write_file\"\ndecision = \"allow\"\npriority = 50\nmodes = [\"plan\"]\n\
                 argsPattern = \"\\\"file_path\\\":\\\"[^\\\"]+/\\\\.gemini/tmp/[a-f0-9]{64}/plans/[a-zA-Z0-9_-]+\\\\.md\\\"\"\n\
                 [[rule]]\ntoolName = \"*\"\ndecision = \"allow\"\npriority = 998\nmodes = [\"yolo\"]\nallow_redirection = true\n";
    let file = read(older);
    assert_eq!((file.rules.len(), file.warnings.len()), (3, 0));
    assert_eq!(file.rules[0].deny_message.as_deref(), Some("Plan mode."));
    assert!(file.rules[2].allow_redirection);
    let nested = "[[rule]]\ntoolName = \"write_file\"\ndecision = \"allow\"\npriority = 15\nmodes = [\"autoEdit\"]\n\n\
                  [rule.safety_checker]\ntype = \"in-process\"\nname = \"allowed-path\"\nrequired_context = [\"environment\"]\n";
    let file = read(nested);
    assert_eq!((file.rules.len(), file.checkers.len()), (1, 1));
    assert_eq!(file.checkers[0].scope, file.rules[0].scope, "the checker of a rule is about its calls");
    let conseca = "[[safety_checker]]\ntoolName = \"*\"\npriority = 100\nmodes = [\"plan\", \"default\", \"autoEdit\", \"yolo\"]\n\
                   [safety_checker.checker]\ntype = \"in-process\"\nname = \"conseca\"\n";
    let file = read(conseca);
    assert_eq!((file.checkers.len(), file.warnings.len()), (0, 1));
    let external = "[[safety_checker]]\ntoolName = [\"write_file\", \"replace\"]\npriority = 7\n\
                    checker = { type = \"external\", name = \"scan\", config = { level = 3 } }\n";
    let file = read(external);
    assert_eq!(file.checkers.len(), 2);
    assert_eq!(file.checkers[1].kind, CheckerKind::External("/p/checkers/scan".into()));
    assert_eq!(file.checkers[1].config, json!({"level": 3}));
    assert!(read("").rules.is_empty());
}

#[test]
fn what_is_wrong_is_told_with_file_line_and_rule() {
    let rule = |more: &str| format!("[[rule]]\ndecision = 'allow'\npriority = 1\n\n[[rule]]\nname = 'x'\n{more}\n");
    for (text, line, place, reason) in [
        (DOCUMENTED.to_owned(), 41, "rule 6: ", "invalid type"),
        (rule("toolNam = 'a'\ndecision = 'allow'\npriority = 1"), 7, "rule 2: ", "toolNam"),
        (rule("decision = 'maybe'\npriority = 1"), 5, "rule 2 \"x\": ", "maybe"),
        (rule("decision = 'allow'\npriority = 1000"), 5, "rule 2 \"x\": ", "1000"),
        (rule("decision = 'allow'\npriority = -1"), 5, "rule 2 \"x\": ", "-1"),
        (rule("decision = 'allow'\npriority = 1.5"), 8, "rule 2: ", "invalid type"),
        (rule("decision = 'allow'"), 5, "rule 2: ", "priority"),
        (rule("priority = 1"), 5, "rule 2: ", "decision"),
        (rule("decision = 'allow'\npriority = 1\nmodes = ['auto']"), 5, "rule 2 \"x\": ", "auto"),
        (rule("decision = 'allow'\npriority = 1\nargsPattern = '('"), 5, "rule 2 \"x\": ", "argsPattern can't be used"),
        (rule("decision = 'allow'\npriority = 1\ncommandPrefix = 'git'"), 5, "rule 2 \"x\": ", "run_shell_command"),
        (
            rule(
                "toolName = 'run_shell_command'\ndecision = 'allow'\npriority = 1\ncommandPrefix = 'a'\ncommandRegex = 'b'",
            ),
            5,
            "rule 2 \"x\": ",
            "exclude each other",
        ),
        (
            rule("toolName = 'run_shell_command'\ndecision = 'allow'\npriority = 1\ncommandPrefix = ' '"),
            5,
            "rule 2 \"x\": ",
            "empty",
        ),
        ("[[rules]]\ntoolName = 'a'\n".to_owned(), 1, "", "rules"),
        ("[[rule]\n".to_owned(), 1, "", ""),
        (
            "[[safety_checker]]\nchecker = { type = 'external', name = '../x' }\n".to_owned(),
            1,
            "safety_checker 1: ",
            "plain file name",
        ),
        (
            "[[safety_checker]]\nchecker = { type = 'in-process', name = 'x' }\n".to_owned(),
            1,
            "safety_checker 1: ",
            "no in-process",
        ),
        ("[[safety_checker]]\ntoolName = 'x'\n".to_owned(), 1, "safety_checker 1: ", "checker"),
    ] {
        let error = parse_policy(&text, Path::new("/p/a.toml"), Tier::User).unwrap_err();
        assert_eq!((error.line, error.place.as_str()), (line, place), "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("read policy /p/a.toml:{line}: {place}")), "{error}");
    }
}

#[test]
fn an_extension_may_refuse_and_never_allow() {
    let text = "[[rule]]\ntoolName = 'a'\ndecision = 'allow'\npriority = 1\n[[rule]]\ntoolName = 'b'\ndecision = 'deny'\npriority = 1\n";
    let file = parse_policy(text, Path::new("/e/a.toml"), Tier::Extension).unwrap();
    assert_eq!((file.rules.len(), file.warnings.len()), (1, 1));
    assert!(file.warnings[0].contains("rule 1: an extension may not allow"), "{:?}", file.warnings);
}

#[test]
fn patterns_are_tested_on_parsed_arguments() {
    let text = r##"
[[rule]]
toolName = "run_shell_command"
commandRegex = "git (status|log)"
decision = "allow"
priority = 100
[[rule]]
toolName = "write_file"
argsPattern = '\x00"file_path":"src/[^"]+\.rs"\x00'
decision = "allow"
priority = 100
[[rule]]
toolName = "run_shell_command"
commandRegex = "make (?!install)"
decision = "allow"
priority = 100
[[rule]]
argsPattern = '/etc/'
decision = "deny"
priority = 900
"##;
    let policy = Policy::new(PolicyOptions { rules: read(text).rules, ..PolicyOptions::default() }).unwrap();
    for (tool, args, expected) in [
        ("run_shell_command", json!({"command": "git status -s"}), Decision::Allow),
        ("run_shell_command", json!({"command": "git log && git status"}), Decision::Allow),
        ("run_shell_command", json!({"command": "git log && ./x"}), Decision::Ask),
        ("run_shell_command", json!({"command": "./x \"command\":\"git log"}), Decision::Ask),
        ("run_shell_command", json!({"command": "X=1 git log"}), Decision::Ask),
        ("run_shell_command", json!({"command": "make all && make check"}), Decision::Allow),
        ("run_shell_command", json!({"command": "make all && make install"}), Decision::Ask),
        ("run_shell_command", json!({"command": "cat '/e'tc/passwd"}), Decision::Deny),
        ("run_shell_command", json!({"command": "ls", "dir_path": "/etc/x"}), Decision::Deny),
        ("write_file", json!({"file_path": "src/a.rs", "content": ""}), Decision::Allow),
        ("write_file", json!({"file_path": "b", "content": "\0\"file_path\":\"src/a.rs\"\0"}), Decision::Ask),
        ("read_file", json!({"file_path": "/etc/passwd"}), Decision::Deny),
    ] {
        assert_eq!(policy.judge(&PolicyCall::new(tool, &args)).decision, expected, "{tool} {args}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_does_harm(text in "(\\[\\[rule\\]\\]|\\[\\[safety_checker\\]\\]|priority = |decision = |toolName = |'allow'|1|\n|\\[|\\]|\\{|\\}|'|,|[a-z=é]){0,40}") {
        let _ = parse_policy(&text, Path::new("a.toml"), Tier::User);
    }
}
