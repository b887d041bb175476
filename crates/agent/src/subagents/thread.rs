//! Whose words and questions are these? A subagent's place among those that led to it.

use std::sync::Arc;

use convoke_protocol::{Meta, ToolCallId};
use serde_json::{Value, json};

use super::guide::{Asking, RunGuide};

/// One run of a subagent, as events and questions name it.
#[derive(Debug)]
pub(crate) struct Thread {
    id: String,
    path: Vec<String>,
    call: ToolCallId,
}

impl Thread {
    /// The run `id` of agent `name`, called by `caller` (the session's own agent, if `None`) with the call `call`.
    pub(crate) fn new(id: String, caller: Option<&Self>, name: &str, call: &str) -> Self {
        let mut path = caller.map(|caller| caller.path.clone()).unwrap_or_default();
        path.push(name.to_owned());
        let call = caller.map_or_else(|| call.into(), |caller| caller.call_id(call));
        Self { id, path, call }
    }

    /// Also the id of the run's session.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The agent.
    pub(crate) fn name(&self) -> &str {
        self.path.last().map(String::as_str).unwrap_or_default()
    }

    /// The agents that led here, this one last.
    pub(crate) fn path(&self) -> &[String] {
        &self.path
    }

    /// A call's id where calls of several conversations meet.
    pub(crate) fn call_id(&self, id: &str) -> ToolCallId {
        ToolCallId(format!("{}/{id}", self.id))
    }

    /// What events say of the thread.
    pub(crate) fn meta(&self) -> Meta {
        [
            ("agentName", Value::from(self.name())),
            ("agentPath", json!(self.path)),
            ("parentToolCallId", Value::from(self.call.as_str())),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// Who asks a person something.
#[derive(Clone, Default)]
pub(crate) struct Asker {
    thread: Option<Arc<Thread>>,
    guide: Option<Arc<RunGuide>>,
}

impl Asker {
    /// A subagent.
    pub(crate) fn subagent(thread: Arc<Thread>, guide: Arc<RunGuide>) -> Self {
        Self { thread: Some(thread), guide: Some(guide) }
    }

    /// The agents that led here; nobody for the session's own agent.
    pub(crate) fn origin(&self) -> Vec<String> {
        self.thread.as_ref().map(|thread| thread.path.clone()).unwrap_or_default()
    }

    pub(crate) fn call_id(&self, id: &str) -> ToolCallId {
        self.thread.as_ref().map_or_else(|| id.into(), |thread| thread.call_id(id))
    }

    /// A question is open, until the guard goes.
    pub(crate) fn asking(&self) -> Option<Asking> {
        self.guide.as_ref().map(RunGuide::asking)
    }
}
