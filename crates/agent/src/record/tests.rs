use std::path::{Path, PathBuf};
use std::sync::Arc;

use convoke_adk::{
    Content, Event, FunctionCall, FunctionResponse, InMemorySessionService, LiveSession, Part, Role, SessionKey,
    SessionService,
};
use convoke_tools::{CallRecord, CallResult, CallStatus, Kind, NoObserver, ResultDisplay, SchedulerObserver};
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::file::RecordFile;
use super::recorder::About;
use super::*;
use crate::{HistoryListener, MaskedOutput, NoHistoryListener};

/// What happens in a conversation.
#[derive(Clone, Debug)]
enum Step {
    Prompt(String),
    /// Text, and the results of calls that it makes.
    Answer(String, Vec<String>),
    Nudge(String),
    Mask(usize),
    Compress(usize),
    Title(String),
    TurnOver,
}

fn step() -> impl Strategy<Value = Step> {
    let text = "[ -~\n\"é🙂#,{}]{0,60}";
    prop_oneof![
        3 => text.prop_map(Step::Prompt),
        4 => (text, prop::collection::vec(text, 0..3)).prop_map(|(text, calls)| Step::Answer(text, calls)),
        1 => text.prop_map(Step::Nudge),
        1 => any::<usize>().prop_map(Step::Mask),
        1 => any::<usize>().prop_map(Step::Compress),
        1 => text.prop_map(Step::Title),
        2 => Just(Step::TurnOver),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..12).prop_map(|mut steps| {
        steps.insert(0, Step::Prompt("begin".into()));
        steps
    })
}

/// Places in a file whose length is not known yet.
fn places() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 40)
}

/// A session and its record, driven by hand.
struct Desk {
    dir: tempfile::TempDir,
    recorder: Recorder,
    sessions: Arc<dyn SessionService>,
    calls: Arc<dyn SchedulerObserver>,
    history: Arc<dyn HistoryListener>,
    live: LiveSession,
    number: u64,
}

fn record(name: &str, id: &str, output: &str) -> CallRecord {
    let call = FunctionCall { id: Some(id.into()), name: name.into(), args: json!({"x": 1}) };
    CallRecord {
        call_id: id.into(),
        original: None,
        status: CallStatus::Success,
        display_name: "Name".into(),
        description: "what".into(),
        kind: Kind::Read,
        locations: Vec::new(),
        live: None,
        decision: None,
        result: Some(CallResult {
            response: FunctionResponse::output(&call, output),
            parts: vec![Part::inline_data("image/png", "AAAA")],
            display: ResultDisplay::Text(output.to_owned()),
            summary: None,
            error_type: None,
            data: None,
            output_file: None,
            content_length: output.len(),
            ran: true,
        }),
        call,
    }
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chats/session-x.jsonl");
        let about = About { session_id: "0123-4567".into(), cwd: "/work".into(), started_ms: 5, subagent: false };
        let recorder = Recorder::new(about, [path, dir.path().join("taken.jsonl")]);
        Self::with(dir, recorder, Vec::new())
    }

    fn with(dir: tempfile::TempDir, recorder: Recorder, events: Vec<Event>) -> Self {
        let inner: Arc<dyn SessionService> = Arc::new(InMemorySessionService::default());
        let live = inner.create(SessionKey::default(), Map::new(), 0).unwrap();
        live.with(|session| session.events = events);
        let sessions = recorder.sessions(inner);
        let calls = recorder.observer(Arc::new(NoObserver));
        let history = recorder.history(Arc::new(NoHistoryListener));
        Self { dir, recorder, sessions, calls, history, live, number: 0 }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("chats/session-x.jsonl")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap_or_default()
    }

    fn event(&mut self, author: &str, role: Role, parts: Vec<Part>) {
        self.number += 1;
        let event = Event {
            id: format!("event-{}", self.number),
            author: author.into(),
            timestamp_ms: 1_700_000_000_000 + self.number,
            content: Some(Arc::new(Content { role, parts })),
            ..Event::default()
        };
        self.sessions.append(&self.live, event);
    }

    /// Each response: its event, its call's id, and which of that id it is there.
    fn responses(&self) -> Vec<(String, String, usize)> {
        self.live.with(|session| {
            let of_event = |event: &Event| {
                let parts = event.content.iter().flat_map(|content| content.parts.iter());
                let ids: Vec<String> = parts.filter_map(|part| Some(part.response_id()??.to_owned())).collect();
                let ordinal = |at: usize| ids[..at].iter().filter(|id| **id == ids[at]).count();
                (0..ids.len()).map(|at| (event.id.clone(), ids[at].clone(), ordinal(at))).collect::<Vec<_>>()
            };
            session.events.iter().flat_map(of_event).collect()
        })
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Prompt(text) => {
                let text = format!("prompt {text}");
                self.recorder.prompt(vec![Part::text(&text)], None);
                let context = Part::text("<session_context>here</session_context>");
                self.event("user", Role::User, vec![context, Part::text(text)]);
            }
            Step::Nudge(text) => self.event("user", Role::User, vec![Part::text(text)]),
            Step::Answer(text, outputs) => {
                let mut said = Part::text(text);
                said.raw_mut().insert("thoughtSignature".into(), "signed".into());
                let mut parts = vec![Part::thought("hm"), said];
                // Ids of some servers are the same each time.
                let records: Vec<CallRecord> = outputs
                    .iter()
                    .enumerate()
                    .map(|(i, output)| record("tool", &format!("call_{i}"), output))
                    .collect();
                parts.extend(records.iter().map(|record| Part::call(&record.call)));
                self.event(AGENT, Role::Model, parts);
                // They end in any order.
                records.iter().rev().for_each(|record| self.calls.on_change(record));
                let results: Vec<&CallResult> = records.iter().filter_map(|record| record.result.as_ref()).collect();
                let mut parts: Vec<Part> = results.iter().map(|result| Part::response(&result.response)).collect();
                parts.extend(results.iter().flat_map(|result| result.parts.clone()));
                if !parts.is_empty() {
                    self.event(AGENT, Role::User, parts);
                }
            }
            Step::Mask(pick) => {
                let responses = self.responses();
                if let Some((event_id, id, ordinal)) = responses.get(pick % responses.len().max(1)).cloned() {
                    let response = json!({"output": "<tool_output_masked>"});
                    let masked = MaskedOutput {
                        event_id: event_id.clone(),
                        call_id: Some(id.clone()),
                        ordinal,
                        replacement: FunctionResponse {
                            id: Some(id.clone()),
                            name: "tool".into(),
                            response: response.clone(),
                        },
                        file: "/tmp/file".into(),
                    };
                    self.history.masked("s", &masked);
                    self.live.with(|session| {
                        let event = session.events.iter_mut().find(|event| event.id == event_id).unwrap();
                        let parts = Arc::make_mut(event.content.as_mut().unwrap()).parts.iter_mut();
                        let mut found = parts.filter(|part| part.response_id() == Some(Some(id.as_str())));
                        let part = found.nth(ordinal).unwrap();
                        part.raw_mut()["functionResponse"]["response"] = response;
                    });
                }
            }
            Step::Compress(pick) => {
                self.number += 1;
                let summary = Event {
                    id: format!("event-{}", self.number),
                    author: "user".into(),
                    content: Some(Arc::new(Content::user("what was before"))),
                    ..Event::default()
                };
                let kept = self.live.with(|session| {
                    // As it is done: a cut comes before what a person wrote.
                    let starts: Vec<usize> = (0..session.events.len())
                        .filter(|at| session.events[*at].author == "user" && *at > 0)
                        .chain([session.events.len()])
                        .collect();
                    let at = starts[pick % starts.len()];
                    let first_kept = session.events.get(at).map(|event| event.id.clone());
                    session.events.splice(..at, [summary.clone()]);
                    first_kept
                });
                self.recorder.compressed(&[summary], kept.as_deref());
            }
            Step::Title(text) => self.recorder.title(text),
            Step::TurnOver => self.recorder.turn_written(),
        }
    }
}

/// What a session remembers, without what a record does not have.
fn memory(events: &[Event]) -> Vec<(String, String, u64, Option<Content>)> {
    let entry =
        |event: &Event| (event.id.clone(), event.author.clone(), event.timestamp_ms, event.content.as_deref().cloned());
    events.iter().map(entry).collect()
}

fn read(bytes: &[u8]) -> Conversation {
    Conversation::read(&bytes).unwrap()
}

/// A conversation without what is said about damage.
fn healed(bytes: &[u8]) -> Conversation {
    // Dates follow from the lines that are there.
    Conversation { damaged: 0, torn: false, ours: true, updated_ms: None, version: 0, ..read(bytes) }
}

/// What the file says after each of its lines.
fn states(bytes: &[u8]) -> Vec<(usize, Conversation)> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends).map(|end| (end, healed(&bytes[..end]))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_was_recorded_comes_back(steps in steps()) {
        let mut desk = Desk::new();
        steps.iter().for_each(|step| desk.take(step));
        let loaded = read(&desk.bytes());
        prop_assert_eq!((loaded.damaged, loaded.torn), (0, false));
        prop_assert_eq!(memory(&loaded.clone().into_events(AGENT)), desk.live.with(|session| memory(&session.events)));
        let prompts = steps.iter().filter(|step| matches!(step, Step::Prompt(_))).count();
        prop_assert_eq!(loaded.messages().iter().filter(|message| message.prompt().is_some()).count(), prompts);
    }

    /// The file is cut anywhere, and around each line's end: what a killed writer, or a lost disk, may leave.
    #[test]
    fn any_prefix_loads_and_loses_only_what_it_lacks(steps in steps(), anywhere in places()) {
        let mut desk = Desk::new();
        steps.iter().for_each(|step| desk.take(step));
        let bytes = desk.bytes();
        let states = states(&bytes);
        let ends = states.iter().flat_map(|(end, _)| [end.saturating_sub(1), *end, (end + 1).min(bytes.len())]);
        for cut in ends.chain(anywhere.iter().map(|at| at.index(bytes.len()))) {
            let (end, whole) = states.iter().rfind(|(end, _)| *end <= cut).unwrap();
            let read = healed(&bytes[..cut]);
            let next = states.iter().find(|(next, _)| *next == cut + 1);
            // A line that lacks nothing but its end is whole.
            prop_assert!(read == *whole || next.is_some_and(|(_, next)| read == *next), "cut at {cut}, behind {end}");
        }
    }

    /// One bit anywhere is turned.
    #[test]
    fn a_flipped_bit_costs_its_line_and_is_told(steps in steps(), bit in 0..8_u8, anywhere in places()) {
        let mut desk = Desk::new();
        steps.iter().for_each(|step| desk.take(step));
        let bytes = desk.bytes();
        let whole = healed(&bytes);
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at);
        for at in ends.chain(anywhere.iter().map(|at| at.index(bytes.len()))) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| at + end + 1);
            let without: Vec<u8> = bytes[..start].iter().chain(&bytes[end..]).copied().collect();
            let told = read(&damaged);
            let read = healed(&damaged);
            if read != whole {
                prop_assert_eq!(&read, &healed(&without), "byte {}", at);
                prop_assert!(told.damaged > 0 || told.torn, "byte {}", at);
            }
        }
    }

    /// A writer is killed at any byte; the next one goes on.
    #[test]
    fn a_killed_writer_costs_its_line_and_the_next_goes_on(steps in steps(), at in any::<prop::sample::Index>()) {
        let mut desk = Desk::new();
        steps.iter().for_each(|step| desk.take(step));
        let bytes = desk.bytes();
        let cut = at.index(bytes.len()) + 1;
        let before = healed(&bytes[..cut]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("killed.jsonl");
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let file = RecordFile::open(path.clone()).unwrap();
        let conversation = Conversation::read(&file.stored().unwrap()).unwrap();
        file.end_line().unwrap();
        let events = conversation.clone().into_events(AGENT);
        let about = About { session_id: "0123-4567".into(), cwd: "/work".into(), started_ms: 5, subagent: false };
        let mut next = Desk::with(dir, Recorder::resume(about, file, &conversation), events);
        next.number = 1000;
        let more = [Step::Prompt("go on".into()), Step::Answer("on it".into(), vec!["done".into()]), Step::TurnOver];
        more.iter().for_each(|step| next.take(step));
        let after = healed(&std::fs::read(&path).unwrap());
        prop_assert_eq!(&after.messages()[..before.messages().len()], before.messages());
        prop_assert_eq!(after.messages().len(), before.messages().len() + 2);
        prop_assert_eq!(memory(&after.clone().into_events(AGENT)), next.live.with(|session| memory(&session.events)));
    }
}

#[test]
fn a_result_is_written_once_and_the_file_grows_with_the_conversation() {
    let mut desk = Desk::new();
    let mut sizes = Vec::new();
    desk.take(&Step::Prompt("go".into()));
    for round in 0..40 {
        let output = format!("{round:04}{}", "result ".repeat(600));
        desk.take(&Step::Answer("next".into(), vec![output.clone()]));
        // The mask of an output of long ago.
        desk.take(&Step::Mask(round / 2));
        desk.take(&Step::TurnOver);
        let bytes = desk.bytes();
        assert_eq!(String::from_utf8_lossy(&bytes).matches(&output).count(), 1);
        sizes.push(bytes.len());
    }
    let (first, last) = (sizes[1] - sizes[0], sizes[39] - sizes[38]);
    assert!(last <= first + 64, "a round at the end adds {last} bytes, one at the beginning {first}");
}

#[test]
fn a_rewind_takes_a_compression_back_and_one_to_nowhere_changes_nothing() {
    let mut desk = Desk::new();
    let say = |desk: &mut Desk, text: &str| {
        desk.take(&Step::Prompt(text.into()));
        desk.take(&Step::Answer(format!("to {text}"), Vec::new()));
    };
    say(&mut desk, "one");
    say(&mut desk, "two");
    let before = read(&desk.bytes());
    desk.take(&Step::Compress(0));
    say(&mut desk, "three");
    let mut conversation = read(&desk.bytes());
    assert_ne!(conversation.clone().into_events(AGENT), before.clone().into_events(AGENT));
    assert!(!conversation.rewind_to("nowhere"));
    assert_eq!(conversation.messages().len(), 6);
    let three = conversation.messages()[4].id().to_owned();
    assert!(conversation.rewind_to(&three));
    assert_eq!(conversation.clone().into_history().next().unwrap().parts(), [Part::text("what was before")]);
    let two = conversation.messages()[2].id().to_owned();
    assert!(conversation.rewind_to(&two));
    assert_eq!(memory(&conversation.clone().into_events(AGENT)), memory(&before.clone().into_events(AGENT)[..2]));
    let mut bytes = desk.bytes();
    bytes.extend(br#"{"$rewindTo":"nobody"}"#);
    assert_eq!(healed(&bytes).messages().len(), 6);
}

#[tokio::test]
async fn a_full_disk_ends_the_recording_with_one_warning() {
    let file = RecordFile::open("/dev/full".into()).unwrap();
    let about = About { session_id: "s".into(), cwd: "/work".into(), started_ms: 5, subagent: false };
    let recorder = Recorder::resume(about, file, &Conversation::default());
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    recorder.on_stopped(move |message| sink.lock().unwrap().push(message));
    let mut desk = Desk::with(tempfile::tempdir().unwrap(), recorder, Vec::new());
    desk.take(&Step::Prompt("one".into()));
    desk.take(&Step::Answer("two".into(), vec!["three".into()]));
    desk.recorder.turn_over();
    assert!(desk.recorder.close().await);
    let told = told.lock().unwrap().clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("not recorded any further"), "{told:?}");
    assert_eq!(desk.live.with(|session| session.events.len()), 3);
}

/// A pipe takes what is written and refuses to be waited for, so whoever asks for the disk is heard.
#[tokio::test]
async fn the_disk_is_waited_for_at_the_end_of_each_turn_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe.jsonl");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let about = About { session_id: "s".into(), cwd: "/work".into(), started_ms: 5, subagent: false };
    let recorder = Recorder::resume(about, RecordFile::open(path).unwrap(), &Conversation::default());
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    recorder.on_stopped(move |message| sink.lock().unwrap().push(message));
    let mut desk = Desk::with(dir, recorder, Vec::new());
    desk.take(&Step::Prompt("one".into()));
    desk.take(&Step::Answer("two".into(), vec!["three".into()]));
    desk.take(&Step::TurnOver);
    assert_eq!(told.lock().unwrap().len(), 0, "written, and left to the kernel");
    desk.recorder.turn_over();
    let heard = async {
        while told.lock().unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), heard).await.expect("nobody asked for the disk");
}

fn their_file() -> Vec<u8> {
    let response = json!({"functionResponse": {"id": "w1", "name": "write_file", "response": {"output": "made"}}});
    let call = json!({"id": "w1", "name": "write_file", "args": {"content": "x"}, "result": [response], "status": "success",
        "displayName": "WriteFile", "resultDisplay": {"fileName": "a.txt", "originalContent": null, "newContent": "x"}});
    let answer = json!({"id": "A", "timestamp": "2026-05-01T10:00:02.000Z", "type": "gemini", "content": "writing",
        "thoughts": [{"subject": "Plan", "description": "write it", "timestamp": "2026-05-01T10:00:02.000Z"}],
        "tokens": {"input": 10, "output": 5, "cached": 0, "thoughts": 0, "tool": 0, "total": 15}, "model": "gemini-2.5-flash"});
    let mut again = answer.clone();
    again["toolCalls"] = json!([call]);
    let lines = [
        json!({"sessionId": "aaaabbbb-0000", "projectHash": "ff", "startTime": "2026-05-01T10:00:00.000Z", "kind": "main"}),
        json!({"$set": {"messages": [{"id": "c", "timestamp": "2026-05-01T10:00:00.000Z", "type": "user",
            "content": [{"text": "<session_context>today"}]}]}}),
        json!({"id": "q", "timestamp": "2026-05-01T10:00:01.000Z", "type": "user", "content": "/help"}),
        json!({"id": "U", "timestamp": "2026-05-01T10:00:01.000Z", "type": "user", "content": [{"text": "hi there"}]}),
        answer,
        json!({"id": "i", "type": "info", "content": "for the screen"}),
        again,
        json!({"id": "R", "type": "user", "content": [response]}),
        json!({"id": "B", "timestamp": "2026-05-01T10:00:03.000Z", "type": "gemini", "content": [{"text": "done now"}]}),
        json!({"$rewindTo": "unknown"}),
        json!({"$set": {"lastUpdated": "2026-05-01T10:00:04.000Z"}}),
    ];
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn check_theirs(conversation: &Conversation) {
    assert_eq!(conversation.session_id.as_deref(), Some("aaaabbbb-0000"));
    assert_eq!(conversation.title().as_deref(), Some("hi there"));
    assert_eq!(conversation.message_count(), 3);
    let events = conversation.clone().into_events(AGENT);
    let said: Vec<(&str, &str, Value)> = events
        .iter()
        .map(|event| (event.id.as_str(), event.author.as_str(), json!(event.content.as_ref().unwrap().parts)))
        .collect();
    let call = json!({"functionCall": {"id": "w1", "name": "write_file", "args": {"content": "x"}}});
    let response = json!({"functionResponse": {"id": "w1", "name": "write_file", "response": {"output": "made"}}});
    assert_eq!(
        said,
        [
            ("c", "user", json!([{"text": "<session_context>today"}])),
            ("U", "user", json!([{"text": "hi there"}])),
            ("A", "convoke", json!([{"text": "writing"}, call])),
            ("A-results", "convoke", json!([response])),
            ("B", "convoke", json!([{"text": "done now"}])),
        ]
    );
    assert_eq!(events[2].usage.as_ref().unwrap().total_token_count, 15);
    assert_eq!(events[2].actions.custom_metadata["tokens"]["input"], 10);
    assert_eq!(events[2].actions.custom_metadata["thoughts"][0]["subject"], "Plan");
    assert_eq!(events[2].invocation_id, "e-U");
    assert_eq!(events[2].timestamp_ms, 1_777_629_602_000);
    assert!(events.iter().all(|event| !event.partial));
}

#[test]
fn files_of_gemini_cli_load_in_both_formats() {
    let conversation = read(&their_file());
    check_theirs(&conversation);
    // The rewind to a message that is not there.
    assert_eq!(conversation.damaged, 1);
    let text = String::from_utf8(their_file()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<Value> =
        [&lines[1]["$set"]["messages"][0]].into_iter().chain(&lines[2..4]).chain(&lines[5..9]).cloned().collect();
    let mut old = lines[0].clone();
    old["messages"] = json!(messages);
    check_theirs(&read(serde_json::to_string_pretty(&old).unwrap().as_bytes()));
    check_theirs(&read(old.to_string().as_bytes()));
}

fn records(dir: &Path) -> Records {
    Records::new(RecordOptions {
        folder: dir.join(".convoke/tmp"),
        read_folders: vec![dir.join(".gemini/tmp")],
        outputs: Some(dir.join("outputs")),
        retention: Some(Retention::default()),
    })
}

#[test]
fn a_foreign_session_is_copied_and_its_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(dir.path());
    let theirs = dir.path().join(".gemini/tmp/slug/chats/session-2026-05-01T10-00-aaaabbbb.jsonl");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, their_file()).unwrap();
    std::fs::write(dir.path().join(".gemini/tmp/slug/.project_root"), dir.path().display().to_string()).unwrap();
    let [listed] = &records.list(Some(dir.path()))[..] else { panic!("one session") };
    assert_eq!((listed.id.as_str(), listed.message_count), ("aaaabbbb-0000", 3));
    assert!(matches!(records.delete("aaaabbbb-0000"), Err(RecordError::NotOurs(_))));
    assert!(records.load("aaaabbbb-0000", Path::new("/elsewhere")).is_err());
    let loaded = records.load("aaaabbbb-0000", dir.path()).unwrap();
    check_theirs(&loaded.conversation);
    // Ours comes before theirs from now on, and is open.
    assert!(matches!(records.load("aaaabbbb-0000", dir.path()), Err(RecordError::Open(_))));
    assert!(matches!(records.delete("aaaabbbb-0000"), Err(RecordError::Open(_))));
    drop(loaded);
    assert_eq!(records.list(None).len(), 1);
    let again = records.load("aaaabbbb-0000", dir.path()).unwrap();
    check_theirs(&again.conversation);
    assert_eq!(std::fs::read(&theirs).unwrap(), their_file());
    let copy = records.load_file(&theirs, dir.path()).unwrap();
    assert_ne!(copy.session_id, "aaaabbbb-0000");
    assert_eq!(copy.conversation.clone().into_events(AGENT), again.conversation.clone().into_events(AGENT));
}

#[test]
fn a_copy_is_the_conversation_it_was_made_from() {
    let mut desk = Desk::new();
    let steps = [
        Step::Prompt("one".into()),
        Step::Answer("two".into(), vec!["a".into(), "b".into()]),
        Step::Mask(0),
        Step::Compress(0),
        Step::Prompt("three".into()),
        Step::Answer("four".into(), vec!["c".into()]),
        Step::Compress(0),
        Step::Title("Name".into()),
    ];
    steps.iter().for_each(|step| desk.take(step));
    let conversation = read(&desk.bytes());
    let dir = tempfile::tempdir().unwrap();
    let loaded = records(dir.path()).load_file(&desk.path(), dir.path()).unwrap();
    assert_eq!(loaded.conversation.clone().into_events(AGENT), conversation.clone().into_events(AGENT));
    assert_eq!(loaded.conversation.messages(), conversation.messages());
    assert_eq!(loaded.conversation.title().as_deref(), Some("Name"));
}

#[tokio::test]
async fn lists_read_the_ends_of_large_files_and_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(dir.path());
    let recorder = records.begin("0123456789", dir.path());
    let mut desk = Desk::with(tempfile::tempdir().unwrap(), recorder, Vec::new());
    desk.take(&Step::Prompt("the \n first\tprompt".into()));
    for _ in 0..10 {
        desk.take(&Step::Answer("text ".repeat(2000), vec!["out".into()]));
    }
    desk.take(&Step::TurnOver);
    let listed = records.list(Some(dir.path()));
    assert_eq!(listed[0].title.as_deref(), Some("prompt the first prompt"));
    assert_eq!((listed[0].message_count, listed[0].id.as_str()), (11, "0123456789"));
    assert_eq!(listed[0].cwd, dir.path());
    // In the middle of a turn the whole file is read.
    desk.take(&Step::Answer("more".into(), vec![]));
    assert_eq!(records.list(None)[0].message_count, 12);
    assert!(records.list(Some(Path::new("/elsewhere"))).is_empty());
    assert!(matches!(records.delete("0123456789"), Err(RecordError::Open(_))));
    std::fs::create_dir_all(dir.path().join("outputs/session-0123456789")).unwrap();
    assert!(desk.recorder.close().await);
    records.delete("0123456789").unwrap();
    assert!(records.list(None).is_empty());
    assert!(!dir.path().join("outputs/session-0123456789").exists());
    assert!(matches!(records.delete("0123456789"), Err(RecordError::Unknown(_))));
}

#[tokio::test]
async fn the_clean_up_spares_open_and_young_records() {
    let dir = tempfile::tempdir().unwrap();
    let records = records(dir.path());
    let mut desks = Vec::new();
    for id in ["open-one", "old-one", "young-one"] {
        let mut desk = Desk::with(tempfile::tempdir().unwrap(), records.begin(id, dir.path()), Vec::new());
        desk.take(&Step::Prompt(id.into()));
        std::fs::create_dir_all(dir.path().join("outputs").join(format!("session-{id}"))).unwrap();
        desks.push(desk);
    }
    let chats = &records.own_chats()[0];
    for path in chats::entries(chats) {
        if !path.display().to_string().contains("young") {
            let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(40 * 24 * 60 * 60);
            std::fs::File::open(&path).unwrap().set_modified(long_ago).unwrap();
        }
    }
    desks[1].recorder.close().await;
    // Closing writes the end of the turn, which is today.
    let old = chats::entries(chats).find(|path| path.display().to_string().contains("old")).unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(40 * 24 * 60 * 60);
    std::fs::File::open(&old).unwrap().set_modified(long_ago).unwrap();
    records.clean_up(&std::sync::atomic::AtomicBool::new(false));
    let mut left: Vec<String> = records.list(None).into_iter().map(|session| session.id.to_string()).collect();
    left.sort();
    assert_eq!(left, ["open-one", "young-one"]);
    assert!(!dir.path().join("outputs/session-old-one").exists());
    assert!(dir.path().join("outputs/session-open-one").exists());
}
