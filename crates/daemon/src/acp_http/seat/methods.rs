//! Sans-IO: what does each method ask of the bridge, and what is answered?
//!
//! Source: the Agent Client Protocol for `session/*`; daemon specification §g for `_qwen/*`, the streams that answers
//! ride on, and the codes.

use std::path::Path;

use convoke_protocol::{ApprovalMode, PromptId, RequestId, SessionId};
use convoke_stdx::Now;
use serde_json::{Value, json};

use super::asks::{VoteEnd, read_choice};
use super::{
    Answered, Binding, FeedMode, Joined, Lane, Order, Output, Owned, Phase, REQUESTS_MAX, Seat, Track, Turn, TurnState,
};
use crate::acp_http::rpc::{self, Id, Message, Problem};
use crate::http_error::HttpError;
use crate::routes::session::chosen_session;

/// Methods beyond the protocol.
pub(super) const VENDOR: &[&str] = &["session/permission", "_qwen/session/heartbeat", "_qwen/session/update_metadata"];

/// Where `session/new` has the id that its client chose, under `_meta`. Source: the client SDK.
const CHOSEN_ID: &str = "qwen-code/sessionId";

/// Largest number of content blocks that a prompt is looked through for; what is more is no prompt of a person.
const BLOCKS_MAX: usize = 10_000;

/// Bytes of a model's name, which goes to every client in an event.
const MODEL_ID_MAX: usize = 512;

/// What a question to the bridge is for.
#[derive(Debug)]
pub(super) enum Awaited {
    /// `session/new`.
    New(Id),
    /// `session/load`, or without the past `session/resume`.
    Restore { id: Id, load: bool },
    /// A request whose result is what the bridge answers, or nothing.
    Plain { id: Id, lane: Lane },
    /// A prompt that is being accepted.
    Prompt(PromptId),
    /// A vote for the client's answer to this question.
    Vote { number: u64, loopback: bool },
    /// A vote that came as a request.
    Permission { id: Id, request: RequestId },
    /// How a turn stands whose end may have been missed.
    Turn(PromptId),
    /// `session/cancel`.
    Cancel,
    /// Something without an answer to the client.
    Told,
    /// The end of a session's own turn, because its stream does not come back.
    Abandoned(SessionId),
    /// A step of leaving.
    Leaving,
}

impl Seat {
    /// What the client asked for and the bridge has not answered; votes are bounded by their questions.
    pub(super) fn requests_open(&self) -> usize {
        let asked = |awaited: &&Awaited| match awaited {
            Awaited::New(_) | Awaited::Restore { .. } | Awaited::Plain { .. } => true,
            Awaited::Permission { .. } | Awaited::Cancel => true,
            Awaited::Prompt(_) | Awaited::Vote { .. } | Awaited::Turn(_) | Awaited::Told => false,
            Awaited::Abandoned(_) | Awaited::Leaving => false,
        };
        self.turns.len() + self.calls.values().filter(asked).count()
    }

    pub(super) fn message(&mut self, now: Now, message: Message, loopback: bool, fresh: String, out: &mut Vec<Output>) {
        match (self.phase, message) {
            (Phase::Waiting { .. }, Message::Request { id, method, .. }) if method == "initialize" => {
                self.phase = Phase::Seated;
                let welcome = self.house.welcome(&self.id);
                self.answer(&Lane::Connection, rpc::result(&id, &welcome), now, out);
            }
            (Phase::Waiting { .. }, message) => {
                let id = match message {
                    Message::Request { id, .. } => id,
                    Message::Notification { .. } | Message::Response { .. } => Id(Value::Null),
                };
                let problem = Problem::new(rpc::INVALID_REQUEST, "Expected initialize as the first message").of(id);
                self.answer(&Lane::Connection, rpc::error(&problem), now, out);
                self.refuse_socket(now, out);
            }
            (Phase::Seated | Phase::Stopping { .. }, Message::Request { id, method, params }) => {
                let request = Request { id: id.clone(), params, loopback, fresh };
                let asked = if self.requests_open() >= REQUESTS_MAX {
                    Err(busy())
                } else {
                    self.request(&method, request, out)
                };
                if let Err(problem) = asked {
                    self.answer(&Lane::Connection, rpc::error(&problem.of(id)), now, out);
                }
            }
            (Phase::Seated | Phase::Stopping { .. }, Message::Notification { method, params }) => {
                if method == "session/cancel"
                    && let Ok((session, client)) = self.owned(&params)
                    && self.requests_open() < REQUESTS_MAX
                {
                    self.call(Order::Cancel { session, client }, loopback, Awaited::Cancel, out);
                }
            }
            (Phase::Seated | Phase::Stopping { .. }, Message::Response { id, answer }) => {
                if let Some(ballot) = self.asks.answered(&id.0, &answer) {
                    self.cast(ballot, loopback, out);
                }
            }
            (Phase::Leaving { .. } | Phase::Gone, _) => {}
        }
    }

    fn cast(&mut self, ballot: super::asks::Ballot, loopback: bool, out: &mut Vec<Output>) {
        let super::asks::Ballot { number, session, request, choice } = ballot;
        match self.sessions.get(&session).map(|owned| owned.client.clone()) {
            Some(client) => {
                let order = Order::Vote { session, client, request, choice };
                self.call(order, loopback, Awaited::Vote { number, loopback }, out);
            }
            None => self.asks.forget_session(&session),
        }
    }

    fn request(&mut self, method: &str, request: Request, out: &mut Vec<Output>) -> Result<(), Problem> {
        let Request { id, params, loopback, fresh } = request;
        match method {
            "initialize" => {
                return Err(Problem::new(rpc::INVALID_REQUEST, "This connection is initialized already"));
            }
            "session/new" => {
                self.check_cwd(&params)?;
                let chosen = params.get("_meta").and_then(|meta| meta.get(CHOSEN_ID));
                let session = chosen_session(chosen).map_err(|invalid_id| invalid(invalid_id.0))?;
                self.call(Order::New { session }, loopback, Awaited::New(id), out);
            }
            "session/load" | "session/resume" => {
                let session = session_of(&params)?;
                self.check_cwd(&params)?;
                let client = self.sessions.get(&session).map(|owned| owned.client.clone());
                let awaited = Awaited::Restore { id, load: method == "session/load" };
                self.call(Order::Restore { session, client }, loopback, awaited, out);
            }
            "session/list" => {
                self.call(Order::List, loopback, Awaited::Plain { id, lane: Lane::Connection }, out);
            }
            "session/close" => {
                let (session, client) = self.owned(&params)?;
                let awaited = Awaited::Plain { id, lane: Lane::Connection };
                self.call(Order::Close { session, client }, loopback, awaited, out);
            }
            "session/prompt" => {
                let (session, client) = self.owned(&params)?;
                let blocks = blocks(params)?;
                let prompt = PromptId(fresh);
                self.turns.insert(prompt.clone(), Turn { id, session: session.clone() });
                let order = Order::Prompt { session, client, prompt: prompt.clone(), blocks };
                self.call(order, loopback, Awaited::Prompt(prompt), out);
            }
            "session/set_mode" => {
                let (session, client) = self.owned(&params)?;
                let mode = params.get("modeId").and_then(Value::as_str).and_then(read_mode);
                let mode = mode.ok_or_else(|| invalid("modeId is none of the session's modes"))?;
                let lane = Lane::Session(session.clone());
                let order = Order::SetMode { session, client, mode };
                self.call(order, loopback, Awaited::Plain { id, lane }, out);
            }
            "session/set_model" => {
                let (session, client) = self.owned(&params)?;
                let model = params.get("modelId").and_then(Value::as_str);
                let model = model.filter(|model| !model.trim().is_empty() && model.len() <= MODEL_ID_MAX);
                let model = model.ok_or_else(|| invalid("modelId is required"))?.to_owned();
                let lane = Lane::Session(session.clone());
                let order = Order::SetModel { session, client, model };
                self.call(order, loopback, Awaited::Plain { id, lane }, out);
            }
            "session/permission" => {
                let (session, client) = self.owned(&params)?;
                let request = params.get("requestId").and_then(Value::as_str).map(RequestId::from);
                let request = request.ok_or_else(|| invalid("requestId is required"))?;
                let choice = read_choice(&params).ok_or_else(|| invalid("outcome is no vote"))?;
                let awaited = Awaited::Permission { id, request: request.clone() };
                self.call(Order::Vote { session, client, request, choice }, loopback, awaited, out);
            }
            "_qwen/session/heartbeat" => {
                let (session, client) = self.owned(&params)?;
                let awaited = Awaited::Plain { id, lane: Lane::Connection };
                self.call(Order::Heartbeat { session, client }, loopback, awaited, out);
            }
            "_qwen/session/update_metadata" => {
                let (session, client) = self.owned(&params)?;
                let display_name = match params.get("displayName") {
                    None => None,
                    Some(Value::String(name)) => Some(name.clone()),
                    Some(_) => return Err(invalid("displayName must be a string")),
                };
                let order = Order::Metadata { session, client, display_name };
                self.call(order, loopback, Awaited::Plain { id, lane: Lane::Connection }, out);
            }
            _ => {
                let shown = convoke_stdx::cut::head(method, 100);
                return Err(Problem::new(rpc::METHOD_NOT_FOUND, format!("Method not found: {shown}")));
            }
        }
        Ok(())
    }

    /// The session that the parameters name, if it is this client's, and the client's id on it.
    fn owned(&self, params: &Value) -> Result<(SessionId, convoke_protocol::ClientId), Problem> {
        let session = session_of(params)?;
        match self.sessions.get(&session) {
            Some(owned) => Ok((session, owned.client.clone())),
            None => {
                let mut problem = invalid("The session is not this connection's; load or resume it first");
                problem = problem.with(json!({"httpStatus": 403, "errorKind": "session_not_owned"}));
                Err(problem)
            }
        }
    }

    /// A daemon has one workspace; paths compare by their parts.
    fn check_cwd(&self, params: &Value) -> Result<(), Problem> {
        let bound = &self.house.workspace;
        let cwd = match params.get("cwd") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(cwd)) if Path::new(cwd).is_absolute() => cwd,
            Some(_) => return Err(invalid("cwd must be an absolute path")),
        };
        if Path::new(cwd) == Path::new(bound) {
            return Ok(());
        }
        let mut problem = invalid(&format!("Workspace mismatch: this daemon works in \"{bound}\", not in \"{cwd}\""));
        problem = problem.with(json!({
            "httpStatus": 400, "errorKind": "workspace_mismatch", "boundWorkspace": bound, "requestedWorkspace": cwd,
        }));
        Err(problem)
    }

    /// The bridge answered.
    pub(super) fn done(
        &mut self,
        now: Now,
        awaited: Awaited,
        result: Result<Answered, HttpError>,
        out: &mut Vec<Output>,
    ) {
        if matches!(self.phase, Phase::Leaving { .. } | Phase::Gone) {
            self.done_while_leaving(&awaited, result, out);
            return;
        }
        match (awaited, result) {
            (Awaited::New(id), Ok(Answered::Session(joined))) => {
                let mut body = joined.body.clone();
                if let Value::Object(fields) = &mut body {
                    fields.shift_insert(0, "sessionId".to_owned(), json!(joined.session));
                }
                self.answer(&Lane::Connection, rpc::result(&id, &body), now, out);
                let after = joined.last_event_id;
                self.own(joined, after, None, out);
            }
            (Awaited::Restore { id, load }, Ok(Answered::Session(joined))) => {
                let after = if load { 0 } else { joined.last_event_id };
                let body = joined.body.clone();
                if load && self.binding == Binding::Socket {
                    self.own(joined, after, Some((id, body)), out);
                } else {
                    self.answer(&Lane::Connection, rpc::result(&id, &body), now, out);
                    self.own(joined, after, None, out);
                }
            }
            (Awaited::New(id) | Awaited::Restore { id, .. }, Err(error)) => {
                self.answer(&Lane::Connection, rpc::error(&Problem::from(error).of(id)), now, out);
            }
            (Awaited::Plain { id, lane }, Ok(answered)) => {
                let body = match answered {
                    Answered::Body(body) => body,
                    Answered::Session(_) | Answered::Turn(_) | Answered::Done => json!({}),
                };
                self.answer(&lane, rpc::result(&id, &body), now, out);
            }
            (Awaited::Plain { id, lane }, Err(error)) => {
                self.answer(&lane, rpc::error(&Problem::from(error).of(id)), now, out);
            }
            (Awaited::Prompt(prompt), Err(error)) => {
                if let Some(turn) = self.turns.remove(&prompt) {
                    let message = rpc::error(&Problem::from(error).of(turn.id));
                    self.answer(&Lane::Session(turn.session), message, now, out);
                }
            }
            (Awaited::Vote { number, loopback }, result) => {
                let end = vote_end(result.as_ref().err());
                // What follows a vote comes from where the vote came from.
                if let Some(ballot) = self.asks.voted(number, end) {
                    self.cast(ballot, loopback, out);
                }
            }
            (Awaited::Permission { id, request }, result) => {
                let message = match result {
                    Ok(_) => {
                        self.asks.forget_request(&request);
                        rpc::result(&id, &json!({}))
                    }
                    Err(error) => rpc::error(&Problem::from(error).of(id)),
                };
                self.answer(&Lane::Connection, message, now, out);
            }
            (Awaited::Turn(prompt), result) => match result {
                Ok(Answered::Turn(TurnState::Open)) => {}
                Ok(Answered::Turn(TurnState::Ended { stop_reason })) => {
                    self.turn_over(now, &prompt, Ok(json!({"stopReason": stop_reason})), out);
                }
                Ok(_) | Err(_) => {
                    let problem = Problem::new(rpc::INTERNAL, "The end of the turn was missed");
                    self.turn_over(now, &prompt, Err(problem), out);
                }
            },
            (Awaited::Abandoned(session), _) => {
                let ballots = self.asks.abandon(Some(&session));
                self.withdraw(ballots, &Awaited::Told, out);
            }
            (
                Awaited::New(_)
                | Awaited::Restore { .. }
                | Awaited::Prompt(_)
                | Awaited::Cancel
                | Awaited::Told
                | Awaited::Leaving,
                _,
            ) => {}
        }
    }

    /// The client is a member of a session from here on.
    fn own(&mut self, joined: Joined, after: u64, loading: Option<(Id, Value)>, out: &mut Vec<Output>) {
        let Joined { session, client, epoch, .. } = joined;
        if let Some(owned) = self.sessions.get_mut(&session) {
            // It was a member before, and the bridge has counted it twice.
            let twice = Order::Detach { session: session.clone(), client };
            owned.delivered = after;
            let earlier = std::mem::replace(&mut owned.loading, loading);
            if owned.track.open || self.binding == Binding::Socket {
                let epoch = Some(epoch);
                self.feed_from(&session, after, epoch, false, out);
            }
            self.call(twice, false, Awaited::Told, out);
            if let Some((id, body)) = earlier {
                out.push(Output::Send { lane: Lane::Connection, message: rpc::result(&id, &body), id: None });
            }
            return;
        }
        self.last_key += 1;
        let feed = super::FeedKey(self.last_key);
        let owned = Owned {
            client,
            epoch: epoch.clone(),
            delivered: after,
            track: Track::default(),
            feed,
            mode: FeedMode::Watching,
            held: Vec::new(),
            loading,
        };
        self.sessions.insert(session.clone(), owned);
        match self.binding {
            Binding::Socket => self.feed_from(&session, after, Some(epoch), false, out),
            Binding::Streams => out.push(Output::Feed { feed, session, after: None, epoch: None }),
        }
    }

    /// A turn ended, or is not heard of any more.
    pub(super) fn turn_over(
        &mut self,
        now: Now,
        prompt: &PromptId,
        end: Result<Value, Problem>,
        out: &mut Vec<Output>,
    ) {
        let Some(Turn { id, session }) = self.turns.remove(prompt) else { return };
        let message = match end {
            Ok(result) => rpc::result(&id, &result),
            Err(problem) => rpc::error(&problem.of(id)),
        };
        self.answer(&Lane::Session(session), message, now, out);
    }
}

struct Request {
    id: Id,
    params: Value,
    loopback: bool,
    fresh: String,
}

/// What a vote came to. A late vote and one that the policy refuses end the matter for this client: others may still
/// decide. Everything else must not leave the request without a voter.
pub(super) fn vote_end(error: Option<&HttpError>) -> VoteEnd {
    match error.map(|error| error.status().as_u16()) {
        None | Some(403 | 404) => VoteEnd::Over,
        Some(_) => VoteEnd::Failed,
    }
}

fn invalid(text: &str) -> Problem {
    Problem::new(rpc::INVALID_PARAMS, text)
}

fn busy() -> Problem {
    let mut problem = Problem::new(rpc::INTERNAL, "Too many requests of this connection are open");
    problem = problem.with(json!({"httpStatus": 503, "errorKind": "too_many_requests", "limit": REQUESTS_MAX}));
    problem
}

fn session_of(params: &Value) -> Result<SessionId, Problem> {
    let session = params.get("sessionId").and_then(Value::as_str).filter(|id| !id.is_empty());
    session.map(SessionId::from).ok_or_else(|| invalid("sessionId is required"))
}

fn blocks(mut params: Value) -> Result<Vec<Value>, Problem> {
    match params.get_mut("prompt").map(Value::take) {
        Some(Value::Array(blocks)) if !blocks.is_empty() && blocks.len() <= BLOCKS_MAX => {
            if blocks.iter().all(Value::is_object) {
                Ok(blocks)
            } else {
                Err(invalid("each prompt element must be an object (content block)"))
            }
        }
        _ => Err(invalid("prompt is required and must be a non-empty array of content blocks")),
    }
}

/// A mode as the daemon's wire or as ACP spells it.
fn read_mode(text: &str) -> Option<ApprovalMode> {
    let same = |name: &str| name.replace('-', "").eq_ignore_ascii_case(&text.replace('-', ""));
    ApprovalMode::ALL.into_iter().find(|mode| same(mode.wire()))
}
