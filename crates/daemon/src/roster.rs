//! Which agents may run sessions? They have names, and one of them runs the sessions that ask for none.

use std::collections::BTreeMap;

use crate::options::{AgentSource, DaemonOptions};

/// The agents beside the default one, and what that one is called.
#[derive(Clone, Debug)]
pub struct NamedAgents {
    /// The name of [`DaemonOptions::agent`].
    pub default_name: String,
    /// Others that a session can ask for.
    pub others: BTreeMap<String, AgentSource>,
}

impl Default for NamedAgents {
    fn default() -> Self {
        Self { default_name: "default".to_owned(), others: BTreeMap::new() }
    }
}

/// Who shares an agent's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All sessions of the workspace that run on the same agent.
    #[default]
    Workspace,
    /// Nobody: each session has a process of its own, which ends with it.
    Session,
}

/// Every agent by its name.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    default: String,
    sources: BTreeMap<String, AgentSource>,
}

impl Roster {
    pub(crate) fn new(options: &DaemonOptions) -> Self {
        let default = options.agents.default_name.clone();
        let mut sources = options.agents.others.clone();
        sources.insert(default.clone(), options.agent.clone());
        Self { default, sources }
    }

    /// The name of the one that runs the sessions that ask for none.
    pub(crate) fn default_name(&self) -> &str {
        &self.default
    }

    /// Every name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// How the agent of that name is made.
    pub(crate) fn source(&self, name: &str) -> Option<&AgentSource> {
        self.sources.get(name)
    }
}
