//! Hooks of the real binary: existing configurations, whose commands run, and what is left of a hook that hangs.

use convoke_testkit::{TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, lines, script};

/// A hook of each event that notes the event's name; and the file that a rig of others writes to both places.
fn every_event() -> Value {
    let note = "cat > /dev/null; printf '%s\\n' \"$HOOK\" >> noted";
    let entry = |event: &str| json!([{"hooks": [{"type": "command", "command": note, "env": {"HOOK": event}}]}]);
    let events = [
        "BeforeTool",
        "AfterTool",
        "BeforeAgent",
        "AfterAgent",
        "SessionStart",
        "SessionEnd",
        "BeforeModel",
        "AfterModel",
        "BeforeToolSelection",
    ];
    Value::Object(events.into_iter().map(|event| (event.to_owned(), entry(event))).collect())
}

fn settings(hooks: &Value) -> String {
    json!({"security": {"folderTrust": {"enabled": false}}, "hooks": hooks, "hooksConfig": {"disabled": ["off"]}})
        .to_string()
}

fn reads(environment: &TestEnvironment) -> Vec<String> {
    environment.write("workspace/a.txt", "one\n");
    let read = call("read_file", json!({"file_path": "a.txt"}));
    let file = script(environment, &[json!([read]), json!([{"text": "Done."}])]);
    ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-p", "go"].map(ToOwned::to_owned).to_vec()
}

#[test]
fn the_same_hooks_in_both_places_run_once_and_in_order() {
    let environment = TestEnvironment::new();
    let settings = settings(&every_event());
    environment.write("home/.gemini/settings.json", &settings);
    environment.write("workspace/.gemini/settings.json", &settings);
    let args = reads(&environment);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "Done.\n", ""));
    let noted = environment.read("workspace/noted").unwrap();
    let mut order: Vec<&str> = noted.lines().collect();
    order.dedup();
    assert_eq!(
        order,
        [
            "SessionStart",
            "BeforeAgent",
            "BeforeToolSelection",
            "BeforeModel",
            "AfterModel",
            "BeforeTool",
            "AfterTool",
            "BeforeToolSelection",
            "BeforeModel",
            "AfterModel",
            "AfterAgent",
            "SessionEnd"
        ]
    );
    assert_eq!(noted.matches("BeforeModel").count(), 2);
}

#[test]
fn a_project_s_own_command_runs_once_it_was_agreed_to_and_not_when_it_changed() {
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", settings(&json!({})));
    let hooks =
        |command: &str| settings(&json!({"BeforeAgent": [{"hooks": [{"type": "command", "command": command}]}]}));
    environment.write("workspace/.convoke/settings.json", hooks("echo > ran; echo hello from a hook"));
    let args = reads(&environment);
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ran = run(&mut convoke(&environment, &args), "");
    assert!(ran.stderr.contains("convoke hooks trust") && ran.code == Some(0), "{ran:?}");
    assert_eq!(environment.read("workspace/ran"), None);

    let refused = run(&mut convoke(&environment, &["hooks", "trust"]), "n\n");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let agreed = run(&mut convoke(&environment, &["hooks", "trust"]), "y\n");
    assert!(agreed.code == Some(0) && agreed.stdout.contains("echo > ran"), "{agreed:?}");
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "convoke: hello from a hook\n"));
    assert!(environment.read("workspace/ran").is_some());
    args.extend(["-o", "stream-json"]);
    let told = lines(&run(&mut convoke(&environment, &args), ""));
    assert!(told.iter().any(|line| line["message"] == "hello from a hook"), "{told:?}");

    environment.write("workspace/.convoke/settings.json", hooks("echo > changed"));
    let listed = run(&mut convoke(&environment, &["hooks", "list", "--json"]), "");
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["hooks"][0]["state"], "not agreed to");
    assert!(run(&mut convoke(&environment, &args), "").stdout.contains("convoke hooks trust"));
    assert_eq!(environment.read("workspace/changed"), None);
}

#[test]
fn a_daemon_of_a_hook_that_hangs_is_gone_with_it() {
    let environment = TestEnvironment::new();
    // It leaves its group and its session, ignores TERM, and keeps the pipes.
    let hang = "setsid bash -c 'trap \"\" TERM; echo $$ > left; while :; do sleep 1000; done' & sleep 1000";
    let secret = "printf '%s' \"${GEMINI_API_KEY-none}\" > key";
    let hooks = json!({"BeforeAgent": [{"hooks": [
        {"type": "command", "command": hang, "timeout": 2000, "name": "hangs"},
        {"type": "command", "command": secret}, {"type": "command", "command": "echo > off", "name": "off"}]}]});
    environment.write("home/.convoke/settings.json", settings(&hooks));
    let args = reads(&environment);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ran = run(&mut convoke(&environment, &args), "");
    assert!(ran.code == Some(0) && ran.stderr.contains("hangs") && ran.stderr.contains("2000 ms"), "{ran:?}");
    let left = environment.read("workspace/left").unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    assert_eq!(environment.read("workspace/key").as_deref(), Some("none"), "no secret");
    assert_eq!(environment.read("workspace/off"), None, "switched off");
}

#[test]
fn telemetry_has_one_record_for_each_hook_that_ran() {
    let environment = TestEnvironment::new();
    let hooks = json!({"BeforeTool": [{"matcher": "read_file", "hooks": [
        {"type": "command", "name": "check", "command": "echo why >&2; exit 2"},
        {"type": "command", "name": "off", "command": "exit 0"}]}]});
    let outfile = environment.home().join("telemetry.log");
    let text = json!({
        "telemetry": {"enabled": true, "target": "local", "otlpEndpoint": "", "outfile": outfile},
        "hooks": hooks, "hooksConfig": {"disabled": ["off"]},
    });
    environment.write("home/.gemini/settings.json", text.to_string());
    let args = reads(&environment);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ran = run(&mut convoke(&environment, &args), "");
    assert!(ran.stderr.contains("Tool execution blocked: why"), "{ran:?}");
    let text = environment.read("home/telemetry.log").unwrap();
    let records: Vec<Value> = text
        .split("}\n{")
        .filter_map(|piece| {
            let piece = piece.trim().trim_start_matches('{');
            serde_json::from_str(&format!("{{{piece}}}")).or_else(|_| serde_json::from_str(&format!("{{{piece}"))).ok()
        })
        .collect();
    let told: Vec<&Value> = records
        .iter()
        .map(|record| &record["attributes"])
        .filter(|attributes| attributes["event.name"] == "gemini_cli.hook_call")
        .collect();
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["hook_name"], &told[0]["hook_event_name"]), (&json!("check"), &json!("BeforeTool")));
    assert_eq!((&told[0]["exit_code"], &told[0]["success"]), (&json!(2), &json!(false)));
    assert_eq!(told[0]["stderr"], "why\n");
    assert!(told[0]["hook_input"].as_str().unwrap().contains("\"tool_name\":\"read_file\""));
    assert!(told[0]["hook_output"].as_str().unwrap().contains("deny"));
}

/// What a hook makes of its end, in two languages: shell and Python.
#[test]
fn every_ending_of_a_hook_means_the_same_in_shell_and_python() {
    let python = |program: &str| format!("python3 -c '{program}'");
    let blocked = |why: &str| format!("Tool execution blocked: {why}");
    let half = r#"{"decision": "den"#;
    let table: Vec<(Vec<String>, String, Option<&str>)> = vec![
        (vec!["exit 0".into(), python("pass")], "one".into(), None),
        (vec!["exit 1".into(), python("raise SystemExit(1)")], "one".into(), Some("it exited with code 1")),
        (
            vec!["echo why >&2; exit 2".into(), python("import sys; sys.exit((sys.stderr.write(\"why\"), 2)[1])")],
            blocked("why"),
            None,
        ),
        (vec!["echo why; exit 3".into(), python("print(\"why\"); raise SystemExit(3)")], blocked("why"), None),
        (vec!["echo why; exit 255".into(), python("print(\"why\"); raise SystemExit(255)")], blocked("why"), None),
        // Half an object is a text, and a text decides by the exit code.
        (vec![format!("printf '{half}'"), python(&format!("print({half:?})"))], "one".into(), Some(half)),
        (
            vec![format!("printf '{half}'; exit 2"), python(&format!("print({half:?}); raise SystemExit(2)"))],
            blocked(half),
            None,
        ),
        (vec!["sleep 1000".into(), python("import time; time.sleep(1000)")], "one".into(), Some("longer than 1500 ms")),
        (vec!["yes".into(), python("while True: print(\"y\" * 1000)")], "one".into(), Some("printed more than")),
        (
            vec!["kill -9 $$".into(), python("import os; os.kill(os.getpid(), 9)")],
            "one".into(),
            Some("ended by signal 9"),
        ),
    ];
    for (commands, told, warning) in table {
        for command in commands {
            let environment = TestEnvironment::new();
            // A hook that ends by itself has all the time of a loaded machine.
            let timeout = if warning.is_some_and(|warning| warning.starts_with("longer")) { 1_500 } else { 60_000 };
            let hooks = json!({"BeforeTool": [{"matcher": "read_file",
                "hooks": [{"type": "command", "command": command, "timeout": timeout}]}]});
            environment.write("home/.gemini/settings.json", settings(&hooks));
            let args = reads(&environment);
            let args: Vec<&str> = args.iter().map(String::as_str).chain(["-o", "stream-json"]).collect();
            let ran = run(&mut convoke(&environment, &args), "");
            assert_eq!(ran.code, Some(0), "{command}: {}", ran.stderr);
            let lines = lines(&ran);
            let result = lines.iter().find(|line| line["type"] == "tool_result").unwrap();
            if told == "one" {
                assert_eq!(result["status"], "success", "{command}: {result}");
            } else {
                assert!(result["output"].as_str().unwrap().contains(&told), "{command}: {result}");
            }
            let said: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
            assert!(
                warning.is_none_or(|warning| said.iter().any(|said| said.contains(warning))),
                "{command}: {said:?}"
            );
        }
    }
}
