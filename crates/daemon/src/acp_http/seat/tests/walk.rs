//! Random walks: a client, streams and a bridge that do things in any order.
//!
//! The model beside the seat is naive: it knows which requests were sent, which lanes are open, what the bridge was
//! asked. A failing walk prints its seed; `check(seed)` repeats it.

use std::collections::{BTreeMap, BTreeSet};

use convoke_protocol::daemon::{Frame, FrameKind, FrameMeta};

use super::*;

const SEEDS: u64 = 400;
const STEPS: usize = 300;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// What the bridge would know of a subscription.
struct Subscription {
    session: SessionId,
    replays: bool,
}

struct Walk {
    dice: Dice,
    seat: Seat,
    binding: Binding,
    now: Now,
    next: i64,
    /// Requests without an answer, and those with one.
    open: BTreeSet<i64>,
    answered: BTreeSet<i64>,
    /// Prompts by their turn; whether the bridge took them, and whether their turn is over.
    prompts: BTreeMap<String, (i64, bool)>,
    calls: Vec<(CallKey, Order)>,
    keys: BTreeSet<CallKey>,
    feeds: BTreeMap<FeedKey, Subscription>,
    lanes: BTreeSet<Lane>,
    sessions: Vec<SessionId>,
    members: BTreeSet<SessionId>,
    events: u64,
    requests: u64,
    asked: BTreeMap<String, String>,
    gone: bool,
    counts: BTreeMap<&'static str, usize>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let binding = if dice.roll(2) == 0 { Binding::Streams } else { Binding::Socket };
        let now = Now { tick: Tick(1), wall_ms: 1 };
        let house = House { workspace: "/w".into(), version: "1".into() };
        let mut walk = Self {
            dice,
            seat: Seat::new("c".into(), house, binding, now),
            binding,
            now,
            next: 0,
            open: BTreeSet::new(),
            answered: BTreeSet::new(),
            prompts: BTreeMap::new(),
            calls: Vec::new(),
            keys: BTreeSet::new(),
            feeds: BTreeMap::new(),
            lanes: BTreeSet::new(),
            sessions: ["s1", "s2", "s3"].map(SessionId::from).to_vec(),
            members: BTreeSet::new(),
            events: 0,
            requests: 0,
            asked: BTreeMap::new(),
            gone: false,
            counts: BTreeMap::new(),
        };
        if binding == Binding::Socket {
            walk.lanes.insert(Lane::Connection);
            walk.request("initialize", json!({}));
        }
        walk
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn give(&mut self, input: Input) {
        let mut out = Vec::new();
        self.seat.handle(self.now, input, &mut out);
        self.seat.check_invariants();
        for output in out {
            self.take(output);
        }
    }

    fn take(&mut self, output: Output) {
        assert!(!self.gone, "I4: {output:?} after the end");
        match output {
            Output::Call { call, order, .. } => {
                assert!(self.keys.insert(call), "a key of two calls");
                self.calls.push((call, order));
            }
            Output::Feed { feed, session, after, .. } => {
                assert!(self.feeds.insert(feed, Subscription { session, replays: after.is_some() }).is_none());
            }
            Output::Unfeed { feed } => drop(self.feeds.remove(&feed)),
            Output::Send { lane, message, .. } => {
                let key = if self.binding == Binding::Socket { Lane::Connection } else { lane };
                assert!(self.lanes.contains(&key), "sent to {key:?}, which is not open");
                self.read(&message);
            }
            Output::Finish { lane } | Output::Evict { lane } => {
                let key = if self.binding == Binding::Socket { Lane::Connection } else { lane };
                self.lanes.remove(&key);
            }
            Output::CloseSocket { .. } => drop(self.lanes.remove(&Lane::Connection)),
            Output::Warn { .. } => self.count("warnings"),
            Output::Gone => {
                self.gone = true;
                self.count("ends");
            }
        }
    }

    fn read(&mut self, message: &[u8]) {
        let message: Value = serde_json::from_slice(message).unwrap();
        match (message["method"].as_str(), message["id"].as_i64()) {
            (None, Some(id)) => {
                assert!(self.open.remove(&id), "I1: an answer to {id}, which is not open: {message}");
                self.answered.insert(id);
                let turn = self.prompts.values().find(|(prompt, _)| *prompt == id);
                if let Some((_, over)) = turn {
                    assert!(*over || message["error"].is_object(), "I1: {id} before its turn ended");
                    self.count("prompts answered");
                }
            }
            (Some("session/request_permission"), None) => {
                let (id, request) = (&message["id"], &message["params"]["_meta"]["qwen"]["requestId"]);
                let (id, request) = (id.as_str().unwrap().to_owned(), request.as_str().unwrap().to_owned());
                let known = self.asked.insert(id, request.clone());
                assert!(known.is_none_or(|known| known == request), "I2");
                self.count("questions");
            }
            (Some("$/cancel_request"), _) => self.count("questions taken back"),
            (Some("session/update" | "_qwen/notify"), None) => {}
            _ => panic!("what is {message}?"),
        }
    }

    fn request(&mut self, method: &str, params: Value) {
        self.next += 1;
        let id = self.next;
        self.open.insert(id);
        let fresh = format!("p{id}");
        if method == "session/prompt" {
            self.prompts.insert(fresh.clone(), (id, false));
        }
        let message = Message::Request { id: Id(json!(id)), method: method.into(), params };
        self.give(Input::Message { message, loopback: true, fresh });
    }

    fn session(&mut self) -> SessionId {
        let n = self.dice.roll(self.sessions.len());
        self.sessions[n].clone()
    }

    fn frame(&mut self, feed: FeedKey, kind: FrameKind, data: Value, originator: Option<ClientId>) {
        let numbered = kind != FrameKind::ReplayComplete;
        self.events += u64::from(numbered);
        let frame = Frame {
            id: numbered.then_some(self.events),
            v: 1,
            kind,
            prompt_id: None,
            data,
            originator_client_id: originator,
            meta: FrameMeta { server_timestamp: 1 },
        };
        self.give(Input::Frame { feed, frame: frame.encode() });
    }

    /// Answers a call, well or badly.
    fn answer(&mut self, well: bool) {
        if self.calls.is_empty() {
            return;
        }
        let n = self.dice.roll(self.calls.len());
        let (call, order) = self.calls.remove(n);
        let fails = !well && self.dice.roll(4) == 0;
        if fails {
            let statuses = [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN, StatusCode::SERVICE_UNAVAILABLE];
            let status = statuses[self.dice.roll(statuses.len())];
            if let Order::Prompt { prompt, .. } = &order {
                self.over(prompt.as_str());
            }
            self.give(Input::Done { call, result: refused(status) });
            return;
        }
        let answered = match order {
            Order::New { .. } => {
                let session = self.session();
                // The bridge makes a session once.
                if self.members.contains(&session) {
                    self.give(Input::Done { call, result: refused(StatusCode::CONFLICT) });
                    return;
                }
                self.join(session)
            }
            Order::Restore { session, .. } => self.join(session),
            Order::Turn { prompt, .. } => {
                self.over(prompt.as_str());
                Answered::Turn(TurnState::Ended { stop_reason: "end_turn".into() })
            }
            Order::List | Order::Heartbeat { .. } | Order::Metadata { .. } => Answered::Body(json!({})),
            Order::Vote { .. } => {
                self.count("votes");
                Answered::Done
            }
            _ => Answered::Done,
        };
        self.give(Input::Done { call, result: Ok(answered) });
    }

    fn join(&mut self, session: SessionId) -> Answered {
        self.members.insert(session.clone());
        let (client, epoch) = (ClientId::from("client_a"), "e".to_owned());
        Answered::Session(Joined { session, client, epoch, last_event_id: self.events, body: json!({}) })
    }

    fn over(&mut self, prompt: &str) {
        if let Some((_, over)) = self.prompts.get_mut(prompt) {
            *over = true;
        }
    }

    /// A session says something.
    fn happen(&mut self) {
        let keys: Vec<_> = self.feeds.keys().copied().collect();
        if keys.is_empty() {
            return;
        }
        let feed = keys[self.dice.roll(keys.len())];
        let session = self.feeds[&feed].session.clone();
        match self.dice.roll(12) {
            0..=3 => self.frame(feed, FrameKind::SessionUpdate, json!({"sessionId": session, "update": {}}), None),
            4 | 5 => {
                self.requests += u64::from(self.dice.roll(4) != 0);
                let request = format!("r{}-{session}", self.requests);
                let own = (self.dice.roll(2) == 0).then(|| ClientId::from("client_a"));
                let data = json!({"requestId": request, "sessionId": session, "toolCall": {}, "options": []});
                self.frame(feed, FrameKind::PermissionRequest, data, own);
            }
            6 => {
                let request = format!("r{}-{session}", self.requests);
                self.frame(feed, FrameKind::PermissionResolved, json!({"requestId": request, "outcome": {}}), None);
            }
            7 | 8 => {
                let waiting: Vec<_> = self.prompts.iter().filter(|(_, p)| !p.1).map(|(id, _)| id.clone()).collect();
                if waiting.is_empty() {
                    return;
                }
                let prompt = waiting[self.dice.roll(waiting.len())].clone();
                self.over(&prompt);
                let kinds = [FrameKind::TurnComplete, FrameKind::TurnError, FrameKind::PendingPromptCompleted];
                let kind = kinds[self.dice.roll(kinds.len())];
                self.frame(feed, kind, json!({"promptId": prompt, "stopReason": "end_turn", "message": "m"}), None);
            }
            9 => {
                if std::mem::take(&mut self.feeds.get_mut(&feed).unwrap().replays) {
                    if self.dice.roll(4) == 0 {
                        self.frame(feed, FrameKind::StateResyncRequired, json!({"reason": "ring_evicted"}), None);
                    }
                    self.frame(feed, FrameKind::ReplayComplete, json!({}), None);
                }
            }
            10 => {
                self.feeds.remove(&feed);
                self.count("evictions");
                self.give(Input::FeedEnded { feed, end: FeedEnd::Evicted });
            }
            _ => {
                self.feeds.remove(&feed);
                self.members.remove(&session);
                self.give(Input::FeedEnded { feed, end: FeedEnd::Finished });
            }
        }
    }

    fn step(&mut self) {
        let session = self.session();
        match self.dice.roll(24) {
            0 => self.request("session/new", json!({"cwd": "/w"})),
            1 => self.request("session/load", json!({"sessionId": session})),
            2 => self.request("session/resume", json!({"sessionId": session})),
            3..=5 => self.request("session/prompt", json!({"sessionId": session, "prompt": [{}]})),
            6 => {
                let methods = ["session/list", "_qwen/session/heartbeat", "session/close", "nonsense"];
                let method = methods[self.dice.roll(methods.len())];
                self.request(method, json!({"sessionId": session}));
            }
            7 => {
                let message =
                    Message::Notification { method: "session/cancel".into(), params: json!({"sessionId": session}) };
                self.give(Input::Message { message, loopback: true, fresh: "x".into() });
            }
            8 | 9 => {
                let ids: Vec<_> = self.asked.keys().cloned().collect();
                if !ids.is_empty() {
                    let id = ids[self.dice.roll(ids.len())].clone();
                    let answer = if self.dice.roll(3) == 0 { Reply::Error(Some(-32800)) } else { selected() };
                    let message = Message::Response { id: Id(json!(id)), answer };
                    self.give(Input::Message { message, loopback: true, fresh: "x".into() });
                }
            }
            10..=12 if self.binding == Binding::Streams => {
                let lane = if self.dice.roll(3) == 0 { Lane::Connection } else { Lane::Session(session) };
                let owned = match &lane {
                    Lane::Connection => true,
                    Lane::Session(session) => self.seat.epoch_of(session).is_some(),
                };
                if owned && !self.gone {
                    self.lanes.insert(lane.clone());
                    let last_event_id = (self.dice.roll(2) == 0).then_some(0);
                    self.give(Input::Opened { lane, resume: Resume { last_event_id, epoch: None } });
                }
            }
            13 if self.binding == Binding::Streams && self.dice.roll(2) == 0 => {
                let lanes: Vec<_> = self.lanes.iter().cloned().collect();
                if !lanes.is_empty() {
                    let lane = lanes[self.dice.roll(lanes.len())].clone();
                    self.lanes.remove(&lane);
                    self.give(Input::Closed { lane });
                }
            }
            14 if self.dice.roll(10) == 0 => {
                if let Some(lane) = self.lanes.first().cloned() {
                    self.give(Input::Overflow { lane });
                }
            }
            15 if self.dice.roll(30) == 0 => self.give(Input::Leave),
            16 if self.dice.roll(60) == 0 => self.give(Input::Stop),
            17 => {
                let seconds = [1, 5, 11, 31][self.dice.roll(4)];
                self.now.tick = self.now.tick.after(Duration::from_secs(seconds));
                self.give(Input::Tick);
                let due = self.seat.next_deadline();
                assert!(due.is_none_or(|due| due > self.now.tick), "a deadline that has passed: {due:?}");
            }
            18..=20 => self.answer(false),
            _ => self.happen(),
        }
    }

    /// Lets everything end well; then everything that was asked has been answered.
    fn finish(&mut self) {
        if self.binding == Binding::Streams && !self.gone {
            self.lanes.insert(Lane::Connection);
            self.give(Input::Opened { lane: Lane::Connection, resume: Resume::default() });
        }
        while !self.calls.is_empty() {
            self.answer(true);
        }
        let sessions = self.sessions.clone();
        for session in sessions {
            let feed = self.feeds.iter().find(|(_, sub)| sub.session == session).map(|(feed, _)| *feed);
            if let Some(feed) = feed {
                self.feeds.remove(&feed);
                self.give(Input::FeedEnded { feed, end: FeedEnd::Finished });
            }
            while !self.calls.is_empty() {
                self.answer(true);
            }
        }
        if self.seat.phase == Phase::Seated {
            assert_eq!(self.open, BTreeSet::new(), "I1: never answered");
            self.count("walks with all answered");
            self.give(Input::Leave);
            while !self.calls.is_empty() && !self.gone {
                self.answer(true);
            }
        }
        self.now.tick = self.now.tick.after(Duration::from_secs(60));
        self.give(Input::Tick);
        assert!(self.gone, "{:?}", self.seat);
        let detached = |order: &Order| matches!(order, Order::Detach { .. });
        assert!(self.calls.iter().all(|(_, order)| detached(order)), "{:?}", self.calls);
    }
}

fn check(seed: u64) -> BTreeMap<&'static str, usize> {
    let mut walk = Walk::new(seed);
    for _ in 0..STEPS {
        walk.step();
    }
    walk.finish();
    walk.counts
}

#[test]
fn random_walks() {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in 1..=SEEDS {
        match std::panic::catch_unwind(|| check(seed)) {
            Ok(seen) => seen.into_iter().for_each(|(what, times)| *counts.entry(what).or_default() += times),
            Err(panic) => {
                eprintln!("walk with seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let wanted = [
        "ends",
        "evictions",
        "prompts answered",
        "questions",
        "questions taken back",
        "votes",
        "warnings",
        "walks with all answered",
    ];
    for what in wanted {
        assert!(counts.get(what).is_some_and(|times| *times > 10), "too little of {what}: {counts:?}");
    }
}
