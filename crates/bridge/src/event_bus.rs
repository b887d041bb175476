//! Who hears of it: one session's numbered frames, kept for replay and fanned out to its subscribers.
//!
//! It does not know what frames mean. Source: daemon specification, §e.
//!
//! ```text
//!            publish                        per subscriber
//! draft ──▶ number, encode once ─┬─▶ ring   fits      ─▶ Send (counted), ≥ 75 % ─▶ slow_client_warning, once
//!                                └─▶ fan-out overflow ─▶ Evict, forgotten
//! Drained ─▶ queue shrinks, < 37.5 % re-arms the warning
//! ```
//! Invariants: I1 ids run from 1 without gaps, and the ring holds the last of them, contiguous. I2 the ring obeys its
//! bounds in frames and bytes. I3 a subscriber's queue obeys its bound in frames, and in bytes unless it holds a
//! single frame. I4 there are never more subscribers than the limit.

use std::collections::BTreeMap;

use convoke_protocol::daemon::{EncodedFrame, Frame, FrameKind, FrameMeta};
use convoke_protocol::{ClientId, PromptId};
use convoke_stdx::{Now, Ring};
use serde_json::{Map, Value};

use crate::contract::{Output, SubscribeRequest, SubscriberId};
use crate::options::Limits;
use crate::refusal::Refusal;

#[cfg(test)]
mod tests;

/// A frame before it has its number.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) kind: FrameKind,
    pub(crate) prompt_id: Option<PromptId>,
    pub(crate) originator: Option<ClientId>,
    pub(crate) data: Value,
}

impl Draft {
    /// A frame that belongs to no turn and has no originator.
    pub(crate) fn new(kind: FrameKind, data: Value) -> Self {
        Self { kind, prompt_id: None, originator: None, data }
    }

    pub(crate) fn encode(self, now: Now, id: Option<u64>) -> EncodedFrame {
        let meta = FrameMeta { server_timestamp: now.wall_ms };
        let Self { kind, prompt_id, originator, data } = self;
        Frame { id, v: 1, kind, prompt_id, data, originator_client_id: originator, meta }.encode()
    }
}

/// One session's stream.
#[derive(Debug)]
pub(crate) struct EventBus {
    epoch: String,
    last_id: u64,
    ring: Ring<EncodedFrame>,
    ring_bytes: usize,
    subscribers: BTreeMap<SubscriberId, Subscriber>,
    limits: Limits,
}

/// What waits for one reader.
#[derive(Debug)]
struct Subscriber {
    frames: usize,
    bytes: usize,
    frames_max: usize,
    warned: bool,
    /// The last numbered frame that was queued to it.
    last_id: u64,
}

/// Why a reader is dropped.
enum Eviction {
    Frames,
    Bytes { event_bytes: usize },
    WriterIdle { idle_for_ms: u64, timeout_ms: u64 },
}

impl EventBus {
    pub(crate) fn new(epoch: String, limits: Limits) -> Self {
        let ring = Ring::new(limits.ring_frames);
        Self { epoch, last_id: 0, ring, ring_bytes: 0, subscribers: BTreeMap::new(), limits }
    }

    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    pub(crate) fn last_id(&self) -> u64 {
        self.last_id
    }

    pub(crate) fn frames(&self) -> impl ExactSizeIterator<Item = &EncodedFrame> {
        self.ring.iter()
    }

    pub(crate) fn subscriber_count(&self) -> usize {
        self.subscribers.len()
    }

    /// How many frames are kept for replay, and their bytes.
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.ring.len(), self.ring_bytes)
    }

    /// How many frames wait for readers, and their bytes; a frame counts once for each of them.
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.subscribers.values().fold((0, 0), |sum, reader| (sum.0 + reader.frames, sum.1 + reader.bytes))
    }

    /// Numbers a frame, keeps it and sends it to everyone. Returns its number.
    pub(crate) fn publish(&mut self, now: Now, draft: Draft, out: &mut Vec<Output>) -> u64 {
        self.last_id += 1;
        let frame = draft.encode(now, Some(self.last_id));
        let mut dropped = Vec::new();
        for (id, subscriber) in &mut self.subscribers {
            match subscriber.overflow(&frame, &self.limits) {
                Some(eviction) => {
                    out.push(Output::Evict {
                        subscriber: *id,
                        frame: subscriber.farewell(now, eviction, &self.limits),
                    });
                    dropped.push(*id);
                }
                None => subscriber.queue(*id, now, &frame, &self.limits, out),
            }
        }
        for id in dropped {
            self.subscribers.remove(&id);
        }
        self.keep(frame);
        self.last_id
    }

    fn keep(&mut self, frame: EncodedFrame) {
        self.ring_bytes += frame.sse.len();
        if let Some(gone) = self.ring.push(frame) {
            self.ring_bytes -= gone.sse.len();
        }
        // A frame larger than the whole bound leaves at once, and with it everything before: no gap, no excess.
        while self.ring_bytes > self.limits.ring_bytes {
            let Some(gone) = self.ring.pop_oldest() else { break };
            self.ring_bytes -= gone.sse.len();
        }
    }

    /// Whether one more reader fits; a reader that replaces itself always does.
    pub(crate) fn has_room(&self, subscriber: SubscriberId) -> Result<(), Refusal> {
        let limit = self.limits.subscribers;
        if self.subscribers.len() < limit || self.subscribers.contains_key(&subscriber) {
            Ok(())
        } else {
            Err(Refusal::SubscriberLimit { limit })
        }
    }

    /// Opens a stream: replay if asked for, the snapshot if asked for, then each pending request whose numbered frame
    /// was not among the replayed ones, without a number.
    ///
    /// None of these count towards the queue: the reader chose to ask for them, and they are bounded.
    pub(crate) fn subscribe(
        &mut self,
        now: Now,
        request: &SubscribeRequest,
        snapshot: Draft,
        pending: impl Iterator<Item = (u64, Draft)>,
        out: &mut Vec<Output>,
    ) {
        let subscriber = request.subscriber;
        let mut send = |frame| out.push(Output::Send { subscriber, frame, counted: false });
        let mut replayed = None;
        if let Some(after) = request.last_event_id {
            replayed = self.replay(now, after, request.epoch.as_deref(), &mut send);
        }
        if request.snapshot {
            send(snapshot.encode(now, None));
        }
        for (id, draft) in pending {
            if !replayed.is_some_and(|(first, last)| (first..=last).contains(&id)) {
                send(draft.encode(now, None));
            }
        }
        let frames_max = request.max_queued.unwrap_or(self.limits.queued_frames);
        let frames_max = frames_max.clamp(*Limits::QUEUED_FRAMES.start(), *Limits::QUEUED_FRAMES.end());
        let reader = Subscriber { frames: 0, bytes: 0, frames_max, warned: false, last_id: self.last_id };
        self.subscribers.insert(subscriber, reader);
    }

    /// Sends what the reader missed, and says where that is not everything. Returns the first and last id replayed.
    fn replay(
        &self,
        now: Now,
        after: u64,
        epoch: Option<&str>,
        send: &mut impl FnMut(EncodedFrame),
    ) -> Option<(u64, u64)> {
        let first = self.ring.oldest().and_then(|frame| frame.id);
        let resync = |reason: &str, detail: Option<&str>| {
            let mut data = Map::new();
            data.insert("reason".into(), reason.into());
            if let Some(detail) = detail {
                data.insert("detail".into(), detail.into());
            }
            data.insert("lastDeliveredId".into(), after.into());
            data.insert("earliestAvailableId".into(), first.unwrap_or(self.last_id + 1).into());
            Draft::new(FrameKind::StateResyncRequired, Value::Object(data)).encode(now, None)
        };
        // An id of another bus says nothing about this one, so everything that is kept is news.
        let mut from = 1;
        if epoch.is_some_and(|epoch| epoch != self.epoch) {
            send(resync("epoch_reset", Some("epoch_mismatch")));
        } else if after > self.last_id {
            send(resync("epoch_reset", None));
        } else {
            from = after + 1;
            match first {
                Some(first) if first > from => send(resync("ring_evicted", None)),
                None if self.last_id >= from => send(resync("seeded_replay_not_in_ring", None)),
                Some(_) | None => {}
            }
        }
        let (mut count, mut bytes, mut span) = (0_u64, 0, None);
        for frame in self.ring.iter().filter(|frame| frame.id.is_some_and(|id| id >= from)) {
            bytes += frame.sse.len();
            if bytes > self.limits.replay_bytes {
                send(resync("replay_budget_exceeded", None));
                break;
            }
            let id = frame.id.unwrap_or_default();
            span = Some((span.map_or(id, |(first, _)| first), id));
            count += 1;
            send(frame.clone());
        }
        let mut data = Map::new();
        if let Some((_, last)) = span {
            data.insert("lastReplayedEventId".into(), last.into());
        }
        if self.last_id > 0 {
            data.insert("lastEventId".into(), self.last_id.into());
        }
        data.insert("replayedCount".into(), count.into());
        send(Draft::new(FrameKind::ReplayComplete, Value::Object(data)).encode(now, None));
        span
    }

    pub(crate) fn unsubscribe(&mut self, subscriber: SubscriberId) {
        self.subscribers.remove(&subscriber);
    }

    /// Ends every stream, after what is queued to it.
    pub(crate) fn end(&mut self, out: &mut Vec<Output>) {
        out.extend(
            std::mem::take(&mut self.subscribers).into_keys().map(|subscriber| Output::EndStream { subscriber }),
        );
    }

    pub(crate) fn drained(&mut self, subscriber: SubscriberId, frames: usize, bytes: usize) {
        let queued_bytes = self.limits.queued_bytes;
        let Some(reader) = self.subscribers.get_mut(&subscriber) else { return };
        reader.frames = reader.frames.saturating_sub(frames);
        reader.bytes = if reader.frames == 0 { 0 } else { reader.bytes.saturating_sub(bytes) };
        // Half of the warning's threshold, so that a reader at the edge is warned once and not at every frame.
        if reader.frames * 8 < reader.frames_max * 3 && reader.bytes.saturating_mul(8) < queued_bytes.saturating_mul(3)
        {
            reader.warned = false;
        }
    }

    pub(crate) fn writer_stalled(
        &mut self,
        now: Now,
        subscriber: SubscriberId,
        idle_for_ms: u64,
        timeout_ms: u64,
        out: &mut Vec<Output>,
    ) {
        if let Some(reader) = self.subscribers.remove(&subscriber) {
            let frame = reader.farewell(now, Eviction::WriterIdle { idle_for_ms, timeout_ms }, &self.limits);
            out.push(Output::Evict { subscriber, frame });
        }
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&self) {
        let ids: Vec<u64> = self.ring.iter().filter_map(|frame| frame.id).collect();
        assert_eq!(ids.len(), self.ring.len(), "I1: an unnumbered frame is kept");
        assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "I1: gap in {ids:?}");
        assert!(ids.last().is_none_or(|last| *last == self.last_id), "I1: the newest frame is missing");
        let bytes: usize = self.ring.iter().map(|frame| frame.sse.len()).sum();
        assert_eq!(bytes, self.ring_bytes, "I2: bytes are miscounted");
        assert!(self.ring.len() <= self.limits.ring_frames && bytes <= self.limits.ring_bytes, "I2: ring over bounds");
        for reader in self.subscribers.values() {
            assert!(reader.frames <= reader.frames_max, "I3: too many frames queued");
            assert!(reader.bytes <= self.limits.queued_bytes || reader.frames == 1, "I3: too many bytes queued");
            assert!(reader.frames > 0 || reader.bytes == 0, "I3: bytes without frames");
        }
        assert!(self.subscribers.len() <= self.limits.subscribers, "I4: too many subscribers");
    }
}

impl Subscriber {
    fn overflow(&self, frame: &EncodedFrame, limits: &Limits) -> Option<Eviction> {
        let event_bytes = frame.sse.len();
        if self.frames + 1 > self.frames_max {
            Some(Eviction::Frames)
        } else if self.frames > 0 && self.bytes + event_bytes > limits.queued_bytes {
            // Into an empty queue even an oversized frame may go: else no reader could ever get past it.
            Some(Eviction::Bytes { event_bytes })
        } else {
            None
        }
    }

    fn queue(
        &mut self,
        subscriber: SubscriberId,
        now: Now,
        frame: &EncodedFrame,
        limits: &Limits,
        out: &mut Vec<Output>,
    ) {
        self.frames += 1;
        self.bytes += frame.sse.len();
        self.last_id = frame.id.unwrap_or(self.last_id);
        out.push(Output::Send { subscriber, frame: frame.clone(), counted: true });
        let threshold = if self.frames * 4 >= self.frames_max * 3 {
            "frames"
        } else if self.bytes.saturating_mul(4) >= limits.queued_bytes.saturating_mul(3) {
            "bytes"
        } else {
            return;
        };
        if self.warned {
            return;
        }
        self.warned = true;
        let mut data = Map::new();
        self.describe(&mut data, limits);
        data.insert("lastEventId".into(), self.last_id.into());
        data.insert("threshold".into(), threshold.into());
        let frame = Draft::new(FrameKind::SlowClientWarning, Value::Object(data)).encode(now, None);
        out.push(Output::Send { subscriber, frame, counted: false });
    }

    fn farewell(&self, now: Now, eviction: Eviction, limits: &Limits) -> EncodedFrame {
        let mut data = Map::new();
        let reason = match eviction {
            Eviction::Frames => "queue_overflow",
            Eviction::Bytes { .. } => "queue_bytes_overflow",
            Eviction::WriterIdle { .. } => "writer_idle_timeout",
        };
        data.insert("reason".into(), reason.into());
        data.insert("droppedAfter".into(), self.last_id.into());
        self.describe(&mut data, limits);
        match eviction {
            Eviction::Frames => {}
            Eviction::Bytes { event_bytes } => {
                data.insert("eventBytes".into(), event_bytes.into());
            }
            Eviction::WriterIdle { idle_for_ms, timeout_ms } => {
                data.insert("errorKind".into(), reason.into());
                data.insert("idleForMs".into(), idle_for_ms.into());
                data.insert("timeoutMs".into(), timeout_ms.into());
            }
        }
        Draft::new(FrameKind::ClientEvicted, Value::Object(data)).encode(now, None)
    }

    fn describe(&self, data: &mut Map<String, Value>, limits: &Limits) {
        data.insert("queueSize".into(), self.frames.into());
        data.insert("maxQueued".into(), self.frames_max.into());
        data.insert("queuedBytes".into(), self.bytes.into());
        data.insert("maxQueuedBytes".into(), limits.queued_bytes.into());
    }
}
