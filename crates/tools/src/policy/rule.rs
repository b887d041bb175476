//! One rule: which calls is it about, and what does it say?

use serde_json::Value;

use super::command::Command;
use super::{Decision, Mode};

/// Who a rule comes from; later ones outrank earlier ones. Source: runtime specification §6.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Built in.
    Default = 1,
    /// An extension.
    Extension = 2,
    /// The workspace.
    Workspace = 3,
    /// The user.
    User = 4,
    /// The administrator.
    Admin = 5,
}

/// `tier + p/1000`, kept as two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority {
    tier: Tier,
    p: u16,
}

impl Priority {
    /// A priority within `tier`; `p` is 0 to 999, more is clamped.
    #[must_use]
    pub fn new(tier: Tier, p: u16) -> Self {
        Self { tier, p: p.min(999) }
    }
}

/// Names of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolPattern {
    /// This one.
    Exact(String),
    /// Every name that begins so: `mcp_*`, `mcp_server_*`.
    Prefix(String),
    /// Every tool: `*`.
    Any,
}

impl ToolPattern {
    /// Reads `*`, `prefix*` or a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some("") => Self::Any,
            Some(prefix) => Self::Prefix(prefix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }

    /// Whether it covers `tool`.
    #[must_use]
    pub fn matches(&self, tool: &str) -> bool {
        match self {
            Self::Exact(name) => name == tool,
            Self::Prefix(prefix) => tool.starts_with(prefix.as_str()),
            Self::Any => true,
        }
    }
}

/// Arguments that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgsPattern {
    /// Commands whose first words are these.
    ///
    /// For a rule that allows, only a simple command matches: one program with plain words. For a rule that asks or
    /// denies, a complex command matches as soon as it *might* run such a command.
    CommandPrefix(Vec<String>),
    /// A top-level string argument with exactly this value.
    Equals {
        /// The argument.
        name: String,
        /// Its value.
        value: String,
    },
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The tools it is about.
    pub tool: ToolPattern,
    /// The arguments it is about; `None` for any.
    pub args: Option<ArgsPattern>,
    /// What it says.
    pub decision: Decision,
    /// Rules of higher priority are asked first.
    pub priority: Priority,
    /// The modes it is in force in; `None` for all.
    pub modes: Option<Vec<Mode>>,
    /// In force only with (`true`) or only without (`false`) somebody to ask.
    pub interactive: Option<bool>,
    /// What the model reads when it refuses.
    pub deny_message: Option<String>,
    /// Where it comes from, for people.
    pub source: String,
}

impl Rule {
    /// A rule about every call of `tool`, in every mode.
    pub fn new(tool: ToolPattern, decision: Decision, priority: Priority, source: impl Into<String>) -> Self {
        Self {
            tool,
            args: None,
            decision,
            priority,
            modes: None,
            interactive: None,
            deny_message: None,
            source: source.into(),
        }
    }

    pub(super) fn matches(&self, tool: &str, args: &Value, command: Option<&Command>) -> bool {
        if !self.tool.matches(tool) {
            return false;
        }
        match (&self.args, command) {
            (None, _) => true,
            (Some(ArgsPattern::Equals { name, value }), _) => {
                args.get(name).and_then(Value::as_str) == Some(value.as_str())
            }
            (Some(ArgsPattern::CommandPrefix(_)), None) => false,
            (Some(ArgsPattern::CommandPrefix(words)), Some(Command::Simple(simple))) => match self.decision {
                Decision::Allow => simple.starts_with(words),
                Decision::Ask | Decision::Deny => simple.runs(words),
            },
            (Some(ArgsPattern::CommandPrefix(words)), Some(Command::Complex { .. })) => {
                let text = args.get("command").and_then(Value::as_str).unwrap_or_default();
                self.decision != Decision::Allow && super::command::might_run(text, words)
            }
        }
    }
}
