//! Random walks: clients that create, attach, subscribe, vote, race, repeat, lie, leave, stall and return; agents that
//! ask, withdraw, finish and die; a clock that jumps.
//!
//! After every step the invariants hold ([`World::step`]). At the end of a walk everything that was promised has
//! happened exactly once, every stream is a true part of its session's history, and every decision agrees with a
//! naive model of the policies that reads nothing but the audit.
//!
//! A failing walk prints its seed; `check(seed)` repeats it.

mod naive;
mod random;

use std::collections::BTreeMap;

use super::*;
use crate::{AuditEvent, IdConflict, StartFailure};
use naive::check_audit;
use random::{Random, walk_options};

const SEEDS: u64 = 300;
const STEPS: usize = 300;

/// A client's view of one session over several connections.
struct Reader {
    session: SessionId,
    stream: Option<SubscriberId>,
    /// Frames by number, over all its connections.
    seen: BTreeMap<u64, EncodedFrame>,
    last: u64,
    /// It was told that it can't have everything.
    resynced: bool,
    /// How many frames of the stream were taken over into `seen`.
    taken: usize,
    /// Whether it reads at all.
    stalled: bool,
}

struct Walk {
    world: World,
    random: Random,
    /// Whether every session has a reader that never stalls; it also keeps sessions from being left.
    watched: bool,
    readers: Vec<Reader>,
    watchers: BTreeMap<SessionId, SubscriberId>,
    sessions: Vec<SessionId>,
    clients: Vec<(ClientId, SessionId)>,
    requests: Vec<(RequestId, SessionId)>,
    replies: Vec<ReplyKey>,
    prompts: Vec<(SessionId, PromptId)>,
    calls: Vec<CallId>,
    agent: u64,
    /// What has happened, by name: a walk that reaches nothing proves nothing.
    reached: BTreeMap<String, usize>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let options = walk_options(&mut random);
        let watched = random.one_in(2);
        Self {
            world: World::new(options),
            random,
            watched,
            readers: Vec::new(),
            watchers: BTreeMap::new(),
            sessions: vec!["no such session".into()],
            clients: vec![("stranger".into(), "no such session".into())],
            requests: vec![("no such request".into(), "no such session".into())],
            replies: Vec::new(),
            prompts: Vec::new(),
            calls: Vec::new(),
            agent: 1,
            reached: BTreeMap::new(),
        }
    }

    fn call(&mut self) -> CallId {
        let call = self.world.call();
        self.calls.push(call);
        call
    }

    /// Mostly a session that is alive.
    fn session(&mut self) -> SessionId {
        let bridge = &self.world.bridge;
        let live: Vec<SessionId> =
            self.sessions.iter().filter(|id| bridge.authorize(id, None).is_ok()).cloned().collect();
        let from = if live.is_empty() || self.random.one_in(12) { &self.sessions } else { &live };
        self.random.pick(from).unwrap()
    }

    /// Mostly a client of this session.
    fn caller(&mut self, session: &SessionId) -> Caller {
        let members: Vec<&ClientId> = self.clients.iter().filter(|(_, of)| of == session).map(|(id, _)| id).collect();
        let members = &members[members.len().saturating_sub(5)..];
        let all: Vec<&ClientId> = self.clients.iter().map(|(id, _)| id).collect();
        let from = if members.is_empty() || self.random.one_in(12) { &all } else { members };
        let client = self.random.pick(from).cloned();
        Caller { client: client.filter(|_| !self.random.one_in(6)), loopback: self.random.one_in(2) }
    }

    fn step(&mut self, input: Input) {
        let out = self.world.step(input);
        for output in out {
            self.note(&output);
            match output {
                Output::Answer { answer: Ok(Answer::Session(answer)), .. } => {
                    let id = answer.created.session_id;
                    self.clients.push((answer.created.client_id, id.clone()));
                    if !self.sessions.contains(&id) {
                        self.sessions.push(id.clone());
                    }
                    if self.watched && !self.watchers.contains_key(&id) {
                        let stream = self.world.subscribe(&id, Some(0)).unwrap();
                        self.watchers.insert(id, stream);
                    }
                }
                Output::Send { subscriber, counted: true, frame } if self.is_watcher(subscriber) => {
                    let bytes = frame.sse.len();
                    self.world.step(Input::Drained { subscriber, frames: 1, bytes });
                    self.world.streams.get_mut(&subscriber).unwrap().undrained.clear();
                }
                _ => {}
            }
        }
        let limits = &self.world.bridge.options().limits;
        for stream in self.world.streams.values().filter(|stream| stream.evicted.is_none() && !stream.ended) {
            let bytes: usize = stream.undrained.iter().sum();
            assert!(stream.undrained.len() <= limits.queued_frames, "a queue is longer than its bound");
            assert!(bytes <= limits.queued_bytes || stream.undrained.len() == 1, "a queue is larger than its bound");
        }
    }

    /// What a new stream began with.
    fn note_opening(&mut self, subscriber: SubscriberId) {
        for frame in self.world.streams[&subscriber].frames.clone() {
            self.note(&Output::Send { subscriber, frame, counted: false });
        }
    }

    fn note(&mut self, output: &Output) {
        let word = |text: String| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let name = match output {
            Output::Answer { answer: Err(refusal), .. } => word(format!("{refusal:?}")),
            Output::Answer { answer: Ok(answer), .. } => word(format!("{answer:?}")),
            Output::Send { frame, .. } if frame.kind.name() == "state_resync_required" => {
                json_of(frame)["data"]["reason"].as_str().unwrap().to_owned()
            }
            Output::Send { frame, .. } if frame.id.is_none() && frame.kind.name() == "permission_request" => {
                "late joiner".to_owned()
            }
            Output::Send { frame, .. } => frame.kind.name().to_owned(),
            Output::Evict { frame, .. } => json_of(frame)["data"]["reason"].as_str().unwrap().to_owned(),
            Output::Audit(AuditRecord { event: AuditEvent::Resolved { decision_reason, .. }, .. }) => {
                word(format!("by {decision_reason:?}")[3..].to_owned())
            }
            Output::Resolve { resolution: Resolution::Cancelled(reason), .. } => reason.name().to_owned(),
            Output::Resolve { resolution, .. } => word(format!("{resolution:?}")),
            Output::StartSession { .. } | Output::StartTurn { .. } | Output::CancelTurn { .. } => return,
            Output::CloseSession { .. } | Output::Log { .. } | Output::EndStream { .. } | Output::Audit(_) => return,
        };
        *self.reached.entry(name).or_default() += 1;
    }

    fn is_watcher(&self, subscriber: SubscriberId) -> bool {
        self.watchers.values().any(|watcher| *watcher == subscriber)
    }

    fn random_step(&mut self) {
        match self.random.below(40) {
            0..=2 => self.create(),
            3..=6 => self.answer_start(),
            7 => self.restore(),
            8 => {
                let session = self.session();
                let client = self.caller(&session).client;
                self.step(Input::Detach { session, client });
            }
            9..=11 => self.connect(),
            12 => self.reconnect(),
            13 => self.disconnect(),
            14..=16 => self.read(),
            17..=20 => self.prompt(),
            21 => {
                let (call, session) = (self.call(), self.session());
                let caller = self.caller(&session);
                self.step(Input::Cancel { call, session, caller });
            }
            22..=27 => self.vote(),
            28..=29 => self.ask(),
            30..=32 => {
                let session = self.session();
                let text = "x".repeat(self.random.below(900));
                let update =
                    json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
                self.step(Input::Update { session, update });
            }
            33..=34 => self.end_turn(),
            35 => self.small_calls(),
            36 => self.rare(),
            _ => {
                let wait = [0, 1, 50, 250, 1500][self.random.below(5)];
                self.world.advance(Duration::from_millis(wait));
                if !self.random.one_in(4) {
                    self.step(Input::Tick);
                }
            }
        }
    }

    fn create(&mut self) {
        let call = self.call();
        let minted = ClientId(format!("client_{}", self.world.mint()));
        let chosen = self.random.one_in(5).then(|| SessionId(format!("chosen_{}", self.random.below(4))));
        let like = self.session();
        let client = self.caller(&like).client;
        let request = CreateRequest {
            workspace: if self.random.one_in(5) { "/workspace/other".into() } else { WORKSPACE.into() },
            scope: if self.random.one_in(3) { SessionScope::Thread } else { SessionScope::Single },
            session: chosen.clone(),
            client,
            minted,
            profile: SessionProfile::default(),
        };
        self.step(Input::Create { call, request });
        if let (Some(Err(Refusal::SessionIdConflict { session, conflict, .. })), Some(chosen)) =
            (self.world.answers.get(&call), chosen)
        {
            assert_eq!(*session, chosen);
            assert_eq!(
                *conflict == IdConflict::Live,
                self.world.bridge.status(&chosen).is_ok() || self.is_closing(&chosen)
            );
        }
    }

    fn is_closing(&self, session: &SessionId) -> bool {
        matches!(self.world.bridge.status(session), Err(Refusal::SessionClosing { .. }))
    }

    fn answer_start(&mut self) {
        if self.world.starts.is_empty() {
            return;
        }
        let position = self.random.below(self.world.starts.len());
        let (creation, kind) = self.world.starts.swap_remove(position);
        if self.random.one_in(6) {
            let failure = StartFailure::Unavailable { message: "no".into() };
            return self.step(Input::SessionStartFailed { creation, failure });
        }
        let session = match kind {
            StartKind::New { session: Some(session), .. } | StartKind::Restore { session } => session,
            StartKind::New { session: None, .. } if self.random.one_in(30) => self.session(),
            StartKind::New { session: None, .. } => SessionId(format!("session_{}", self.world.mint())),
        };
        // A session of this name may have lived before; its history is not this one's.
        if self.world.bridge.status(&session).is_err() && !self.is_closing(&session) {
            self.retire(&session);
        }
        let epoch = format!("epoch_{}", self.world.mint());
        let agent = AgentKey(self.agent + u64::try_from(self.random.below(2)).unwrap());
        self.step(Input::SessionStarted {
            creation,
            session,
            agent,
            epoch,
            created_wall_ms: None,
            model_id: None,
            approval_mode: ApprovalMode::Default,
        });
    }

    /// Checks what is known of a session that is over, and forgets it.
    fn retire(&mut self, session: &SessionId) {
        self.check_streams_of(session);
        self.readers.retain(|reader| reader.session != *session);
        if let Some(watcher) = self.watchers.remove(session) {
            self.check_history(session, watcher);
        }
        self.prompts.retain(|(of, _)| of != session);
        self.requests.retain(|(_, of)| of != session);
        self.requests.push(("no such request".into(), "no such session".into()));
    }

    fn restore(&mut self) {
        let (call, session) = (self.call(), self.session());
        let client = self.caller(&session).client;
        let minted = ClientId(format!("client_{}", self.world.mint()));
        self.step(Input::Restore { call, session, workspace: WORKSPACE.into(), client, minted });
    }

    fn connect(&mut self) {
        let session = self.session();
        let (lie, after) = (self.random.one_in(10), self.random.below(30));
        let after = self.random.one_in(2).then_some(u64::try_from(after).unwrap());
        let epoch = lie.then(|| "another".to_owned());
        let snapshot = self.random.one_in(3);
        let stream = self.world.subscribe_with(&session, |request| {
            (request.last_event_id, request.epoch, request.snapshot) = (after, epoch, snapshot);
        });
        if let Err(refusal) = &stream {
            let answer = Err(refusal.clone());
            self.note(&Output::Answer { call: CallId(0), answer });
        }
        if let Ok(stream) = stream {
            self.note_opening(stream);
            let last = after.unwrap_or(u64::MAX);
            let stalled = self.random.one_in(3);
            let (seen, taken) = (BTreeMap::new(), 0);
            // What it claims to have seen elsewhere is not in `seen`, so only a true history is held against it.
            let resynced = last != 0;
            self.readers.push(Reader { session, stream: Some(stream), seen, last: 0, resynced, taken, stalled });
        }
    }

    fn reconnect(&mut self) {
        self.take_all();
        let idle: Vec<usize> = (0..self.readers.len()).filter(|i| self.readers[*i].stream.is_none()).collect();
        let Some(index) = self.random.pick(&idle) else { return };
        let (session, last) = (self.readers[index].session.clone(), self.readers[index].last);
        let stream = self.world.subscribe(&session, Some(last));
        if let Ok(stream) = stream {
            self.note_opening(stream);
        }
        let reader = &mut self.readers[index];
        if let Ok(stream) = stream {
            (reader.stream, reader.taken) = (Some(stream), 0);
        }
    }

    fn disconnect(&mut self) {
        self.take_all();
        let open: Vec<usize> = (0..self.readers.len()).filter(|i| self.readers[*i].stream.is_some()).collect();
        let Some(index) = self.random.pick(&open) else { return };
        let Some(subscriber) = self.readers[index].stream.take() else { return };
        match self.random.below(3) {
            0 => {
                let (idle_for, timeout) = (Duration::from_secs(3), Duration::from_secs(2));
                self.step(Input::WriterStalled { subscriber, idle_for, timeout });
            }
            _ => self.step(Input::Unsubscribe { subscriber }),
        }
    }

    /// Readers that do not stall take everything from their sockets.
    fn read(&mut self) {
        let streams: Vec<SubscriberId> =
            self.readers.iter().filter(|reader| !reader.stalled).filter_map(|reader| reader.stream).collect();
        for subscriber in streams {
            let undrained = std::mem::take(&mut self.world.streams.get_mut(&subscriber).unwrap().undrained);
            let bytes = undrained.iter().sum();
            self.step(Input::Drained { subscriber, frames: undrained.len(), bytes });
        }
        if self.random.one_in(20) {
            self.step(Input::Drained { subscriber: SubscriberId(u64::MAX), frames: 9, bytes: 9 });
        }
    }

    /// Takes over what arrived at every reader, also over streams that have ended.
    fn take_all(&mut self) {
        for reader in &mut self.readers {
            let Some(id) = reader.stream else { continue };
            let stream = &self.world.streams[&id];
            for frame in &stream.frames[reader.taken..] {
                if frame.kind.name() == "state_resync_required" {
                    reader.resynced = true;
                }
                if let Some(number) = frame.id {
                    reader.seen.insert(number, frame.clone());
                    reader.last = number;
                }
            }
            reader.taken = stream.frames.len();
            if stream.ended || stream.evicted.is_some() {
                reader.stream = None;
            }
        }
    }

    fn prompt(&mut self) {
        let session = self.session();
        let caller = self.caller(&session);
        let mut prompt_id = PromptId(format!("prompt_{}", self.world.mint()));
        let mut repeats = false;
        if self.random.one_in(15)
            && let Some(pending) =
                self.world.bridge.pending_prompts(&session).ok().and_then(|list| list.last().cloned())
        {
            (prompt_id, repeats) = (pending.prompt_id, true);
        }
        let deadline = self.random.one_in(5).then_some(Duration::from_millis(100));
        let blocks = vec![json!({ "type": "text", "text": "go" })];
        let call = self.call();
        let id = prompt_id.clone();
        self.step(Input::Prompt { call, session: session.clone(), caller, prompt_id, blocks, deadline });
        if matches!(self.world.answers[&call], Ok(Answer::Prompt(_))) {
            assert!(!repeats, "two turns of one name");
            self.prompts.push((session, id));
        }
    }

    fn vote(&mut self) {
        let recent = self.requests.len().saturating_sub(if self.random.one_in(6) { 99 } else { 4 });
        let Some((request, of)) = self.random.pick(&self.requests[recent..]) else { return };
        let session = match self.random.below(8) {
            0 => None,
            1 => Some(self.session()),
            _ => Some(of.clone()),
        };
        let choice = match self.random.below(12) {
            0 => VoteChoice::Cancelled,
            1 => selected("__cancelled__"),
            2 => selected("not offered"),
            3..=5 => selected("cancel"),
            _ => selected("proceed_once"),
        };
        let caller = self.caller(&of);
        let known = self.world.bridge.session_of(&request).is_some();
        let call = self.call();
        self.step(Input::Vote {
            call,
            session: session.clone(),
            request: request.clone(),
            caller: caller.clone(),
            choice,
        });
        let answer = self.world.answers[&call].clone();
        match &answer {
            Err(Refusal::InvalidClientId { .. } | Refusal::AlreadyResolved { .. } | Refusal::Forbidden { .. }) => {
                assert!(known, "an unknown request looks like a known one");
            }
            Ok(_) => assert!(known && session.is_none_or(|session| session == of), "a vote across sessions counts"),
            Err(_) => {}
        }
        if let Err(Refusal::AlreadyResolved { .. }) = answer {
            assert!(caller.client.is_some(), "an anonymous voter learns of a decided request");
        }
    }

    fn ask(&mut self) {
        let session = self.session();
        match self.random.below(10) {
            0 => {
                let mut options = offers();
                options.push(json!({ "optionId": "__cancelled__", "name": "x", "kind": "allow_once" }));
                let (_, reply) = self.world.ask_with(&session, options);
                self.replies.push(reply);
                if self.world.resolutions.get(&reply) == Some(&Resolution::SentinelCollision) {
                    *self.reached.entry("SentinelCollision".into()).or_default() += 1;
                }
                assert!(self.world.resolutions.contains_key(&reply), "a colliding option is not asked");
            }
            // The agent's transport repeats an id that is known.
            1 => {
                let Some((request, _)) = self.requests.last().cloned() else { return };
                let reply = ReplyKey(self.world.mint());
                self.replies.push(reply);
                let asked = self.world.bridge.session_of(&request).is_some();
                if asked {
                    self.step(Input::PermissionRequested {
                        session,
                        request,
                        reply,
                        tool_call: Value::Null,
                        options: offers(),
                    });
                    assert!(self.world.resolutions.contains_key(&reply), "a repeated request is not asked");
                } else {
                    self.replies.pop();
                }
            }
            2 => {
                let Some(reply) = self.random.pick(&self.replies) else { return };
                self.step(Input::PermissionWithdrawn { reply });
            }
            _ => {
                let (request, reply) = self.world.ask(&session);
                self.drain_watchers();
                self.replies.push(reply);
                self.requests.push((request, session));
            }
        }
    }

    fn end_turn(&mut self) {
        let running: Vec<(SessionId, PromptId)> = self
            .prompts
            .iter()
            .filter(|(session, id)| {
                let pending = self.world.bridge.pending_prompts(session);
                self.is_closing(session)
                    || pending.is_ok_and(|list| list.first().is_some_and(|first| first.prompt_id == *id))
            })
            .cloned()
            .collect();
        let from = if self.random.one_in(8) { self.prompts.clone() } else { running };
        let Some((session, prompt_id)) = self.random.pick(&from) else { return };
        let outcome = match self.random.below(4) {
            0 => TurnOutcome::Failed { message: "broken".into(), code: Some((-32603).into()) },
            1 => TurnOutcome::Complete { stop_reason: "cancelled".into() },
            _ => TurnOutcome::Complete { stop_reason: "end_turn".into() },
        };
        self.step(Input::TurnEnded { session, prompt_id, outcome });
    }

    fn small_calls(&mut self) {
        let (call, session) = (self.call(), self.session());
        let caller = self.caller(&session);
        match self.random.below(4) {
            0 => self.step(Input::Heartbeat { call, session, caller }),
            1 => {
                let name = ["name", "", "a\u{7}b"][self.random.below(3)];
                self.step(Input::SetMetadata { call, session, caller, display_name: Some(name.into()) });
            }
            2 => self.step(Input::SetMetadata { call, session, caller, display_name: None }),
            _ => {
                self.calls.pop();
                self.step(Input::ApprovalModeChanged {
                    session,
                    originator: caller.client,
                    mode: ApprovalMode::Yolo,
                    persisted: false,
                });
            }
        }
    }

    fn rare(&mut self) {
        match self.random.below(6) {
            0..=2 => {
                let (call, session) = (self.call(), self.session());
                let caller = self.caller(&session);
                self.step(Input::Close { call, session, caller });
            }
            3 if self.random.one_in(3) => {
                let agent = AgentKey(self.agent);
                self.agent += 1;
                self.step(Input::AgentGone { agent, exit_code: None, signal: Some("SIGKILL".into()) });
            }
            _ => {}
        }
    }

    /// Frames that came outside of [`Walk::step`].
    fn drain_watchers(&mut self) {
        for subscriber in self.watchers.values().copied().collect::<Vec<_>>() {
            let undrained = std::mem::take(&mut self.world.streams.get_mut(&subscriber).unwrap().undrained);
            let bytes = undrained.iter().sum();
            self.world.step(Input::Drained { subscriber, frames: undrained.len(), bytes });
        }
    }

    fn finish(mut self) -> BTreeMap<String, usize> {
        self.take_all();
        self.step(Input::Shutdown);
        for call in &self.calls {
            assert!(self.world.answers.contains_key(call), "{call:?} was never answered");
        }
        for reply in &self.replies {
            assert!(self.world.resolutions.contains_key(reply), "{reply:?} was never answered");
        }
        let counts = self.world.bridge.counts();
        assert_eq!((counts.sessions, counts.starting, counts.pending_permissions, counts.subscribers), (0, 0, 0, 0));
        assert_eq!(self.world.bridge.next_deadline(), None, "something is due in an empty bridge");
        for session in self.sessions.clone() {
            self.check_streams_of(&session);
        }
        for (session, watcher) in self.watchers.clone() {
            self.check_history(&session, watcher);
        }
        check_audit(&self.world.audit, self.world.bridge.options());
        self.reached
    }

    /// What each reader has is what the watcher has; and without a resync it has all of it.
    fn check_streams_of(&mut self, session: &SessionId) {
        self.take_all();
        let Some(watcher) = self.watchers.get(session) else { return };
        let history: BTreeMap<u64, &EncodedFrame> =
            self.numbered(*watcher).map(|frame| (frame.id.unwrap(), frame)).collect();
        let mut compared = 0;
        for reader in self.readers.iter().filter(|reader| reader.session == *session) {
            for (number, frame) in &reader.seen {
                assert_eq!(Some(&frame), history.get(number), "frame {number} differs between readers");
            }
            if !reader.resynced && reader.last > 20 {
                compared += 1;
            }
            if !reader.resynced {
                assert!(reader.seen.keys().copied().eq(1..=reader.last), "a silent gap: {:?}", reader.seen.keys());
            }
        }
        *self.reached.entry("compared to the end".into()).or_default() += compared;
    }

    fn numbered(&self, subscriber: SubscriberId) -> impl Iterator<Item = &EncodedFrame> {
        self.world.streams[&subscriber].frames.iter().filter(|frame| frame.id.is_some())
    }

    /// The whole history of one session: gapless, and every beginning has exactly one end.
    fn check_history(&self, session: &SessionId, watcher: SubscriberId) {
        assert!(self.world.streams[&watcher].evicted.is_none(), "a reader that keeps up was evicted");
        let frames: Vec<Value> = self.numbered(watcher).map(json_of).collect();
        let ids: Vec<u64> = frames.iter().filter_map(|frame| frame["id"].as_u64()).collect();
        assert!(ids.iter().copied().eq(1..=ids.len() as u64), "{session}: {ids:?}");
        let count = |kinds: &[&str], field: &str, id: &str| {
            frames
                .iter()
                .filter(|frame| kinds.contains(&frame["type"].as_str().unwrap()) && frame["data"][field] == *id)
                .count()
        };
        let ended = self.world.streams[&watcher].ended;
        for frame in frames.iter().filter(|frame| frame["type"] == "permission_request") {
            let id = frame["data"]["requestId"].as_str().unwrap();
            assert_eq!(count(&["permission_request"], "requestId", id), 1, "asked once");
            assert_eq!(count(&["permission_resolved"], "requestId", id), usize::from(ended), "resolved once");
        }
        for (_, prompt) in self.prompts.iter().filter(|(of, _)| of == session) {
            let id = prompt.as_str();
            assert_eq!(count(&["turn_complete", "turn_error"], "promptId", id), usize::from(ended), "{id} ended once");
            let (added, completed) = (
                count(&["pending_prompt_added"], "promptId", id),
                count(&["pending_prompt_completed"], "promptId", id),
            );
            assert!(!ended || added == completed, "{id}: queued {added}, completed {completed}");
        }
        if ended {
            let last = frames.last().unwrap()["type"].as_str().unwrap();
            assert!(last == "session_closed" || last == "session_died", "{last}");
        }
    }
}

fn check(seed: u64) -> BTreeMap<String, usize> {
    let mut walk = Walk::new(seed);
    for _ in 0..STEPS {
        walk.random_step();
    }
    walk.finish()
}

#[test]
fn random_walks_keep_every_promise() {
    let mut reached: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 1..=SEEDS {
        match std::panic::catch_unwind(|| check(seed)) {
            Ok(names) => names.into_iter().for_each(|(name, count)| *reached.entry(name).or_default() += count),
            Err(panic) => {
                eprintln!("walk with seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let expected = "Session Prompt Done Heartbeat Metadata SessionNotFound SessionClosing InvalidClientId SessionLimit \
        ClientLimit SessionIdConflict RestoreInProgress StartFailed Draining PromptQueueFull SubscriberLimit \
        RequestNotFound AlreadyResolved InvalidOption Forbidden InvalidMetadata FirstResponder DesignatedOriginator \
        ConsensusQuorum LocalOnlyLoopback VoterCancelled AgentCancelled Timeout SessionClosed Selected timeout \
        session_closed agent_cancelled SentinelCollision permission_partial_vote permission_forbidden \
        permission_already_resolved permission_resolved turn_complete turn_error prompt_cancelled \
        pending_prompt_added pending_prompt_started pending_prompt_completed session_snapshot replay_complete \
        epoch_reset ring_evicted replay_budget_exceeded queue_overflow queue_bytes_overflow writer_idle_timeout \
        slow_client_warning late_joiner compared_to_the_end";
    for name in expected.split_whitespace() {
        let name = name.replace('_', " ");
        let reached: usize = reached.iter().filter(|(other, _)| other.replace('_', " ") == name).map(|(_, n)| n).sum();
        assert!(reached >= 10, "the walks reach {name:?} only {reached} times");
    }
}
