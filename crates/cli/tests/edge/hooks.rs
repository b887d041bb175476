//! Hooks of all eleven events, in shell and in Python, under the real binary: without a terminal, for an editor, and in a
//! daemon. An existing configuration, and each surface has the same of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use convoke_testkit::TestEnvironment;
use convoke_testkit::fake_model::FakeModel;
use hyper::Method;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::client::Client;
use crate::editor::Editor;
use crate::process::{Daemon, TOKEN};

const SOON: Duration = Duration::from_secs(60);

const EVENTS: [&str; 11] = [
    "SessionStart",
    "BeforeAgent",
    "BeforeToolSelection",
    "BeforeModel",
    "AfterModel",
    "BeforeTool",
    "Notification",
    "AfterTool",
    "AfterAgent",
    "PreCompress",
    "SessionEnd",
];

const SHELL: &str = r#"#!/bin/bash
told=$(cat)
event=${told#*'"hook_event_name":"'}
event=${event%%'"'*}
noted=noted
[ "$event" = Notification ] && noted=notified
printf '%s\n' "$told" >> "$GEMINI_PROJECT_DIR/$noted"
say() { printf '{"hookSpecificOutput":{%s}}' "$1"; }
case $event in
SessionStart) say '"additionalContext":"it is Monday"' ;;
BeforeAgent) say '"additionalContext":"mind the gap"' ;;
BeforeToolSelection) say '"toolConfig":{"mode":"ANY","allowedFunctionNames":["run_shell_command"]}' ;;
BeforeModel) say '"llm_request":{"config":{"temperature":0.25}}' ;;
AfterModel) case $told in *'"text":"A secret."'*)
  say '"llm_response":{"candidates":[{"content":{"role":"model","parts":["A ******."]}}]}' ;; esac ;;
BeforeTool) say '"tool_input":{"command":"echo rewritten"}' ;;
AfterTool) say '"additionalContext":"the disk is nearly full"' ;;
AfterAgent) printf '{"systemMessage":"it was looked over"}' ;;
esac
"#;

const PYTHON: &str = r#"
import json, os, sys

told = json.load(sys.stdin)
event = told["hook_event_name"]
noted = "notified" if event == "Notification" else "noted"
with open(os.path.join(os.environ["GEMINI_PROJECT_DIR"], noted), "a") as file:
    file.write(json.dumps(told) + "\n")
answer = {
    "SessionStart": {"additionalContext": "it is Monday"},
    "BeforeAgent": {"additionalContext": "mind the gap"},
    "BeforeToolSelection": {"toolConfig": {"mode": "ANY", "allowedFunctionNames": ["run_shell_command"]}},
    "BeforeModel": {"llm_request": {"config": {"temperature": 0.25}}},
    "BeforeTool": {"tool_input": {"command": "echo rewritten"}},
    "AfterTool": {"additionalContext": "the disk is nearly full"},
}.get(event)
if event == "AfterModel" and told["llm_response"].get("text") == "A secret.":
    answer = {"llm_response": {"candidates": [{"content": {"role": "model", "parts": ["A ******."]}}]}}
if answer is not None:
    print(json.dumps({"hookSpecificOutput": answer}))
elif event == "AfterAgent":
    print(json.dumps({"systemMessage": "it was looked over"}))
"#;

/// A configuration of the Gemini CLI with one script for each event, and the model of the session.
struct Stage {
    environment: TestEnvironment,
    model: FakeModel,
}

/// What a surface's client saw of it.
struct Seen {
    said: String,
    all: String,
}

impl Stage {
    async fn new(program: &str, script: &str) -> Self {
        let environment = TestEnvironment::new();
        let script = environment.write("home/hook", script).display().to_string();
        let hook =
            json!({"type": "command", "name": "note", "command": format!("{program} {script}"), "timeout": 60_000});
        let hooks: serde_json::Map<String, Value> =
            EVENTS.iter().map(|event| ((*event).to_owned(), json!([{"hooks": [hook]}]))).collect();
        let settings = json!({"security": {"folderTrust": {"enabled": false}}, "hooks": hooks});
        environment.write("home/.gemini/settings.json", settings.to_string());
        let model = FakeModel::start().await.unwrap();
        model.calls("run_shell_command", json!({"command": "touch as-written"}));
        model.says("A secret.");
        for _ in 0..2 {
            model.says("<state_snapshot>all that matters</state_snapshot>");
        }
        Self { environment, model }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.environment.command(env!("CARGO_BIN_EXE_convoke"));
        command.args(args).env("GEMINI_API_KEY", "x").env("GEMINI_MODEL", "gemini-2.5-flash");
        command.env("GOOGLE_GEMINI_BASE_URL", self.model.gemini_url());
        command
    }

    fn noted(&self, file: &str) -> Vec<Value> {
        let text = self.environment.read(&format!("workspace/{file}")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What is the same wherever it ran.
    async fn holds(self, seen: &Seen, surface: &str) {
        let ended = async {
            while !self.noted("noted").iter().any(|told| told["hook_event_name"] == "SessionEnd") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("the session's end is told");
        let noted = self.noted("noted");
        let mut order: Vec<&str> = noted.iter().map(|told| told["hook_event_name"].as_str().unwrap()).collect();
        order.dedup();
        let expected = [
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
            "PreCompress",
            "SessionEnd",
        ];
        assert_eq!(order, expected, "{surface}");
        let of = |event: &str| noted.iter().find(|told| told["hook_event_name"] == event).unwrap();
        for told in &noted {
            assert_eq!(told["cwd"], json!(self.environment.workspace()), "{surface}: {told}");
            assert!(told["session_id"].is_string() && told["timestamp"].is_string(), "{surface}: {told}");
        }
        assert_eq!(of("SessionStart")["source"], "startup");
        assert_eq!(of("BeforeAgent")["prompt"], "go");
        assert_eq!(of("BeforeTool")["tool_input"]["command"], "touch as-written");
        assert!(of("AfterTool")["tool_response"]["llmContent"].as_str().unwrap().contains("rewritten"));
        assert_eq!(of("AfterAgent")["stop_hook_active"], false);
        assert_eq!(of("PreCompress")["trigger"], "manual");
        assert_eq!(of("SessionEnd")["reason"], "exit");
        let notified = self.noted("notified");
        assert_eq!(notified.len(), 1, "{surface}");
        assert_eq!(notified[0]["notification_type"], "ToolPermission");
        assert!(notified[0]["message"].as_str().unwrap().contains("run_shell_command"), "{surface}");
        // And each had its say.
        let requests = self.model.requests();
        let (first, second) = (&requests[0].body, &requests[1].body);
        let text = first["contents"].to_string();
        assert!(text.contains("it is Monday") && text.contains("mind the gap"), "{surface}: {text}");
        assert_eq!(first["generationConfig"]["temperature"], 0.25, "{surface}");
        let allowed = &first["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"];
        assert_eq!(*allowed, json!(["run_shell_command"]), "{surface}");
        let text = second["contents"].to_string();
        assert!(text.contains("rewritten") && text.contains("the disk is nearly full"), "{surface}: {text}");
        assert!(self.environment.read("workspace/as-written").is_none(), "{surface}");
        assert_eq!(seen.said, "A ******.", "{surface}");
        assert!(seen.all.contains("it was looked over") && !seen.all.contains("A secret"), "{surface}: {}", seen.all);
    }
}

const LANGUAGES: [(&str, &str); 2] = [("bash", SHELL), ("python3", PYTHON)];

#[tokio::test]
async fn hooks_of_every_event_run_without_a_terminal() {
    for (program, script) in LANGUAGES {
        let stage = Stage::new(program, script).await;
        let mut command = stage.command(&["--input-format", "stream-json", "-o", "stream-json", "--on-ask", "wait"]);
        let talking = tokio::task::spawn_blocking(move || {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (mut input, mut lines) =
                (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
            let (mut said, mut all, mut results) = (String::new(), String::new(), 0);
            writeln!(input, "{}", json!({"type": "message", "role": "user", "content": "go"})).unwrap();
            while results < 2 {
                let line = lines.next().expect("it goes on").unwrap();
                let value: Value = serde_json::from_str(&line).unwrap();
                all.push_str(&line);
                match value["type"].as_str().unwrap() {
                    "permission_request" => {
                        let id = &value["request_id"];
                        let answer =
                            json!({"type": "permission_response", "request_id": id, "option_id": "proceed_once"});
                        writeln!(input, "{answer}").unwrap();
                    }
                    "message" if value["role"] == "assistant" && results == 0 => {
                        said.push_str(value["content"].as_str().unwrap());
                    }
                    "result" => {
                        results += 1;
                        if results == 1 {
                            writeln!(input, "{}", json!({"type": "message", "role": "user", "content": "/compress"}))
                                .unwrap();
                        }
                    }
                    _ => {}
                }
            }
            drop(input);
            assert_eq!(child.wait().unwrap().code(), Some(0));
            Seen { said, all }
        });
        let seen = tokio::time::timeout(SOON, talking).await.expect("it ends").unwrap();
        stage.holds(&seen, program).await;
    }
}

#[tokio::test]
async fn hooks_of_every_event_run_for_an_editor() {
    for (program, script) in LANGUAGES {
        let stage = Stage::new(program, script).await;
        let (mut editor, _) = Editor::start(stage.command(&["acp"]), json!({})).await;
        editor.choice = Some("proceed_once");
        let session = editor.session(&stage.environment).await;
        assert_eq!(editor.prompt(&session, "go").await["result"]["stopReason"], "end_turn");
        let said = editor.said("agent_message_chunk");
        assert_eq!(editor.prompt(&session, "/compress").await["result"]["stopReason"], "end_turn");
        let all = json!(editor.heard).to_string();
        assert!(editor.leave().await.success());
        stage.holds(&Seen { said, all }, program).await;
    }
}

#[tokio::test]
async fn hooks_of_every_event_run_in_a_daemon() {
    for (program, script) in LANGUAGES {
        let stage = Stage::new(program, script).await;
        let mut command = stage.command(&["serve", "--port", "0"]);
        let daemon = Daemon::start({
            command.env("QWEN_SERVER_TOKEN", TOKEN);
            command
        });
        let conversation = async {
            let mut client = Client::new(daemon.authority().parse().unwrap(), TOKEN);
            let created = client.expect(Method::POST, "/session", Some(&json!({}))).await.unwrap();
            client.identify(created["clientId"].as_str().unwrap());
            let session = created["sessionId"].as_str().unwrap().to_owned();
            let mut events = client.events(&session).await.unwrap();
            let (mut said, mut all) = (String::new(), String::new());
            for text in ["go", "/compress"] {
                let body = json!({"prompt": [{"type": "text", "text": text}]});
                client.expect(Method::POST, &format!("/session/{session}/prompt"), Some(&body)).await.unwrap();
                loop {
                    let event = events.next().await.unwrap().expect("the stream goes on");
                    all.push_str(&event.to_string());
                    let data = &event["data"];
                    match event["type"].as_str().unwrap() {
                        "permission_request" => {
                            let path = format!("/session/{session}/permission/{}", data["requestId"].as_str().unwrap());
                            let vote = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}});
                            client.expect(Method::POST, &path, Some(&vote)).await.unwrap();
                        }
                        "session_update"
                            if data["update"]["sessionUpdate"] == "agent_message_chunk" && text == "go" =>
                        {
                            said.push_str(data["update"]["content"]["text"].as_str().unwrap());
                        }
                        "turn_complete" => break,
                        _ => {}
                    }
                }
            }
            client.expect(Method::DELETE, &format!("/session/{session}"), None).await.unwrap();
            Seen { said, all }
        };
        let seen = tokio::time::timeout(SOON, conversation).await.expect("it ends");
        stage.holds(&seen, program).await;
        assert_eq!(daemon.end().await.0, Some(0));
    }
}
