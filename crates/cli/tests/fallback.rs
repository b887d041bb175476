//! The real binary when a model can't answer: headless and over ACP, with scripts and with servers.

#![expect(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use convoke_testkit::fake_model::FakeModel;
use convoke_testkit::{Ran, TestEnvironment, run};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CONVOKE: &str = env!("CARGO_BIN_EXE_convoke");
const PRO: &str = "gemini-3-pro-preview";
const FLASH: &str = "gemini-3-flash-preview";

fn convoke(environment: &TestEnvironment, args: &[&str]) -> Command {
    let mut command = environment.command(CONVOKE);
    command.args(args).env("GEMINI_API_KEY", "secret-key");
    command
}

/// A quota of the day, as the Gemini API says it.
fn used_up() -> Value {
    let violation = json!({"quotaId": "GenerateRequestsPerDayPerProjectPerModel"});
    let failure = json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]});
    json!({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your quota.", "details": [failure]})
}

fn busy() -> Value {
    json!({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Slow down."})
}

fn says(text: &str) -> Value {
    let candidate = json!({"content": {"parts": [{"text": text}]}, "finishReason": "STOP"});
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
    json!({"method": "generateContentStream", "response": [{"candidates": [candidate], "usageMetadata": usage}]})
}

fn refuses(error: Value) -> Value {
    json!({"method": "generateContentStream", "status": 429, "error": error})
}

fn script(environment: &TestEnvironment, lines: &[Value]) -> String {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    environment.write("responses.jsonl", lines.join("\n")).display().to_string()
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn auto_goes_on_with_flash_and_says_so() {
    let environment = TestEnvironment::new();
    // Strict: a question to a classifier would have taken the first line.
    let file = script(&environment, &[refuses(used_up()), says("Hello from flash.")]);
    let args = ["--fake-responses", &file, "-p", "hi"];
    let text = run(&mut convoke(&environment, &args), "");
    assert_eq!((text.code, text.stdout.as_str()), (Some(0), "Hello from flash.\n"), "{}", text.stderr);
    assert!(text.stderr.contains(&format!("{PRO} is out of quota until ")), "{}", text.stderr);
    assert!(text.stderr.contains(&format!("Going on with {FLASH}.")), "{}", text.stderr);

    let ran = run(convoke(&environment, &args).args(["-o", "stream-json"]), "");
    let lines = lines(&ran);
    assert!(lines.iter().any(|line| line["severity"] == "warning" && line["message"].to_string().contains(FLASH)));
    let result = lines.last().unwrap();
    assert_eq!(result["status"], "success");
    assert_eq!(
        result["stats"]["models"][FLASH]["total_tokens"], 15,
        "the model that answered is the one that is billed"
    );
}

#[test]
fn busy_is_left_silently_after_three_attempts() {
    let environment = TestEnvironment::new();
    let busy = || refuses(busy());
    let file = script(&environment, &[busy(), busy(), busy(), says("a")]);
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-p", "hi"]), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "a\n"), "{}", ran.stderr);
}

#[test]
fn a_model_that_was_named_ends_with_45_and_the_next_reset() {
    let environment = TestEnvironment::new();
    let file = script(&environment, &[refuses(used_up()), says("not asked")]);
    let ran = run(&mut convoke(&environment, &["--fake-responses", &file, "-m", "pro", "-p", "hi"]), "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(45), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("You exceeded your quota."), "{}", ran.stderr);
    assert!(ran.stderr.contains("the next one is back at 2"), "{}", ran.stderr);
}

#[test]
fn empty_answers_and_broken_calls_are_taken_back() {
    let environment = TestEnvironment::new();
    let candidate = json!({"content": {"parts": [{"text": "half"}]}, "finishReason": "MALFORMED_FUNCTION_CALL"});
    let broken = json!({"method": "generateContentStream", "response": [{"candidates": [candidate]}]});
    let file = script(&environment, &[broken, says(" "), says("whole")]);
    let args = ["--fake-responses", &file, "-m", "flash", "-p", "hi", "-o", "json"];
    let ran = run(&mut convoke(&environment, &args), "");
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &object["response"]), (Some(0), &json!("whole")), "{}", ran.stderr);
}

async fn finish(mut command: Command) -> Ran {
    tokio::task::spawn_blocking(move || run(&mut command, "")).await.unwrap()
}

fn models_asked(model: &FakeModel) -> Vec<String> {
    let path = |path: &str| path.split("/models/").nth(1).and_then(|rest| rest.split(':').next()).map(str::to_owned);
    model.requests().iter().filter_map(|request| path(&request.path)).collect()
}

#[tokio::test]
async fn a_classifier_decides_and_one_that_talks_nonsense_costs_one_call() {
    for (said, chosen) in [
        ("{\"complexity_reasoning\": \"r\", \"complexity_score\": 95}", PRO),
        ("{\"complexity_reasoning\": \"r\", \"complexity_score\": 10}", FLASH),
        ("I can't say.", PRO),
    ] {
        let environment = TestEnvironment::new();
        let model = FakeModel::start().await.unwrap();
        model.says(said).says("done");
        let mut command = convoke(&environment, &["-p", "hi"]);
        command.env("GOOGLE_GEMINI_BASE_URL", model.gemini_url());
        let ran = finish(command).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "done\n"), "{said}: {}", ran.stderr);
        assert_eq!(models_asked(&model), ["gemini-3.1-flash-lite", chosen], "{said}");
        let config = &model.requests()[0].body["generationConfig"];
        assert_eq!((&config["temperature"], &config["maxOutputTokens"]), (&json!(0.0), &json!(1024)));
    }
}

#[tokio::test]
async fn a_chain_goes_from_gemini_to_the_users_own_server() {
    let environment = TestEnvironment::new();
    let (gemini, local) = (FakeModel::start().await.unwrap(), FakeModel::start().await.unwrap());
    gemini.fails(429, used_up());
    local.says("Hello from here.");
    let settings = json!({
        "modelConfigs": {"modelChains": {"mine": ["gemini-2.5-flash", "mine/llama"]}},
        "providers": {"mine": {"type": "openai", "baseUrl": local.openai_url()}},
    });
    environment.write("home/.convoke/settings.json", settings.to_string());
    let mut command = convoke(&environment, &["-m", "gemini-2.5-flash", "-p", "hi", "-o", "json"]);
    command.env("GOOGLE_GEMINI_BASE_URL", gemini.gemini_url());
    let ran = finish(command).await;
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(object["response"], "Hello from here.");
    assert!(object["stats"]["models"].get("mine/llama").is_some(), "{object}");
    let request = &local.requests()[0].body;
    assert_eq!(request["model"], "llama");
    assert_eq!(request.get("top_k"), None, "parameters are those of the model that is called");
}

/// `convoke acp` and somebody at the other end.
struct Editor {
    child: Arc<Mutex<Child>>,
    /// Gone when the editor is; until then a thread waits to end an agent that says nothing more.
    alive: Option<mpsc::Sender<()>>,
    watchdog: Option<JoinHandle<()>>,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    updates: Vec<Value>,
}

impl Editor {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let child = Arc::new(Mutex::new(child));
        let (alive, gone) = mpsc::channel::<()>();
        let watched = Arc::clone(&child);
        let watchdog = std::thread::spawn(move || {
            if gone.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                watched.lock().unwrap().kill().unwrap();
            }
        });
        Self { child, alive: Some(alive), watchdog: Some(watchdog), stdin, stdout, updates: Vec::new() }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    /// The answer to request `id`; questions on the way get `choice`.
    fn answer(&mut self, id: u64, choice: &str) -> (Value, Vec<Value>) {
        let mut questions = Vec::new();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the agent is gone");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["method"] == "session/request_permission" {
                let outcome = json!({"outcome": {"outcome": "selected", "optionId": choice}});
                self.send(&json!({"jsonrpc": "2.0", "id": message["id"], "result": outcome}));
                questions.push(message["params"].clone());
            } else if message["method"] == "session/update" {
                self.updates.push(message["params"]["update"].clone());
            } else if message["id"] == id {
                return (message, questions);
            }
        }
    }

    fn call(&mut self, id: u64, method: &str, params: Value, choice: &str) -> (Value, Vec<Value>) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.answer(id, choice)
    }

    fn session(&mut self, environment: &TestEnvironment) -> Value {
        self.call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}}), "");
        let new = json!({"cwd": environment.workspace(), "mcpServers": []});
        let (made, _) = self.call(2, "session/new", new, "");
        made["result"]["sessionId"].clone()
    }

    fn prompt(&mut self, id: u64, session: &Value, choice: &str) -> (Value, Vec<Value>) {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]});
        self.call(id, "session/prompt", prompt, choice)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.alive.take();
        let _ = self.watchdog.take().map(JoinHandle::join);
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[tokio::test]
async fn over_acp_somebody_is_asked_and_the_announced_model_is_the_one_that_is_called() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    model.fails(429, used_up()).says("one").says("two");
    let mut command = convoke(&environment, &["acp", "-m", "pro"]);
    command.env("GOOGLE_GEMINI_BASE_URL", model.gemini_url());
    let talk = move || {
        let mut editor = Editor::start(command);
        let session = editor.session(&environment);
        let (first, questions) = editor.prompt(3, &session, "retry_always");
        let (second, none) = editor.prompt(4, &session, "stop");
        (first, questions, second, none, std::mem::take(&mut editor.updates))
    };
    let (first, questions, second, none, updates) = tokio::task::spawn_blocking(talk).await.unwrap();
    assert_eq!(first["result"]["stopReason"], "end_turn", "{first}");
    assert_eq!(second["result"]["stopReason"], "end_turn", "{second}");
    assert_eq!((questions.len(), none.len()), (1, 0), "always is always");
    let question = &questions[0];
    let title = question["toolCall"]["title"].as_str().unwrap();
    assert!(title.starts_with(&format!("{PRO} is out of quota until ")), "{title}");
    assert!(title.ends_with(&format!("Go on with {FLASH}?")), "{title}");
    let options: Vec<_> = question["options"].as_array().unwrap().iter().map(|one| &one["optionId"]).collect();
    assert_eq!(options, ["retry_always", "retry_once", "retry_later", "stop", "upgrade"]);
    let announced: Vec<_> = updates
        .iter()
        .filter(|update| update["sessionUpdate"] == "session_info_update")
        .map(Value::to_string)
        .collect();
    assert_eq!(announced.len(), 3, "{announced:?}");
    assert!(announced[0].contains(PRO) && announced[1].contains(FLASH) && announced[2].contains(FLASH));
    assert_eq!(models_asked(&model), [PRO, FLASH, FLASH]);
}

#[tokio::test]
async fn over_acp_a_stop_ends_the_turn_and_the_session_goes_on() {
    let environment = TestEnvironment::new();
    let model = FakeModel::start().await.unwrap();
    model.fails(429, used_up()).says("back again");
    let mut command = convoke(&environment, &["acp", "-m", "pro"]);
    command.env("GOOGLE_GEMINI_BASE_URL", model.gemini_url());
    let talk = move || {
        let mut editor = Editor::start(command);
        let session = editor.session(&environment);
        let (first, _) = editor.prompt(3, &session, "stop");
        (first, editor.prompt(4, &session, "stop").0)
    };
    let (first, second) = tokio::task::spawn_blocking(talk).await.unwrap();
    assert!(first["error"].to_string().contains("stopped rather than go on"), "{first}");
    assert_eq!(second["result"]["stopReason"], "end_turn", "{second}");
    assert_eq!(models_asked(&model), [PRO, PRO], "who stops means the same model");
}
