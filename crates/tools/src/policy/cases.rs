//! Files of calls with the verdict that each must get: what `convoke policy test` reads, and our own corpus.
//!
//! ```toml
//! [[group]]                       # commands that have mode and listener in common
//! mode = "default"                # the session's own mode if it is left out
//! interactive = true
//! allow = ["git status"]
//! ask_user = ["npm install"]
//! deny = ["rm -rf /"]
//!
//! [[case]]                        # any other call
//! tool = "write_file"
//! args = { file_path = "a.txt", content = "" }
//! expect = "ask_user"
//! server = "docs"                 # the MCP server that the tool is of, which calls it so
//! annotations = { readOnlyHint = true }
//! subagent = "reviewer"           # who calls
//! ```

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Checker, Decision, Judgement, Mode, Policy, PolicyCall, ToolFacts, shell};

/// A call, and what must be decided about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Value,
    /// The MCP server that it is of; `tool` is then what the server calls it.
    pub server: Option<String>,
    /// What the tool says of itself.
    pub annotations: Map<String, Value>,
    /// The subagent that calls.
    pub subagent: Option<String>,
    /// The mode; `None` for the session's own.
    pub mode: Option<Mode>,
    /// Whether there is somebody to ask; `None` for yes.
    pub interactive: Option<bool>,
    /// The verdict.
    pub expect: Decision,
}

impl Case {
    /// A call of ours, in the session's own mode, of which nothing is expected yet.
    #[must_use]
    pub fn of(tool: String, args: Value) -> Self {
        Self {
            tool,
            args,
            server: None,
            annotations: Map::new(),
            subagent: None,
            mode: None,
            interactive: None,
            expect: Decision::Ask,
        }
    }

    /// What the policy says of it.
    #[must_use]
    pub fn judge(&self, policy: &Policy) -> Judgement {
        self.as_call(|call| policy.judge(call))
    }

    /// The names of the checkers that are asked as well, unless the call is refused without them.
    #[must_use]
    pub fn checkers(&self, policy: &Policy) -> Vec<Checker> {
        self.as_call(|call| policy.checkers(call))
    }

    fn as_call<T>(&self, then: impl FnOnce(&PolicyCall<'_>) -> T) -> T {
        let name = self.server.as_ref().map(|server| format!("mcp_{server}_{}", self.tool));
        let tool = ToolFacts {
            name: name.as_deref().unwrap_or(&self.tool),
            mcp_server: self.server.as_deref(),
            mcp_tool: self.server.as_ref().map(|_| self.tool.as_str()),
            annotations: Some(&self.annotations),
            subagent: self.subagent.as_deref(),
        };
        then(&PolicyCall { tool, args: &self.args, touches: &[] })
    }
}

/// Why a file of cases can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read cases: {0}")]
pub struct CasesError(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    #[serde(default)]
    group: Vec<Group>,
    #[serde(default)]
    case: Vec<Single>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(rename = "name", default)]
    _name: Option<String>,
    mode: Option<String>,
    interactive: Option<bool>,
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    ask_user: Vec<String>,
    #[serde(default)]
    deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Single {
    tool: Option<String>,
    command: Option<String>,
    args: Option<Map<String, Value>>,
    mode: Option<String>,
    interactive: Option<bool>,
    server: Option<String>,
    #[serde(default)]
    annotations: Map<String, Value>,
    subagent: Option<String>,
    expect: String,
}

/// Reads a file of cases.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, CasesError> {
    let shape: Shape = toml::from_str(text).map_err(|error| CasesError(error.to_string()))?;
    let mut cases = Vec::new();
    for group in shape.group {
        let mode = mode_of(group.mode.as_deref())?;
        let interactive = group.interactive;
        let lists = [(group.allow, Decision::Allow), (group.ask_user, Decision::Ask), (group.deny, Decision::Deny)];
        for (commands, expect) in lists {
            cases.extend(commands.into_iter().map(|command| Case {
                mode,
                interactive,
                expect,
                ..Case::of(shell::TOOL.to_owned(), json!({"command": command}))
            }));
        }
    }
    for single in shape.case {
        let args = match (single.command, single.args) {
            (Some(command), None) => json!({"command": command}),
            (None, Some(args)) => Value::Object(args),
            (None, None) => json!({}),
            (Some(_), Some(_)) => return Err(CasesError("a case has command or args, not both".to_owned())),
        };
        if single.server.is_some() && single.tool.is_none() {
            return Err(CasesError("a case with a server needs its tool".to_owned()));
        }
        cases.push(Case {
            tool: single.tool.unwrap_or_else(|| shell::TOOL.to_owned()),
            args,
            server: single.server,
            annotations: single.annotations,
            subagent: single.subagent,
            mode: mode_of(single.mode.as_deref())?,
            interactive: single.interactive,
            expect: Decision::parse(&single.expect)
                .ok_or_else(|| CasesError(format!("\"{}\" is not allow, deny or ask_user", single.expect)))?,
        });
    }
    Ok(cases)
}

fn mode_of(name: Option<&str>) -> Result<Option<Mode>, CasesError> {
    let Some(name) = name else { return Ok(None) };
    let mode = Mode::ALL.into_iter().find(|mode| mode.in_files() == name || mode.as_str() == name);
    mode.map(Some).ok_or_else(|| CasesError(format!("\"{name}\" is not default, autoEdit, yolo or plan")))
}
