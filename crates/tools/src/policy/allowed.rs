//! `--allowed-tools` and its like: which rules does a short text stand for?

use super::command::{self, Command};
use super::{ArgsPattern, Decision, Priority, Rule, Tier, ToolPattern};

/// Other names that the field has used for tools of ours.
const ALIASES: [(&str, &str); 9] = [
    ("ShellTool", "run_shell_command"),
    ("EditTool", "replace"),
    ("WriteFileTool", "write_file"),
    ("ReadFileTool", "read_file"),
    ("LSTool", "list_directory"),
    ("GlobTool", "glob"),
    ("GrepTool", "grep_search"),
    ("search_file_content", "grep_search"),
    ("WebFetchTool", "web_fetch"),
];

/// The name of ours that `name` stands for: itself, unless it is an alias.
#[must_use]
pub fn canonical_tool_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, canonical)| canonical)
}

/// Why an entry is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowedToolError {
    /// Neither `name` nor `name(arguments)`.
    #[error("read allowed tool \"{0}\": expected a name or name(arguments)")]
    Malformed(String),
    /// Only commands can be told apart by their arguments.
    #[error("read allowed tool \"{0}\": only run_shell_command takes a command in parentheses")]
    NoArguments(String),
    /// The command is not a program with plain words.
    #[error("read allowed tool \"{0}\": the command must be one program with plain words")]
    NotSimple(String),
}

/// Reads `read_file`, `mcp_server_*`, `run_shell_command(git status)`: a rule of the user's that allows (4.300).
pub fn parse_allowed_tool(text: &str) -> Result<Rule, AllowedToolError> {
    let text = text.trim();
    let (name, arguments) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => {
            let inner = rest.strip_suffix(')').ok_or_else(|| AllowedToolError::Malformed(text.to_owned()))?;
            (name.trim(), Some(inner))
        }
    };
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == ')') {
        return Err(AllowedToolError::Malformed(text.to_owned()));
    }
    let name = canonical_tool_name(name);
    let args = match arguments.map(|inner| inner.trim().trim_end_matches(":*").trim_end()) {
        None => None,
        Some(_) if name != command::TOOL => return Err(AllowedToolError::NoArguments(text.to_owned())),
        Some(inner) => match Command::parse(inner) {
            Command::Simple(simple) => Some(ArgsPattern::CommandPrefix(simple.words().to_vec())),
            Command::Complex { .. } => return Err(AllowedToolError::NotSimple(text.to_owned())),
        },
    };
    let rule = Rule::new(ToolPattern::parse(name), Decision::Allow, Priority::new(Tier::User, 300), "--allowed-tools");
    Ok(Rule { args, ..rule })
}
