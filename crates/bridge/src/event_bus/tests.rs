//! The bus alone: replay from every position, counting, warnings and evictions.

use convoke_stdx::Tick;
use serde_json::{Value, json};

use super::*;

fn now() -> Now {
    Now { tick: Tick(1), wall_ms: 1000 }
}

fn bus(change: impl FnOnce(&mut Limits)) -> EventBus {
    let mut limits = Limits::default();
    change(&mut limits);
    EventBus::new("epoch".into(), limits)
}

fn fill(bus: &mut EventBus, frames: usize) -> Vec<Output> {
    let mut out = Vec::new();
    for n in 0..frames {
        bus.publish(now(), Draft::new(FrameKind::SessionUpdate, json!({ "n": n })), &mut out);
        bus.check_invariants();
    }
    out
}

fn open(
    bus: &mut EventBus,
    id: u64,
    change: impl FnOnce(&mut SubscribeRequest),
) -> Vec<(FrameKind, Option<u64>, Value)> {
    let mut request = SubscribeRequest {
        subscriber: SubscriberId(id),
        last_event_id: None,
        epoch: None,
        max_queued: None,
        snapshot: false,
    };
    change(&mut request);
    bus.has_room(request.subscriber).unwrap();
    let mut out = Vec::new();
    let snapshot = Draft::new(FrameKind::SessionSnapshot, json!({}));
    let asked = (3, Draft::new(FrameKind::PermissionRequest, json!({ "requestId": "r" })));
    bus.subscribe(now(), &request, snapshot, std::iter::once(asked), &mut out);
    bus.check_invariants();
    out.iter().map(|output| sent(output, false)).collect()
}

fn sent(output: &Output, expect_counted: bool) -> (FrameKind, Option<u64>, Value) {
    let Output::Send { frame, counted, .. } = output else { panic!("{output:?}") };
    assert_eq!(*counted, expect_counted);
    let envelope: Value = serde_json::from_slice(&frame.json).unwrap();
    (frame.kind, frame.id, envelope["data"].clone())
}

/// What a stream begins with, as words: numbers for replayed frames, names (with the reason) for the rest.
fn words(frames: &[(FrameKind, Option<u64>, Value)]) -> Vec<String> {
    frames
        .iter()
        .map(|(kind, id, data)| match (id, data.get("reason")) {
            (Some(id), _) => id.to_string(),
            (None, Some(reason)) => reason.as_str().unwrap().to_owned(),
            (None, None) => kind.name().to_owned(),
        })
        .collect()
}

#[test]
fn every_starting_point_and_what_it_gets() {
    // Six frames were published, the ring holds 3 to 6; a request was asked in frame 3.
    let table: [(Option<u64>, Option<&str>, &[&str]); 8] = [
        (None, None, &["permission_request"]),
        (Some(0), None, &["ring_evicted", "3", "4", "5", "6", "replay_complete"]),
        (Some(1), Some("epoch"), &["ring_evicted", "3", "4", "5", "6", "replay_complete"]),
        (Some(2), None, &["3", "4", "5", "6", "replay_complete"]),
        (Some(4), None, &["5", "6", "replay_complete", "permission_request"]),
        (Some(6), None, &["replay_complete", "permission_request"]),
        (Some(7), None, &["epoch_reset", "3", "4", "5", "6", "replay_complete"]),
        (Some(6), Some("old"), &["epoch_reset", "3", "4", "5", "6", "replay_complete"]),
    ];
    for (after, epoch, expected) in table {
        let mut bus = bus(|limits| limits.ring_frames = 4);
        fill(&mut bus, 6);
        let frames = open(&mut bus, 1, |request| {
            request.last_event_id = after;
            request.epoch = epoch.map(Into::into);
        });
        assert_eq!(words(&frames), expected, "after {after:?}, epoch {epoch:?}");
    }
}

#[test]
fn the_marks_say_where_they_stand() {
    let mut bus = bus(|limits| limits.ring_frames = 4);
    let empty = open(&mut bus, 1, |request| request.last_event_id = Some(0));
    assert_eq!(empty[0].2, json!({ "replayedCount": 0 }));
    bus.unsubscribe(SubscriberId(1));
    fill(&mut bus, 6);
    let frames = open(&mut bus, 2, |request| {
        request.last_event_id = Some(1);
        request.snapshot = true;
    });
    assert_eq!(frames[0].2, json!({ "reason": "ring_evicted", "lastDeliveredId": 1, "earliestAvailableId": 3 }));
    assert_eq!(frames[5].2, json!({ "lastReplayedEventId": 6, "lastEventId": 6, "replayedCount": 4 }));
    assert_eq!(frames[6].0, FrameKind::SessionSnapshot, "right after the replay");
    let reset = open(&mut bus, 3, |request| {
        request.last_event_id = Some(1);
        request.epoch = Some("old".into());
    });
    let expected =
        json!({ "reason": "epoch_reset", "detail": "epoch_mismatch", "lastDeliveredId": 1, "earliestAvailableId": 3 });
    assert_eq!(reset[0].2, expected);
    let live = open(&mut bus, 4, |request| request.snapshot = true);
    assert_eq!(words(&live), ["session_snapshot", "permission_request"]);
}

#[test]
fn a_ring_that_holds_nothing_says_so() {
    let mut bus = bus(|limits| limits.ring_bytes = 10);
    fill(&mut bus, 2);
    let missed = open(&mut bus, 1, |request| request.last_event_id = Some(1));
    assert_eq!(words(&missed)[..2], ["seeded_replay_not_in_ring", "replay_complete"]);
    assert_eq!(missed[0].2["earliestAvailableId"], 3);
    let caught_up = open(&mut bus, 2, |request| request.last_event_id = Some(2));
    assert_eq!(words(&caught_up)[0], "replay_complete");
}

#[test]
fn a_replay_ends_at_its_budget_after_what_fits() {
    let mut bus = bus(|_| {});
    fill(&mut bus, 5);
    let size = bus.frames().next().unwrap().sse.len();
    bus.limits.replay_bytes = size * 2;
    let frames = open(&mut bus, 1, |request| request.last_event_id = Some(0));
    assert_eq!(words(&frames), ["1", "2", "replay_budget_exceeded", "replay_complete", "permission_request"]);
    assert_eq!(frames[3].2["replayedCount"], 2);
}

#[test]
fn a_slow_reader_is_warned_once_and_again_after_recovery_and_then_dropped() {
    let mut bus = bus(|_| {});
    open(&mut bus, 1, |request| request.max_queued = Some(16));
    let out = fill(&mut bus, 12);
    assert_eq!(out.len(), 13);
    let (kind, id, data) = sent(&out[12], false);
    assert_eq!((kind, id), (FrameKind::SlowClientWarning, None));
    let bytes: usize = bus.frames().map(|frame| frame.sse.len()).sum();
    let expected = json!({
        "queueSize": 12, "maxQueued": 16, "queuedBytes": bytes, "maxQueuedBytes": 2 << 20,
        "lastEventId": 12, "threshold": "frames",
    });
    assert_eq!(data, expected);
    assert_eq!(fill(&mut bus, 1).len(), 1, "warned already");
    // 6 of 16 is 37.5 %: not below it.
    bus.drained(SubscriberId(1), 7, 0);
    assert_eq!(fill(&mut bus, 6).len(), 6, "not re-armed at the threshold");
    bus.drained(SubscriberId(1), 7, 0);
    let again = fill(&mut bus, 7);
    assert_eq!(again.len(), 8, "re-armed below it: {again:?}");
    let last = fill(&mut bus, 5);
    let Some(Output::Evict { subscriber, frame }) = last.last() else { panic!("{last:?}") };
    assert_eq!((*subscriber, frame.kind, frame.id), (SubscriberId(1), FrameKind::ClientEvicted, None));
    let envelope: Value = serde_json::from_slice(&frame.json).unwrap();
    assert_eq!(envelope["data"]["reason"], "queue_overflow");
    assert_eq!(envelope["data"]["queueSize"], 16);
    assert_eq!(envelope["data"]["droppedAfter"], bus.last_id() - 1);
    assert!(fill(&mut bus, 1).is_empty(), "forgotten");
}

#[test]
fn an_oversized_frame_passes_an_empty_queue_only() {
    let mut bus = bus(|limits| limits.queued_bytes = 50);
    open(&mut bus, 1, |_| {});
    assert_eq!(fill(&mut bus, 1).len(), 2, "sent, with a warning about bytes");
    let out = fill(&mut bus, 1);
    let Output::Evict { frame, .. } = &out[0] else { panic!("{out:?}") };
    let data: Value = serde_json::from_slice(&frame.json).unwrap();
    assert_eq!(data["data"]["reason"], "queue_bytes_overflow");
    assert!(data["data"]["eventBytes"].as_u64() > Some(50));
}

#[test]
fn readers_are_independent_and_limited() {
    let mut bus = bus(|limits| limits.subscribers = 2);
    open(&mut bus, 1, |request| request.max_queued = Some(1));
    open(&mut bus, 2, |request| request.max_queued = Some(9999));
    assert_eq!(bus.has_room(SubscriberId(3)), Err(Refusal::SubscriberLimit { limit: 2 }));
    bus.has_room(SubscriberId(2)).unwrap();
    let out = fill(&mut bus, 17);
    let evicted: Vec<&SubscriberId> = out
        .iter()
        .filter_map(|o| if let Output::Evict { subscriber, .. } = o { Some(subscriber) } else { None })
        .collect();
    assert_eq!(evicted, [&SubscriberId(1)], "a wish below 16 is brought to 16");
    let fast = out.iter().filter(|o| matches!(o, Output::Send { subscriber: SubscriberId(2), counted: true, .. }));
    assert_eq!(fast.count(), 17);
}

#[test]
fn all_readers_share_the_bytes_of_a_frame() {
    let mut bus = bus(|_| {});
    open(&mut bus, 1, |_| {});
    open(&mut bus, 2, |_| {});
    let out = fill(&mut bus, 1);
    let pointers: Vec<*const u8> = out
        .iter()
        .map(|output| if let Output::Send { frame, .. } = output { frame.sse.as_ptr() } else { panic!() })
        .collect();
    assert_eq!(pointers, [bus.frames().next().unwrap().sse.as_ptr(); 2]);
}
