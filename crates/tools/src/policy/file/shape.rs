//! The tables of a policy file, key by key.

use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileShape {
    #[serde(default)]
    pub(super) rule: Vec<Spanned<RuleShape>>,
    #[serde(default)]
    pub(super) safety_checker: Vec<Spanned<SafetyCheckerShape>>,
}

/// A text, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    pub(super) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// What a rule and a checker have in common. Not flattened into them: unknown keys could not be told then.
#[derive(Debug)]
pub(super) struct ScopeShape {
    pub(super) tool_name: Option<Texts>,
    pub(super) subagent: Option<String>,
    pub(super) mcp_name: Option<String>,
    pub(super) args_pattern: Option<String>,
    pub(super) command_prefix: Option<Texts>,
    pub(super) command_regex: Option<String>,
    pub(super) modes: Option<Vec<String>>,
    pub(super) tool_annotations: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRule {
    name: Option<String>,
    // For people only.
    #[serde(rename = "description")]
    _description: Option<String>,
    tool_name: Option<Texts>,
    subagent: Option<String>,
    mcp_name: Option<String>,
    args_pattern: Option<String>,
    command_prefix: Option<Texts>,
    command_regex: Option<String>,
    decision: String,
    priority: i64,
    modes: Option<Vec<String>>,
    interactive: Option<bool>,
    tool_annotations: Option<Map<String, Value>>,
    // Spelt with underscores in older files.
    #[serde(alias = "allow_redirection")]
    allow_redirection: Option<bool>,
    #[serde(alias = "deny_message")]
    deny_message: Option<String>,
    #[serde(rename = "safety_checker")]
    safety_checker: Option<CheckerShape>,
}

#[derive(Debug, Deserialize)]
#[serde(from = "RawRule")]
pub(super) struct RuleShape {
    pub(super) name: Option<String>,
    pub(super) scope: ScopeShape,
    pub(super) decision: String,
    pub(super) priority: i64,
    pub(super) interactive: Option<bool>,
    pub(super) allow_redirection: Option<bool>,
    pub(super) deny_message: Option<String>,
    pub(super) safety_checker: Option<CheckerShape>,
}

impl From<RawRule> for RuleShape {
    fn from(raw: RawRule) -> Self {
        Self {
            name: raw.name,
            scope: ScopeShape {
                tool_name: raw.tool_name,
                subagent: raw.subagent,
                mcp_name: raw.mcp_name,
                args_pattern: raw.args_pattern,
                command_prefix: raw.command_prefix,
                command_regex: raw.command_regex,
                modes: raw.modes,
                tool_annotations: raw.tool_annotations,
            },
            decision: raw.decision,
            priority: raw.priority,
            interactive: raw.interactive,
            allow_redirection: raw.allow_redirection,
            deny_message: raw.deny_message,
            safety_checker: raw.safety_checker,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawSafetyChecker {
    // For people only.
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    tool_name: Option<Texts>,
    mcp_name: Option<String>,
    args_pattern: Option<String>,
    command_prefix: Option<Texts>,
    command_regex: Option<String>,
    priority: Option<i64>,
    modes: Option<Vec<String>>,
    tool_annotations: Option<Map<String, Value>>,
    checker: CheckerShape,
}

#[derive(Debug, Deserialize)]
#[serde(from = "RawSafetyChecker")]
pub(super) struct SafetyCheckerShape {
    pub(super) scope: ScopeShape,
    pub(super) priority: Option<i64>,
    pub(super) checker: CheckerShape,
}

impl From<RawSafetyChecker> for SafetyCheckerShape {
    fn from(raw: RawSafetyChecker) -> Self {
        Self {
            scope: ScopeShape {
                tool_name: raw.tool_name,
                subagent: None,
                mcp_name: raw.mcp_name,
                args_pattern: raw.args_pattern,
                command_prefix: raw.command_prefix,
                command_regex: raw.command_regex,
                modes: raw.modes,
                tool_annotations: raw.tool_annotations,
            },
            priority: raw.priority,
            checker: raw.checker,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckerShape {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: String,
    // Everything that a checker is told is told to each.
    #[serde(rename = "required_context", default)]
    _required_context: Vec<String>,
    pub(super) config: Option<toml::Table>,
}
