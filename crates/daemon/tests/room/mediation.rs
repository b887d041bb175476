//! Many clients, one question.

use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};
use serde_json::json;

use crate::client::{Next, soon};
use crate::rig::{Rig, request_id};

#[tokio::test]
async fn of_racing_votes_exactly_one_wins() {
    let rig = Rig::new().await;
    let mut members = Vec::new();
    for _ in 0..8 {
        members.push(rig.join("single").await);
    }
    let mut streams = Vec::new();
    for member in &members {
        streams.push(member.events().await);
    }
    for _ in 0..5 {
        members[0].prompt("approval please").await;
        let mut request = String::new();
        for stream in &mut streams {
            request = request_id(&stream.until("permission_request").await);
        }
        let votes = members.iter().map(|member| member.vote(&request, "proceed_once"));
        let answers = soon(futures::future::join_all(votes)).await;
        let winners = answers.iter().filter(|(status, _)| *status == 200).count();
        assert_eq!(winners, 1, "{answers:?}");
        for (status, body) in answers.iter().filter(|(status, _)| *status != 200) {
            let expected = json!({
                "error": "No pending permission request for session",
                "sessionId": members[0].session,
                "requestId": request,
                "code": "permission_already_resolved",
            });
            assert_eq!((*status, body), (404, &expected));
        }
        for stream in &mut streams {
            let resolved = stream.until("permission_resolved").await;
            assert_eq!(resolved["data"]["outcome"], json!({"outcome": "selected", "optionId": "proceed_once"}));
            stream.until("turn_complete").await;
        }
    }
}

#[tokio::test]
async fn a_request_is_unknown_on_every_other_session() {
    let rig = Rig::new().await;
    let (owner, other) = (rig.join("thread").await, rig.join("thread").await);
    let mut stream = owner.events().await;
    owner.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    let foreign = other.vote(&request, "proceed_once").await;
    let invented = other.vote("11111111-1111-4111-8111-111111111111", "proceed_once").await;
    assert_eq!((foreign.0, invented.0), (404, 404));
    let same = |text: String, id: &str| text.replace(id, "R");
    assert_eq!(
        same(foreign.1.to_string(), &request),
        same(invented.1.to_string(), "11111111-1111-4111-8111-111111111111")
    );
    assert_eq!(owner.status().await["isWaitingForPermission"], true);
    assert_eq!(owner.vote(&request, "proceed_once").await.0, 200);
}

/// Unregistered ids learn of pending requests only, as with the peer; of resolved ones not any more.
#[tokio::test]
async fn an_unregistered_id_is_no_oracle() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mallory = crate::rig::Member { id: "mallory".to_owned(), ..member.clone() };
    let anonymous = crate::rig::Member { id: String::new(), ..member.clone() };
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    let (unknown, pending) = (mallory.vote("nope", "proceed_once").await, mallory.vote(&request, "proceed_once").await);
    assert_eq!((unknown.0, pending.0), (404, 400));
    assert_eq!(pending.1["code"], "invalid_client_id");
    assert_eq!(member.vote(&request, "proceed_once").await.0, 200);
    for late in [&mallory, &anonymous] {
        let (status, body) = late.vote(&request, "proceed_once").await;
        let expected = json!({
            "error": "No pending permission request for session",
            "sessionId": member.session,
            "requestId": request,
        });
        assert_eq!((status, body), (404, expected));
    }
    stream.until("turn_complete").await;
}

#[tokio::test]
async fn designated_refuses_others_and_says_why() {
    let rig = Rig::with(|options| options.bridge.policy = PermissionPolicy::Designated).await;
    let (alice, bob) = (rig.join("single").await, rig.join("single").await);
    let mut stream = bob.events().await;
    alice.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    let (status, body) = bob.vote(&request, "proceed_once").await;
    assert_eq!(
        (status, &body["code"], &body["reason"]),
        (403, &json!("permission_forbidden"), &json!("designated_mismatch"))
    );
    assert_eq!(stream.until("permission_forbidden").await["data"]["clientId"], json!(bob.id));
    assert_eq!(alice.vote(&request, "proceed_once").await.0, 200);
    stream.until("turn_complete").await;
}

/// The peer's address decides, not what a header claims.
#[tokio::test]
async fn local_only_believes_the_socket() {
    let rig = Rig::with(|options| options.bridge.policy = PermissionPolicy::LocalOnly).await;
    let member = rig.join("single").await;
    let mut stream = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    let body = json!({"outcome": {"outcome": "selected", "optionId": "proceed_once"}}).to_string();
    let headers = vec![
        ("Content-Type", "application/json"),
        ("X-Forwarded-For", "203.0.113.7"),
        ("Forwarded", "for=203.0.113.7"),
    ];
    let path = member.path(&format!("permission/{request}"));
    let extra = crate::client::Extra { headers, body: Some(body) };
    assert_eq!(rig.client.send("POST", &path, extra).await.status, 200);
    stream.until("turn_complete").await;
}

/// `policy.cancel: "eligible"`, as clients see it.
#[tokio::test]
async fn a_cancel_can_be_kept_to_voters() {
    let rig = Rig::with(|options| {
        options.bridge.policy = PermissionPolicy::Designated;
        options.bridge.cancel = CancelRule::Eligible;
    })
    .await;
    let (alice, bob) = (rig.join("single").await, rig.join("single").await);
    let mut stream = bob.events().await;
    alice.prompt("approval please").await;
    let request = request_id(&stream.until("permission_request").await);
    let cancel = json!({"outcome": {"outcome": "cancelled"}});
    let path = bob.path(&format!("permission/{request}"));
    let answer = bob.client.post(&path, &bob.id, cancel.clone()).await;
    assert_eq!((answer.status, &answer.json()["reason"]), (403, &json!("designated_mismatch")));
    stream.until("permission_forbidden").await;
    assert_eq!(alice.client.post(&path, &alice.id, cancel).await.status, 200);
    assert_eq!(stream.until("permission_resolved").await["data"]["reason"], "agent_cancelled");
    let policy = rig.client.get("/capabilities").await.json()["policy"].clone();
    assert_eq!(policy, json!({"permission": "designated", "cancel": "eligible"}));
}

#[tokio::test]
async fn a_late_joiner_hears_of_the_pending_request() {
    let rig = Rig::new().await;
    let member = rig.join("single").await;
    let mut first = member.events().await;
    member.prompt("approval please").await;
    let request = request_id(&first.until("permission_request").await);
    // Live only: told at once, without a number.
    let mut live = member.events().await;
    let Next::Event(event) = live.next().await else { panic!("no event") };
    assert_eq!((event.kind.as_str(), event.id), ("permission_request", None));
    assert_eq!(request_id(&event.frame), request);
    // With replay: it was in the ring, so it is not told again.
    let mut replayed = member.events_after("0").await;
    let mut asked = 0;
    let complete = loop {
        let Next::Event(event) = replayed.next().await else { panic!("no event") };
        asked += usize::from(event.kind == "permission_request");
        if event.kind == "replay_complete" {
            break event.frame;
        }
    };
    assert_eq!(asked, 1);
    assert!(complete["data"]["replayedCount"].as_u64().unwrap() > 0);
    member.vote(&request, "proceed_once").await;
    let next = replayed.next().await;
    assert!(matches!(next, Next::Event(event) if event.kind == "permission_resolved"));
}
