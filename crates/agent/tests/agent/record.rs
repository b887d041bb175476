//! Sessions that are recorded, and go on from their record.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use convoke_adk::{LlmRequest, Part};
use convoke_agent::{AgentFactory, AgentOptions, NoLifecycleHooks, RecordOptions};
use convoke_protocol::{
    AgentEvent, AgentSend, AgentSession, HostedSession, ListSessions, LoadFrom, LoadSession, LoadedSession, NewSession,
    SendMessage, SessionError, SessionFactory, SessionUpdate,
};
use futures::StreamExt;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::*;

/// A home and a workspace for any number of factories, each of which is a process's.
pub(crate) struct House {
    pub(crate) dir: tempfile::TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        std::fs::write(dir.path().join("work/a.txt"), "one\n").unwrap();
        Self { dir }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    pub(crate) fn factory(&self, answers: Vec<Answer>) -> (AgentFactory, Arc<Mutex<Vec<LlmRequest>>>) {
        let (options, requests) = options(answers, Arc::new(NoLifecycleHooks));
        let outputs = self.tmp().join("tool-outputs");
        let records = RecordOptions { folder: self.tmp(), outputs: Some(outputs.clone()), ..RecordOptions::default() };
        let options = AgentOptions { records: Some(records), output_folder: Some(outputs), ..options };
        (AgentFactory::new(options), requests)
    }

    pub(crate) fn new_session(&self, id: &str) -> NewSession {
        NewSession { session_id: Some(id.into()), ..new(self.work()) }
    }

    pub(crate) async fn load(
        &self,
        factory: &AgentFactory,
        id: &str,
        cwd: &Path,
    ) -> Result<LoadedSession, SessionError> {
        let load = LoadSession { from: LoadFrom::Session(id.into()), session: new(cwd.to_owned()), replay: true };
        factory.records().unwrap().load_session(load).await
    }

    /// The only record, one JSON object a line.
    pub(crate) fn record(&self) -> Vec<Value> {
        let projects = std::fs::read_dir(self.tmp()).unwrap().map(|entry| entry.unwrap().path().join("chats"));
        let chats = projects.into_iter().find(|chats| chats.is_dir()).unwrap();
        let [file] = &std::fs::read_dir(chats).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>()[..] else {
            unreachable!("one record")
        };
        std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

pub(crate) fn new(cwd: PathBuf) -> NewSession {
    NewSession::new(cwd, Arc::new(Asked(mpsc::channel(1).0)))
}

pub(crate) async fn say(session: &HostedSession, prompt: &str) -> Vec<Arc<AgentEvent>> {
    let view = AgentSession::new(session.agent.clone());
    let stream = view.send_stream(AgentSend::Message(SendMessage::text(prompt))).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(20), stream.collect()).await.expect("the stream must end")
}

/// A signature is the provider's, and must come back to it.
fn signed(text: &str) -> Part {
    let mut part = Part::text(text);
    part.raw_mut().insert("thoughtSignature".into(), "sig".into());
    part
}

fn one_turn_with_a_tool() -> Vec<Answer> {
    let read = call("read_file", json!({"file_path": "a.txt"}));
    let missing = call("read_file", json!({"file_path": "none.txt"}));
    let pieces = vec![piece(vec![Part::thought("hm")]), piece(vec![signed("Looking.")]), piece(vec![read, missing])];
    vec![pieces.into_iter().chain([stop()]).collect(), vec![text("It says one."), stop()]]
}

pub(crate) fn sent(request: &LlmRequest) -> Vec<Value> {
    request.contents.iter().map(|content| json!(content)).collect()
}

#[tokio::test]
async fn a_session_goes_on_in_another_process() {
    let house = House::new();
    let (factory, requests) = house.factory(one_turn_with_a_tool());
    let session = factory.new_session(house.new_session("s-one")).await.unwrap();
    say(&session, "what is in a.txt?").await;
    let first = requests.lock().unwrap()[1].clone();
    assert!(matches!(house.load(&factory, "s-one", &house.work()).await.err(), Some(SessionError::Open(_))));
    session.control.close().await;

    let (factory, requests) = house.factory(vec![vec![text("As I said."), stop()]]);
    let taken = factory.new_session(house.new_session("s-one")).await;
    assert!(matches!(taken.err(), Some(SessionError::Taken(_))));
    assert!(matches!(house.load(&factory, "nobody", &house.work()).await.err(), Some(SessionError::Unknown(_))));
    let elsewhere = house.load(&factory, "s-one", house.dir.path()).await.err();
    assert!(matches!(elsewhere, Some(SessionError::WrongFolder { .. })), "{elsewhere:?}");
    let page = factory.records().unwrap().list_sessions(ListSessions::default()).await.unwrap();
    assert_eq!(page.sessions[0].title.as_deref(), Some("what is in a.txt?"));
    assert_eq!((page.sessions.len(), page.sessions[0].message_count), (1, 3));

    let loaded = house.load(&factory, "s-one", &house.work()).await.unwrap();
    assert_eq!((loaded.damaged, loaded.title.as_deref()), (0, Some("what is in a.txt?")));
    let history: Vec<Arc<AgentEvent>> = loaded.history.into_iter().map(Arc::new).collect();
    assert_eq!(
        sketch(&history),
        [
            "message what is in a.txt?",
            "agent_start",
            "thought hm",
            "message Looking.",
            "tool_request read_file",
            "tool_response read_file",
            "tool_request read_file",
            "tool_response read_file error",
            "message It says one.",
            "agent_end Completed",
        ]
    );
    assert!(told(&history[5]).contains("one"), "{}", told(&history[5]));
    say(&loaded.session, "again").await;
    let went_on = sent(&requests.lock().unwrap()[0]);
    // What the model saw before, byte for byte, then its answer, then the new prompt without another context.
    assert_eq!(went_on[..3], sent(&first));
    assert_eq!(went_on[1]["parts"][1]["thoughtSignature"], "sig");
    assert_eq!(went_on[3]["parts"], json!([{"text": "It says one."}]));
    assert_eq!(went_on[4], json!({"role": "user", "parts": [{"text": "again"}]}));
    loaded.session.control.close().await;
    factory.records().unwrap().delete_session(&"s-one".into()).await.unwrap();
    assert_eq!(factory.records().unwrap().list_sessions(ListSessions::default()).await.unwrap().sessions, []);
}

/// Ids, times and checksums as words.
fn plain(mut line: Value, root: &str) -> Value {
    fn walk(value: &mut Value, root: &str) {
        match value {
            Value::String(text) => *text = text.replace(root, "/root"),
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, root)),
            Value::Object(map) => {
                for (key, value) in map {
                    let hides = matches!(
                        key.as_str(),
                        "timestamp" | "startTime" | "lastUpdated" | "#" | "projectHash" | "responses"
                    );
                    let is_id = key == "id" && !value.as_str().unwrap_or_default().starts_with("s-");
                    if hides || is_id { *value = json!(format!("<{key}>")) } else { walk(value, root) }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    walk(&mut line, root);
    line
}

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/record.golden.jsonl");

#[tokio::test]
async fn the_record_is_what_it_was() {
    let house = House::new();
    let (factory, _) = house.factory(one_turn_with_a_tool());
    let session = factory.new_session(house.new_session("s-golden")).await.unwrap();
    say(&session, "what is in a.txt?").await;
    let title = SessionUpdate { title: Some("A name".into()), ..SessionUpdate::default() };
    session.agent.send(AgentSend::Update(title)).await.unwrap();
    session.control.close().await;
    let root = house.dir.path().canonicalize().unwrap().display().to_string();
    let now: Vec<String> = house.record().into_iter().map(|line| plain(line, &root).to_string()).collect();
    let mut now = now;
    // Calls that run beside each other end in any order.
    now.chunk_by_mut(|a, b| [a, b].iter().all(|line| line.contains(r#""type":"tool""#))).for_each(<[String]>::sort);
    // The session's context has today's date in it.
    let mut now: Vec<String> = now
        .into_iter()
        .map(|line| match line.split_once("- Date: ") {
            Some((head, tail)) => format!("{head}- Date: <date>{}", &tail[10..]),
            None => line,
        })
        .collect();
    // The two calls run side by side and end in any order.
    let tools: Vec<usize> = (0..now.len()).filter(|at| now[*at].starts_with(r#"{"type":"tool""#)).collect();
    now[tools[0]..=tools[1]].sort();
    if std::env::var_os("CONVOKE_BLESS").is_some() {
        std::fs::write(GOLDEN, now.join("\n") + "\n").unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert_eq!(now, golden.lines().collect::<Vec<_>>(), "CONVOKE_BLESS=1 writes the new one");
}

#[tokio::test]
async fn a_session_without_a_prompt_leaves_nothing_and_one_with_keeps_its_output() {
    let house = House::new();
    let (factory, _) = house.factory(vec![vec![text("hi"), stop()]]);
    let silent = factory.new_session(house.new_session("s-silent")).await.unwrap();
    let spoken = factory.new_session(house.new_session("s-spoken")).await.unwrap();
    let folder = |id: &str| house.tmp().join("tool-outputs").join(format!("session-{id}"));
    for id in ["s-silent", "s-spoken"] {
        std::fs::create_dir_all(folder(id)).unwrap();
    }
    say(&spoken, "hi").await;
    silent.control.close().await;
    spoken.control.close().await;
    assert_eq!((folder("s-silent").exists(), folder("s-spoken").exists()), (false, true));
    assert_eq!(house.record()[0]["sessionId"], "s-spoken");
    factory.records().unwrap().delete_session(&"s-spoken".into()).await.unwrap();
    assert!(!folder("s-spoken").exists());
}

#[tokio::test]
async fn a_record_that_can_not_be_made_costs_one_notice_and_not_the_session() {
    let house = House::new();
    std::fs::write(house.tmp(), "a file in the way").unwrap();
    let (factory, _) = house.factory(vec![vec![text("one"), stop()], vec![text("two"), stop()]]);
    let session = factory.new_session(house.new_session("s-lost")).await.unwrap();
    let events = [say(&session, "a").await, say(&session, "b").await].concat();
    let sketch = sketch(&events);
    assert_eq!(sketch.iter().filter(|line| *line == "custom notice").count(), 1, "{sketch:?}");
    assert_eq!(sketch.iter().filter(|line| *line == "agent_end Completed").count(), 2);
    session.control.close().await;
}
