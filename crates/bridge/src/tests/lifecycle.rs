//! Sessions from their start to each of their ends, and the calls that touch them.

use crate::{IdConflict, LimitScope, Limits, StartFailure};

use super::*;

fn world() -> World {
    World::new(BridgeOptions::default())
}

fn create_request(world: &mut World, change: impl FnOnce(&mut CreateRequest)) -> CallId {
    let call = world.call();
    let minted = ClientId(format!("client_{}", world.mint()));
    let mut request = CreateRequest {
        workspace: WORKSPACE.into(),
        scope: SessionScope::Single,
        session: None,
        client: None,
        minted,
        profile: SessionProfile::default(),
    };
    change(&mut request);
    world.step(Input::Create { call, request });
    call
}

#[test]
fn concurrent_creates_wait_for_one_start_and_share_its_end() {
    let mut world = world();
    let calls: Vec<CallId> = (0..3).map(|_| create_request(&mut world, |_| {})).collect();
    let other = create_request(&mut world, |request| request.workspace = "/elsewhere".into());
    assert_eq!(world.starts.len(), 2, "one per workspace");
    assert!(world.answers.is_empty());
    let (first, second) = (world.starts[0].0, world.starts[1].0);
    world.started(first, &"s".into(), AgentKey(1));
    let attached: Vec<(bool, Option<bool>)> = calls
        .iter()
        .map(|call| match &world.answers[call] {
            Ok(Answer::Session(answer)) => (answer.created.attached, answer.created.has_active_prompt),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(attached, [(false, None), (true, Some(false)), (true, Some(false))]);
    assert_eq!(world.bridge.status(&"s".into()).unwrap().client_count, 3);
    let failure = StartFailure::InitTimeout { timeout_ms: 10_000, phase: "initialize".into() };
    world.step(Input::SessionStartFailed { creation: second, failure: failure.clone() });
    assert_eq!(world.answers[&other], Err(Refusal::StartFailed(failure)));
    // A start that no one waits for any more must not stay alive at the agent.
    world.started(second, &"orphan".into(), AgentKey(1));
    assert_eq!(world.closed, [SessionId::from("orphan")]);
}

#[test]
fn client_ids_follow_the_rules() {
    let mut world = world();
    let a = world.create(SessionScope::Single, Some(&"alice".into())).unwrap().created;
    assert_ne!(a.client_id, "alice".into(), "a client does not choose its id");
    let again = world.create(SessionScope::Single, Some(&a.client_id)).unwrap().created;
    assert_eq!((again.client_id.clone(), again.attached), (a.client_id.clone(), true));
    let thread = world.create(SessionScope::Thread, Some(&a.client_id)).unwrap().created;
    assert_ne!(thread.client_id, a.client_id, "registered on one session only");
    let foreign = world.try_prompt(&a.session_id, Some(&thread.client_id), "x");
    let expected = Refusal::InvalidClientId { session: a.session_id.clone(), client: thread.client_id };
    assert_eq!(foreign, Err(expected));
    world.try_prompt(&a.session_id, None, "anonymous is allowed").unwrap();
    let detach = Input::Detach { session: a.session_id.clone(), client: Some(a.client_id.clone()) };
    world.step(detach.clone());
    assert!(world.bridge.authorize(&a.session_id, Some(&a.client_id)).is_ok(), "attached twice, left once");
    world.step(detach);
    assert!(world.bridge.authorize(&a.session_id, Some(&a.client_id)).is_err());
}

#[test]
fn limits_count_what_is_being_started_but_not_attaching() {
    let limits = Limits { sessions_per_workspace: 2, sessions_total: 3, ..Limits::default() };
    let mut world = World::new(BridgeOptions { limits, ..BridgeOptions::default() });
    let thread = |request: &mut CreateRequest| request.scope = SessionScope::Thread;
    world.create(SessionScope::Thread, None).unwrap();
    create_request(&mut world, thread);
    let refused = |limit, scope| Err(Refusal::SessionLimit { limit, scope });
    let third = create_request(&mut world, thread);
    assert_eq!(world.answers[&third], refused(2, LimitScope::Workspace));
    let single = create_request(&mut world, |_| {});
    assert_eq!(world.answers[&single], refused(2, LimitScope::Workspace), "there is none to attach to");
    let elsewhere = |request: &mut CreateRequest| request.workspace = "/elsewhere".into();
    create_request(&mut world, elsewhere);
    let total = create_request(&mut world, |request| request.workspace = "/third".into());
    assert_eq!(world.answers[&total], refused(3, LimitScope::Total));
    let joins = create_request(&mut world, elsewhere);
    assert!(!world.answers.contains_key(&joins), "waits for the one that starts");
}

#[test]
fn a_chosen_id_is_its_own_session_and_taken_once() {
    let mut world = world();
    let chosen = |request: &mut CreateRequest| request.session = Some("chosen".into());
    create_request(&mut world, chosen);
    let conflict =
        |conflict| Err(Refusal::SessionIdConflict { session: "chosen".into(), conflict, workspace: WORKSPACE.into() });
    let second = create_request(&mut world, chosen);
    assert_eq!(world.answers[&second], conflict(IdConflict::Creating));
    let (creation, _) = world.starts.pop().unwrap();
    world.started(creation, &"chosen".into(), AgentKey(1));
    let third = create_request(&mut world, chosen);
    assert_eq!(world.answers[&third], conflict(IdConflict::Live));
    let shared = world.create(SessionScope::Single, None).unwrap().created;
    assert_ne!(shared.session_id, "chosen".into(), "not joined without its id");
}

#[test]
fn restoring_attaches_or_starts_from_storage() {
    let mut world = world();
    let restore = |world: &mut World, id: &str| {
        let call = world.call();
        let minted = ClientId(format!("client_{}", world.mint()));
        let session = id.into();
        world.step(Input::Restore { call, session, workspace: WORKSPACE.into(), client: None, minted });
        call
    };
    let first = restore(&mut world, "old");
    let second = restore(&mut world, "old");
    assert_eq!(world.answers[&second], Err(Refusal::RestoreInProgress { session: "old".into() }));
    let (creation, kind) = world.starts.pop().unwrap();
    assert_eq!(kind, StartKind::Restore { session: "old".into() });
    world.started(creation, &"old".into(), AgentKey(1));
    assert!(matches!(&world.answers[&first], Ok(Answer::Session(answer)) if !answer.created.attached));
    let third = restore(&mut world, "old");
    assert!(matches!(&world.answers[&third], Ok(Answer::Session(answer)) if answer.created.attached));
    let fourth = restore(&mut world, "never");
    let (creation, _) = world.starts.pop().unwrap();
    let failure = StartFailure::NotStored { session: "never".into() };
    world.step(Input::SessionStartFailed { creation, failure });
    assert_eq!(world.answers[&fourth], Err(Refusal::SessionNotFound { session: "never".into() }));
}

#[test]
fn the_last_client_takes_an_unused_session_with_it() {
    // Kept by: nothing, a stream, a prompt, a request.
    for (case, survives) in [(0, false), (1, true), (2, true), (3, true)] {
        let mut world = world();
        let created = world.create(SessionScope::Single, None).unwrap().created;
        let (session, client) = (created.session_id, created.client_id);
        match case {
            1 => {
                world.subscribe(&session, None).unwrap();
            }
            2 => {
                world.prompt(&session, Some(&client), "x");
            }
            3 => {
                world.ask(&session);
            }
            _ => {}
        }
        for nobody in [None, Some("mallory".into())] {
            world.step(Input::Detach { session: session.clone(), client: nobody });
        }
        assert!(world.bridge.status(&session).is_ok());
        world.step(Input::Detach { session: session.clone(), client: Some(client) });
        assert_eq!(world.bridge.status(&session).is_ok(), survives, "case {case}");
        assert_eq!(world.closed.is_empty(), survives, "the agent is told");
    }
}

#[test]
fn an_idle_session_ends_when_nothing_keeps_it() {
    let idle = Duration::from_secs(4);
    let mut world = World::new(BridgeOptions { idle_timeout: Some(idle), ..BridgeOptions::default() });
    let (session, clients, streams) = world.shared(1);
    assert_eq!(world.bridge.next_deadline(), None, "an open stream keeps it");
    world.advance(idle * 3);
    world.step(Input::Unsubscribe { subscriber: streams[0] });
    let turn = world.prompt(&session, Some(&clients[0]), "x");
    world.advance(idle * 3);
    world.step(Input::Tick);
    assert!(world.bridge.status(&session).is_ok(), "a prompt keeps it");
    world.end_turn(&session, &turn, "end_turn");
    world.advance(idle - Duration::from_millis(1));
    world.step(Input::Tick);
    assert!(world.bridge.status(&session).is_ok(), "not yet");
    world.tick_at_deadline();
    assert!(world.bridge.status(&session).is_err(), "registered ids do not keep it");
    assert_eq!(world.closed, [session]);
}

#[test]
fn idle_sessions_end_together() {
    let (idle, every) = (Duration::from_secs(4), Duration::from_secs(60));
    let mut world =
        World::new(BridgeOptions { idle_timeout: Some(idle), reap_interval: every, ..BridgeOptions::default() });
    let (session, _, streams) = world.shared(1);
    world.step(Input::Unsubscribe { subscriber: streams[0] });
    world.advance(idle * 2);
    world.step(Input::Tick);
    assert!(world.bridge.status(&session).is_ok(), "due, and not swept up yet");
    assert_eq!(world.bridge.next_deadline().map(|tick| tick.0 % 60_000), Some(0));
    world.tick_at_deadline();
    assert!(world.bridge.status(&session).is_err());
}

#[test]
fn a_session_that_everybody_left_ends_after_its_turn() {
    for grace in [Duration::ZERO, Duration::from_secs(5)] {
        let mut world = World::new(BridgeOptions { settled_grace: grace, ..BridgeOptions::default() });
        let (session, clients, streams) = world.shared(1);
        let turn = world.prompt(&session, Some(&clients[0]), "x");
        world.step(Input::Unsubscribe { subscriber: streams[0] });
        world.step(Input::Detach { session: session.clone(), client: Some(clients[0].clone()) });
        world.advance(Duration::from_secs(60));
        world.step(Input::Tick);
        assert!(world.bridge.status(&session).is_ok(), "its turn goes on");
        world.end_turn(&session, &turn, "end_turn");
        if grace > Duration::ZERO {
            world.advance(grace - Duration::from_millis(1));
            world.step(Input::Tick);
            assert!(world.bridge.status(&session).is_ok(), "a client may come back");
        }
        world.tick_at_deadline();
        assert!(world.bridge.status(&session).is_err(), "{grace:?}");
        assert_eq!(world.closed, [session]);
    }
}

#[test]
fn a_close_that_the_agent_ignores_ends_with_its_grace() {
    let mut world = world();
    let (session, clients, streams) = world.shared(1);
    let a = &clients[0];
    let running = world.prompt(&session, Some(a), "x");
    world.prompt(&session, Some(a), "y");
    let call = world.close(&session, Some(a));
    assert_eq!(world.cancelled, [running]);
    let refused = world.try_prompt(&session, Some(a), "z");
    assert_eq!(refused, Err(Refusal::SessionClosing { session: session.clone() }));
    let new = create_request(&mut world, |_| {});
    assert!(!world.answers.contains_key(&new), "no one joins a closing session: a new one starts");
    world.tick_at_deadline();
    assert_eq!(world.answers[&call], Ok(Answer::Done));
    let expected = [
        "session_update",
        "pending_prompt_added",
        "turn_complete",
        "turn_complete",
        "pending_prompt_completed",
        "session_closed",
    ];
    assert_eq!(world.kinds(streams[0]), expected);
    let second = world.close(&session, Some(a));
    assert_eq!(world.answers[&second], Err(Refusal::SessionNotFound { session }));
}

#[test]
fn shutdown_ends_everything_in_its_order() {
    let mut world = world();
    let (session, clients, streams) = world.shared(1);
    world.prompt(&session, Some(&clients[0]), "x");
    let (_, reply) = world.ask(&session);
    let waiting = create_request(&mut world, |request| request.scope = SessionScope::Thread);
    world.step(Input::Shutdown);
    let expected = [
        "session_update",
        "permission_request",
        "permission_resolved",
        "turn_error",
        "prompt_cancelled",
        "session_died",
    ];
    assert_eq!(world.kinds(streams[0]), expected);
    let frames = world.frames(streams[0]);
    assert_eq!(frames[3]["data"]["code"], "daemon_shutdown");
    assert_eq!(frames[5]["data"], json!({ "sessionId": session, "reason": "daemon_shutdown" }));
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::SessionClosed));
    assert_eq!(world.answers[&waiting], Err(Refusal::Draining));
    let late = create_request(&mut world, |_| {});
    assert_eq!(world.answers[&late], Err(Refusal::Draining));
    assert_eq!(world.closed, [session]);
}

#[test]
fn a_missed_deadline_is_told_at_once_and_the_queue_waits_for_the_agent() {
    let deadline = Some(Duration::from_millis(700));
    let mut world = World::new(BridgeOptions { prompt_deadline: deadline, ..BridgeOptions::default() });
    let (session, clients, streams) = world.shared(1);
    let late = world.prompt(&session, Some(&clients[0]), "x");
    let next = world.prompt(&session, Some(&clients[0]), "y");
    let (_, reply) = world.ask(&session);
    world.tick_at_deadline();
    assert_eq!(world.resolutions[&reply], Resolution::Cancelled(CancelReason::AgentCancelled));
    assert_eq!(world.cancelled.last(), Some(&late));
    let kinds = world.kinds(streams[0]);
    assert_eq!(kinds[3..], ["turn_error", "prompt_cancelled", "permission_resolved"]);
    assert_eq!(world.frames(streams[0])[3]["data"]["code"], "prompt_deadline_exceeded");
    assert!(world.bridge.status(&session).unwrap().has_turn_error);
    world.end_turn(&session, &late, "cancelled");
    assert_eq!(world.kinds(streams[0])[6..], ["pending_prompt_started", "session_update"], "not told again");
    assert_eq!(world.bridge.turn(&session, Some(&late)).unwrap().unwrap().state, "failed");
    assert_eq!(world.turns.last().unwrap().1, next);
}

#[test]
fn the_queue_is_bounded_and_visible() {
    let limits = Limits { pending_prompts: 2, ..Limits::default() };
    let mut world = World::new(BridgeOptions { limits, ..BridgeOptions::default() });
    let (session, clients, _) = world.shared(1);
    let first = world.prompt(&session, Some(&clients[0]), "slow scenario");
    let second = world.prompt(&session, None, "hello 2");
    let full = world.try_prompt(&session, Some(&clients[0]), "hello 3");
    assert_eq!(full, Err(Refusal::PromptQueueFull { session: session.clone(), limit: 2, pending: 2 }));
    let pending = world.bridge.pending_prompts(&session).unwrap();
    let view: Vec<(&str, &str, bool)> =
        pending.iter().map(|p| (p.text.as_str(), p.state, p.originator_client_id.is_some())).collect();
    assert_eq!(view, [("slow scenario", "running", true), ("hello 2", "queued", false)]);
    world.update(&session, "agent_message_chunk", "Hello ");
    world.update(&session, "agent_message_chunk", "there");
    world.end_turn(&session, &first, "end_turn");
    let turn = world.bridge.turn(&session, Some(&first)).unwrap().unwrap();
    assert_eq!(
        (turn.state, turn.result_text.as_str(), turn.stop_reason.as_deref()),
        ("completed", "Hello there", Some("end_turn"))
    );
    assert_eq!(world.bridge.turn(&session, None).unwrap().unwrap().prompt_id, second);
    assert_eq!(world.bridge.turn(&session, Some(&"nope".into())), Ok(None));
}

#[test]
fn cancelling_an_idle_session_is_heard_and_changes_nothing() {
    let mut world = world();
    let (session, clients, streams) = world.shared(1);
    world.cancel(&session, Some(&clients[0])).unwrap();
    assert_eq!(world.kinds(streams[0]), ["prompt_cancelled"]);
    assert!(world.frames(streams[0])[0].get("promptId").is_none());
    assert!(world.cancelled.is_empty());
}

#[test]
fn a_late_joiner_learns_of_what_is_pending() {
    let mut world = world();
    let (session, clients, _) = world.shared(1);
    world.prompt(&session, Some(&clients[0]), "x");
    let (request, _) = world.ask(&session);
    let live = world.subscribe(&session, None).unwrap();
    let frames = world.frames(live);
    assert_eq!(world.kinds(live), ["permission_request"]);
    assert!(frames[0].get("id").is_none());
    assert_eq!(frames[0]["data"]["requestId"], json!(request));
    assert_eq!(frames[0]["originatorClientId"], json!(clients[0]));
    assert!(frames[0].get("promptId").is_some());
    let replayed = world.subscribe(&session, Some(0)).unwrap();
    assert_eq!(world.kinds(replayed), ["session_update", "permission_request", "replay_complete"]);
    world.vote(&session, &request, Some(&clients[0]), selected("cancel")).unwrap();
    let after = world.subscribe(&session, None).unwrap();
    assert!(world.kinds(after).is_empty());
}

#[test]
fn metadata_mode_and_model_are_told() {
    let mut world = world();
    let (session, clients, streams) = world.shared(1);
    let caller = Caller { client: Some(clients[0].clone()), loopback: true };
    let set = |world: &mut World, name: Option<&str>| {
        let call = world.call();
        let (session, caller, display_name) = (session.clone(), caller.clone(), name.map(Into::into));
        world.step(Input::SetMetadata { call, session, caller, display_name });
        world.answers.remove(&call).unwrap()
    };
    let named = |name: &str| Ok(Answer::Metadata { display_name: Some(name.into()) });
    assert_eq!(set(&mut world, None), Ok(Answer::Metadata { display_name: None }));
    assert_eq!(set(&mut world, Some("My session")), named("My session"));
    assert_eq!(set(&mut world, Some(&"x".repeat(300))), named(&"x".repeat(256)));
    for (bad, problem) in [("a\u{7}b", "must not contain control characters"), ("  ", "must not be blank")] {
        assert_eq!(set(&mut world, Some(bad)), Err(Refusal::InvalidMetadata { field: "displayName", problem }));
    }
    assert_eq!(set(&mut world, None), named(&"x".repeat(256)));
    let originator = Some(clients[0].clone());
    world.step(Input::ApprovalModeChanged {
        session: session.clone(),
        originator: originator.clone(),
        mode: ApprovalMode::AutoEdit,
        persisted: false,
    });
    world.step(Input::ModelSwitched {
        session: session.clone(),
        originator: originator.clone(),
        model_id: "flash".into(),
    });
    world.step(Input::ModelSwitchFailed {
        session: session.clone(),
        originator,
        model_id: "nope".into(),
        error: "no".into(),
    });
    let frames = world.frames(streams[0]);
    let data: Vec<&Value> = frames[2..].iter().map(|frame| &frame["data"]).collect();
    assert_eq!(
        data[0],
        &json!({ "sessionId": session, "previous": "default", "next": "auto-edit", "persisted": false })
    );
    assert_eq!(data[1], &json!({ "sessionId": session, "modelId": "flash" }));
    assert_eq!(data[2], &json!({ "sessionId": session, "requestedModelId": "nope", "error": "no" }));
    let snapshot = world.subscribe_with(&session, |request| request.snapshot = true).unwrap();
    let expected = json!({ "sessionId": session, "currentModelId": "flash", "currentApprovalMode": "auto-edit", "recordingDegraded": false });
    assert_eq!(world.frames(snapshot)[0]["data"], expected);
    world.step(Input::RecordingStopped { session: session.clone() });
    let snapshot = world.subscribe_with(&session, |request| request.snapshot = true).unwrap();
    assert_eq!(world.frames(snapshot)[0]["data"]["recordingDegraded"], true);
}

#[test]
fn agents_are_told_apart() {
    let mut world = world();
    let ids: Vec<SessionId> = ["one", "two"].map(Into::into).to_vec();
    for (id, agent) in ids.iter().zip([1, 2]) {
        create_request(&mut world, |request| request.scope = SessionScope::Thread);
        let (creation, _) = world.starts.pop().unwrap();
        world.started(creation, id, AgentKey(agent));
    }
    assert_eq!(world.bridge.sessions_of_agent(AgentKey(2)), 1);
    world.step(Input::AgentGone { agent: AgentKey(2), exit_code: Some(3), signal: None });
    let live: Vec<SessionId> =
        world.bridge.sessions(WORKSPACE).into_iter().map(|summary| summary.status.session_id).collect();
    assert_eq!(live, ids[..1]);
    assert!(world.closed.is_empty(), "a dead agent is told nothing");
}

#[test]
fn updates_are_carried_verbatim() {
    let mut world = world();
    let (session, _, streams) = world.shared(1);
    let update = json!({ "zeta": 1.5, "sessionUpdate": "something_new", "alpha": { "b": [1, null], "a": "é" } });
    world.step(Input::Update { session: session.clone(), update: update.clone() });
    let text = String::from_utf8(world.streams[&streams[0]].frames[0].json.to_vec()).unwrap();
    assert!(text.contains(&serde_json::to_string(&update).unwrap()), "{text}");
    let before = world.log.len();
    world.step(Input::Update { session: "gone".into(), update });
    assert_eq!(world.log.len(), before + 1, "an event for nobody is only noted");
}

#[test]
fn a_turn_that_ends_takes_its_requests_with_it() {
    let mut world = world();
    let (session, clients, streams) = world.shared(1);
    let (_, outside) = world.ask(&session);
    let turn = world.prompt(&session, Some(&clients[0]), "x");
    let (_, within) = world.ask(&session);
    world.end_turn(&session, &turn, "end_turn");
    assert_eq!(world.resolutions[&within], Resolution::Cancelled(CancelReason::AgentCancelled));
    assert!(!world.resolutions.contains_key(&outside), "asked before the turn, still of use");
    let kinds = world.kinds(streams[0]);
    assert_eq!(kinds[kinds.len() - 2..], ["permission_resolved", "turn_complete"]);
}
