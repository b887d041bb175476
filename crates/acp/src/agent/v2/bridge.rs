//! One message of either side in, messages for both sides out.
//!
//! Requests of the client go on under ids of ours: a prompt is answered long before its turn ends, and then its id is the
//! client's to use again. Requests of the agent end keep theirs, and so do their answers, which both versions write alike.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use serde_json::{Map, Value, json};

use crate::agent::outbox::UPDATE;
use crate::rpc_error::{INVALID_REQUEST, METHOD_NOT_FOUND, RpcError};

use super::answers;
use super::requests::{self, Fields, invalid, text};
use super::turns::{Effect, Prompt, Turns};
use super::updates::{self, Thread};

/// JSON-RPC's word for what is no JSON.
const PARSE_ERROR: i32 = -32700;

/// Requests of the client that are open: what the agent end works on at once.
const REQUESTS_MAX: usize = 2048;

/// What ids of ours begin with.
const ID: &str = "v2-";

const CANCEL_REQUEST: &str = "$/cancel_request";

/// What one message leads to.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) to_client: Vec<Value>,
    pub(super) to_agent: Vec<Value>,
}

/// One client of version 2.
pub(super) struct Bridge {
    has_begun: bool,
    pending: HashMap<u64, Pending>,
    next: u64,
    /// Makes ids that no other connection to the same session makes.
    seed: RandomState,
    messages: u64,
    turns: Turns,
}

/// A request of the client that the agent end works on.
struct Pending {
    id: Value,
    what: What,
}

/// What its answer means.
enum What {
    Introduction,
    New,
    Resume(String),
    List,
    Close(String),
    Option(String),
    Turn(String),
    /// Nothing here; it may be about a session.
    Other(Option<String>),
}

impl What {
    fn session(&self) -> Option<&str> {
        match self {
            Self::Resume(session) | Self::Close(session) | Self::Option(session) | Self::Turn(session) => Some(session),
            Self::Other(session) => session.as_deref(),
            Self::Introduction | Self::New | Self::List => None,
        }
    }
}

/// What a request of the client becomes.
enum Step {
    Ask(String, Fields, What),
    Prompt(String, Fields),
}

impl Bridge {
    pub(super) fn new(seed: RandomState) -> Self {
        Self { has_begun: false, pending: HashMap::new(), next: 0, seed, messages: 0, turns: Turns::default() }
    }

    /// Whether the client introduced itself in a way that could be read.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// A line of the client.
    pub(super) fn client(&mut self, line: &[u8], out: &mut Output) {
        let message = match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return out.to_client.push(refusal(Value::Null, malformed("a message must be an object"))),
            Err(error) => {
                let error = RpcError::new(PARSE_ERROR, format!("the message can't be read: {error}"));
                return out.to_client.push(refusal(Value::Null, error));
            }
        };
        let id = message.get("id").cloned();
        // Version 2 has no other ids.
        let is_id = id.as_ref().is_none_or(|id| id.is_string() || id.is_i64());
        let known = id.clone().filter(|_| is_id).unwrap_or(Value::Null);
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return out.to_client.push(refusal(known, malformed("jsonrpc must be \"2.0\"")));
        }
        let is_answer = message.contains_key("result") || message.contains_key("error");
        match (message.get("method"), id) {
            (None, Some(id)) if is_answer => self.client_answers(&id, message, out),
            (Some(Value::String(_)), Some(_)) if !is_id => {
                out.to_client.push(refusal(known, malformed("an id must be a string or a whole number")));
            }
            (Some(Value::String(method)), Some(id)) => {
                let method = method.clone();
                self.client_asks(id, &method, message, line.len(), out);
            }
            (Some(Value::String(method)), None) => {
                let method = method.clone();
                self.client_tells(&method, message, out);
            }
            _ => out.to_client.push(refusal(known, malformed("a message must have a method, a result or an error"))),
        }
    }

    fn client_asks(&mut self, id: Value, method: &str, mut message: Fields, bytes: usize, out: &mut Output) {
        let params = match message.remove("params") {
            None => Ok(Map::new()),
            Some(Value::Object(params)) => Ok(params),
            Some(_) => Err(invalid("params must be an object")),
        };
        if self.pending.len() + self.turns.held() >= REQUESTS_MAX {
            return out.to_client.push(refusal(id, RpcError::new(INVALID_REQUEST, "too many requests are waiting")));
        }
        match params.and_then(|params| self.step(method, params)) {
            Ok(Step::Ask(method, params, what)) => {
                if let What::Close(session) = &what {
                    let mut effects = Vec::new();
                    self.turns.close(session, &mut effects);
                    self.follow(effects, out);
                }
                self.ask(id, &method, params, what, out);
            }
            Ok(Step::Prompt(session, params)) => {
                let mut effects = Vec::new();
                self.turns.prompt(&session, Prompt { id, params, bytes }, &mut effects);
                self.follow(effects, out);
            }
            Err(error) => out.to_client.push(refusal(id, error)),
        }
    }

    fn step(&mut self, method: &str, params: Fields) -> Result<Step, RpcError> {
        let about = params.get("sessionId").and_then(Value::as_str).map(ToOwned::to_owned);
        let ask = |method: &str, params: Fields, what: What| Ok(Step::Ask(method.to_owned(), params, what));
        match method {
            "initialize" if self.has_begun => Err(malformed("the client introduced itself before")),
            "initialize" => {
                let params = requests::introduction(params)?;
                self.has_begun = true;
                ask(method, params, What::Introduction)
            }
            _ if !self.has_begun => Err(malformed("the first request has to be initialize")),
            "auth/login" => {
                text(&params, "methodId")?;
                ask("authenticate", params, What::Other(None))
            }
            "auth/logout" => ask("logout", params, What::Other(None)),
            "session/new" => ask(method, requests::session(params)?, What::New),
            "session/resume" => {
                let session = text(&params, "sessionId")?.to_owned();
                let (method, params) = requests::resumed(params)?;
                ask(method, params, What::Resume(session))
            }
            "session/list" => ask(method, params, What::List),
            "session/delete" => {
                text(&params, "sessionId")?;
                ask(method, params, What::Other(about))
            }
            "session/close" => {
                let session = text(&params, "sessionId")?.to_owned();
                ask(method, params, What::Close(session))
            }
            "session/set_config_option" => {
                let session = text(&params, "sessionId")?.to_owned();
                ask(method, requests::option(params)?, What::Option(session))
            }
            "session/prompt" => {
                requests::prompt(&params)?;
                Ok(Step::Prompt(text(&params, "sessionId")?.to_owned(), params))
            }
            // Methods of our own are the same in both versions.
            _ if method.starts_with('_') => ask(method, params, What::Other(about)),
            _ => Err(RpcError::new(METHOD_NOT_FOUND, format!("there is no method \"{method}\""))),
        }
    }

    fn client_tells(&mut self, method: &str, mut message: Fields, out: &mut Output) {
        let params = message.get("params").cloned().unwrap_or(Value::Null);
        let mut effects = Vec::new();
        match method {
            "session/cancel" => {
                let Some(session) = params.get("sessionId").and_then(Value::as_str) else {
                    return tracing::debug!("a cancellation names no session");
                };
                if self.turns.cancel(session, &mut effects) {
                    out.to_agent.push(Value::Object(message));
                }
            }
            CANCEL_REQUEST => {
                let id = params.get("requestId").unwrap_or(&Value::Null);
                // A prompt that is in was answered; there is nothing to take back.
                let open = |pending: &Pending| pending.id == *id && !matches!(pending.what, What::Turn(_));
                if !self.turns.withdraw(id, &mut effects)
                    && let Some((number, _)) = self.pending.iter().find(|(_, pending)| open(pending))
                {
                    message.insert("params".to_owned(), json!({"requestId": format!("{ID}{number}")}));
                    out.to_agent.push(Value::Object(message));
                }
            }
            _ if method.starts_with('_') => out.to_agent.push(Value::Object(message)),
            _ => tracing::debug!(method, "a client tells what nobody knows"),
        }
        self.follow(effects, out);
    }

    /// The client answers a question of the agent end.
    fn client_answers(&mut self, id: &Value, message: Fields, out: &mut Output) {
        out.to_agent.push(Value::Object(message));
        let mut effects = Vec::new();
        self.turns.settled(id, &mut effects);
        self.follow(effects, out);
    }

    fn ask(&mut self, id: Value, method: &str, params: Fields, what: What, out: &mut Output) {
        let number = self.next;
        self.next += 1;
        self.pending.insert(number, Pending { id, what });
        let id = format!("{ID}{number}");
        out.to_agent.push(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// A message of the agent end.
    pub(super) fn agent(&mut self, message: Value, out: &mut Output) {
        let Value::Object(mut message) = message else { return out.to_client.push(message) };
        let params = match message.remove("params") {
            Some(Value::Object(params)) => params,
            other => {
                message.extend(other.map(|params| ("params".to_owned(), params)));
                return self.agent_answers(message, out);
            }
        };
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut effects = Vec::new();
        match (method.as_str(), message.get("id").cloned()) {
            (UPDATE, None) => return self.update(params, out),
            (method, Some(id)) => {
                let session = params.get("sessionId").and_then(Value::as_str).unwrap_or_default().to_owned();
                let params = if method == "session/request_permission" { answers::permission(params) } else { params };
                out.to_client.push(with_params(message, params));
                self.turns.asked(&id, &session, &mut effects);
            }
            (CANCEL_REQUEST, None) => {
                self.turns.settled(params.get("requestId").unwrap_or(&Value::Null), &mut effects);
                out.to_client.push(with_params(message, params));
            }
            (_, None) => out.to_client.push(with_params(message, params)),
        }
        self.follow(effects, out);
    }

    fn update(&mut self, mut params: Fields, out: &mut Output) {
        let session = params.get("sessionId").and_then(Value::as_str).unwrap_or_default();
        let Some(Value::Object(update)) = params.get("update").cloned() else { return };
        let (seed, messages) = (&self.seed, &mut self.messages);
        // What is replayed comes before the session is open.
        let mut before = Thread::default();
        let thread = self.turns.thread(session).unwrap_or(&mut before);
        if let Some(update) = updates::rewrite(update, thread, || message_id(seed, messages)) {
            params.insert("update".to_owned(), update);
            out.to_client.push(json!({"jsonrpc": "2.0", "method": UPDATE, "params": params}));
        }
    }

    fn agent_answers(&mut self, mut message: Fields, out: &mut Output) {
        let number = message.get("id").and_then(Value::as_str).and_then(|id| id.strip_prefix(ID)?.parse().ok());
        let Some(Pending { id, what }) = number.and_then(|number: u64| self.pending.remove(&number)) else {
            // To a line from before the versions were known.
            return out.to_client.push(Value::Object(message));
        };
        let answer = match (message.remove("result"), message.remove("error")) {
            (Some(result), _) => Ok(result),
            (None, error) => Err(answers::error(error.unwrap_or(Value::Null), what.session())),
        };
        let answer = match (what, answer) {
            (What::Turn(session), answer) => {
                let is_gone = answer.as_ref().is_err_and(answers::is_not_found);
                let mut effects = Vec::new();
                self.turns.ended(&session, answers::end(answer), is_gone, &mut effects);
                return self.follow(effects, out);
            }
            (What::Introduction, Ok(Value::Object(said))) => Ok(answers::introduction(said)),
            (What::New, Ok(Value::Object(said))) => {
                if let Some(session) = said.get("sessionId").and_then(Value::as_str) {
                    self.turns.open(session);
                }
                Ok(answers::settings(said))
            }
            (What::Resume(session), Ok(Value::Object(said))) => {
                self.turns.open(&session);
                out.to_client.push(state(&session, self.turns.state(&session)));
                Ok(answers::settings(said))
            }
            // Without records there is none.
            (What::Resume(session), Err(error)) if is_unknown_method(&error) => {
                Err(RpcError::no_session(&session).to_wire())
            }
            (What::List, Err(error)) if is_unknown_method(&error) => Ok(json!({"sessions": []})),
            (What::Option(_), Ok(Value::Object(said))) => Ok(answers::settings(said)),
            (What::Close(session), answer) => {
                // What is not open is closed.
                let answer =
                    answer.or_else(|error| if answers::is_not_found(&error) { Ok(json!({})) } else { Err(error) });
                self.turns.closed(&session, answer.is_ok());
                answer
            }
            (_, answer) => answer,
        };
        let (key, value) = match answer {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        out.to_client.push(json!({"jsonrpc": "2.0", "id": id, key: value}));
    }

    fn follow(&mut self, effects: Vec<Effect>, out: &mut Output) {
        for effect in effects {
            match effect {
                Effect::Refuse(id, error) => out.to_client.push(refusal(id, error)),
                Effect::State(session, fields) => out.to_client.push(state(&session, fields)),
                Effect::Begin(session, Prompt { id, params, .. }) => {
                    let message = message_id(&self.seed, &mut self.messages);
                    let answer = json!({"messageId": message});
                    out.to_client.push(json!({"jsonrpc": "2.0", "id": id, "result": answer}));
                    let content = params.get("prompt").cloned().unwrap_or_else(|| json!([]));
                    let said = Map::from_iter([
                        ("sessionUpdate".to_owned(), json!("user_message")),
                        ("messageId".to_owned(), json!(message)),
                        ("content".to_owned(), content),
                    ]);
                    out.to_client.push(update(&session, said));
                    self.ask(Value::Null, "session/prompt", params, What::Turn(session), out);
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.turns.check_invariants();
        assert!(self.pending.len() <= REQUESTS_MAX);
        let turn = |pending: &Pending| matches!(&pending.what, What::Turn(session) if self.turns.is_running(session));
        let is_turn = |pending: &Pending| matches!(pending.what, What::Turn(_));
        assert!(self.pending.values().all(|pending| !is_turn(pending) || turn(pending)), "a turn is one of a session");
    }
}

fn message_id(seed: &RandomState, messages: &mut u64) -> String {
    *messages += 1;
    format!("{:016x}", seed.hash_one(*messages))
}

fn malformed(message: &str) -> RpcError {
    RpcError::new(INVALID_REQUEST, message)
}

fn refusal(id: Value, error: RpcError) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": error.to_wire()})
}

fn is_unknown_method(error: &Value) -> bool {
    error.get("code").and_then(Value::as_i64) == Some(METHOD_NOT_FOUND.into())
}

fn update(session: &str, update: Fields) -> Value {
    json!({"jsonrpc": "2.0", "method": UPDATE, "params": {"sessionId": session, "update": update}})
}

fn state(session: &str, mut fields: Fields) -> Value {
    fields.insert("sessionUpdate".to_owned(), json!("state_update"));
    update(session, fields)
}

fn with_params(mut message: Fields, params: Fields) -> Value {
    message.insert("params".to_owned(), Value::Object(params));
    Value::Object(message)
}
