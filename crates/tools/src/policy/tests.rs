//! Tables: one line per promise.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use Decision::{Allow, Ask, Deny};

fn policy(mode: Mode, interactive: bool, allowed: &[&str]) -> Policy {
    let rules = allowed.iter().map(|text| parse_allowed_tool(text).unwrap()).collect();
    Policy::new(PolicyOptions { mode, interactive, rules, ..PolicyOptions::default() }).unwrap()
}

fn of_file(text: &str) -> PolicyFile {
    parse_policy(text, Path::new("/p/a.toml"), Tier::User).unwrap()
}

fn with_file(text: &str) -> Policy {
    Policy::new(PolicyOptions { rules: of_file(text).rules, ..PolicyOptions::default() }).unwrap()
}

fn command(text: &str) -> Value {
    json!({"command": text})
}

fn decide(policy: &Policy, tool: &str, args: &Value) -> Decision {
    policy.judge(&PolicyCall::new(tool, args)).decision
}

fn shell(policy: &Policy, text: &str) -> Decision {
    decide(policy, "run_shell_command", &command(text))
}

#[test]
fn built_in_rules() {
    use Mode::{AutoEdit, Default, Plan, Yolo};
    // Interactive, then not.
    for (tool, mode, with_user, without) in [
        ("read_file", Default, Allow, Allow),
        ("read_file", Plan, Allow, Allow),
        ("list_background_processes", Default, Allow, Allow),
        ("write_todos", Plan, Allow, Allow),
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
        ("invoke_agent", Default, Allow, Allow),
        ("invoke_agent", Plan, Deny, Deny),
        ("mcp_some_tool", Default, Ask, Deny),
        ("mcp_some_tool", Yolo, Allow, Allow),
        ("mcp_some_tool", Plan, Deny, Deny),
        ("discovered_tool_x", AutoEdit, Ask, Deny),
        ("enter_plan_mode", Default, Ask, Allow),
        ("enter_plan_mode", Plan, Deny, Deny),
        ("enter_plan_mode", Yolo, Deny, Allow),
        ("exit_plan_mode", Plan, Ask, Allow),
        ("exit_plan_mode", Default, Deny, Deny),
        ("exit_plan_mode", Yolo, Deny, Deny),
    ] {
        for (interactive, expected) in [(true, with_user), (false, without)] {
            let judged = decide(&policy(mode, interactive, &[]), tool, &command("./x"));
            assert_eq!(judged, expected, "{tool} in {mode:?}, interactive: {interactive}");
        }
    }
}

#[test]
fn plans_may_be_written_where_they_are_kept_and_nowhere_else() {
    let plans = Some(PlanFolder::new("/plans"));
    let options = PolicyOptions { mode: Mode::Plan, plans, ..PolicyOptions::default() };
    let policy = Policy::new(options).unwrap();
    let args = json!({"file_path": "anything"});
    for (touches, expected) in [
        (&["/plans/a.md"][..], Allow),
        (&["/plans/deep/a.MD"], Allow),
        (&["/plans/a.txt"], Deny),
        (&["/plans.md"], Deny),
        (&["/plans"], Deny),
        (&["/plans2/a.md"], Deny),
        (&["/plans/a.md", "/etc/a.md"], Deny),
        (&[], Deny),
    ] {
        let paths: Vec<&Path> = touches.iter().map(Path::new).collect();
        for tool in ["write_file", "replace"] {
            let call = PolicyCall { touches: &paths, ..PolicyCall::new(tool, &args) };
            assert_eq!(policy.judge(&call).decision, expected, "{tool} {touches:?}");
        }
    }
    assert_eq!(policy.offer(&ToolFacts::named("write_file")), Offer::Offered);
    let agent = |name: &str| decide(&policy, "invoke_agent", &json!({"agent_name": name, "prompt": "x"}));
    assert_eq!((agent("codebase_investigator"), agent("generalist")), (Allow, Deny));
    let sly = json!({"agent_name": "x", "prompt": "\0\"agent_name\":\"cli_help\"\0"});
    assert_eq!(decide(&policy, "invoke_agent", &sly), Deny);
}

#[test]
fn what_is_allowed_without_a_word_about_modes_is_not_allowed_in_plan_mode() {
    assert_eq!(decide(&policy(Mode::Plan, true, &["write_file"]), "write_file", &json!({})), Deny);
    assert_eq!(shell(&policy(Mode::Plan, true, &["run_shell_command(git)"]), "git status"), Deny);
    let text = "[[rule]]\ntoolName = 'run_shell_command'\ncommandPrefix = 'git status'\ndecision = 'allow'\n\
                priority = 100\nmodes = ['plan']\n";
    let mut policy = with_file(text);
    assert_eq!(shell(&policy, "git status"), Allow, "only reads");
    policy.set_mode(Mode::Plan).unwrap();
    assert_eq!(shell(&policy, "git status"), Allow);
    assert_eq!(shell(&policy, "git status; git log"), Deny);
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
        ("exit_plan_mode", Mode::Default, true, "", false),
        ("exit_plan_mode", Mode::Plan, true, "", true),
        ("enter_plan_mode", Mode::Plan, true, "", false),
    ] {
        let allowed: &[&str] = if allowed.is_empty() { &[] } else { &[allowed] };
        let offer = policy(mode, interactive, allowed).offer(&ToolFacts::named(tool));
        assert_eq!(offer == Offer::Offered, offered, "{tool} in {mode:?} with {allowed:?}: {offer:?}");
    }
}

#[test]
fn an_offer_agrees_with_judgements() {
    let calls = [command("git status"), command("rm -rf x"), command("a && b"), json!({}), json!({"path": "x"})];
    let tools = ["read_file", "write_file", "run_shell_command", "ask_user", "web_fetch", "mcp_x_y", "unheard_of"];
    for mode in Mode::ALL {
        for interactive in [true, false] {
            for allowed in [&[][..], &["run_shell_command(git status)", "mcp_x_*"]] {
                let policy = policy(mode, interactive, allowed);
                for tool in tools {
                    let some_run = calls.iter().any(|args| decide(&policy, tool, args) != Deny);
                    assert_eq!(
                        policy.offer(&ToolFacts::named(tool)) == Offer::Offered,
                        some_run,
                        "{tool} {mode:?} {interactive} {allowed:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_refusal_says_why_and_by_which_rule() {
    let policy = with_file(
        "\n[[rule]]\nname = 'no deleting'\ntoolName = 'run_shell_command'\ncommandPrefix = 'rm'\ndecision = 'deny'\n\
         priority = 100\ndenyMessage = 'No deleting.'\n",
    );
    let judged = policy.judge(&PolicyCall::new("run_shell_command", &command("ls && sudo rm x")));
    assert_eq!((judged.decision, judged.message.as_deref()), (Deny, Some("No deleting.")));
    assert_eq!(judged.source, "/p/a.toml:2");
    let told = judged.explain();
    assert!(told.contains("/p/a.toml:2 \"no deleting\" (user, 4.100)"), "{told}");
    assert!(
        told.contains("allow ls\n") && told.contains("ask_user sudo rm x\n") && told.contains("deny rm x\n"),
        "{told}"
    );
    assert_eq!(policy.offer(&ToolFacts::named("run_shell_command")), Offer::Offered);
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
        assert_eq!(rule.scope.tool, ToolPattern::Exact(tool.to_owned()), "{text}");
        let expected = words.map(|words| ArgsPattern::CommandPrefix(words.into_iter().map(str::to_owned).collect()));
        assert_eq!((rule.scope.args, rule.decision), (expected, Allow), "{text}");
    }
    assert_eq!(parse_allowed_tool("mcp_x_*").unwrap().scope.tool, ToolPattern::Prefix("mcp_x_".to_owned()));
    for text in
        ["", "a b", "run_shell_command(git", "read_file(x)", "run_shell_command()", "run_shell_command(a | b)", ")("]
    {
        assert!(parse_allowed_tool(text).is_err(), "{text:?}");
    }
}

#[test]
fn settings_stand_for_rules_in_their_order() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let settings = PolicySettings {
        core: Some(texts(&["read_file", "run_shell_command(git)", "write_file"])),
        allowed: texts(&["write_file", "web_fetch", "glob"]),
        exclude: texts(&["glob", "run_shell_command(git push)"]),
        confirmation_required: texts(&["web_fetch"]),
        mcp_allowed: texts(&["good"]),
        mcp_excluded: texts(&["bad"]),
        mcp_trusted: texts(&["bad", "mine"]),
    };
    let rules = settings.rules().unwrap();
    let policy = Policy::new(PolicyOptions { rules, ..PolicyOptions::default() }).unwrap();
    for (tool, args, expected) in [
        ("read_file", json!({}), Allow),
        ("write_file", json!({}), Allow),
        ("glob", json!({}), Deny),
        ("web_fetch", json!({}), Ask),
        ("list_directory", json!({}), Deny),
        ("run_shell_command", command("git fetch"), Allow),
        ("run_shell_command", command("git push"), Deny),
        ("run_shell_command", command("make"), Deny),
    ] {
        assert_eq!(decide(&policy, tool, &args), expected, "{tool} {args}");
    }
    let settings = PolicySettings { core: None, ..settings };
    let policy = Policy::new(PolicyOptions { rules: settings.rules().unwrap(), ..PolicyOptions::default() }).unwrap();
    for (server, expected) in [("good", Allow), ("bad", Deny), ("mine", Allow), ("other", Ask)] {
        let name = format!("mcp_{server}_x");
        let tool = ToolFacts { mcp_server: Some(server), ..ToolFacts::named(&name) };
        let judged = policy.judge(&PolicyCall { tool, args: &json!({}), touches: &[] });
        assert_eq!(judged.decision, expected, "{server}");
    }
}

#[test]
fn a_list_of_core_tools_leaves_plan_mode_its_own_rules() {
    let core = ["read_file", "write_file", "run_shell_command"].map(str::to_owned).to_vec();
    let rules = PolicySettings { core: Some(core), ..PolicySettings::default() }.rules().unwrap();
    let plans = Some(PlanFolder::new("/plans"));
    let planning = PolicyOptions { mode: Mode::Plan, plans, rules, ..PolicyOptions::default() };
    let mut policy = Policy::new(planning).unwrap();
    let args = json!({});
    let writes = |policy: &Policy, path: &str| {
        policy.judge(&PolicyCall { touches: &[Path::new(path)], ..PolicyCall::new("write_file", &args) }).decision
    };
    assert_eq!((writes(&policy, "/plans/a.md"), writes(&policy, "/a.md")), (Allow, Deny));
    let judged = ["read_file", "list_directory", "mcp_a_b"].map(|tool| decide(&policy, tool, &args));
    assert_eq!((judged, shell(&policy, "make")), ([Allow, Deny, Deny], Deny));
    policy.set_mode(Mode::Default).unwrap();
    assert_eq!((writes(&policy, "/a.md"), shell(&policy, "make")), (Allow, Allow));
    assert_eq!(decide(&policy, "list_directory", &args), Deny);
}

#[test]
fn a_command_that_is_allowed_by_name_is_not_widened_by_a_list_of_core_tools() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let decided = |allowed: &[&str], mode| {
        let core = Some(texts(&["run_shell_command"]));
        let rules = PolicySettings { core, allowed: texts(allowed), ..PolicySettings::default() }.rules().unwrap();
        let policy = Policy::new(PolicyOptions { rules, mode, ..PolicyOptions::default() }).unwrap();
        ["ls", "node -e 1"].map(|text| shell(&policy, text))
    };
    assert_eq!(decided(&["run_shell_command(ls)"], Mode::Default), [Allow, Ask]);
    assert_eq!(decided(&["run_shell_command(ls)"], Mode::Yolo), [Allow, Allow]);
    assert_eq!(decided(&["ShellTool(ls)", "ShellTool"], Mode::Default), [Allow, Allow]);
    assert_eq!(decided(&["read_file"], Mode::Default), [Allow, Allow]);
}

#[test]
fn rules_see_servers_annotations_and_subagents() {
    let policy = with_file(
        "[[rule]]\nmcpName = 'my_server'\ntoolName = 'find_*'\ndecision = 'allow'\npriority = 10\n\
         [[rule]]\nmcpName = '*'\ntoolAnnotations = { readOnlyHint = true }\ndecision = 'allow'\npriority = 5\n\
         [[rule]]\nsubagent = 'reviewer'\ntoolName = 'write_file'\ndecision = 'deny'\npriority = 500\n\
         [[rule]]\ntoolName = 'mcp_*_drop'\ndecision = 'deny'\npriority = 900\n",
    );
    let hints = json!({"readOnlyHint": true, "title": "x"}).as_object().cloned().unwrap();
    let args = json!({});
    let judge = |tool: ToolFacts<'_>| policy.judge(&PolicyCall { tool, args: &args, touches: &[] }).decision;
    let of = |name| ToolFacts::named(name);
    for (tool, expected) in [
        (ToolFacts { mcp_server: Some("my_server"), mcp_tool: Some("find_x"), ..of("mcp_my_server_find_x") }, Allow),
        (ToolFacts { mcp_server: Some("my_server"), ..of("mcp_my_server_write") }, Ask),
        // The server is what the tool says, not what its name looks like.
        (of("mcp_my_server_find_x"), Ask),
        (ToolFacts { mcp_server: Some("my"), ..of("mcp_my_server_find_x") }, Ask),
        (ToolFacts { mcp_server: Some("a"), annotations: Some(&hints), ..of("mcp_a_b") }, Allow),
        (ToolFacts { annotations: Some(&hints), ..of("other") }, Ask),
        (ToolFacts { mcp_server: Some("a"), annotations: Some(&hints), ..of("mcp_a_drop") }, Deny),
        // What it is called here was shortened, or is another one's name.
        (ToolFacts { mcp_server: Some("my_server"), mcp_tool: Some("find_y"), ..of("mcp_my_s...ind_y") }, Allow),
        (ToolFacts { mcp_server: Some("a"), mcp_tool: Some("drop"), ..of("mcp_a_drop_2") }, Deny),
        (ToolFacts { subagent: Some("reviewer"), ..of("write_file") }, Deny),
        (ToolFacts { subagent: Some("writer"), ..of("write_file") }, Ask),
    ] {
        assert_eq!(judge(tool), expected, "{tool:?}");
    }
    let mut planning = policy.clone();
    planning.set_mode(Mode::Plan).unwrap();
    let tool = ToolFacts { mcp_server: Some("a"), annotations: Some(&hints), ..of("mcp_a_b") };
    assert_eq!(planning.judge(&PolicyCall { tool, args: &args, touches: &[] }).decision, Ask);
}

#[test]
fn what_is_allowed_of_one_server_is_not_allowed_of_one_whose_name_goes_on() {
    let policy = with_file(
        "[[rule]]\ntoolName = ['mcp_a_*', 'mcp_s-1_find*', 'mcp_w *']\ndecision = 'allow'\npriority = 10\n\
         [[rule]]\ntoolName = 'mcp_b_*'\ndecision = 'deny'\npriority = 20\n\
         [[rule]]\nmcpName = 'c'\ntoolName = 'search_file_content'\ndecision = 'deny'\npriority = 30\n",
    );
    for (server, own, name, expected) in [
        ("a", "x", "mcp_a_x", Allow),
        ("a", "b_x", "mcp_a_b_x", Allow),
        ("a_b", "x", "mcp_a_b_x_2", Ask),
        ("a b", "x", "mcp_a_b_x_3", Ask),
        ("s-1", "find_it", "mcp_s-1_find_it", Allow),
        ("w ide", "x", "mcp_w_ide_x", Allow),
        // A refusal rather goes too far.
        ("b_c", "x", "mcp_b_c_x", Deny),
        ("c", "search_file_content", "mcp_c_search_file_content", Deny),
    ] {
        let tool = ToolFacts { mcp_server: Some(server), mcp_tool: Some(own), ..ToolFacts::named(name) };
        let judged = policy.judge(&PolicyCall { tool, args: &json!({}), touches: &[] });
        assert_eq!(judged.decision, expected, "{server} {own}");
    }
}

#[test]
fn lasting_answers_about_commands() {
    let mut policy = policy(Mode::Default, true, &[]);
    let args = command("git commit -m x");
    let offers = policy.lasting(&PolicyCall::new("run_shell_command", &args));
    assert_eq!(offers.len(), 1, "nowhere to save one");
    assert_eq!(
        (offers[0].id, offers[0].label.as_str()),
        ("proceed_always", "Always allow \"git\" commands in this session")
    );
    policy.remember(&offers[0].always).unwrap();
    policy.remember(&offers[0].always).unwrap();
    for (text, expected) in [
        ("git fetch", Allow),
        ("git fetch; ./x", Ask),
        ("./x", Ask),
        ("gitk", Ask),
        ("git log > x", Ask),
        ("git push --force", Ask),
        ("X=1 git fetch", Ask),
    ] {
        assert_eq!(shell(&policy, text), expected, "{text}");
    }
    for text in ["sudo ls", "a > b", "", "a $(", "X=1 make", "rm -rf x", "$X"] {
        assert!(policy.lasting(&PolicyCall::new("run_shell_command", &command(text))).is_empty(), "{text}");
    }
    let args = command("make && git fetch && ls | ./y a && make b");
    let several = policy.lasting(&PolicyCall::new("run_shell_command", &args));
    assert_eq!(several[0].always, Always::Commands(vec![vec!["make".to_owned()], vec!["./y".to_owned()]]));
    policy.set_mode(Mode::Plan).unwrap();
    assert_eq!(shell(&policy, "git fetch"), Deny, "a stricter mode");
    policy.set_mode(Mode::AutoEdit).unwrap();
    assert_eq!(shell(&policy, "git fetch"), Allow, "a more permissive mode");
}

#[test]
fn a_lasting_answer_says_what_is_written_and_where_and_is_in_force_when_it_was_saved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policies").join(SAVED_FILE);
    let place = SavePlace { path: path.clone(), tier: Tier::User };
    let options = PolicyOptions { save: Some(place), ..PolicyOptions::default() };
    let session = SessionPolicy::new(options.clone()).unwrap();
    let calls = [
        ("run_shell_command", command("git fetch && make")),
        ("write_file", json!({"file_path": "a\"b.rs", "content": "x"})),
        ("web_fetch", json!({"prompt": "x"})),
    ];
    for (tool, args) in &calls {
        let call = PolicyCall::new(tool, args);
        assert_eq!(session.judge(&call).decision, Ask, "{tool}");
        let offers = session.lasting(&call);
        let offer = offers.iter().find(|offer| offer.save).unwrap();
        let label = format!("in default, autoEdit and yolo mode, until the rule is removed from {}", path.display());
        assert!(offer.label.ends_with(&label), "{}", offer.label);
        session.save(&offer.always).unwrap();
        session.save(&offer.always).unwrap();
        assert_eq!(session.judge(&call).decision, Allow, "{tool}");
    }
    // Another session reads them, as any other file of rules.
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("[[rule]]").count(), 4, "{text}");
    let mut rules = parse_policy(&text, &path, Tier::User).unwrap().rules;
    let deny =
        "[[rule]]\ntoolName = 'run_shell_command'\ncommandPrefix = 'git push'\ndecision = 'deny'\npriority = 1\n";
    rules.extend(of_file(deny).rules);
    let next = Policy::new(PolicyOptions { rules, ..options }).unwrap();
    for (tool, args) in &calls {
        assert_eq!(decide(&next, tool, args), Allow, "{tool}: {text}");
    }
    assert_eq!(shell(&next, "git push"), Deny, "what was saved lifts no refusal, whatever the priorities");
    assert_eq!(decide(&next, "write_file", &json!({"file_path": "other"})), Ask);
    assert_eq!(
        decide(&next, "write_file", &json!({"file_path": "x", "content": "\0\"file_path\":\"a\\\"b.rs\"\0"})),
        Ask
    );
}

#[test]
fn a_file_that_is_no_policy_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(SAVED_FILE);
    std::fs::write(&path, "[[rule]\n").unwrap();
    let save = Some(SavePlace { path: path.clone(), tier: Tier::User });
    let session = SessionPolicy::new(PolicyOptions { save, ..PolicyOptions::default() }).unwrap();
    let error = session.save(&Always::Tool("web_fetch".to_owned())).unwrap_err().to_string();
    assert!(error.contains("auto-saved.toml:1"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[[rule]\n");
}

#[test]
fn lasting_answers_never_lift_a_refusal_or_outrank_a_stronger_question() {
    let prefix = |words: &str, decision, tier| {
        let words = words.split(' ').map(str::to_owned).collect();
        let source = Source::Named("test");
        let mut rule = Rule::new(ToolPattern::parse("run_shell_command"), decision, Priority::new(tier, 11), source);
        rule.scope.args = Some(ArgsPattern::CommandPrefix(words));
        rule
    };
    let rules = vec![
        prefix("git push", Deny, Tier::Default),
        prefix("git tag", Ask, Tier::Admin),
        prefix("git pull", Ask, Tier::User),
    ];
    let mut policy = Policy::new(PolicyOptions { rules, ..PolicyOptions::default() }).unwrap();
    policy.remember(&Always::Commands(vec![vec!["git".to_owned()]])).unwrap();
    for (text, expected) in [("git push", Deny), ("git tag x", Ask), ("git pull", Allow), ("git fetch", Allow)] {
        assert_eq!(shell(&policy, text), expected, "{text}");
    }
}

#[test]
fn lasting_answers_about_edits_switch_the_mode() {
    let offered = |policy: &Policy, tool: &str| -> Vec<Always> {
        policy.lasting(&PolicyCall::new(tool, &json!({}))).into_iter().map(|offer| offer.always).collect()
    };
    let mut trusted = policy(Mode::Default, true, &[]);
    assert_eq!(offered(&trusted, "write_file"), [Always::AutoEdit]);
    trusted.remember(&Always::AutoEdit).unwrap();
    assert_eq!(trusted.mode(), Mode::AutoEdit);
    assert!(offered(&trusted, "replace").is_empty(), "nothing left to allow");
    let mut untrusted = Policy::new(PolicyOptions { trusted: false, ..PolicyOptions::default() }).unwrap();
    assert!(offered(&untrusted, "write_file").is_empty());
    assert_eq!(untrusted.remember(&Always::AutoEdit), Err(ModeRefused::Untrusted));
    let options = PolicyOptions { always_allow_enabled: false, ..PolicyOptions::default() };
    assert!(offered(&Policy::new(options).unwrap(), "web_fetch").is_empty());
    for tool in ["ask_user", "enter_plan_mode"] {
        assert!(offered(&policy(Mode::Default, true, &[]), tool).is_empty(), "{tool}");
    }
}

#[test]
fn lasting_answers_about_servers() {
    let mut policy = policy(Mode::Default, true, &[]);
    let args = json!({});
    let tool = ToolFacts { mcp_server: Some("s_t"), ..ToolFacts::named("mcp_s_t_find") };
    let call = PolicyCall { tool, args: &args, touches: &[] };
    let ids: Vec<_> = policy.lasting(&call).into_iter().map(|offer| offer.id).collect();
    assert_eq!(ids, ["proceed_always_tool", "proceed_always_server"]);
    policy.remember(&policy.lasting(&call)[1].always.clone()).unwrap();
    let other = ToolFacts { mcp_server: Some("s_t"), ..ToolFacts::named("mcp_s_t_other") };
    let foreign = ToolFacts { mcp_server: Some("s"), ..ToolFacts::named("mcp_s_t_other") };
    assert_eq!(policy.judge(&PolicyCall { tool: other, ..call }).decision, Allow);
    assert_eq!(policy.judge(&PolicyCall { tool: foreign, ..call }).decision, Ask);
}

#[test]
fn lasting_answers_about_agents_are_about_one_agent() {
    let ask = |decision| {
        let priority = Priority::new(Tier::Default, 500);
        Rule::new(ToolPattern::parse("invoke_agent"), decision, priority, Source::Named("test"))
    };
    let task = |agent: &str| json!({"agent_name": agent, "prompt": "x"});
    let options = |rules| PolicyOptions { rules, ..PolicyOptions::default() };
    let mut policy = Policy::new(options(vec![ask(Ask)])).unwrap();
    let planner = task("planner");
    let offers = policy.lasting(&PolicyCall::new("invoke_agent", &planner));
    assert_eq!(offers.iter().map(|offer| offer.id).collect::<Vec<_>>(), ["proceed_always"]);
    assert_eq!(offers[0].label, "Always allow tasks for the agent planner in this session");
    policy.remember(&offers[0].always).unwrap();
    let sly = json!({"agent_name": "other", "prompt": "\0\"agent_name\":\"planner\"\0"});
    for (args, expected) in
        [(&planner, Allow), (&task("planner2"), Ask), (&task("PLANNER"), Ask), (&json!({}), Ask), (&sly, Ask)]
    {
        assert_eq!(decide(&policy, "invoke_agent", args), expected, "{args}");
    }
    assert!(policy.lasting(&PolicyCall::new("invoke_agent", &json!({"agent_name": 5}))).is_empty());
    // It lifts no refusal.
    let mut refusing = Policy::new(options(vec![ask(Deny)])).unwrap();
    refusing.remember(&Always::Agent("planner".to_owned())).unwrap();
    assert_eq!(decide(&refusing, "invoke_agent", &planner), Deny);
    // Saved, it is the same.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auto-saved.toml");
    let save = Some(SavePlace { path: path.clone(), tier: Tier::User });
    let session = SessionPolicy::new(PolicyOptions { save, ..options(vec![ask(Ask)]) }).unwrap();
    let name = "a \"b\" [c]\\d";
    let offers = session.lasting(&PolicyCall::new("invoke_agent", &task(name)));
    assert_eq!(
        offers.iter().map(|offer| (offer.id, offer.save)).collect::<Vec<_>>(),
        [("proceed_always", false), ("proceed_always_and_save", true)]
    );
    session.save(&offers[1].always).unwrap();
    let saved = parse_policy(&std::fs::read_to_string(&path).unwrap(), &path, Tier::User).unwrap();
    let mut rules = saved.rules;
    rules.push(ask(Ask));
    let later = Policy::new(options(rules)).unwrap();
    assert_eq!(decide(&later, "invoke_agent", &task(name)), Allow);
    assert_eq!(decide(&later, "invoke_agent", &planner), Ask);
}

#[test]
fn modes_need_trust_and_can_be_switched_off() {
    let untrusted = |mode| Policy::new(PolicyOptions { mode, trusted: false, ..PolicyOptions::default() }).err();
    assert_eq!(untrusted(Mode::Yolo), Some(ModeRefused::Untrusted));
    assert_eq!(untrusted(Mode::AutoEdit), Some(ModeRefused::Untrusted));
    assert_eq!(untrusted(Mode::Default), None);
    assert_eq!(untrusted(Mode::Plan), None);
    let no_yolo = PolicyOptions { mode: Mode::Yolo, yolo_enabled: false, ..PolicyOptions::default() };
    assert_eq!(Policy::new(no_yolo).err(), Some(ModeRefused::YoloDisabled));
    let no_plan = PolicyOptions { mode: Mode::Plan, plan_enabled: false, ..PolicyOptions::default() };
    assert_eq!(Policy::new(no_plan).err(), Some(ModeRefused::PlanDisabled));
}

#[test]
fn higher_priority_wins_and_equal_priority_is_strict() {
    let rule = |decision, tier, p| {
        Rule::new(ToolPattern::parse("read_file"), decision, Priority::new(tier, p), Source::Named("test"))
    };
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
            assert_eq!(decide(&policy, "read_file", &json!({})), expected);
        }
    }
}
