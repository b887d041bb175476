//! `convoke acp` as an editor has it: a child on two pipes, and messages written by hand.

mod brought;
mod draft;
mod folders;
mod past;
mod rewind;
mod terminals;
mod turns;

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use convoke_testkit::TestEnvironment;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe::{Receiver, Sender};

/// No test waits for time to pass; this only turns a hang into a failure.
const SOON: Duration = Duration::from_secs(60);

/// One answer of the model.
pub(crate) fn turn(parts: Value) -> Value {
    json!([{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}])
}

pub(crate) fn say(text: &str) -> Value {
    turn(json!([{"text": text}]))
}

pub(crate) fn call(name: &str, args: Value) -> Value {
    turn(json!([{"functionCall": {"name": name, "args": args}}]))
}

/// Our agent for an editor; every session of it hears these answers of its model.
pub(crate) fn agent(environment: &TestEnvironment, answers: &[Value]) -> Command {
    let line = |candidates: &Value| {
        json!({"method": "generateContentStream", "response": [{"candidates": candidates}]}).to_string() + "\n"
    };
    let file = environment.write("responses.jsonl", answers.iter().map(line).collect::<String>());
    let mut command = environment.command(env!("CARGO_BIN_EXE_convoke"));
    command.args(["acp", "--model", "gemini-2.5-flash", "--fake-responses"]).arg(file).env("GEMINI_API_KEY", "x");
    command
}

/// An editor and its agent; the agent is killed with the test.
pub(crate) struct Editor {
    child: Child,
    input: Option<Sender>,
    lines: Lines<BufReader<Receiver>>,
    next: u64,
    /// What was said beside the answers, in its order.
    pub(crate) heard: Vec<Value>,
    /// The option that every permission request is answered with; otherwise they are left open.
    pub(crate) choice: Option<&'static str>,
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Editor {
    /// Starts the agent and introduces itself with `capabilities`; says what the agent answered.
    pub(crate) async fn start(command: Command, capabilities: Value) -> (Self, Value) {
        Self::begins(command, json!({"protocolVersion": 1, "clientCapabilities": capabilities})).await
    }

    /// Starts the agent and says `hello`; says what the agent answered.
    pub(crate) async fn begins(mut command: Command, hello: Value) -> (Self, Value) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = Receiver::from_owned_fd(child.stdout.take().unwrap().into()).unwrap();
        let input = Some(Sender::from_owned_fd(child.stdin.take().unwrap().into()).unwrap());
        let lines = BufReader::new(output).lines();
        let mut editor = Self { child, input, lines, next: 0, heard: Vec::new(), choice: None };
        let welcome = editor.ask("initialize", hello).await["result"].clone();
        (editor, welcome)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        self.input.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
    }

    /// Sends a request; its id.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await.expect("it hangs").unwrap();
        serde_json::from_str(&line.expect("the agent goes on")).unwrap()
    }

    /// The answer to a request; keeps what else is said, and answers what it is asked.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.hear(message).await;
        }
    }

    /// Waits for a message that is no answer to a request of ours.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next().await;
            let found = fits(&message);
            self.hear(message.clone()).await;
            if found {
                return message;
            }
        }
    }

    async fn hear(&mut self, message: Value) {
        if let ("session/request_permission", Some(choice)) =
            (message["method"].as_str().unwrap_or_default(), self.choice)
        {
            self.permit(&message, choice).await;
        }
        self.heard.push(message);
    }

    pub(crate) async fn permit(&mut self, request: &Value, choice: &str) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": choice}});
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": outcome})).await;
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.call(method, params).await;
        self.answer(id).await
    }

    /// A new session in the workspace.
    pub(crate) async fn session(&mut self, environment: &TestEnvironment) -> String {
        let made = self.ask("session/new", json!({"cwd": environment.workspace(), "mcpServers": []})).await;
        made["result"]["sessionId"].as_str().unwrap_or_else(|| unreachable!("{made}")).to_owned()
    }

    /// A prompt, and its answer.
    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.begin(session, text).await;
        self.answer(id).await
    }

    pub(crate) async fn begin(&mut self, session: &str, text: &str) -> u64 {
        self.call("session/prompt", json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})).await
    }

    /// The updates of a kind that were heard so far.
    pub(crate) fn updates(&self, kind: &str) -> Vec<&Value> {
        let updates = self.heard.iter().map(|message| &message["params"]["update"]);
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// The text of the chunks of a kind, joined.
    pub(crate) fn said(&self, kind: &str) -> String {
        self.updates(kind).iter().filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Is killed: nobody writes to the agent or reads it any more. It is to end by itself.
    pub(crate) async fn vanish(mut self) -> ExitStatus {
        let (_, nothing) = tokio::net::unix::pipe::pipe().unwrap();
        self.lines = BufReader::new(nothing).lines();
        self.leave().await
    }

    /// Leaves: the agent is to end by itself.
    pub(crate) async fn leave(mut self) -> ExitStatus {
        self.input = None;
        let ended = async {
            // What it still says is of no interest; that it ends is.
            while let Ok(Some(_)) = self.lines.next_line().await {}
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("the agent ends")
    }
}
