//! One misdeed of the scripted agent: what it does wrong, and at which step?
//!
//! A misdeed that ends the agent, or its reading, replaces its process by a shell: the process id, and the pipes that
//! others hold, stay what they were. So these are for the executable only.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::{Agent, OUTGOING_MAX};

/// Updates of a flood.
const FLOOD: u64 = 20_000;

/// Questions of a flood: more than a daemon keeps open for one session.
const QUESTIONS: u64 = 100;

/// Bytes of a flood of stderr: many times what a pipe and a tail hold.
const STDERR: usize = 2 << 20;

/// What the agent does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Becomes a shell that runs this.
    Becomes(&'static str),
    /// Writes this, and goes on.
    Writes(&'static [u8]),
    /// Writes a line that never ends.
    EndlessLine,
    /// JSON-RPC that means nothing: ids that nobody gave, parts of the wrong type.
    Nonsense,
    /// Tens of thousands of updates.
    Flood,
    /// More questions than may be open.
    Questions,
    /// A flood of stderr.
    Stderr,
}

const KINDS: &[(&str, Kind)] = &[
    ("exit-0", Kind::Becomes("exit 0")),
    ("exit-1", Kind::Becomes("echo last words >&2; exit 1")),
    ("kill", Kind::Becomes("kill -KILL $$")),
    // Its stdout is closed; it lives, and reads nothing.
    ("mute", Kind::Becomes("exec sleep 1000 >/dev/null")),
    ("hang", Kind::Becomes("exec sleep 1000")),
    ("deaf", Kind::Becomes("trap '' TERM INT HUP; exec sleep 1000")),
    // Leaves somebody behind who is out of its group, ignores TERM and holds its pipes.
    ("orphan", Kind::Becomes("trap '' TERM INT HUP; setsid sleep 1000 & exit 0")),
    ("rubbish", Kind::Writes(b"Loading model weights... 100%\n\n{\"jsonrpc\":\"2.0\"\n")),
    ("no-utf8", Kind::Writes(b"\xff\xfe{\"jsonrpc\":\"2.0\",\"method\":\"session/update\"}\xc3\n")),
    ("unfinished", Kind::Writes(b"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{")),
    ("endless-line", Kind::EndlessLine),
    ("nonsense", Kind::Nonsense),
    ("flood", Kind::Flood),
    ("questions", Kind::Questions),
    ("stderr", Kind::Stderr),
];

/// When it does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `initialize` came.
    Initialize,
    /// `session/new` came.
    New,
    /// `session/load` came.
    Load,
    /// `session/prompt` came, and nothing was said yet.
    Prompt,
    /// The turn has begun: a tool call was announced.
    Turn,
    /// A permission request is open.
    Permission,
    /// Another mode is asked for.
    Mode,
    /// `session/cancel` came.
    Cancel,
    /// `session/close` came.
    Close,
}

const STEPS: &[(&str, Step)] = &[
    ("initialize", Step::Initialize),
    ("new", Step::New),
    ("load", Step::Load),
    ("prompt", Step::Prompt),
    ("turn", Step::Turn),
    ("permission", Step::Permission),
    ("mode", Step::Mode),
    ("cancel", Step::Cancel),
    ("close", Step::Close),
];

/// What the agent does wrong, and when; made from arguments only, see [`Script::parse`](super::Script::parse).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chaos {
    kind: Kind,
    step: Step,
    /// Taken away by whoever does it: only one agent finds this file.
    pub(super) armed_by: Option<PathBuf>,
}

impl Chaos {
    /// Reads `KIND@STEP`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, step) = text.split_once('@')?;
        let kind = KINDS.iter().find(|(name, _)| *name == kind)?.1;
        let step = STEPS.iter().find(|(name, _)| *name == step)?.1;
        Some(Self { kind, step, armed_by: None })
    }

    fn is_armed(&self) -> bool {
        self.armed_by.as_ref().is_none_or(|file| fs::remove_file(file).is_ok())
    }
}

impl Agent {
    /// Whether the agent misbehaves when it is asked to close a session, so that it has to offer that.
    pub(super) fn closes_sessions(&self) -> bool {
        self.0.script.chaos.as_ref().is_some_and(|chaos| chaos.step == Step::Close)
    }

    /// Misbehaves, if this is the time.
    pub(super) async fn chaos(&self, now: Step, session: &str) {
        let Some(chaos) = self.0.script.chaos.as_ref().filter(|chaos| chaos.step == now && chaos.is_armed()) else {
            return;
        };
        match chaos.kind {
            Kind::Becomes(script) => {
                self.written().await;
                // Returns only where there is no shell; then the agent behaves, and its test fails.
                let _ = Command::new("sh").args(["-c", script]).exec();
            }
            Kind::Writes(bytes) => self.write(bytes).await,
            Kind::EndlessLine => self.clone().endless_line().await,
            Kind::Nonsense => self.nonsense(session).await,
            Kind::Flood => {
                for n in 0..FLOOD {
                    let content = json!({"type": "text", "text": format!("{n} of a flood")});
                    let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
                    self.notify("session/update", json!({"sessionId": session, "update": update})).await;
                }
            }
            Kind::Questions => {
                for n in 0..QUESTIONS {
                    let tool_call = json!({"toolCallId": format!("flood_{n}"), "title": "Again?", "kind": "execute"});
                    let options = json!([{"kind": "allow_once", "name": "Allow", "optionId": "proceed_once"}]);
                    let params = json!({"sessionId": session, "toolCall": tool_call, "options": options});
                    // Its answer is nobody's business.
                    self.ask("session/request_permission", params).await;
                }
            }
            Kind::Stderr => {
                let line = [vec![b'e'; 1023], vec![b'\n']].concat();
                // Without a stderr there is nothing to flood.
                let _ = std::io::stderr().write_all(&line.repeat(STDERR / line.len()));
            }
        }
    }

    /// Waits until everything that was sent is in the pipe.
    async fn written(&self) {
        // The empty line is taken only when the one before it is written, and a free queue says that it was taken.
        self.write("").await;
        let _ = self.0.out.reserve_many(OUTGOING_MAX).await;
    }

    async fn nonsense(&self, session: &str) {
        let request = |id: Value, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let notice = |method: Value, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        let (ask, update) = ("session/request_permission", json!("session/update"));
        let lines = [
            json!({"jsonrpc": "2.0", "id": "never-asked", "result": {}}),
            json!({"jsonrpc": "2.0", "id": 987_654, "error": {"code": "x", "message": 5}}),
            json!({"jsonrpc": "2.0", "id": null, "result": 1}),
            request(json!({}), ask, json!({})),
            request(json!("a"), ask, json!({"sessionId": 5})),
            request(json!("b"), ask, Value::Null),
            request(json!("c"), ask, json!({"sessionId": session, "toolCall": "no", "options": {"a": 1}})),
            request(json!("d"), "terminal/output", json!({"sessionId": session, "terminalId": {}})),
            request(json!("e"), "fs/read_text_file", json!({"sessionId": session, "path": 5})),
            request(json!("f"), "no/such_method", json!([session])),
            notice(update.clone(), json!({"sessionId": 5, "update": []})),
            notice(update.clone(), json!({"sessionId": session, "update": "text"})),
            notice(update.clone(), json!({"sessionId": session, "update": {"sessionUpdate": 7, "content": [[]]}})),
            notice(json!("$/cancel_request"), json!({"requestId": []})),
            notice(json!(5), Value::Null),
            json!([{"jsonrpc": "2.0", "method": update, "params": {"sessionId": session}}]),
        ];
        for line in lines {
            self.send(line).await;
        }
    }
}
