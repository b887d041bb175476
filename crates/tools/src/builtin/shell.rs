//! `run_shell_command`: what does a command print, and how does it end?
//!
//! Standard input is empty. What the command starts ends with it, unless it asked for the background. Output is kept
//! in memory within [`ShellOptions::output_bytes_max`]; bytes that are no UTF-8 become U+FFFD.

mod terminal;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_stdx::guard::Confinement;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior};

use crate::policy::Script;
use crate::process::{Capture, Exit, Guards, Happened, Launch, Running};
use crate::sandbox::{SandboxOptions, Wanted};
use crate::{
    Access, BackgroundProcesses, BackgroundStatus, ClientTerminals, ConfirmationDetails, DeclarativeTool, ErrorType,
    ExecutionContext, Invocation, Kind, LiveOutput, Location, Reach, ResultDisplay, ToolFailure, ToolOutput, Workspace,
    params,
};

/// How commands are run.
#[derive(Clone, Debug)]
pub struct ShellOptions {
    /// Who starts them.
    pub guards: Guards,
    /// Variables that they don't see: credentials of ours.
    pub unset: Vec<String>,
    /// Variables that they see besides those of this process.
    pub set: Vec<(String, String)>,
    /// A command that prints nothing for this long is ended; `None` for no limit.
    pub inactivity_timeout: Option<Duration>,
    /// Bytes of output kept of one command: half from the beginning, half from the end.
    pub output_bytes_max: usize,
    /// What they may change and reach; `None` for all that this process may.
    pub sandbox: Option<SandboxOptions>,
    /// Where commands in the foreground run that are in no sandbox; as children of ours otherwise.
    pub terminals: Option<Arc<dyn ClientTerminals>>,
}

impl ShellOptions {
    /// Commands start through `guards`; the rest as in the specification (§13.3): 300 s, 16 MiB.
    #[must_use]
    pub fn new(guards: Guards) -> Self {
        let set =
            [("GEMINI_CLI", "1"), ("CONVOKE", "1"), ("TERM", "xterm-256color"), ("PAGER", "cat"), ("GIT_PAGER", "cat")];
        Self {
            guards,
            unset: Vec::new(),
            set: set.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            inactivity_timeout: Some(Duration::from_secs(300)),
            output_bytes_max: 16 << 20,
            sandbox: None,
            terminals: None,
        }
    }
}

const NAME: &str = "run_shell_command";
const DEFAULT_DELAY: Duration = Duration::from_millis(200);
// A model that wants to wait longer reads the output later.
const DELAY_MAX: Duration = Duration::from_secs(60);
const LIVE_EVERY: Duration = Duration::from_secs(1);
// About what a screen shows.
const LIVE_BYTES_MAX: usize = 16 << 10;
const TITLE_CHARS_MAX: usize = 20_000;

/// The tool.
pub struct RunShellCommand {
    shared: Arc<Shared>,
    schema: Value,
}

struct Shared {
    workspace: Arc<Workspace>,
    options: ShellOptions,
    background: Arc<BackgroundProcesses>,
}

#[derive(Debug, Deserialize)]
struct Params {
    command: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    dir_path: Option<String>,
    #[serde(default)]
    is_background: Option<bool>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    delay_ms: Option<u64>,
    #[serde(default)]
    additional_permissions: Wanted,
}

impl RunShellCommand {
    /// Commands in `workspace`; those in the background belong to `background`.
    #[must_use]
    pub fn new(workspace: Arc<Workspace>, options: ShellOptions, background: Arc<BackgroundProcesses>) -> Self {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The exact command to run, as `bash -c <command>`."},
                "description": {
                    "type": "string",
                    "description": "What the command does, in one short sentence for the user.",
                },
                "dir_path": {
                    "type": "string",
                    "description": "The folder to run in, absolute or relative to the working folder. \
                                    Must be inside the workspace. By default the working folder.",
                },
                "is_background": {
                    "type": "boolean",
                    "description": "Set to true for servers, watchers and whatever else should go on running after \
                                    this call. Don't use `&` for that: what a command leaves behind is ended with it.",
                },
                "delay_ms": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "With is_background: how many milliseconds to wait for first output. \
                                    200 by default.",
                },
            },
            "required": ["command"],
        });
        // Not offered where there is no sandbox to leave.
        if let (Some(_), Some(properties)) = (&options.sandbox, schema["properties"].as_object_mut()) {
            properties.insert("additional_permissions".to_owned(), Wanted::schema());
        }
        Self { shared: Arc::new(Shared { workspace, options, background }), schema }
    }
}

impl DeclarativeTool for RunShellCommand {
    fn name(&self) -> &str {
        NAME
    }

    fn display_name(&self) -> &str {
        "Shell"
    }

    fn kind(&self) -> Kind {
        Kind::Execute
    }

    fn reach(&self, args: &Value) -> Reach {
        let command = args.get("command").and_then(Value::as_str).unwrap_or_default();
        if Script::parse(command).only_reads() { Reach::Nothing } else { Reach::Anything }
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: NAME.to_owned(),
            description: "Runs a command with `bash -c`. There is no terminal and no input: commands that ask \
                          questions fail or hang, so use flags that answer them.\n\nThe result has these parts, empty \
                          ones left out: Output (standard output and standard error as they came), Exit Code \
                          (unless 0), Signal, Process Group PGID (for background commands)."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn truncates_output(&self) -> bool {
        true
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        if params.command.trim().is_empty() {
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, "params/command must not be empty"));
        }
        if params.command.contains('\0') {
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, "params/command must not have a NUL in it"));
        }
        if let Some(folder) = &params.dir_path {
            self.shared.workspace.resolve(folder, Access::Write)?;
        }
        params.additional_permissions.check()?;
        Ok(Arc::new(Call { shared: Arc::clone(&self.shared), params }))
    }
}

struct Call {
    shared: Arc<Shared>,
    params: Params,
}

/// How a command in the foreground came to its end.
enum End {
    Exited(Exit),
    Cancelled,
    Silent(Duration),
    Lost(std::io::Error),
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        let mut text: String = self.params.command.chars().take(TITLE_CHARS_MAX).collect();
        if let Some(folder) = &self.params.dir_path {
            text.push_str(&format!(" [in {folder}]"));
        }
        if let Some(description) = self.params.description.as_deref().filter(|text| !text.trim().is_empty()) {
            text.push_str(&format!(" ({})", description.replace('\n', " ")));
        }
        if self.in_background() {
            text.push_str(" [background]");
        }
        text
    }

    fn locations(&self) -> Vec<Location> {
        let folder = self.params.dir_path.as_ref();
        let folder = folder.and_then(|folder| self.shared.workspace.resolve(folder, Access::Write).ok());
        folder.into_iter().map(|f| Location { path: f.as_path().display().to_string(), line: None }).collect()
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        let command = self.params.command.clone();
        let root_commands = Script::parse(&command).programs();
        Ok(ConfirmationDetails::Exec { command, root_commands })
    }

    fn demand(&self) -> Option<String> {
        self.shared.options.sandbox.as_ref().and_then(|_| self.params.additional_permissions.question())
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        if cx.cancel.is_cancelled() {
            return Err(ToolFailure::cancelled("Command was cancelled by user before it could start."));
        }
        if let Some(terminals) = self.terminals() {
            return self.run_there(terminals, cx).await;
        }
        let running = self.start().await?;
        if self.in_background() { self.leave_running(running, cx).await } else { self.run(running, cx).await }
    }
}

impl Call {
    fn in_background(&self) -> bool {
        self.params.is_background == Some(true)
    }

    fn confinement(&self) -> Option<Confinement> {
        let Shared { workspace, options, .. } = self.shared.as_ref();
        options.sandbox.as_ref().map(|sandbox| sandbox.confinement(workspace, &self.params.additional_permissions))
    }

    /// Where it runs.
    fn folder(&self) -> Result<PathBuf, ToolFailure> {
        let workspace = &self.shared.workspace;
        // Again, because a call before this one may have moved things.
        let resolved = match &self.params.dir_path {
            Some(folder) => Some(workspace.resolve(folder, Access::Write)?),
            None => None,
        };
        let folder = resolved.as_ref().map_or(workspace.cwd(), |resolved| resolved.as_path());
        if !folder.is_dir() {
            let message = format!("Directory not found: {}", folder.display());
            return Err(ToolFailure::new(ErrorType::PathIsNotADirectory, message));
        }
        Ok(folder.to_owned())
    }

    async fn start(&self) -> Result<Running, ToolFailure> {
        let options = &self.shared.options;
        let folder = self.folder()?;
        let command = &self.params.command;
        let launch = Launch {
            guards: &options.guards,
            confinement: self.confinement(),
            command,
            folder: &folder,
            set: &options.set,
            unset: &options.unset,
        };
        launch.start().await.map_err(|error| {
            ToolFailure::new(ErrorType::ShellExecuteError, format!("Error: failed to start the command: {error}"))
        })
    }

    async fn run(&self, mut running: Running, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let mut capture = Capture::new(self.shared.options.output_bytes_max);
        let end = self.follow(&mut running, &mut capture, cx).await;
        let text = capture.text();
        let display = |exit_code| ResultDisplay::Terminal { pid: None, exit_code, text: text.clone() };
        match end {
            End::Exited(exit) => Ok(ToolOutput {
                text: self.with_note(sections(&text, exit), exit),
                summary: summary(exit),
                data: Some(json!({"exitCode": exit.code, "signal": exit.signal})),
                display: display(exit.code),
                ..ToolOutput::default()
            }),
            End::Cancelled => {
                let message = "Command was cancelled by user before it could complete.";
                Err(ToolFailure::Cancelled { message: with_output_so_far(message, &text), display: display(None) })
            }
            End::Silent(limit) => {
                let message = format!(
                    "Command was ended because it printed nothing for {} seconds. If it needs input, give it \
                     flags; if it should go on, use is_background.",
                    limit.as_secs()
                );
                Err(ToolFailure::Error {
                    error_type: ErrorType::ShellExecuteError,
                    message: with_output_so_far(&message, &text),
                    display: display(None),
                })
            }
            End::Lost(error) => Err(ToolFailure::Error {
                error_type: ErrorType::ShellExecuteError,
                message: with_output_so_far(&format!("Failed to wait for the command: {error}."), &text),
                display: display(None),
            }),
        }
    }

    /// What the model reads of a command that failed, perhaps because of the sandbox.
    fn with_note(&self, text: String, exit: Exit) -> String {
        match (&self.shared.options.sandbox, self.confinement()) {
            (Some(sandbox), Some(confinement)) if exit.code != Some(0) => {
                format!("{text}\n{}", sandbox.note(&confinement))
            }
            _ => text,
        }
    }

    /// Reads until the command ends, or has to.
    async fn follow(&self, running: &mut Running, capture: &mut Capture, cx: &ExecutionContext) -> End {
        let silence = self.shared.options.inactivity_timeout;
        let mut last_output = Instant::now();
        let mut ticks = tokio::time::interval(LIVE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut shown = None;
        let mut buffer = [0; 16 << 10];
        loop {
            let silent = tokio::time::sleep_until(last_output + silence.unwrap_or_default());
            tokio::select! {
                happened = running.next(&mut buffer) => match happened {
                    Ok(Happened::Output(count)) => {
                        capture.push(buffer.get(..count).unwrap_or_default());
                        last_output = Instant::now();
                    }
                    Ok(Happened::Exited(exit)) => {
                        running.drain(|bytes| capture.push(bytes)).await;
                        return End::Exited(exit);
                    }
                    Err(error) => return End::Lost(error),
                },
                () = cx.cancel.cancelled() => {
                    running.end(|bytes| capture.push(bytes)).await;
                    return End::Cancelled;
                }
                () = silent, if silence.is_some() => {
                    running.end(|bytes| capture.push(bytes)).await;
                    return End::Silent(silence.unwrap_or_default());
                }
                _ = ticks.tick() => if shown != Some(capture.total()) {
                    shown = Some(capture.total());
                    let text = capture.end(LIVE_BYTES_MAX);
                    cx.update(LiveOutput { text, pid: Some(running.pid()), total_bytes: capture.total(), data: None });
                },
            }
        }
    }

    async fn leave_running(&self, running: Running, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let background = &self.shared.background;
        let pid = background.adopt(running, &self.params.command).map_err(|error| {
            ToolFailure::new(ErrorType::ShellExecuteError, format!("The command was not started: {error}."))
        })?;
        let delay = self.params.delay_ms.map_or(DEFAULT_DELAY, Duration::from_millis).min(DELAY_MAX);
        tokio::select! {
            () = background.settle(pid, delay) => {}
            // It goes on: only the waiting was cancelled.
            () = cx.cancel.cancelled() => {}
        }
        let Some((process, text)) = background.output(pid, LIVE_BYTES_MAX) else {
            return Err(ToolFailure::new(ErrorType::ShellExecuteError, "The command ended and was forgotten."));
        };
        let pid = process.pid;
        let data = json!({"pid": pid, "command": self.params.command});
        match process.status {
            BackgroundStatus::Running => {
                let initial = if text.is_empty() { String::new() } else { format!(" Initial output:\n{text}") };
                Ok(ToolOutput {
                    text: format!("Command is running in background. PID: {pid}.{initial}\nProcess Group PGID: {pid}"),
                    summary: Some(format!("Running in background (PID {pid})")),
                    display: ResultDisplay::Terminal { pid: Some(pid), exit_code: None, text },
                    data: Some(data),
                    ..ToolOutput::default()
                })
            }
            BackgroundStatus::Ended { code, signal } => {
                let exit = Exit { code, signal };
                Ok(ToolOutput {
                    text: format!("Command ended at once, nothing runs.\n{}", sections(&text, exit)),
                    summary: summary(exit),
                    display: ResultDisplay::Terminal { pid: None, exit_code: code, text },
                    data: Some(data),
                    ..ToolOutput::default()
                })
            }
        }
    }
}

/// What the model reads. Empty parts are left out, except that it never reads nothing at all.
fn sections(output: &str, exit: Exit) -> String {
    let mut parts = Vec::new();
    let output = output.trim_end();
    if !output.is_empty() {
        parts.push(format!("Output: {output}"));
    }
    if let Some(code) = exit.code.filter(|code| *code != 0) {
        parts.push(format!("Exit Code: {code}"));
    }
    if let Some(signal) = exit.signal {
        parts.push(format!("Signal: {signal}"));
    }
    if parts.is_empty() { "Output: (empty)".to_owned() } else { parts.join("\n") }
}

fn summary(exit: Exit) -> Option<String> {
    match (exit.code, exit.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("Exit code {code}")),
        (None, Some(signal)) => Some(format!("Ended by signal {signal}")),
        (None, None) => Some("Ended".to_owned()),
    }
}

fn with_output_so_far(message: &str, text: &str) -> String {
    match text.trim_end() {
        "" => format!("{message} There was no output before it ended."),
        text => format!("{message} Below is the output before it ended:\n{text}"),
    }
}
