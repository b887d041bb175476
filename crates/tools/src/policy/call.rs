//! What does the policy know of a call? The tool, its arguments, and where both come from.

use std::path::Path;

use serde_json::{Map, Value};

use super::plans::PlanFolder;

/// What is known of a tool before any call of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolFacts<'a> {
    /// The registered name, never an alias.
    pub name: &'a str,
    /// The MCP server that it comes from.
    pub mcp_server: Option<&'a str>,
    /// What that server calls it.
    pub mcp_tool: Option<&'a str>,
    /// What the tool says of itself, such as `readOnlyHint`. Hints: only rules that name them listen.
    pub annotations: Option<&'a Map<String, Value>>,
    /// The subagent that calls, if it is one.
    pub subagent: Option<&'a str>,
}

impl<'a> ToolFacts<'a> {
    /// A tool of ours, called by the main agent.
    #[must_use]
    pub fn named(name: &'a str) -> Self {
        Self { name, ..Self::default() }
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCall<'a> {
    /// The tool.
    pub tool: ToolFacts<'a>,
    /// The arguments as they would run.
    pub args: &'a Value,
    /// The real paths of the files that it touches, links resolved; empty where the tool can't tell.
    pub touches: &'a [&'a Path],
}

impl<'a> PolicyCall<'a> {
    /// A call of a tool of ours.
    #[must_use]
    pub fn new(tool: &'a str, args: &'a Value) -> Self {
        Self { tool: ToolFacts::named(tool), args, touches: &[] }
    }

    pub(super) fn writes_only_plans(&self, folder: Option<&PlanFolder>) -> bool {
        folder.is_some_and(|folder| !self.touches.is_empty() && self.touches.iter().all(|path| folder.has(path)))
    }
}
