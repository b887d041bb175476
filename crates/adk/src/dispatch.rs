//! The port through which all function calls of one answer are run.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{FunctionCall, FunctionResponse, InvocationContext, Part, StopReason, ToolContext, Toolset};

/// Runs the whole list of calls of one model answer.
///
/// Order and parallelism are the dispatcher's business; the kernel only wants one response per call, in call order.
#[async_trait]
pub trait ToolDispatcher: Send + Sync {
    /// Runs `calls`. Every call gets a response, whatever happens to it.
    ///
    /// Cancellation: on `cx.cancel` it comes back soon, with honest responses for what ran and what did not.
    async fn dispatch(&self, cx: &InvocationContext, calls: Vec<FunctionCall>) -> DispatchOutcome;
}

/// What came of a list of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DispatchOutcome {
    /// One response per call, in call order.
    pub responses: Vec<FunctionResponse>,
    /// Parts that go beside the responses, such as images.
    pub siblings: Vec<Part>,
    /// Whether the invocation goes on.
    pub end: DispatchEnd,
}

/// Whether the invocation goes on after a list of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DispatchEnd {
    /// The model is asked again.
    #[default]
    Continue,
    /// The invocation ends with these responses.
    Stop(StopReason),
}

/// Runs one call after the other, asking nobody. For agents whose tools need no scheduler.
pub struct SequentialDispatcher {
    toolsets: Vec<Arc<dyn Toolset>>,
}

impl SequentialDispatcher {
    /// Runs the tools of these sets.
    #[must_use]
    pub fn new(toolsets: Vec<Arc<dyn Toolset>>) -> Self {
        Self { toolsets }
    }

    async fn run(&self, cx: &InvocationContext, call: &FunctionCall) -> FunctionResponse {
        if cx.cancel.is_cancelled() {
            return FunctionResponse::error(call, "Tool call cancelled before it ran.");
        }
        for toolset in &self.toolsets {
            for tool in toolset.tools(cx).await {
                if tool.declaration("").name != call.name {
                    continue;
                }
                let context =
                    ToolContext { call_id: call.id.clone().unwrap_or_default(), cancel: cx.cancel.child_token() };
                return match tool.run(call.args.clone(), &context).await {
                    Ok(value) => FunctionResponse::output(call, value),
                    Err(error) => FunctionResponse::error(call, error.to_string()),
                };
            }
        }
        FunctionResponse::error(call, format!("Tool \"{}\" not found.", call.name))
    }
}

#[async_trait]
impl ToolDispatcher for SequentialDispatcher {
    async fn dispatch(&self, cx: &InvocationContext, calls: Vec<FunctionCall>) -> DispatchOutcome {
        let mut outcome = DispatchOutcome::default();
        for call in &calls {
            outcome.responses.push(self.run(cx, call).await);
        }
        outcome
    }
}
