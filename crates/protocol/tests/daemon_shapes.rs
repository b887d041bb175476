//! The daemon's wire: the bytes of a frame and the shape of every body, one golden file each.

use convoke_protocol::daemon::dto::{
    PendingInteraction, PendingPrompt, PromptAccepted, SessionCreated, SessionStatus, SessionSummary, TurnStatus,
    VoteBody, VoteOutcomeBody,
};
use convoke_protocol::daemon::{Frame, FrameKind, FrameMeta};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const KINDS: [FrameKind; 24] = [
    FrameKind::SessionUpdate,
    FrameKind::PermissionRequest,
    FrameKind::PermissionResolved,
    FrameKind::PermissionAlreadyResolved,
    FrameKind::PermissionPartialVote,
    FrameKind::PermissionForbidden,
    FrameKind::PromptCancelled,
    FrameKind::TurnComplete,
    FrameKind::TurnError,
    FrameKind::PendingPromptAdded,
    FrameKind::PendingPromptStarted,
    FrameKind::PendingPromptCompleted,
    FrameKind::SessionMetadataUpdated,
    FrameKind::ModelSwitched,
    FrameKind::ModelSwitchFailed,
    FrameKind::ApprovalModeChanged,
    FrameKind::SessionSnapshot,
    FrameKind::SessionClosed,
    FrameKind::SessionDied,
    FrameKind::ReplayComplete,
    FrameKind::StateResyncRequired,
    FrameKind::SlowClientWarning,
    FrameKind::ClientEvicted,
    FrameKind::StreamError,
];

fn golden(name: &str, text: &str) {
    insta::with_settings!({ snapshot_path => "golden", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("daemon_{name}"), text);
    });
}

fn pretty(body: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(body).unwrap_or_default()
}

fn frame(id: Option<u64>) -> Frame {
    Frame {
        id,
        v: 1,
        kind: FrameKind::TurnComplete,
        prompt_id: id.map(|_| "66d54f36".into()),
        data: json!({ "sessionId": "841d8369", "stopReason": "end_turn", "promptId": "66d54f36", "text": "a\nb é" }),
        originator_client_id: id.map(|_| "client_c663ecf1".into()),
        meta: FrameMeta { server_timestamp: 1_795_226_553_228 },
    }
}

#[test]
fn every_kind_has_one_name() {
    for kind in KINDS {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(serde_json::from_value::<FrameKind>(kind.name().into()).unwrap(), kind);
    }
    let mut names: Vec<&str> = KINDS.map(FrameKind::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KINDS.len());
}

#[test]
fn a_frame_is_one_event_of_one_line() {
    for (name, id) in [("frame_numbered", Some(10)), ("frame_synthetic", None)] {
        let encoded = frame(id).encode();
        let text = String::from_utf8(encoded.sse.to_vec()).unwrap();
        golden(name, &text);
        assert_eq!((encoded.id, encoded.kind), (id, FrameKind::TurnComplete));
        assert!(text.ends_with("\n\n") && !text.trim_end().contains("\n\n"));
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        assert_eq!(data.as_bytes(), encoded.json);
        assert_eq!(serde_json::from_str::<Value>(data).unwrap()["data"]["text"], "a\nb é");
        assert_eq!(text.lines().any(|line| line.starts_with("id: ")), id.is_some());
    }
}

fn status() -> SessionStatus {
    let action = json!({ "type": "execute", "title": "touch x", "content": [], "locations": [], "input": {} });
    SessionStatus {
        session_id: "841d8369".into(),
        workspace_cwd: "/workspace/demo".into(),
        created_at: "2026-11-21T02:07:48.029Z".into(),
        updated_at: Some("2026-11-21T02:08:05.813Z".into()),
        display_name: Some("My session".into()),
        source_type: Some("default".into()),
        client_count: 2,
        has_active_prompt: true,
        active_work_state: "active",
        is_waiting_for_permission: true,
        is_waiting_for_user_question: false,
        pending_interaction_count: 1,
        has_turn_error: true,
        turn_error: Some("broken".into()),
        pending_interactions: vec![PendingInteraction {
            request_id: "a94f7c97".into(),
            kind: "permission",
            created_at: "2026-11-21T02:07:50.174Z".into(),
            expires_at: None,
            no_expiry_reason: None,
            action,
            options: json!([{ "optionId": "proceed_once", "label": "Allow", "kind": "allow_once" }]),
            partial_vote: None,
        }],
    }
}

#[test]
fn answers_have_their_shapes() {
    let created = SessionCreated {
        session_id: "841d8369".into(),
        workspace_cwd: "/workspace/demo".into(),
        attached: false,
        client_id: "client_c663ecf1".into(),
        created_at: "2026-11-21T02:02:33.118Z".into(),
        has_active_prompt: None,
        model_applied: None,
        source_type: None,
        source_persisted: None,
    };
    golden("session_created", &pretty(&created));
    let attached = SessionCreated {
        attached: true,
        has_active_prompt: Some(false),
        model_applied: Some(false),
        source_type: Some("default".into()),
        source_persisted: Some(true),
        ..created.clone()
    };
    golden("session_attached", &pretty(&attached));
    let read: SessionCreated = serde_json::from_str(&pretty(&created)).unwrap();
    assert_eq!(read, created, "clients read what the daemon writes");
    let accepted = PromptAccepted { prompt_id: "66d54f36".into(), last_event_id: 0, event_epoch: "98f4b8b6".into() };
    golden("prompt_accepted", &pretty(&accepted));
    golden("session_status", &pretty(&status()));
    golden("session_summary", &pretty(&SessionSummary { status: status(), is_archived: false }));
    let pending = PendingPrompt {
        prompt_id: "66d54f36".into(),
        text: "hello".into(),
        queued_at: 1_795_227_643_045,
        state: "queued",
        originator_client_id: Some("client_c663ecf1".into()),
    };
    golden("pending_prompt", &pretty(&pending));
    let turn = TurnStatus {
        session_id: "841d8369".into(),
        prompt_id: "66d54f36".into(),
        prompt_text: "hello".into(),
        queued_at: 1,
        started_at: Some(2),
        ended_at: Some(3),
        originator_client_id: Some("client_c663ecf1".into()),
        state: "completed",
        stop_reason: Some("end_turn".into()),
        result_text: "Hello.".into(),
    };
    golden("turn_status", &pretty(&turn));
}

#[test]
fn a_vote_is_nested_and_complete() {
    let read = |text: &str| serde_json::from_str::<VoteBody>(text).map(|body| body.outcome);
    let selected = VoteOutcomeBody::Selected { option_id: "proceed_once".into() };
    assert_eq!(read(r#"{"outcome":{"outcome":"selected","optionId":"proceed_once"}}"#).unwrap(), selected);
    assert_eq!(read(r#"{"outcome":{"outcome":"cancelled"},"answers":{"q":"a"}}"#).unwrap(), VoteOutcomeBody::Cancelled);
    for refused in [
        r#"{"outcome":"cancelled"}"#,
        r#"{"outcome":"selected","optionId":"proceed_once"}"#,
        r#"{"outcome":{"outcome":"bogus"}}"#,
        r#"{"outcome":{"outcome":"selected"}}"#,
        r#"{"outcome":{"outcome":"selected","optionId":5}}"#,
        r#"{}"#,
    ] {
        assert!(read(refused).is_err(), "{refused}");
    }
}
