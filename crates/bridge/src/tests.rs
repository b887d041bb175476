//! The whole machine, driven as the daemon drives it.
//!
//! [`World`] plays the shell: it carries out outputs, keeps what every stream would have received, and checks the
//! invariants after every step.

mod golden;
mod lifecycle;

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::daemon::capability::PermissionPolicy;
use convoke_protocol::{ApprovalMode, ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick};
use serde_json::{Value, json};

use crate::contract::*;
use crate::{AuditRecord, Bridge, BridgeOptions, Refusal};

pub(crate) const WORKSPACE: &str = "/workspace/demo";

/// A shell that does at once what it is told.
pub(crate) struct World {
    pub(crate) bridge: Bridge,
    pub(crate) now: Now,
    last: u64,
    pub(crate) streams: BTreeMap<SubscriberId, Stream>,
    pub(crate) answers: BTreeMap<CallId, Result<Answer, Refusal>>,
    pub(crate) resolutions: BTreeMap<ReplyKey, Resolution>,
    pub(crate) starts: Vec<(CreationId, StartKind)>,
    pub(crate) turns: Vec<(SessionId, PromptId)>,
    pub(crate) cancelled: Vec<PromptId>,
    pub(crate) closed: Vec<SessionId>,
    pub(crate) audit: Vec<AuditRecord>,
    pub(crate) log: Vec<(LogLevel, String)>,
}

/// What one reader has received.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) frames: Vec<EncodedFrame>,
    /// Counted frames that the socket has not taken yet.
    pub(crate) undrained: Vec<usize>,
    pub(crate) ended: bool,
    pub(crate) evicted: Option<Value>,
}

pub(crate) fn options(policy: PermissionPolicy) -> BridgeOptions {
    BridgeOptions { policy, ..BridgeOptions::default() }
}

pub(crate) fn json_of(frame: &EncodedFrame) -> Value {
    serde_json::from_slice(&frame.json).unwrap()
}

pub(crate) fn selected(option_id: &str) -> VoteChoice {
    VoteChoice::Selected { option_id: option_id.into(), extras: None }
}

pub(crate) fn offers() -> Vec<Value> {
    vec![
        json!({ "optionId": "proceed_once", "name": "Allow", "kind": "allow_once" }),
        json!({ "optionId": "cancel", "name": "Reject", "kind": "reject_once" }),
    ]
}

impl World {
    pub(crate) fn new(options: BridgeOptions) -> Self {
        Self {
            bridge: Bridge::new(options),
            now: Now { tick: Tick(1000), wall_ms: 1_795_226_553_118 },
            last: 0,
            streams: BTreeMap::new(),
            answers: BTreeMap::new(),
            resolutions: BTreeMap::new(),
            starts: Vec::new(),
            turns: Vec::new(),
            cancelled: Vec::new(),
            closed: Vec::new(),
            audit: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn mint(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn call(&mut self) -> CallId {
        CallId(self.mint())
    }

    /// One input, all its outputs, and the invariants.
    pub(crate) fn step(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.bridge.handle(self.now, input, &mut out);
        self.bridge.check_invariants();
        for output in &out {
            self.carry_out(output.clone());
        }
        out
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Answer { call, answer } => {
                assert!(self.answers.insert(call, answer).is_none(), "{call:?} was answered twice");
            }
            Output::StartSession { creation, start, .. } => self.starts.push((creation, start)),
            Output::StartTurn { session, prompt_id, .. } => self.turns.push((session, prompt_id)),
            Output::CancelTurn { prompt_id, .. } => self.cancelled.push(prompt_id),
            Output::CloseSession { session, .. } => self.closed.push(session),
            Output::Resolve { reply, resolution } => {
                assert!(self.resolutions.insert(reply, resolution).is_none(), "{reply:?} was answered twice");
            }
            Output::Send { subscriber, frame, counted } => {
                let stream = self.streams.entry(subscriber).or_default();
                assert!(!stream.ended && stream.evicted.is_none(), "a frame for {subscriber:?} after its end");
                if counted {
                    stream.undrained.push(frame.sse.len());
                }
                stream.frames.push(frame);
            }
            Output::EndStream { subscriber } => self.streams.entry(subscriber).or_default().ended = true,
            Output::Evict { subscriber, frame } => {
                self.streams.entry(subscriber).or_default().evicted = Some(json_of(&frame));
            }
            Output::Audit(record) => self.audit.push(record),
            Output::Log { level, text } => self.log.push((level, text)),
        }
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now.tick = self.now.tick.after(by);
        self.now.wall_ms += u64::try_from(by.as_millis()).unwrap();
    }

    /// Lets time pass up to the next deadline, which must exist, and ticks.
    pub(crate) fn tick_at_deadline(&mut self) -> Vec<Output> {
        let deadline = self.bridge.next_deadline().expect("something is due");
        let wait = deadline.since(self.now.tick);
        self.advance(wait);
        self.step(Input::Tick)
    }

    /// `POST /session`: returns the answer, once the agent has done its part.
    pub(crate) fn create(&mut self, scope: SessionScope, client: Option<&ClientId>) -> Result<SessionAnswer, Refusal> {
        let call = self.call();
        let minted = ClientId(format!("client_{}", self.mint()));
        let request = CreateRequest {
            workspace: WORKSPACE.into(),
            scope,
            session: None,
            client: client.cloned(),
            minted,
            profile: SessionProfile::default(),
        };
        self.step(Input::Create { call, request });
        while let Some((creation, _)) = self.starts.pop() {
            let session = format!("session_{}", self.mint());
            self.started(creation, &session.as_str().into(), AgentKey(1));
        }
        match self.answers.remove(&call).expect("create is answered") {
            Ok(Answer::Session(answer)) => Ok(answer),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal),
        }
    }

    pub(crate) fn started(&mut self, creation: CreationId, session: &SessionId, agent: AgentKey) {
        self.step(Input::SessionStarted {
            creation,
            session: session.clone(),
            agent,
            epoch: format!("epoch of {session}"),
            created_wall_ms: None,
            model_id: Some("gemini-pro".into()),
            approval_mode: ApprovalMode::Default,
        });
    }

    /// A shared session with `members` clients and, for each, a live stream.
    pub(crate) fn shared(&mut self, members: usize) -> (SessionId, Vec<ClientId>, Vec<SubscriberId>) {
        let answers: Vec<SessionAnswer> =
            (0..members).map(|_| self.create(SessionScope::Single, None).unwrap()).collect();
        let session = answers[0].created.session_id.clone();
        let clients = answers.into_iter().map(|answer| answer.created.client_id).collect();
        let streams = (0..members).map(|_| self.subscribe(&session, None).unwrap()).collect();
        (session, clients, streams)
    }

    pub(crate) fn subscribe(&mut self, session: &SessionId, after: Option<u64>) -> Result<SubscriberId, Refusal> {
        self.subscribe_with(session, |request| request.last_event_id = after)
    }

    pub(crate) fn subscribe_with(
        &mut self,
        session: &SessionId,
        change: impl FnOnce(&mut SubscribeRequest),
    ) -> Result<SubscriberId, Refusal> {
        let subscriber = SubscriberId(self.mint());
        let mut request =
            SubscribeRequest { subscriber, last_event_id: None, epoch: None, max_queued: None, snapshot: false };
        change(&mut request);
        let call = self.call();
        let out = self.step(Input::Subscribe { call, session: session.clone(), request });
        let answer = self.answers.remove(&call).expect("subscribe is answered");
        assert!(matches!(out.first(), Some(Output::Answer { .. })), "the answer comes before the frames");
        answer.map(|_| {
            self.streams.entry(subscriber).or_default();
            subscriber
        })
    }

    pub(crate) fn prompt(&mut self, session: &SessionId, client: Option<&ClientId>, text: &str) -> PromptId {
        self.try_prompt(session, client, text).unwrap()
    }

    pub(crate) fn try_prompt(
        &mut self,
        session: &SessionId,
        client: Option<&ClientId>,
        text: &str,
    ) -> Result<PromptId, Refusal> {
        let call = self.call();
        let prompt_id = PromptId(format!("prompt_{}", self.mint()));
        self.step(Input::Prompt {
            call,
            session: session.clone(),
            caller: Caller { client: client.cloned(), loopback: true },
            prompt_id: prompt_id.clone(),
            blocks: vec![json!({ "type": "text", "text": text })],
            deadline: None,
        });
        self.answers.remove(&call).expect("prompt is answered").map(|_| prompt_id)
    }

    pub(crate) fn ask(&mut self, session: &SessionId) -> (RequestId, ReplyKey) {
        self.ask_with(session, offers())
    }

    pub(crate) fn ask_with(&mut self, session: &SessionId, options: Vec<Value>) -> (RequestId, ReplyKey) {
        let request = RequestId(format!("request_{}", self.mint()));
        let reply = ReplyKey(self.mint());
        self.step(Input::PermissionRequested {
            session: session.clone(),
            request: request.clone(),
            reply,
            tool_call: self.tool_call(),
            options,
        });
        (request, reply)
    }

    /// What every request asks for.
    pub(crate) fn tool_call(&self) -> Value {
        json!({ "toolCallId": "call_1", "title": "touch x", "kind": "execute", "rawInput": { "command": "touch x" } })
    }

    pub(crate) fn detach(&mut self, session: &SessionId, client: &ClientId) {
        self.step(Input::Detach { session: session.clone(), client: Some(client.clone()) });
    }

    pub(crate) fn vote(
        &mut self,
        session: &SessionId,
        request: &RequestId,
        client: Option<&ClientId>,
        choice: VoteChoice,
    ) -> Result<(), Refusal> {
        self.vote_as(Some(session), request, Caller { client: client.cloned(), loopback: true }, choice)
    }

    pub(crate) fn vote_as(
        &mut self,
        session: Option<&SessionId>,
        request: &RequestId,
        caller: Caller,
        choice: VoteChoice,
    ) -> Result<(), Refusal> {
        let call = self.call();
        self.step(Input::Vote { call, session: session.cloned(), request: request.clone(), caller, choice });
        self.answers.remove(&call).expect("a vote is answered").map(|answer| assert_eq!(answer, Answer::Done))
    }

    pub(crate) fn cancel(&mut self, session: &SessionId, client: Option<&ClientId>) -> Result<(), Refusal> {
        let call = self.call();
        let caller = Caller { client: client.cloned(), loopback: true };
        self.step(Input::Cancel { call, session: session.clone(), caller });
        self.answers.remove(&call).expect("cancel is answered").map(|_| ())
    }

    pub(crate) fn close(&mut self, session: &SessionId, client: Option<&ClientId>) -> CallId {
        let call = self.call();
        let caller = Caller { client: client.cloned(), loopback: true };
        self.step(Input::Close { call, session: session.clone(), caller });
        call
    }

    pub(crate) fn update(&mut self, session: &SessionId, kind: &str, text: &str) {
        let update = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
        self.step(Input::Update { session: session.clone(), update });
    }

    pub(crate) fn end_turn(&mut self, session: &SessionId, prompt_id: &PromptId, stop_reason: &str) {
        let outcome = TurnOutcome::Complete { stop_reason: stop_reason.into() };
        self.step(Input::TurnEnded { session: session.clone(), prompt_id: prompt_id.clone(), outcome });
    }

    /// The frames of a stream as JSON.
    pub(crate) fn frames(&self, subscriber: SubscriberId) -> Vec<Value> {
        self.streams[&subscriber].frames.iter().map(json_of).collect()
    }

    /// The kinds of a stream's frames.
    pub(crate) fn kinds(&self, subscriber: SubscriberId) -> Vec<&'static str> {
        self.streams[&subscriber].frames.iter().map(|frame| frame.kind.name()).collect()
    }
}
