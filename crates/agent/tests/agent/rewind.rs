//! Sessions that go back to a prompt, from outside and by a prompt.

use std::sync::Arc;

use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentSend, AgentSession, BranchOutcome, HostedSession, RewindOutcome, RewindRequest,
    RewindWhat, SendMessage, SessionFactory,
};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::record::{House, say, sent};
use crate::rig::*;

fn write(path: &str, text: &str) -> Answer {
    vec![piece(vec![call("write_file", json!({"file_path": path, "content": text}))]), stop()]
}

fn shell(command: &str) -> Answer {
    vec![piece(vec![call("run_shell_command", json!({"command": command}))]), stop()]
}

fn says(said: &str) -> Answer {
    vec![text(said), stop()]
}

fn to(to: &str, what: RewindWhat) -> RewindRequest {
    RewindRequest { to: to.into(), what, force: false }
}

async fn open(
    house: &House,
    answers: Vec<Answer>,
) -> (HostedSession, Arc<std::sync::Mutex<Vec<convoke_adk::LlmRequest>>>) {
    let (factory, requests) = house.factory(answers);
    let mut session = house.new_session("s-one");
    session.approval_mode = Some(convoke_protocol::ApprovalMode::Yolo);
    (factory.new_session(session).await.unwrap(), requests)
}

fn custom<'a>(events: &'a [Arc<AgentEvent>], kind: &str) -> Option<&'a serde_json::Value> {
    events.iter().find_map(|event| match &event.body {
        AgentEventBody::Custom { kind: found, data } if found == kind => data.as_ref(),
        _ => None,
    })
}

#[tokio::test]
async fn the_model_forgets_what_was_taken_back_and_files_are_what_they_were() {
    let house = House::new();
    let answers = vec![
        write("a.txt", "two\n"),
        says("done"),
        shell("echo three > a.txt; mkdir -p d && echo new > d/new.txt"),
        says("done again"),
        says("hello"),
    ];
    let (session, requests) = open(&house, answers).await;
    say(&session, "first").await;
    say(&session, "second").await;
    assert!(house.work().join("d/new.txt").exists());
    let points = session.control.rewind_points().await.unwrap();
    let sketch: Vec<_> = points.iter().map(|point| (point.number, point.prompt.as_str(), point.files_total)).collect();
    assert_eq!(sketch, [(1, "first", 3), (2, "second", 3)]);
    assert_eq!((points[1].turn.files, points[1].turn.added, points[1].turn.removed), (3, 2, 1));
    assert_eq!(points[1].lasting[0].kind, "command");
    assert!(points[0].lasting[0].what.starts_with("echo three"), "{:?}", points[0].lasting);

    let mut heard = Box::pin(session.agent.log().subscribe());
    let outcome = session.control.rewind(to(&points[1].id, RewindWhat::Both)).await;
    let RewindOutcome::Done(rewound) = outcome else { panic!("{outcome:?}") };
    assert_eq!((rewound.number, rewound.prompt.as_str(), rewound.files.len()), (2, "second", 3));
    assert_eq!(std::fs::read_to_string(house.work().join("a.txt")).unwrap(), "two\n");
    assert!(!house.work().join("d").exists());
    let told = [heard.next().await.unwrap(), heard.next().await.unwrap()];
    assert!(matches!(told[0].body, AgentEventBody::SessionUpdate { .. }));
    assert_eq!(custom(&told, "session_rewound").unwrap()["messageId"], json!(points[1].id));

    let before = sent(&requests.lock().unwrap()[2]);
    say(&session, "third").await;
    let after = sent(requests.lock().unwrap().last().unwrap());
    assert_eq!(after.len(), before.len());
    assert_eq!(after[..before.len() - 1], before[..before.len() - 1], "what stays is what it was, to the letter");
    assert_eq!(after.last().unwrap()["parts"], json!([{"text": "third"}]));
    session.control.close().await;

    // The record says the same to whoever opens it.
    let (factory, requests) = house.factory(vec![says("yes")]);
    let loaded = house.load(&factory, "s-one", &house.work()).await.unwrap();
    say(&loaded.session, "fourth").await;
    let went_on = sent(&requests.lock().unwrap()[0]);
    assert_eq!(went_on[..after.len()], after);
    let points = loaded.session.control.rewind_points().await.unwrap();
    assert_eq!(points.iter().map(|point| point.prompt.as_str()).collect::<Vec<_>>(), ["first", "third", "fourth"]);
    assert!(matches!(loaded.session.control.rewind(to("1", RewindWhat::Both)).await, RewindOutcome::Done(_)));
    assert_eq!(std::fs::read_to_string(house.work().join("a.txt")).unwrap(), "one\n");
}

#[tokio::test]
async fn a_prompt_asks_for_it_too_and_a_session_without_a_past_begins_anew() {
    let house = House::new();
    let (session, requests) = open(&house, vec![write("a.txt", "two\n"), says("done"), says("anew")]).await;
    let none = say(&session, "/rewind").await;
    assert!(sketch(&none).contains(&"message There is nothing to go back to.".to_owned()));
    say(&session, "first").await;
    let listed = sketch(&say(&session, "/rewind").await).join("\n");
    assert!(listed.contains("1. first") && listed.contains("a.txt"), "{listed}");
    for wrong in ["/rewind 7", "/rewind 1 everything"] {
        let refused = sketch(&say(&session, wrong).await);
        assert!(refused.last().unwrap().contains("Failed"), "{refused:?}");
    }
    std::fs::write(house.work().join("a.txt"), "by hand").unwrap();
    let refused = sketch(&say(&session, "/rewind 1").await).join("\n");
    assert!(refused.contains("changed since by somebody else"), "{refused}");
    let done = say(&session, "/rewind 1 force").await;
    assert_eq!(custom(&done, "session_rewound").unwrap()["what"], "both");
    assert_eq!(std::fs::read_to_string(house.work().join("a.txt")).unwrap(), "one\n");
    say(&session, "again").await;
    let last = sent(requests.lock().unwrap().last().unwrap());
    assert_eq!(last.len(), 1, "{last:?}");
    let text = last[0]["parts"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("<session_context>"), "it begins as a new session does: {text}");
}

#[tokio::test]
async fn a_turn_that_runs_keeps_the_way_back_closed() {
    let house = House::new();
    let (session, _) = open(&house, vec![says("one")]).await;
    say(&session, "first").await;
    let view = AgentSession::new(session.agent.clone());
    let mut stream = view.send_stream(AgentSend::Message(SendMessage::text("never answered"))).await.unwrap().boxed();
    stream.next().await.unwrap();
    assert_eq!(session.control.rewind(to("1", RewindWhat::Both)).await, RewindOutcome::Busy);
    assert_eq!(session.control.branch(None).await, BranchOutcome::Busy);
    session.agent.abort().await;
    assert!(matches!(session.control.rewind(to("2", RewindWhat::Both)).await, RewindOutcome::Done(_)));
    assert_eq!(session.control.rewind(to("2", RewindWhat::Both)).await, RewindOutcome::UnknownPoint);
}

#[tokio::test]
async fn a_branch_goes_on_by_itself() {
    let house = House::new();
    let (session, _) = open(&house, vec![says("one"), says("two")]).await;
    say(&session, "first").await;
    say(&session, "second").await;
    let BranchOutcome::Branched { session: id, .. } = session.control.branch(Some("2")).await else {
        panic!("there is a branch")
    };
    let (factory, requests) = house.factory(vec![says("other")]);
    let loaded = house.load(&factory, id.as_str(), &house.work()).await.unwrap();
    assert_eq!(loaded.title.as_deref(), Some("first (branch)"));
    say(&loaded.session, "elsewhere").await;
    let request = sent(&requests.lock().unwrap()[0]);
    assert_eq!(request.len(), 3, "{request:?}");
    assert_eq!(session.control.rewind_points().await.unwrap().len(), 2);
}
