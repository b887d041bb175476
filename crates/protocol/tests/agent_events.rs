//! The wire shape of every agent event, one golden file each, and what a reader makes of newer ones.

use convoke_protocol::{
    AgentEvent, AgentEventBody, ContentPart, DisplayContent, ErrorStatus, MessageRole, Meta, StreamEndReason,
    ToolDisplay, ToolKind, ToolLocation,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn event(n: u32, body: AgentEventBody) -> AgentEvent {
    AgentEvent {
        id: format!("s1-{n}").into(),
        thread_id: None,
        stream_id: "s1".into(),
        timestamp: "2026-11-21T02:02:33.118Z".into(),
        body,
        meta: Meta::new(),
    }
}

fn every_event() -> Vec<(&'static str, AgentEvent)> {
    let display = ToolDisplay {
        name: Some("WriteFile".into()),
        description: Some("a.txt".into()),
        result_summary: Some("1 line".into()),
        result: Some(DisplayContent::Diff { path: "/w/a.txt".into(), before_text: None, after_text: "hi\n".into() }),
    };
    let all_content = vec![
        ContentPart::text("hello"),
        ContentPart::Thought { thought: "hm".into(), thought_signature: Some("sig".into()) },
        ContentPart::Media { data: Some("AA==".into()), uri: None, mime_type: Some("image/png".into()) },
        ContentPart::Reference { text: "see".into(), data: None, uri: Some("file:///w/a".into()), mime_type: None },
    ];
    let mut with_meta = event(2, AgentEventBody::Message { role: MessageRole::Agent, content: all_content });
    with_meta.thread_id = Some("t1".into());
    with_meta.meta.insert("source".into(), json!("agent"));
    vec![
        (
            "session_update",
            event(
                0,
                AgentEventBody::SessionUpdate { title: None, model: Some("gemini-2.5-flash".into()), config: None },
            ),
        ),
        ("agent_start", event(1, AgentEventBody::AgentStart)),
        ("message", with_meta),
        (
            "tool_request",
            event(
                3,
                AgentEventBody::ToolRequest {
                    request_id: "c1".into(),
                    name: "write_file".into(),
                    args: json!({"file_path": "a.txt", "content": "hi\n"}),
                    display: Some(ToolDisplay { result: None, result_summary: None, ..display.clone() }),
                    kind: ToolKind::Edit,
                    locations: vec![ToolLocation { path: "/w/a.txt".into(), line: Some(1) }],
                },
            ),
        ),
        (
            "tool_update",
            event(
                4,
                AgentEventBody::ToolUpdate {
                    request_id: "c1".into(),
                    display: Some(ToolDisplay {
                        result: Some(DisplayContent::Terminal { pid: Some(7), exit_code: None, ansi: "x".into() }),
                        ..ToolDisplay::default()
                    }),
                    content: None,
                    data: Some(json!({"status": "executing"})),
                },
            ),
        ),
        (
            "tool_response",
            event(
                5,
                AgentEventBody::ToolResponse {
                    request_id: "c1".into(),
                    name: "write_file".into(),
                    display: Some(display),
                    content: Some(vec![ContentPart::text("done")]),
                    data: Some(json!({"errorType": "policy_violation"})),
                    is_error: true,
                },
            ),
        ),
        (
            "usage",
            event(
                6,
                AgentEventBody::Usage {
                    model: "gemini-2.5-flash".into(),
                    input_tokens: Some(10),
                    output_tokens: Some(5),
                    cached_tokens: None,
                },
            ),
        ),
        (
            "error",
            event(
                7,
                AgentEventBody::Error { status: ErrorStatus::ResourceExhausted, message: "quota".into(), fatal: true },
            ),
        ),
        ("custom", event(8, AgentEventBody::Custom { kind: "retract".into(), data: Some(json!({"ids": ["s1-2"]})) })),
        (
            "agent_end",
            event(
                9,
                AgentEventBody::AgentEnd {
                    reason: StreamEndReason::MaxTurns,
                    data: Some(json!({"code": "MAX_TURNS_EXCEEDED"})),
                },
            ),
        ),
    ]
}

#[test]
fn every_event_has_its_golden_shape_and_reads_back() {
    insta::with_settings!({ snapshot_path => "golden", prepend_module_to_snapshot => false }, {
        for (name, event) in every_event() {
            insta::assert_json_snapshot!(format!("agent_event_{name}"), event);
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<AgentEvent>(&text).unwrap(), event, "{name}");
        }
    });
}

#[test]
fn a_newer_type_degrades_to_unknown_and_keeps_its_fields() {
    let value =
        json!({"id": "x-1", "streamId": "x", "timestamp": "t", "type": "brand_new", "zzz": 1, "_meta": {"k": 2}});
    let event: AgentEvent = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(event.body, AgentEventBody::Unknown(value.clone()));
    assert_eq!(serde_json::to_value(&event).unwrap(), value);
    assert_eq!(event.meta["k"], json!(2));
}

#[test]
fn unknown_fields_of_a_known_type_are_ignored_and_missing_ones_are_named() {
    let mut value = serde_json::to_value(&every_event()[6].1).unwrap();
    value["cost"] = json!({"amount": 1});
    assert!(serde_json::from_value::<AgentEvent>(value.clone()).is_ok());
    value.as_object_mut().unwrap().remove("model");
    let error = serde_json::from_value::<AgentEvent>(value).unwrap_err();
    assert!(error.to_string().contains("model"), "{error}");
    assert!(serde_json::from_value::<AgentEvent>(Value::Null).is_err());
}
