//! Long sessions of the real binary: what is masked and cut can be read, also later; when a history is compressed, and
//! who hears of it; what becomes of a loop.

use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, lines, script};

/// Runs a prompt over these answers.
fn prompt(environment: &TestEnvironment, answers: &[Value], more: &[&str]) -> Ran {
    let file = script(environment, answers);
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-o", "stream-json"];
    run(convoke(environment, &args).args(more), "")
}

/// The lines of the only record.
fn record(environment: &TestEnvironment) -> Vec<Value> {
    let tmp = environment.home().join(".convoke/tmp");
    let folders = std::fs::read_dir(tmp).unwrap().map(|entry| entry.unwrap().path().join("chats"));
    let chats = folders.into_iter().find(|chats| chats.is_dir()).unwrap();
    let files: Vec<_> = std::fs::read_dir(chats).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The outputs of the calls of one run, as the model read them; they stand in the record.
fn outputs(record: &[Value], tool: &str) -> Vec<String> {
    let calls = record.iter().filter(|line| line["type"] == "tool" && line["call"]["name"] == tool);
    let output = |line: &Value| line["call"]["result"][0]["functionResponse"]["response"]["output"].clone();
    // A call that failed has an error in its place.
    calls.filter_map(|line| Some(output(line).as_str()?.to_owned())).collect()
}

/// The name behind the last `before` of a line.
fn file_behind(text: &str, before: &str) -> String {
    text.lines().find_map(|line| line.split_once(before)).unwrap().1.to_owned()
}

#[test]
fn what_was_masked_or_cut_is_read_back_in_the_session_and_in_one_that_goes_on() {
    let masking =
        json!({"protectionThresholdTokens": 500, "minPrunableThresholdTokens": 10, "protectLatestTurn": false});
    let masking = json!({"contextManagement": {"tools": {"outputMasking": masking}}});
    let cutting = json!({"tools": {"truncateToolOutputThreshold": 1000}});
    for (settings, before) in [(masking, "Full output available at: "), (cutting, "For full output see: ")] {
        let environment = TestEnvironment::new();
        environment.write("home/.convoke/settings.json", settings.to_string());
        let count = call("run_shell_command", json!({"command": "seq 1 3000"}));
        let ran = prompt(&environment, &[json!([count]), json!([{"text": "Counted."}])], &["-y", "-p", "count"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let lines = record(&environment);
        let seen = match lines.iter().find(|line| !line["$mask"].is_null()) {
            Some(masked) => masked["$mask"]["response"]["output"].as_str().unwrap().to_owned(),
            None => outputs(&lines, "run_shell_command").remove(0),
        };
        assert!(!seen.contains("\n1500\n"), "the middle is left out: {seen}");
        let kept = file_behind(&seen, before);

        // In another process, which nobody allowed to leave the workspace; and no further than that file's folder.
        let read = |path: &str| call("read_file", json!({"file_path": path, "start_line": 1500, "end_line": 1502}));
        let other = environment.write("home/.convoke/secret.txt", "secret");
        let calls = json!([read(&kept), read(other.to_str().unwrap())]);
        let ran = prompt(&environment, &[calls, json!([{"text": "Read."}])], &["-r", "latest", "-p", "read it"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let results: Vec<Value> = super::lines(&ran).into_iter().filter(|line| line["type"] == "tool_result").collect();
        assert_eq!((&results[0]["status"], &results[1]["status"]), (&json!("success"), &json!("error")));
        assert_eq!(results[1]["error"]["type"], "path_not_in_workspace");
        let whole = outputs(&record(&environment)[lines.len()..], "read_file").remove(0);
        assert!(whole.contains("1500\n1501\n1502") && !whole.contains("1503"), "{whole}");
    }
}

/// A hook that notes what it was told.
fn noted(environment: &TestEnvironment) {
    let noted = environment.home().join("noted");
    let command = format!("cat >> {0}; echo >> {0}", noted.display());
    let hooks = json!({"PreCompress": [{"hooks": [{"type": "command", "command": command}]}]});
    environment.write("home/.convoke/settings.json", json!({"hooks": hooks}).to_string());
}

fn triggers(environment: &TestEnvironment) -> Vec<String> {
    let text = environment.read("home/noted").unwrap_or_default();
    let told = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    told.map(|told| told["trigger"].as_str().unwrap().to_owned()).collect()
}

/// A line of the script for a side request.
fn aside(text: &str) -> String {
    let candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"});
    json!({"method": "generateContent", "response": {"candidates": [candidate]}}).to_string()
}

/// A line of the script for an answer, with the size that the provider counted.
fn answer(text: &str, tokens: u64) -> String {
    let candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"});
    let usage = json!({"promptTokenCount": tokens, "candidatesTokenCount": 5, "totalTokenCount": tokens + 5});
    let chunk = json!({"candidates": [candidate], "usageMetadata": usage});
    json!({"method": "generateContentStream", "response": [chunk]}).to_string()
}

fn compressing(environment: &TestEnvironment, script: &[String], more: &[&str]) -> Ran {
    let file = environment.write("responses.jsonl", script.join("\n")).display().to_string();
    let args = ["--fake-responses", &file, "-m", "gemini-2.5-flash", "-o", "stream-json"];
    run(convoke(environment, &args).args(more), "")
}

#[test]
fn a_history_is_compressed_when_it_is_due_or_asked_for_and_only_then_hooks_hear_of_it() {
    let words: String = (0..3_000).map(|n| format!("word {n} ")).collect();
    let summary =
        [aside("<state_snapshot>first</state_snapshot>"), aside("<state_snapshot>what counts</state_snapshot>")];
    for (size, more, trigger) in [(10, "/compress", "manual"), (600_000, "and on", "auto")] {
        let environment = TestEnvironment::new();
        noted(&environment);
        let ran = compressing(&environment, &[answer(&words, 10)], &["-p", "say words"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let ran = compressing(&environment, &[answer("b", size)], &["-r", "-p", "next"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(triggers(&environment), [""; 0], "nothing was compressed");
        let script: Vec<String> = summary.iter().cloned().chain([answer("c", 100)]).collect();
        let ran = compressing(&environment, &script, &["-r", "-p", more]);
        assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
        assert_eq!(triggers(&environment), [trigger]);
        let said = |ran: &Ran| lines(ran)[2]["content"].as_str().unwrap().to_owned();
        match trigger {
            "manual" => assert!(said(&ran).starts_with("Compressed the conversation from "), "{}", said(&ran)),
            _ => assert_eq!(said(&ran), "c"),
        }
        let compressed: Vec<Value> =
            record(&environment).into_iter().filter(|line| !line["$compress"].is_null()).collect();
        let [compressed] = &compressed[..] else { unreachable!("one compression") };
        assert!(compressed.to_string().contains("what counts") && !compressed.to_string().contains("word 7 "));
        // The session that goes on has the summary in the place of the words.
        let outfile = environment.home().join("telemetry.log");
        let file = environment.write("responses.jsonl", answer("d", 100)).display().to_string();
        let mut last =
            convoke(&environment, &["--fake-responses", &file, "-m", "gemini-2.5-flash", "-r", "-p", "last"]);
        last.env("GEMINI_TELEMETRY_ENABLED", "true").env("GEMINI_TELEMETRY_OUTFILE", outfile);
        assert_eq!(run(&mut last, "").code, Some(0));
        let told = environment.read("home/telemetry.log").unwrap();
        assert!(told.contains("what counts") && !told.contains("word 7 "), "{told}");
        assert_eq!(triggers(&environment).len(), 1);
    }
}

#[test]
fn a_loop_is_nudged_then_stopped_and_the_record_shows_both() {
    let environment = TestEnvironment::new();
    let again = json!([call("list_directory", json!({"dir_path": "."}))]);
    let ran = prompt(&environment, &vec![again; 12], &["-p", "go"]);
    assert_eq!(ran.code, Some(47), "{}", ran.stderr);
    let told = lines(&ran);
    let of = |kind: &str| told.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of("tool_use"), of("tool_result")), (10, 10), "each call has an answer");
    let cancelled: Vec<usize> = (told.iter().filter(|line| line["type"] == "tool_result").enumerate())
        .filter(|(_, line)| line["error"]["type"] == "cancelled")
        .map(|(at, _)| at + 1)
        .collect();
    assert_eq!(cancelled, [5, 10]);
    assert_eq!(told.last().unwrap()["error"]["type"], "LOOP_DETECTED");

    let record = record(&environment);
    let text = |line: &Value| line["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let nudges: Vec<&Value> = record.iter().filter(|line| text(line).starts_with("System: Potential loop")).collect();
    let [nudge] = &nudges[..] else { unreachable!("one nudge") };
    assert_eq!((&nudge["type"], &nudge["metadata"]["source"]), (&json!("user"), &json!("loop_recovery")));
    let refused = |line: &&Value| {
        let error = line["content"][0]["functionResponse"]["response"]["error"].as_str();
        error.is_some_and(|error| error.starts_with("Cancelled before it ran"))
    };
    assert_eq!(record.iter().filter(refused).count(), 2);
    let ran = prompt(&environment, &[json!([{"text": "Something else."}])], &["-r", "-p", "try otherwise"]);
    assert_eq!(ran.code, Some(0), "a session that looped goes on: {}", ran.stderr);
}

#[test]
fn a_session_that_can_not_be_recorded_goes_on_and_says_so_in_every_format() {
    for format in ["text", "json", "stream-json"] {
        let environment = TestEnvironment::new();
        // A file where the folder of the records should be.
        environment.write("home/.convoke/tmp", "");
        let file = script(&environment, &[json!([{"text": "ok"}])]);
        let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-o", format, "-p", "hi"]), "");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let told = if format == "text" { &ran.stderr } else { &ran.stdout };
        assert_eq!(told.matches("this session is not recorded any further").count(), 1, "{format}: {told}");
        assert!(ran.stdout.contains("ok"), "{}", ran.stdout);
    }
}
