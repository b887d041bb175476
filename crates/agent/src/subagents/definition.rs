//! What is a subagent, before it runs? Source: runtime specification §12.1 and §12.2.

use std::path::{Path, PathBuf};
use std::time::Duration;

use convoke_tools::policy::{ToolPattern, canonical_tool_name};
use serde_json::{Map, Value, json};

use super::a2a::SecretVariable;

/// A subagent that can be called by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentDefinition {
    /// The name to call: lowercase letters, digits, `-` and `_`.
    pub name: String,
    /// The name for people.
    pub display_name: Option<String>,
    /// What it is good for, as the calling model reads it.
    pub description: String,
    /// Where it comes from.
    pub source: AgentSource,
    /// Here, or somewhere else.
    pub kind: AgentKind,
}

/// Where a definition comes from. Later ones take the place of earlier ones with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSource {
    /// It comes with us.
    BuiltIn,
    /// A file of an extension, which the user installed.
    Extension(PathBuf),
    /// A file of the user's.
    User(PathBuf),
    /// A file of a trusted workspace, which the user has to acknowledge before it is used.
    Workspace {
        /// The file.
        path: PathBuf,
        /// SHA-256 of its content, in hexadecimal.
        hash: String,
    },
}

impl AgentSource {
    /// `built-in`, `extension`, `user` or `workspace`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Extension(_) => "extension",
            Self::User(_) => "user",
            Self::Workspace { .. } => "workspace",
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn => None,
            Self::Extension(path) | Self::User(path) | Self::Workspace { path, .. } => Some(path),
        }
    }
}

/// Where a subagent runs.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentKind {
    /// In this process, with a session of its own.
    Local(Box<LocalAgent>),
    /// Somewhere else, spoken to over A2A.
    Remote(Box<RemoteAgent>),
}

/// A subagent of our own runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalAgent {
    /// Its instruction. `${query}` stands for the task.
    pub prompt: String,
    /// The tools that it may call, of those that its caller has; `None` for all.
    pub tools: Option<Vec<ToolPattern>>,
    /// MCP servers for the time of a run, as they were written.
    pub mcp_servers: Map<String, Value>,
    /// The model; `None` for the one that its caller was configured with.
    pub model: Option<String>,
    /// 0.0 to 2.0.
    pub temperature: Option<f64>,
    /// Most model calls of one run.
    pub max_turns: u32,
    /// Longest run. Waiting for a person does not count.
    pub timeout: Duration,
    /// Folders that it works in, inside of its caller's; the first one is its working folder. Empty for its caller's own.
    pub directories: Vec<PathBuf>,
    /// Whether it may change context files.
    pub writes_memory: bool,
    /// What it hands in at the end.
    pub output: AgentOutput,
}

impl LocalAgent {
    /// Thirty turns, ten minutes, all of its caller's tools, a text at the end.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            tools: None,
            mcp_servers: Map::new(),
            model: None,
            temperature: Some(1.0),
            max_turns: 30,
            timeout: Duration::from_secs(10 * 60),
            directories: Vec::new(),
            writes_memory: false,
            output: AgentOutput::default(),
        }
    }

    /// The tools as they were named; `None` for all.
    #[must_use]
    pub fn tool_names(&self) -> Option<Vec<String>> {
        Some(self.tools.as_ref()?.iter().map(ToString::to_string).collect())
    }

    /// Whether it may call `tool`.
    #[must_use]
    pub fn may_call(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(tool)))
    }
}

/// Tools as a list names them: `*`, `mcp_*`, a name or one of its aliases.
pub(crate) fn tool_patterns(names: &[String]) -> Vec<ToolPattern> {
    names.iter().map(|name| ToolPattern::parse(canonical_tool_name(name.trim()))).collect()
}

/// What a subagent hands in with `complete_task`.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOutput {
    /// The parameter.
    pub name: String,
    /// What it should hold.
    pub description: String,
    /// Its JSON Schema.
    pub schema: Value,
}

impl Default for AgentOutput {
    fn default() -> Self {
        Self {
            name: "result".to_owned(),
            description: "Your complete findings or the outcome of the task: all that your caller will ever see of it."
                .to_owned(),
            schema: json!({"type": "string"}),
        }
    }
}

/// An agent somewhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteAgent {
    /// Where its card is.
    pub card: AgentCardSource,
    /// How we prove who we are.
    pub auth: Option<RemoteAuth>,
    /// Longest task.
    pub timeout: Duration,
}

/// Where an agent's card is.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentCardSource {
    /// At this address.
    Url(String),
    /// Here.
    Inline(Value),
}

/// How to prove who we are to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteAuth {
    /// A key in a header.
    ApiKey {
        /// The key.
        key: SecretVariable,
        /// The header.
        header: String,
    },
    /// `Authorization: Bearer …`.
    Bearer(SecretVariable),
    /// `Authorization: Basic …`.
    Basic {
        /// The user, or a variable that holds it.
        username: String,
        /// The password.
        password: SecretVariable,
    },
}

impl RemoteAuth {
    /// The variable with the secret.
    #[must_use]
    pub fn secret(&self) -> &SecretVariable {
        match self {
            Self::ApiKey { key: secret, .. } | Self::Bearer(secret) | Self::Basic { password: secret, .. } => secret,
        }
    }
}

/// What the settings say about one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentOverride {
    /// `false` takes it away.
    pub enabled: Option<bool>,
    /// Its model.
    pub model: Option<String>,
    /// 0.0 to 2.0.
    pub temperature: Option<f64>,
    /// Most model calls of one run.
    pub max_turns: Option<u32>,
    /// Longest run.
    pub timeout: Option<Duration>,
    /// The tools that it may call.
    pub tools: Option<Vec<String>>,
    /// MCP servers for the time of a run.
    pub mcp_servers: Option<Map<String, Value>>,
}
