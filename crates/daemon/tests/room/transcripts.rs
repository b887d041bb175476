//! Recorded requests and answers of the peer, replayed.
//!
//! `golden/*.json` are the parts of its transcripts that concern our routes: one step a line, with `n` its number in the
//! recording. `<uN>` stands for an id that is bound where it first comes up, `<time>`, `<ms>` (any
//! number), `<port>` and `<workspace>` for what differs from run to run. Where we answer otherwise on purpose, [`DIFFERENCES`] says so.

use std::collections::{BTreeMap, VecDeque};

use convoke_daemon::{DaemonOptions, TokenOption};
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Events, Extra};
use crate::rig::{Rig, request_id};

/// What differs on purpose: transcript, step, field (empty for the whole answer), our status, and why.
const DIFFERENCES: &[(&str, u32, &str, u16, &str)] = &[
    ("02", 8, "error", 400, "a daemon has one workspace, so there is no other one to register or select"),
    ("02", 36, "requestedWorkspace", 400, "the recording's paths were renamed in the body, not in the request"),
    ("02", 45, "allowed", 400, "our agent has no mode `auto`"),
    ("03", 27, "", 404, "an unregistered id must not learn that a request was known, not even once it is resolved"),
];

/// Fields that the peer adds for features which are not part of this wire's core.
const PEER_ONLY: &[&str] = &["hasRunningBackgroundTasks"];

/// Fields that we add where the peer does not: the code that tells a registered late voter from a wrong id, when a
/// session last changed, and the modes in the state of a live session that is joined.
const OURS_ONLY: &[&str] = &["code", "updatedAt", "modes"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    n: u32,
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    raw: Option<String>,
    status: u16,
    retry_after: Option<String>,
    #[serde(default)]
    reply_headers: BTreeMap<String, String>,
    expect: Option<Value>,
}

struct Replay {
    rig: Rig,
    name: &'static str,
    /// Values of placeholders.
    bound: BTreeMap<String, String>,
    /// A stream of each session, by id, in the order of their creation.
    streams: Vec<(String, Events)>,
    /// Requests that were seen and not yet voted on.
    asked: VecDeque<String>,
    running: bool,
}

impl Replay {
    async fn new(name: &'static str, change: impl FnOnce(&mut DaemonOptions)) -> Self {
        let rig = Rig::with(change).await;
        let workspace = rig.workspace.display().to_string();
        let bound = BTreeMap::from([
            ("<workspace-encoded>".to_owned(), workspace.replace('/', "%2F")),
            ("<workspace>".to_owned(), workspace),
            ("<port>".to_owned(), rig.client.address.port().to_string()),
        ]);
        Self { rig, name, bound, streams: Vec::new(), asked: VecDeque::new(), running: false }
    }

    /// Replays steps. With `settle`, a prompt waits for the end of the one before, as the recording did.
    async fn run(&mut self, text: &str, settle: bool) {
        let steps: Vec<Step> = serde_json::from_str(text).unwrap();
        for step in &steps {
            self.step(step, settle).await;
        }
    }

    async fn step(&mut self, step: &Step, settle: bool) {
        let prompts = step.path.ends_with("/prompt") && step.status == 202;
        if prompts && settle && std::mem::replace(&mut self.running, true) {
            self.stream_of(&self.fill(&step.path)).until("turn_complete").await;
        }
        if step.path.contains("/permission/") && step.path.rsplit('/').next().is_some_and(|id| id.starts_with('<')) {
            self.bind_request(&step.path).await;
        }
        let path = self.fill(&step.path);
        let headers: Vec<_> = step.headers.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect();
        let body = step.raw.clone().or_else(|| step.body.as_ref().map(|body| self.fill(&body.to_string())));
        let extra =
            Extra { headers: headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(), body };
        let answer = self.rig.client.send(&step.method, &path, extra).await;
        let at = format!("{} step {}: {} {path}", self.name, step.n, step.method);
        let difference = DIFFERENCES.iter().find(|(name, n, ..)| *name == self.name && *n == step.n);
        let status = difference.map_or(step.status, |(_, _, _, status, _)| *status);
        assert_eq!(answer.status, status, "{at}: {}", answer.text());
        for (name, value) in &step.reply_headers {
            assert_eq!(answer.header(name), Some(value.as_str()), "{at}: {name}");
        }
        assert_eq!(answer.header("retry-after"), step.retry_after.as_deref(), "{at}");
        let skipped = difference.map(|(_, _, field, ..)| *field);
        if let Some(expected) = step.expect.as_ref().filter(|_| skipped != Some("")) {
            let actual = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Value::String(answer.text()));
            self.compare(expected, &actual, skipped, &at);
        }
        if step.path == "/session" && step.status == 200 && answer.json()["attached"] == false {
            let session = answer.json()["sessionId"].as_str().unwrap().to_owned();
            let stream = self.rig.client.events(&format!("/session/{session}/events"), &[]).await;
            self.streams.push((session, stream));
        }
        if prompts && settle {
            let frame = self.stream_of(&path).until("permission_request").await;
            self.asked.push_back(request_id(&frame));
        }
    }

    /// The stream of the session in a path; of the first session where there is none in it.
    fn stream_of(&mut self, path: &str) -> &mut Events {
        let position = self.streams.iter().position(|(session, _)| path.contains(session.as_str()));
        &mut self.streams[position.unwrap_or(0)].1
    }

    /// Gives an unbound request id in a vote's path the next request that was asked.
    async fn bind_request(&mut self, path: &str) {
        let name = path.rsplit('/').next().unwrap().to_owned();
        if self.bound.contains_key(&name) {
            return;
        }
        let request = match self.asked.pop_front() {
            Some(request) => request,
            None => request_id(&self.stream_of(&self.fill(path)).until("permission_request").await),
        };
        self.bound.insert(name, request);
    }

    fn fill(&self, text: &str) -> String {
        self.bound.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    fn compare(&mut self, expected: &Value, actual: &Value, skipped: Option<&str>, at: &str) {
        match (expected, actual) {
            (Value::Object(expected), Value::Object(actual)) => {
                for (key, value) in expected {
                    if PEER_ONLY.contains(&key.as_str()) || skipped == Some(key) {
                        continue;
                    }
                    let found = actual.get(key).unwrap_or_else(|| panic!("{at}: no {key} in {actual:?}"));
                    self.compare(value, found, None, &format!("{at} .{key}"));
                }
                for key in actual.keys() {
                    let known = expected.contains_key(key) || OURS_ONLY.contains(&key.as_str());
                    assert!(known, "{at}: {key} is not the peer's");
                }
            }
            (Value::Array(expected), Value::Array(actual)) => {
                assert_eq!(expected.len(), actual.len(), "{at}");
                for (expected, actual) in expected.iter().zip(actual) {
                    self.compare(expected, actual, None, at);
                }
            }
            (Value::String(pattern), actual) if pattern == "<ms>" => assert!(actual.is_u64(), "{at}: {actual}"),
            (Value::String(pattern), Value::String(text)) if pattern == "<time>" => {
                assert!(text.len() == 24 && text.ends_with('Z'), "{at}: {text}");
            }
            (Value::String(pattern), Value::String(text)) => {
                let pattern = self.fill(pattern);
                match (pattern.find("<u"), pattern.find('>')) {
                    (Some(start), Some(end)) if start < end => {
                        let rest = &pattern[end + 1..];
                        let value = text.strip_prefix(&pattern[..start]).and_then(|text| text.strip_suffix(rest));
                        let value = value.unwrap_or_else(|| panic!("{at}: {text} for {pattern}"));
                        assert_eq!(value.len(), 36, "{at}: {value} is no UUID");
                        self.bound.insert(pattern[start..=end].to_owned(), value.to_owned());
                    }
                    _ => assert_eq!(*text, pattern, "{at}"),
                }
            }
            (expected, actual) => assert_eq!(expected, actual, "{at}"),
        }
    }
}

#[tokio::test]
async fn basic_session() {
    let mut replay = Replay::new("01", |_| {}).await;
    replay.run(include_str!("golden/01_basic.json"), true).await;
}

#[tokio::test]
async fn identity_attach_and_validation() {
    let mut replay = Replay::new("02", |_| {}).await;
    replay.run(include_str!("golden/02_identity.json"), false).await;
}

#[tokio::test]
async fn first_responder_with_two_clients() {
    let mut replay = Replay::new("03", |_| {}).await;
    replay.run(include_str!("golden/03_first_responder.json"), true).await;
}

#[tokio::test]
async fn edge_of_a_daemon_with_a_token() {
    let mut replay = Replay::new("10", |options| {
        options.token = TokenOption::Given("tok123".into());
        options.allow_origins = vec!["http://app.example".to_owned()];
    })
    .await;
    replay.run(include_str!("golden/10_edge.json"), false).await;
}

#[tokio::test]
async fn limits() {
    let mut replay = Replay::new("12", |options| {
        options.bridge.limits.sessions_per_workspace = 2;
        options.bridge.limits.pending_prompts = 2;
    })
    .await;
    replay.run(include_str!("golden/12_limits.json"), false).await;
}
