//! A server's tool as one of ours.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use convoke_mcp::{Answer, CallError, McpTool, Progress, untrusted};
use convoke_tools::{
    ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext, Invocation, Kind, LiveOutput, Reach,
    ResultDisplay, ToolFailure, ToolOrigin, ToolOutput,
};
use serde_json::{Map, Value};

/// A tool of a server.
pub(super) struct ServerTool {
    tool: McpTool,
    display_name: String,
    origin: ToolOrigin,
}

impl ServerTool {
    pub(super) fn new(tool: McpTool) -> Self {
        let display_name = format!("{} ({})", tool.title.as_deref().unwrap_or(&tool.tool), tool.server);
        let origin = ToolOrigin {
            server: tool.server.clone(),
            tool: tool.tool.clone(),
            trusted: tool.trusted,
            read_only: tool.annotations.read_only,
            destructive: tool.annotations.destructive,
            idempotent: tool.annotations.idempotent,
            open_world: tool.annotations.open_world,
        };
        Self { tool, display_name, origin }
    }
}

impl DeclarativeTool for ServerTool {
    fn name(&self) -> &str {
        &self.tool.name
    }

    fn display_name(&self) -> &str {
        &self.display_name
    }

    fn kind(&self) -> Kind {
        Kind::Other
    }

    fn reach(&self, _args: &Value) -> Reach {
        // Words of a server count where the user trusts it.
        let harmless = self.origin().is_some_and(|origin| origin.trusted && origin.read_only == Some(true));
        if harmless { Reach::Nothing } else { Reach::Anything }
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration {
            name: self.tool.name.clone(),
            description: self.tool.description.clone(),
            parameters: self.tool.schema.clone(),
        }
    }

    fn parallelizable(&self) -> bool {
        // A server's word that its tool only reads counts where the user trusts the server.
        self.origin.trusted && self.origin.read_only == Some(true)
    }

    fn truncates_output(&self) -> bool {
        true
    }

    fn origin(&self) -> Option<&ToolOrigin> {
        Some(&self.origin)
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        let args = match args {
            Value::Object(args) => args.clone(),
            Value::Null => Map::new(),
            _ => {
                let message = format!("The arguments of {} must be an object.", self.tool.name);
                return Err(ToolFailure::new(ErrorType::InvalidToolParams, message));
            }
        };
        Ok(Arc::new(Call { tool: self.tool.clone(), args }))
    }
}

/// One call of it.
struct Call {
    tool: McpTool,
    args: Map<String, Value>,
}

#[async_trait]
impl Invocation for Call {
    fn description(&self) -> String {
        // Approving blind is what this is to prevent: the arguments are part of the line.
        let args = Value::Object(self.args.clone()).to_string();
        format!("{} on MCP server {}: {}", self.tool.tool, self.tool.server, convoke_stdx::cut::head(&args, 400))
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        Ok(ConfirmationDetails::Mcp {
            server: self.tool.server.clone(),
            tool: self.tool.tool.clone(),
            args: Value::Object(self.args.clone()),
        })
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        let live = cx.clone();
        let progress = move |progress: Progress| {
            let text = line(&progress);
            live.update(LiveOutput { total_bytes: text.len() as u64, text, pid: None, data: None });
        };
        match self.tool.call(self.args.clone(), &cx.cancel, progress).await {
            Ok(answer) => result(answer),
            Err(CallError::Cancelled) => Err(ToolFailure::cancelled("The call was cancelled before it had a result.")),
            Err(error) => Err(ToolFailure::new(ErrorType::McpToolError, error.to_string())),
        }
    }
}

/// What the model and a person see of an answer.
pub(super) fn result(answer: Answer) -> Result<ToolOutput, ToolFailure> {
    let Answer { text, parts, is_error } = answer;
    if is_error {
        return Err(ToolFailure::Error {
            error_type: ErrorType::McpToolError,
            message: format!("The MCP tool reported an error:\n{}", untrusted(&text)),
            display: ResultDisplay::Text(text),
        });
    }
    let shown = if text.is_empty() { "(empty)" } else { text.as_str() };
    Ok(ToolOutput {
        text: untrusted(shown),
        parts,
        display: ResultDisplay::Text(shown.to_owned()),
        ..ToolOutput::default()
    })
}

/// Progress in one line.
fn line(progress: &Progress) -> String {
    let how_far = match progress.total {
        Some(total) if total > 0.0 => format!("{}/{total}", progress.progress),
        _ => progress.progress.to_string(),
    };
    match &progress.message {
        Some(message) => format!("[{how_far}] {}", convoke_stdx::cut::head(message, 1_000)),
        None => format!("[{how_far}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_line() {
        let mut progress = Progress { progress: 2.0, total: Some(4.0), message: Some("half".to_owned()) };
        assert_eq!(line(&progress), "[2/4] half");
        (progress.total, progress.message) = (None, None);
        assert_eq!(line(&progress), "[2]");
    }

    #[test]
    fn an_error_of_the_tool_is_a_failure_with_its_words() {
        let failure = result(Answer { text: "no such row".to_owned(), is_error: true, parts: Vec::new() }).unwrap_err();
        assert_eq!(failure.error_type(), Some(ErrorType::McpToolError));
        assert!(failure.message().contains("<untrusted_context>\nno such row\n"), "{failure}");
    }
}
