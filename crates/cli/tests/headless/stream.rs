//! `--on-ask`, and a conversation over stdin and stdout.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use convoke_testkit::{TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{call, convoke, lines, script};

/// A run whose stdin stays open.
struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, line: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads up to the next line of this type.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "a {kind} must come");
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["type"] == kind {
                return value;
            }
        }
    }

    fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().unwrap().code()
    }
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

const STREAM: [&str; 4] = ["--input-format", "stream-json", "-o", "stream-json"];

fn writing(environment: &TestEnvironment) -> String {
    let write = call("write_file", json!({"file_path": "made.txt", "content": "x\n"}));
    script(environment, &[json!([write]), json!([{"text": "done"}])])
}

#[test]
fn a_question_is_a_line_and_so_is_its_answer() {
    for (answer, made, decision) in [("proceed_once", true, "accept"), ("cancel", false, "reject")] {
        let environment = TestEnvironment::new();
        let file = writing(&environment);
        let args = [&STREAM[..], &["--on-ask", "wait", "--fake-responses", &file]].concat();
        let mut talk = Talk::start(convoke(&environment, &args));
        talk.send(&message("write it"));
        let asked_about = talk.until("tool_use")["tool_id"].clone();
        let question = talk.until("permission_request");
        assert_eq!(question["tool_id"], asked_about, "what it is about is known when it is asked");
        assert_eq!((&question["tool_name"], &question["timeout_ms"]), (&json!("write_file"), &json!(300_000)));
        assert_eq!(question["content"][0]["new_text"], "x\n");
        let offered = question["options"].as_array().unwrap();
        assert!(offered.iter().any(|option| option["option_id"] == answer), "{question}");
        talk.send(&json!({"type": "permission_response", "request_id": question["request_id"], "option_id": answer}));
        let resolved = talk.until("permission_resolved");
        assert_eq!((&resolved["outcome"], &resolved["option_id"]), (&json!("selected"), &json!(answer)));
        assert_eq!(talk.until("result")["status"], "success", "{decision}");
        assert_eq!(talk.end(), Some(0));
        assert_eq!(environment.read("workspace/made.txt").is_some(), made);
    }
}

#[test]
fn a_question_never_waits_for_ever() {
    let environment = TestEnvironment::new();
    let file = writing(&environment);
    let args =
        [&STREAM[..], &["--on-ask", "wait", "--on-ask-timeout", "1", "--fake-responses", &file, "write"]].concat();
    let mut talk = Talk::start(convoke(&environment, &args));
    assert_eq!(talk.until("permission_resolved")["reason"], "timeout");
    assert_eq!(talk.until("result")["status"], "success", "the model was told, and went on");
    assert_eq!(talk.end(), Some(0));

    let mut talk = Talk::start(convoke(&environment, &args));
    talk.until("permission_request");
    drop(talk.input.take());
    assert_eq!(talk.until("permission_resolved")["outcome"], "cancelled");
    assert_eq!(talk.end(), Some(0));
    assert_eq!(environment.read("workspace/made.txt"), None);
}

#[test]
fn a_question_of_the_model_s_hangs_nowhere() {
    let environment = TestEnvironment::new();
    let options = json!([{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]);
    let which = json!({"question": "Which?", "header": "Pick", "type": "choice", "options": options});
    let ask = call("ask_user", json!({"questions": [which]}));
    let file = script(&environment, &[json!([ask]), json!([{"text": "done"}])]);
    let args = ["--fake-responses", &file, "-o", "stream-json", "-p", "go"];
    for how in ["deny", "fail"] {
        let ran = run(convoke(&environment, &args).args(["--on-ask", how]), "");
        let lines = lines(&ran);
        let result = lines.iter().find(|line| line["type"] == "tool_result").unwrap();
        // Who can't be asked is not on offer, whatever becomes of calls that need a permission.
        assert_eq!((ran.code, &result["error"]["type"]), (Some(0), &json!("tool_not_registered")), "{how}");
    }
    let args = [&STREAM[..], &["--fake-responses", &file, "--on-ask", "wait", "--on-ask-timeout", "1", "go"]].concat();
    let mut talk = Talk::start(convoke(&environment, &args));
    assert_eq!(talk.until("permission_request")["content"][0]["text"], "Which?\n- A: a\n- B: b");
    assert_eq!(talk.until("permission_resolved")["reason"], "timeout");
    let told = talk.until("tool_result")["output"].clone();
    assert_eq!(told, "User dismissed ask_user dialog without answering.");
    assert_eq!(talk.until("result")["status"], "success");
    assert_eq!(talk.end(), Some(0));
}

#[test]
fn a_refused_call_ends_the_run_if_that_is_wanted() {
    let environment = TestEnvironment::new();
    let file = writing(&environment);
    let args = ["--fake-responses", &file, "-p", "write", "--on-ask", "fail"];
    let ran = run(&mut convoke(&environment, &args), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(46), ""));
    assert!(ran.stderr.contains("a call of write_file was refused"), "{}", ran.stderr);
    assert_eq!(environment.read("workspace/made.txt"), None);
    let ran = run(convoke(&environment, &args).args(["-o", "stream-json"]), "");
    let last = lines(&ran).pop().unwrap();
    assert_eq!((ran.code, &last["error"]["type"]), (Some(46), &json!("denied")));
    let ran = run(convoke(&environment, &args).args(["-o", "json"]), "");
    let error: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!((ran.code, &error["error"]["code"]), (Some(46), &json!(46)));
    let ran = run(convoke(&environment, &args).arg("-y"), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "what is allowed is not asked about");
}

#[test]
fn what_nobody_could_answer_is_refused() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "ok"}])]);
    for more in [
        &["--on-ask", "wait"][..],
        &["--on-ask", "wait", "-o", "stream-json"],
        &["--input-format", "stream-json"],
        &["--input-format", "stream-json", "-o", "json"],
        &["-i", "x"],
    ] {
        let args = [&["--fake-responses", &file][..], if more[0] == "-i" { &[] } else { &["-p", "hi"] }, more].concat();
        let ran = run(&mut convoke(&environment, &args), "");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(42), ""), "{more:?}: {}", ran.stderr);
    }
}

#[test]
fn prompts_follow_each_other_until_stdin_ends() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[json!([{"text": "first"}]), json!([{"text": "second"}])]);
    let args = [&STREAM[..], &["--fake-responses", &file]].concat();
    let mut talk = Talk::start(convoke(&environment, &args));
    let session = talk.until("init")["session_id"].clone();
    assert!(session.is_string());
    for (prompt, answer) in [("one", "first"), ("two", "second")] {
        talk.send(&json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": prompt}]}}));
        assert_eq!(talk.until("message")["content"], prompt);
        assert_eq!(talk.until("message")["content"], answer);
        assert_eq!(talk.until("result")["status"], "success");
    }
    talk.send(&json!({"type": "what"}));
    assert!(talk.until("error")["message"].as_str().unwrap().contains("\"what\""));
    assert_eq!(talk.end(), Some(0));
    let nothing = run(&mut convoke(&environment, &args), "");
    assert_eq!(nothing.code, Some(42), "{}", nothing.stdout);
}

#[test]
fn an_interrupt_ends_the_running_prompt() {
    let environment = TestEnvironment::new();
    let wait = call("run_shell_command", json!({"command": "echo begun; sleep 1000"}));
    let file = script(&environment, &[json!([wait]), json!([{"text": "never"}])]);
    let args = [&STREAM[..], &["-y", "--fake-responses", &file, "go"]].concat();
    let mut talk = Talk::start(convoke(&environment, &args));
    talk.until("tool_use");
    talk.send(&json!({"type": "interrupt"}));
    assert_eq!(talk.until("result")["error"]["type"], "cancelled");
    assert_eq!(talk.end(), Some(130));
}

/// A run at a command that waits for `ring`, and to which a word was said meanwhile.
fn steered(environment: &TestEnvironment, more: &[Value]) -> Talk {
    let bell = environment.workspace().join("bell");
    assert!(Command::new("mkfifo").arg(&bell).status().unwrap().success());
    let wait = call("run_shell_command", json!({"command": "read line < bell; echo $line"}));
    let answers: Vec<Value> = std::iter::once(json!([wait])).chain(more.iter().cloned()).collect();
    let file = script(environment, &answers);
    let args = [&STREAM[..], &["-y", "--fake-responses", &file, "-m", "gemini-2.5-flash", "go"]].concat();
    let mut talk = Talk::start(convoke(environment, &args));
    talk.until("tool_use");
    talk.send(&message("a word in between"));
    // Lines are taken in their order: once this one is complained of, the other has been.
    talk.send(&json!({"type": "what"}));
    talk.until("error");
    talk
}

fn ring(environment: &TestEnvironment) {
    std::fs::write(environment.workspace().join("bell"), "rang\n").unwrap();
}

#[test]
fn a_word_that_a_limit_or_an_interrupt_kept_from_being_read_is_the_next_prompt() {
    for limited in [true, false] {
        let environment = TestEnvironment::new();
        if limited {
            environment.write("home/.convoke/settings.json", r#"{"model": {"maxSessionTurns": 1}}"#);
        }
        let mut talk = steered(&environment, &[json!([{"text": "heard"}]), json!([{"text": "and on"}])]);
        if limited {
            ring(&environment);
        } else {
            talk.send(&json!({"type": "interrupt"}));
        }
        let kind = if limited { "max_turns" } else { "cancelled" };
        assert_eq!(talk.until("result")["error"]["type"], kind);
        let prompt = talk.until("message");
        assert_eq!((&prompt["role"], &prompt["content"]), (&json!("user"), &json!("a word in between")));
        assert_eq!(talk.until("message")["content"], "heard");
        assert_eq!(talk.until("result")["status"], "success");
        // The run goes on for as long as stdin is open.
        talk.send(&message("more"));
        assert_eq!(talk.until("message")["content"], "more");
        assert_eq!(talk.until("message")["content"], "and on");
        assert_eq!(talk.until("result")["status"], "success");
        assert_eq!(talk.end(), Some(0), "the last prompt's code is the process's");
    }
}

#[test]
fn what_a_signal_kept_from_being_read_is_told() {
    let environment = TestEnvironment::new();
    let mut talk = steered(&environment, &[json!([{"text": "never"}])]);
    let pid = talk.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let told = talk.until("error");
    assert_eq!(told["severity"], "warning");
    assert_eq!(told["message"], "the run is over, and messages that waited were not read: 1");
    assert_eq!(talk.until("result")["error"]["type"], "cancelled");
    assert_eq!(talk.end(), Some(130));
}

#[test]
fn a_message_reaches_the_running_prompt_and_a_command_waits_for_its_end() {
    let environment = TestEnvironment::new();
    let bell = environment.workspace().join("bell");
    assert!(Command::new("mkfifo").arg(&bell).status().unwrap().success());
    let wait = call("run_shell_command", json!({"command": "read line < bell; echo $line"}));
    let file = script(&environment, &[json!([wait]), json!([{"text": "Both done."}])]);
    let args = [&STREAM[..], &["-y", "--fake-responses", &file, "-m", "gemini-2.5-flash", "go"]].concat();
    let mut talk = Talk::start(convoke(&environment, &args));
    talk.until("tool_use");
    talk.send(&message("and the tests, please"));
    talk.send(&message("/stats"));
    talk.send(&message("thanks"));
    // Lines are taken in their order: once this one is complained of, the others have been.
    talk.send(&json!({"type": "what"}));
    talk.until("error");
    std::fs::write(&bell, "rang\n").unwrap();
    assert!(talk.until("tool_result")["output"].as_str().unwrap().contains("rang"));
    let said = |line: Value| (line["role"].clone(), line["content"].as_str().unwrap().to_owned());
    assert_eq!(said(talk.until("message")), (json!("user"), "and the tests, please".to_owned()));
    assert_eq!(said(talk.until("message")), (json!("assistant"), "Both done.".to_owned()));
    assert_eq!(talk.until("result")["status"], "success");
    // A command is no word to a model, and what comes behind it keeps its place.
    assert_eq!(said(talk.until("message")).1, "/stats");
    assert!(said(talk.until("message")).1.contains("gemini-2.5-flash: 2 request(s)"));
    assert_eq!(talk.until("result")["status"], "success");
    assert_eq!(said(talk.until("message")).1, "thanks");
    assert_eq!(talk.until("result")["status"], "error", "the script is over");
    assert_eq!(talk.end(), Some(1));
}
