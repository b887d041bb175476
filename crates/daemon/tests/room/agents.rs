//! Agents that misbehave, and what their sessions' clients get to see of it.

use std::time::Duration;

use convoke_protocol::ApprovalMode;
use convoke_testkit::Script;
use serde_json::json;

use crate::client::{Next, soon};
use crate::rig::{Rig, in_memory, process, request_id};

#[tokio::test]
async fn an_agent_that_exits_takes_its_sessions_along_and_is_replaced() {
    let rig = Rig::with(|options| options.agent = process(&[])).await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("exit 3").await;
    let (events, end) = stream.rest().await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(end, Next::End);
    assert!(kinds.contains(&"turn_error"), "{kinds:?}");
    let died = events.last().unwrap();
    assert_eq!(died.kind, "session_died");
    assert_eq!((&died.frame["data"]["reason"], &died.frame["data"]["exitCode"]), (&json!("channel_closed"), &json!(3)));
    assert_eq!(rig.client.get(&member.path("status")).await.status, 404);
    let again = rig.join("single").await;
    assert_ne!(again.session, member.session);
    let mut stream = again.events().await;
    again.prompt("echo back").await;
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn an_agent_that_dies_while_it_is_asked_about_resolves_the_question() {
    let rig = Rig::with(|options| options.agent = process(&[])).await;
    let (asker, killer) = (rig.join("thread").await, rig.join("thread").await);
    let mut stream = asker.events().await;
    asker.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    killer.prompt("exit 9").await;
    let (events, end) = stream.rest().await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(end, Next::End);
    assert_eq!(kinds, ["prompt_cancelled", "permission_resolved", "turn_error", "session_died"]);
    let (status, body) = asker.vote(&request, "proceed_once").await;
    assert_eq!((status, &body["code"]), (404, &json!("session_not_found")));
}

#[tokio::test]
async fn rubbish_and_unknown_updates_do_no_harm() {
    let rig = Rig::with(|options| options.agent = in_memory(Script { rubbish: true, ..Script::default() })).await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("rubbish").await;
    stream.until("turn_complete").await;
    member.prompt("unknown update").await;
    let update = loop {
        let frame = stream.until("session_update").await;
        if frame["data"]["update"]["sessionUpdate"] == "brand_new_thing" {
            break frame;
        }
    };
    assert_eq!(update["data"]["update"]["zzz"]["a"], json!([null, 1.50]));
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn a_flood_does_not_keep_others_waiting_for_ever() {
    let rig = Rig::new().await;
    let (noisy, quiet) = (rig.join("thread").await, rig.join("thread").await);
    let mut flood = noisy.events().await;
    let mut stream = quiet.events().await;
    noisy.prompt("flood scenario n=20000 pad=200").await;
    flood.until("session_update").await;
    drop(flood);
    quiet.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    assert_eq!(quiet.vote(&request, "proceed_once").await.0, 200);
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn an_agent_that_never_shakes_hands_times_out() {
    let rig = Rig::with(|options| {
        options.agent = in_memory(Script { silent: true, ..Script::default() });
        options.limits.initialize_timeout = Duration::from_millis(100);
    })
    .await;
    let refused = rig.client.post("/session", "", json!({})).await;
    let body = refused.json();
    assert_eq!((refused.status, refused.header("retry-after")), (504, Some("5")));
    assert_eq!(
        (&body["code"], &body["timeoutMs"], &body["phase"]),
        (&json!("init_timeout"), &json!(100), &json!("initialize"))
    );
    assert_eq!(rig.client.get("/health").await.status, 200);
}

#[tokio::test]
async fn an_agent_that_can_not_start_is_unavailable() {
    let rig = Rig::with(|options| options.agent = process(&["--exit-at-start=5"])).await;
    let refused = rig.client.post("/session", "", json!({})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("acp_channel_unavailable")));
    let health = rig.client.get("/health?deep=1").await.json();
    assert_eq!(health["channelAlive"], false);
}

#[tokio::test]
async fn errors_of_a_turn_are_passed_on() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("fail").await;
    let error = stream.until("turn_error").await;
    assert_eq!(error["data"]["message"], "quota exceeded");
    assert_eq!(member.status().await["hasTurnError"], true);
}

#[tokio::test]
async fn a_question_that_is_taken_back_is_resolved_for_everyone() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("withdraw").await;
    let request = request_id(&stream.until("permission_request").await);
    let resolved = stream.until("permission_resolved").await;
    assert_eq!(resolved["data"]["requestId"], json!(request));
    assert_eq!(resolved["data"]["outcome"], json!({"outcome": "cancelled"}));
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn ids_of_agents_that_are_no_uuids_stay_inside() {
    let rig = Rig::with(|options| options.agent = in_memory(Script { odd_ids: true, ..Script::default() })).await;
    let member = rig.join("single").await;
    assert_eq!(member.session.len(), 36);
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    assert_eq!(member.vote(&request, "proceed_once").await.0, 200);
    stream.until("turn_complete").await;
    let chosen = json!({"sessionId": "550e8400-e29b-41d4-a716-446655440000"});
    let created = rig.client.post("/session", "", chosen).await.json();
    assert_eq!(created["sessionId"], "550e8400-e29b-41d4-a716-446655440000");
}

#[tokio::test]
async fn an_idle_agent_is_ended_and_started_again() {
    let rig = Rig::with(|options| {
        options.limits.agent_idle = Some(Duration::from_millis(50));
        options.limits.heartbeat = Duration::from_millis(20);
    })
    .await;
    soon(async {
        while rig.client.get("/health?deep=1").await.json()["channelAlive"] == true {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("echo awake").await;
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn the_default_mode_reaches_new_sessions() {
    let rig = Rig::with(|options| options.approval_mode = ApprovalMode::Plan).await;
    let member = rig.join("single").await;
    let mut stream = member.client.events(&member.path("events?snapshot=1"), &[]).await;
    assert_eq!(stream.until("session_snapshot").await["data"]["currentApprovalMode"], "plan");
    let path = member.path("approval-mode");
    let changed = rig.client.post(&path, &member.id, json!({"mode": "yolo"})).await;
    let expected = json!({"sessionId": member.session, "mode": "yolo", "previous": "plan", "persisted": false});
    assert_eq!((changed.status, changed.json()), (200, expected));
    let event = stream.until("approval_mode_changed").await;
    assert_eq!(event["originatorClientId"], json!(member.id));
}
