//! The port to hooks: may someone else have a say before and after a tool runs?
//!
//! Called for every call of a registered tool, whatever is plugged in. A hook can make a call stricter or change its
//! input; it can't allow what policy denies: policy judges the call as it was written and as it was changed, and the
//! stricter decision counts.

use async_trait::async_trait;
use convoke_adk::StopReason;
use serde_json::Value;

use crate::{ErrorType, TailCall, ToolOrigin};

/// Has a say before and after each call.
#[async_trait]
pub trait ToolHooks: Send + Sync {
    /// Before policy judges a call.
    async fn before_tool(&self, _call: &HookCall) -> BeforeTool {
        BeforeTool::default()
    }

    /// After a call ran, well or not. Not called for calls that never ran.
    async fn after_tool(&self, _call: &HookCall, _result: &HookResult) -> AfterTool {
        AfterTool::default()
    }
}

/// No hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

#[async_trait]
impl ToolHooks for NoHooks {}

/// The call that a hook is asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// The call's id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: Value,
    /// The tool that the model called, where another one runs in its place.
    pub original_tool: Option<String>,
    /// Where the tool comes from, if it is somebody else's.
    pub origin: Option<ToolOrigin>,
}

/// What a call came to, before the model hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookResult {
    /// What the model would read.
    pub text: String,
    /// What kind of failure, if it failed.
    pub error_type: Option<ErrorType>,
}

/// What a hook wants before a call. Several wishes may be set; the strictest is carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BeforeTool {
    /// Don't run it; the reason goes to the model.
    pub deny: Option<String>,
    /// Ask a person even where a rule would let it pass, for this reason.
    pub ask: Option<String>,
    /// Run it with these arguments instead.
    pub rewrite: Option<Value>,
    /// End the invocation after this batch. The call itself does not run.
    pub stop: Option<StopReason>,
}

/// What a hook wants after a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AfterTool {
    /// The model must not see the result; it reads this reason instead, as a failure.
    pub deny: Option<String>,
    /// Text to add to what the model reads.
    pub append: Option<String>,
    /// Text for the model to read instead.
    pub replace: Option<String>,
    /// A call to make in place of the result.
    pub tail_call: Option<TailCall>,
    /// End the invocation after this batch.
    pub stop: Option<StopReason>,
}
