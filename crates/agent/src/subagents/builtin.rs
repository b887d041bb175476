//! The subagents that come with us. Source: runtime specification §12.2.

use std::time::Duration;

use serde_json::json;

use super::definition::{AgentDefinition, AgentKind, AgentOutput, AgentSource, LocalAgent, tool_patterns};

/// The tool with the documents that `cli_help` answers from.
pub(crate) const DOCS_TOOL: &str = "get_internal_docs";

/// All of them, in order.
pub(crate) fn definitions() -> Vec<AgentDefinition> {
    vec![codebase_investigator(), generalist(), cli_help()]
}

fn built_in(name: &str, display_name: &str, description: &str, agent: LocalAgent) -> AgentDefinition {
    AgentDefinition {
        name: name.to_owned(),
        display_name: Some(display_name.to_owned()),
        description: description.to_owned(),
        source: AgentSource::BuiltIn,
        kind: AgentKind::Local(Box::new(agent)),
    }
}

fn tools(names: &[&str]) -> Option<Vec<convoke_tools::policy::ToolPattern>> {
    Some(tool_patterns(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()))
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

const INVESTIGATE: &str = "\
You investigate a codebase for another agent that will do the work. You change nothing. Your caller sees your report and \
nothing else: what you leave out, it will not know.

- Begin with what the task names: words, symbols, messages. Search for them, read what you find, and follow the calls, \
types and configuration that matter until you know how it works.
- Look for everything that a change would touch: callers, tests, documents, build files, and code elsewhere that does the \
same.
- Understand why the code is as it is before you call it wrong.
- Stop when you could explain the matter to a colleague, or when further reading brings nothing new.

Report what you know from reading, name files with their paths, and say what you could not find out.";

fn codebase_investigator() -> AgentDefinition {
    let agent = LocalAgent {
        tools: tools(&["list_directory", "read_file", "glob", "grep_search"]),
        temperature: Some(0.1),
        max_turns: 50,
        timeout: minutes(10),
        output: AgentOutput {
            name: "report".to_owned(),
            description: "The report.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "SummaryOfFindings": {
                        "type": "string",
                        "description": "What is known now: how it works, what causes it, what a change has to mind.",
                    },
                    "ExplorationTrace": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "What was done to find out, step by step.",
                    },
                    "RelevantLocations": {
                        "type": "array",
                        "description": "The files that matter, the most important first.",
                        "items": {
                            "type": "object",
                            "properties": {
                                "FilePath": {"type": "string"},
                                "Reasoning": {"type": "string", "description": "Why it matters."},
                                "KeySymbols": {"type": "array", "items": {"type": "string"}},
                            },
                            "required": ["FilePath", "Reasoning", "KeySymbols"],
                        },
                    },
                },
                "required": ["SummaryOfFindings", "ExplorationTrace", "RelevantLocations"],
            }),
        },
        ..LocalAgent::new(INVESTIGATE)
    };
    built_in(
        "codebase_investigator",
        "Codebase investigator",
        "Finds out how code works and where: for questions that span many files, root causes, and the ground before a \
         larger change. Reads only. Give it the whole question with what is known already; it answers with a report.",
        agent,
    )
}

const GENERALIST: &str = "\
You do one task for another agent that goes on with your result. You have its tools and work in its workspace.

- Do the task completely and nothing beyond it. Follow the conventions that you find.
- Check your work the way the project checks it, where that is possible.
- Report what was done, which files changed, what was checked and with which outcome, and what was not done. Never claim \
what you have not seen.";

fn generalist() -> AgentDefinition {
    let agent = LocalAgent { max_turns: 20, timeout: minutes(10), ..LocalAgent::new(GENERALIST) };
    built_in(
        "generalist",
        "Generalist",
        "Does a task of its own with all tools: for work in many small steps, or with much output, whose details need \
         not stay in this conversation. Several can work at once on things that do not touch each other.",
        agent,
    )
}

const HELP: &str = "\
You answer questions about Convoke, the program that you are part of: its commands, settings and files.

Answer from its documents, which the tool get_internal_docs lists and reads, and from nothing else. If they do not say \
it, say so. Name the documents that you used.";

fn cli_help() -> AgentDefinition {
    let agent = LocalAgent {
        tools: tools(&[DOCS_TOOL]),
        max_turns: 10,
        timeout: minutes(3),
        output: AgentOutput {
            name: "report".to_owned(),
            description: "The answer.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "answer": {"type": "string", "description": "The answer, in Markdown."},
                    "sources": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "The documents that it comes from.",
                    },
                },
                "required": ["answer", "sources"],
            }),
        },
        ..LocalAgent::new(HELP)
    };
    built_in(
        "cli_help",
        "Help",
        "Answers questions about Convoke itself: its commands, flags, settings and files.",
        agent,
    )
}
