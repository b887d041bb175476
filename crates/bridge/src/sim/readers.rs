//! Clients that follow a session: what arrives at them, and what they know from it.

use std::collections::{BTreeMap, VecDeque};

use convoke_protocol::daemon::{EncodedFrame, FrameKind};
use convoke_protocol::{RequestId, SessionId};

use super::Kept;
use super::ballots::Progress;
use super::history::{Effect, History, data_of, effect_of, text};
use crate::contract::SubscribeRequest;
use crate::options::Limits;

/// The requests that a client takes for pending, and what it knows of their votes.
pub(super) type Known = BTreeMap<RequestId, Option<Progress>>;

/// One open stream.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) session: SessionId,
    /// The number that its next numbered frame follows on.
    last: u64,
    known: Known,
    /// Frames that were sent to it and that its socket has not taken, by their bytes.
    pub(super) queue: VecDeque<usize>,
    queue_max: usize,
    /// Replay is going on; where it began does not matter if it was told that something is missing.
    opening: bool,
    resynced: bool,
    /// Its replay was cut off, so it has been told to load the session anew.
    cut: bool,
}

/// A client that has gone away, and may come back to where it was.
#[derive(Clone, Debug)]
pub(super) struct Absent {
    pub(super) session: SessionId,
    pub(super) last: u64,
    known: Known,
}

impl Reader {
    /// A stream that begins; `back` is who comes back with it.
    pub(super) fn open(session: SessionId, request: &SubscribeRequest, now_at: u64, back: Option<&Absent>) -> Self {
        let queue_max = request.max_queued.unwrap_or(16);
        Self {
            session,
            last: request.last_event_id.unwrap_or(now_at),
            known: back.map(|absent| absent.known.clone()).unwrap_or_default(),
            queue: VecDeque::new(),
            queue_max: queue_max.clamp(*Limits::QUEUED_FRAMES.start(), *Limits::QUEUED_FRAMES.end()),
            opening: true,
            resynced: false,
            cut: false,
        }
    }

    pub(super) fn take(
        &mut self,
        frame: &EncodedFrame,
        counted: bool,
        history: Option<&mut History>,
        limits: &Limits,
    ) -> Kept {
        must!("replay is not queued", counted != self.opening || frame.id.is_none(), "{frame:?}, counted {counted}");
        if counted {
            self.queue.push_back(frame.sse.len());
            let bytes: usize = self.queue.iter().sum();
            must!("queue of frames", self.queue.len() <= self.queue_max, "{} of {}", self.queue.len(), self.queue_max);
            must!("queue of bytes", bytes <= limits.queued_bytes || self.queue.len() == 1, "{bytes}");
        }
        let Some(number) = frame.id else {
            match frame.kind {
                FrameKind::StateResyncRequired if text(&data_of(frame), "reason") == "replay_budget_exceeded" => {
                    self.cut = true;
                }
                FrameKind::StateResyncRequired => {
                    self.resynced = true;
                    self.known.clear();
                }
                _ => self.learn(effect_of(frame)),
            }
            return Ok(());
        };
        let follows = self.last.checked_add(1) == Some(number) || (self.opening && self.resynced);
        must!("no silent gap", follows, "after {} comes {number} on {}", self.last, self.session);
        // From here on the replay itself is held to have no gaps.
        self.resynced &= !self.opening;
        self.last = number;
        if let Some(history) = history {
            let effect = history.take(frame)?;
            self.learn(effect);
        }
        Ok(())
    }

    fn learn(&mut self, effect: Effect) {
        match effect {
            Effect::Asked(request, progress) => drop(self.known.insert(request, progress)),
            Effect::Progressed(request, progress) => {
                // Also before its request, which a late joiner is told at the end.
                if let Some(known) = self.known.get_mut(&request) {
                    *known = Some(progress);
                }
            }
            Effect::Settled(request) => drop(self.known.remove(&request)),
            Effect::Other => {}
        }
    }

    /// All of a step has arrived.
    pub(super) fn settle(&mut self, published: u64) -> Kept {
        if self.opening && (self.resynced || self.cut) {
            self.last = published;
        }
        self.opening = false;
        must!("no frame is missing", self.last == published, "{} of {published} on {}", self.last, self.session);
        Ok(())
    }

    /// Whether it knows what there is to know.
    pub(super) fn check(&self, truth: &Known) -> Kept {
        must!("all know the same", self.cut || self.known == *truth, "known {:?}, true {truth:?}", self.known);
        Ok(())
    }

    pub(super) fn drained(&mut self, frames: usize) {
        self.queue.drain(..frames.min(self.queue.len()));
    }

    /// It is thrown out: not without a reason.
    pub(super) fn check_eviction(&self, frame: &EncodedFrame, stalled: bool, limits: &Limits) -> Kept {
        let data = data_of(frame);
        let bytes: usize = self.queue.iter().sum();
        let event = data.get("eventBytes").and_then(serde_json::Value::as_u64).unwrap_or_default();
        let event = usize::try_from(event).unwrap_or_default();
        let deserved = match text(&data, "reason").as_str() {
            "queue_overflow" => self.queue.len() == self.queue_max,
            "queue_bytes_overflow" => !self.queue.is_empty() && bytes + event > limits.queued_bytes,
            "writer_idle_timeout" => stalled,
            _ => false,
        };
        must!("only the slow are evicted", deserved, "{data} with {} frames and {bytes} bytes", self.queue.len());
        Ok(())
    }

    /// Its client leaves, and remembers where it was.
    pub(super) fn leave(self) -> Option<Absent> {
        let Self { session, last, known, cut, .. } = self;
        (!cut).then_some(Absent { session, last, known })
    }
}
