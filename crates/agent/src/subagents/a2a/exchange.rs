//! Sans-IO: what has come of a message so far?
//!
//! A task, news of it, or one message as the whole answer: each result is put to what was there, in either dialect.
//! What an agent sends is kept up to a bound, and that something was left out is said.

use convoke_stdx::cut;
use serde_json::Value;

/// Most artifacts of one task.
const ARTIFACTS_MAX: usize = 256;
/// Most bytes of text that one exchange may come to: more than any model reads.
pub(super) const TEXT_MAX: usize = 1 << 20;
/// Most bytes of an id: they are sent back.
const ID_MAX: usize = 1024;

/// What an exchange has come to.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    context: Option<String>,
    task: Option<String>,
    state: State,
    /// What its state says of itself: a question, a reason, how far it is.
    says: String,
    /// By their ids, in the order of their coming.
    artifacts: Vec<(String, String)>,
    /// The answer, where there is no task, or the last that the agent said in it.
    message: String,
    is_cut: bool,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It goes on.
    #[default]
    Working,
    Completed,
    /// It waits for a further message.
    InputRequired,
    Failed,
    Canceled,
    Rejected,
    /// It waits for somebody to log in.
    AuthRequired,
}

impl State {
    fn parse(text: &str) -> Self {
        let text = text.strip_prefix("TASK_STATE_").unwrap_or(text).to_ascii_lowercase().replace('_', "-");
        match text.as_str() {
            "completed" => Self::Completed,
            "input-required" => Self::InputRequired,
            "failed" => Self::Failed,
            "canceled" => Self::Canceled,
            "rejected" => Self::Rejected,
            "auth-required" => Self::AuthRequired,
            _ => Self::Working,
        }
    }
}

impl Exchange {
    /// The conversation.
    pub(super) fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// The task, if the agent made one of it.
    pub(super) fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// What it says of how it stands.
    pub(super) fn says(&self) -> &str {
        &self.says
    }

    /// Takes one result.
    pub(super) fn apply(&mut self, result: &Value) {
        let (kind, body) = kind_of(result);
        let id = |key: &str| body.get(key).and_then(Value::as_str).filter(|id| !id.is_empty() && id.len() <= ID_MAX);
        if kind != Kind::Message {
            let named = if kind == Kind::Task { id("id") } else { id("taskId") };
            match (&self.task, named) {
                // News of some other task are none of ours.
                (Some(known), Some(named)) if known != named => return,
                (None, Some(named)) => self.task = Some(named.to_owned()),
                _ => {}
            }
        }
        if let Some(context) = id("contextId") {
            self.context = Some(context.to_owned());
        }
        match kind {
            Kind::Message => {
                self.message = self.cut(parts(body), self.message.len());
                if self.task.is_none() {
                    self.state = State::Completed;
                }
            }
            Kind::Task => {
                if let Some(artifacts) = body.get("artifacts").and_then(Value::as_array) {
                    self.artifacts.clear();
                    artifacts.iter().for_each(|artifact| self.artifact(artifact, false));
                }
                let history = body.get("history").and_then(Value::as_array).into_iter().flatten();
                let ours = |said: &&Value| matches!(said["role"].as_str(), Some("agent" | "ROLE_AGENT"));
                if let Some(last) = history.rev().find(ours) {
                    self.message = self.cut(parts(last), self.message.len());
                }
                self.status(body);
            }
            Kind::Status => self.status(body),
            Kind::Artifact => {
                let append = body.get("append").and_then(Value::as_bool).unwrap_or(false);
                if let Some(artifact) = body.get("artifact") {
                    self.artifact(artifact, append);
                }
            }
        }
    }

    fn status(&mut self, body: &Value) {
        if let Some(state) = body.pointer("/status/state").and_then(Value::as_str) {
            self.state = State::parse(state);
        }
        match body.pointer("/status/message").map(parts).filter(|text| !text.is_empty()) {
            Some(said) => self.says = self.cut(said, self.says.len()),
            // How far it was is no part of how it ended.
            None if self.state != State::Working => self.says.clear(),
            None => {}
        }
    }

    fn artifact(&mut self, artifact: &Value, append: bool) {
        let id = artifact.get("artifactId").and_then(Value::as_str).unwrap_or_default();
        let text = pieces(artifact);
        let known = self.artifacts.iter().position(|(known, _)| known == id);
        let replaced = match known {
            Some(index) if !append => self.artifacts.get(index).map_or(0, |(_, text)| text.len()),
            _ => 0,
        };
        let text = self.cut(text, replaced);
        let has_room = self.artifacts.len() < ARTIFACTS_MAX;
        match known.and_then(|index| self.artifacts.get_mut(index)) {
            Some((_, known)) if append => known.push_str(&text),
            Some((_, known)) => *known = text,
            None if has_room && id.len() <= ID_MAX => {
                self.artifacts.push((id.to_owned(), text));
            }
            None => self.is_cut = true,
        }
    }

    /// `text` as far as there is room for it, when `replaced` bytes go.
    fn cut(&mut self, text: String, replaced: usize) -> String {
        let artifacts: usize = self.artifacts.iter().map(|(_, text)| text.len()).sum();
        let room = (TEXT_MAX + replaced).saturating_sub(artifacts + self.says.len() + self.message.len());
        let kept = cut::head(&text, room);
        self.is_cut |= kept.len() < text.len();
        kept.to_owned()
    }

    /// What there is to read of it: what was made and what its state says, else what was said last.
    pub(super) fn text(&self) -> String {
        let mut all: Vec<&str> = self.artifacts.iter().map(|(_, text)| text.as_str()).collect();
        all.push(&self.says);
        all.retain(|text| !text.is_empty());
        if all.is_empty() {
            all.push(&self.message);
        }
        let text = all.join("\n\n");
        if self.is_cut { format!("{text}\n\n[The rest was left out: there was too much.]") } else { text }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Task,
    Message,
    Status,
    Artifact,
}

/// What a result is: 1.0 wraps it in a member of that name, 0.3 says its `kind`; a task may come bare.
fn kind_of(result: &Value) -> (Kind, &Value) {
    match result.get("kind").and_then(Value::as_str) {
        Some("message") => return (Kind::Message, result),
        Some("status-update") => return (Kind::Status, result),
        Some("artifact-update") => return (Kind::Artifact, result),
        Some(_) => return (Kind::Task, result),
        None => {}
    }
    let wrapped = [
        ("task", Kind::Task),
        ("message", Kind::Message),
        ("statusUpdate", Kind::Status),
        ("artifactUpdate", Kind::Artifact),
    ];
    let found = wrapped.into_iter().find_map(|(key, kind)| Some((kind, result.get(key)?)));
    found.unwrap_or((Kind::Task, result))
}

/// The text of parts, with `between` texts; data as JSON and files by their names, each on a line of its own.
fn joined(of: &Value, between: &str) -> String {
    let parts = of.get("parts").and_then(Value::as_array).into_iter().flatten();
    let (mut all, mut after_text) = (String::new(), false);
    for part in parts {
        let is_text = part.get("text").is_some_and(Value::is_string);
        let Some(text) = self::part(part) else { continue };
        if !all.is_empty() {
            all.push_str(if is_text && after_text { between } else { "\n" });
        }
        all.push_str(&text);
        after_text = is_text;
        // The rest is cut off anyhow; one byte more tells that there was something.
        if all.len() > TEXT_MAX {
            break;
        }
    }
    all
}

/// The text of a message's parts.
fn parts(message: &Value) -> String {
    joined(message, "\n")
}

/// The text of an artifact's parts: pieces, as they were appended.
fn pieces(artifact: &Value) -> String {
    joined(artifact, "")
}

fn part(part: &Value) -> Option<String> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    if let Some(data) = part.get("data").filter(|data| !data.is_null()) {
        return Some(data.to_string());
    }
    // 0.3 has its file in a member of its own.
    let file = part.get("file").unwrap_or(part);
    let text = |key: &str| file.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let what = ["uri", "url", "filename", "name"].into_iter().find_map(text);
    match (what, text("bytes").or_else(|| text("raw"))) {
        (Some(what), _) => Some(format!("[file: {what}]")),
        (None, Some(_)) => Some("[a file without a name]".to_owned()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn news_of_a_task_add_up_in_both_versions() {
        let old = [
            json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "submitted"}}),
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": false,
                "status": {"state": "working", "message": {"parts": [{"kind": "text", "text": "on it"}]}}}),
            json!({"kind": "artifact-update", "taskId": "t", "contextId": "c",
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "one"}]}}),
            json!({"kind": "artifact-update", "taskId": "other", "contextId": "x",
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "not ours"}]}}),
            json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true,
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": " two"}]}}),
            json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": true, "status": {"state": "completed"}}),
        ];
        let new = [
            json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
            json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "one"}]}}}),
            json!({"artifactUpdate": {"taskId": "t", "append": true, "artifact": {"artifactId": "a", "parts": [{"text": " two"}]}}}),
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        ];
        let bare = [json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": "one"}, {"text": " two"}]}]})];
        for results in [old.as_slice(), new.as_slice(), bare.as_slice()] {
            let mut exchange = Exchange::default();
            results.iter().for_each(|result| exchange.apply(result));
            assert_eq!((exchange.task(), exchange.context()), (Some("t"), Some("c")));
            assert_eq!((exchange.state(), exchange.text().as_str()), (State::Completed, "one two"));
        }
    }

    #[test]
    fn what_is_said_counts_where_nothing_was_made() {
        let after = |result: Value| {
            let mut exchange = Exchange::default();
            exchange.apply(&result);
            (exchange.state(), exchange.text(), exchange.task)
        };
        let asks = json!({"task": {"id": "t", "status": {"state": "TASK_STATE_INPUT_REQUIRED",
            "message": {"parts": [{"text": "which?"}]}}, "artifacts": [{"artifactId": "a", "parts": [{"text": "a draft"}]}]}});
        assert_eq!(after(asks), (State::InputRequired, "a draft\n\nwhich?".into(), Some("t".into())));
        let said = json!({"message": {"contextId": "c", "parts": [{"text": "hi"}, {"data": {"n": 1}}]}});
        assert_eq!(after(said), (State::Completed, "hi\n{\"n\":1}".into(), None));
        let files = json!({"kind": "message", "parts": [
            {"kind": "file", "file": {"name": "a.png", "bytes": "AAAA"}}, {"url": "https://h/b"}, {"raw": "AAAA"}, {"odd": 1},
        ]});
        assert_eq!(after(files).1, "[file: a.png]\n[file: https://h/b]\n[a file without a name]");
        let told = json!({"id": "t", "status": {"state": "completed"}, "kind": "task", "history": [
            {"role": "agent", "parts": [{"text": "the answer"}]}, {"role": "user", "parts": [{"text": "the question"}]},
        ]});
        assert_eq!(after(told).1, "the answer");
    }

    #[test]
    fn too_much_is_cut_and_said() {
        let piece = "x".repeat(TEXT_MAX / 3);
        let mut exchange = Exchange::default();
        for n in 0..400 {
            let artifact = json!({"artifactId": n.to_string(), "parts": [{"text": piece}]});
            exchange.apply(&json!({"artifactUpdate": {"taskId": "t", "artifact": artifact}}));
            exchange.apply(&json!({"artifactUpdate": {"taskId": "t", "append": true, "artifact": artifact}}));
        }
        assert!(exchange.artifacts.len() <= ARTIFACTS_MAX);
        let text = exchange.text();
        assert!(text.ends_with("[The rest was left out: there was too much.]"));
        assert!(text.len() < TEXT_MAX + 1024 && text.len() > TEXT_MAX - 1024, "{}", text.len());
    }

    proptest! {
        /// Whatever an agent sends: it is read, and stays within bounds.
        #[test]
        fn any_results_are_read(results in proptest::collection::vec(any_result(), 0..12)) {
            let mut exchange = Exchange::default();
            let mut first = None;
            for result in &results {
                exchange.apply(result);
                first = first.or(exchange.task.clone());
                prop_assert_eq!(&first, &exchange.task, "a task is never exchanged for another");
            }
            prop_assert!(exchange.text().len() < TEXT_MAX + 1024);
        }
    }

    fn any_result() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<i32>().prop_map(|n| json!(n)),
            prop_oneof![Just("t"), Just("u"), Just("completed"), Just("TASK_STATE_WORKING"), Just("message")]
                .prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let keys = [
                "id",
                "kind",
                "task",
                "taskId",
                "status",
                "state",
                "message",
                "parts",
                "text",
                "artifact",
                "artifacts",
                "artifactId",
                "artifactUpdate",
                "statusUpdate",
                "append",
                "history",
                "role",
                "file",
                "name",
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                proptest::collection::vec((proptest::sample::select(keys.to_vec()), inner), 0..4).prop_map(|members| {
                    Value::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                }),
            ]
        })
    }
}
