//! Policy files by the real binary: where they are read from, what is told, what a run does by them.

use pretty_assertions::assert_eq;

use super::*;

const RULES: &str = "# no pushing\n[[rule]]\nname = \"no pushing\"\ntoolName = \"run_shell_command\"\ncommandPrefix = \"git push\"\n\
                     decision = \"deny\"\npriority = 100\ndenyMessage = \"Ask a person.\"\n\n[[rule]]\n\
                     toolName = \"run_shell_command\"\ncommandPrefix = [\"echo\", \"git\"]\ndecision = \"allow\"\npriority = 50\n";

fn policy(environment: &TestEnvironment, args: &[&str]) -> Ran {
    run(&mut convoke(environment, &[&["policy"], args].concat()), "")
}

#[test]
fn what_would_happen_is_told_with_the_rule() {
    let environment = TestEnvironment::new();
    environment.write("home/.gemini/policies/rules.toml", RULES);
    let told = policy(&environment, &["explain", "git push --force"]);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stdout.starts_with("in default mode: deny: "), "{}", told.stdout);
    assert!(told.stdout.contains(".gemini/policies/rules.toml:2 \"no pushing\" (user, 4.100)"), "{}", told.stdout);
    let told = policy(&environment, &["explain", "git status && sudo make"]);
    assert!(
        told.stdout.contains("  allow git status\n") && told.stdout.contains("  ask_user sudo make\n"),
        "{}",
        told.stdout
    );
    let args = r#"{"file_path": "a.rs"}"#;
    let told = policy(&environment, &["explain", "--mode", "plan", "--tool", "write_file", "--args", args]);
    assert!(told.stdout.starts_with("in plan mode: deny: built-in"), "{}", told.stdout);
    let list = policy(&environment, &["list"]);
    let first = list.stdout.lines().find(|line| line.starts_with("4.")).unwrap().to_owned();
    assert!(first.starts_with("4.100 deny     run_shell_command \"git push\"  ["), "{first}");
    // Rules about servers and subagents, and who else is asked.
    let more = "[[rule]]\nmcpName = \"my docs\"\ntoolName = \"find\"\ndecision = \"allow\"\npriority = 3\n\
                toolAnnotations = { readOnlyHint = true }\n[[rule]]\nsubagent = \"scout\"\ndecision = \"deny\"\npriority = 2\n\
                [[safety_checker]]\nmcpName = \"*\"\nchecker = { type = \"external\", name = \"scan\" }\n";
    let more = environment.write("more.toml", more).display().to_string();
    let call = ["explain", "--policy", &more, "--server", "my docs", "--tool", "find"];
    let told = policy(&environment, &call);
    assert!(told.stdout.starts_with("in default mode: ask_user: "), "{told:?}");
    assert!(told.stdout.contains("then the checker \"scan\" is asked"), "{told:?}");
    let read_only = [&call[..], &["--annotations", "{\"readOnlyHint\": true}"]].concat();
    assert!(policy(&environment, &read_only).stdout.starts_with("in default mode: allow: "));
    let by_scout = policy(&environment, &["explain", "--policy", &more, "--subagent", "scout", "ls"]);
    assert!(by_scout.stdout.contains("more.toml:7 (user, 4.002)"), "{by_scout:?}");
    let list = policy(&environment, &["list", "--policy", &more]);
    assert!(list.stdout.contains("mcp=my docs says={\"readOnlyHint\":true}"), "{list:?}");
    let cases = "[[case]]\ntool = \"find\"\nserver = \"my docs\"\nannotations = { readOnlyHint = true }\nexpect = \"allow\"\n\
                 [[case]]\ncommand = \"ls\"\nsubagent = \"scout\"\nexpect = \"deny\"\n";
    let cases = environment.write("cases.toml", cases).display().to_string();
    let told = policy(&environment, &["test", &cases, "--policy", &more]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), "2 of 2 cases are as expected\n"));
    // One of ours of the same name takes its place.
    environment.write("home/.convoke/policies/rules.toml", "");
    assert!(policy(&environment, &["explain", "git push"]).stdout.starts_with("in default mode: ask_user: "));
}

#[test]
fn a_run_plans_and_keeps_to_the_mode_that_it_had() {
    for (mode, written) in [("auto_edit", true), ("plan", false)] {
        let environment = TestEnvironment::new();
        environment
            .write("home/.convoke/settings.json", json!({"general": {"plan": {"directory": "plans"}}}).to_string());
        let write = |path: &str| call("write_file", json!({"file_path": path, "content": "1. Look.\n"}));
        let exit = call("exit_plan_mode", json!({"plan_filename": "a.md"}));
        let mut answers = vec![
            json!([write("a.txt"), write("plans/a.md"), exit]),
            json!([write("b.txt")]),
            json!([{"text": "Done."}]),
        ];
        if mode != "plan" {
            answers.insert(0, json!([call("enter_plan_mode", json!({}))]));
        }
        let file = script(&environment, &answers);
        let args = ["--fake-responses", &file, "--approval-mode", mode, "-o", "stream-json", "-p", "go"];
        let ran = run(&mut convoke(&environment, &args), "");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let there = |name: &str| environment.workspace().join(name).exists();
        assert_eq!((there("a.txt"), there("plans/a.md"), there("b.txt")), (false, true, written), "{}", ran.stdout);
    }
}

#[test]
fn cases_are_judged_and_told_apart() {
    let environment = TestEnvironment::new();
    let rules = environment.write("rules.toml", RULES).display().to_string();
    let good = "[[group]]\nallow = [\"git status\"]\ndeny = [\"git push\"]\n[[case]]\ntool = \"read_file\"\nexpect = \"allow\"\n";
    let good = environment.write("good.toml", good).display().to_string();
    let told = policy(&environment, &["test", &good, "--policy", &rules]);
    assert_eq!((told.code, told.stdout.as_str()), (Some(0), "3 of 3 cases are as expected\n"));
    let told = policy(&environment, &["test", &good]);
    assert_eq!(told.code, Some(1));
    assert!(told.stdout.contains("expected deny, is ask_user") && told.stdout.contains("2 of 3"), "{}", told.stdout);
}

#[test]
fn a_broken_policy_ends_the_start_with_its_place() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/policies/rules.toml", RULES.replace("denyMessage", "denyMesage"));
    let ran = run(&mut convoke(&environment, &["-p", "hi"]), "");
    assert_eq!(ran.code, Some(52));
    assert!(ran.stderr.contains("policies/rules.toml:8: rule 1: unknown field `denyMesage`"), "{}", ran.stderr);
    let ran = run(&mut convoke(&environment, &["-p", "hi", "--policy", "/nonexistent.toml"]), "");
    assert_eq!(ran.code, Some(52));
    assert!(ran.stderr.contains("read policy /nonexistent.toml"), "{}", ran.stderr);
}

#[test]
fn a_headless_run_does_what_its_policy_says() {
    let environment = TestEnvironment::new();
    let rules = environment.write("rules.toml", RULES).display().to_string();
    let shell = |text: &str| call("run_shell_command", json!({"command": text}));
    let answers =
        [json!([shell("echo made-it"), shell("echo a; git push"), shell("touch x")]), json!([{"text": "Done."}])];
    let file = script(&environment, &answers);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-o", "stream-json", "-p", "go"];
    let ran = run(convoke(&environment, &args).args(["--policy", &rules]), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let results: Vec<Value> = lines(&ran).into_iter().filter(|line| line["type"] == "tool_result").collect();
    assert_eq!(results[0]["status"], "success", "{results:?}");
    assert!(results[0].to_string().contains("made-it"), "{results:?}");
    assert!(results[1].to_string().contains("Tool execution denied by policy. Ask a person."), "{results:?}");
    assert!(results[2].to_string().contains("Tool execution denied by policy."), "{results:?}");
    // Without it the tool is not there.
    let ran = run(&mut convoke(&environment, &args), "");
    assert!(ran.stdout.contains("not found: policy: It requires user confirmation"), "{}", ran.stdout);
}

#[test]
fn policies_of_an_untrusted_workspace_are_ignored() {
    let environment = TestEnvironment::new();
    environment.write("workspace/.convoke/policies/rules.toml", RULES.replace("100", "1").replace("deny\"", "allow\""));
    let told = policy(&environment, &["explain", "git push"]);
    assert!(told.stdout.starts_with("in default mode: ask_user"), "{}", told.stdout);
    assert!(told.stderr.contains("not trusted"), "{}", told.stderr);
    let told = policy(&environment, &["--skip-trust", "explain", "git push"]);
    assert!(told.stdout.starts_with("in default mode: allow"), "{}", told.stdout);
    assert!(
        told.stdout.contains("(workspace, 3.050)") || told.stdout.contains("(workspace, 3.001)"),
        "{}",
        told.stdout
    );
}
