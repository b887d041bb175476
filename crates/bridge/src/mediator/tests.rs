//! Requests in every state × every input that can reach them.

use std::time::Duration;

use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};

use super::*;
use crate::tests::*;
use crate::{
    AgentKey, AuditEvent, AuditRecord, BridgeOptions, ForbiddenReason, Input, Limits, LogLevel, SessionScope,
    action_digest,
};

/// A session with members A and B, a turn of A that asks, under a policy.
fn asked(policy: PermissionPolicy) -> (World, SessionId, Vec<ClientId>, RequestId, ReplyKey) {
    let mut world = World::new(options(policy));
    let (session, clients, _) = world.shared(2);
    world.prompt(&session, Some(&clients[0]), "x");
    let (request, reply) = world.ask(&session);
    (world, session, clients, request, reply)
}

/// Every kind of voter × every choice × pending and decided: the answer, and whether everyone hears of it.
#[test]
fn the_guards_answer_in_their_order() {
    use PermissionPolicy::FirstResponder;
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Who {
        Member,
        Stranger,
        Anonymous,
    }
    let table = [
        // voter, choice, answer while pending, answer once decided, frames once decided
        (Who::Member, "proceed_once", "ok", "already", 1),
        (Who::Member, "nonexistent", "option", "already", 1),
        (Who::Member, "__cancelled__", "option", "option", 0),
        (Who::Member, "", "ok", "already", 1),
        (Who::Stranger, "proceed_once", "client", "missing", 0),
        (Who::Stranger, "nonexistent", "client", "missing", 0),
        (Who::Stranger, "__cancelled__", "client", "missing", 0),
        (Who::Stranger, "", "client", "missing", 0),
        (Who::Anonymous, "proceed_once", "ok", "missing", 0),
        (Who::Anonymous, "nonexistent", "option", "missing", 0),
        (Who::Anonymous, "__cancelled__", "option", "missing", 0),
        (Who::Anonymous, "", "ok", "missing", 0),
    ];
    let name = |answer: &Result<(), Refusal>| match answer {
        Ok(()) => "ok",
        Err(Refusal::AlreadyResolved { .. }) => "already",
        Err(Refusal::InvalidOption { .. }) => "option",
        Err(Refusal::InvalidClientId { .. }) => "client",
        Err(Refusal::RequestNotFound { .. }) => "missing",
        Err(other) => panic!("{other:?}"),
    };
    for (who, option, pending, decided, frames) in table {
        let choice = || if option.is_empty() { VoteChoice::Cancelled } else { selected(option) };
        for legacy in [false, true] {
            let (mut world, session, clients, request, _) = asked(FirstResponder);
            let caller = Caller {
                client: match who {
                    Who::Member => Some(clients[1].clone()),
                    Who::Stranger => Some("mallory".into()),
                    Who::Anonymous => None,
                },
                loopback: false,
            };
            let address = (!legacy).then_some(&session);
            let answer = world.vote_as(address, &request, caller.clone(), choice());
            assert_eq!(name(&answer), pending, "{who:?} {option:?} pending");
            if pending != "ok" {
                world.vote(&session, &request, Some(&clients[0]), selected("proceed_once")).unwrap();
            }
            let before = world.bridge.journal(&session).unwrap().last_event_id;
            let answer = world.vote_as(address, &request, caller, choice());
            assert_eq!(name(&answer), decided, "{who:?} {option:?} decided");
            let after = world.bridge.journal(&session).unwrap().last_event_id;
            assert_eq!(after - before, frames, "{who:?} {option:?} decided");
        }
    }
}

#[test]
fn a_request_of_another_session_is_unknown_to_everyone() {
    let (mut world, _, clients, request, reply) = asked(PermissionPolicy::FirstResponder);
    let other = world.create(SessionScope::Thread, None).unwrap().created;
    for voter in [Some(&clients[0]), Some(&other.client_id), Some(&"mallory".into()), None] {
        let answer = world.vote(&other.session_id, &request, voter, selected("proceed_once"));
        let expected = Refusal::RequestNotFound { session: Some(other.session_id.clone()), request: request.clone() };
        assert_eq!(answer, Err(expected));
    }
    assert!(!world.resolutions.contains_key(&reply));
}

/// A resolution's outputs, in the order that clients and the agent rely on.
#[test]
fn a_resolution_publishes_remembers_audits_and_then_answers() {
    let (mut world, session, clients, request, reply) = asked(PermissionPolicy::FirstResponder);
    let call = world.call();
    let caller = Caller { client: Some(clients[0].clone()), loopback: true };
    let extras = Some(json!({ "answers": { "q": "a" } }));
    let choice = VoteChoice::Selected { option_id: "proceed_once".into(), extras: extras.clone() };
    let out = world.step(Input::Vote { call, session: Some(session), request: request.clone(), caller, choice });
    let names: Vec<&str> = out
        .iter()
        .map(|output| match output {
            Output::Audit(record) => match record.event {
                AuditEvent::Voted { .. } => "voted",
                AuditEvent::Resolved { .. } => "resolved",
                _ => "other",
            },
            Output::Send { frame, .. } => frame.kind.name(),
            Output::Resolve { .. } => "answer to the agent",
            Output::Answer { .. } => "answer to the voter",
            other => panic!("{other:?}"),
        })
        .collect();
    let frame = "permission_resolved";
    assert_eq!(names, ["voted", frame, frame, "resolved", "answer to the agent", "answer to the voter"]);
    assert_eq!(world.resolutions[&reply], Resolution::Selected { option_id: "proceed_once".into(), extras });
    assert_eq!(world.bridge.session_of(&request), Some(&world.turns[0].0));
}

#[test]
fn requests_that_can_not_be_asked_are_answered_at_once() {
    let mut world = World::new(BridgeOptions::default());
    let cancelled = |reason| Resolution::Cancelled(reason);
    let (_, reply) = world.ask(&"nowhere".into());
    assert_eq!(world.resolutions[&reply], cancelled(CancelReason::SessionClosed));

    let (session, clients, streams) = world.shared(1);
    let collision = vec![json!({ "optionId": "__cancelled__" })];
    let (_, reply) = world.ask_with(&session, collision.clone());
    assert_eq!(world.resolutions[&reply], Resolution::SentinelCollision);

    let (request, waiting) = world.ask(&session);
    let again = ReplyKey(world.mint());
    let repeat = |reply| Input::PermissionRequested {
        session: session.clone(),
        request: request.clone(),
        reply,
        tool_call: Value::Null,
        options: offers(),
    };
    world.step(repeat(again));
    assert_eq!(world.resolutions[&again], cancelled(CancelReason::AgentCancelled));
    world.step(repeat(waiting));
    assert!(!world.resolutions.contains_key(&waiting), "a key that waits is not answered for its repetition");

    for _ in 1..64 {
        world.ask(&session);
    }
    let (_, reply) = world.ask_with(&session, collision);
    assert_eq!(world.resolutions[&reply], cancelled(CancelReason::AgentCancelled), "the bound comes first");
    let asked = world.kinds(streams[0]).iter().filter(|kind| **kind == "permission_request").count();
    assert_eq!(asked, 64);
    assert!(world.log.iter().any(|(level, text)| *level == LogLevel::Warn && text.contains("64 pending")));

    world.prompt(&session, Some(&clients[0]), "x");
    world.close(&session, None);
    let (_, reply) = world.ask(&session);
    assert_eq!(world.resolutions[&reply], cancelled(CancelReason::SessionClosed), "closing");
}

#[test]
fn what_is_asked_about_at_once_is_bounded_in_bytes() {
    let limits = Limits { pending_bytes: 1000, ..Limits::default() };
    let mut world = World::new(BridgeOptions { limits, ..BridgeOptions::default() });
    let (session, _, streams) = world.shared(1);
    let ask = |world: &mut World, bytes: usize| {
        let reply = ReplyKey(world.mint());
        let request = RequestId(format!("request_of_{bytes}_{}", reply.0));
        let tool_call = json!({ "toolCallId": "c", "rawInput": "x".repeat(bytes) });
        let (session, options) = (session.clone(), offers());
        world.step(Input::PermissionRequested { session, request: request.clone(), reply, tool_call, options });
        (request, reply)
    };
    let (first, _) = ask(&mut world, 400);
    let (_, second) = ask(&mut world, 600);
    assert_eq!(world.resolutions[&second], Resolution::Cancelled(CancelReason::AgentCancelled));
    assert!(world.log.iter().any(|(level, text)| *level == LogLevel::Warn && text.contains("1000 bytes")));
    let (small, _) = ask(&mut world, 10);
    assert_eq!(world.bridge.counts().pending_permissions, 2, "{first} and {small}");
    let asked = world.kinds(streams[0]).iter().filter(|kind| **kind == "permission_request").count();
    assert_eq!(asked, 2, "nobody sees what is not asked");
}

#[test]
fn empty_and_repeated_options_can_not_be_voted_for() {
    let mut world = World::new(BridgeOptions::default());
    let (session, clients, _) = world.shared(1);
    let options = vec![
        json!({ "optionId": "", "name": "nothing" }),
        json!({ "name": "nameless" }),
        json!({ "optionId": "a", "name": "A" }),
        json!({ "optionId": "a", "name": "A again" }),
    ];
    let (request, _) = world.ask_with(&session, options.clone());
    let refused = world.vote(&session, &request, Some(&clients[0]), selected(""));
    assert!(matches!(refused, Err(Refusal::InvalidOption { .. })), "{refused:?}");
    let Some(AuditEvent::Requested { allowed_option_ids, .. }) = world.audit.first().map(|record| &record.event) else {
        panic!()
    };
    assert_eq!(allowed_option_ids, &["a"]);
    let interactions = world.bridge.status(&session).unwrap().pending_interactions;
    assert_eq!(interactions[0].options.as_array().unwrap().len(), options.len(), "shown as offered");
}

#[test]
fn the_oldest_decided_request_is_forgotten() {
    let mut options = BridgeOptions::default();
    options.limits.resolved_permissions = 2;
    let mut world = World::new(options);
    let (session, clients, _) = world.shared(1);
    let requests: Vec<RequestId> = (0..3)
        .map(|_| {
            let (request, _) = world.ask(&session);
            world.vote(&session, &request, None, selected("cancel")).unwrap();
            request
        })
        .collect();
    let late = |world: &mut World, n: usize| world.vote(&session, &requests[n], Some(&clients[0]), selected("cancel"));
    assert!(matches!(late(&mut world, 0), Err(Refusal::RequestNotFound { .. })));
    assert!(matches!(late(&mut world, 1), Err(Refusal::AlreadyResolved { .. })));
    assert!(matches!(late(&mut world, 2), Err(Refusal::AlreadyResolved { .. })));
}

#[test]
fn local_only_refuses_remote_voters_but_not_their_cancel() {
    let (mut world, session, clients, request, reply) = asked(PermissionPolicy::LocalOnly);
    let remote = Caller { client: Some(clients[0].clone()), loopback: false };
    let refused = world.vote_as(Some(&session), &request, remote.clone(), selected("proceed_once"));
    let expected = Refusal::Forbidden {
        session: session.clone(),
        request: request.clone(),
        reason: ForbiddenReason::RemoteNotAllowed,
    };
    assert_eq!(refused, Err(expected));
    world.vote_as(Some(&session), &request, remote, VoteChoice::Cancelled).unwrap();
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::AgentCancelled));
}

#[test]
fn a_moved_vote_is_told_once_and_can_decide() {
    let mut world = World::new(options(PermissionPolicy::Consensus));
    let (session, clients, streams) = world.shared(3);
    let (request, reply) = world.ask(&session);
    let mut vote = |who: usize, option: &str| {
        world.vote(&session, &request, Some(&clients[who]), selected(option)).unwrap();
        world.frames(streams[0]).last().unwrap().clone()
    };
    assert_eq!(vote(0, "proceed_once")["data"]["optionTallies"], json!({ "proceed_once": 1 }));
    let moved = vote(0, "cancel");
    assert_eq!(moved["data"]["optionTallies"], json!({ "cancel": 1 }));
    assert_eq!(moved["data"]["votesReceived"], 1, "moved, not added");
    assert_eq!(vote(0, "cancel")["id"], moved["id"], "a repeat is not told");
    vote(1, "proceed_once");
    assert_eq!(vote(1, "cancel")["type"], "permission_resolved");
    assert_eq!(world.resolutions[&reply], Resolution::Selected { option_id: "cancel".into(), extras: None });
}

#[test]
fn a_request_without_timeout_waits_for_ever() {
    let mut world =
        World::new(BridgeOptions { permission_timeout: None, idle_timeout: None, ..BridgeOptions::default() });
    let (session, clients, _) = world.shared(1);
    let (request, reply) = world.ask(&session);
    assert_eq!(world.bridge.next_deadline(), None);
    world.advance(std::time::Duration::from_secs(1 << 30));
    world.step(Input::Tick);
    assert!(!world.resolutions.contains_key(&reply));
    world.vote(&session, &request, Some(&clients[0]), selected("cancel")).unwrap();
}

#[test]
fn the_agent_takes_its_request_back() {
    let (mut world, _, _, _, reply) = asked(PermissionPolicy::FirstResponder);
    world.step(Input::PermissionWithdrawn { reply });
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::AgentCancelled));
    assert!(world.step(Input::PermissionWithdrawn { reply }).is_empty(), "twice is nothing");
}

#[test]
fn a_vote_before_the_tick_beats_the_deadline_and_the_tick_finds_nothing() {
    let (mut world, session, clients, request, reply) = asked(PermissionPolicy::FirstResponder);
    world.advance(std::time::Duration::from_secs(3600));
    world.vote(&session, &request, Some(&clients[0]), selected("proceed_once")).unwrap();
    world.step(Input::Tick);
    assert!(matches!(world.resolutions[&reply], Resolution::Selected { .. }));
}

#[test]
fn consensus_tells_the_operator_what_may_surprise() {
    // Of two clients, the note says what holds for all their requests: it comes once.
    for (members, quorum, expected, times) in [
        (0, None, "only cancelling", 2),
        (2, None, "both must agree", 1),
        (2, Some(2), "", 0),
        (2, Some(5), "capped", 2),
        (3, None, "", 0),
    ] {
        let mut world = World::new(BridgeOptions { quorum, ..options(PermissionPolicy::Consensus) });
        let (session, _, _) = world.shared(members.max(1));
        if members == 0 {
            let client = world.bridge.status(&session).unwrap().client_count;
            assert_eq!(client, 1);
            world.step(Input::Detach { session: session.clone(), client: Some("client_2".into()) });
            assert_eq!(world.bridge.status(&session).unwrap().client_count, 0);
        }
        world.ask(&session);
        world.ask(&session);
        let notes = world.log.iter().filter(|(_, text)| !expected.is_empty() && text.contains(expected)).count();
        assert_eq!(notes, times, "{:?}", world.log);
        assert_eq!(world.log.len(), times, "{:?}", world.log);
    }
}

#[test]
fn the_audit_is_bounded_and_has_a_version_and_a_policy() {
    let mut options = options(PermissionPolicy::Designated);
    options.limits.audit_records = 3;
    let mut world = World::new(options);
    let (session, clients, _) = world.shared(2);
    world.prompt(&session, Some(&clients[0]), "x");
    let (request, _) = world.ask(&session);
    let _ = world.vote(&session, &request, Some(&clients[1]), selected("cancel"));
    world.vote(&session, &request, Some(&clients[0]), selected("cancel")).unwrap();
    let kept: Vec<Value> = world.bridge.audit().map(|record| serde_json::to_value(record).unwrap()).collect();
    let kinds: Vec<&str> = kept.iter().map(|record| record["event"]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["permission.forbidden", "permission.voted", "permission.resolved"]);
    assert_eq!(world.audit.len(), 4, "the shell has seen them all");
    let expected = json!({
        "v": 1,
        "recordedAtMs": world.now.wall_ms,
        "requestId": request,
        "sessionId": session,
        "originatorClientId": clients[0],
        "policy": "designated",
        "actionDigest": action_digest(&session, &world.tool_call(), &offers()),
        "event": {
            "type": "permission.resolved",
            "resolution": { "kind": "option", "optionId": "cancel" },
            "decisionReason": { "type": "designated-originator", "originatorClientId": clients[0] },
        },
    });
    assert_eq!(kept[2], expected);
}

/// `policy.cancel: "eligible"`: refused as an option would be, told and recorded alike; and captured when it was issued.
#[test]
fn a_cancel_can_be_kept_to_those_who_may_vote() {
    use PermissionPolicy::{Consensus, Designated, FirstResponder, LocalOnly};
    let late = Some("client_late");
    for (policy, voter, loopback, expected) in [
        (FirstResponder, None, false, None),
        (Designated, Some(1), true, Some(ForbiddenReason::DesignatedMismatch)),
        (Designated, None, true, Some(ForbiddenReason::DesignatedMismatch)),
        (Designated, Some(0), false, None),
        (Consensus, None, true, Some(ForbiddenReason::DesignatedMismatch)),
        (Consensus, Some(1), false, None),
        (LocalOnly, Some(0), false, Some(ForbiddenReason::RemoteNotAllowed)),
        (LocalOnly, None, true, None),
    ] {
        let mut world = World::new(BridgeOptions { cancel: CancelRule::Eligible, ..options(policy) });
        let (session, clients, streams) = world.shared(2);
        world.prompt(&session, Some(&clients[0]), "x");
        let (request, reply) = world.ask(&session);
        let stranger = Caller { client: late.map(Into::into), loopback: true };
        let refused = world.vote_as(Some(&session), &request, stranger, VoteChoice::Cancelled);
        assert!(matches!(refused, Err(Refusal::InvalidClientId { .. })), "{policy:?}: {refused:?}");
        let caller = Caller { client: voter.map(|n: usize| clients[n].clone()), loopback };
        let answer = world.vote_as(Some(&session), &request, caller.clone(), VoteChoice::Cancelled);
        let Some(reason) = expected else {
            assert_eq!(answer, Ok(()), "{policy:?} {voter:?}");
            assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::AgentCancelled));
            continue;
        };
        assert_eq!(answer, Err(Refusal::Forbidden { session: session.clone(), request: request.clone(), reason }));
        assert!(!world.resolutions.contains_key(&reply), "{policy:?} {voter:?}");
        let told = world.frames(streams[1]).last().unwrap().clone();
        assert_eq!((&told["type"], &told["data"]["reason"]), (&json!("permission_forbidden"), &json!(reason.name())));
        let event = world.audit.last().unwrap().event.clone();
        let (client_id, from_loopback, reason) = (caller.client, loopback, reason.name());
        assert_eq!(event, AuditEvent::Forbidden { client_id, option_id: None, from_loopback, reason });
    }
}

/// A member with a vote against it, a member who leaves silently, and one who leaves with a vote: each is told at once,
/// and to those who come later.
#[test]
fn a_quorum_that_is_out_of_reach_is_told_at_once() {
    let mut world = World::new(options(PermissionPolicy::Consensus));
    let (session, clients, streams) = world.shared(3);
    let (request, reply) = world.ask(&session);
    let votes = |world: &World| {
        let frame = world.frames(streams[0]).last().unwrap().clone();
        assert_eq!(frame["type"], "permission_partial_vote", "{frame}");
        let data = &frame["data"];
        (data["votesReceived"].clone(), data["quorumUnreachable"] == true, data["quorumLost"] == true)
    };
    world.vote(&session, &request, Some(&clients[0]), selected("proceed_once")).unwrap();
    assert_eq!(votes(&world), (json!(1), false, false));
    // Of three, one votes and one leaves without: two can still agree.
    let before = world.frames(streams[0]).len();
    world.detach(&session, &clients[2]);
    assert_eq!(world.frames(streams[0]).len(), before, "nothing new");
    world.vote(&session, &request, Some(&clients[1]), selected("cancel")).unwrap();
    assert_eq!(votes(&world), (json!(2), true, false));
    assert!(
        world.log.iter().any(|(_, text)| text.contains("split") && text.contains("the timeout")),
        "{:?}",
        world.log
    );
    // A late joiner sees what the others see.
    let late = world.subscribe(&session, None).unwrap();
    let synthetic = &world.frames(late)[0];
    assert_eq!(synthetic["data"]["partialVote"]["quorumUnreachable"], true);
    assert_eq!(synthetic["data"]["partialVote"]["optionTallies"], json!({ "proceed_once": 1, "cancel": 1 }));
    let polled = serde_json::to_value(world.bridge.status(&session).unwrap()).unwrap();
    assert_eq!(polled["pendingInteractions"][0]["partialVote"], synthetic["data"]["partialVote"]);
    // One more leaves with its vote: the other may still join it.
    world.detach(&session, &clients[1]);
    assert_eq!(world.frames(streams[0]).last().unwrap()["data"]["quorumLost"], Value::Null);
    world.detach(&session, &clients[0]);
    assert_eq!(votes(&world), (json!(2), true, true));
    assert!(world.log.iter().any(|(level, text)| *level == LogLevel::Warn && text.contains("too few are here")));
    assert!(!world.resolutions.contains_key(&reply), "and still it waits");
    world.tick_at_deadline();
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::Timeout));
}

#[test]
fn a_split_that_is_healed_is_not_told_as_one_any_more() {
    let mut world = World::new(BridgeOptions { quorum: Some(3), ..options(PermissionPolicy::Consensus) });
    let (session, clients, streams) = world.shared(3);
    let (request, reply) = world.ask(&session);
    for (who, option, split) in [(0, "proceed_once", false), (1, "cancel", true), (1, "proceed_once", false)] {
        world.vote(&session, &request, Some(&clients[who]), selected(option)).unwrap();
        assert_eq!(world.frames(streams[0]).last().unwrap()["data"]["quorumUnreachable"] == true, split);
    }
    world.vote(&session, &request, Some(&clients[2]), selected("proceed_once")).unwrap();
    assert!(matches!(world.resolutions[&reply], Resolution::Selected { .. }));
}

/// How long a request is there, and for how long it will be: in its frame, to those who come late, and to those who poll.
#[test]
fn the_time_left_is_visible() {
    let mut world = World::new(BridgeOptions::default());
    let (session, _, streams) = world.shared(1);
    world.ask(&session);
    let created = convoke_stdx::iso8601(world.now.wall_ms);
    let expires = convoke_stdx::iso8601(world.now.wall_ms + 300_000);
    let asked = world.frames(streams[0])[0]["data"].clone();
    assert_eq!((&asked["createdAt"], &asked["expiresAt"]), (&json!(created), &json!(expires)));
    assert_eq!((&asked["ageMs"], &asked["noExpiryReason"]), (&Value::Null, &Value::Null));
    world.advance(Duration::from_secs(90));
    let late = world.subscribe(&session, None).unwrap();
    let told = world.frames(late)[0]["data"].clone();
    assert_eq!(
        (&told["createdAt"], &told["expiresAt"], &told["ageMs"]),
        (&json!(created), &json!(expires), &json!(90_000))
    );
    let polled = serde_json::to_value(world.bridge.status(&session).unwrap()).unwrap();
    let polled = &polled["pendingInteractions"][0];
    assert_eq!((&polled["createdAt"], &polled["expiresAt"]), (&json!(created), &json!(expires)));
}

#[test]
fn what_never_expires_says_why() {
    let mut world = World::new(BridgeOptions { permission_timeout: None, ..BridgeOptions::default() });
    let (session, _, streams) = world.shared(1);
    world.ask(&session);
    world.ask(&session);
    for frame in world.frames(streams[0]) {
        let (expires, reason) = (&frame["data"]["expiresAt"], &frame["data"]["noExpiryReason"]);
        assert_eq!((expires, reason), (&Value::Null, &json!("timeout_disabled")));
    }
    let polled = serde_json::to_value(world.bridge.status(&session).unwrap()).unwrap();
    assert_eq!(polled["pendingInteractions"][1]["noExpiryReason"], "timeout_disabled");
    assert_eq!(polled["pendingInteractions"][1]["expiresAt"], Value::Null);
    assert_eq!(world.log.iter().filter(|(_, text)| text.contains("switched off")).count(), 1, "{:?}", world.log);
}

/// The three reasons that clients and the agent know, and the causes that the audit knows.
#[test]
fn every_end_without_a_choice_has_its_reason() {
    type End = fn(&mut World, &SessionId, &[ClientId], &RequestId, ReplyKey);
    let ends: [(&str, &str, Value, End); 10] = [
        (
            "agent_cancelled",
            "agent-cancelled",
            json!({ "cause": "turn_cancelled", "clientId": "B" }),
            |world, session, clients, _, _| {
                world.cancel(session, Some(&clients[1])).unwrap();
            },
        ),
        ("agent_cancelled", "agent-cancelled", json!({ "cause": "turn_cancelled" }), |world, session, _, _, _| {
            world.cancel(session, None).unwrap();
        }),
        (
            "agent_cancelled",
            "voter-cancelled",
            json!({ "resolverClientId": "B" }),
            |world, session, clients, request, _| {
                world.vote(session, request, Some(&clients[1]), VoteChoice::Cancelled).unwrap();
            },
        ),
        ("agent_cancelled", "agent-cancelled", json!({ "cause": "withdrawn" }), |world, _, _, _, reply| {
            world.step(Input::PermissionWithdrawn { reply });
        }),
        ("agent_cancelled", "agent-cancelled", json!({ "cause": "turn_ended" }), |world, session, _, _, _| {
            let (_, prompt) = world.turns[0].clone();
            world.end_turn(session, &prompt, "end_turn");
        }),
        ("agent_cancelled", "agent-cancelled", json!({ "cause": "prompt_deadline" }), |world, _, _, _, _| {
            world.advance(Duration::from_secs(60));
            world.step(Input::Tick);
        }),
        ("timeout", "timeout", json!({}), |world, _, _, _, _| {
            world.advance(Duration::from_secs(30));
            world.step(Input::Tick);
        }),
        (
            "session_closed",
            "session-closed",
            json!({ "cause": "client_close", "clientId": "B" }),
            |world, session, clients, _, _| {
                world.close(session, Some(&clients[1]));
            },
        ),
        ("session_closed", "session-closed", json!({ "cause": "agent_gone" }), |world, _, _, _, _| {
            world.step(Input::AgentGone { agent: AgentKey(1), exit_code: Some(1), signal: None });
        }),
        ("session_closed", "session-closed", json!({ "cause": "daemon_shutdown" }), |world, _, _, _, _| {
            world.step(Input::Shutdown);
        }),
    ];
    for (reason, decision, detail, end) in ends {
        let timeout = Duration::from_secs(if decision == "timeout" { 30 } else { 300 });
        let mut world = World::new(BridgeOptions {
            permission_timeout: Some(timeout),
            prompt_deadline: Some(Duration::from_secs(60)),
            ..BridgeOptions::default()
        });
        let (session, clients, streams) = world.shared(2);
        world.prompt(&session, Some(&clients[0]), "x");
        let (request, reply) = world.ask(&session);
        end(&mut world, &session, &clients, &request, reply);
        let Resolution::Cancelled(told) = &world.resolutions[&reply] else { panic!("{decision}") };
        assert_eq!(told.name(), reason, "to the agent");
        let frames = world.frames(streams[0]);
        let resolved = frames.iter().find(|frame| frame["type"] == "permission_resolved").unwrap();
        assert_eq!(resolved["data"]["reason"], reason, "to clients");
        let Some(AuditEvent::Resolved { decision_reason, .. }) = world.audit.last().map(|record| &record.event) else {
            panic!("{:?}", world.audit.last())
        };
        let mut found = serde_json::to_value(decision_reason).unwrap();
        assert_eq!(found["type"], decision);
        let fields = found.as_object_mut().unwrap();
        fields.retain(|name, _| ["cause", "clientId", "resolverClientId"].contains(&name.as_str()));
        fields.values_mut().filter(|value| **value == json!(clients[1])).for_each(|value| *value = "B".into());
        assert_eq!(found, detail, "{decision}");
    }
}

/// Each request has a record, also one that nobody was asked; all of one request name the same action.
#[test]
fn every_request_is_audited_under_what_it_asks() {
    let mut world = World::new(BridgeOptions::default());
    world.ask(&"nowhere".into());
    let (session, clients, _) = world.shared(1);
    let (request, _) = world.ask(&session);
    world.ask_with(&session, vec![json!({ "optionId": "__cancelled__" })]);
    for _ in 1..65 {
        world.ask(&session);
    }
    world.vote(&session, &request, Some(&clients[0]), selected("cancel")).unwrap();
    let repeated = Input::PermissionRequested {
        session: session.clone(),
        request: request.clone(),
        reply: ReplyKey(9999),
        tool_call: world.tool_call(),
        options: offers(),
    };
    world.step(repeated);
    world.prompt(&session, Some(&clients[0]), "x");
    world.close(&session, None);
    world.ask(&session);
    let unasked: Vec<&str> = world
        .audit
        .iter()
        .filter_map(|record| match record.event {
            AuditEvent::NotAsked { reason } => Some(reason),
            _ => None,
        })
        .collect();
    let expected = [
        "session_not_found",
        "cancel_sentinel_collision",
        "too_many_pending",
        "repeated_request_id",
        "session_closing",
    ];
    assert_eq!(unasked, expected);
    let of_one: Vec<&AuditRecord> = world.audit.iter().filter(|record| record.request_id == request).collect();
    assert_eq!(of_one.len(), 4, "requested, voted, resolved, and the repetition: {of_one:?}");
    let digest = action_digest(&session, &world.tool_call(), &offers());
    assert!(of_one.iter().all(|record| *record.action_digest == digest), "{of_one:?}");
    assert_ne!(*world.audit[0].action_digest, digest, "another session's");
}
