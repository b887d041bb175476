//! An ACP agent that does what its prompt says, for tests of whoever drives agents.
//!
//! It writes its JSON-RPC by hand, so that it and the `acp` room can't share a mistake. Tool calls, options and texts
//! are those of the `qwen` peer in its recorded transcripts. [`Script`] says what it does at the start, the prompt what
//! it does in a turn:
//!
//! | Prompt contains | Turn |
//! |---|---|
//! | `approvals at once` | two permission requests, both open |
//! | `two approvals` | two permission requests, one after the other, as the peer does |
//! | `many approvals n=N` | N times the turn of `approval` |
//! | `approval` | one permission request; `classifier` in it offers the peer's auto-mode options |
//! | `withdraw` | a permission request, withdrawn with `$/cancel_request`, then text |
//! | `flood scenario n=N pad=P` | N chunks of P bytes, as fast as they are taken |
//! | `slow scenario n=N` | N chunks `tick0 ` …, 20 ms apart |
//! | `endless line` | a line that never ends |
//! | `rubbish` | lines that are no JSON-RPC, then text |
//! | `unknown update` | an update of an unknown kind, with unknown fields, then text |
//! | `read a file` | `fs/read_text_file`, and its answer as text |
//! | `deeds` | a file, a terminal and a tool call without asking, and the client's answers as text |
//! | `usage` | `usage_update`, then text |
//! | `ignore cancel` | nothing, whatever comes |
//! | `hang` | nothing, until `session/cancel` |
//! | `fail` | a JSON-RPC error 429 with data |
//! | `exit N` | the process exits with N |
//! | `echo` | the prompt's text again |
//! | anything else | `Hello from mock.` |

mod chaos;
mod offers;
mod store;
mod turn;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::binary::binary_beside_tests;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use chaos::Chaos;
use chaos::Step;

/// Lines on their way to stdout; small, so that a reader that stops is felt.
const OUTGOING_MAX: usize = 16;

/// What the agent does before any prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Exits with this code instead of reading anything.
    pub exit_at_start: Option<u8>,
    /// Never answers `initialize`.
    pub silent: bool,
    /// Prints lines that are no JSON-RPC before everything else.
    pub rubbish: bool,
    /// Writes a line that never ends instead of reading anything.
    pub endless_line: bool,
    /// The version that `initialize` answers.
    pub protocol_version: u16,
    /// Makes session ids that are no UUIDs: `odd session 1`.
    pub odd_ids: bool,
    /// Stays alive when its stdin is closed.
    pub ignore_eof: bool,
    /// Offers the models `small` and `large` through `session/set_model`, and two slash commands.
    pub models: bool,
    /// Offers the same models as a config option instead.
    pub config_options: bool,
    /// Keeps sessions that were prompted in this file, and loads them from it.
    pub store: Option<PathBuf>,
    /// Exits with this code when it is asked for a new session.
    pub exit_at_new: Option<u8>,
    /// What it does wrong at one step, as a process.
    pub chaos: Option<Chaos>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            exit_at_start: None,
            silent: false,
            rubbish: false,
            endless_line: false,
            protocol_version: 1,
            odd_ids: false,
            ignore_eof: false,
            models: false,
            config_options: false,
            store: None,
            exit_at_new: None,
            chaos: None,
        }
    }
}

impl Script {
    /// Reads the arguments of the executable: `--exit-at-start=N`, `--silent`, `--rubbish`, `--endless-line`,
    /// `--protocol-version=N`, `--odd-ids`, `--ignore-eof`, `--models`, `--config-options`, `--store=FILE`,
    /// `--exit-at-new=N`, and `--chaos=KIND@STEP` with `--armed-by=FILE`, which lets only one agent do it: the one that
    /// finds that file. `None` if there is any other.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Option<Self> {
        let (mut script, mut armed_by) = (Self::default(), None);
        for arg in args {
            match arg.split_once('=').unwrap_or((&arg, "")) {
                ("--exit-at-start", code) => script.exit_at_start = Some(code.parse().ok()?),
                ("--protocol-version", version) => script.protocol_version = version.parse().ok()?,
                ("--store", file) => script.store = Some(file.into()),
                ("--exit-at-new", code) => script.exit_at_new = Some(code.parse().ok()?),
                ("--chaos", what) => script.chaos = Some(Chaos::parse(what)?),
                ("--armed-by", file) => armed_by = Some(file.into()),
                ("--silent", "") => script.silent = true,
                ("--rubbish", "") => script.rubbish = true,
                ("--endless-line", "") => script.endless_line = true,
                ("--odd-ids", "") => script.odd_ids = true,
                ("--ignore-eof", "") => script.ignore_eof = true,
                ("--models", "") => script.models = true,
                ("--config-options", "") => script.config_options = true,
                _ => return None,
            }
        }
        if let Some(chaos) = &mut script.chaos {
            chaos.armed_by = armed_by;
        }
        Some(script)
    }
}

/// The executable of this agent, beside the running test; built first if a lone `cargo test -p` left it out.
///
/// # Panics
///
/// If it can't be built.
#[must_use]
pub fn scripted_agent_binary() -> PathBuf {
    binary_beside_tests("scripted-acp-agent")
}

/// Runs the agent until its input ends, and returns the code to exit with.
pub async fn run_scripted_agent(
    script: Script,
    input: impl AsyncRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> u8 {
    if let Some(code) = script.exit_at_start {
        return code;
    }
    let (out, lines) = mpsc::channel(OUTGOING_MAX);
    let (exit, mut exits) = mpsc::channel(1);
    let agent = Agent(Arc::new(Shared { script, out, exit, next: AtomicU64::new(1), state: Mutex::default() }));
    let mut tasks = JoinSet::new();
    tasks.spawn(write_lines(lines, output));
    if agent.0.script.rubbish {
        agent.rubbish().await;
    }
    if agent.0.script.endless_line {
        agent.clone().endless_line().await;
    }
    let mut input = BufReader::new(input).lines();
    loop {
        let line = tokio::select! {
            Some(code) = exits.recv() => return code,
            line = input.next_line() => line,
        };
        match line {
            Ok(Some(line)) => agent.receive(&line, &mut tasks).await,
            Ok(None) | Err(_) if agent.0.script.ignore_eof => std::future::pending().await,
            Ok(None) | Err(_) => return 0,
        }
    }
}

async fn write_lines(mut lines: mpsc::Receiver<Vec<u8>>, mut output: impl AsyncWrite + Unpin) {
    while let Some(line) = lines.recv().await {
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

#[derive(Clone)]
struct Agent(Arc<Shared>);

struct Shared {
    script: Script,
    out: mpsc::Sender<Vec<u8>>,
    exit: mpsc::Sender<u8>,
    /// Numbers requests, sessions and tool calls.
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Open requests to the client.
    asked: HashMap<u64, oneshot::Sender<Value>>,
    /// Each session's folder and the cancellation of its running turn.
    sessions: HashMap<String, (String, CancellationToken)>,
}

impl Agent {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.0.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn write(&self, text: impl Into<Vec<u8>>) {
        // A client that is gone is noticed at the end of the input.
        let _ = self.0.out.send(text.into()).await;
    }

    async fn send(&self, message: Value) {
        self.write(format!("{message}\n")).await;
    }

    /// Tells the client of progress, and keeps that where sessions are kept.
    async fn update(&self, session: &str, update: Value) {
        self.keep(session, &update);
        self.notify("session/update", json!({"sessionId": session, "update": update})).await;
    }

    async fn notify(&self, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    async fn answer(&self, id: &Value, result: Result<Value, Value>) {
        let (key, value) = match result {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        self.send(json!({"jsonrpc": "2.0", "id": id, key: value})).await;
    }

    /// Asks the client. The whole answer comes through the receiver.
    async fn ask(&self, method: &str, params: Value) -> (u64, oneshot::Receiver<Value>) {
        let id = self.number();
        let (sender, receiver) = oneshot::channel();
        self.state().asked.insert(id, sender);
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        (id, receiver)
    }

    async fn rubbish(&self) {
        self.write("Loading model weights... 100%\n\n{\"jsonrpc\":\"2.0\"\n[1, 2]\n").await;
        self.write(b"\xff\xfe not text\n{\"jsonrpc\":\"2.0\",\"id\":\"never-asked\",\"result\":{}}\n".as_slice()).await;
    }

    async fn endless_line(self) {
        let chunk = vec![b'x'; 64 * 1024];
        while self.0.out.send(chunk.clone()).await.is_ok() {}
    }

    async fn receive(&self, line: &str, tasks: &mut JoinSet<()>) {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return };
        let (id, params) = (&message["id"], &message["params"]);
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        match message["method"].as_str() {
            Some("initialize") => self.chaos(Step::Initialize, &session).await,
            Some("session/new") => self.chaos(Step::New, &session).await,
            Some("session/load") => self.chaos(Step::Load, &session).await,
            Some("session/set_mode") => self.chaos(Step::Mode, &session).await,
            Some("session/cancel") => self.chaos(Step::Cancel, &session).await,
            Some("session/close") => self.chaos(Step::Close, &session).await,
            _ => {}
        }
        match message["method"].as_str() {
            None => {
                let asked = id.as_u64().and_then(|id| self.state().asked.remove(&id));
                if let Some(asked) = asked {
                    // The turn may have stopped waiting.
                    let _ = asked.send(message);
                }
            }
            Some("initialize") if self.0.script.silent => {}
            Some("initialize") => {
                let offered = if self.closes_sessions() { json!({"close": {}}) } else { json!({}) };
                let about = json!({
                    "protocolVersion": self.0.script.protocol_version,
                    "agentInfo": {"name": "scripted", "title": "Scripted agent", "version": "1.0.0"},
                    "authMethods": [],
                    "agentCapabilities": {
                        "loadSession": self.0.script.store.is_some(),
                        "sessionCapabilities": offered,
                        "promptCapabilities": {"image": false, "audio": false, "embeddedContext": true},
                        "_meta": {"scripted": true},
                    },
                });
                self.answer(id, Ok(about)).await;
            }
            Some("session/new") if self.0.script.exit_at_new.is_some() => {
                // The channel holds one: the first exit wins.
                let _ = self.0.exit.send(self.0.script.exit_at_new.unwrap_or_default()).await;
            }
            Some("session/load") if self.0.script.store.is_some() => {
                let result = self.load_session(&session, params).await;
                self.answer(id, result).await;
            }
            Some("session/new") => {
                let made = self.new_session(params);
                if self.0.script.models {
                    self.announce_commands(&made["sessionId"]).await;
                }
                self.answer(id, Ok(made)).await;
            }
            Some("session/set_model") if self.0.script.models => {
                let result = offers::take_model(&params["modelId"]).map(|_| json!({}));
                self.answer(id, result).await;
            }
            Some("session/set_config_option") if self.0.script.config_options => {
                let result = offers::take_model(&params["value"])
                    .map(|model| json!({"configOptions": offers::config_options(model)}));
                self.answer(id, result).await;
            }
            Some("session/set_mode") => {
                self.answer(id, Ok(json!({}))).await;
                let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": params["modeId"]});
                self.notify("session/update", json!({"sessionId": session, "update": update})).await;
            }
            Some("session/close") if self.closes_sessions() => self.answer(id, Ok(json!({}))).await,
            Some("session/cancel") => {
                let cancel = self.state().sessions.get(&session).map(|(_, cancel)| cancel.clone());
                if let Some(cancel) = cancel {
                    cancel.cancel();
                }
            }
            Some("session/prompt") => {
                let cancel = CancellationToken::new();
                let cwd = match self.state().sessions.get_mut(&session) {
                    Some((cwd, current)) => {
                        *current = cancel.clone();
                        cwd.clone()
                    }
                    None => String::new(),
                };
                let text: String =
                    params["prompt"].as_array().into_iter().flatten().filter_map(|b| b["text"].as_str()).collect();
                for block in params["prompt"].as_array().into_iter().flatten() {
                    self.keep(&session, &json!({"sessionUpdate": "user_message_chunk", "content": block}));
                }
                let turn = turn::Turn { agent: self.clone(), session, cwd, cancel };
                let (agent, id) = (self.clone(), id.clone());
                tasks.spawn(async move {
                    let result = turn.run(&text).await;
                    agent.answer(&id, result).await;
                });
            }
            Some(_) if id.is_null() => {}
            Some(method) => {
                let error = json!({"code": -32601, "message": format!("Method not found: {method}")});
                self.answer(id, Err(error)).await;
            }
        }
    }

    fn new_session(&self, params: &Value) -> Value {
        let chosen = params["_meta"]["convoke.sessionId"].as_str();
        let id = match (chosen, self.0.script.odd_ids) {
            (_, true) => format!("odd session {}", self.number()),
            (Some(chosen), false) => chosen.to_owned(),
            (None, false) => uuid::Uuid::new_v4().to_string(),
        };
        let cwd = params["cwd"].as_str().unwrap_or_default().to_owned();
        self.state().sessions.insert(id.clone(), (cwd, CancellationToken::new()));
        let mut made = self.describe();
        made["sessionId"] = json!(id);
        made
    }

    /// What is said of a session at its start.
    fn describe(&self) -> Value {
        let modes = ["plan", "default", "auto-edit", "yolo"].map(|id| json!({"id": id, "name": id}));
        let mut made = json!({"modes": {"currentModeId": "default", "availableModes": modes}});
        if self.0.script.models {
            made["models"] = offers::models();
        }
        if self.0.script.config_options {
            made["configOptions"] = offers::config_options("small");
        }
        made
    }

    /// Before the answer that tells the session's id, as the peer does.
    async fn announce_commands(&self, session: &Value) {
        let update = json!({
            "sessionUpdate": "available_commands_update",
            "availableCommands": [
                {"name": "init", "description": "Look around", "input": null},
                {"name": "review", "description": "Review a change", "input": {"hint": "which"}},
            ],
            "_meta": {"availableSkills": ["tidy"]},
        });
        self.notify("session/update", json!({"sessionId": session, "update": update})).await;
    }
}
