//! Random walks: a parent, children and grandchildren that do what dice say, people who answer in any order, late or
//! never, and an abort at any moment.
//!
//! What must hold whatever happens, checked in each walk:
//! - W1: each call is answered once, each thread begins and ends once ([`check`]).
//! - W2: a question names the agents that led to it, and its call is theirs.
//! - W3: nobody's time runs while somebody is asked: a question is withdrawn by an abort and by nothing else.
//! - W4: an abort reaches every level: nothing begins after it, no question stays open.
//! - W5: nothing is written without a yes; nobody is called deeper than may be.
//! - W6: each call is in the record, each run in one of its own.
//! - W7: nothing outlives the session.
//!
//! The dice are seeded, what they meet (which task is first) is not: a walk that fails fails again soon, not always.
//! `CONVOKE_WALKS=SEED..SEED` walks others.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convoke_adk::{Llm, LlmRequest, LlmResponse, ModelError, ModelErrorKind};
use convoke_agent::RecordOptions;
use convoke_protocol::{AgentEvent, AgentEventBody, PermissionOutcome};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cast::{Question, Stage, actor, calls, check, done, invoke, threads, write};
use crate::rig::{Answer, stop, text};

/// Walks of a run without further word: ten seconds of them.
const WALKS: std::ops::Range<u64> = 0..60;
/// How deep agents may call agents.
const DEPTH: usize = 2;
/// A run's time, in minutes and as it is: short, so that some use it up, and longer than a busy machine takes for a turn.
const TIMEOUT: &str = "0.006";
const TIMEOUT_MS: u64 = 360;

/// SplitMix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn agents(&mut self) -> Answer {
        let names: Vec<_> = (0..=self.roll(3)).map(|_| ["left", "right"][usize::from(self.roll(2) == 1)]).collect();
        invoke(&names)
    }

    fn writes(&mut self) -> Answer {
        let (tool, mut args) = write("");
        args["file_path"] = format!("{}.txt", self.roll(1 << 40)).into();
        calls(&[(tool, args)])
    }

    /// What an actor says next; `None` for nothing, ever.
    fn answer(&mut self, name: &str) -> Option<Answer> {
        let complete = |args: &[Value]| calls(&args.iter().map(|a| ("complete_task", a.clone())).collect::<Vec<_>>());
        Some(match (name, self.roll(100)) {
            ("main", 0..45) => self.agents(),
            ("main", 45..60) => self.writes(),
            ("main", _) => vec![text("Enough."), stop()],
            (_, 0..32) => done("found"),
            (_, 32..40) => complete(&[json!({"wrong": 1})]),
            (_, 40..45) => complete(&[json!({"result": "one"}), json!({"result": "two"})]),
            (_, 45..68) => self.writes(),
            (_, 68..77) => calls(&[("read_file", json!({"file_path": "a.txt"})), ("no_such_tool", json!({}))]),
            (_, 77..90) => self.agents(),
            (_, 90..95) => vec![text("I am done, I think."), stop()],
            (_, 95..98) => vec![Err(ModelError::new(ModelErrorKind::BadRequest, "no"))],
            (_, _) => return None,
        })
    }

    /// What a person says to a question.
    fn outcome(&mut self) -> PermissionOutcome {
        match self.roll(5) {
            0 => PermissionOutcome::Selected { option_id: "cancel".into() },
            1 => PermissionOutcome::Cancelled,
            _ => PermissionOutcome::Selected { option_id: "proceed_once".into() },
        }
    }
}

struct Fate(Mutex<Dice>);

impl Llm for Fate {
    fn model(&self) -> String {
        "fate-1".into()
    }

    fn generate(
        &self,
        request: LlmRequest,
        _: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        match self.0.lock().unwrap().answer(&actor(&request)) {
            Some(answer) => stream::iter(answer).boxed(),
            None => stream::pending().boxed(),
        }
    }
}

/// What the walks came by, so that a change that makes them tame is noticed.
#[derive(Default)]
struct Seen {
    ends: HashSet<String>,
    threads: usize,
    asked: usize,
    deepest: usize,
    aborted: usize,
    late: usize,
}

/// What became of the questions of a walk.
#[derive(Default)]
struct People {
    held: Vec<Question>,
    /// Of every question, its call and the agents that led to it.
    asked: Vec<(String, Vec<String>)>,
    allowed: HashSet<String>,
}

impl People {
    fn hear(&mut self, question: Question) {
        self.asked.push((question.0.tool_call_id.to_string(), question.0.origin.clone()));
        self.held.push(question);
    }

    /// Answers one of them, not the oldest in particular.
    fn answer(&mut self, dice: &mut Dice, aborted: bool, seed: u64) {
        let index = usize::try_from(dice.roll(self.held.len() as u64)).unwrap();
        let (request, answer) = self.held.swap_remove(index);
        let outcome = dice.outcome();
        if matches!(&outcome, PermissionOutcome::Selected { option_id } if option_id == "proceed_once") {
            self.allowed.insert(request.raw_input["file_path"].as_str().unwrap().to_owned());
        }
        let heard = answer.send(outcome).is_ok();
        assert!(heard || aborted, "W3, seed {seed}: {:?} asked and did not wait", request.origin);
    }
}

async fn walk(seed: u64, seen: &mut Seen) {
    let fate = Arc::new(Fate(Mutex::new(Dice(seed))));
    let alive = Arc::downgrade(&fate);
    let keys = format!("max_turns: 4\ntimeout_mins: {TIMEOUT}\n");
    let agents = [("left", keys.as_str()), ("right", keys.as_str())];
    let records = tempfile::tempdir().unwrap();
    let mut stage = Stage::of(fate, Arc::default(), &agents, |options| {
        options.max_turns = Some(6);
        options.subagents.depth_max = DEPTH;
        options.subagents.recovery_grace = Duration::from_millis(TIMEOUT_MS / 2);
        options.records = Some(RecordOptions { folder: records.path().to_owned(), ..RecordOptions::default() });
    })
    .await;
    let mut own = Dice(!seed);
    let abort_at = (own.roll(3) == 0).then(|| own.roll(80));
    let (mut people, mut moved, mut aborted) = (People::default(), 0, None);
    let mut log = stage.session.agent.log().subscribe();
    {
        let running = stage.send("go").await;
        futures::pin_mut!(running);
        loop {
            if abort_at == Some(moved) && aborted.is_none() {
                stage.session.agent.abort().await;
                aborted = Some(stage.session.agent.events().len());
            }
            tokio::select! {
                biased;
                Some(question) = stage.questions.recv() => people.hear(question),
                Some(_) = log.next() => moved += 1,
                event = running.next() => if event.is_none() { break },
                () = tokio::task::yield_now(), if !people.held.is_empty() => {
                    if own.roll(12) == 0 {
                        // Longer than anybody's time: it must not run.
                        seen.late += 1;
                        tokio::time::sleep(Duration::from_millis(TIMEOUT_MS * 3 / 2)).await;
                    }
                    people.answer(&mut own, aborted.is_some(), seed);
                }
            }
        }
    }
    while let Ok(question) = stage.questions.try_recv() {
        people.hear(question);
    }
    let open = people.held.iter().filter(|(_, answer)| !answer.is_closed()).count();
    assert_eq!(open, 0, "W4, seed {seed}: a question outlived its asker");
    let all = stage.session.agent.events();
    check(&all);
    after_abort(&all, aborted, seed);
    asked_rightly(&all, &people, seed);
    for entry in std::fs::read_dir(stage.path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = ["sub", "AGENTS.md", "a.txt"].contains(&name.as_str());
        assert!(known || people.allowed.contains(&name), "W5, seed {seed}: {name} was written without a yes");
    }
    count(&all, &people, seen);
    stage.session.control.close().await;
    recorded(&all, records.path(), seed);
    drop((log, stage));
    let gone = async {
        while alive.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
    assert!(gone.is_ok(), "W7, seed {seed}: something outlived the session");
}

fn after_abort(all: &[Arc<AgentEvent>], aborted: Option<usize>, seed: u64) {
    let Some(at) = aborted else { return };
    let main = all.iter().rev().find(|event| event.thread_id.is_none());
    let Some(AgentEventBody::AgentEnd { reason, .. }) = main.map(|event| &event.body) else { return };
    if format!("{reason:?}") != "Aborted" {
        // It was over already.
        return;
    }
    for event in &all[at..] {
        assert!(!matches!(event.body, AgentEventBody::AgentStart), "W4, seed {seed}: begun after the abort: {event:?}");
    }
}

/// The agents that led to each thread.
fn paths(all: &[Arc<AgentEvent>]) -> BTreeMap<String, Vec<String>> {
    let start = |event: &&Arc<AgentEvent>| matches!(event.body, AgentEventBody::AgentStart);
    let path = |event: &Arc<AgentEvent>| {
        let path = serde_json::from_value(event.meta.get("agentPath")?.clone()).unwrap();
        Some((event.thread_id.clone()?, path))
    };
    all.iter().filter(start).filter_map(path).collect()
}

fn asked_rightly(all: &[Arc<AgentEvent>], people: &People, seed: u64) {
    let paths = paths(all);
    for (call, origin) in &people.asked {
        let of_call = call.rsplit_once('/').map(|(thread, _)| paths[thread].clone()).unwrap_or_default();
        assert_eq!(&of_call, origin, "W2, seed {seed}: {call}");
    }
    assert!(paths.values().all(|path| path.len() <= DEPTH), "W5, seed {seed}: {paths:?}");
}

fn recorded(all: &[Arc<AgentEvent>], folder: &Path, seed: u64) {
    let mut files = BTreeMap::new();
    read_all(folder, &mut files);
    for (thread, events) in threads(all) {
        let name = if thread.is_empty() { "-s.jsonl".to_owned() } else { format!("{thread}.jsonl") };
        let text: String =
            files.iter().filter(|(path, _)| path.ends_with(&name)).map(|(_, text)| text.as_str()).collect();
        for event in events {
            let AgentEventBody::ToolRequest { request_id, name: tool, .. } = &event.body else { continue };
            let id = request_id.as_str().rsplit('/').next().unwrap();
            assert!(text.contains(id), "W6, seed {seed}: {tool} {id} of '{thread}' is not in {:?}", files.keys());
        }
    }
}

fn read_all(folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, files);
        } else {
            files.insert(path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

fn count(all: &[Arc<AgentEvent>], people: &People, seen: &mut Seen) {
    seen.asked += people.asked.len();
    seen.deepest = seen.deepest.max(people.asked.iter().map(|(_, origin)| origin.len()).max().unwrap_or(0));
    for (thread, events) in threads(all) {
        let AgentEventBody::AgentEnd { reason, data } = &events.last().unwrap().body else { continue };
        if thread.is_empty() {
            seen.aborted += usize::from(format!("{reason:?}") == "Aborted");
            continue;
        }
        seen.threads += 1;
        let data = data.clone().unwrap();
        let recovered = data["recoveredFrom"].as_str().map_or("", |_| " recovered");
        seen.ends.insert(format!("{}{recovered}", data["terminateReason"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn whatever_happens_everything_ends_once_and_nothing_is_done_without_a_yes() {
    let wanted = std::env::var("CONVOKE_WALKS").ok();
    let others = wanted.as_deref().and_then(|text| text.split_once(".."));
    let walks = others.map_or(WALKS, |(from, to)| from.parse().unwrap()..to.parse().unwrap());
    let mut seen = Seen::default();
    for seed in walks {
        let step = tokio::time::timeout(Duration::from_secs(60), walk(seed, &mut seen));
        assert!(step.await.is_ok(), "seed {seed} came to no end");
    }
    if others.is_some() {
        return;
    }
    for end in ["GOAL", "GOAL recovered", "MAX_TURNS", "TIMEOUT", "ERROR", "ABORTED"] {
        assert!(seen.ends.contains(end), "{end} never happened: {:?}", seen.ends);
    }
    assert_eq!(seen.deepest, DEPTH);
    let counted = (seen.threads, seen.asked, seen.aborted, seen.late);
    assert!(counted.0 > 60 && counted.1 > 40 && counted.2 > 4 && counted.3 > 2, "{counted:?}");
}
