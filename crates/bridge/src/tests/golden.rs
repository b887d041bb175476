//! The frame sequences that were recorded from the peer, at the level of kind, data keys and originator.
//!
//! Departures, on purpose: `createdAt` and `expiresAt`, `quorumUnreachable`, `reason` in a cancelled
//! `permission_resolved`, moving votes, no event for late votes of anonymous or unregistered callers, and no
//! `branchPoint`, which is the peer's own.

use convoke_protocol::daemon::capability::PermissionPolicy;
use pretty_assertions::assert_eq;

use super::*;

/// `kind [data keys] originator`, one line per frame; `+p` where the frame names its turn.
fn shape(world: &World, subscriber: SubscriberId, names: &[(&ClientId, &str)]) -> Vec<String> {
    let name = |id: &Value| {
        let id = id.as_str()?;
        Some(names.iter().find(|(client, _)| client.as_str() == id).map_or(id, |(_, name)| name).to_owned())
    };
    world
        .frames(subscriber)
        .iter()
        .map(|frame| {
            let keys: Vec<&str> = frame["data"].as_object().unwrap().keys().map(String::as_str).collect();
            let turn = if frame.get("promptId").is_some() { " +p" } else { "" };
            let who = frame.get("originatorClientId").and_then(name).map_or(String::new(), |who| format!(" by {who}"));
            format!("{} [{}]{turn}{who}", frame["type"].as_str().unwrap(), keys.join(" "))
        })
        .collect()
}

const REQUEST: &str = "permission_request [requestId sessionId toolCall options createdAt expiresAt] +p by A";
const ECHO: &str = "session_update [sessionId update] +p by A";

fn ids_are_gapless(world: &World, subscriber: SubscriberId) {
    let ids: Vec<u64> = world.streams[&subscriber].frames.iter().filter_map(|frame| frame.id).collect();
    assert_eq!(ids, (1..=u64::try_from(ids.len()).unwrap()).collect::<Vec<_>>());
}

#[test]
fn golden_01_one_client_from_prompt_to_close() {
    let mut world = World::new(options(PermissionPolicy::FirstResponder));
    let (session, clients, streams) = world.shared(1);
    let a = &clients[0];
    let turn = world.prompt(&session, Some(a), "run the approval scenario");
    world.update(&session, "tool_call", "");
    let (request, reply) = world.ask(&session);
    world.vote(&session, &request, Some(a), selected("proceed_once")).unwrap();
    world.update(&session, "tool_call_update", "");
    world.end_turn(&session, &turn, "end_turn");
    let late = world.vote(&session, &request, Some(a), selected("proceed_once"));
    assert!(matches!(late, Err(Refusal::AlreadyResolved { session: Some(_), .. })), "{late:?}");
    let call = world.close(&session, Some(a));
    assert_eq!(world.answers[&call], Ok(Answer::Done));

    assert_eq!(
        shape(&world, streams[0], &[(a, "A")]),
        [
            ECHO,
            ECHO,
            REQUEST,
            "permission_resolved [requestId outcome voterClientId] +p by A",
            ECHO,
            "turn_complete [sessionId stopReason promptId] +p by A",
            "permission_already_resolved [requestId sessionId outcome] +p",
            "session_closed [sessionId reason closedBy] by A",
        ]
    );
    ids_are_gapless(&world, streams[0]);
    assert!(world.streams[&streams[0]].ended);
    assert_eq!(world.resolutions[&reply], Resolution::Selected { option_id: "proceed_once".into(), extras: None });
    let echo = &world.frames(streams[0])[0]["data"]["update"];
    assert_eq!(echo["sessionUpdate"], "user_message_chunk");
    assert_eq!(echo["content"], json!({ "type": "text", "text": "run the approval scenario" }));
    assert_eq!(echo["_meta"]["source"], "bridge-echo");
}

#[test]
fn golden_03_first_responder_cancel_queue_and_close() {
    let mut world = World::new(options(PermissionPolicy::FirstResponder));
    let (session, clients, streams) = world.shared(2);
    let (a, b) = (&clients[0], &clients[1]);

    // B votes on A's request; then A is late, in two ways; strangers and outsiders learn nothing.
    let turn = world.prompt(&session, Some(a), "x");
    let (request, _) = world.ask(&session);
    let mallory = ClientId::from("mallory");
    let unknown = RequestId::from("nope");
    let missing =
        |request: &RequestId| Refusal::RequestNotFound { session: Some(session.clone()), request: request.clone() };
    assert_eq!(world.vote(&session, &unknown, Some(a), selected("x")), Err(missing(&unknown)));
    assert_eq!(world.vote(&session, &unknown, Some(&mallory), selected("x")), Err(missing(&unknown)));
    for option in ["nonexistent", "__cancelled__"] {
        let refused = world.vote(&session, &request, Some(b), selected(option));
        assert_eq!(refused, Err(Refusal::InvalidOption { request: request.clone(), option_id: option.into() }));
    }
    let refused = world.vote(&session, &request, Some(&mallory), selected("proceed_once"));
    assert_eq!(refused, Err(Refusal::InvalidClientId { session: session.clone(), client: mallory.clone() }));
    world.vote(&session, &request, Some(b), selected("proceed_once")).unwrap();
    for choice in [selected("proceed_once"), VoteChoice::Cancelled] {
        let late = world.vote(&session, &request, Some(a), choice);
        assert!(matches!(late, Err(Refusal::AlreadyResolved { .. })), "{late:?}");
    }
    let late = world.vote(&session, &request, Some(a), selected("__cancelled__"));
    assert!(matches!(late, Err(Refusal::InvalidOption { .. })), "{late:?}");
    for outsider in [None, Some(&mallory)] {
        let late = world.vote(&session, &request, outsider, selected("proceed_once"));
        assert_eq!(late, Err(missing(&request)), "the plain answer of an unknown id");
    }
    world.end_turn(&session, &turn, "end_turn");

    // B cancels A's turn while it asks.
    let turn = world.prompt(&session, Some(a), "x");
    let (_, reply) = world.ask(&session);
    world.cancel(&session, Some(b)).unwrap();
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::AgentCancelled));
    assert_eq!(world.cancelled.last(), Some(&turn));
    world.update(&session, "tool_call_update", "");
    world.end_turn(&session, &turn, "cancelled");

    // A queued prompt starts, asks, and the session is closed.
    let first = world.prompt(&session, Some(a), "x");
    let second = world.prompt(&session, Some(a), "y");
    world.end_turn(&session, &first, "end_turn");
    assert_eq!(world.turns.last(), Some(&(session.clone(), second.clone())));
    let (_, reply) = world.ask(&session);
    let call = world.close(&session, Some(b));
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::SessionClosed));
    assert!(!world.answers.contains_key(&call), "the close waits for the turn");
    world.update(&session, "tool_call_update", "");
    world.end_turn(&session, &second, "cancelled");
    assert_eq!(world.answers[&call], Ok(Answer::Done));

    let expected = [
        ECHO,
        REQUEST,
        "permission_resolved [requestId outcome voterClientId] +p by B",
        "permission_already_resolved [requestId sessionId outcome] +p",
        "permission_already_resolved [requestId sessionId outcome] +p",
        "turn_complete [sessionId stopReason promptId] +p by A",
        ECHO,
        REQUEST,
        "prompt_cancelled [sessionId] +p by B",
        "permission_resolved [requestId outcome reason] +p",
        ECHO,
        "turn_complete [sessionId stopReason promptId promptCancelled] +p by A",
        ECHO,
        "pending_prompt_added [sessionId promptId text queuedAt] +p by A",
        "turn_complete [sessionId stopReason promptId] +p by A",
        "pending_prompt_started [sessionId promptId text] +p by A",
        ECHO,
        REQUEST,
        "permission_resolved [requestId outcome reason] +p",
        ECHO,
        "turn_complete [sessionId stopReason promptId] +p by A",
        "pending_prompt_completed [sessionId promptId state] +p by A",
        "session_closed [sessionId reason closedBy] by B",
    ];
    for stream in streams {
        assert_eq!(shape(&world, stream, &[(a, "A"), (b, "B")]), expected);
        ids_are_gapless(&world, stream);
    }
    assert_eq!(world.closed, [session]);
}

#[test]
fn golden_03_the_agent_is_killed_while_it_asks() {
    let mut world = World::new(options(PermissionPolicy::FirstResponder));
    let (session, clients, streams) = world.shared(1);
    let a = &clients[0];
    world.prompt(&session, Some(a), "x");
    let (request, reply) = world.ask(&session);
    world.step(Input::AgentGone { agent: AgentKey(2), exit_code: Some(0), signal: None });
    assert!(world.bridge.status(&session).is_ok(), "another agent's end is not ours");
    world.step(Input::AgentGone { agent: AgentKey(1), exit_code: None, signal: Some("SIGKILL".into()) });
    assert_eq!(
        shape(&world, streams[0], &[(a, "A")]),
        [
            ECHO,
            REQUEST,
            "prompt_cancelled [sessionId reason] +p by A",
            "permission_resolved [requestId outcome reason] +p",
            "turn_error [sessionId message promptId] +p by A",
            "session_died [sessionId reason exitCode signalCode]",
        ]
    );
    let frames = world.frames(streams[0]);
    assert_eq!(frames[2]["data"]["reason"], "forward_failed");
    assert_eq!(frames[5]["data"]["signalCode"], "SIGKILL");
    assert_eq!(frames[5]["data"]["exitCode"], Value::Null);
    assert!(world.streams[&streams[0]].ended);
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::SessionClosed));
    let gone = world.vote(&session, &request, Some(a), selected("proceed_once"));
    assert_eq!(gone, Err(Refusal::SessionNotFound { session: session.clone() }));
    let legacy = world.vote_as(None, &request, Caller::default(), selected("proceed_once"));
    assert_eq!(legacy, Err(Refusal::RequestNotFound { session: None, request }));
    assert!(!world.create(SessionScope::Single, None).unwrap().created.attached, "a new one is started");
}

#[test]
fn golden_04_designated() {
    let mut world = World::new(options(PermissionPolicy::Designated));
    let (session, clients, streams) = world.shared(2);
    let (a, b) = (&clients[0], &clients[1]);
    let turn = world.prompt(&session, Some(a), "x");
    let (request, _) = world.ask(&session);
    for voter in [Some(b), None] {
        let refused = world.vote(&session, &request, voter, selected("proceed_once"));
        assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{refused:?}");
    }
    let refused = world.vote(&session, &request, Some(b), selected("zzz"));
    assert!(matches!(refused, Err(Refusal::InvalidOption { .. })), "the option before the policy: {refused:?}");
    let caller = Caller { client: Some(b.clone()), loopback: true };
    let refused = world.vote_as(None, &request, caller, selected("proceed_once"));
    assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{refused:?}");
    world.vote(&session, &request, Some(a), selected("proceed_once")).unwrap();
    let queued = world.prompt(&session, Some(a), "y");
    world.end_turn(&session, &turn, "end_turn");
    // Anyone may cancel, under every policy.
    let (request, _) = world.ask(&session);
    world.vote(&session, &request, Some(b), VoteChoice::Cancelled).unwrap();
    world.end_turn(&session, &queued, "end_turn");
    // An anonymous prompt designates no one.
    world.prompt(&session, None, "z");
    let (request, _) = world.ask(&session);
    world.vote(&session, &request, Some(b), selected("proceed_once")).unwrap();
    assert_eq!(
        shape(&world, streams[0], &[(a, "A"), (b, "B")]),
        [
            ECHO,
            REQUEST,
            "permission_forbidden [requestId sessionId clientId reason] +p by A",
            "permission_forbidden [requestId sessionId reason] +p by A",
            "permission_forbidden [requestId sessionId clientId reason] +p by A",
            "permission_resolved [requestId outcome voterClientId] +p by A",
            "pending_prompt_added [sessionId promptId text queuedAt] +p by A",
            "turn_complete [sessionId stopReason promptId] +p by A",
            "pending_prompt_started [sessionId promptId text] +p by A",
            ECHO,
            REQUEST,
            "permission_resolved [requestId outcome voterClientId reason] +p by B",
            "turn_complete [sessionId stopReason promptId] +p by A",
            "pending_prompt_completed [sessionId promptId state] +p by A",
            "session_update [sessionId update] +p",
            "permission_request [requestId sessionId toolCall options createdAt expiresAt] +p",
            "permission_resolved [requestId outcome voterClientId] +p by B",
        ]
    );
}

#[test]
fn golden_05_consensus() {
    let mut world = World::new(options(PermissionPolicy::Consensus));
    let (session, clients, streams) = world.shared(2);
    let (a, b) = (clients[0].clone(), clients[1].clone());
    let turn = world.prompt(&session, Some(&a), "x");
    let (request, reply) = world.ask(&session);
    world.vote(&session, &request, Some(&a), selected("proceed_once")).unwrap();
    world.vote(&session, &request, Some(&a), selected("proceed_once")).unwrap();
    let refused = world.vote(&session, &request, None, selected("proceed_once"));
    assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{refused:?}");
    let c = world.create(SessionScope::Single, None).unwrap().created.client_id;
    let refused = world.vote(&session, &request, Some(&c), selected("proceed_once"));
    assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "came after the request: {refused:?}");
    world.vote(&session, &request, Some(&b), selected("proceed_once")).unwrap();
    assert!(world.resolutions.contains_key(&reply));
    let late = world.vote(&session, &request, Some(&c), selected("proceed_once"));
    assert!(matches!(late, Err(Refusal::AlreadyResolved { .. })), "{late:?}");
    world.end_turn(&session, &turn, "end_turn");

    // M = 3: split, then a majority. Then one member leaves, and M stays.
    let turn = world.prompt(&session, Some(&a), "x");
    let (request, _) = world.ask(&session);
    world.vote(&session, &request, Some(&a), selected("proceed_once")).unwrap();
    world.vote(&session, &request, Some(&b), selected("cancel")).unwrap();
    world.vote(&session, &request, Some(&c), selected("cancel")).unwrap();
    world.end_turn(&session, &turn, "end_turn");
    world.prompt(&session, Some(&a), "x");
    let (request, _) = world.ask(&session);
    world.vote(&session, &request, Some(&c), selected("proceed_once")).unwrap();
    world.step(Input::Detach { session: session.clone(), client: Some(c.clone()) });
    let refused = world.vote(&session, &request, Some(&c), selected("cancel"));
    assert!(matches!(refused, Err(Refusal::InvalidClientId { .. })), "{refused:?}");
    world.vote(&session, &request, Some(&a), selected("proceed_once")).unwrap();

    let partial =
        "permission_partial_vote [requestId sessionId votesReceived votesNeeded quorum optionTallies] +p by A";
    assert_eq!(
        shape(&world, streams[0], &[(&a, "A"), (&b, "B"), (&c, "C")]),
        [
            ECHO,
            REQUEST,
            partial,
            "permission_forbidden [requestId sessionId reason] +p by A",
            "permission_forbidden [requestId sessionId clientId reason] +p by A",
            "permission_resolved [requestId outcome voterClientId] +p by B",
            "permission_already_resolved [requestId sessionId outcome] +p",
            "turn_complete [sessionId stopReason promptId] +p by A",
            ECHO,
            REQUEST,
            partial,
            partial,
            "permission_resolved [requestId outcome voterClientId] +p by C",
            "turn_complete [sessionId stopReason promptId] +p by A",
            ECHO,
            REQUEST,
            partial,
            "permission_resolved [requestId outcome voterClientId] +p by A",
        ]
    );
    let frames = world.frames(streams[0]);
    let first = &frames[2]["data"];
    assert_eq!((&first["votesReceived"], &first["votesNeeded"], &first["quorum"]), (&json!(1), &json!(1), &json!(2)));
    assert_eq!(frames[11]["data"]["optionTallies"], json!({ "proceed_once": 1, "cancel": 1 }));
}

#[test]
fn golden_06_capped_override_and_timeout() {
    let mut world = World::new(BridgeOptions {
        quorum: Some(5),
        permission_timeout: Some(Duration::from_millis(2500)),
        ..options(PermissionPolicy::Consensus)
    });
    let (session, clients, streams) = world.shared(2);
    let (a, b) = (&clients[0], &clients[1]);
    let turn = world.prompt(&session, Some(a), "x");
    let (request, reply) = world.ask(&session);
    world.vote(&session, &request, Some(a), selected("proceed_once")).unwrap();
    world.vote(&session, &request, Some(b), selected("cancel")).unwrap();
    world.advance(Duration::from_millis(2499));
    world.step(Input::Tick);
    assert!(!world.resolutions.contains_key(&reply), "not yet");
    world.tick_at_deadline();
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::Timeout));
    let late = world.vote(&session, &request, Some(b), selected("proceed_once"));
    assert!(matches!(late, Err(Refusal::AlreadyResolved { .. })), "{late:?}");
    world.update(&session, "tool_call_update", "");
    world.end_turn(&session, &turn, "end_turn");
    let partial =
        "permission_partial_vote [requestId sessionId votesReceived votesNeeded quorum optionTallies] +p by A";
    assert_eq!(
        shape(&world, streams[0], &[(a, "A"), (b, "B")]),
        [
            ECHO,
            REQUEST,
            partial,
            &partial.replace("optionTallies", "optionTallies quorumUnreachable"),
            "permission_resolved [requestId outcome reason] +p",
            "permission_already_resolved [requestId sessionId outcome] +p",
            ECHO,
            "turn_complete [sessionId stopReason promptId] +p by A",
        ]
    );
    assert_eq!(world.frames(streams[0])[2]["data"]["quorum"], 2);
    let expected = format!("permission {request} (session {session}) timed out after 2500ms");
    assert!(world.log.iter().any(|(_, text)| *text == expected), "{:?}", world.log);
    assert!(world.log.iter().any(|(_, text)| text.contains("capped")), "{:?}", world.log);
}

#[test]
fn golden_07_quorum_of_one_is_the_first_vote() {
    let mut world = World::new(BridgeOptions { quorum: Some(1), ..options(PermissionPolicy::Consensus) });
    let (session, clients, streams) = world.shared(2);
    world.prompt(&session, Some(&clients[0]), "x");
    let (request, reply) = world.ask(&session);
    world.vote(&session, &request, Some(&clients[1]), selected("cancel")).unwrap();
    assert_eq!(world.resolutions[&reply], Resolution::Selected { option_id: "cancel".into(), extras: None });
    assert!(!world.kinds(streams[0]).contains(&"permission_partial_vote"));
}
