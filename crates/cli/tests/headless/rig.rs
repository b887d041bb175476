//! What rigs of others rely on: exit codes, quirks of scripts, and shapes of output. Source: the contract of fake responses.

use std::process::Stdio;

use convoke_testkit::{TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, lines, script};

/// One line of a script for each answer of a model, as it stands.
fn raw(environment: &TestEnvironment, lines: &[Value]) -> String {
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    environment.write("raw.jsonl", text.join("\n")).display().to_string()
}

fn stream(chunks: Value) -> Value {
    json!({"method": "generateContentStream", "response": chunks})
}

fn says(text: &str) -> Value {
    let content = json!({"role": "model", "parts": [{"text": text}]});
    stream(json!([{"candidates": [{"content": content, "finishReason": "STOP"}]}]))
}

#[test]
fn every_class_of_failure_has_its_code() {
    let refused = |status: u16| json!({"method": "generateContentStream", "status": status, "error": "no"});
    let read = json!({"functionCall": {"name": "list_directory", "args": {"dir_path": "."}}});
    let turn = stream(json!([{"candidates": [{"content": {"parts": [read]}, "finishReason": "STOP"}]}]));
    let cut = json!([{"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "SAFETY"}]}]);
    let quota: Vec<Value> = (0..40).map(|_| refused(429)).collect();
    type Row = (&'static str, Vec<Value>, &'static [&'static str], Value, i32, &'static str);
    let table: [Row; 8] = [
        ("done", vec![says("ok")], &[], json!({}), 0, ""),
        ("nothing left", vec![], &[], json!({}), 1, "[API Error: No more mock responses"),
        ("a bad request", vec![refused(400)], &[], json!({}), 1, "[API Error:"),
        ("credentials", vec![refused(401)], &[], json!({}), 41, "[API Error:"),
        ("quota", quota, &[], json!({}), 45, "[API Error:"),
        ("turns", vec![turn.clone(), turn], &[], json!({"model": {"maxSessionTurns": 1}}), 53, "turns"),
        ("a refusal", vec![stream(cut)], &[], json!({}), 1, "SAFETY"),
        ("a session id", vec![says("ok")], &["--session-id", "x"], json!({}), 42, "not a UUID"),
    ];
    for (what, answers, more, settings, code, said) in table {
        let environment = TestEnvironment::new();
        environment.write("home/.gemini/settings.json", settings.to_string());
        let file = raw(&environment, &answers);
        let args = [&["--fake-responses", &file, "-m", "gemini-2.5-flash", "-p", "hi"][..], more].concat();
        let text = run(&mut convoke(&environment, &args), "");
        assert_eq!(text.code, Some(code), "{what}: {}", text.stderr);
        assert!(text.stderr.contains(said), "{what}: {}", text.stderr);
        if code == 42 {
            continue;
        }
        let json = run(convoke(&environment, &args).args(["-o", "json"]), "");
        let object: Value = serde_json::from_str(if code == 0 { &json.stdout } else { &json.stderr }).unwrap();
        assert_eq!(object["error"]["code"].as_i64().unwrap_or(0), i64::from(code), "{what}");
        assert!(object["session_id"].is_string(), "{what}");
        let streamed = run(convoke(&environment, &args).args(["-o", "stream-json"]), "");
        let lines = lines(&streamed);
        let last = lines.last().unwrap();
        assert_eq!(last["type"], "result", "{what}");
        assert_eq!(last["status"], if code == 0 { "success" } else { "error" }, "{what}");
        let told = lines.iter().filter(|line| line["type"] == "error").count();
        assert_eq!(told, usize::from(code == 53), "{what}: only limits are told before the result");
    }
}

#[test]
fn scripts_are_read_as_their_contract_says() {
    let usage_only = json!({"usageMetadata": {"promptTokenCount": 1}});
    let no_content = json!({"candidates": [{"index": 0}]});
    let malformed = stream(json!([{"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}]));
    let blank = stream(json!([{"candidates": [{"content": {"parts": [{"text": " "}]}, "finishReason": "STOP"}]}]));
    let text = json!({"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]});
    let counted = json!({"method": "countTokens", "response": {"totalTokens": 9}});
    for (what, answers, non_strict, code) in [
        ("metadata alone", vec![stream(json!([usage_only, no_content, text]))], false, 0),
        ("a malformed call", vec![malformed, says("ok")], false, 0),
        ("a blank answer", vec![blank, says("ok")], false, 0),
        ("lines that are left", vec![says("ok"), says("more")], false, 0),
        ("another method first", vec![counted.clone(), says("ok")], false, 1),
        ("another method, not strict", vec![counted, says("ok")], true, 0),
    ] {
        let environment = TestEnvironment::new();
        let file = raw(&environment, &answers);
        let flag = if non_strict { "--fake-responses-non-strict" } else { "--fake-responses" };
        let args = ["--approval-mode=yolo", flag, &file, "-m", "gemini-2.5-flash", "hi"];
        let ran = run(&mut convoke(&environment, &args), "");
        assert_eq!(ran.code, Some(code), "{what}: {}", ran.stderr);
        // What was blank has been written by the time that it is found to be no answer.
        assert_eq!(ran.stdout.trim_start(), if code == 0 { "ok\n" } else { "" }, "{what}");
    }
}

#[test]
fn a_rig_s_own_settings_and_folders_are_taken() {
    let environment = TestEnvironment::new();
    let settings = json!({
        "general": {"enableAutoUpdate": false},
        "telemetry": {"enabled": true, "target": "local", "otlpEndpoint": "", "outfile": environment.home().join("t.log")},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
        "ui": {"useAlternateBuffer": true},
        "model": {"name": "gemini-3-flash-preview"},
        "sandbox": false,
        "ide": {"enabled": false, "hasSeenNudge": true},
        "debugMode": true,
        "contextCompression": {},
    });
    environment.write("home/.gemini/settings.json", settings.to_string());
    environment.write("workspace/.gemini/settings.json", settings.to_string());
    environment.write("home/.gemini/state.json", "{\"terminalSetupPromptShown\": true}");
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let mut command = convoke(&environment, &["--approval-mode=yolo", "--fake-responses", &file, "hi"]);
    command.env_remove("CONVOKE_HOME").env("HOME", environment.workspace());
    command.env("GEMINI_CLI_HOME", environment.home()).env("GEMINI_CLI_INTEGRATION_TEST", "true");
    command.env("GEMINI_PTY_INFO", "child_process");
    let ran = run(&mut command, "");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "ok\n", ""));
    assert!(environment.read("home/t.log").unwrap().contains("scopeMetrics"));
    let help = run(&mut convoke(&environment, &["--help"]), "");
    assert!(!help.stdout.contains("fake-responses"), "hidden");
}

#[test]
fn a_denied_tool_is_not_found_and_the_run_goes_on() {
    let environment = TestEnvironment::new();
    let calls =
        json!([call("write_file", json!({"file_path": "a", "content": "b"})), call("invented_tool", json!({})),]);
    let file = script(&environment, &[calls, json!([{"text": "Done."}])]);
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-o", "stream-json", "go"]), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines = lines(&ran);
    let results: Vec<&Value> = lines.iter().filter(|line| line["type"] == "tool_result").collect();
    for (result, name) in results.iter().zip(["write_file", "invented_tool"]) {
        assert_eq!((&result["status"], &result["error"]["type"]), (&json!("error"), &json!("tool_not_registered")));
        let message = result["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("Tool \"{name}\" not found")), "{message}");
        assert_eq!(result["output"], message, "an error carries both");
    }
    assert_eq!(results.len(), 2);
    let stats = &lines.last().unwrap()["stats"];
    for field in ["total_tokens", "input_tokens", "output_tokens", "cached", "input", "duration_ms", "tool_calls"] {
        assert!(stats[field].is_u64(), "{field}: {stats}");
    }
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-o", "json", "go"]), "");
    let stats = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["stats"];
    assert_eq!(stats["tools"]["totalCalls"], 2);
    assert!(stats["tools"]["totalDecisions"]["auto_accept"].is_u64(), "{stats}");
}

#[test]
fn an_allowed_command_brings_its_tool_back() {
    let environment = TestEnvironment::new();
    let shell = |command: &str| call("run_shell_command", json!({"command": command}));
    let file = script(&environment, &[json!([shell("echo yes")]), json!([{"text": "done"}])]);
    for allowed in ["run_shell_command(echo)", "ShellTool(echo)"] {
        let args = ["--fake-responses", &file, "-o", "stream-json", "--allowed-tools", allowed, "go"];
        let ran = run(&mut convoke(&environment, &args), "");
        let result = lines(&ran).into_iter().find(|line| line["type"] == "tool_result").unwrap();
        assert_eq!(result["status"], "success", "{allowed}");
    }
}

#[test]
fn a_whole_run_is_the_golden_stream() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "one\n");
    let chunks = json!([
        {"candidates": [{"content": {"parts": [{"text": "thinking", "thought": true}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "Let me look. "}]}}]},
        {"candidates": [{"content": {"parts": [
            call("list_directory", json!({"dir_path": "."})), call("read_file", json!({"file_path": "a.txt"}))
        ]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}},
    ]);
    let file = raw(&environment, &[stream(chunks), says("Done.")]);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-p", "hi there", "-o", "stream-json"];
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let mut lines = lines(&ran);
    let mut ids: Vec<Value> = Vec::new();
    for line in &mut lines {
        line["timestamp"] = "…".into();
        if line.get("session_id").is_some() {
            line["session_id"] = "…".into();
        }
        if let Some(id) = line.get("tool_id").cloned() {
            let known = ids.iter().position(|other| *other == id).unwrap_or(ids.len());
            if known == ids.len() {
                ids.push(id);
            }
            line["tool_id"] = format!("call {known}").into();
        }
        if let Some(stats) = line.get_mut("stats") {
            stats["duration_ms"] = "…".into();
        }
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    super::telemetry::golden_text("stream.jsonl", &text);
}

#[test]
fn what_hooks_refuse_is_told_and_is_no_failure() {
    let environment = TestEnvironment::new();
    let refuses = |reason: &str| json!([{"hooks": [{"type": "command", "command": format!("echo '{{\"decision\": \"deny\", \"reason\": \"{reason}\"}}'")}]}]);
    environment
        .write("home/.gemini/settings.json", json!({"hooks": {"BeforeModel": refuses("no models today")}}).to_string());
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "hi"];
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert_eq!(ran.stderr, "convoke: warning: Agent execution blocked: no models today\n");
    let ran = run(convoke(&environment, &args).args(["-o", "json"]), "");
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(object["warnings"], json!(["Agent execution blocked: no models today"]));
    // What sends the agent back to work is told as well.
    let once =
        "grep -q '\"stop_hook_active\":false' && echo '{\"decision\": \"block\", \"reason\": \"once more\"}'; true";
    let hooks = json!({"AfterAgent": [{"hooks": [{"type": "command", "command": once}]}]});
    environment.write("home/.gemini/settings.json", json!({"hooks": hooks}).to_string());
    let file = script(&environment, &[json!([{"text": "one"}]), json!([{"text": "two"}])]);
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-m", "gemini-2.5-flash", "hi"]), "");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "convoke: warning: Agent execution blocked: once more\n"));
}

#[test]
fn a_run_that_can_t_begin_says_so_in_its_format() {
    let environment = TestEnvironment::new();
    let enforced = |selected: &str| {
        json!({"security": {"auth": {"enforcedType": "gemini-api-key", "selectedType": selected}}}).to_string()
    };
    environment.write("home/.gemini/settings.json", enforced(""));
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "hi"];
    let ran =
        run(convoke(&environment, &args).args(["--output-format", "json"]).env("GOOGLE_GENAI_USE_GCA", "true"), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(41), ""));
    let object: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!((&object["error"]["type"], &object["error"]["code"]), (&json!("Error"), &json!(41)));
    let message = object["error"]["message"].as_str().unwrap();
    assert!(message.contains("enforced authentication type is 'gemini-api-key'"), "{message}");
    assert!(message.contains("current type is 'oauth-personal'"), "{message}");
    assert!(!object["session_id"].as_str().unwrap().is_empty());
    assert_eq!(run(&mut convoke(&environment, &args), "").code, Some(0), "the key is what is enforced");
    environment.write("home/.gemini/settings.json", enforced("oauth-personal"));
    let ran = run(&mut convoke(&environment, &args), "");
    assert!(ran.code == Some(41) && ran.stderr.contains("current type is 'oauth-personal'"), "{ran:?}");
    for more in [&[][..], &["say three"]] {
        let args = [&["--prompt-interactive", "say two"][..], more].concat();
        let ran = run(&mut convoke(&environment, &args), "say one");
        let why = "convoke: the --prompt-interactive flag cannot be used when input is piped\n";
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(42), why));
    }
}

#[test]
fn a_pipe_that_stays_open_and_silent_is_no_prompt_and_holds_nothing_up() {
    let environment = TestEnvironment::new();
    let mut command = convoke(&environment, &[]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    drop(open);
    assert_eq!(ended.status.code(), Some(42));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("no prompt"));
}
