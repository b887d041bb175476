//! Tables: one line per promise.

use serde_json::{Value, json};

use super::*;
use Decision::{Allow, Ask, Deny};

fn policy(mode: Mode, interactive: bool, allowed: &[&str]) -> Policy {
    let rules = allowed.iter().map(|text| parse_allowed_tool(text).unwrap()).collect();
    Policy::new(PolicyOptions { mode, interactive, rules, ..PolicyOptions::default() }).unwrap()
}

fn command(text: &str) -> Value {
    json!({"command": text})
}

#[test]
fn built_in_rules() {
    use Mode::{AutoEdit, Default, Plan, Yolo};
    // Interactive, then not.
    for (tool, mode, with_user, without) in [
        ("read_file", Default, Allow, Allow),
        ("read_file", Plan, Allow, Allow),
        ("list_background_processes", Default, Allow, Allow),
        ("write_file", Default, Ask, Deny),
        ("write_file", AutoEdit, Allow, Allow),
        ("write_file", Yolo, Allow, Allow),
        ("write_file", Plan, Deny, Deny),
        ("replace", AutoEdit, Allow, Allow),
        ("run_shell_command", Default, Ask, Deny),
        ("run_shell_command", AutoEdit, Ask, Deny),
        ("run_shell_command", Yolo, Allow, Allow),
        ("run_shell_command", Plan, Deny, Deny),
        ("web_fetch", AutoEdit, Allow, Allow),
        ("web_fetch", Plan, Ask, Deny),
        ("ask_user", Default, Ask, Deny),
        ("ask_user", Yolo, Ask, Deny),
        ("mcp_some_tool", Default, Ask, Deny),
        ("mcp_some_tool", Yolo, Allow, Allow),
        ("mcp_some_tool", Plan, Deny, Deny),
        ("discovered_tool_x", AutoEdit, Ask, Deny),
    ] {
        for (interactive, expected) in [(true, with_user), (false, without)] {
            let judged = policy(mode, interactive, &[]).judge(tool, &command("ls"));
            assert_eq!(judged.decision, expected, "{tool} in {mode:?}, interactive: {interactive}");
        }
    }
}

#[test]
fn what_would_always_be_denied_is_not_offered() {
    for (tool, mode, interactive, allowed, offered) in [
        ("write_file", Mode::Default, true, "", true),
        ("write_file", Mode::Default, false, "", false),
        ("write_file", Mode::AutoEdit, false, "", true),
        ("write_file", Mode::Plan, true, "", false),
        ("ask_user", Mode::Yolo, false, "", false),
        ("run_shell_command", Mode::Default, false, "run_shell_command(git status)", true),
        ("run_shell_command", Mode::Default, false, "ShellTool", true),
        ("run_shell_command", Mode::Default, false, "read_file", false),
        ("mcp_a_b", Mode::Default, false, "", false),
        ("mcp_a_b", Mode::Default, false, "mcp_a_*", true),
        ("mcp_b_b", Mode::Default, false, "mcp_a_*", false),
    ] {
        let allowed: &[&str] = if allowed.is_empty() { &[] } else { &[allowed] };
        let offer = policy(mode, interactive, allowed).offer(tool);
        assert_eq!(offer == Offer::Offered, offered, "{tool} in {mode:?} with {allowed:?}: {offer:?}");
    }
}

#[test]
fn an_offer_agrees_with_judgements() {
    let calls = [command("git status"), command("rm -rf x"), command("a && b"), json!({}), json!({"path": "x"})];
    let tools = ["read_file", "write_file", "run_shell_command", "ask_user", "web_fetch", "mcp_x_y", "unheard_of"];
    for mode in [Mode::Plan, Mode::Default, Mode::AutoEdit, Mode::Yolo] {
        for interactive in [true, false] {
            for allowed in [&[][..], &["run_shell_command(git status)", "mcp_x_*"]] {
                let policy = policy(mode, interactive, allowed);
                for tool in tools {
                    let some_run = calls.iter().any(|args| policy.judge(tool, args).decision != Deny);
                    assert_eq!(
                        policy.offer(tool) == Offer::Offered,
                        some_run,
                        "{tool} {mode:?} {interactive} {allowed:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn only_simple_commands_match_an_allowing_prefix() {
    let policy = policy(Mode::Default, true, &["run_shell_command(git status)", "run_shell_command(npm)"]);
    for (text, expected) in [
        ("git status", Allow),
        ("  git   status --short ", Allow),
        ("git 'status'", Allow),
        ("git statusx", Ask),
        ("git push", Ask),
        ("npm run \"build all\"", Allow),
        ("npmx", Ask),
        // Operators, substitutions, redirections, expansions.
        ("git status; rm -rf /", Ask),
        ("git status && rm x", Ask),
        ("git status || rm x", Ask),
        ("git status | sh", Ask),
        ("git status & rm x", Ask),
        ("git status\nrm x", Ask),
        ("git status\rrm x", Ask),
        ("git status $(rm x)", Ask),
        ("git status `rm x`", Ask),
        ("git status \"$(rm x)\"", Ask),
        ("git status \"`rm x`\"", Ask),
        ("git status > /etc/passwd", Ask),
        ("git status < x", Ask),
        ("git status <(rm x)", Ask),
        ("git status $HOME", Ask),
        ("git status ${x}", Ask),
        ("git status \\; rm", Ask),
        ("git status # comment", Ask),
        ("git status {a,b}", Ask),
        ("git status *", Ask),
        ("git status 'unclosed", Ask),
        ("git status \"unclosed", Ask),
        ("(git status)", Ask),
        ("! git status", Ask),
        ("git status !!", Ask),
        ("X=1 git status", Ask),
        ("GIT_SSH=evil git status", Ask),
        // Wrappers.
        ("bash -c 'git status'", Ask),
        ("env git status", Ask),
        ("sudo git status", Ask),
        ("/usr/bin/env git status", Ask),
        ("xargs git status", Ask),
        ("eval git status", Ask),
        ("", Ask),
    ] {
        assert_eq!(policy.judge("run_shell_command", &command(text)).decision, expected, "{text:?}");
    }
    assert_eq!(policy.judge("run_shell_command", &json!({})).decision, Ask);
    assert_eq!(policy.judge("run_shell_command", &json!({"command": ["git", "status"]})).decision, Ask);
}

#[test]
fn a_denying_prefix_is_not_dodged() {
    let rule = Rule {
        args: Some(ArgsPattern::CommandPrefix(vec!["rm".to_owned()])),
        deny_message: Some("No deleting.".to_owned()),
        ..Rule::new(ToolPattern::parse("run_shell_command"), Deny, Priority::new(Tier::User, 400), "tools.exclude")
    };
    let options = PolicyOptions { mode: Mode::Yolo, rules: vec![rule], ..PolicyOptions::default() };
    let policy = Policy::new(options).unwrap();
    for text in [
        "rm x",
        "/bin/rm x",
        "../bin/rm",
        "ls; rm x",
        "ls && /bin/rm x",
        "$(rm x)",
        "r'm' x",
        "\\rm x",
        "sudo rm x",
        "X=1 rm x",
        "ls|rm",
        "ls\nrm x",
    ] {
        let judged = policy.judge("run_shell_command", &command(text));
        assert_eq!((judged.decision, judged.message.as_deref()), (Deny, Some("No deleting.")), "{text:?}");
    }
    for text in ["ls", "cargo rmx", "npm; farm", "echo rm", "rm/x"] {
        assert_eq!(policy.judge("run_shell_command", &command(text)).decision, Allow, "{text:?}");
    }
    assert_eq!(policy.offer("run_shell_command"), Offer::Offered);
}

#[test]
fn an_allowed_shell_still_asks_before_redirecting() {
    let with_user = policy(Mode::Default, true, &["run_shell_command"]);
    assert_eq!(with_user.judge("run_shell_command", &command("a && b")).decision, Allow);
    assert_eq!(with_user.judge("run_shell_command", &command("a > b")).decision, Ask);
    assert_eq!(with_user.judge("run_shell_command", &command("a '>' b")).decision, Allow);
    let headless = policy(Mode::Default, false, &["run_shell_command"]);
    assert_eq!(headless.judge("run_shell_command", &command("a > b")).decision, Deny);
    let yolo = policy(Mode::Yolo, false, &[]);
    assert_eq!(yolo.judge("run_shell_command", &command("a > b")).decision, Allow);
}

#[test]
fn allowed_tools_are_read() {
    for (text, tool, words) in [
        ("read_file", "read_file", None),
        (" ShellTool ", "run_shell_command", None),
        ("ShellTool(git status)", "run_shell_command", Some(vec!["git", "status"])),
        ("run_shell_command(npm:*)", "run_shell_command", Some(vec!["npm"])),
        ("search_file_content", "grep_search", None),
    ] {
        let rule = parse_allowed_tool(text).unwrap();
        assert_eq!(rule.tool, ToolPattern::Exact(tool.to_owned()), "{text}");
        let expected = words.map(|words| ArgsPattern::CommandPrefix(words.into_iter().map(str::to_owned).collect()));
        assert_eq!((rule.args, rule.decision), (expected, Allow), "{text}");
    }
    assert_eq!(parse_allowed_tool("mcp_x_*").unwrap().tool, ToolPattern::Prefix("mcp_x_".to_owned()));
    for text in
        ["", "a b", "run_shell_command(git", "read_file(x)", "run_shell_command()", "run_shell_command(a | b)", ")("]
    {
        assert!(parse_allowed_tool(text).is_err(), "{text:?}");
    }
}

#[test]
fn lasting_answers_about_commands() {
    let mut policy = policy(Mode::Default, true, &[]);
    let always = policy.always("run_shell_command", &command("git status -s")).unwrap();
    assert_eq!(always, Always::Commands(vec!["git".to_owned()]));
    assert_eq!(always.label(), "Always allow \"git\" commands in this session");
    policy.remember(&always).unwrap();
    policy.remember(&always).unwrap();
    for (text, expected) in
        [("git log", Allow), ("git log; rm x", Ask), ("rm x", Ask), ("gitk", Ask), ("git log > x", Ask)]
    {
        assert_eq!(policy.judge("run_shell_command", &command(text)).decision, expected, "{text}");
    }
    for text in ["a && b", "sudo ls", "a > b", ""] {
        assert_eq!(policy.always("run_shell_command", &command(text)), None, "{text}");
    }
    policy.set_mode(Mode::Plan).unwrap();
    assert_eq!(policy.judge("run_shell_command", &command("git log")).decision, Deny, "a stricter mode");
    policy.set_mode(Mode::AutoEdit).unwrap();
    assert_eq!(policy.judge("run_shell_command", &command("git log")).decision, Allow, "a more permissive mode");
}

#[test]
fn lasting_answers_never_lift_a_refusal() {
    let rule = Rule {
        args: Some(ArgsPattern::CommandPrefix(vec!["git".to_owned(), "push".to_owned()])),
        ..Rule::new(ToolPattern::parse("run_shell_command"), Deny, Priority::new(Tier::Default, 11), "test")
    };
    let mut policy = Policy::new(PolicyOptions { rules: vec![rule], ..PolicyOptions::default() }).unwrap();
    policy.remember(&Always::Commands(vec!["git".to_owned()])).unwrap();
    assert_eq!(policy.judge("run_shell_command", &command("git push")).decision, Deny);
    assert_eq!(policy.judge("run_shell_command", &command("git pull")).decision, Allow);
}

#[test]
fn lasting_answers_about_edits_switch_the_mode() {
    let mut trusted = policy(Mode::Default, true, &[]);
    assert_eq!(trusted.always("write_file", &json!({})), Some(Always::AutoEdit));
    trusted.remember(&Always::AutoEdit).unwrap();
    assert_eq!(trusted.mode(), Mode::AutoEdit);
    assert_eq!(trusted.always("replace", &json!({})), None, "nothing left to allow");
    let mut untrusted = Policy::new(PolicyOptions { trusted: false, ..PolicyOptions::default() }).unwrap();
    assert_eq!(untrusted.always("write_file", &json!({})), None);
    assert_eq!(untrusted.remember(&Always::AutoEdit), Err(ModeRefused::Untrusted));
    let options = PolicyOptions { always_allow_enabled: false, ..PolicyOptions::default() };
    assert_eq!(Policy::new(options).unwrap().always("web_fetch", &json!({})), None);
}

#[test]
fn privileged_modes_need_trust() {
    let untrusted = |mode| Policy::new(PolicyOptions { mode, trusted: false, ..PolicyOptions::default() }).err();
    assert_eq!(untrusted(Mode::Yolo), Some(ModeRefused::Untrusted));
    assert_eq!(untrusted(Mode::AutoEdit), Some(ModeRefused::Untrusted));
    assert_eq!(untrusted(Mode::Default), None);
    assert_eq!(untrusted(Mode::Plan), None);
    let no_yolo = PolicyOptions { mode: Mode::Yolo, yolo_enabled: false, ..PolicyOptions::default() };
    assert_eq!(Policy::new(no_yolo).err(), Some(ModeRefused::YoloDisabled));
}

#[test]
fn higher_priority_wins_and_equal_priority_is_strict() {
    let rule = |decision, tier, p| Rule::new(ToolPattern::parse("read_file"), decision, Priority::new(tier, p), "test");
    for (rules, expected) in [
        (vec![rule(Allow, Tier::User, 300), rule(Deny, Tier::User, 300), rule(Ask, Tier::User, 300)], Deny),
        (vec![rule(Allow, Tier::User, 300), rule(Ask, Tier::User, 300)], Ask),
        (vec![rule(Allow, Tier::Admin, 0), rule(Deny, Tier::User, 999)], Allow),
        (vec![rule(Deny, Tier::Workspace, 1)], Deny),
        (vec![rule(Deny, Tier::Default, 1)], Allow),
        (vec![rule(Deny, Tier::Default, 5000)], Deny),
    ] {
        for rules in [rules.clone(), rules.into_iter().rev().collect()] {
            let policy = Policy::new(PolicyOptions { rules, ..PolicyOptions::default() }).unwrap();
            assert_eq!(policy.judge("read_file", &json!({})).decision, expected);
        }
    }
}

#[test]
fn arguments_can_decide() {
    let rule = Rule {
        args: Some(ArgsPattern::Equals { name: "file_path".to_owned(), value: "a".to_owned() }),
        ..Rule::new(ToolPattern::Any, Deny, Priority::new(Tier::User, 0), "test")
    };
    let policy = Policy::new(PolicyOptions { rules: vec![rule], ..PolicyOptions::default() }).unwrap();
    assert_eq!(policy.judge("read_file", &json!({"file_path": "a"})).decision, Deny);
    assert_eq!(policy.judge("read_file", &json!({"file_path": "b"})).decision, Allow);
    assert_eq!(policy.judge("read_file", &Value::Null).decision, Allow);
}

proptest::proptest! {
    #[test]
    fn no_command_with_shell_syntax_is_simple(text in "[a-z ]{0,8}[;&|<>$`(){}\n\r#*?~!\\\\\\[][a-z ]{0,8}") {
        let is_complex = matches!(Command::parse(&text), Command::Complex { .. });
        let is_plain = text.trim().chars().all(|c| c.is_ascii_lowercase() || c == ' ');
        proptest::prop_assert!(is_complex || is_plain, "{}", text);
    }

    #[test]
    fn quoting_hides_syntax_but_not_the_words(word in "[a-z;&|<>(){}#*?~\\[]{1,12}") {
        let Command::Simple(simple) = Command::parse(&format!("echo '{word}' \"{word}\"")) else { panic!("{word}") };
        proptest::prop_assert_eq!(simple.words(), ["echo".to_owned(), word.clone(), word]);
    }
}
