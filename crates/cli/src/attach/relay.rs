//! Sans-IO: what passes between an editor that knows only ACP on stdio and a daemon's `/acp`?
//!
//! Almost everything, as it is. Changed is what the editor can't know: with a session to join, its first `session/new`
//! becomes a `session/load` of that one; after a lost connection its sessions are resumed under its feet; events beyond
//! ACP, and the echo of its own prompts, are left out.
//!
//! Invariants: R1 every request of the editor that was passed on is answered once: by the daemon, or when the connection
//! is lost. R2 the daemon hears of no answer to a question of a connection before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

/// Requests of an editor without an answer; one has a turn per session and a few small ones.
const OPEN_MAX: usize = 1024;

/// Blocks of prompts whose echo has not come; the daemon queues five prompts a session.
const ECHOES_MAX: usize = 4096;

/// Messages that are held back while a session is joined: more than a daemon's ring.
const HELD_MAX: usize = 20_000;

/// The error that answers requests of a lost connection.
const LOST: i64 = -32603;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Output {
    Editor(Value),
    Daemon(Value),
    /// A line for stderr.
    Say(String),
}

/// Where the relay stands with the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    /// A new connection is being told who we are: so many answers are out.
    Greeting {
        left: usize,
    },
    Down,
}

/// What an own request is for.
#[derive(Clone, Debug, PartialEq)]
enum Own {
    Initialize,
    Resume(String),
    /// The editor's `session/new`, with its id, as a load of the session to join.
    Join(Value),
}

/// The relay.
#[derive(Debug)]
pub(super) struct Relay {
    /// The session that the first `session/new` joins.
    join: Option<String>,
    link: Link,
    /// What the editor said of itself.
    initialize: Option<Value>,
    /// The daemon's folder, once it told.
    workspace: Option<Value>,
    /// The editor's requests, by their ids as text.
    open: BTreeMap<String, Value>,
    own: BTreeMap<String, Own>,
    last_own: u64,
    /// The daemon's questions, by their ids as text.
    asked: BTreeMap<String, Value>,
    sessions: BTreeSet<String>,
    /// Requests that make the editor a member of a session, and which.
    joining: BTreeMap<String, Option<String>>,
    /// What comes while a session is joined: the editor does not know its id yet.
    held: Option<VecDeque<Value>>,
    echoes: VecDeque<(String, Value)>,
}

impl Relay {
    /// A relay on a fresh connection.
    pub(super) fn new(join: Option<String>) -> Self {
        Self {
            join,
            link: Link::Up,
            initialize: None,
            workspace: None,
            open: BTreeMap::new(),
            own: BTreeMap::new(),
            last_own: 0,
            asked: BTreeMap::new(),
            sessions: BTreeSet::new(),
            joining: BTreeMap::new(),
            held: None,
            echoes: VecDeque::new(),
        }
    }

    /// Whether the editor is listened to.
    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// Whether there is anything to come back for.
    pub(super) fn is_initialized(&self) -> bool {
        self.workspace.is_some()
    }

    /// The editor wrote a line.
    pub(super) fn editor(&mut self, line: &[u8], out: &mut Vec<Output>) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            out.push(Output::Editor(error(&Value::Null, -32700, "Parse error")));
            return;
        };
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(method), Some(id)) => {
                let (method, id) = (method.to_owned(), id.clone());
                self.request(&method, id, message, out);
            }
            (Some(_), None) => out.push(Output::Daemon(message)),
            (None, Some(id)) => {
                if self.asked.remove(&id.to_string()).is_some() {
                    out.push(Output::Daemon(message));
                }
            }
            (None, None) => out.push(Output::Editor(error(&Value::Null, -32600, "Invalid Request"))),
        }
    }

    fn request(&mut self, method: &str, id: Value, message: Value, out: &mut Vec<Output>) {
        if self.open.len() >= OPEN_MAX {
            out.push(Output::Editor(error(&id, LOST, "Too many requests are open")));
            return;
        }
        let params = message.get("params").cloned().unwrap_or_default();
        let session = params.get("sessionId").and_then(Value::as_str).map(str::to_owned);
        match method {
            "initialize" => self.initialize = Some(params),
            "session/new" => {
                if let Some(session) = self.join.take() {
                    let params = json!({
                        "sessionId": session,
                        "cwd": self.workspace.clone().or_else(|| params.get("cwd").cloned()),
                        "mcpServers": [],
                    });
                    self.open.insert(id.to_string(), id.clone());
                    self.held = Some(VecDeque::new());
                    self.joining.insert(id.to_string(), Some(session));
                    self.ask("session/load", params, Own::Join(id), out);
                    return;
                }
                self.joining.insert(id.to_string(), None);
            }
            "session/load" | "session/resume" => _ = self.joining.insert(id.to_string(), session),
            "session/close" => {
                if let Some(session) = session {
                    self.sessions.remove(&session);
                }
            }
            "session/prompt" => {
                let blocks = params.get("prompt").and_then(Value::as_array).cloned().unwrap_or_default();
                if let Some(session) = session
                    && self.echoes.len() + blocks.len() <= ECHOES_MAX
                {
                    self.echoes.extend(blocks.into_iter().map(|block| (session.clone(), block)));
                }
            }
            _ => {}
        }
        self.open.insert(id.to_string(), id);
        out.push(Output::Daemon(message));
    }

    fn ask(&mut self, method: &str, params: Value, own: Own, out: &mut Vec<Output>) {
        self.last_own += 1;
        let id = format!("_attach_{}", self.last_own);
        self.own.insert(id.clone(), own);
        out.push(Output::Daemon(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})));
    }

    /// The daemon sent a message.
    pub(super) fn daemon(&mut self, text: &str, out: &mut Vec<Output>) {
        let Ok(message) = serde_json::from_str::<Value>(text) else {
            out.push(Output::Say("the daemon sent what is no JSON".to_owned()));
            return;
        };
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (None, Some(id)) => {
                let id = id.clone();
                self.response(&id, message, out);
            }
            (Some(_), Some(id)) => {
                self.asked.insert(id.to_string(), id.clone());
                self.pass(message, out);
            }
            (Some("_qwen/notify"), None) | (None, None) => {}
            (Some("session/update"), None) if self.is_own_echo(&message) => {}
            (Some(_), None) => self.pass(message, out),
        }
    }

    /// To the editor, unless it has to wait until the editor knows the session.
    fn pass(&mut self, message: Value, out: &mut Vec<Output>) {
        match &mut self.held {
            Some(held) if held.len() < HELD_MAX => held.push_back(message),
            Some(_) | None => out.push(Output::Editor(message)),
        }
    }

    fn is_own_echo(&mut self, message: &Value) -> bool {
        let (session, update) = (message.pointer("/params/sessionId"), message.pointer("/params/update"));
        let (Some(session), Some(update)) = (session.and_then(Value::as_str), update) else { return false };
        if update.pointer("/_meta/source").and_then(Value::as_str) != Some("bridge-echo") {
            return false;
        }
        let same = |(of, block): &(String, Value)| of == session && Some(block) == update.get("content");
        let Some(position) = self.echoes.iter().position(same) else { return false };
        self.echoes.remove(position);
        true
    }

    fn response(&mut self, id: &Value, mut message: Value, out: &mut Vec<Output>) {
        if let Some(own) = id.as_str().and_then(|id| self.own.remove(id)) {
            self.own_response(own, message, out);
            return;
        }
        let key = id.to_string();
        if self.open.remove(&key).is_none() {
            return;
        }
        if let Some(workspace) = message.pointer("/result/agentCapabilities/_meta/qwen/workspaceCwd") {
            self.workspace = Some(workspace.clone());
        } else if message.pointer("/result/protocolVersion").is_some() {
            self.workspace.get_or_insert(Value::Null);
        }
        if let Some(session) = self.joining.remove(&key)
            && message.get("result").is_some()
        {
            let made = message.pointer_mut("/result/sessionId").and_then(|id| id.as_str().map(str::to_owned));
            self.sessions.extend(made.or(session));
        }
        self.pass(message, out);
    }

    fn own_response(&mut self, own: Own, mut message: Value, out: &mut Vec<Output>) {
        let failed = message.pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
        match own {
            Own::Join(id) => {
                let key = id.to_string();
                let session = self.joining.remove(&key).flatten();
                if self.open.remove(&key).is_none() {
                    return;
                }
                if let Value::Object(fields) = &mut message {
                    fields.insert("id".to_owned(), id);
                }
                if let (Some(session), Some(Value::Object(result))) = (session, message.get_mut("result")) {
                    result.insert("sessionId".to_owned(), json!(session));
                    self.sessions.insert(session);
                }
                out.push(Output::Editor(message));
                out.extend(self.held.take().into_iter().flatten().map(Output::Editor));
                if let Some(why) = failed {
                    out.push(Output::Say(format!("the session could not be joined: {why}")));
                }
            }
            Own::Initialize => self.greet(out),
            Own::Resume(session) => {
                if let Some(why) = failed {
                    out.push(Output::Say(format!("session {session} is lost: {why}")));
                    self.sessions.remove(&session);
                }
                self.greeted(out);
            }
        }
    }

    /// The new connection knows who we are; its sessions follow.
    fn greet(&mut self, out: &mut Vec<Output>) {
        let sessions: Vec<_> = self.sessions.iter().cloned().collect();
        self.link = Link::Greeting { left: sessions.len() + 1 };
        for session in sessions {
            let params = json!({"sessionId": session, "cwd": self.workspace, "mcpServers": []});
            self.ask("session/resume", params, Own::Resume(session), out);
        }
        self.greeted(out);
    }

    fn greeted(&mut self, out: &mut Vec<Output>) {
        if let Link::Greeting { left } = self.link {
            let left = left.saturating_sub(1);
            self.link = if left == 0 { Link::Up } else { Link::Greeting { left } };
            if left == 0 {
                out.push(Output::Say("the connection to the daemon is back".to_owned()));
            }
        }
    }

    /// The connection is over.
    pub(super) fn lost(&mut self, out: &mut Vec<Output>) {
        self.link = Link::Down;
        self.own.clear();
        self.joining.clear();
        self.echoes.clear();
        out.extend(self.held.take().into_iter().flatten().map(Output::Editor));
        for (_, id) in std::mem::take(&mut self.open) {
            let text = "The connection to the daemon was lost; whether this was carried out is not known";
            out.push(Output::Editor(error(&id, LOST, text)));
        }
        for (_, id) in std::mem::take(&mut self.asked) {
            let params = json!({"requestId": id});
            out.push(Output::Editor(json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})));
        }
    }

    /// There is a connection again.
    pub(super) fn back(&mut self, out: &mut Vec<Output>) {
        self.link = Link::Greeting { left: 1 };
        let params = self.initialize.clone().unwrap_or_default();
        self.ask("initialize", params, Own::Initialize, out);
    }
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        relay: Relay,
        out: Vec<Output>,
    }

    impl Rig {
        /// An editor that has shaken hands.
        fn new(join: Option<&str>) -> Self {
            let mut rig = Self { relay: Relay::new(join.map(str::to_owned)), out: Vec::new() };
            rig.editor(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}));
            let about = json!({"protocolVersion": 1, "agentCapabilities": {"_meta": {"qwen": {"workspaceCwd": "/w"}}}});
            rig.daemon(json!({"jsonrpc": "2.0", "id": 0, "result": about}));
            assert_eq!(rig.take().len(), 2);
            assert!(rig.relay.is_initialized());
            rig
        }

        fn editor(&mut self, message: Value) {
            self.relay.editor(message.to_string().as_bytes(), &mut self.out);
        }

        fn daemon(&mut self, message: Value) {
            self.relay.daemon(&message.to_string(), &mut self.out);
        }

        fn take(&mut self) -> Vec<Output> {
            std::mem::take(&mut self.out)
        }

        fn request(&mut self, id: u64, method: &str, params: Value) {
            self.editor(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        }

        fn session(&mut self, id: &str) {
            self.request(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
            self.daemon(json!({"jsonrpc": "2.0", "id": 1, "result": {"sessionId": id}}));
            self.take();
        }
    }

    fn update(text: &str, source: Option<&str>) -> Value {
        let update = json!({
            "sessionUpdate": "user_message_chunk",
            "content": {"type": "text", "text": text},
            "_meta": {"source": source},
        });
        json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
    }

    #[test]
    fn the_first_new_session_is_the_one_to_join() {
        let mut rig = Rig::new(Some("shared"));
        rig.request(1, "session/new", json!({"cwd": "/elsewhere", "mcpServers": []}));
        let params = json!({"sessionId": "shared", "cwd": "/w", "mcpServers": []});
        let load = json!({"jsonrpc": "2.0", "id": "_attach_1", "method": "session/load", "params": params});
        assert_eq!(rig.take(), [Output::Daemon(load)]);
        let past = update("before", None);
        rig.daemon(past.clone());
        assert_eq!(rig.take(), [], "the editor does not know the session yet");
        rig.daemon(json!({"jsonrpc": "2.0", "id": "_attach_1", "result": {"modes": {}}}));
        let made = json!({"jsonrpc": "2.0", "id": 1, "result": {"modes": {}, "sessionId": "shared"}});
        assert_eq!(rig.take(), [Output::Editor(made), Output::Editor(past)]);
        rig.request(2, "session/new", json!({"cwd": "/w"}));
        assert!(matches!(&rig.take()[..], [Output::Daemon(own)] if own["method"] == "session/new"));
    }

    #[test]
    fn a_session_that_is_not_there_is_said_twice() {
        let mut rig = Rig::new(Some("gone"));
        rig.request(1, "session/new", json!({}));
        rig.take();
        rig.daemon(json!({"jsonrpc": "2.0", "id": "_attach_1", "error": {"code": -32603, "message": "No session"}}));
        let out = rig.take();
        let refused = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "No session"}});
        assert_eq!(out[0], Output::Editor(refused));
        assert_eq!(out[1], Output::Say("the session could not be joined: No session".to_owned()));
    }

    #[test]
    fn its_own_echo_is_left_out_once() {
        let mut rig = Rig::new(None);
        rig.session("s");
        rig.request(2, "session/prompt", json!({"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}));
        rig.take();
        rig.daemon(update("hi", Some("bridge-echo")));
        assert_eq!(rig.take(), []);
        for (text, source) in [("hi", Some("bridge-echo")), ("hi", None), ("other", Some("bridge-echo"))] {
            rig.daemon(update(text, source));
            assert_eq!(rig.take(), [Output::Editor(update(text, source))], "{text} {source:?}");
        }
        rig.daemon(
            json!({"jsonrpc": "2.0", "method": "_qwen/notify", "params": {"kind": "turn_complete", "data": {}}}),
        );
        assert_eq!(rig.take(), []);
    }

    #[test]
    fn questions_are_answered_once() {
        let mut rig = Rig::new(None);
        let question = json!({"jsonrpc": "2.0", "id": "_qwen_perm_c_1", "method": "session/request_permission"});
        rig.daemon(question.clone());
        assert_eq!(rig.take(), [Output::Editor(question)]);
        let answer = json!({"jsonrpc": "2.0", "id": "_qwen_perm_c_1", "result": {}});
        rig.editor(answer.clone());
        rig.editor(answer.clone());
        assert_eq!(rig.take(), [Output::Daemon(answer)]);
    }

    /// R1, R2: what was open is answered, questions are taken back, sessions are resumed, and only then it goes on.
    #[test]
    fn a_lost_connection() {
        let mut rig = Rig::new(None);
        rig.session("s");
        rig.request(2, "session/prompt", json!({"sessionId": "s", "prompt": [{"type": "text", "text": "hi"}]}));
        rig.daemon(json!({"jsonrpc": "2.0", "id": "q", "method": "session/request_permission"}));
        rig.take();
        rig.relay.lost(&mut rig.out);
        let out = rig.take();
        assert!(matches!(&out[0], Output::Editor(told) if told["id"] == 2 && told["error"]["code"] == LOST), "{out:?}");
        assert!(matches!(&out[1], Output::Editor(told) if told["method"] == "$/cancel_request"), "{out:?}");
        rig.editor(json!({"jsonrpc": "2.0", "id": "q", "result": {}}));
        assert_eq!(rig.take(), [], "R2");
        assert!(!rig.relay.is_up());
        rig.relay.back(&mut rig.out);
        let out = rig.take();
        let Output::Daemon(hello) = &out[0] else { panic!("{out:?}") };
        assert_eq!((&hello["method"], &hello["params"]["protocolVersion"]), (&json!("initialize"), &json!(1)));
        rig.daemon(json!({"jsonrpc": "2.0", "id": hello["id"], "result": {}}));
        let out = rig.take();
        let Output::Daemon(resume) = &out[0] else { panic!("{out:?}") };
        assert_eq!((&resume["method"], &resume["params"]["sessionId"]), (&json!("session/resume"), &json!("s")));
        assert!(!rig.relay.is_up());
        rig.daemon(json!({"jsonrpc": "2.0", "id": resume["id"], "result": {}}));
        assert_eq!(rig.take(), [Output::Say("the connection to the daemon is back".to_owned())]);
        assert!(rig.relay.is_up());
    }

    #[test]
    fn rubbish_of_the_editor_goes_nowhere() {
        let mut rig = Rig::new(None);
        rig.relay.editor(b"  ", &mut rig.out);
        rig.relay.editor(b"{not json", &mut rig.out);
        rig.relay.editor(b"5", &mut rig.out);
        let codes = rig.take().into_iter().map(|output| match output {
            Output::Editor(message) => message["error"]["code"].clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(codes.collect::<Vec<_>>(), [json!(-32700), json!(-32600)]);
    }
}
