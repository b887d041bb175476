//! Tools that reach a session's person, its model or its title.

use std::sync::{Arc, Mutex};

use convoke_agent::{AgentFactory, NoLifecycleHooks, SessionModel};
use convoke_models::{FakeMode, FakeScript, LlmOptions, Provider, Registry, connect_llm};
use convoke_protocol::{
    AgentEventBody, HostedSession, NewSession, PermissionContent, PermissionOutcome, SessionFactory,
};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::*;

/// A session whose model is a script of the Gemini API.
async fn gemini(lines: &[Value]) -> (tempfile::TempDir, HostedSession) {
    let dir = tempfile::tempdir().unwrap();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let script = Arc::new(FakeScript::parse(&text, "test").unwrap());
    let (mut options, _) = options(Vec::new(), Arc::new(NoLifecycleHooks));
    options.connect = Arc::new(move |_| {
        let registry = Registry::new("gemini", Provider::Fake { script: script.clone(), mode: FakeMode::Strict });
        Ok(SessionModel::steered(connect_llm(&registry, LlmOptions::new("gemini-2.5-flash")).unwrap()))
    });
    let (ask, _) = mpsc::channel(4);
    let new = NewSession {
        session_id: Some("s".into()),
        ..NewSession::new(dir.path().canonicalize().unwrap(), Arc::new(Asked(ask)))
    };
    let session = AgentFactory::new(options).new_session(new).await.unwrap();
    (dir, session)
}

fn streamed(parts: Value) -> Value {
    let chunk = json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]});
    json!({"method": "generateContentStream", "response": [chunk]})
}

#[tokio::test]
async fn a_search_is_a_side_request_with_sources() {
    let grounded = json!({"candidates": [{
        "content": {"role": "model", "parts": [{"text": "Grüße aus Köln."}]},
        "finishReason": "STOP",
        "groundingMetadata": {
            "groundingChunks": [{"web": {"uri": "https://k.example/", "title": "K"}}],
            "groundingSupports": [{"segment": {"endIndex": 17}, "groundingChunkIndices": [0]}],
        },
    }]});
    let (dir, session) = gemini(&[
        streamed(json!([{"functionCall": {"name": "google_web_search", "args": {"query": "köln"}}}])),
        json!({"method": "generateContent", "response": grounded}),
        streamed(json!([{"text": "Done."}])),
    ])
    .await;
    let rig = Rig { dir, session, questions: mpsc::channel(1).1, requests: Arc::new(Mutex::default()) };
    let events = rig.run("look").await;
    let answer: String = events.iter().map(|event| told(event)).collect();
    assert_eq!(
        answer,
        "Web search results for \"köln\":\n\nGrüße aus Köln[1].\n\nSources:\n[1] K (https://k.example/)"
    );
    assert_eq!(sketch(&events).last().unwrap(), "agent_end Completed");
}

#[tokio::test]
async fn a_model_without_a_search_of_its_own_is_offered_none() {
    let rig = Rig::new(vec![vec![text("Hi."), stop()]]).await;
    rig.run("hi").await;
    let requests = rig.requests.lock().unwrap();
    let names: Vec<&str> = requests[0].tools.keys().map(String::as_str).collect();
    assert!(!names.contains(&"google_web_search"), "{names:?}");
    for name in ["web_fetch", "write_todos", "update_topic", "ask_user"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}

#[tokio::test]
async fn a_title_is_told_before_anything_else_of_its_answer_happens() {
    let calls = piece(vec![
        call("read_file", json!({"file_path": "a.txt"})),
        call("update_topic", json!({"title": "Reading", "strategic_intent": "see what is there"})),
    ]);
    let rig = Rig::new(vec![vec![calls, stop()], vec![text("ok"), stop()]]).await;
    let events = rig.run("go").await;
    let place = |wanted: &dyn Fn(&AgentEventBody) -> bool| events.iter().position(|event| wanted(&event.body)).unwrap();
    let title =
        place(&|body| matches!(body, AgentEventBody::SessionUpdate { title: Some(title), .. } if title == "Reading"));
    let read = place(&|body| matches!(body, AgentEventBody::ToolResponse { name, .. } if name == "read_file"));
    assert!(title < read, "{:?}", sketch(&events));
}

#[tokio::test]
async fn a_question_is_answered_through_the_permission_port_and_asked_once() {
    let options = json!([{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]);
    let ask = piece(vec![call(
        "ask_user",
        json!({"questions": [
            {"question": "Which colour?", "header": "Colour", "type": "choice", "options": options},
            {"question": "Sure?", "header": "Sure", "type": "yesno"},
        ]}),
    )]);
    let mut rig = Rig::new(vec![vec![ask, stop()], vec![text("ok"), stop()]]).await;
    let events = rig.send("paint").await.unwrap();
    let (request, answer) = rig.questions.recv().await.unwrap();
    assert_eq!((request.tool_name.as_str(), request.title.as_str()), ("ask_user", "Which colour?"));
    assert_eq!(request.content, [PermissionContent::Text("Which colour?\n- red: warm\n- blue: cold".into())]);
    let offered: Vec<_> = request.options.iter().map(|option| option.name.as_str()).collect();
    assert_eq!(offered, ["red", "blue", "Don't answer"]);
    answer.send(PermissionOutcome::Selected { option_id: "answer_1".into() }).unwrap();
    let (request, answer) = rig.questions.recv().await.unwrap();
    assert_eq!(request.title, "Sure?");
    answer.send(PermissionOutcome::Selected { option_id: "answer_0".into() }).unwrap();
    let events: Vec<_> = events.collect().await;
    let answers: String = events.iter().map(|event| told(event)).collect();
    assert_eq!(answers, r#"{"answers":{"0":"blue","1":"Yes"}}"#);
    assert!(rig.questions.try_recv().is_err(), "leave to ask is not asked for");
}

#[tokio::test]
async fn questions_that_no_option_answers_are_refused_in_words() {
    let ask =
        piece(vec![call("ask_user", json!({"questions": [{"question": "Why?", "header": "Why", "type": "text"}]}))]);
    let mut rig = Rig::new(vec![vec![ask, stop()], vec![text("ok"), stop()]]).await;
    let events = rig.run("go").await;
    assert!(events.iter().any(|event| told(event).contains("only takes a choice among options")));
    assert!(rig.questions.try_recv().is_err());
}

#[tokio::test]
async fn context_files_below_are_told_when_something_there_is_touched_and_once() {
    let read = |path: &str| piece(vec![call("read_file", json!({"file_path": path}))]);
    let answers = vec![
        vec![read("a.txt"), stop()],
        vec![read("sub/deep/x"), stop()],
        vec![read("sub/y"), stop()],
        vec![text("ok"), stop()],
    ];
    let rig = Rig::new(answers).await;
    let at = |path: &str| rig.dir.path().join(path);
    std::fs::create_dir_all(at("sub/deep")).unwrap();
    std::fs::create_dir_all(at("sub/out")).unwrap();
    for (path, text) in
        [("sub/AGENTS.md", "Below."), ("sub/deep/AGENTS.md", "Deeper."), ("sub/deep/x", "X"), ("sub/y", "Y")]
    {
        std::fs::write(at(path), text).unwrap();
    }
    let events = rig.run("read").await;
    let told: Vec<String> = events.iter().map(|event| told(event)).filter(|text| !text.is_empty()).collect();
    let root = rig.dir.path().canonicalize().unwrap();
    let block = |path: &str, text: &str| {
        let path = root.join(path).display().to_string();
        format!("\n\n--- Context from: {path} ---\n{text}\n--- End of Context from: {path} ---")
    };
    let both = format!("X{}{}", block("sub/AGENTS.md", "Below."), block("sub/deep/AGENTS.md", "Deeper."));
    assert_eq!(told, ["one\n".to_owned(), both, "Y".to_owned()]);
}
