//! Telemetry of the real binary: the file as its readers split it, a collector, and what must never be told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::mpsc::Receiver;

use convoke_testkit::{TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, lines, script};

/// The objects of a telemetry file, read as the rigs of others read it.
fn objects(environment: &TestEnvironment) -> Vec<Value> {
    let text = environment.read("home/telemetry.log").unwrap_or_default();
    let pieces: Vec<&str> = text.trim_end().split("}\n{").collect();
    let last = pieces.len() - 1;
    let whole = |(n, piece): (usize, &&str)| {
        let (open, close) = (if n == 0 { "" } else { "{" }, if n == last { "" } else { "}" });
        serde_json::from_str(&format!("{open}{piece}{close}")).unwrap()
    };
    pieces.iter().enumerate().map(whole).collect()
}

fn records(objects: &[Value]) -> Vec<&Value> {
    objects.iter().filter(|object| object["attributes"]["event.name"].is_string()).collect()
}

fn named<'a>(objects: &'a [Value], name: &str) -> Vec<&'a Value> {
    let wanted = format!("gemini_cli.{name}");
    let named = records(objects).into_iter().map(|object| &object["attributes"]);
    named.filter(|attributes| attributes["event.name"] == wanted.as_str()).collect()
}

/// What a metric came to in the end.
fn metric<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    let scopes = objects.iter().rev().filter_map(|object| object["scopeMetrics"].as_array()).flatten();
    let mut metrics = scopes.filter_map(|scope| scope["metrics"].as_array()).flatten();
    metrics.find(|metric| metric["descriptor"]["name"] == format!("gemini_cli.{name}").as_str())
}

fn told(environment: &TestEnvironment, more: &Value) {
    let outfile = environment.home().join("telemetry.log");
    let mut telemetry = json!({"enabled": true, "target": "local", "otlpEndpoint": "", "outfile": outfile});
    telemetry.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    environment.write("home/.gemini/settings.json", json!({ "telemetry": telemetry }).to_string());
}

/// Times, ids and lengths of time are another day's; everything else is compared with the golden file.
fn normalised(value: &Value, environment: &TestEnvironment, session: &str) -> Value {
    const VOLATILE: [&str; 9] = [
        "duration_ms",
        "event.timestamp",
        "hrTime",
        "hrTimeObserved",
        "startTime",
        "endTime",
        "call_id",
        "installation.id",
        "gen_ai.tool.call.id",
    ];
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                let volatile = VOLATILE.contains(&key.as_str()) || key.ends_with("version");
                (key.clone(), if volatile { "…".into() } else { normalised(value, environment, session) })
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| normalised(item, environment, session)).collect(),
        Value::String(text) => {
            let text = text.replace(session, "SESSION");
            text.replace(environment.workspace().to_str().unwrap(), "WORKSPACE").into()
        }
        other => other.clone(),
    }
}

fn golden(name: &str, actual: &Value) {
    golden_text(name, &format!("{actual:#}\n"));
}

/// Compares with a file beside the tests.
pub(super) fn golden_text(name: &str, actual: &str) {
    let path = format!("{}/tests/headless/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("CONVOKE_BLESS").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name}: run with CONVOKE_BLESS=1 if this is meant");
}

#[test]
fn a_run_is_told_as_the_golden_file_has_it() {
    let environment = TestEnvironment::new();
    told(&environment, &json!({}));
    environment.write("workspace/a.txt", "one\n");
    let calls = [
        call("read_file", json!({"file_path": "a.txt"})),
        call("write_file", json!({"file_path": "b.txt", "content": "x\n"})),
        call("no_such_tool", json!({})),
    ];
    let file = script(&environment, &[json!(calls), json!([{"text": "Done."}])]);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-o", "stream-json", "go on"];
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let session = lines(&ran)[0]["session_id"].as_str().unwrap().to_owned();
    let objects = objects(&environment);
    // The text of a request is the conversation with today's date; its shape is looked at below.
    let mut records: Vec<Value> = records(&objects).into_iter().cloned().collect();
    for record in &mut records {
        if let Some(text) = record["attributes"].get_mut("request_text") {
            let contents: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
            assert_eq!(contents[0]["role"], "user");
            *text = format!("{} contents", contents.as_array().unwrap().len()).into();
        }
    }
    golden("telemetry.json", &normalised(&json!(records), &environment, &session));
    let secret = environment.read("home/telemetry.log").unwrap();
    assert!(!secret.contains("secret-key"), "a credential was told");
}

#[test]
fn readers_of_others_find_what_they_look_for() {
    let environment = TestEnvironment::new();
    told(&environment, &json!({}));
    let calls = json!([
        call("write_file", json!({"file_path": "made.txt", "content": "x\ny\n"})),
        call("run_shell_command", json!({"command": "echo hi"})),
        call("no_such_tool", json!({})),
    ]);
    let file = script(&environment, &[calls, json!([{"text": "Done."}])]);
    let ran = run(&mut convoke(&environment, &["--approval-mode=yolo", "--fake-responses", &file, "go"]), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let objects = objects(&environment);
    let calls = named(&objects, "tool_call");
    let of = |name: &str| *calls.iter().find(|call| call["function_name"] == name).unwrap();
    assert_eq!(calls.len(), 3);
    let write = of("write_file");
    assert_eq!(write["success"], true);
    assert!(write["function_args"].as_str().unwrap().contains("\"file_path\": \"made.txt\""), "{write}");
    assert!(write["duration_ms"].is_u64() && write["prompt_id"].is_string(), "{write}");
    assert_eq!((&write["decision"], &write["model_added_lines"]), (&json!("auto_accept"), &json!(2)));
    let unknown = of("no_such_tool");
    assert_eq!((&unknown["success"], &unknown["error_type"]), (&json!(false), &json!("tool_not_registered")));
    assert!(unknown["error"].as_str().unwrap().starts_with("Tool \"no_such_tool\" not found"), "{unknown}");
    assert_eq!(named(&objects, "api_request").len(), 2);
    assert_eq!(named(&objects, "user_prompt")[0]["prompt"], "go");
    assert_eq!(named(&objects, "api_response")[1]["response_text"], "Done.");
    assert!(objects[0]["scopeMetrics"].is_array(), "metrics come first: a reader waits for them");
    assert_eq!(metric(&objects, "session.count").unwrap()["dataPoints"][0]["value"], 1);
    assert_eq!(metric(&objects, "tool.call.count").unwrap()["dataPoints"].as_array().unwrap().len(), 3);
    assert_eq!(metric(&objects, "api.request.count").unwrap()["dataPoints"][0]["value"], 2);
    assert!(metric(&objects, "token.usage").is_some() && metric(&objects, "lines.changed").is_some());
    assert_eq!(metric(&objects, "ui.flicker.count"), None);
    let text = environment.read("home/telemetry.log").unwrap();
    assert!(!text.contains("gen_ai.output.messages"), "whole conversations belong to traces");
}

#[test]
fn what_goes_wrong_and_what_calls_are_for_is_told() {
    let again = json!([call("list_directory", json!({"dir_path": "of-the-model"}))]);
    for log_prompts in [true, false] {
        let environment = TestEnvironment::new();
        told(&environment, &json!({"logPrompts": log_prompts}));
        let file = script(&environment, &vec![again.clone(); 12]);
        let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-m", "gemini-2.5-flash", "go"]), "");
        assert_eq!(ran.code, Some(47), "{}", ran.stderr);
        let objects = objects(&environment);
        let all = records(&objects);
        let loops = all.iter().filter(|record| record["attributes"]["event.name"] == "loop_detected");
        let strikes: Vec<&Value> = loops.map(|record| &record["attributes"]["strike"]).collect();
        assert_eq!(strikes, [1, 2]);
        let requests = named(&objects, "api_request");
        assert!(requests.len() == 10 && requests.iter().all(|request| request["role"] == "main"));
        let failed = metric(&objects, "exit.fail.count").unwrap();
        assert_eq!(failed["dataPoints"][0]["attributes"], json!({"exit_code": 47}));
        let text = environment.read("home/telemetry.log").unwrap();
        assert_eq!(text.contains("of-the-model"), log_prompts, "arguments are what a model wrote");
    }

    let environment = TestEnvironment::new();
    told(&environment, &json!({}));
    // No finish reason: no answer. It is repeated, and then there is one. The summary is a side request.
    let broken = json!({"method": "generateContentStream", "response": [{"candidates": [{"content": {"parts": []}}]}]});
    let answer = |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]});
    let words: String = (0..2_000).map(|n| format!("word {n} ")).collect();
    let said = json!({"method": "generateContentStream", "response": [answer(&words)]});
    let aside = json!({"method": "generateContent", "response": answer("<state_snapshot>s</state_snapshot>")});
    let run_with = |lines: &[&Value], more: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        let file = environment.write("responses.jsonl", lines.join("\n")).display().to_string();
        let ran = run(convoke(&environment, &["--fake-responses", &file, "-m", "gemini-2.5-flash"]).args(more), "");
        assert_eq!(ran.code, Some(0), "{more:?}: {}", ran.stderr);
    };
    run_with(&[&broken, &said], &["-p", "go"]);
    run_with(&[&aside, &aside], &["-r", "-p", "/compress"]);
    run_with(&[], &["-r", "--rewind", "1"]);
    let objects = objects(&environment);
    assert_eq!(named(&objects, "chat.invalid_chunk").len(), 1);
    let roles: Vec<&Value> = named(&objects, "api_response").iter().map(|response| &response["role"]).collect();
    assert_eq!(roles, ["main", "main", "utility_compressor", "utility_compressor"]);
    assert_eq!(named(&objects, "chat_compression").len(), 1);
    assert_eq!(named(&objects, "rewind")[0]["outcome"], "both");
    assert_eq!(metric(&objects, "exit.fail.count"), None);
}

#[test]
fn calls_of_subagents_and_of_the_loop_check_are_told_apart() {
    let environment = TestEnvironment::new();
    told(&environment, &json!({}));
    let settings: Value = serde_json::from_str(&environment.read("home/.gemini/settings.json").unwrap()).unwrap();
    let telemetry = &settings["telemetry"];
    environment
        .write("home/.gemini/settings.json", json!({"telemetry": telemetry, "model": {"loopCheck": true}}).to_string());
    let step = |n: usize| json!([call("list_directory", json!({"dir_path": ".", "ignore": [n.to_string()]}))]);
    let task = json!([call("invoke_agent", json!({"agent_name": "generalist", "prompt": "do it"}))]);
    let plan = json!([call("enter_plan_mode", json!({"reason": "it is large"}))]);
    let mut answers = vec![task, json!([call("complete_task", json!({"result": "done"}))]), plan];
    answers.extend((0..32).map(step));
    answers.push(json!([{"text": "Done."}]));
    let file = script(&environment, &answers);
    let opinion = r#"{"unproductive_state_analysis": "a", "unproductive_state_confidence": 0.2}"#;
    let candidate = json!({"content": {"parts": [{"text": opinion}]}, "finishReason": "STOP"});
    let aside = json!({"method": "generateContent", "response": {"candidates": [candidate]}});
    let script = environment.read("responses.jsonl").unwrap() + &format!("\n{aside}");
    environment.write("responses.jsonl", script);
    let args = ["--fake-responses-non-strict", &file, "-m", "gemini-2.5-flash", "-y", "go"];
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Done.\n"), "{}", ran.stderr);
    let objects = objects(&environment);
    let requests = named(&objects, "api_request");
    let of = |role: &str| requests.iter().filter(|request| request["role"] == role).count();
    assert_eq!((of("main"), of("subagent"), of("utility_loop_detector")), (35, 1, 1));
    let checks = named(&objects, "llm_loop_check");
    assert_eq!((checks.len(), &checks[0]["flash_confidence"]), (1, &json!(0.2)));
    let switched = named(&objects, "plan.approval_mode_switch")[0];
    assert_eq!((&switched["from_mode"], &switched["to_mode"]), (&json!("yolo"), &json!("plan")));
}

#[test]
fn without_prompts_nothing_that_anybody_wrote_is_told() {
    let environment = TestEnvironment::new();
    told(&environment, &json!({"logPrompts": false, "traces": true}));
    let write = call("write_file", json!({"file_path": "made.txt", "content": "of-the-model"}));
    let file = script(&environment, &[json!([write]), json!([{"text": "of-the-model"}])]);
    let ran = run(&mut convoke(&environment, &["-y", "--fake-responses", &file, "of-the-user"]), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = environment.read("home/telemetry.log").unwrap();
    for written in ["of-the-user", "of-the-model", "request_text", "function_args", "output.messages\":"] {
        assert!(!text.contains(written), "{written} was told");
    }
    let objects = objects(&environment);
    assert_eq!(named(&objects, "tool_call")[0]["function_name"], "write_file");
    assert_eq!(named(&objects, "user_prompt")[0]["prompt_length"], 11);
}

#[test]
fn nothing_is_told_by_default_and_traces_tell_whole_answers() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let outfile = environment.home().join("telemetry.log");
    let mut silent = convoke(&environment, &["--fake-responses", &file, "hi"]);
    silent.env("GEMINI_TELEMETRY_OUTFILE", &outfile);
    assert_eq!(run(&mut silent, "").code, Some(0));
    assert_eq!(environment.read("home/telemetry.log"), None);
    let mut traced = convoke(&environment, &["--fake-responses", &file, "hi"]);
    traced.env("GEMINI_TELEMETRY_OUTFILE", &outfile).env("GEMINI_TELEMETRY_ENABLED", "true");
    traced.env("GEMINI_TELEMETRY_TRACES_ENABLED", "true");
    assert_eq!(run(&mut traced, "").code, Some(0));
    assert!(environment.read("home/telemetry.log").unwrap().contains("gen_ai.output.messages"));
}

#[test]
fn an_editor_s_session_is_told_before_the_process_ends() {
    let environment = TestEnvironment::new();
    told(&environment, &json!({}));
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let mut command = convoke(&environment, &["--acp", "--fake-responses", &file, "-m", "gemini-2.5-flash"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut ask = |id: u32, method: &str, params: Value| {
        writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "the agent must answer {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    };
    ask(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}));
    let session = ask(2, "session/new", json!({"cwd": environment.workspace(), "mcpServers": []}))["sessionId"].clone();
    ask(3, "session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": "hi there"}]}));
    drop(input);
    assert!(child.wait().unwrap().success());
    let objects = objects(&environment);
    let prompt = named(&objects, "user_prompt");
    assert_eq!((&prompt[0]["prompt"], &prompt[0]["session.id"]), (&json!("hi there"), &session));
    assert_eq!(named(&objects, "api_request")[0]["session.id"], session);
    assert_eq!(named(&objects, "api_response").len(), 1);
    assert!(objects.last().unwrap()["scopeMetrics"].is_array(), "the last metrics were written");
}

#[test]
fn an_outfile_that_can_t_be_written_is_a_configuration_error() {
    let environment = TestEnvironment::new();
    environment.write("home/file", "");
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    let mut command = convoke(&environment, &["--fake-responses", &file, "hi"]);
    command.env("GEMINI_TELEMETRY_ENABLED", "true").env("GEMINI_TELEMETRY_OUTFILE", environment.home().join("file/x"));
    let ran = run(&mut command, "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(52), ""), "{}", ran.stderr);
}

/// A collector: answers every request with 200 and hands out what was posted to which path.
fn collector() -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (posted, posts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut reader = BufReader::new(socket.unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                match line.trim_end().split_once(':') {
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.trim().parse().unwrap();
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
            if posted.send((path, body)).is_err() {
                return;
            }
        }
    });
    (address, posts)
}

#[test]
fn a_collector_gets_logs_metrics_and_traces() {
    let environment = TestEnvironment::new();
    let (address, posts) = collector();
    let read = call("read_file", json!({"file_path": "a.txt"}));
    let file = script(&environment, &[json!([read]), json!([{"text": "the-answer"}])]);
    let mut command = convoke(&environment, &["--fake-responses", &file, "the-question"]);
    command.env("GEMINI_TELEMETRY_ENABLED", "true").env("GEMINI_TELEMETRY_TRACES_ENABLED", "true");
    command.env("GEMINI_TELEMETRY_OTLP_ENDPOINT", format!("http://{address}"));
    let ran = run(&mut command, "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "the-answer\n"), "{}", ran.stderr);
    let mut sent = std::collections::BTreeMap::<String, Vec<u8>>::new();
    while let Ok((path, body)) = posts.try_recv() {
        sent.entry(path).or_default().extend(body);
    }
    let text = |path: &str| String::from_utf8_lossy(sent.get(path).map_or(&[][..], Vec::as_slice)).into_owned();
    for (path, what) in [
        ("/v1/logs", "gemini_cli.user_prompt"),
        ("/v1/logs", "the-question"),
        ("/v1/logs", "gemini_cli.tool_call"),
        ("/v1/logs", "gen_ai.output.messages"),
        ("/v1/metrics", "gemini_cli.session.count"),
        ("/v1/metrics", "gen_ai.client.operation.duration"),
        ("/v1/traces", "invoke_agent"),
        ("/v1/traces", "generate_content"),
        ("/v1/traces", "execute_tool"),
    ] {
        assert!(text(path).contains(what), "{what} is not in {path}");
    }
    assert!(!sent.values().any(|body| String::from_utf8_lossy(body).contains("secret-key")), "a secret was exported");
}
