//! Feeds the bridge one input at a time and holds everything that comes out against what was promised.
//!
//! It needs no chance: a list of inputs is judged alike every time, also one from which inputs were taken out.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use convoke_protocol::daemon::FrameKind;
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::Now;

use super::ballots::{Ballots, Life, Outcome};
use super::history::{History, data_of, text};
use super::readers::{Absent, Known, Reader};
use super::{Broken, Kept};
use crate::audit::{AuditEvent, AuditRecord};
use crate::bridge::Bridge;
use crate::contract::{
    AgentKey, Answer, CallId, CancelReason, CreationId, Input, Output, ReplyKey, Resolution, StartKind, SubscriberId,
};
use crate::options::BridgeOptions;
use crate::refusal::Refusal;

/// One live session.
#[derive(Debug)]
struct Room {
    agent: AgentKey,
    history: History,
}

/// Names that went in or came out, for a walk to take its lies and truths from.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) sessions: Vec<SessionId>,
    pub(super) clients: Vec<(ClientId, SessionId)>,
    pub(super) requests: Vec<(RequestId, SessionId)>,
    pub(super) replies: Vec<ReplyKey>,
    pub(super) running: Vec<(SessionId, PromptId)>,
    pub(super) starts: Vec<(CreationId, StartKind)>,
    pub(super) absent: Vec<Absent>,
}

#[derive(Debug)]
pub(super) struct Judge {
    pub(super) bridge: Bridge,
    pub(super) ballots: Ballots,
    calls: BTreeSet<CallId>,
    replies: BTreeSet<ReplyKey>,
    rooms: BTreeMap<SessionId, Room>,
    pub(super) readers: BTreeMap<SubscriberId, Reader>,
    /// The digest of each request that is audited, and whether its resolution is.
    audited: BTreeMap<RequestId, (String, bool)>,
    records: usize,
    pub(super) seen: Seen,
    reached: BTreeMap<String, usize>,
}

/// What has to come of an input.
#[derive(Debug, Default)]
struct Expected {
    resolves: BTreeMap<ReplyKey, Resolution>,
    vote: Option<Outcome>,
    /// A request is answered at once, and another than these may not be.
    unasked: bool,
    asked: bool,
}

/// What came of an input, as far as it is counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    requested: usize,
    not_asked: usize,
    voted: usize,
    forbidden: usize,
    resolved: usize,
    timeouts: usize,
}

impl Judge {
    pub(super) fn new(options: BridgeOptions) -> Self {
        Self {
            ballots: Ballots::new(options.clone()),
            bridge: Bridge::new(options),
            calls: BTreeSet::new(),
            replies: BTreeSet::new(),
            rooms: BTreeMap::new(),
            readers: BTreeMap::new(),
            audited: BTreeMap::new(),
            records: 0,
            seen: Seen::default(),
            reached: BTreeMap::new(),
        }
    }

    pub(super) fn into_reached(self) -> BTreeMap<String, usize> {
        self.reached
    }

    pub(super) fn life(&self, session: &SessionId) -> Life {
        life(&self.bridge, session)
    }

    /// One input, everything that comes out of it, and all promises.
    pub(super) fn apply(&mut self, now: Now, input: Input) -> Kept {
        let expected = self.expect(now, &input);
        let (bridge, given) = (&mut self.bridge, input.clone());
        let out = catch_unwind(AssertUnwindSafe(move || {
            let mut out = Vec::new();
            bridge.handle(now, given, &mut out);
            bridge.check_invariants();
            out
        }));
        let out = out.map_err(|panic| Broken { rule: "no panic", what: message(&*panic) })?;
        // What is in the rings first, so that histories are read in their order.
        for (id, room) in &mut self.rooms {
            if let Some((last, mut frames)) = self.bridge.published(id, room.history.last()) {
                frames.try_for_each(|frame| room.history.take(frame).map(drop))?;
                room.history.reaches(last)?;
            }
        }
        let mut left = expected.resolves;
        let (mut tally, mut ended) = (Tally::default(), BTreeSet::new());
        let mut wanted = Tally {
            requested: usize::from(expected.asked),
            not_asked: usize::from(expected.unasked),
            voted: usize::from(matches!(expected.vote, Some(Outcome::Recorded | Outcome::Resolved(..)))),
            forbidden: usize::from(matches!(expected.vote, Some(Outcome::Forbidden(_)))),
            ..Tally::default()
        };
        for output in &out {
            self.note(output);
            match output {
                Output::Answer { call, answer } => {
                    must!("one answer per call", self.calls.remove(call), "{call:?} gets {answer:?}");
                    if let Some(expected) = &expected.vote {
                        check_vote(expected, answer)?;
                    }
                    self.answered(&input, answer);
                }
                Output::StartSession { creation, start, .. } => self.seen.starts.push((*creation, start.clone())),
                Output::StartTurn { session, prompt_id, .. } => {
                    self.ballots.turn_began(session, prompt_id);
                    self.seen.running.push((session.clone(), prompt_id.clone()));
                }
                Output::Resolve { reply, resolution } => {
                    must!("one answer per request", self.replies.remove(reply), "{reply:?} gets {resolution:?}");
                    let request = self.ballots.pending.iter().find(|(_, asked)| asked.reply == *reply);
                    let request = request.map(|(id, asked)| (id.clone(), asked.session.clone()));
                    let turn_is_late = || {
                        // The deadlines of turns are not modelled: a tick may cancel what a turn asks.
                        matches!(input, Input::Tick) && request.as_ref().is_some_and(|(_, of)| self.ballots.runs(of))
                    };
                    let right = match left.remove(reply) {
                        Some(expected) => expected == *resolution,
                        None => *resolution == Resolution::Cancelled(CancelReason::AgentCancelled) && turn_is_late(),
                    };
                    must!("policies decide", right, "{reply:?} gets {resolution:?} by {input:?}");
                    if let Some((request, _)) = request {
                        self.ballots.resolved(&request);
                        wanted.resolved += 1;
                        wanted.timeouts += usize::from(*resolution == Resolution::Cancelled(CancelReason::Timeout));
                    }
                }
                Output::Send { subscriber, frame, counted } => {
                    let Some(reader) = self.readers.get_mut(subscriber) else {
                        let what = format!("{subscriber:?} gets {frame:?}");
                        return Err(Broken { rule: "frames for streams that are open", what });
                    };
                    let history = self.rooms.get_mut(&reader.session).map(|room| &mut room.history);
                    reader.take(frame, *counted, history, &self.bridge.options().limits)?;
                }
                Output::EndStream { subscriber } => {
                    let Some(reader) = self.readers.remove(subscriber) else {
                        return Err(Broken { rule: "streams end once", what: format!("{subscriber:?}") });
                    };
                    ended.insert(reader.session);
                }
                Output::Evict { subscriber, frame } => {
                    let Some(reader) = self.readers.remove(subscriber) else {
                        return Err(Broken { rule: "streams end once", what: format!("{subscriber:?}") });
                    };
                    let stalled = matches!(input, Input::WriterStalled { .. });
                    reader.check_eviction(frame, stalled, &self.bridge.options().limits)?;
                    self.seen.absent.extend(reader.leave());
                }
                Output::Audit(record) => self.audited(record, &mut tally)?,
                Output::CancelTurn { .. } | Output::CloseSession { .. } | Output::Log { .. } => {}
            }
        }
        must!("what is due is done", left.is_empty(), "{left:?} stay without answer after {input:?}");
        must!("audited", tally == wanted, "records {tally:?}, but there were {wanted:?}, after {input:?}");
        self.bury(&ended)?;
        self.check(now, &input, wanted != Tally::default())
    }

    /// What must come of an input, by our own reading; and what we know from it.
    fn expect(&mut self, now: Now, input: &Input) -> Expected {
        let mut expected = Expected::default();
        if let Some(call) = call_of(input) {
            self.calls.insert(call);
        }
        let all = |reason, which: &dyn Fn(&SessionId, Option<&PromptId>) -> bool, ballots: &Ballots| {
            let pending = ballots.pending.values().filter(|asked| which(&asked.session, asked.prompt.as_ref()));
            pending.map(|asked| (asked.reply, Resolution::Cancelled(reason))).collect::<BTreeMap<_, _>>()
        };
        let bridge = &self.bridge;
        let ballots = &mut self.ballots;
        let allowed = |ballots: &Ballots, session: &SessionId, client: Option<&ClientId>| {
            life(bridge, session) == Life::Open && (client.is_none() || ballots.is_member(session, client))
        };
        match input {
            Input::Detach { session, client: Some(client) } => ballots.left(session, client),
            Input::Prompt { caller, prompt_id, .. } => ballots.prompted(prompt_id, caller.client.as_ref()),
            Input::Vote { session, request, caller, choice, .. } => {
                let outcome = ballots.vote(|id| life(bridge, id), session.as_ref(), request, caller, choice);
                if let Outcome::Resolved(reply, resolution) = &outcome {
                    expected.resolves.insert(*reply, resolution.clone());
                }
                expected.vote = Some(outcome);
            }
            Input::PermissionRequested { session, request, reply, options, .. } if self.replies.insert(*reply) => {
                self.seen.replies.push(*reply);
                match ballots.ask(now, life(bridge, session), session, request, *reply, options) {
                    Some(resolution) => {
                        expected.unasked = true;
                        expected.resolves.insert(*reply, resolution);
                    }
                    None => {
                        expected.asked = true;
                        self.seen.requests.push((request.clone(), session.clone()));
                    }
                }
            }
            Input::PermissionWithdrawn { reply } if ballots.pending.values().any(|asked| asked.reply == *reply) => {
                expected.resolves.insert(*reply, Resolution::Cancelled(CancelReason::AgentCancelled));
            }
            Input::Cancel { session, caller, .. }
                if allowed(ballots, session, caller.client.as_ref()) && ballots.runs(session) =>
            {
                expected.resolves = all(CancelReason::AgentCancelled, &|of, _| of == session, ballots);
            }
            Input::Close { session, caller, .. } if allowed(ballots, session, caller.client.as_ref()) => {
                expected.resolves = all(CancelReason::SessionClosed, &|of, _| of == session, ballots);
            }
            Input::TurnEnded { session, prompt_id, .. } => {
                self.seen.running.retain(|(_, running)| running != prompt_id);
                if ballots.turn_ended(session, prompt_id) {
                    let of_turn =
                        |of: &SessionId, prompt: Option<&PromptId>| of == session && prompt == Some(prompt_id);
                    expected.resolves = all(CancelReason::AgentCancelled, &of_turn, ballots);
                }
            }
            Input::AgentGone { agent, .. } => {
                let rooms = &self.rooms;
                let of_agent = |of: &SessionId, _: Option<&PromptId>| rooms.get(of).is_some_and(|r| r.agent == *agent);
                expected.resolves = all(CancelReason::SessionClosed, &of_agent, ballots);
            }
            Input::Shutdown => expected.resolves = all(CancelReason::SessionClosed, &|_, _| true, ballots),
            Input::Tick => {
                let due = ballots.pending.values().filter(|asked| asked.due.is_some_and(|due| due <= now.tick.0));
                let timeout = Resolution::Cancelled(CancelReason::Timeout);
                expected.resolves = due.map(|asked| (asked.reply, timeout.clone())).collect();
            }
            Input::Unsubscribe { subscriber } => {
                self.seen.absent.extend(self.readers.remove(subscriber).and_then(Reader::leave));
            }
            Input::Drained { subscriber, frames, .. } => {
                if let Some(reader) = self.readers.get_mut(subscriber) {
                    reader.drained(*frames);
                }
            }
            _ => {}
        }
        expected
    }

    fn answered(&mut self, input: &Input, answer: &Result<Answer, Refusal>) {
        match (input, answer) {
            (_, Ok(Answer::Session(answer))) => {
                let (id, client) = (&answer.created.session_id, &answer.created.client_id);
                if !self.rooms.contains_key(id) {
                    let room = Room { agent: answer.agent, history: History::default() };
                    self.rooms.insert(id.clone(), room);
                    if !self.seen.sessions.contains(id) {
                        self.seen.sessions.push(id.clone());
                    }
                }
                self.ballots.joined(id, client);
                self.seen.clients.push((client.clone(), id.clone()));
            }
            (Input::Subscribe { session, request, .. }, Ok(Answer::Subscribed { epoch })) => {
                let published = self.rooms.get(session).map_or(0, |room| room.history.last());
                let same_bus = request.epoch.as_ref().is_none_or(|claimed| claimed == epoch);
                let back = |absent: &&Absent| {
                    same_bus && absent.session == *session && Some(absent.last) == request.last_event_id
                };
                let back = self.seen.absent.iter().find(back);
                let reader = Reader::open(session.clone(), request, published, back);
                self.readers.insert(request.subscriber, reader);
            }
            (Input::Prompt { session, prompt_id, .. }, Ok(Answer::Prompt(_))) => {
                if let Some(room) = self.rooms.get_mut(session) {
                    room.history.accepted(prompt_id.clone());
                }
            }
            _ => {}
        }
    }

    fn audited(&mut self, record: &AuditRecord, tally: &mut Tally) -> Kept {
        self.records += 1;
        let id = &record.request_id;
        let policy = self.bridge.options().policy.name();
        must!("records are complete", record.v == 1 && record.policy == policy, "{record:?}");
        let digest = &*record.action_digest;
        must!("records are complete", digest.len() == 71 && digest.starts_with("sha256:"), "{record:?}");
        if matches!(record.event, AuditEvent::NotAsked { .. }) {
            tally.not_asked += 1;
            return Ok(());
        }
        if matches!(record.event, AuditEvent::Requested { .. }) {
            tally.requested += 1;
            let before = self.audited.insert(id.clone(), (digest.to_owned(), false));
            // A forgotten id may be used again.
            must!("records begin once", before.is_none_or(|(_, over)| over), "{record:?}");
            return Ok(());
        }
        let Some((known, over)) = self.audited.get_mut(id) else {
            return Err(Broken { rule: "records begin once", what: format!("{record:?}") });
        };
        must!("records name the action", known.as_str() == digest, "{record:?}, was {known}");
        must!("records end once", !*over, "{record:?}");
        match &record.event {
            AuditEvent::Voted { .. } => tally.voted += 1,
            AuditEvent::Forbidden { .. } => tally.forbidden += 1,
            AuditEvent::Timeout { .. } => tally.timeouts += 1,
            AuditEvent::Resolved { .. } => (tally.resolved, *over) = (tally.resolved + 1, true),
            AuditEvent::Requested { .. } | AuditEvent::NotAsked { .. } => {}
        }
        Ok(())
    }

    /// Sessions that are gone: their books are closed.
    fn bury(&mut self, ended: &BTreeSet<SessionId>) -> Kept {
        let gone: Vec<SessionId> =
            self.rooms.keys().filter(|id| life(&self.bridge, id) == Life::Gone).cloned().collect();
        for id in gone {
            must!("nothing outlives its session", self.ballots.of_session(&id).next().is_none(), "on {id}");
            let open = self.readers.values().any(|reader| reader.session == id);
            must!("nothing outlives its session", !open, "a stream of {id}");
            if let Some(room) = self.rooms.remove(&id).filter(|_| ended.contains(&id)) {
                room.history.check_end()?;
                *self.reached.entry("checked to the end".to_owned()).or_default() += 1;
            }
            self.ballots.over(&id);
            self.seen.absent.retain(|absent| absent.session != id);
            self.seen.running.retain(|(session, _)| *session != id);
        }
        Ok(())
    }

    /// What holds after every step.
    fn check(&mut self, now: Now, input: &Input, requests_moved: bool) -> Kept {
        let timer = self.bridge.next_deadline();
        for (request, asked) in &self.ballots.pending {
            let Some(due) = asked.due else { continue };
            must!(
                "timers are set",
                timer.is_some_and(|timer| timer.0 <= due),
                "{request} due at {due}, next {timer:?}"
            );
            must!("timers fire", !matches!(input, Input::Tick) || due > now.tick.0, "{request} was due at {due}");
        }
        let mut truths: BTreeMap<&SessionId, Known> = BTreeMap::new();
        for reader in self.readers.values_mut() {
            let published = self.rooms.get(&reader.session).map_or(0, |room| room.history.last());
            reader.settle(published)?;
        }
        for reader in self.readers.values() {
            let truth = truths.entry(&reader.session).or_insert_with(|| {
                let of_session = self.ballots.of_session(&reader.session);
                of_session.map(|(id, asked)| (id.clone(), self.ballots.progress(asked))).collect()
            });
            reader.check(truth)?;
        }
        if !requests_moved {
            return Ok(());
        }
        // What is known, remembered and forgotten of requests.
        for (request, session) in &self.seen.requests {
            let remembered = self.ballots.remembered.iter().any(|(id, _)| id == request);
            let known = remembered || self.ballots.pending.contains_key(request);
            let found = self.bridge.session_of(request);
            must!("bounded memory", found.is_some() == known, "{request} of {session}: known {known}, found {found:?}");
        }
        let kept = self.bridge.audit().count();
        must!("bounded audit", kept == self.records.min(self.bridge.options().limits.audit_records), "{kept} records");
        if let Input::PermissionRequested { session, .. } = input
            && let Ok(status) = self.bridge.status(session)
        {
            let mut asked: Vec<_> = self.ballots.of_session(session).collect();
            asked.sort_by_key(|(_, asked)| asked.order);
            let shown = status.pending_interactions.iter();
            let same = shown.clone().map(|shown| &shown.request_id).eq(asked.iter().map(|(id, _)| *id));
            must!("requests are shown in their order", same, "{:?}", status.pending_interactions);
            let reasoned = |shown: &convoke_protocol::daemon::dto::PendingInteraction| {
                shown.expires_at.is_some() != shown.no_expiry_reason.is_some()
            };
            must!("a time or a reason", shown.clone().all(reasoned), "{:?}", status.pending_interactions);
        }
        Ok(())
    }

    /// The end of everything: nobody waits any more.
    pub(super) fn finish(&mut self) -> Kept {
        must!("calls are answered", self.calls.is_empty(), "{:?}", self.calls);
        must!("requests are answered", self.replies.is_empty(), "{:?}", self.replies);
        let counts = self.bridge.counts();
        let left = (counts.sessions, counts.starting, counts.pending_permissions, counts.subscribers);
        must!("nothing is left", left == (0, 0, 0, 0), "{counts:?}");
        must!("nothing is left", self.bridge.next_deadline().is_none(), "{:?}", self.bridge.next_deadline());
        Ok(())
    }

    fn note(&mut self, output: &Output) {
        let word = |text: String| text.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        let name = match output {
            Output::Answer { answer: Err(refusal), .. } => word(format!("{refusal:?}")),
            Output::Answer { answer: Ok(answer), .. } => match answer {
                Answer::Session(_) => "Session",
                Answer::Subscribed { .. } => "Subscribed",
                Answer::Prompt(_) => "Prompt",
                Answer::Heartbeat { .. } => "Heartbeat",
                Answer::Metadata { .. } => "Metadata",
                Answer::Done => "Done",
            }
            .to_owned(),
            Output::Send { frame, .. } if frame.kind == FrameKind::StateResyncRequired => {
                text(&data_of(frame), "reason")
            }
            Output::Send { frame, .. } if frame.id.is_none() && frame.kind == FrameKind::PermissionRequest => {
                "late joiner".to_owned()
            }
            Output::Send { frame, .. } => frame.kind.name().to_owned(),
            Output::Evict { frame, .. } => text(&data_of(frame), "reason"),
            Output::Audit(AuditRecord { event: AuditEvent::Resolved { decision_reason, .. }, .. }) => {
                word(format!("{decision_reason:?}"))
            }
            Output::Audit(AuditRecord { event: AuditEvent::NotAsked { reason }, .. }) => (*reason).to_owned(),
            Output::Resolve { resolution: Resolution::Cancelled(reason), .. } => reason.name().to_owned(),
            Output::Resolve { resolution, .. } => word(format!("{resolution:?}")),
            _ => return,
        };
        *self.reached.entry(name).or_default() += 1;
    }
}

fn life(bridge: &Bridge, session: &SessionId) -> Life {
    match bridge.authorize(session, None) {
        Ok(_) => Life::Open,
        Err(Refusal::SessionClosing { .. }) => Life::Closing,
        Err(_) => Life::Gone,
    }
}

fn check_vote(expected: &Outcome, answer: &Result<Answer, Refusal>) -> Kept {
    let right = match (expected, answer) {
        (Outcome::Recorded | Outcome::Resolved(..), Ok(Answer::Done)) => true,
        (Outcome::Forbidden(expected), Err(Refusal::Forbidden { reason, .. })) => reason.name() == *expected,
        (Outcome::Refused(expected), Err(refusal)) => format!("{refusal:?}").split(' ').next() == Some(*expected),
        _ => false,
    };
    must!("votes are answered", right, "{answer:?}, expected {expected:?}");
    Ok(())
}

fn call_of(input: &Input) -> Option<CallId> {
    match input {
        Input::Create { call, .. }
        | Input::Restore { call, .. }
        | Input::Subscribe { call, .. }
        | Input::Prompt { call, .. }
        | Input::Cancel { call, .. }
        | Input::Vote { call, .. }
        | Input::Heartbeat { call, .. }
        | Input::SetMetadata { call, .. }
        | Input::Close { call, .. } => Some(*call),
        _ => None,
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_owned()
}
