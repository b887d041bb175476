//! Event streams: their beginning, their lag, their end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Event, Next, soon};
use crate::rig::{Rig, request_id};

#[tokio::test]
async fn headers_and_first_bytes() {
    let rig = Rig::with(|options| options.limits.heartbeat = Duration::from_millis(30)).await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(stream.header(name), Some(value));
    }
    for name in ["x-qwen-event-epoch", "x-qwen-sse-stream-id"] {
        assert_eq!(stream.header(name).map(str::len), Some(36), "{name}");
    }
    let other = |next: Next| match next {
        Next::Event(event) => event.other,
        _ => None,
    };
    assert_eq!(other(stream.any().await).as_deref(), Some("retry: 3000"));
    assert_eq!(other(stream.any().await).as_deref(), Some(": heartbeat"));
    assert_eq!(other(stream.any().await).as_deref(), Some(": heartbeat"));
}

#[tokio::test]
async fn every_reader_gets_every_frame_in_order() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(member.events().await);
    }
    member.prompt("slow scenario n=5").await;
    let mut seen: Vec<Vec<Event>> = Vec::new();
    for stream in &mut streams {
        let mut events = Vec::new();
        loop {
            let Next::Event(event) = stream.next().await else { panic!("the stream ended") };
            let last = event.kind == "turn_complete";
            events.push(event);
            if last {
                break;
            }
        }
        seen.push(events);
    }
    let ids: Vec<_> = seen[0].iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).map(Some).collect::<Vec<_>>());
    assert!(seen.iter().all(|events| *events == seen[0]));
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut first = member.events().await;
    member.prompt("echo one").await;
    first.until("turn_complete").await;
    let Next::Event(_) = ({
        member.prompt("echo two").await;
        first.next().await
    }) else {
        panic!("the stream ended")
    };
    drop(first);
    let all = {
        let mut stream = member.events_after("0").await;
        let mut all = Vec::new();
        while all.iter().filter(|event: &&Event| event.kind == "turn_complete").count() < 2 {
            let Next::Event(event) = stream.next().await else { panic!("the stream ended") };
            all.push(event);
        }
        all.into_iter().filter(|event| event.id.is_some()).collect::<Vec<_>>()
    };
    let mut later = member.events_after("2").await;
    let mut events = Vec::new();
    let complete = loop {
        let Next::Event(event) = later.next().await else { panic!("the stream ended") };
        if event.kind == "replay_complete" {
            break event.frame;
        }
        events.push(event);
    };
    assert_eq!(events, all[2..]);
    let last = all.last().unwrap().id.unwrap();
    let expected = json!({"lastReplayedEventId": last, "lastEventId": last, "replayedCount": last - 2});
    assert_eq!(complete["data"], expected);
}

#[tokio::test]
async fn numbers_of_another_life_are_told_apart() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let headers = [("Last-Event-ID", "3"), ("X-Qwen-Event-Epoch", "another")];
    let mut stream = member.client.events(&member.path("events"), &headers).await;
    let Next::Event(event) = stream.next().await else { panic!("the stream ended") };
    assert_eq!(event.kind, "state_resync_required");
    assert_eq!(event.frame["data"]["reason"], "epoch_reset");
}

#[tokio::test]
async fn a_reader_that_stands_still_is_dropped_and_nobody_else_notices() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut fast = member.events().await;
    let mut slow = member.client.events(&member.path("events?maxQueued=16"), &[]).await;
    // 36 MB in all: more than the sockets of a loopback connection hold. Each turn fits into one reader's queue, so that
    // a reader that reads is never behind.
    let mut chunks = 0;
    for _ in 0..30 {
        member.prompt("flood scenario n=200 pad=6000").await;
        loop {
            let Next::Event(event) = fast.next().await else { panic!("the fast stream ended") };
            assert_ne!(event.kind, "client_evicted");
            chunks += usize::from(event.frame["data"]["update"]["sessionUpdate"] == "agent_message_chunk");
            if event.kind == "turn_complete" {
                break;
            }
        }
    }
    assert_eq!(chunks, 6000);
    let (events, end) = slow.rest().await;
    assert_eq!(end, Next::Broken);
    assert!(events.len() < 6000, "{}", events.len());
    let health = rig.client.get("/health?deep=1").await.json();
    assert_eq!(health["connectedClients"], 1);
}

#[tokio::test]
async fn a_socket_that_takes_nothing_for_too_long_is_dropped() {
    let rig = Rig::with(|options| {
        // Long enough that a reader on a busy machine is not taken for a stalled one.
        options.limits.writer_idle = Some(Duration::from_secs(2));
        // Only the clock may drop it.
        options.bridge.limits.queued_frames = 2048;
        options.bridge.limits.queued_bytes = 1 << 30;
    })
    .await;
    let member = rig.join("single").await;
    let mut stalled = member.client.events(&member.path("events?maxQueued=2048"), &[]).await;
    let mut fast = member.events().await;
    member.prompt("flood scenario n=1500 pad=20000").await;
    fast.until("turn_complete").await;
    soon(async {
        while rig.client.get("/health?deep=1").await.json()["connectedClients"] != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stalled.rest().await.1, Next::Broken);
}

#[tokio::test]
async fn the_sixty_fifth_subscriber_is_turned_away() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(member.events().await);
    }
    let refused = member.client.get(&member.path("events")).await;
    let body = json!({
        "error": "EventBus subscriber limit reached (64)",
        "code": "subscriber_limit_exceeded",
        "limit": 64,
    });
    assert_eq!((refused.status, refused.json(), refused.header("retry-after")), (429, body, Some("5")));
    streams.pop();
    // The place is free as soon as the daemon notices.
    soon(async {
        while rig.client.get("/health?deep=1").await.json()["connectedClients"] != 63 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    member.events().await;
}

#[tokio::test]
async fn queries_are_checked() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let bad = member.client.get(&member.path("events?maxQueued=15")).await;
    assert_eq!((bad.status, &bad.json()["code"]), (400, &json!("invalid_max_queued")));
    let mut stream = member.client.events(&member.path("events?snapshot=1"), &[("X-Qwen-Client-Id", "bad id!")]).await;
    let snapshot = stream.until("session_snapshot").await;
    assert_eq!(snapshot["data"]["sessionId"], json!(member.session));
}

#[tokio::test]
async fn load_and_resume_join_a_live_session() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    member.vote(&request, "proceed_once").await;
    let last = stream.until("turn_complete").await;
    let loaded = member.client.post(&member.path("load"), "", json!({})).await.json();
    let journal = loaded["liveJournal"].as_array().unwrap();
    assert_eq!(journal.last().unwrap(), &last);
    assert_eq!(loaded["lastEventId"], last["id"]);
    assert_eq!((&loaded["attached"], &loaded["compactedReplay"]), (&json!(true), &json!([])));
    let resumed = member.client.post(&member.path("resume"), "", json!({})).await.json();
    assert_eq!(resumed["lastEventId"], last["id"]);
    assert_eq!(resumed.get("liveJournal"), None::<&Value>);
    let unknown = member.client.post("/session/11111111-1111-4111-8111-111111111111/load", "", json!({})).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("session_not_found")));
}
