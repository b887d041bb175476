//! Who does what next: clients, agents and the clock, as chance wants it.

use std::time::Duration;

use convoke_protocol::{ApprovalMode, ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick};
use serde_json::{Value, json};

use super::ballots::Life;
use super::chance::Chance;
use super::judge::Judge;
use super::{Kept, Moment};
use crate::contract::{
    AgentKey, CallId, Caller, CreateRequest, Input, ReplyKey, SessionProfile, SessionScope, StartKind,
    SubscribeRequest, SubscriberId, TurnOutcome, VoteChoice,
};
use crate::options::BridgeOptions;
use crate::refusal::StartFailure;

const WORKSPACE: &str = "/workspace/demo";

pub(super) struct Walk {
    pub(super) judge: Judge,
    pub(super) options: BridgeOptions,
    pub(super) trace: Vec<Moment>,
    chance: Chance,
    now: Now,
    last: u64,
    agent: u64,
    /// Whether every session has a reader that keeps up; it also keeps sessions from being left.
    watched: bool,
    watchers: Vec<(SessionId, SubscriberId)>,
    /// Readers that take nothing from their sockets.
    stalled: Vec<SubscriberId>,
}

impl Walk {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let options = chance.options();
        Self {
            judge: Judge::new(options.clone()),
            options,
            trace: Vec::new(),
            watched: chance.one_in(2),
            chance,
            now: Now { tick: Tick(1000), wall_ms: 1_795_226_553_118 },
            last: 0,
            agent: 1,
            watchers: Vec::new(),
            stalled: Vec::new(),
        }
    }

    fn mint(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn call(&mut self) -> CallId {
        CallId(self.mint())
    }

    fn feed(&mut self, input: Input) -> Kept {
        self.trace.push((self.now, input.clone()));
        self.judge.apply(self.now, input)
    }

    fn step(&mut self, input: Input) -> Kept {
        self.feed(input)?;
        self.watch()?;
        self.drain(|walk, subscriber| walk.watchers.iter().any(|(_, watcher)| *watcher == subscriber))
    }

    /// Gives every new session a reader from the beginning.
    fn watch(&mut self) -> Kept {
        if !self.watched {
            return Ok(());
        }
        self.watchers.retain(|(_, subscriber)| self.judge.readers.contains_key(subscriber));
        let unwatched = |id: &&SessionId| {
            self.judge.life(id) == Life::Open && !self.watchers.iter().any(|(watched, _)| watched == *id)
        };
        let sessions: Vec<SessionId> = self.judge.seen.sessions.iter().filter(unwatched).cloned().collect();
        for session in sessions {
            let (call, subscriber) = (self.call(), SubscriberId(self.mint()));
            let request = SubscribeRequest {
                subscriber,
                last_event_id: Some(0),
                epoch: None,
                max_queued: Some(2048),
                snapshot: false,
            };
            self.feed(Input::Subscribe { call, session: session.clone(), request })?;
            self.watchers.push((session, subscriber));
        }
        Ok(())
    }

    /// Lets readers take everything from their sockets.
    fn drain(&mut self, which: impl Fn(&Self, SubscriberId) -> bool) -> Kept {
        let waiting = self.judge.readers.iter().filter(|(_, reader)| !reader.queue.is_empty());
        let waiting: Vec<(SubscriberId, usize, usize)> =
            waiting.map(|(id, reader)| (*id, reader.queue.len(), reader.queue.iter().sum())).collect();
        for (subscriber, frames, bytes) in waiting {
            if which(self, subscriber) {
                self.feed(Input::Drained { subscriber, frames, bytes })?;
            }
        }
        Ok(())
    }

    /// Mostly a session that is open.
    fn session(&mut self) -> SessionId {
        let open: Vec<&SessionId> =
            self.judge.seen.sessions.iter().filter(|id| self.judge.life(id) == Life::Open).collect();
        let all: Vec<&SessionId> = self.judge.seen.sessions.iter().collect();
        let from = if self.chance.one_in(12) { all } else { open };
        self.chance.pick(&from).map_or_else(|| "no such session".into(), |id| (*id).clone())
    }

    /// Mostly a client of this session.
    fn caller(&mut self, session: &SessionId) -> Caller {
        let client = if self.chance.one_in(12) {
            // Of another session, or of one that has left.
            self.chance.pick(&self.judge.seen.clients).map(|(id, _)| id.clone())
        } else {
            let members: Vec<&ClientId> = self.judge.ballots.members(session).collect();
            self.chance.pick(&members).map(|id| (*id).clone())
        };
        let client = if self.chance.one_in(40) { Some("stranger".into()) } else { client };
        Caller { client: client.filter(|_| !self.chance.one_in(6)), loopback: self.chance.one_in(2) }
    }

    pub(super) fn random_step(&mut self) -> Kept {
        let empty = !self.judge.seen.sessions.iter().any(|id| self.judge.life(id) == Life::Open);
        if empty && !self.chance.one_in(4) {
            return if self.judge.seen.starts.is_empty() { self.create() } else { self.answer_start() };
        }
        match self.chance.below(42) {
            0..=2 => self.create(),
            3..=6 => self.answer_start(),
            7 => self.restore(),
            8..=9 => {
                let session = self.session();
                let client = self.caller(&session).client;
                self.step(Input::Detach { session, client })
            }
            10..=13 => self.connect(),
            14 => self.disconnect(),
            15..=17 => self.read(),
            18..=21 => self.prompt(),
            22 => {
                let (call, session) = (self.call(), self.session());
                let caller = self.caller(&session);
                self.step(Input::Cancel { call, session, caller })
            }
            23..=29 => self.vote(),
            30..=32 => self.ask(),
            33 => self.update(),
            34..=35 => self.end_turn(),
            36 => self.small_calls(),
            37 => self.rare(),
            _ => self.pass_time(),
        }
    }

    fn create(&mut self) -> Kept {
        let call = self.call();
        let minted = ClientId(format!("client_{}", self.mint()));
        let chosen = self.chance.one_in(5).then(|| SessionId(format!("chosen_{}", self.chance.below(4))));
        let like = self.session();
        let request = CreateRequest {
            workspace: if self.chance.one_in(5) { "/workspace/other".into() } else { WORKSPACE.into() },
            scope: if self.chance.one_in(3) { SessionScope::Thread } else { SessionScope::Single },
            session: chosen,
            client: self.caller(&like).client,
            minted,
            profile: SessionProfile::default(),
        };
        self.step(Input::Create { call, request })
    }

    fn answer_start(&mut self) -> Kept {
        if self.judge.seen.starts.is_empty() {
            return Ok(());
        }
        let position = self.chance.below(self.judge.seen.starts.len());
        let (creation, kind) = self.judge.seen.starts.swap_remove(position);
        if self.chance.one_in(6) {
            let failure = StartFailure::Unavailable { message: "no".into() };
            return self.step(Input::SessionStartFailed { creation, failure });
        }
        let session = match kind {
            StartKind::New { session: Some(session), .. } | StartKind::Restore { session } => session,
            // An agent that names a session which is live.
            StartKind::New { session: None, .. } if self.chance.one_in(30) => self.session(),
            StartKind::New { session: None, .. } => SessionId(format!("session_{}", self.mint())),
        };
        let epoch = format!("epoch_{}", self.mint());
        let agent = AgentKey(self.agent + u64::from(self.chance.one_in(2)));
        let (created_wall_ms, model_id, approval_mode) = (None, None, ApprovalMode::Default);
        self.step(Input::SessionStarted { creation, session, agent, epoch, created_wall_ms, model_id, approval_mode })
    }

    fn restore(&mut self) -> Kept {
        let (call, mut session) = (self.call(), self.session());
        let restored = self.judge.seen.starts.iter().find_map(|(_, kind)| match kind {
            StartKind::Restore { session } => Some(session.clone()),
            StartKind::New { .. } => None,
        });
        // One that is being restored, or that may be over.
        match (restored, self.chance.below(3)) {
            (Some(restored), 1..) => session = restored,
            (None, 1..) => session = self.chance.pick(&self.judge.seen.sessions).cloned().unwrap_or(session),
            (_, _) => {}
        }
        let client = self.caller(&session).client;
        let minted = ClientId(format!("client_{}", self.mint()));
        self.step(Input::Restore { call, session, workspace: WORKSPACE.into(), client, minted })
    }

    /// A stream from any cursor: from now, from the beginning, from where somebody was, from an invented place.
    fn connect(&mut self) -> Kept {
        let mut session = self.session();
        let last_event_id = match self.chance.below(8) {
            0..=1 => None,
            2 => Some(0),
            3 => u64::try_from(self.chance.below(40)).ok(),
            4 => Some(u64::MAX),
            _ => {
                let absent = self.chance.pick(&self.judge.seen.absent).map(|it| (it.session.clone(), it.last));
                absent.map(|(of, last)| {
                    session = of;
                    last
                })
            }
        };
        let reused: Vec<SubscriberId> = self.judge.readers.keys().copied().collect();
        let reused = self.chance.pick(&reused).copied().filter(|_| self.chance.one_in(20));
        let subscriber = reused.unwrap_or_else(|| SubscriberId(self.mint()));
        let request = SubscribeRequest {
            subscriber,
            last_event_id,
            epoch: self.chance.one_in(12).then(|| "another".to_owned()),
            max_queued: if self.chance.one_in(4) { Some(self.chance.below(40)) } else { None },
            snapshot: self.chance.one_in(3),
        };
        self.stalled.retain(|stalled| *stalled != subscriber);
        self.watchers.retain(|(_, watcher)| *watcher != subscriber);
        if self.chance.one_in(3) {
            self.stalled.push(subscriber);
        }
        let call = self.call();
        self.step(Input::Subscribe { call, session, request })
    }

    fn disconnect(&mut self) -> Kept {
        let open: Vec<SubscriberId> = self.judge.readers.keys().copied().collect();
        let Some(subscriber) = self.chance.pick(&open).copied() else { return Ok(()) };
        if self.chance.one_in(3) {
            let (idle_for, timeout) = (Duration::from_secs(3), Duration::from_secs(2));
            return self.step(Input::WriterStalled { subscriber, idle_for, timeout });
        }
        self.step(Input::Unsubscribe { subscriber })
    }

    fn read(&mut self) -> Kept {
        self.drain(|walk, subscriber| !walk.stalled.contains(&subscriber))?;
        if self.chance.one_in(20) {
            return self.step(Input::Drained { subscriber: SubscriberId(u64::MAX), frames: 9, bytes: 9 });
        }
        Ok(())
    }

    fn prompt(&mut self) -> Kept {
        let session = self.session();
        let caller = self.caller(&session);
        let mut prompt_id = PromptId(format!("prompt_{}", self.mint()));
        if self.chance.one_in(15)
            && let Ok(pending) = self.judge.bridge.pending_prompts(&session)
            && let Some(known) = pending.last()
        {
            // Two turns of one name would be one to everybody: it is refused.
            prompt_id = known.prompt_id.clone();
        }
        let deadline = self.chance.one_in(5).then_some(Duration::from_millis(100));
        let blocks = vec![json!({ "type": "text", "text": "go" })];
        let call = self.call();
        self.step(Input::Prompt { call, session, caller, prompt_id, blocks, deadline })
    }

    fn vote(&mut self) -> Kept {
        let waiting = self.judge.ballots.pending.iter().map(|(id, asked)| (id.clone(), asked.session.clone()));
        let waiting: Vec<(RequestId, SessionId)> = waiting.collect();
        let requests = &self.judge.seen.requests;
        let recent = requests.get(requests.len().saturating_sub(5)..).unwrap_or_default();
        let from = match self.chance.below(6) {
            0 => requests,
            1 => recent,
            _ if waiting.is_empty() => recent,
            _ => &waiting,
        };
        let found = self.chance.pick(from).cloned();
        let invented = self.chance.one_in(15) || found.is_none();
        let invented = invented.then(|| (RequestId("no such request".into()), SessionId("no such session".into())));
        let Some((request, of)) = invented.or(found) else { return Ok(()) };
        let session = match self.chance.below(8) {
            0 => None,
            1 => Some(self.session()),
            _ => Some(of.clone()),
        };
        let selected = |option: &str| VoteChoice::Selected { option_id: option.to_owned(), extras: None };
        let choice = match self.chance.below(12) {
            0 => VoteChoice::Cancelled,
            1 => selected("__cancelled__"),
            2 => selected("not offered"),
            3..=6 => selected("cancel"),
            _ => selected("proceed_once"),
        };
        let caller = self.caller(&of);
        // A race, an argument, or one who votes twice.
        let voters = if self.chance.one_in(4) { 1 + self.chance.below(5) } else { 1 };
        for voter in 0..voters {
            let caller = if voter > 0 && !self.chance.one_in(4) { self.caller(&of) } else { caller.clone() };
            let choice = if voter > 0 && self.chance.one_in(3) { selected("proceed_once") } else { choice.clone() };
            let (call, session, request) = (self.call(), session.clone(), request.clone());
            self.step(Input::Vote { call, session, request, caller, choice })?;
        }
        Ok(())
    }

    fn ask(&mut self) -> Kept {
        if self.chance.one_in(8) {
            // All that it wants to know at once.
            let session = self.session();
            for _ in 0..3 {
                self.ask_about(session.clone(), offers())?;
            }
        }
        let mut session = self.session();
        let mut request = RequestId(format!("request_{}", self.mint()));
        let mut reply = ReplyKey(self.mint());
        let mut options = offers();
        match self.chance.below(12) {
            0 => options.push(json!({ "optionId": "__cancelled__", "name": "x", "kind": "allow_once" })),
            // The shell repeats an id, or a key, that is known. One that is forgotten it never mints again.
            1 => {
                if let Some((known, of)) = self.judge.seen.requests.last()
                    && self.judge.bridge.session_of(known).is_some()
                {
                    (request, session) = (known.clone(), of.clone());
                }
            }
            2 => reply = self.judge.seen.replies.last().copied().unwrap_or(reply),
            3..=4 => {
                let Some(reply) = self.chance.pick(&self.judge.seen.replies).copied() else { return Ok(()) };
                return self.step(Input::PermissionWithdrawn { reply });
            }
            5 => options.truncate(self.chance.below(2)),
            _ => {}
        }
        let tool_call = self.tool_call();
        self.step(Input::PermissionRequested { session, request, reply, tool_call, options })
    }

    fn ask_about(&mut self, session: SessionId, options: Vec<Value>) -> Kept {
        let (request, reply) = (RequestId(format!("request_{}", self.mint())), ReplyKey(self.mint()));
        let tool_call = self.tool_call();
        self.step(Input::PermissionRequested { session, request, reply, tool_call, options })
    }

    fn tool_call(&mut self) -> Value {
        let number = self.chance.below(3);
        json!({ "toolCallId": "call_1", "title": "touch x", "rawInput": { "number": number } })
    }

    fn update(&mut self) -> Kept {
        let session = self.session();
        let text = "x".repeat(self.chance.below(900));
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
        self.step(Input::Update { session, update })
    }

    fn end_turn(&mut self) -> Kept {
        let Some((session, mut prompt_id)) = self.chance.pick(&self.judge.seen.running).cloned() else {
            return Ok(());
        };
        if self.chance.one_in(12) {
            prompt_id = PromptId("no such prompt".into());
        }
        let outcome = match self.chance.below(4) {
            0 => TurnOutcome::Failed { message: "broken".into(), code: Some((-32603).into()) },
            1 => TurnOutcome::Complete { stop_reason: "cancelled".into() },
            _ => TurnOutcome::Complete { stop_reason: "end_turn".into() },
        };
        self.step(Input::TurnEnded { session, prompt_id, outcome })
    }

    fn small_calls(&mut self) -> Kept {
        let session = self.session();
        let caller = self.caller(&session);
        if self.chance.one_in(4) {
            let (originator, mode) = (caller.client, ApprovalMode::Yolo);
            return self.step(Input::ApprovalModeChanged { session, originator, mode, persisted: false });
        }
        let call = self.call();
        let names = [None, Some("name"), Some(""), Some("a\u{7}b")];
        match self.chance.pick(&names).copied().flatten() {
            None if self.chance.one_in(2) => self.step(Input::Heartbeat { call, session, caller }),
            name => {
                let display_name = name.map(str::to_owned);
                self.step(Input::SetMetadata { call, session, caller, display_name })
            }
        }
    }

    fn rare(&mut self) -> Kept {
        match self.chance.below(7) {
            0..=2 => {
                let (call, session) = (self.call(), self.session());
                let caller = self.caller(&session);
                self.step(Input::Close { call, session, caller })
            }
            3 => {
                let agent = AgentKey(self.agent);
                self.agent += 1;
                self.step(Input::AgentGone { agent, exit_code: None, signal: Some("SIGKILL".into()) })
            }
            _ => Ok(()),
        }
    }

    /// The clock goes on, now and then by far; the wall's clock jumps in both directions.
    fn pass_time(&mut self) -> Kept {
        let wait = self
            .chance
            .pick(&[0, 1, 10, 50, 50, 50, 100, 100, 250, 250, 400, 1500, 90_000])
            .copied()
            .unwrap_or_default();
        self.now.tick = self.now.tick.after(Duration::from_millis(wait));
        self.now.wall_ms += wait;
        if self.chance.one_in(20) {
            let jump = self.chance.below(7_200_000);
            self.now.wall_ms = (self.now.wall_ms - 3_600_000) + u64::try_from(jump).unwrap_or_default();
        }
        if self.chance.one_in(4) {
            return Ok(());
        }
        self.step(Input::Tick)
    }

    /// The daemon shuts down, and refuses whoever comes after.
    pub(super) fn finish(&mut self) -> Kept {
        self.feed(Input::Shutdown)?;
        self.watched = false;
        self.create()?;
        self.vote()?;
        self.ask()?;
        self.judge.finish()
    }
}

fn offers() -> Vec<Value> {
    vec![
        json!({ "optionId": "proceed_once", "name": "Allow", "kind": "allow_once" }),
        json!({ "optionId": "cancel", "name": "Reject", "kind": "reject_once" }),
    ]
}
