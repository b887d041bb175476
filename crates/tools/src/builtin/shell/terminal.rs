//! A command in the foreground that runs in a terminal of the client.
//!
//! What the model and a person read of it is what they would read of a child of ours.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Call, sections, summary, with_output_so_far};
use crate::process::Exit;
use crate::{
    ClientTerminal, ClientTerminals, ErrorType, ExecutionContext, LiveOutput, ResultDisplay, TerminalCommand,
    TerminalExit, TerminalOutput, ToolFailure, ToolOutput,
};

/// Bytes that a client keeps of one command. They come back in one message; what is more than the model reads is kept
/// in a file, as always.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
/// How often a client is asked whether there is new output, where a command may not be silent for long.
const LOOKS: u32 = 10;

/// How it came to its end.
enum End {
    Exited(TerminalExit),
    Cancelled,
    Silent(Duration),
    Lost(String),
}

impl Call {
    /// The client's terminals, where this command may run there: a sandbox of ours would not hold it, and what is left
    /// in the background has to be ours.
    pub(super) fn terminals(&self) -> Option<&Arc<dyn ClientTerminals>> {
        let options = &self.shared.options;
        let own = self.in_background() || options.sandbox.is_some();
        options.terminals.as_ref().filter(|terminals| !own && terminals.offered())
    }

    pub(super) async fn run_there(
        &self,
        terminals: &Arc<dyn ClientTerminals>,
        cx: &ExecutionContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let command = self.terminal_command()?;
        let started = tokio::select! {
            started = terminals.start(command) => started,
            () = cx.cancel.cancelled() => {
                return Err(ToolFailure::cancelled("Command was cancelled by user before it could start."));
            }
        };
        let terminal = started.map_err(|error| {
            let message = format!("Error: failed to start the command in a terminal of the client: {error}");
            ToolFailure::new(ErrorType::ShellExecuteError, message)
        })?;
        let data = json!({"terminalId": terminal.id()});
        cx.update(LiveOutput { data: Some(data), ..LiveOutput::default() });
        let end = self.watch(&*terminal, cx).await;
        let output = terminal.output().await.unwrap_or_default();
        self.told(end, &output, terminal.id())
    }

    fn terminal_command(&self) -> Result<TerminalCommand, ToolFailure> {
        let options = &self.shared.options;
        // The client's environment is not ours; what commands never see, they don't see there either.
        let unset = options.unset.iter().flat_map(|name| ["-u".to_owned(), name.clone()]);
        let shell = ["bash", "-c", self.params.command.as_str()].map(ToOwned::to_owned);
        Ok(TerminalCommand {
            program: "env".to_owned(),
            args: unset.chain(shell).collect(),
            set: options.set.clone(),
            folder: self.folder()?,
            output_bytes_max: OUTPUT_BYTES_MAX.min(options.output_bytes_max as u64),
        })
    }

    /// Waits until the command ends, or has to.
    async fn watch(&self, terminal: &dyn ClientTerminal, cx: &ExecutionContext) -> End {
        let silence = self.shared.options.inactivity_timeout;
        let every = silence.map_or(Duration::MAX, |limit| limit / LOOKS).max(Duration::from_millis(1));
        let mut looks = tokio::time::interval_at(Instant::now() + every.min(Duration::from_secs(1 << 30)), every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = TerminalOutput::default();
        let mut last_output = Instant::now();
        let mut exited = terminal.exited();
        let end = loop {
            tokio::select! {
                exit = &mut exited => return exit.map_or_else(End::Lost, End::Exited),
                () = cx.cancel.cancelled() => break End::Cancelled,
                _ = looks.tick(), if silence.is_some() => {
                    let Ok(output) = terminal.output().await else { continue };
                    if output != seen {
                        (seen, last_output) = (output, Instant::now());
                    }
                    match silence {
                        Some(limit) if last_output.elapsed() >= limit => break End::Silent(limit),
                        _ => {}
                    }
                }
            }
        };
        // A client that does not end it now does so when the terminal is given back.
        let _ = terminal.kill().await;
        end
    }

    fn told(&self, end: End, output: &TerminalOutput, id: &str) -> Result<ToolOutput, ToolFailure> {
        let text = match output.is_cut {
            true => format!("[the beginning is not kept by the terminal]\n{}", output.text),
            false => output.text.clone(),
        };
        let display = |exit_code| ResultDisplay::Terminal { pid: None, exit_code, text: text.clone() };
        let failed = |message: &str| {
            Err(ToolFailure::Error {
                error_type: ErrorType::ShellExecuteError,
                message: with_output_so_far(message, &text),
                display: display(None),
            })
        };
        match end {
            End::Exited(TerminalExit { code, signal }) => {
                let exit = Exit { code, signal: None };
                let mut told = sections(&text, exit);
                let mut short = summary(exit);
                if let Some(signal) = &signal {
                    told.push_str(&format!("\nSignal: {signal}"));
                    short = Some(format!("Ended by signal {signal}"));
                }
                Ok(ToolOutput {
                    text: told,
                    summary: short,
                    data: Some(json!({"exitCode": code, "signal": signal, "terminalId": id})),
                    display: display(code),
                    ..ToolOutput::default()
                })
            }
            End::Cancelled => {
                let message = "Command was cancelled by user before it could complete.";
                Err(ToolFailure::Cancelled { message: with_output_so_far(message, &text), display: display(None) })
            }
            End::Silent(limit) => failed(&format!(
                "Command was ended because it printed nothing for {} seconds. If it needs input, give it flags; if it \
                 should go on, use is_background.",
                limit.as_secs()
            )),
            End::Lost(error) => failed(&format!("Failed to wait for the command in the client's terminal: {error}.")),
        }
    }
}

#[cfg(test)]
mod tests;
