//! Commands that are answered without a model.

use convoke_protocol::{AgentEvent, AgentEventBody, CommandInfo};
use convoke_tools::{ToolRegistry, Workspace};

use crate::context_files::ContextFile;

/// Compresses the session; the session itself does it.
pub(super) const COMPRESS: &str = "compress";
/// Tells of MCP servers.
pub(super) const MCP: &str = "mcp";

/// Begins another session; the session itself does it.
pub(super) const BRANCH: &str = "branch";
/// Goes back; the session itself does it.
pub(super) const REWIND: &str = "rewind";

/// The commands, with what they do. A dictionary: one line per command.
const TABLE: [(&str, &str, Option<&str>); 8] = [
    (BRANCH, "begin another session with what was said so far, or before a prompt", Some("number of a prompt")),
    (COMPRESS, "put a summary in the place of older parts of the conversation", None),
    ("help", "what can be typed here", None),
    (MCP, "the MCP servers of this session, and where they stand", Some("list | desc")),
    ("memory", "the context files that the agent was given", Some("show | list")),
    (REWIND, "go back to before a prompt", Some("number of a prompt, then conversation | files | both")),
    ("stats", "tokens and tool calls of this session", None),
    ("tools", "the tools that the model is told of", Some("desc")),
];

/// What a session knows of itself.
#[derive(Debug, Default)]
pub(crate) struct SessionFacts {
    model: String,
    prompts: u64,
    calls: u64,
    failed_calls: u64,
    /// Model, requests, tokens sent, tokens received.
    models: Vec<(String, u64, u64, u64)>,
}

impl SessionFacts {
    /// Counts what `events` tell.
    pub(crate) fn of<'a>(model: String, events: impl IntoIterator<Item = &'a AgentEvent>) -> Self {
        let mut facts = Self { model, ..Self::default() };
        for event in events {
            match &event.body {
                AgentEventBody::AgentStart => facts.prompts += 1,
                AgentEventBody::ToolResponse { is_error, .. } => {
                    facts.calls += 1;
                    facts.failed_calls += u64::from(*is_error);
                }
                AgentEventBody::Usage { model, input_tokens, output_tokens, .. } => {
                    let (input, output) = (input_tokens.unwrap_or_default(), output_tokens.unwrap_or_default());
                    match facts.models.iter_mut().find(|(name, ..)| name == model) {
                        Some((_, requests, sent, received)) => {
                            *requests += 1;
                            *sent += input;
                            *received += output;
                        }
                        None => facts.models.push((model.clone(), 1, input, output)),
                    }
                }
                _ => {}
            }
        }
        facts
    }
}

/// What a command may tell of.
pub(super) struct Facts<'a> {
    pub(super) session: &'a SessionFacts,
    pub(super) commands: &'a [CommandInfo],
    pub(super) tools: &'a ToolRegistry,
    pub(super) memory: &'a [ContextFile],
    pub(super) workspace: &'a Workspace,
}

/// The table as a client shows it.
pub(super) fn table() -> Vec<CommandInfo> {
    let info = |(name, description, hint): (&str, &str, Option<&str>)| CommandInfo {
        name: name.to_owned(),
        description: description.to_owned(),
        hint: hint.map(ToOwned::to_owned),
    };
    TABLE.map(info).to_vec()
}

/// The answer to a built-in command; `None` if there is none of this name.
pub(super) fn answer(name: &str, args: &str, facts: &Facts<'_>) -> Option<String> {
    Some(match (name, args) {
        ("help", _) => help(facts),
        ("memory", "list") => memory(facts, false),
        ("memory", "" | "show") => memory(facts, true),
        ("stats", _) => stats(facts.session),
        ("tools", _) => tools(facts, matches!(args, "desc" | "descriptions")),
        _ => return None,
    })
}

fn help(facts: &Facts<'_>) -> String {
    let lines = facts.commands.iter().map(|command| format!("  /{} - {}", command.name, command.description));
    let lines: Vec<String> = lines.collect();
    format!("Commands:\n{}\n\n@path in a prompt brings a file or folder with it.", lines.join("\n"))
}

fn memory(facts: &Facts<'_>, whole: bool) -> String {
    if facts.memory.is_empty() {
        return "There are no context files.".to_owned();
    }
    let shown = facts.memory.iter().map(|file| {
        let path = facts.workspace.shorten(&file.path);
        if whole { format!("--- {path} ---\n{}", file.text.trim_end()) } else { path }
    });
    shown.collect::<Vec<_>>().join("\n")
}

fn stats(session: &SessionFacts) -> String {
    let SessionFacts { model, prompts, calls, failed_calls, models } = session;
    let mut lines = vec![
        format!("Model: {model}"),
        format!("Prompts: {prompts}"),
        format!("Tool calls: {calls}, {failed_calls} of them failed"),
    ];
    lines.extend(models.iter().map(|(name, requests, sent, received)| {
        format!("{name}: {requests} request(s), {sent} tokens sent, {received} received")
    }));
    lines.join("\n")
}

fn tools(facts: &Facts<'_>, described: bool) -> String {
    let line = |tool: std::sync::Arc<dyn convoke_tools::DeclarativeTool>| match described {
        true => format!("  {} - {}", tool.name(), tool.declaration(&facts.session.model).description),
        false => format!("  {}", tool.name()),
    };
    let lines: Vec<String> = facts.tools.offered().into_iter().map(line).collect();
    format!("Tools:\n{}", lines.join("\n"))
}
