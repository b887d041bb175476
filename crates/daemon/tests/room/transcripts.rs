//! Recorded requests and answers of the peer, replayed.
//!
//! `golden/*.json` are the parts of its transcripts that concern our routes: one step a line, with `n` its number in the
//! recording. `<uN>` stands for an id that is bound where it first comes up, `<time>`, `<ms>` (any
//! number), `<any>`, `<port>` and `<workspace>` for what differs from run to run. Where we answer otherwise on purpose,
//! [`DIFFERENCES`] says so.
//!
//! `golden/*_frames.json` are the frames of a session's stream, in order and without ids and times. Left out are lists of
//! commands and suggested follow-ups, which the peer's agent sends when it likes, and the frames of waiting prompts: the
//! recording did not wait for the end of a turn before the next prompt, the replay does.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use convoke_daemon::{DaemonOptions, TokenOption};
use convoke_protocol::daemon::capability::PermissionPolicy;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Events, Extra, Next};
use crate::rig::{Rig, request_id};

/// What differs on purpose: transcript, step, field (empty for the whole answer), our status, and why.
const DIFFERENCES: &[(&str, u32, &str, u16, &str)] = &[
    ("02", 8, "error", 400, "a daemon has one workspace, so there is no other one to register or select"),
    ("02", 36, "requestedWorkspace", 400, "the recording's paths were renamed in the body, not in the request"),
    ("02", 45, "allowed", 400, "our agent has no mode `auto`"),
    ("18", 14, "", 200, "one workspace, and a child that is started at once"),
    ("03", 27, "", 404, "an unregistered id must not learn that a request was known, not even once it is resolved"),
];

/// Steps that are not replayed: transcript, step, and why.
const LEFT_OUT: &[(&str, u32, &str)] = &[("05", 7, "another option moves a vote here; the peer keeps the first one")];

/// Fields that the peer adds for features which are not part of this wire's core.
const PEER_ONLY: &[&str] = &["hasRunningBackgroundTasks", "sourcePersisted"];

/// The answer to a late vote comes when the vote does, which is before or after what the agent says next.
const AT_ANY_TIME: &str = "permission_already_resolved";

/// Fields that we add where the peer does not: the code that tells a registered late voter from a wrong id, when a
/// session last changed, the modes in the state of a live session that is joined, how long a request waits, why it was
/// cancelled, and that a split vote can't end.
const OURS_ONLY: &[&str] = &["code", "updatedAt", "modes", "createdAt", "expiresAt", "reason", "quorumUnreachable"];

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
    /// The frame that the recording had seen before it went on.
    after: Option<String>,
}

/// A session's stream, and what came on it so far.
struct Stream {
    session: String,
    events: Events,
    seen: Vec<Value>,
}

impl Stream {
    async fn next(&mut self) -> Value {
        match self.events.next().await {
            Next::Event(event) => {
                self.seen.push(event.frame.clone());
                event.frame
            }
            end => panic!("the stream must go on: {end:?}"),
        }
    }

    async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["type"] == kind {
                return frame;
            }
        }
    }
}

struct Replay {
    rig: Rig,
    name: &'static str,
    /// Values of placeholders.
    bound: BTreeMap<String, String>,
    /// Each session in the order of their creation.
    streams: Vec<Stream>,
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
            if !LEFT_OUT.iter().any(|(name, n, _)| *name == self.name && *n == step.n) {
                self.step(step, settle).await;
            }
        }
    }

    /// Compares what the first session's stream said with the recording.
    async fn frames(&mut self, text: &str) {
        let expected: Vec<Value> = serde_json::from_str(text).unwrap();
        let stream = &mut self.streams[0];
        while stream.seen.len() < expected.len() {
            stream.next().await;
        }
        let (late, seen): (Vec<_>, Vec<_>) = stream.seen.drain(..).partition(|frame| frame["type"] == AT_ANY_TIME);
        let (late_expected, expected): (Vec<_>, Vec<_>) =
            expected.into_iter().partition(|frame| frame["type"] == AT_ANY_TIME);
        let kinds = |frames: &[Value]| frames.iter().map(kind).collect::<Vec<_>>();
        assert_eq!(kinds(&seen), kinds(&expected), "{}", self.name);
        assert_eq!(late.len(), late_expected.len(), "{}", self.name);
        let pairs = expected.iter().zip(seen).chain(late_expected.iter().zip(late));
        for (n, (expected, mut frame)) in pairs.enumerate() {
            let envelope = frame.as_object_mut().unwrap();
            assert_eq!(envelope.remove("v"), Some(1.into()));
            assert!(envelope.remove("id").is_some_and(|id| id.is_u64()), "every frame has a number");
            assert!(envelope.remove("_meta").is_some_and(|meta| meta["serverTimestamp"].is_u64()));
            let at = format!("{} frame {n}, {}", self.name, kind(expected));
            self.compare(expected, &frame, None, &at);
        }
    }

    async fn step(&mut self, step: &Step, settle: bool) {
        let prompts = step.path.ends_with("/prompt") && step.status == 202;
        if prompts && settle && std::mem::replace(&mut self.running, true) {
            self.stream_of(&self.fill(&step.path)).until("turn_complete").await;
        }
        if let Some(kind) = &step.after {
            self.stream_of("").until(kind).await;
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
            let events = self.rig.client.events(&format!("/session/{session}/events"), &[]).await;
            self.streams.push(Stream { session, events, seen: Vec::new() });
        }
        if prompts && settle {
            let frame = self.stream_of(&path).until("permission_request").await;
            self.asked.push_back(request_id(&frame));
        }
    }

    /// The stream of the session in a path; of the first session where there is none in it.
    fn stream_of(&mut self, path: &str) -> &mut Stream {
        let position = self.streams.iter().position(|stream| path.contains(stream.session.as_str()));
        &mut self.streams[position.unwrap_or(0)]
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
            (Value::String(pattern), _) if pattern == "<any>" => {}
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

/// What a frame is, the kind of its update included.
fn kind(frame: &Value) -> String {
    let update = frame["data"]["update"]["sessionUpdate"].as_str();
    update.or(frame["type"].as_str()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn basic_session() {
    let mut replay = Replay::new("01", |_| {}).await;
    replay.run(include_str!("golden/01_basic.json"), true).await;
    replay.frames(include_str!("golden/01_basic_frames.json")).await;
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
    replay.frames(include_str!("golden/03_first_responder_frames.json")).await;
}

#[tokio::test]
async fn designated() {
    let mut replay = Replay::new("04", |options| options.bridge.policy = PermissionPolicy::Designated).await;
    replay.run(include_str!("golden/04_designated.json"), true).await;
    replay.frames(include_str!("golden/04_designated_frames.json")).await;
}

#[tokio::test]
async fn consensus_of_two_and_three() {
    let mut replay = Replay::new("05", |options| options.bridge.policy = PermissionPolicy::Consensus).await;
    replay.run(include_str!("golden/05_consensus.json"), true).await;
    replay.frames(include_str!("golden/05_consensus_frames.json")).await;
}

#[tokio::test]
async fn consensus_with_too_high_a_quorum_and_a_timeout() {
    let mut replay = Replay::new("06", |options| {
        options.bridge.policy = PermissionPolicy::Consensus;
        options.bridge.quorum = Some(5);
        // Long enough for two votes on a busy machine; the recording had 2500.
        options.bridge.permission_timeout = Some(Duration::from_secs(5));
    })
    .await;
    replay.run(include_str!("golden/06_timeout.json"), true).await;
    replay.frames(include_str!("golden/06_timeout_frames.json")).await;
}

#[tokio::test]
async fn consensus_of_one() {
    let mut replay = Replay::new("07", |options| {
        options.bridge.policy = PermissionPolicy::Consensus;
        options.bridge.quorum = Some(1);
    })
    .await;
    replay.run(include_str!("golden/07_quorum.json"), true).await;
    replay.frames(include_str!("golden/07_quorum_frames.json")).await;
}

#[tokio::test]
async fn what_the_page_asks_for() {
    let mut replay = Replay::new("18", |_| {}).await;
    replay.run(include_str!("golden/18_page.json"), false).await;
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
