use convoke_protocol::{ErrorStatus, StreamEndReason};

use super::*;

fn event(thread: Option<&str>, body: AgentEventBody) -> AgentEvent {
    AgentEvent {
        id: "s-0".into(),
        thread_id: thread.map(Into::into),
        stream_id: "s".into(),
        timestamp: String::new(),
        body,
        meta: Meta::new(),
    }
}

fn translate(bodies: impl IntoIterator<Item = AgentEventBody>) -> Vec<Value> {
    let mut translator = Translator::default();
    bodies.into_iter().flat_map(|body| translator.updates(&event(None, body))).collect()
}

fn request(id: &str) -> AgentEventBody {
    AgentEventBody::ToolRequest {
        request_id: id.into(),
        name: "shell".into(),
        args: json!({"command": "ls"}),
        display: None,
        kind: convoke_protocol::ToolKind::Execute,
        locations: vec![],
    }
}

fn update(id: &str, display: Option<ToolDisplay>, data: Value) -> AgentEventBody {
    AgentEventBody::ToolUpdate { request_id: id.into(), display, content: None, data: Some(data) }
}

fn response(id: &str, display: Option<ToolDisplay>, is_error: bool) -> AgentEventBody {
    AgentEventBody::ToolResponse {
        request_id: id.into(),
        name: "shell".into(),
        display,
        content: Some(vec![ContentPart::text("told")]),
        data: None,
        is_error,
    }
}

fn shows(result: DisplayContent) -> Option<ToolDisplay> {
    Some(ToolDisplay { result: Some(result), ..ToolDisplay::default() })
}

#[test]
fn a_call_is_pending_until_it_executes() {
    for state in ["validating", "scheduled", "awaiting_approval"] {
        let updates = translate([request("a"), update("a", None, json!({"status": state}))]);
        assert_eq!(updates.len(), 1, "{state} is what the client knows already");
    }
    for state in ["executing", "anything else"] {
        let again = || update("a", None, json!({"status": state}));
        let updates = translate([request("a"), again(), again()]);
        assert_eq!(updates.len(), 2, "{state}");
        assert_eq!(updates[1]["status"], "in_progress", "{state}");
        assert_eq!(updates[1]["_meta"], json!({"toolName": "shell"}));
        assert_eq!(updates[1].get("content"), None, "an update without content leaves what is shown");
    }
}

#[test]
fn changed_arguments_and_titles_are_told() {
    let retitled = Some(ToolDisplay { description: Some("ls -l".into()), ..ToolDisplay::default() });
    let data = json!({"status": "awaiting_approval", "args": {"command": "ls -l"}});
    let updates = translate([request("a"), update("a", retitled, data)]);
    assert_eq!(updates[1]["rawInput"], json!({"command": "ls -l"}));
    assert_eq!(updates[1]["title"], "ls -l");
    assert_eq!(updates[1]["status"], "pending");
}

#[test]
fn a_result_shows_its_display_rather_than_what_the_model_is_told() {
    let terminal = DisplayContent::Terminal { pid: Some(7), exit_code: Some(0), ansi: "\u{1b}[1mok".into() };
    let json_value = DisplayContent::Json { value: json!({"a": 1}) };
    for (display, shown) in [
        (None, "told"),
        (shows(DisplayContent::Text { text: "shown".into() }), "shown"),
        (shows(terminal), "\u{1b}[1mok"),
        (shows(json_value), "{\n  \"a\": 1\n}"),
    ] {
        let updates = translate([request("a"), response("a", display, false)]);
        assert_eq!(updates[1]["content"][0]["content"]["text"], shown);
        assert_eq!(updates[1]["status"], "completed");
    }
    assert_eq!(translate([response("a", None, true)])[0]["status"], "failed");
}

#[test]
fn a_new_file_is_a_diff_without_a_before() {
    let diff = DisplayContent::Diff { path: "/n".into(), before_text: None, after_text: "x".into() };
    let updates = translate([response("a", shows(diff), false)]);
    assert_eq!(updates[0]["content"], json!([{"type": "diff", "path": "/n", "oldText": null, "newText": "x"}]));
    assert_eq!(updates[0]["locations"], json!([{"path": "/n"}]));
}

#[test]
fn names_of_calls_are_forgotten_with_their_response() {
    let mut translator = Translator::default();
    for n in 0..100 {
        let id = n.to_string();
        translator.updates(&event(None, request(&id)));
        translator.updates(&event(None, response(&id, None, false)));
    }
    assert!(translator.tools.is_empty());
}

#[test]
fn a_subagents_calls_are_shown_and_its_words_are_not() {
    let mut translator = Translator::default();
    let calls = translator.updates(&event(Some("t1"), request("a")));
    assert_eq!(calls[0]["_meta"], json!({"toolName": "shell", "threadId": "t1"}));
    let words = AgentEventBody::Message { role: MessageRole::Agent, content: vec![ContentPart::text("psst")] };
    assert_eq!(translator.updates(&event(Some("t1"), words)), Vec::<Value>::new());
}

#[test]
fn what_acp_has_no_update_for_is_silent() {
    let silent = [
        AgentEventBody::Message { role: MessageRole::User, content: vec![ContentPart::text("hi")] },
        AgentEventBody::Message { role: MessageRole::Developer, content: vec![ContentPart::text("hi")] },
        AgentEventBody::AgentStart,
        AgentEventBody::AgentEnd { reason: StreamEndReason::Completed, data: None },
        AgentEventBody::Error { status: ErrorStatus::Internal, message: "fatal".into(), fatal: true },
        AgentEventBody::SessionUpdate { title: None, model: None, config: Some(json!({})) },
        AgentEventBody::Custom { kind: "x".into(), data: None },
        AgentEventBody::Unknown(json!({"type": "newer"})),
    ];
    assert_eq!(translate(silent), Vec::<Value>::new());
}

#[test]
fn usage_counts_only_what_is_known() {
    let usage = |input_tokens, output_tokens| AgentEventBody::Usage {
        model: "m".into(),
        input_tokens,
        output_tokens,
        cached_tokens: None,
    };
    let updates = translate([usage(Some(3), Some(4)), usage(None, None)]);
    assert_eq!(updates[0]["_meta"]["usage"], json!({"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}));
    assert_eq!(updates[1]["_meta"]["usage"], json!({}));
}

#[test]
fn a_list_of_things_to_do_is_a_plan() {
    let written = |todos: Value, is_error| AgentEventBody::ToolResponse {
        request_id: "a".into(),
        name: "write_todos".into(),
        display: None,
        content: None,
        data: Some(json!({"todos": todos})),
        is_error,
    };
    let todo = |description: &str, status: &str| json!({"description": description, "status": status});
    let todos = json!([
        todo("read", "completed"),
        todo("write", "in_progress"),
        todo("ask", "blocked"),
        todo("paint", "cancelled"),
        todo("check", "pending"),
    ]);
    let updates = translate([written(todos.clone(), false)]);
    let entry = |content: &str, status: &str| json!({"content": content, "priority": "medium", "status": status});
    let entries =
        [entry("read", "completed"), entry("write", "in_progress"), entry("ask", "pending"), entry("check", "pending")];
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[0]["status"], "completed", "the call comes first");
    assert_eq!(updates[1], json!({"sessionUpdate": "plan", "entries": entries}));
    serde_json::from_value::<agent_client_protocol::v1::schema::SessionUpdate>(updates[1].clone()).unwrap();
    let cleared = translate([written(json!([]), false)]);
    assert_eq!(cleared[1], json!({"sessionUpdate": "plan", "entries": []}), "an empty list clears the plan");
    assert_eq!(translate([written(todos.clone(), true)]).len(), 1, "a list that was refused is none");
    let mut translator = Translator::default();
    assert_eq!(translator.updates(&event(Some("sub"), written(todos, false))).len(), 1, "a subagent's is its own");
}

#[test]
fn a_subagents_call_says_whose_it_is_and_its_model_is_not_the_sessions() {
    let mut translator = Translator::default();
    let mut begun = event(Some("t1"), request("t1/a"));
    begun.meta = Meta::from_iter([
        ("agentName".to_owned(), json!("scout")),
        ("parentToolCallId".to_owned(), json!("c1")),
        ("agentPath".to_owned(), json!(["scout"])),
    ]);
    let call = translator.updates(&begun).remove(0);
    assert_eq!(call["title"], "scout: shell");
    let meta = json!({"toolName": "shell", "threadId": "t1", "agentName": "scout", "parentToolCallId": "c1"});
    assert_eq!(call["_meta"], meta);
    let display = ToolDisplay { description: Some("ls".into()), ..ToolDisplay::default() };
    let moved = event(Some("t1"), update("t1/a", Some(display), json!({"status": "executing"})));
    assert_eq!(translator.updates(&moved)[0]["title"], "scout: ls");
    let model = AgentEventBody::SessionUpdate { title: None, model: Some("small".into()), config: None };
    assert!(translator.updates(&event(Some("t1"), model)).is_empty());
    let error = AgentEventBody::Error { status: ErrorStatus::Internal, message: "x".into(), fatal: false };
    assert!(translator.updates(&event(Some("t1"), error)).is_empty());
    let usage = AgentEventBody::Usage {
        model: "small".into(),
        input_tokens: Some(1),
        output_tokens: None,
        cached_tokens: None,
    };
    assert_eq!(translator.updates(&event(Some("t1"), usage))[0]["_meta"]["threadId"], "t1");
}

#[test]
fn a_way_back_is_told_of_whoever_asked_for_it() {
    let data = json!({"messageId": "m", "number": 2, "what": "both", "files": ["/w/a"], "left": []});
    let rewound = AgentEventBody::Custom { kind: "session_rewound".into(), data: Some(data.clone()) };
    let update = json!({"sessionUpdate": "session_info_update", "_meta": {"convoke.rewound": data}});
    assert_eq!(translate([rewound]), [update]);
}

#[test]
fn a_session_without_a_record_is_told_to_people_and_to_hosts() {
    let notice = |data: Value| AgentEventBody::Custom { kind: "notice".into(), data: Some(data) };
    let told = translate([notice(json!({"code": "RECORDING_STOPPED", "message": "the disk is full"}))]);
    assert_eq!(told.len(), 2);
    assert_eq!(told[0]["content"]["text"], "the disk is full");
    assert_eq!(told[1], json!({"sessionUpdate": "session_info_update", "_meta": {"convoke.recording": false}}));
    let told = translate([notice(json!({"severity": "warning", "message": "a file was left out"}))]);
    assert_eq!((told.len(), &told[0]["content"]["text"]), (1, &json!("a file was left out")));
}
