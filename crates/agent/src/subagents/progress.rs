//! What its caller sees of a run while it goes on, and what it last said.
//!
//! Source: runtime specification §12.4, "Activity events" and `SubagentProgress`.

use std::collections::{BTreeSet, VecDeque};

use convoke_protocol::{AgentEvent, AgentEventBody, ContentPart, MessageRole, ToolCallId, ToolDisplay};
use convoke_stdx::cut;
use convoke_tools::LiveOutput;
use serde_json::{Value, json};

/// Activities that are shown at once.
const SHOWN: usize = 3;
/// Most bytes of one activity's text: it is a line on a screen.
const LINE_MAX: usize = 400;
/// Most bytes kept of what it said.
const WORDS_MAX: usize = 8 << 10;

/// Follows one run.
pub(crate) struct Progress {
    agent: String,
    thread: String,
    /// At most [`SHOWN`].
    recent: VecDeque<Activity>,
    /// Calls that wait for a person: at most one batch.
    waiting: BTreeSet<ToolCallId>,
    /// What it said since its last call.
    words: String,
    words_over: bool,
    error: Option<String>,
}

struct Activity {
    id: String,
    kind: &'static str,
    text: String,
    status: &'static str,
}

impl Progress {
    pub(crate) fn new(agent: &str, thread: &str) -> Self {
        Self {
            agent: agent.to_owned(),
            thread: thread.to_owned(),
            recent: VecDeque::new(),
            waiting: BTreeSet::new(),
            words: String::new(),
            words_over: false,
            error: None,
        }
    }

    /// What it said last, if anything.
    pub(crate) fn last_words(&self) -> Option<&str> {
        Some(self.words.trim()).filter(|words| !words.is_empty())
    }

    /// What went wrong last.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// What there is to show after `event`, if that is news.
    pub(crate) fn event(&mut self, event: &AgentEvent) -> Option<LiveOutput> {
        let activity = match &event.body {
            AgentEventBody::Message { role: MessageRole::Agent, content } => return self.said(content),
            AgentEventBody::ToolRequest { request_id, name, args, display, .. } => {
                self.add(request_id.as_str(), "tool_call", line(name, display.as_ref()));
                let (display_name, description) = names(display.as_ref());
                json!({
                    "type": "TOOL_CALL_START", "name": name, "callId": request_id, "args": args,
                    "displayName": display_name, "description": description,
                })
            }
            AgentEventBody::ToolUpdate { request_id, data, .. } => return self.moved(request_id, data.as_ref()),
            AgentEventBody::ToolResponse { request_id, name, is_error, data, .. } => {
                self.waiting.remove(request_id);
                self.words_over = true;
                let status = match (is_error, data.as_ref().and_then(|data| data.get("status")?.as_str())) {
                    (false, _) => "completed",
                    (true, Some("cancelled")) => "cancelled",
                    (true, _) => "error",
                };
                self.close(request_id.as_str(), status);
                json!({"type": "TOOL_CALL_END", "name": name, "id": request_id, "status": status})
            }
            AgentEventBody::Error { message, .. } => {
                self.error = Some(message.clone());
                self.add(event.id.as_str(), "error", message.clone());
                self.close(event.id.as_str(), "error");
                json!({"type": "ERROR", "error": message})
            }
            _ => return None,
        };
        Some(self.show(activity))
    }

    fn said(&mut self, content: &[ContentPart]) -> Option<LiveOutput> {
        let mut thought = None;
        for part in content {
            match part {
                ContentPart::Text { text } => {
                    if std::mem::take(&mut self.words_over) {
                        self.words.clear();
                    }
                    self.words.push_str(text);
                    let kept = cut::tail(&self.words, WORDS_MAX).len();
                    self.words.drain(..self.words.len() - kept);
                }
                ContentPart::Thought { thought: text, .. } => thought = Some(text),
                ContentPart::Media { .. } | ContentPart::Reference { .. } => {}
            }
        }
        let text = thought?;
        // A thought comes in many pieces: it is shown when it begins, and with whatever comes next.
        if let Some(open) = self.recent.back_mut().filter(|activity| activity.kind == "thought") {
            open.text = cut::tail(&format!("{}{text}", open.text), LINE_MAX).to_owned();
            return None;
        }
        self.add("", "thought", text.clone());
        Some(self.show(json!({"type": "THOUGHT_CHUNK", "text": text})))
    }

    /// A call moved on: somebody is asked, here or further down, or is not any more.
    fn moved(&mut self, id: &ToolCallId, data: Option<&Value>) -> Option<LiveOutput> {
        let data = data?;
        let below = data.pointer("/progress/waitingForConfirmation").and_then(Value::as_bool);
        let asked = data.get("status").and_then(Value::as_str) == Some("awaiting_approval") || below == Some(true);
        let before = !self.waiting.is_empty();
        if asked {
            self.waiting.insert(id.clone());
        } else {
            self.waiting.remove(id);
        }
        let after = !self.waiting.is_empty();
        (before != after)
            .then(|| self.show(json!({"type": "WAITING_FOR_CONFIRMATION", "waiting": after, "callId": id})))
    }

    fn add(&mut self, id: &str, kind: &'static str, text: String) {
        let text = cut::head(&text, LINE_MAX).to_owned();
        if self.recent.len() == SHOWN {
            self.recent.pop_front();
        }
        self.recent.push_back(Activity { id: id.to_owned(), kind, text, status: "running" });
    }

    fn close(&mut self, id: &str, status: &'static str) {
        for activity in self.recent.iter_mut().filter(|activity| activity.id == id) {
            activity.status = status;
        }
    }

    fn show(&self, activity: Value) -> LiveOutput {
        let lines = self.recent.iter().map(|activity| {
            let mark = match activity.status {
                "completed" => "✓",
                "error" => "✗",
                "cancelled" => "–",
                _ => "…",
            };
            format!("{mark} {}", activity.text)
        });
        let waiting = (!self.waiting.is_empty()).then(|| "Waiting for an answer.".to_owned());
        let text: Vec<String> = lines.chain(waiting).collect();
        let data = json!({"activity": activity, "progress": self.report("running")});
        LiveOutput { text: text.join("\n"), pid: None, total_bytes: 0, data: Some(data) }
    }

    /// The progress as programs know it.
    pub(crate) fn report(&self, state: &str) -> Value {
        let recent: Vec<Value> = self
            .recent
            .iter()
            .map(|activity| {
                json!({"type": activity.kind, "id": activity.id, "content": activity.text, "status": activity.status})
            })
            .collect();
        json!({
            "isSubagentProgress": true,
            "agentName": self.agent,
            "threadId": self.thread,
            "state": state,
            "waitingForConfirmation": !self.waiting.is_empty(),
            "recentActivity": recent,
        })
    }
}

fn names(display: Option<&ToolDisplay>) -> (Option<&String>, Option<&String>) {
    (display.and_then(|display| display.name.as_ref()), display.and_then(|display| display.description.as_ref()))
}

fn line(name: &str, display: Option<&ToolDisplay>) -> String {
    match names(display) {
        (_, Some(description)) => format!("{name}: {description}"),
        _ => name.to_owned(),
    }
}
