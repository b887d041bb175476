//! `list_background_processes` and `read_background_output`: what became of commands that were left running?

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    BackgroundProcess, BackgroundProcesses, BackgroundStatus, DeclarativeTool, ErrorType, ExecutionContext, Invocation,
    Kind, ResultDisplay, ToolFailure, ToolOutput, params,
};

const LIST: &str = "list_background_processes";
const READ: &str = "read_background_output";
const LINES_DEFAULT: usize = 100;
// What is read of the kept output at most.
const READ_BYTES_MAX: usize = 64 << 10;
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Lists the session's background commands.
pub struct ListBackgroundProcesses {
    background: Arc<BackgroundProcesses>,
}

impl ListBackgroundProcesses {
    /// Those of `background`.
    #[must_use]
    pub fn new(background: Arc<BackgroundProcesses>) -> Self {
        Self { background }
    }
}

impl DeclarativeTool for ListBackgroundProcesses {
    fn name(&self) -> &str {
        LIST
    }

    fn display_name(&self) -> &str {
        "List Background Processes"
    }

    fn kind(&self) -> Kind {
        Kind::Read
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: LIST.to_owned(),
            description: "Lists the commands that were started with is_background in this session.".to_owned(),
            parameters: json!({"type": "object", "properties": {}}),
        }
    }

    fn build(&self, _args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        Ok(Arc::new(Listing { background: Arc::clone(&self.background) }))
    }
}

struct Listing {
    background: Arc<BackgroundProcesses>,
}

#[async_trait]
impl Invocation for Listing {
    fn description(&self) -> String {
        "Background processes".to_owned()
    }

    async fn execute(&self, _cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let lines: Vec<String> = self.background.list().iter().map(describe).collect();
        Ok(ToolOutput::text(if lines.is_empty() { "No background processes.".to_owned() } else { lines.join("\n") }))
    }
}

fn describe(process: &BackgroundProcess) -> String {
    let status = match process.status {
        BackgroundStatus::Running => "running".to_owned(),
        BackgroundStatus::Ended { code: Some(code), .. } => format!("exited with code {code}"),
        BackgroundStatus::Ended { signal: Some(signal), .. } => format!("ended by signal {signal}"),
        BackgroundStatus::Ended { .. } => "ended".to_owned(),
    };
    format!("[PID {}] {status}, {} bytes of output: `{}`", process.pid, process.total_bytes, process.command)
}

/// Reads what a background command printed.
pub struct ReadBackgroundOutput {
    background: Arc<BackgroundProcesses>,
    schema: Value,
}

#[derive(Debug, Deserialize)]
struct Params {
    #[serde(deserialize_with = "params::lenient_u64")]
    pid: Option<u64>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    lines: Option<u64>,
    #[serde(default, deserialize_with = "params::lenient_u64")]
    delay_ms: Option<u64>,
}

impl ReadBackgroundOutput {
    /// Those of `background`.
    #[must_use]
    pub fn new(background: Arc<BackgroundProcesses>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "pid": {"type": "integer", "minimum": 1, "description": "The process id that was returned."},
                "lines": {"type": "integer", "minimum": 1, "description": "The last so many lines; 100 by default."},
                "delay_ms": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "How many milliseconds to wait before reading, less if the command ends.",
                },
            },
            "required": ["pid"],
        });
        Self { background, schema }
    }
}

impl DeclarativeTool for ReadBackgroundOutput {
    fn name(&self) -> &str {
        READ
    }

    fn display_name(&self) -> &str {
        "Read Background Output"
    }

    fn kind(&self) -> Kind {
        Kind::Read
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: READ.to_owned(),
            description: "Reads the last lines that a background command printed, and whether it still runs."
                .to_owned(),
            parameters: self.schema.clone(),
        }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let params: Params = params::read(&self.schema, args)?;
        let pid = params
            .pid
            .and_then(|pid| u32::try_from(pid).ok())
            .ok_or_else(|| ToolFailure::new(ErrorType::InvalidToolParams, "params/pid must be the id of a process"))?;
        Ok(Arc::new(Reading {
            background: Arc::clone(&self.background),
            pid,
            lines: params.lines.and_then(|lines| usize::try_from(lines).ok()).unwrap_or(LINES_DEFAULT),
            delay: Duration::from_millis(params.delay_ms.unwrap_or(0)).min(DELAY_MAX),
        }))
    }
}

struct Reading {
    background: Arc<BackgroundProcesses>,
    pid: u32,
    lines: usize,
    delay: Duration,
}

#[async_trait]
impl Invocation for Reading {
    fn description(&self) -> String {
        format!("Output of process {}", self.pid)
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        tokio::select! {
            () = self.background.settle(self.pid, self.delay) => {}
            () = cx.cancel.cancelled() => {
                return Err(ToolFailure::cancelled("Cancelled while waiting for output."));
            }
        }
        // Only commands of this session: any other process id is none of the model's business.
        let Some((process, output)) = self.background.output(self.pid, READ_BYTES_MAX) else {
            let message = format!("There is no background process {} in this session.", self.pid);
            return Err(ToolFailure::new(ErrorType::ExecutionFailed, message));
        };
        let total = output.lines().count();
        let tail: Vec<&str> = output.lines().skip(total.saturating_sub(self.lines)).collect();
        let text = format!("{}\n{}", describe(&process), tail.join("\n"));
        let display = ResultDisplay::Terminal { pid: Some(self.pid), exit_code: None, text: tail.join("\n") };
        Ok(ToolOutput { text: text.trim_end().to_owned(), display, ..ToolOutput::default() })
    }
}
