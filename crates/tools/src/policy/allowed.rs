//! `--allowed-tools` and its like: which rules does a short text stand for?

use super::shell::{self, Script};
use super::{ArgsPattern, Decision, Priority, Rule, Source, Tier, ToolPattern};

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
    named_rule(text, Decision::Allow, 300, "--allowed-tools")
}

/// A rule of the user's about what `text` names, written in the setting or flag `source`.
pub(super) fn named_rule(
    text: &str,
    decision: Decision,
    p: u16,
    source: &'static str,
) -> Result<Rule, AllowedToolError> {
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
    let mut rule = Rule::new(ToolPattern::parse(name), decision, Priority::new(Tier::User, p), Source::Named(source));
    if let Some(inner) = arguments.map(|inner| inner.trim().trim_end_matches(":*").trim_end()) {
        if name != shell::TOOL {
            return Err(AllowedToolError::NoArguments(text.to_owned()));
        }
        let script = Script::parse(inner);
        let words = script.only().filter(|part| part.unknown.is_none() && !part.writes && !part.assigns);
        let words = words.and_then(|part| part.literals()).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| AllowedToolError::NotSimple(text.to_owned()))?;
        rule.scope.args = Some(ArgsPattern::CommandPrefix(words.into_iter().map(str::to_owned).collect()));
    }
    Ok(rule)
}
