//! The real binary and its records: killed, resumed, listed, deleted.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");

fn script(environment: &TestEnvironment, name: &str, answers: &[Value]) -> String {
    let lines: Vec<String> = answers
        .iter()
        .map(|parts| {
            let candidate = json!({"content": {"role": "model", "parts": parts}, "finishReason": "STOP"});
            let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
            let chunk = json!({"candidates": [candidate], "usageMetadata": usage});
            json!({"method": "generateContentStream", "response": [chunk]}).to_string()
        })
        .collect();
    environment.write(name, lines.join("\n")).display().to_string()
}

fn call(name: &str, args: Value) -> Value {
    json!({"functionCall": {"name": name, "args": args}})
}

fn convoke(environment: &TestEnvironment, args: &[&str]) -> Command {
    let mut command = environment.command(CONVOKE);
    command.args(args).args(["-m", "gemini-2.5-flash"]).env("GEMINI_API_KEY", "secret-key");
    command
}

/// A prompt that is answered with one text.
fn answer(environment: &TestEnvironment, args: &[&str], text: &str) -> Ran {
    let file = script(environment, "answer.jsonl", &[json!([{"text": text}])]);
    run(convoke(environment, &["--fake-responses", &file]).args(args), "")
}

/// The records of the test's workspace, each with the lines that are whole.
fn records(environment: &TestEnvironment) -> Vec<Vec<Value>> {
    let tmp = environment.home().join(".convoke/tmp");
    let projects = std::fs::read_dir(tmp).into_iter().flatten().map(|entry| entry.unwrap().path().join("chats"));
    let chats = projects.filter(|chats| chats.is_dir());
    let files = chats.flat_map(|chats| std::fs::read_dir(chats).unwrap().map(|entry| entry.unwrap().path()));
    let lines = |text: String| text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    files.map(|file| lines(std::fs::read_to_string(file).unwrap())).collect()
}

/// Killed at each of its first events; whatever was told is in the record, and the session goes on.
#[test]
fn what_was_told_is_there_after_a_kill() {
    for lines in [2, 3, 4, 6, 8, 10] {
        let environment = TestEnvironment::new();
        environment.write("workspace/a.txt", "one\n");
        let read = |n: u32| json!([{"text": format!("step {n}")}, call("read_file", json!({"file_path": "a.txt"}))]);
        let mut steps: Vec<Value> = (0..4).map(read).collect();
        // The last one never ends by itself.
        steps.push(json!([call("run_shell_command", json!({"command": "sleep 1000"}))]));
        let file = script(&environment, "long.jsonl", &steps);
        let args = ["--fake-responses", &file, "-y", "-o", "stream-json", "-p", "a long way"];
        let mut child = convoke(&environment, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let told: Vec<Value> = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .take(lines)
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();

        let recorded = records(&environment);
        for result in told.iter().filter(|line| line["type"] == "tool_result") {
            let is_it = |line: &&Value| line["type"] == "tool" && line["call"]["id"] == result["tool_id"];
            assert_eq!(recorded[0].iter().filter(is_it).count(), 1, "{lines} lines: {result}");
        }
        if recorded.is_empty() {
            // The prompt was echoed before the session had it.
            assert_eq!(lines, 2);
            continue;
        }
        let file = script(&environment, "more.jsonl", &[json!([{"text": "Going on."}])]);
        let args = ["--fake-responses", &file, "--resume", "latest", "-p", "go on"];
        let ran = run(&mut convoke(&environment, &args), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Going on.\n"), "{lines} lines: {}", ran.stderr);
        let whole = &records(&environment)[0];
        assert_eq!(whole[..recorded[0].len()], recorded[0][..]);
        let prompts: Vec<&Value> = whole.iter().filter(|line| !line["prompt"].is_null()).collect();
        assert_eq!(prompts.len(), 2, "{lines} lines");
    }
}

/// Killed while old output goes to files and out of the session.
#[test]
fn a_kill_amid_masking_loses_nothing_that_was_told() {
    for results in [1, 3, 6] {
        let environment = TestEnvironment::new();
        let bounds =
            json!({"protectionThresholdTokens": 500, "minPrunableThresholdTokens": 10, "protectLatestTurn": false});
        let settings = json!({"contextManagement": {"tools": {"outputMasking": bounds}}});
        environment.write("home/.convoke/settings.json", settings.to_string());
        let count = |n: u32| json!([call("run_shell_command", json!({"command": format!("seq {n} 3000")}))]);
        let file = script(&environment, "long.jsonl", &(0..12).map(count).collect::<Vec<_>>());
        let args = ["--fake-responses", &file, "-y", "-o", "stream-json", "-p", "a long way"];
        let mut child = convoke(&environment, &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let told: Vec<Value> = lines.filter(|line| line["type"] == "tool_result").take(results).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let recorded = records(&environment).remove(0);
        for result in &told {
            let is_it = |line: &&Value| line["type"] == "tool" && line["call"]["id"] == result["tool_id"];
            assert_eq!(recorded.iter().filter(is_it).count(), 1, "{results} results: {result}");
        }
        // What was masked before is masked for good; its file has the whole of it.
        for mask in recorded.iter().filter(|line| !line["$mask"].is_null()) {
            let text = mask["$mask"]["response"]["output"].as_str().unwrap();
            let file = text.lines().find_map(|line| line.strip_prefix("Output too large. Full output available at: "));
            let whole = std::fs::read_to_string(file.unwrap()).unwrap();
            assert!(whole.contains("\n1500\n"), "{file:?}");
        }
        assert!(results == 1 || recorded.iter().any(|line| !line["$mask"].is_null()), "{results} results");
        let ran = answer(&environment, &["--resume", "latest", "-p", "go on"], "Going on.");
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "Going on.\n", ""));
    }
}

#[test]
fn sessions_are_listed_resumed_and_deleted() {
    let environment = TestEnvironment::new();
    for (which, code) in [("1", 42), ("latest", 0)] {
        let environment = TestEnvironment::new();
        let none = answer(&environment, &["-r", which, "-p", "x"], "the answer");
        assert_eq!(none.code, Some(code), "{which}: {}", none.stderr);
        assert!(none.stderr.contains("NO_SESSIONS_FOUND"), "{which}: {}", none.stderr);
        assert_eq!(none.stdout.contains("the answer"), code == 0, "{which}");
    }
    let listed = |environment: &TestEnvironment| run(&mut convoke(environment, &["--list-sessions"]), "");
    assert!(listed(&environment).stdout.contains("No sessions"), "{}", listed(&environment).stdout);

    let id = "11111111-2222-4333-8444-555555555555";
    assert_eq!(answer(&environment, &["--session-id", id, "-p", "first words"], "a").code, Some(0));
    assert_eq!(answer(&environment, &["-p", "second words"], "b").code, Some(0));
    let again = answer(&environment, &["--session-id", id, "-p", "x"], "-");
    assert_eq!(again.code, Some(42), "{}", again.stderr);
    let list = listed(&environment);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    assert!(list.stdout.contains(&format!("1. first words (just now) [{id}]")), "{}", list.stdout);
    assert!(list.stdout.contains("2. second words (just now) ["), "{}", list.stdout);

    for which in ["1", id] {
        let ran = answer(&environment, &["--resume", which, "-p", "more", "-o", "stream-json"], "c");
        let init: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
        assert_eq!((ran.code, init["session_id"].as_str()), (Some(0), Some(id)), "{}", ran.stderr);
    }
    let unknown = answer(&environment, &["--resume", "7", "-p", "x"], "-");
    assert_eq!(unknown.code, Some(42));
    assert!(unknown.stderr.contains("INVALID_SESSION_IDENTIFIER"), "{}", unknown.stderr);
    assert_eq!(answer(&environment, &["-r", "1", "--session-id", id, "-p", "x"], "-").code, Some(42));

    let deleted = run(&mut convoke(&environment, &["--delete-session", id]), "");
    assert_eq!((deleted.code, deleted.stdout.contains("first words")), (Some(0), true), "{}", deleted.stderr);
    assert!(!listed(&environment).stdout.contains(id));
    assert_eq!(records(&environment).len(), 1);
    assert_eq!(run(&mut convoke(&environment, &["--delete-session", id]), "").code, Some(42));
}

#[test]
fn a_chat_of_gemini_cli_goes_on_and_its_file_stays() {
    let environment = TestEnvironment::new();
    let messages = json!([
        {"id": "u", "timestamp": "2026-05-01T10:00:00.000Z", "type": "user", "content": [{"text": "old words"}]},
        {"id": "g", "timestamp": "2026-05-01T10:00:01.000Z", "type": "gemini", "content": "old answer"},
    ]);
    let chat = json!({"sessionId": "99999999-0000-4000-8000-000000000000", "projectHash": "x",
        "startTime": "2026-05-01T10:00:00.000Z", "lastUpdated": "2026-05-01T10:00:01.000Z", "messages": messages});
    let folder = "home/.gemini/tmp/slug";
    environment.write(&format!("{folder}/.project_root"), environment.workspace().to_str().unwrap());
    let path = environment.write(&format!("{folder}/chats/session-2026-05-01T10-00-99999999.json"), chat.to_string());
    let ran = answer(&environment, &["--resume", "-p", "new words"], "new answer");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "new answer\n"), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), chat.to_string());
    let [record] = &records(&environment)[..] else { unreachable!("one record") };
    let said: Vec<&str> = record.iter().filter_map(|line| line["content"][0]["text"].as_str()).collect();
    assert_eq!(said, ["old words", "old answer", "new words", "new answer"]);

    let ran = answer(&environment, &["--session-file", path.to_str().unwrap(), "-p", "other words"], "b");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(records(&environment).len(), 2);
    let ran = answer(&environment, &["--session-file", "nowhere.jsonl", "-p", "x"], "-");
    assert_eq!(ran.code, Some(42));
}

#[test]
fn old_records_go_and_damaged_ones_say_so() {
    let environment = TestEnvironment::new();
    assert_eq!(answer(&environment, &["-p", "long ago"], "a").code, Some(0));
    let tmp = environment.home().join(".convoke/tmp");
    let chats = std::fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap().path().join("chats"));
    let chats = chats.into_iter().find(|chats| chats.is_dir()).unwrap();
    let file = std::fs::read_dir(&chats).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"gemini\"", "\"gemimi\"", 1)).unwrap();
    let ran = answer(&environment, &["-r", "-p", "and now"], "b");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("1 lines of the session's record can't be read"), "{}", ran.stderr);

    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(40 * 24 * 60 * 60);
    std::fs::File::open(&file).unwrap().set_modified(long_ago).unwrap();
    environment.write("home/.convoke/settings.json", r#"{"general": {"sessionRetention": {"maxAge": "x"}}}"#);
    assert_eq!(answer(&environment, &["-p", "today"], "c").code, Some(52));
    environment.write("home/.convoke/settings.json", r#"{"general": {"sessionRetention": {"enabled": false}}}"#);
    assert_eq!(answer(&environment, &["-p", "today"], "c").code, Some(0));
    assert!(file.exists());
    environment.write("home/.convoke/settings.json", r#"{"general": {"sessionRetention": {"maxAge": "5w"}}}"#);
    assert_eq!(answer(&environment, &["-p", "today"], "c").code, Some(0));
    assert!(!file.exists());
}

/// Whatever the mask of the process: nobody else may read what was said, or the output that was kept.
#[test]
fn records_and_outputs_are_their_owner_s_only() {
    use std::os::unix::fs::PermissionsExt;
    let environment = TestEnvironment::new();
    environment.write("home/.convoke/settings.json", r#"{"tools": {"truncateToolOutputThreshold": 100}}"#);
    let steps = [json!([call("run_shell_command", json!({"command": "seq 1 1000"}))]), json!([{"text": "Done."}])];
    let file = script(&environment, "answers.jsonl", &steps);
    let mut command = environment.command("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh", CONVOKE, "--fake-responses", &file, "-y", "-p", "count"]);
    let ran = run(command.args(["-m", "gemini-2.5-flash"]).env("GEMINI_API_KEY", "secret-key"), "");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let tmp = environment.home().join(".convoke/tmp");
    let mut folders = vec![(tmp.clone(), false)];
    let mut files = 0;
    while let Some((folder, hidden)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            // What lies in a folder that only its owner enters is out of everybody else's reach.
            let hidden = hidden || meta.permissions().mode() & 0o077 == 0;
            if meta.is_dir() {
                folders.push((entry.path(), hidden));
            } else {
                files += 1;
                assert!(hidden, "{}", entry.path().display());
            }
        }
    }
    assert!(files >= 2, "{files} files in {}", tmp.display());
}

/// Files that say this.
fn saying(environment: &TestEnvironment, text: &str) -> usize {
    let says = |number: &usize| environment.read(&format!("workspace/f{number}")).as_deref() == Some(text);
    (1..=FILES).filter(says).count()
}

const FILES: usize = 150;

/// Prompts that a record still has.
fn prompts(record: &[Value]) -> usize {
    let mut ids: Vec<&Value> = Vec::new();
    for line in record {
        if !line["prompt"].is_null() {
            ids.push(&line["id"]);
        }
        if let Some(at) = ids.iter().position(|id| **id == line["$rewindTo"]) {
            ids.truncate(at);
        }
    }
    ids.len()
}

/// Killed once so many files are back: whoever comes next finishes it, or nothing was begun.
#[test]
fn a_way_back_that_is_killed_is_gone_to_its_end_or_not_at_all() {
    for back in [0, 1, FILES / 3, FILES - 1] {
        let environment = TestEnvironment::new();
        for number in 1..=FILES {
            environment.write(&format!("workspace/f{number}"), "old\n");
        }
        assert_eq!(answer(&environment, &["-p", "first"], "hello").code, Some(0));
        let command = format!("for i in $(seq {FILES}); do echo new > f$i; done; mkdir -p d && echo new > d/g");
        let steps = [json!([call("run_shell_command", json!({"command": command}))]), json!([{"text": "done"}])];
        let file = script(&environment, "change.jsonl", &steps);
        let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-y", "-r", "-p", "second"]), "");
        assert_eq!((ran.code, saying(&environment, "new\n")), (Some(0), FILES), "{}", ran.stderr);

        let file = script(&environment, "none.jsonl", &[]);
        let args = ["--fake-responses", &file, "--resume", "latest", "--rewind", "2"];
        let mut rewind = convoke(&environment, &args);
        let mut child = rewind.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while saying(&environment, "old\n") < back && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();

        // Another session in the folder.
        assert_eq!(answer(&environment, &["-p", "elsewhere"], "hello").code, Some(0));
        let old = saying(&environment, "old\n");
        let record = records(&environment).into_iter().find(|lines| lines[1]["content"][1]["text"] == "first").unwrap();
        match (old, prompts(&record)) {
            (FILES, 1) => assert_eq!(environment.read("workspace/d/g"), None),
            (0, 2) => assert_eq!(back, 0, "something had gone back"),
            mixed => panic!("killed after {back}: {mixed:?}"),
        }
    }
}

#[test]
fn a_session_goes_back_before_its_next_prompt_or_instead_of_one() {
    let environment = TestEnvironment::new();
    environment.write("workspace/a.txt", "by hand\n");
    assert_eq!(answer(&environment, &["-p", "first"], "hello").code, Some(0));
    let write = json!([call("write_file", json!({"file_path": "a.txt", "content": "agent\n"}))]);
    let file = script(&environment, "write.jsonl", &[write, json!([{"text": "done"}])]);
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-y", "-r", "-p", "second"]), "");
    assert_eq!((ran.code, environment.read("workspace/a.txt").as_deref()), (Some(0), Some("agent\n")));

    let listed = answer(&environment, &["-r", "-p", "/rewind"], "-");
    assert!(listed.stdout.contains("2. second") && listed.stdout.contains("a.txt"), "{}", listed.stdout);
    let unknown = answer(&environment, &["-r", "--rewind", "7", "-p", "x"], "-");
    assert_eq!(unknown.code, Some(42), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("there is no such point"), "{}", unknown.stderr);
    environment.write("workspace/a.txt", "by hand again\n");
    let refused = answer(&environment, &["-r", "--rewind", "2"], "-");
    assert_eq!((refused.code, refused.stderr.contains("changed since by somebody else")), (Some(42), true));
    let done = answer(&environment, &["-r", "--rewind", "2", "--rewind-mode", "files", "--rewind-force"], "-");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("Files are as before prompt 2."), "{}", done.stdout);
    assert_eq!(environment.read("workspace/a.txt").as_deref(), Some("by hand\n"));
    let went_on = answer(&environment, &["-r", "--rewind", "2", "--rewind-mode", "conversation", "-p", "third"], "ok");
    assert_eq!((went_on.code, went_on.stdout.ends_with("ok\n")), (Some(0), true), "{}", went_on.stdout);
    assert_eq!(prompts(&records(&environment)[0]), 2);
    assert_eq!(answer(&environment, &["--rewind", "2", "-p", "x"], "-").code, Some(1), "of which session?");
}

/// The contents of the newest request in a trace.
fn rendered(traces: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(traces.join("trace.log")).unwrap();
    let line = log.lines().rfind(|line| line.contains("[Render] Render Context for LLM")).unwrap();
    let details: Value = serde_json::from_str(line.split_once(" | Details: ").unwrap().1).unwrap();
    let asset = details["renderedContext"]["$asset"].as_str().unwrap();
    serde_json::from_slice(&std::fs::read(traces.join("assets").join(asset)).unwrap()).unwrap()
}

#[test]
fn what_the_model_gets_to_see_is_traced_and_survives_a_resume() {
    let environment = TestEnvironment::new();
    environment.write("home/.gemini/settings.json", r#"{"experimental": {"stressTestProfile": true}}"#);
    let traces = environment.workspace().join("traces");
    // Nobody counts the tokens, so that they are estimated.
    let says = |text: &str| {
        let content = json!({"role": "model", "parts": [{"text": text}]});
        json!({"candidates": [{"content": content, "finishReason": "STOP"}]})
    };
    let answer = json!({"method": "generateContentStream", "response": [says("Noted.")]}).to_string() + "\n";
    let summary = json!({"method": "generateContent", "response": says("There were many.")}).to_string() + "\n";
    let file = environment.write("answers.jsonl", answer + &summary.repeat(4)).display().to_string();
    let prompt = |traced: &str, more: &[&str], input: &str| {
        let mut command = convoke(&environment, &["--fake-responses-non-strict", &file]);
        command.args(more).env("GEMINI_CONTEXT_TRACE_DIR", &traces).env("GEMINI_CONTEXT_TRACE_ENABLED", traced);
        let ran = run(&mut command, input);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "Noted.\n"), "{}", ran.stderr);
    };
    prompt("false", &[], "before");
    assert!(!traces.exists(), "nobody wanted it");
    for _ in 0..3 {
        prompt("true", &["--resume", "latest"], &"X".repeat(50_000));
    }
    let mode = std::fs::metadata(&traces).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "a conversation is its owner's only");
    let log = std::fs::read_to_string(traces.join("trace.log")).unwrap();
    assert!(log.contains("Hitting Synchronous Pressure Barrier"), "{log}");
    assert!(log.contains("There were many."), "{log}");
    let before = rendered(&traces);
    assert!(json!(before).to_string().contains("There were many."), "it was compressed");
    assert!(before.iter().all(|turn| turn["id"].as_str().unwrap().len() == 32));

    prompt("true", &["--resume", "latest", "-p", "go on"], "");
    let after = rendered(&traces);
    assert!(after.len() > before.len());
    assert_eq!(after[..before.len()], before[..]);
}
