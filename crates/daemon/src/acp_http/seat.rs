//! Sans-IO: one ACP client's seat at the daemon: what does it own, what is it owed, what is it asked, and which of its
//! streams hears of it?
//!
//! ```text
//! client ─ Message ─▶ ┌──────┐ ─ Call ─▶ bridge     ─ Done ─▶ back in
//! bridge ─ Frame ───▶ │ Seat │ ─ Send ─▶ a lane: the connection's stream, or a session's; on a WebSocket they are one
//! streams ─ Opened ─▶ └──────┘ ─ Feed ─▶ a subscription of an owned session
//! ```
//! Every owned session has a subscription from the moment it is owned to its end. While the client has no stream open
//! for it, the seat only watches for the ends of its turns; a stream that is opened starts where the last one stopped,
//! so nothing between is lost that the session's ring still has.
//!
//! Invariants: I1 a request is answered at most once, and a prompt only after its turn. I2 an id asked with stands for
//! one permission request, and a request is asked with one id. I3 what waits for a lane is bounded, and nothing waits
//! for an open one that has caught up. I4 after `Gone` there is nothing.
//!
//! Source: daemon specification, §g and §f.7; `resolveClientResponse` of the mediation document for votes.

mod asks;
mod feed;
mod leaving;
mod methods;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use convoke_bridge::VoteChoice;
use convoke_protocol::daemon::EncodedFrame;
use convoke_protocol::{ApprovalMode, ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::{Now, Tick};
use serde_json::{Value, json};

use super::rpc::{self, Id, Message, Problem};
use crate::http_error::HttpError;
use asks::Asks;
use methods::Awaited;

/// How long a seat waits for its first stream to come back. Source: daemon specification, §j.
const CONNECTION_GRACE: Duration = Duration::from_secs(10);

/// How long a session's turns wait for the session's stream to come back. Source: daemon specification, §j.
const SESSION_GRACE: Duration = Duration::from_secs(10);

/// How long a seat without any stream is kept. Source: daemon specification, §j.
const IDLE: Duration = Duration::from_secs(30 * 60);

/// How long a WebSocket may take to send `initialize`. Source: daemon specification, §j.
const INITIALIZE: Duration = Duration::from_secs(30);

/// How long leaving may wait for the bridge; it answers in microseconds unless it is gone.
const LEAVE: Duration = Duration::from_secs(10);

/// How long a stopping daemon's sessions may take to say so on their streams.
const STOP: Duration = Duration::from_secs(2);

/// Messages that wait for a lane that is not open, as many as a stream of REST may lag behind.
const WAITING_MAX: usize = 256;

/// Their bytes, likewise.
const WAITING_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Requests of one client under way, its turns included: a client that sends more does not wait for answers.
const REQUESTS_MAX: usize = 128;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// What concerns the whole connection.
    Connection,
    /// What concerns one session.
    Session(SessionId),
}

/// How the client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// Posts, and an event stream for each lane.
    Streams,
    /// One WebSocket for everything.
    Socket,
}

/// A question to the bridge that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CallKey(pub(super) u64);

/// One subscription of an owned session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FeedKey(pub(super) u64);

/// Something happened outside.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// The client sent a message.
    Message {
        message: Message,
        /// Whether this message's socket comes from this machine.
        loopback: bool,
        /// A fresh random id, for the turn if it is a prompt.
        fresh: String,
    },
    /// The client sent what is no message.
    Rubbish(Problem),
    /// A lane's stream was opened; an older one of the lane is over.
    Opened { lane: Lane, resume: Resume },
    /// A lane's stream is gone.
    Closed { lane: Lane },
    /// What was sent on a lane does not leave.
    Overflow { lane: Lane },
    /// An event of an owned session.
    Frame { feed: FeedKey, frame: EncodedFrame },
    /// A subscription is over.
    FeedEnded { feed: FeedKey, end: FeedEnd },
    /// The bridge answered.
    Done { call: CallKey, result: Result<Answered, HttpError> },
    /// The client is gone, or says so.
    Leave,
    /// The daemon stops.
    Stop,
    /// [`Seat::next_deadline`] is reached.
    Tick,
}

/// Where a stream that is opened should start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resume {
    /// `Last-Event-ID`.
    pub(super) last_event_id: Option<u64>,
    /// `X-Qwen-Event-Epoch`.
    pub(super) epoch: Option<String>,
}

/// How a subscription ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedEnd {
    /// With its session.
    Finished,
    /// The reader was too slow.
    Evicted,
    /// It was never granted.
    Refused,
}

/// Something to do outside.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Output {
    /// Ask the bridge. → [`Input::Done`], exactly one.
    Call { call: CallKey, order: Order, loopback: bool },
    /// Subscribe to a session. → [`Input::Frame`]s and one [`Input::FeedEnded`].
    Feed { feed: FeedKey, session: SessionId, after: Option<u64>, epoch: Option<String> },
    /// Unsubscribe.
    Unfeed { feed: FeedKey },
    /// Write a message to a lane's open stream.
    Send { lane: Lane, message: Bytes, id: Option<u64> },
    /// End a lane's stream in good order.
    Finish { lane: Lane },
    /// Drop a lane's stream and what is queued on it.
    Evict { lane: Lane },
    /// Close the WebSocket in good order.
    CloseSocket { code: u16, reason: &'static str },
    /// Something for the operator.
    Warn { text: String },
    /// The seat is empty.
    Gone,
}

/// A question to the bridge.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    /// A session of the client's own. → [`Answered::Session`].
    New {
        /// The id that it is to have, if the client chose one.
        session: Option<SessionId>,
    },
    /// A session that is there, or stored. → [`Answered::Session`].
    Restore {
        session: SessionId,
        client: Option<ClientId>,
    },
    /// The sessions there are. → [`Answered::Body`].
    List,
    Close {
        session: SessionId,
        client: ClientId,
    },
    Prompt {
        session: SessionId,
        client: ClientId,
        prompt: PromptId,
        blocks: Vec<Value>,
    },
    Cancel {
        session: SessionId,
        client: ClientId,
    },
    /// Ends the running turn if it is one of these.
    CancelOwn {
        session: SessionId,
        client: ClientId,
        prompts: Vec<PromptId>,
    },
    SetMode {
        session: SessionId,
        client: ClientId,
        mode: ApprovalMode,
    },
    SetModel {
        session: SessionId,
        client: ClientId,
        model: String,
    },
    /// → [`Answered::Body`].
    Heartbeat {
        session: SessionId,
        client: ClientId,
    },
    /// → [`Answered::Body`].
    Metadata {
        session: SessionId,
        client: ClientId,
        display_name: Option<String>,
    },
    Vote {
        session: SessionId,
        client: ClientId,
        request: RequestId,
        choice: VoteChoice,
    },
    /// How a turn stands. → [`Answered::Turn`].
    Turn {
        session: SessionId,
        prompt: PromptId,
    },
    Detach {
        session: SessionId,
        client: ClientId,
    },
}

/// What the bridge answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answered {
    Session(Joined),
    Body(Value),
    Turn(TurnState),
    Done,
}

/// A session that the client was let into.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Joined {
    pub(super) session: SessionId,
    pub(super) client: ClientId,
    pub(super) epoch: String,
    pub(super) last_event_id: u64,
    /// The result of `session/new`, without the id.
    pub(super) body: Value,
}

/// How a turn stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TurnState {
    Open,
    Ended {
        stop_reason: String,
    },
    /// It failed, or nobody remembers it.
    Lost,
}

/// What the daemon tells about itself.
#[derive(Clone, Debug)]
pub(super) struct House {
    pub(super) workspace: String,
    pub(super) version: String,
}

impl House {
    /// The result of `initialize`.
    pub(super) fn welcome(&self, connection: &str) -> Value {
        json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": true, "embeddedContext": true},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
                "configOptions": false,
                "_meta": {"qwen": {
                    "connectionId": connection,
                    "workspaceCwd": self.workspace,
                    "methods": methods::VENDOR,
                }},
            },
            "agentInfo": {"name": "convoke", "title": "Convoke", "version": self.version},
            "authMethods": [],
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A WebSocket whose `initialize` has not come.
    Waiting {
        until: Tick,
    },
    Seated,
    /// The daemon stops; sessions say goodbye.
    Stopping {
        until: Tick,
    },
    Leaving {
        until: Tick,
        stage: leaving::Stage,
    },
    Gone,
}

/// What a lane's stream is, and what waits for it.
#[derive(Debug, Default)]
struct Track {
    open: bool,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// Since when its stream is gone, if it had one.
    gone_since: Option<Tick>,
}

/// A session that the client created or joined here.
#[derive(Debug)]
struct Owned {
    client: ClientId,
    epoch: String,
    /// The last event that went out.
    delivered: u64,
    track: Track,
    feed: FeedKey,
    mode: FeedMode,
    /// Requests of a replay, until it is known which are still open.
    held: Vec<feed::Question>,
    /// The `session/load` that is answered once the past was told.
    loading: Option<(Id, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedMode {
    /// No stream is open: only ends of turns matter.
    Watching,
    /// The past is being told.
    Replaying {
        /// Whether the client asked for it, and hears of its end.
        asked: bool,
        /// Events are missing: ends of turns may be among them.
        gap: bool,
    },
    Live,
}

/// A turn that the client waits for.
#[derive(Debug)]
struct Turn {
    id: Id,
    session: SessionId,
}

/// One client's seat.
#[derive(Debug)]
pub(super) struct Seat {
    id: String,
    house: House,
    binding: Binding,
    phase: Phase,
    connection: Track,
    /// Whether the connection's stream was ever open.
    had_stream: bool,
    /// When the last of its streams went.
    dark_since: Option<Tick>,
    touched: Tick,
    sessions: BTreeMap<SessionId, Owned>,
    turns: BTreeMap<PromptId, Turn>,
    asks: Asks,
    calls: BTreeMap<CallKey, Awaited>,
    last_key: u64,
}

impl Seat {
    /// A seat for a client that said `initialize` in a POST, or that has yet to say it on its WebSocket.
    pub(super) fn new(id: String, house: House, binding: Binding, now: Now) -> Self {
        let phase = match binding {
            Binding::Streams => Phase::Seated,
            Binding::Socket => Phase::Waiting { until: now.tick.after(INITIALIZE) },
        };
        Self {
            asks: Asks::new(&id),
            id,
            house,
            binding,
            phase,
            connection: Track { open: binding == Binding::Socket, ..Track::default() },
            had_stream: false,
            dark_since: None,
            touched: now.tick,
            sessions: BTreeMap::new(),
            turns: BTreeMap::new(),
            calls: BTreeMap::new(),
            last_key: 0,
        }
    }

    /// The name of the event bus of a session that this client may follow here.
    pub(super) fn epoch_of(&self, session: &SessionId) -> Option<&str> {
        self.sessions.get(session).map(|owned| owned.epoch.as_str())
    }

    /// One step.
    pub(super) fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        if self.phase == Phase::Gone {
            return;
        }
        match input {
            Input::Message { message, loopback, fresh } => {
                self.touched = now.tick;
                self.message(now, message, loopback, fresh, out);
            }
            Input::Rubbish(problem) => {
                self.touched = now.tick;
                self.answer(&Lane::Connection, rpc::error(&problem), now, out);
                if matches!(self.phase, Phase::Waiting { .. }) {
                    self.refuse_socket(now, out);
                }
            }
            Input::Opened { lane, resume } => self.opened(now, lane, resume, out),
            Input::Closed { lane } => self.closed(now, &lane),
            Input::Overflow { lane } => self.overflow(now, &lane, out),
            Input::Frame { feed, frame } => self.frame(now, feed, &frame, out),
            Input::FeedEnded { feed, end } => self.feed_ended(now, feed, end, out),
            Input::Done { call, result } => {
                if let Some(awaited) = self.calls.remove(&call) {
                    self.done(now, awaited, result, out);
                }
            }
            Input::Leave => self.leave(now, out),
            Input::Stop => {
                if matches!(self.phase, Phase::Waiting { .. } | Phase::Seated) {
                    self.phase = Phase::Stopping { until: now.tick.after(STOP) };
                }
            }
            Input::Tick => self.tick(now, out),
        }
        if matches!(self.phase, Phase::Stopping { .. }) && self.sessions.is_empty() {
            self.leave(now, out);
        }
        self.go_on_leaving(out);
    }

    /// When [`Input::Tick`] is due.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        let grace = |owned: &Owned| owned.track.gone_since.map(|since| since.after(SESSION_GRACE));
        match self.phase {
            Phase::Waiting { until } | Phase::Stopping { until } | Phase::Leaving { until, .. } => Some(until),
            Phase::Gone => None,
            Phase::Seated => {
                let whole = (self.binding == Binding::Streams && !self.any_open()).then(|| {
                    let idle = self.touched.after(IDLE);
                    self.dark_since.filter(|_| self.had_stream).map_or(idle, |since| since.after(CONNECTION_GRACE))
                });
                self.sessions.values().filter_map(grace).chain(whole).min()
            }
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Waiting { until } if until <= now.tick => {
                let problem = Problem::new(rpc::INVALID_REQUEST, "Expected initialize as the first message");
                self.answer(&Lane::Connection, rpc::error(&problem), now, out);
                self.refuse_socket(now, out);
            }
            Phase::Stopping { until } if until <= now.tick => self.leave(now, out),
            Phase::Leaving { until, .. } if until <= now.tick => self.give_up_leaving(out),
            Phase::Seated => {
                let late = |owned: &Owned| owned.track.gone_since.is_some_and(|s| s.after(SESSION_GRACE) <= now.tick);
                let late: Vec<_> = self.sessions.iter().filter(|(_, o)| late(o)).map(|(id, _)| id.clone()).collect();
                for session in late {
                    if let Some(owned) = self.sessions.get_mut(&session) {
                        owned.track.gone_since = None;
                    }
                    self.abandon(&session, out);
                }
                if self.binding == Binding::Streams && !self.any_open() {
                    let dark = self.dark_since.filter(|_| self.had_stream);
                    let dark = dark.is_some_and(|since| since.after(CONNECTION_GRACE) <= now.tick);
                    if dark || self.touched.after(IDLE) <= now.tick {
                        self.leave(now, out);
                    }
                }
            }
            Phase::Waiting { .. } | Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Gone => {}
        }
    }

    fn any_open(&self) -> bool {
        self.connection.open || self.sessions.values().any(|owned| owned.track.open)
    }

    fn opened(&mut self, now: Now, lane: Lane, resume: Resume, out: &mut Vec<Output>) {
        if self.phase != Phase::Seated {
            // It took the place of an older one, if there was one.
            self.closed(now, &lane);
            out.push(Output::Finish { lane });
            return;
        }
        self.touched = now.tick;
        self.dark_since = None;
        let session = match lane {
            Lane::Connection => {
                self.had_stream = true;
                self.connection.open = true;
                self.connection.gone_since = None;
                let waiting = self.connection.take_waiting();
                out.extend(waiting.into_iter().map(|message| Output::Send {
                    lane: Lane::Connection,
                    message,
                    id: None,
                }));
                return;
            }
            Lane::Session(session) => session,
        };
        let Some(owned) = self.sessions.get_mut(&session) else {
            out.push(Output::Finish { lane: Lane::Session(session) });
            return;
        };
        owned.track.open = true;
        owned.track.gone_since = None;
        let asked = resume.last_event_id.is_some();
        let after = resume.last_event_id.unwrap_or(owned.delivered);
        let epoch = resume.epoch.or_else(|| (!asked).then(|| owned.epoch.clone()));
        self.feed_from(&session, after, epoch, asked, out);
    }

    fn closed(&mut self, now: Now, lane: &Lane) {
        match lane {
            Lane::Connection => {
                self.connection.open = false;
            }
            Lane::Session(session) => {
                if let Some(owned) = self.sessions.get_mut(session) {
                    owned.track.open = false;
                    owned.track.gone_since = Some(now.tick);
                    owned.mode = FeedMode::Watching;
                    owned.held.clear();
                }
            }
        }
        if !self.any_open() {
            self.dark_since.get_or_insert(now.tick);
        }
    }

    fn overflow(&mut self, now: Now, lane: &Lane, out: &mut Vec<Output>) {
        out.push(Output::Evict { lane: lane.clone() });
        match (self.binding, lane) {
            (Binding::Streams, Lane::Session(_)) => self.closed(now, lane),
            (Binding::Socket, _) | (Binding::Streams, Lane::Connection) => {
                self.connection.open = false;
                self.leave(now, out);
            }
        }
    }

    /// A message to whichever stream hears of it; it waits where that is not open, or still tells the past.
    fn answer(&mut self, lane: &Lane, message: Bytes, now: Now, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Leaving { .. } | Phase::Gone) {
            return;
        }
        let lane = match lane {
            Lane::Session(session) if self.sessions.contains_key(session) => lane.clone(),
            Lane::Session(_) | Lane::Connection => Lane::Connection,
        };
        let owned = match &lane {
            Lane::Session(session) if self.binding == Binding::Streams => self.sessions.get_mut(session),
            Lane::Session(_) | Lane::Connection => None,
        };
        let (track, ready) = match owned {
            Some(owned) => {
                let ready = owned.track.open && owned.mode == FeedMode::Live;
                (&mut owned.track, ready)
            }
            None => {
                let open = self.connection.open;
                (&mut self.connection, open)
            }
        };
        if ready {
            out.push(Output::Send { lane, message, id: None });
            return;
        }
        track.waiting_bytes += message.len();
        track.waiting.push_back(message);
        if track.waiting.len() > WAITING_MAX || track.waiting_bytes > WAITING_BYTES_MAX {
            out.push(Output::Warn { text: format!("ACP connection {} does not take its answers", self.id) });
            self.leave(now, out);
        }
    }

    fn call(&mut self, order: Order, loopback: bool, awaited: Awaited, out: &mut Vec<Output>) {
        self.last_key += 1;
        let call = CallKey(self.last_key);
        self.calls.insert(call, awaited);
        out.push(Output::Call { call, order, loopback });
    }

    /// What must hold between two steps.
    #[cfg(test)]
    fn check_invariants(&self) {
        self.asks.check_invariants();
        let tracks = self.sessions.values().map(|owned| (&owned.track, owned.mode == FeedMode::Live));
        for (track, caught_up) in tracks.chain([(&self.connection, true)]) {
            if !matches!(self.phase, Phase::Leaving { .. } | Phase::Gone) {
                assert!(track.waiting.len() <= WAITING_MAX && track.waiting_bytes <= WAITING_BYTES_MAX, "I3");
            }
            assert_eq!(track.waiting_bytes, track.waiting.iter().map(Bytes::len).sum::<usize>(), "I3");
            assert!(track.waiting.is_empty() || !(track.open && caught_up), "I3: {track:?}");
            assert!(!(track.open && track.gone_since.is_some()), "{track:?}");
        }
        let mut feeds: Vec<_> = self.sessions.values().map(|owned| owned.feed).collect();
        feeds.sort_unstable();
        feeds.dedup();
        assert_eq!(feeds.len(), self.sessions.len(), "a feed of two sessions");
        for owned in self.sessions.values() {
            assert!(owned.track.open || self.binding == Binding::Socket || owned.mode == FeedMode::Watching);
            assert!(owned.held.is_empty() || matches!(owned.mode, FeedMode::Replaying { .. }));
        }
        assert!(self.requests_open() <= REQUESTS_MAX, "{} requests", self.requests_open());
        if self.phase == Phase::Gone {
            assert!(self.sessions.is_empty() && self.turns.is_empty() && self.calls.is_empty(), "I4: {self:?}");
        }
    }
}

impl Track {
    fn take_waiting(&mut self) -> VecDeque<Bytes> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}
