//! What does a prompt mean before a model reads it?
//!
//! A prompt that begins with `/` may be a command: one that is answered here, or one that stands for a longer prompt, out of
//! a file. `@path` in a prompt brings the file with it. Whatever a command runs goes through the session's scheduler, whatever
//! is read through its workspace; so policy, hooks and the guard around files hold here as anywhere. Source: runtime
//! specification §15.7.

mod builtin;
mod commands;
mod includes;
mod template;

use std::path::PathBuf;
use std::sync::Arc;

use convoke_adk::{FunctionCall, Part};
use convoke_protocol::CommandInfo;
use convoke_tools::builtin::{ReadManyRequest, read_many};
use convoke_tools::{ToolRegistry, ToolScheduler, Workspace};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{Level, event};

use crate::context_files::ContextFile;
use crate::mcp::ServersAtHand;
use commands::{Commands, Custom};

pub(crate) use builtin::SessionFacts;
use template::Piece;

/// What becomes of a prompt.
#[derive(Debug)]
pub(crate) enum Meaning {
    /// The model reads this.
    Prompt(Vec<Part>),
    /// It is answered without a model.
    Answer(String),
    /// The session is to be compressed, and told how that went.
    Compress,
    /// The session is to go back, or to say where to: what was typed behind the command.
    Rewind(String),
    /// Another session is to begin here.
    Branch(String),
    /// It can't be done: policy refused a part of it, or a file of it can't be read.
    Refused(String),
}

/// A prompt, understood.
#[derive(Debug)]
pub(crate) struct Understood {
    pub(crate) meaning: Meaning,
    /// What a person should know, such as files that were left out.
    pub(crate) notes: Vec<String>,
}

/// Where commands come from, and what prompts may bring with them.
#[derive(Clone, Debug, Default)]
pub struct PromptOptions {
    /// Folders with command files, weakest first: a name in a later one stands for an earlier one's.
    pub command_folders: Vec<PathBuf>,
    /// Folders below the working folder with command files, which count where it is trusted.
    pub workspace_command_folders: Vec<PathBuf>,
    /// Whether `@path` in a prompt brings the file with it. A client that attaches files itself needs it not.
    pub includes: bool,
}

/// Understands the prompts of one session.
pub(crate) struct Prompts {
    commands: Commands,
    includes: bool,
    workspace: Arc<Workspace>,
    registry: Arc<ToolRegistry>,
    scheduler: Arc<ToolScheduler>,
    memory: Vec<ContextFile>,
    servers: ServersAtHand,
}

impl Prompts {
    /// Reads the command files of the session.
    pub(crate) fn new(
        options: &PromptOptions,
        trusted: bool,
        workspace: Arc<Workspace>,
        registry: Arc<ToolRegistry>,
        scheduler: Arc<ToolScheduler>,
        memory: Vec<ContextFile>,
        servers: ServersAtHand,
    ) -> Self {
        let mut folders = options.command_folders.clone();
        if trusted {
            folders.extend(options.workspace_command_folders.iter().map(|folder| workspace.cwd().join(folder)));
        }
        let commands = Commands::load(&folders);
        Self { commands, includes: options.includes, workspace, registry, scheduler, memory, servers }
    }

    /// The commands that a client may offer, by name.
    pub(crate) fn commands(&self) -> Vec<CommandInfo> {
        let mut all: Vec<CommandInfo> = builtin::table();
        all.extend(self.commands.table());
        let prompts = self.servers.commands(&all);
        all.extend(prompts);
        all
    }

    /// A prompt of a server, as the user's own words: whoever types a command chose what it says.
    async fn prompt(&self, name: &str, args: &str, cancel: &CancellationToken) -> Option<Meaning> {
        let mut taken: Vec<CommandInfo> = builtin::table();
        taken.extend(self.commands.table());
        let listed = self.servers.prompt_of(name, &taken, cancel).await?;
        Some(match self.servers.render(&listed, args, cancel).await {
            Ok(answer) => {
                let text = (!answer.text.is_empty()).then(|| Part::text(answer.text));
                let parts: Vec<Part> = text.into_iter().chain(answer.parts).collect();
                match parts.is_empty() {
                    true => Meaning::Refused(format!("use /{name}: the prompt is empty")),
                    false => Meaning::Prompt(parts),
                }
            }
            Err(reason) => Meaning::Refused(format!("use /{name}: {reason}")),
        })
    }

    /// Understands one prompt. `session` tells what a built-in command may want to know.
    pub(crate) async fn understand(
        &self,
        parts: Vec<Part>,
        session: &SessionFacts,
        cancel: &CancellationToken,
    ) -> Understood {
        let mut notes = Vec::new();
        let meaning = self.meaning(parts, session, cancel, &mut notes).await;
        Understood { meaning, notes }
    }

    async fn meaning(
        &self,
        parts: Vec<Part>,
        session: &SessionFacts,
        cancel: &CancellationToken,
        notes: &mut Vec<String>,
    ) -> Meaning {
        let first = parts.first().and_then(Part::as_text).unwrap_or_default();
        // A command is short; only what may be one is copied.
        let text = if first.trim_start().starts_with('/') { first.to_owned() } else { String::new() };
        if let Some((name, args)) = commands::parse(&text) {
            if let Some(command) = self.commands.get(name) {
                let meaning = self.custom(command, &text, args, cancel, notes).await;
                return told_with(name, meaning, parts);
            }
            if name == builtin::COMPRESS && args.is_empty() {
                tell(name, None, true);
                return Meaning::Compress;
            }
            if name == builtin::REWIND || name == builtin::BRANCH {
                tell(name, None, true);
                let args = args.to_owned();
                return if name == builtin::REWIND { Meaning::Rewind(args) } else { Meaning::Branch(args) };
            }
            if name == builtin::MCP && matches!(args, "" | "list" | "desc" | "descriptions") {
                tell(name, args.split_whitespace().next(), true);
                return Meaning::Answer(self.servers.listing(args.starts_with("desc"), cancel).await);
            }
            let facts = builtin::Facts {
                session,
                commands: &self.commands(),
                tools: &self.registry,
                memory: &self.memory,
                workspace: &self.workspace,
            };
            if let Some(answer) = builtin::answer(name, args, &facts) {
                tell(name, args.split_whitespace().next(), true);
                return Meaning::Answer(answer);
            }
            if let Some(meaning) = self.prompt(name, args, cancel).await {
                return told_with(name, meaning, parts);
            }
            // Not a command of ours: a path at the beginning of a prompt looks the same. The model may make sense of it.
        }
        self.included(parts, cancel, notes).await
    }

    /// Only the last part is looked at: what comes before it is what a pipe brought, and no words to us.
    async fn included(&self, mut parts: Vec<Part>, cancel: &CancellationToken, notes: &mut Vec<String>) -> Meaning {
        let Some(last) = parts.pop() else { return Meaning::Prompt(parts) };
        match last.as_text() {
            Some(text) if self.includes && text.contains('@') => {
                let included = includes::expand(&self.workspace, &self.servers, text, cancel).await;
                notes.extend(included.notes);
                parts.push(Part::text(included.text));
                parts.extend(included.parts);
            }
            Some(_) | None => parts.push(last),
        }
        Meaning::Prompt(parts)
    }

    /// A command out of a file: files first, then commands and arguments, so that nothing that was read is run.
    async fn custom(
        &self,
        command: &Custom,
        invocation: &str,
        args: &str,
        cancel: &CancellationToken,
        notes: &mut Vec<String>,
    ) -> Meaning {
        let pieces = match template::parse(&command.prompt) {
            Ok(pieces) => pieces,
            Err(error) => return Meaning::Refused(format!("use command /{}: {error}", command.name)),
        };
        let takes_args = pieces.iter().any(Piece::takes_args);
        let mut parts: Vec<Part> = Vec::new();
        let mut text = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(plain) => text.push_str(&plain),
                Piece::Args => text.push_str(args),
                Piece::File(path) => match self.file(&path, cancel).await {
                    Ok(content) => {
                        for part in content {
                            match part.as_text() {
                                Some(more) => text.push_str(more),
                                None => {
                                    parts.push(Part::text(std::mem::take(&mut text)));
                                    parts.push(part);
                                }
                            }
                        }
                    }
                    Err(reason) => {
                        notes.push(format!("/{}: @{{{path}}} was left out: {reason}", command.name));
                        text.push_str(&format!("@{{{path}}}"));
                    }
                },
                Piece::Shell(line) => match self.shell(&line.command(args), cancel).await {
                    Ok(output) => text.push_str(&output),
                    Err(reason) => return Meaning::Refused(format!("run /{}: {reason}", command.name)),
                },
            }
        }
        if !takes_args && !args.is_empty() {
            text.push_str("\n\n");
            text.push_str(invocation.trim());
        }
        if !text.trim().is_empty() {
            parts.push(Part::text(text));
        }
        if parts.is_empty() {
            return Meaning::Refused(format!("run /{}: it leaves nothing to ask", command.name));
        }
        Meaning::Prompt(parts)
    }

    async fn file(&self, path: &str, cancel: &CancellationToken) -> Result<Vec<Part>, String> {
        let request = ReadManyRequest::of(vec![path.to_owned()]);
        let read = read_many(&self.workspace, request, cancel).await.map_err(|failure| failure.message().to_owned())?;
        if read.files.is_empty() {
            let reason = read.skipped.into_iter().next().map(|skipped| skipped.reason);
            return Err(reason.unwrap_or_else(|| "no such file".to_owned()));
        }
        Ok(read.files.into_iter().flat_map(|file| file.parts).collect())
    }

    /// What a command prints. Judged, asked about and shown like any call of the model's.
    async fn shell(&self, command: &str, cancel: &CancellationToken) -> Result<String, String> {
        let args = json!({"command": command, "description": "A command of a slash command"});
        let id = format!("slash-{}", uuid::Uuid::new_v4());
        let call = FunctionCall { id: Some(id), name: "run_shell_command".to_owned(), args };
        let outcome = self.scheduler.schedule(vec![call], cancel).await;
        let Some(response) = outcome.responses.into_iter().next() else { return Err("it was not run".to_owned()) };
        match (response.error_message(), response.response.get("output").and_then(Value::as_str)) {
            (Some(error), _) => Err(error.to_owned()),
            (None, output) => Ok(printed(output.unwrap_or_default())),
        }
    }
}

/// Output of a command without the words that the shell tool puts around it for a model.
fn printed(told: &str) -> String {
    match told.strip_prefix("Output: ").unwrap_or(told) {
        "(empty)" => String::new(),
        output => output.to_owned(),
    }
}

/// Tells of a command that has become a prompt or was refused. What came behind its text goes with the prompt.
fn told_with(name: &str, meaning: Meaning, parts: Vec<Part>) -> Meaning {
    tell(name, None, !matches!(meaning, Meaning::Refused(_)));
    match meaning {
        Meaning::Prompt(mut prompt) => {
            prompt.extend(parts.into_iter().skip(1));
            Meaning::Prompt(prompt)
        }
        other => other,
    }
}

fn tell(command: &str, subcommand: Option<&str>, ok: bool) {
    event!(
        target: "convoke::telemetry",
        Level::INFO,
        event.name = "gemini_cli.slash_command",
        command,
        subcommand,
        status = if ok { "success" } else { "error" },
    );
}
