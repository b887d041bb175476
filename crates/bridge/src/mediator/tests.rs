//! Requests in every state × every input that can reach them.

use convoke_protocol::daemon::capability::PermissionPolicy;

use super::*;
use crate::tests::*;
use crate::{AuditEvent, BridgeOptions, ForbiddenReason, Input, SessionScope};

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
    for (members, quorum, expected) in
        [(0, None, "only cancelling"), (2, None, "must agree"), (2, Some(5), "capped"), (3, None, "")]
    {
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
        assert_eq!(notes, if expected.is_empty() { 0 } else { 2 }, "{:?}", world.log);
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
        "event": {
            "type": "permission.resolved",
            "resolution": { "kind": "option", "optionId": "cancel" },
            "decisionReason": { "type": "designated-originator", "originatorClientId": clients[0] },
        },
    });
    assert_eq!(kept[2], expected);
}
