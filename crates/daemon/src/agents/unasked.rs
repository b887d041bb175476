//! What does an agent do without asking? As far as can be seen: its tool calls that ran and never raised a request, and
//! what it had the daemon do for it that no request had named.

use std::collections::{BTreeMap, VecDeque};

use convoke_stdx::cut;
use serde_json::{Value, json};

/// Tool calls of one session that are looked after at once; the oldest makes room. A turn has some dozens.
const CALLS_MAX: usize = 256;

/// Requests of one turn that are kept to tell what they named.
const ASKED_MAX: usize = 64;

/// Bytes of what one request named.
const NAMED_MAX: usize = 16 * 1024;

/// Different things of one agent that are told apart; the rest is counted in its kind only.
const ENTRIES_MAX: usize = 256;

/// Bytes of a title.
const TITLE_MAX: usize = 120;

/// The kinds of tool calls. Source: ACP v1, "Tool Calls".
const KINDS: &[&str] =
    &["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// Something that was done without asking.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deed {
    /// ACP's kind of tool call, or the method by which the daemon was asked to do it.
    pub(crate) kind: &'static str,
    /// What it was, for people.
    pub(crate) title: String,
}

impl Deed {
    pub(super) fn new(kind: &'static str, title: &str) -> Self {
        Self { kind, title: cut::head(title, TITLE_MAX).to_owned() }
    }
}

/// The tool calls of one session.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: VecDeque<(String, Call)>,
    /// What the requests of this turn named.
    named: VecDeque<String>,
}

#[derive(Debug)]
struct Call {
    deed: Deed,
    asked: bool,
    began: bool,
}

impl Calls {
    /// Takes an update; the deed if it ends a call that ran without asking.
    pub(super) fn heed(&mut self, update: &Value) -> Option<Deed> {
        let kind = update.get("sessionUpdate").and_then(Value::as_str)?;
        if !matches!(kind, "tool_call" | "tool_call_update") {
            return None;
        }
        let id = update.get("toolCallId").and_then(Value::as_str)?;
        let status = update.get("status").and_then(Value::as_str);
        let call = self.call(id, update)?;
        call.began |= status == Some("in_progress");
        match status {
            Some("completed" | "failed") => {
                let ran = status == Some("completed") || call.began;
                let deed = (ran && !call.asked).then(|| call.deed.clone());
                self.open.retain(|(open, _)| open != id);
                deed
            }
            _ => None,
        }
    }

    /// The agent asks about a call.
    pub(super) fn asked(&mut self, tool_call: &Value) {
        if let Some(id) = tool_call.get("toolCallId").and_then(Value::as_str) {
            self.call(id, tool_call).into_iter().for_each(|call| call.asked = true);
        }
        let mut text = String::new();
        collect(tool_call, &mut text);
        if self.named.len() == ASKED_MAX {
            self.named.pop_front();
        }
        self.named.push_back(text);
    }

    /// Whether a request of this turn named one of these.
    pub(super) fn has_named(&self, names: &[String]) -> bool {
        let named = |name: &String| !name.is_empty() && self.named.iter().any(|text| text.contains(name.as_str()));
        names.iter().any(named)
    }

    /// The turn is over: what began in it and never asked has run, too.
    pub(super) fn turn_ended(&mut self) -> Vec<Deed> {
        self.named.clear();
        let open = std::mem::take(&mut self.open).into_iter();
        open.filter(|(_, call)| call.began && !call.asked).map(|(_, call)| call.deed).collect()
    }

    fn call(&mut self, id: &str, fields: &Value) -> Option<&mut Call> {
        if !self.open.iter().any(|(open, _)| open == id) {
            if self.open.len() == CALLS_MAX {
                self.open.pop_front();
            }
            let call = Call { deed: Deed::new("other", id), asked: false, began: false };
            self.open.push_back((id.to_owned(), call));
        }
        let (_, call) = self.open.iter_mut().find(|(open, _)| open == id)?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if let Some(kind) = text("kind") {
            call.deed.kind = KINDS.iter().find(|known| **known == kind).copied().unwrap_or("other");
        }
        if let Some(title) = text("title") {
            call.deed.title = cut::head(title, TITLE_MAX).to_owned();
        }
        Some(call)
    }
}

/// Every text in a value, one a line, up to a bound.
fn collect(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            let room = NAMED_MAX.saturating_sub(out.len());
            out.push_str(cut::head(text, room));
            out.push('\n');
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, out)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What one agent did without asking, since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct Unasked {
    kinds: BTreeMap<&'static str, u64>,
    deeds: BTreeMap<Deed, u64>,
}

impl Unasked {
    /// Counts a deed; `true` if it is the first of its kind.
    pub(super) fn count(&mut self, deed: Deed) -> bool {
        let kind = self.kinds.entry(deed.kind).or_default();
        *kind += 1;
        let first = *kind == 1;
        if self.deeds.len() < ENTRIES_MAX || self.deeds.contains_key(&deed) {
            *self.deeds.entry(deed).or_default() += 1;
        }
        first
    }

    /// For `/daemon/status`; with `full` also one by one.
    pub(crate) fn wire(&self, full: bool) -> Value {
        let mut body = json!({"total": self.kinds.values().sum::<u64>(), "kinds": self.kinds});
        if let Value::Object(fields) = &mut body
            && full
        {
            let calls = self.deeds.iter();
            let calls = calls.map(|(deed, count)| json!({"kind": deed.kind, "title": deed.title, "count": count}));
            fields.insert("calls".to_owned(), calls.collect());
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(id: &str, status: &str) -> Value {
        json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status})
    }

    fn begin(id: &str) -> Value {
        json!({"sessionUpdate": "tool_call", "toolCallId": id, "kind": "execute", "title": format!("run {id}")})
    }

    #[test]
    fn only_what_ran_and_was_not_asked_about_counts() {
        let mut calls = Calls::default();
        let end = |calls: &mut Calls, id: &str, steps: &[&str]| {
            calls.heed(&begin(id));
            steps.iter().find_map(|step| calls.heed(&update(id, step)))
        };
        assert_eq!(end(&mut calls, "a", &["pending", "completed"]), Some(Deed::new("execute", "run a")));
        assert_eq!(end(&mut calls, "b", &["failed"]), None);
        assert_eq!(end(&mut calls, "c", &["in_progress", "failed"]), Some(Deed::new("execute", "run c")));
        calls.asked(&json!({"toolCallId": "d", "rawInput": {"command": "make all"}}));
        assert_eq!(end(&mut calls, "d", &["in_progress", "completed"]), None);
        assert!(calls.has_named(&["make all".to_owned()]) && !calls.has_named(&["rm".to_owned(), String::new()]));
        assert_eq!(end(&mut calls, "e", &["in_progress"]), None);
        // Asked after it began: asked all the same.
        assert_eq!(end(&mut calls, "f", &["in_progress"]), None);
        calls.asked(&json!({"toolCallId": "f"}));
        assert_eq!(calls.turn_ended(), [Deed::new("execute", "run e")]);
        assert!(!calls.has_named(&["make all".to_owned()]));
        assert_eq!(calls.turn_ended(), []);
    }

    #[test]
    fn counts_are_bounded() {
        let mut unasked = Unasked::default();
        for n in 0..ENTRIES_MAX + 10 {
            assert_eq!(unasked.count(Deed::new("edit", &format!("{n:04}"))), n == 0);
        }
        assert!(!unasked.count(Deed::new("edit", "0000")));
        let seen = unasked.wire(true);
        assert_eq!((&seen["total"], &seen["kinds"]["edit"]), (&json!(ENTRIES_MAX + 11), &json!(ENTRIES_MAX + 11)));
        assert_eq!(seen["calls"].as_array().unwrap().len(), ENTRIES_MAX);
        assert_eq!(seen["calls"][0], json!({"kind": "edit", "title": "0000", "count": 2}));
        assert_eq!(unasked.wire(false).get("calls"), None);
        let mut calls = Calls::default();
        for n in 0..CALLS_MAX + 10 {
            calls.heed(&begin(&n.to_string()));
        }
        for _ in 0..ASKED_MAX + 10 {
            calls.asked(&json!({"title": "x".repeat(NAMED_MAX + 10)}));
        }
        assert_eq!((calls.open.len(), calls.named.len()), (CALLS_MAX, ASKED_MAX));
        assert!(calls.named.iter().all(|text| text.len() <= NAMED_MAX + 1));
        let long = Deed::new("edit", &"é".repeat(TITLE_MAX));
        assert_eq!(long.title.len(), TITLE_MAX);
    }
}
