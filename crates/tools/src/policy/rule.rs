//! One rule: which calls is it about, and what does it say?

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::pattern::TextPattern;
use super::{Decision, Mode, ToolFacts};

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

impl Tier {
    /// The name, for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "built-in",
            Self::Extension => "extension",
            Self::Workspace => "workspace",
            Self::User => "user",
            Self::Admin => "admin",
        }
    }
}

/// `tier + p/1000`, kept as two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority {
    tier: Tier,
    p: u16,
}

impl Priority {
    /// The greatest priority within a tier.
    pub const MAX: u16 = 999;

    /// A priority within `tier`; `p` is 0 to 999, more is clamped.
    #[must_use]
    pub fn new(tier: Tier, p: u16) -> Self {
        Self { tier, p: p.min(Self::MAX) }
    }

    /// The tier.
    #[must_use]
    pub fn tier(self) -> Tier {
        self.tier
    }
}

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.tier as u8, self.p)
    }
}

/// Names of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolPattern {
    /// This one.
    Exact(String),
    /// Every name that begins so: `mcp_*`, `mcp_server_*`.
    Prefix(String),
    /// Every name that begins and ends so: `mcp_*_search`.
    Around(String, String),
    /// Every tool: `*`.
    Any,
    /// Every tool but these.
    AllBut(Vec<ToolPattern>),
}

impl ToolPattern {
    /// Reads `*`, `prefix*`, `prefix*suffix` or a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.split_once('*') {
            Some(("", "")) => Self::Any,
            Some((prefix, "")) => Self::Prefix(prefix.to_owned()),
            Some((prefix, suffix)) => Self::Around(prefix.to_owned(), suffix.to_owned()),
            None => Self::Exact(text.to_owned()),
        }
    }

    /// Whether it covers `tool`.
    #[must_use]
    pub fn matches(&self, tool: &str) -> bool {
        match self {
            Self::Exact(name) => name == tool,
            Self::Prefix(prefix) => tool.starts_with(prefix.as_str()),
            Self::Around(prefix, suffix) => {
                tool.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.ends_with(suffix.as_str()))
            }
            Self::Any => true,
            Self::AllBut(others) => !others.iter().any(|other| other.matches(tool)),
        }
    }
}

impl std::fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Around(prefix, suffix) => write!(f, "{prefix}*{suffix}"),
            Self::Any => f.write_str("*"),
            Self::AllBut(others) => {
                f.write_str("all but")?;
                others.iter().try_for_each(|other| write!(f, " {other}"))
            }
        }
    }
}

/// Arguments that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgsPattern {
    /// Commands whose first words are these.
    ///
    /// A rule that allows speaks for one program with its words and for nothing around it. A rule that asks or denies
    /// speaks as soon as such a program *might* run.
    CommandPrefix(Vec<String>),
    /// Arguments whose stable JSON matches, as `pattern` says it. For a command, each of its parts stands in turn in
    /// the place of the whole.
    Text(TextPattern),
    /// Only Markdown files in the folder of plans are touched, by their real paths.
    PlanFiles,
}

impl std::fmt::Display for ArgsPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CommandPrefix(words) => write!(f, "\"{}\"", words.join(" ")),
            Self::Text(pattern) => write!(f, "/{}/", pattern.source()),
            Self::PlanFiles => f.write_str("plans"),
        }
    }
}

/// Where a rule was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// With us, or from a setting or flag of this name.
    Named(&'static str),
    /// In a file.
    File {
        /// The file.
        path: Arc<PathBuf>,
        /// The line on which the rule begins, counted from 1.
        line: usize,
    },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// Which calls a rule or a checker is about; what is not set does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The tools.
    pub tool: ToolPattern,
    /// The MCP server; `*` for any.
    pub mcp_server: Option<String>,
    /// The subagent that calls.
    pub subagent: Option<String>,
    /// What the tool must say of itself.
    pub annotations: Map<String, Value>,
    /// The arguments; `None` for any.
    pub args: Option<ArgsPattern>,
    /// The modes; `None` for all.
    pub modes: Option<Vec<Mode>>,
    /// Only with (`true`) or only without (`false`) somebody to ask.
    pub interactive: Option<bool>,
}

impl Scope {
    /// Every call of `tool`.
    #[must_use]
    pub fn of(tool: ToolPattern) -> Self {
        Self {
            tool,
            mcp_server: None,
            subagent: None,
            annotations: Map::new(),
            args: None,
            modes: None,
            interactive: None,
        }
    }

    /// Whether it is about the tool, whatever the arguments.
    pub(super) fn covers(&self, tool: &ToolFacts<'_>) -> bool {
        let server = match self.mcp_server.as_deref() {
            None => true,
            Some("*") => tool.mcp_server.is_some(),
            Some(server) => tool.mcp_server == Some(server),
        };
        server
            && self.subagent.as_deref().is_none_or(|name| tool.subagent == Some(name))
            && self.annotations.iter().all(|(key, value)| tool.annotations.and_then(|own| own.get(key)) == Some(value))
            && (self.tool.matches(tool.name) || self.matches_behind_server(tool))
    }

    /// Whether the names that the server itself uses are meant: with `mcpName` the tool's alone, else both. What the
    /// tool is called here may be shortened, numbered or rid of characters, and a refusal must find it all the same.
    fn matches_behind_server(&self, tool: &ToolFacts<'_>) -> bool {
        let (Some(server), Some(own)) = (tool.mcp_server, tool.mcp_tool) else { return false };
        match self.mcp_server {
            Some(_) => self.tool.matches(own),
            None => self.tool.matches(&format!("{MCP}{server}_{own}")),
        }
    }

    /// Whether a pattern such as `mcp_a_*` covers a tool of another server, `a_b`, for no reason but its name.
    fn strays(&self, tool: &ToolFacts<'_>) -> bool {
        let (ToolPattern::Prefix(prefix) | ToolPattern::Around(prefix, _)) = &self.tool else { return false };
        let Some(server) = tool.mcp_server.filter(|_| self.mcp_server.is_none()) else { return false };
        let named = prefix.strip_prefix(MCP).filter(|rest| rest.ends_with('_'));
        let here = |c: char| if c.is_ascii_alphanumeric() || "_.:-".contains(c) { c } else { '_' };
        let known: String = server.chars().map(here).collect();
        let of_server = |rest: &str, server: &str| rest.strip_prefix(server).is_some_and(|rest| rest.starts_with('_'));
        named.is_some_and(|rest| !of_server(rest, server) && !of_server(rest, &known))
    }

    pub(super) fn in_force(&self, mode: Mode, interactive: bool) -> bool {
        self.modes.as_ref().is_none_or(|modes| modes.contains(&mode))
            && self.interactive.is_none_or(|wanted| wanted == interactive)
    }
}

/// What the names of servers' tools begin with.
const MCP: &str = "mcp_";

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A name for people.
    pub name: Option<String>,
    /// Which calls it is about.
    pub scope: Scope,
    /// What it says.
    pub decision: Decision,
    /// Rules of higher priority are asked first.
    pub priority: Priority,
    /// Whether what it allows may send its output to files.
    pub allow_redirection: bool,
    /// Whether it is a person's lasting answer, which only takes questions away and never lifts a refusal.
    pub lasting: bool,
    /// What the model reads when it refuses.
    pub deny_message: Option<String>,
    /// Where it was written.
    pub source: Source,
}

impl Rule {
    /// A rule about every call of `tool`, in every mode.
    #[must_use]
    pub fn new(tool: ToolPattern, decision: Decision, priority: Priority, source: Source) -> Self {
        Self {
            name: None,
            scope: Scope::of(tool),
            decision,
            priority,
            allow_redirection: false,
            lasting: false,
            deny_message: None,
            source,
        }
    }

    /// Where it comes from, in one line: `/home/a/.convoke/policies/x.toml:3 "no deleting" (user, 4.100)`.
    #[must_use]
    pub fn origin(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
        format!("{}{name} ({}, {})", self.source, self.priority.tier().as_str(), self.priority)
    }

    /// Whether it is about the tool, whatever the arguments. What is allowed for one server is not for another.
    pub(super) fn covers(&self, tool: &ToolFacts<'_>) -> bool {
        self.scope.covers(tool) && !(self.decision == Decision::Allow && self.scope.strays(tool))
    }

    /// Whether it names what it allows closely enough that nobody needs to look twice.
    pub(super) fn is_explicit(&self) -> bool {
        match &self.scope.args {
            Some(ArgsPattern::CommandPrefix(words)) => words.len() > 1,
            Some(ArgsPattern::Text(_) | ArgsPattern::PlanFiles) => true,
            None => false,
        }
    }
}
