//! The one task of an ACP connection: what happened, one step of its seat, everything that wants done; again.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_bridge::SubscribeRequest;
use convoke_protocol::SessionId;
use convoke_protocol::daemon::EncodedFrame;
use convoke_stdx::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::AcpDesk;
use super::orders;
use super::outlet::{self, Reader, Writer};
use super::registry::Place;
use super::rpc::{Message, Problem};
use super::seat::{Answered, Binding, CallKey, FeedEnd, FeedKey, House, Input, Lane, Output, Resume, Seat};
use crate::driver::Handle;
use crate::http_error::HttpError;
use crate::stream::StreamReader;

/// Something for a connection.
#[derive(Debug)]
pub(super) enum Memo {
    /// A message of its client.
    Message { message: Message, loopback: bool },
    /// What is no message.
    Rubbish(Problem),
    /// A stream is opened on a socket that `destroy` ends; nothing is granted for a session of someone else.
    Open { lane: Lane, resume: Resume, destroy: CancellationToken, reply: oneshot::Sender<Option<Opened>> },
    /// The client is gone, or says so.
    Leave,
}

/// A stream that was granted, and of a session's the name of its event bus.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) reader: Reader,
    pub(super) epoch: Option<String>,
}

/// What the streams of a connection come up with.
enum Stirred {
    LaneGone(Lane),
    Frame(FeedKey, EncodedFrame),
    FeedEnded(FeedKey, FeedEnd),
}

struct Feed {
    session: SessionId,
    reader: StreamReader,
}

/// Carries out what a seat decides.
pub(super) struct Attendant {
    seat: Seat,
    binding: Binding,
    handle: Handle,
    house: House,
    clock: Clock,
    memos: mpsc::Receiver<Memo>,
    calls: JoinSet<(CallKey, Result<Answered, HttpError>)>,
    feeds: BTreeMap<FeedKey, Feed>,
    lanes: BTreeMap<Lane, Writer>,
    /// The feed that is looked at first.
    turn: usize,
    heartbeat: Duration,
    stop: CancellationToken,
    gone: bool,
    _place: Place,
}

impl Attendant {
    pub(super) fn new(desk: &AcpDesk, place: Place, memos: mpsc::Receiver<Memo>, binding: Binding) -> Self {
        let clock = Clock::start();
        Self {
            seat: Seat::new(place.id.clone(), desk.house.clone(), binding, clock.now()),
            binding,
            handle: desk.handle.clone(),
            house: desk.house.clone(),
            clock,
            memos,
            calls: JoinSet::new(),
            feeds: BTreeMap::new(),
            lanes: BTreeMap::new(),
            turn: 0,
            heartbeat: desk.heartbeat,
            stop: desk.stop.clone(),
            gone: false,
            _place: place,
        }
    }

    /// Gives a WebSocket its outlet.
    pub(super) fn plug(&mut self, writer: Writer) {
        self.lanes.insert(Lane::Connection, writer);
    }

    /// Runs until the seat is empty.
    pub(super) async fn run(mut self) {
        let period = self.heartbeat.max(Duration::from_millis(1));
        let mut pulse = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = false;
        while !self.gone {
            let deadline = self.seat.next_deadline().map(|tick| self.clock.instant_of(tick));
            let (feeds, lanes) = (&mut self.feeds, &self.lanes);
            let (binding, turn) = (self.binding, self.turn);
            let input = tokio::select! {
                memo = self.memos.recv() => match memo {
                    Some(Memo::Message { message, loopback }) => {
                        Input::Message { message, loopback, fresh: Uuid::new_v4().to_string() }
                    }
                    Some(Memo::Rubbish(problem)) => Input::Rubbish(problem),
                    Some(Memo::Open { lane, resume, destroy, reply }) => match self.open(lane, resume, destroy, reply) {
                        Some(input) => input,
                        None => continue,
                    },
                    Some(Memo::Leave) | None => Input::Leave,
                },
                Some(done) = self.calls.join_next() => match done {
                    Ok((call, result)) => Input::Done { call, result },
                    // Tasks here neither panic nor are aborted.
                    Err(_) => continue,
                },
                stirred = poll_fn(|context| stir(feeds, lanes, binding, turn, context)) => {
                    self.turn = self.turn.wrapping_add(1);
                    match stirred {
                        Stirred::LaneGone(lane) => {
                            self.lanes.remove(&lane);
                            Input::Closed { lane }
                        }
                        Stirred::Frame(feed, frame) => Input::Frame { feed, frame },
                        Stirred::FeedEnded(feed, end) => {
                            self.feeds.remove(&feed);
                            Input::FeedEnded { feed, end }
                        }
                    }
                },
                () = sleep_or_never(deadline) => Input::Tick,
                _ = pulse.tick() => {
                    self.lanes.values().for_each(Writer::pulse);
                    continue;
                }
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    Input::Stop
                }
            };
            self.step(input).await;
        }
    }

    fn open(
        &mut self,
        lane: Lane,
        resume: Resume,
        destroy: CancellationToken,
        reply: oneshot::Sender<Option<Opened>>,
    ) -> Option<Input> {
        let epoch = match &lane {
            Lane::Connection => None,
            Lane::Session(session) => match self.seat.epoch_of(session) {
                Some(epoch) => Some(epoch.to_owned()),
                None => {
                    // Whoever asked may be gone.
                    let _ = reply.send(None);
                    return None;
                }
            },
        };
        let (writer, reader) = outlet::outlet(destroy);
        if let Some(old) = self.lanes.insert(lane.clone(), writer) {
            old.finish(NORMAL, "");
        }
        // A reader that nobody takes is gone, and the lane with it.
        let _ = reply.send(Some(Opened { reader, epoch }));
        Some(Input::Opened { lane, resume })
    }

    /// One step of the seat, and of whatever it leads to at once.
    async fn step(&mut self, input: Input) {
        let mut more = VecDeque::from([input]);
        let mut out = Vec::new();
        while let Some(input) = more.pop_front() {
            self.seat.handle(self.clock.now(), input, &mut out);
            for output in out.drain(..) {
                self.carry_out(output, &mut more).await;
            }
        }
    }

    async fn carry_out(&mut self, output: Output, more: &mut VecDeque<Input>) {
        match output {
            Output::Call { call, order, loopback } => {
                let placed = orders::place(&self.handle, &self.house.workspace, order, loopback).await;
                self.calls.spawn(async move { (call, placed.await) });
            }
            Output::Feed { feed, session, after, epoch } => self.feed(feed, session, after, epoch, more).await,
            Output::Unfeed { feed } => {
                self.feeds.remove(&feed);
            }
            Output::Send { lane, message, id } => {
                let key = match self.binding {
                    Binding::Streams => lane.clone(),
                    Binding::Socket => Lane::Connection,
                };
                let Some(writer) = self.lanes.get(&key) else { return };
                let bytes = match self.binding {
                    Binding::Streams => event(&message, id),
                    Binding::Socket => message,
                };
                if !writer.push(bytes) {
                    more.push_back(Input::Overflow { lane });
                }
            }
            Output::Finish { lane } => {
                if let Some(writer) = self.lanes.remove(&lane) {
                    writer.finish(NORMAL, "");
                }
            }
            Output::Evict { lane } => {
                let key = match self.binding {
                    Binding::Streams => lane,
                    Binding::Socket => Lane::Connection,
                };
                if let Some(writer) = self.lanes.remove(&key) {
                    writer.evict();
                }
            }
            Output::CloseSocket { code, reason } => {
                if let Some(writer) = self.lanes.remove(&Lane::Connection) {
                    writer.finish(code, reason);
                }
            }
            Output::Warn { text } => tracing::warn!("{text}"),
            Output::Gone => self.gone = true,
        }
    }

    async fn feed(
        &mut self,
        feed: FeedKey,
        session: SessionId,
        after: Option<u64>,
        epoch: Option<String>,
        more: &mut VecDeque<Input>,
    ) {
        // Evicting a subscription ends no socket: that is for the seat to say.
        let destroy = CancellationToken::new();
        let subscribed = self.handle.subscribe(session.clone(), destroy, |subscriber| SubscribeRequest {
            subscriber,
            last_event_id: after,
            epoch,
            max_queued: None,
            snapshot: false,
        });
        match subscribed.await {
            Ok((_, reader)) => {
                self.feeds.insert(feed, Feed { session, reader });
            }
            Err(_) => more.push_back(Input::FeedEnded { feed, end: FeedEnd::Refused }),
        }
    }
}

/// The close code of an ordinary end.
const NORMAL: u16 = 1000;

/// The next thing that streams have: a lane that lost its socket, or an event where there is room for it.
fn stir(
    feeds: &mut BTreeMap<FeedKey, Feed>,
    lanes: &BTreeMap<Lane, Writer>,
    binding: Binding,
    turn: usize,
    context: &mut Context<'_>,
) -> Poll<Stirred> {
    if let Some((lane, _)) = lanes.iter().find(|(_, writer)| writer.poll_gone(context)) {
        return Poll::Ready(Stirred::LaneGone(lane.clone()));
    }
    let first = turn.checked_rem(feeds.len()).unwrap_or(0);
    let keys: Vec<_> = feeds.keys().copied().collect();
    let (before, from) = keys.split_at_checked(first).unwrap_or((&keys, &[]));
    for key in from.iter().chain(before) {
        let Some(feed) = feeds.get_mut(key) else { continue };
        let lane = match binding {
            Binding::Streams => lanes.get(&Lane::Session(feed.session.clone())),
            Binding::Socket => lanes.get(&Lane::Connection),
        };
        if lane.is_some_and(|writer| !writer.poll_room(context)) && !feed.reader.poll_evicted(context) {
            continue;
        }
        match feed.reader.poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Stirred::Frame(*key, frame)),
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Stirred::FeedEnded(*key, FeedEnd::Evicted)),
            Poll::Ready(None) => return Poll::Ready(Stirred::FeedEnded(*key, FeedEnd::Finished)),
            Poll::Pending => {}
        }
    }
    Poll::Pending
}

/// A message as a server-sent event: data only, with the number of the event that it tells.
fn event(message: &[u8], id: Option<u64>) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 32);
    if let Some(id) = id {
        bytes.put_slice(format!("id: {id}\n").as_bytes());
    }
    bytes.put_slice(b"data: ");
    bytes.put_slice(message);
    bytes.put_slice(b"\n\n");
    bytes.freeze()
}

async fn sleep_or_never(at: Option<std::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
