//! From a call that the model wrote to one that can run, or to the reason why it can't.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use convoke_adk::FunctionCall;
use serde_json::Value;

use crate::scheduler::Lane;
use crate::{DeclarativeTool, ErrorType, Invocation, ToolFailure, ToolRegistry};

/// A boolean argument of every tool: run after everything before it. Not the tool's business.
const WAIT_FOR_PREVIOUS: &str = "wait_for_previous";

/// A call with what is known of it before anybody judged it.
pub(super) struct Prepared {
    pub(super) call: FunctionCall,
    /// `None` for a tool that is unknown or not offered.
    pub(super) tool: Option<Arc<dyn DeclarativeTool>>,
    pub(super) lane: Lane,
    pub(super) invocation: Result<Arc<dyn Invocation>, ToolFailure>,
}

/// Looks the tool up and builds the invocation.
pub(super) fn call(registry: &ToolRegistry, call: &FunctionCall) -> Prepared {
    let mut call = call.clone();
    let waits = match &mut call.args {
        Value::Object(args) => args.shift_remove(WAIT_FOR_PREVIOUS).is_some_and(|wait| wait == true),
        _ => false,
    };
    match registry.find(&call.name) {
        Err(failure) => Prepared { call, tool: None, lane: Lane::Alone, invocation: Err(failure) },
        Ok(tool) => {
            let lane = match (tool.goes_first(), tool.parallelizable() && !waits) {
                (true, _) => Lane::First,
                (false, true) => Lane::Together,
                (false, false) => Lane::Alone,
            };
            let invocation = build(tool.as_ref(), &call.args);
            Prepared { call, tool: Some(tool), lane, invocation }
        }
    }
}

/// Builds an invocation; a panic of the tool's is its failure.
pub(super) fn build(tool: &dyn DeclarativeTool, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
    // A tool that panicked half-way has only itself to be inconsistent about: `build` changes nothing.
    catch_unwind(AssertUnwindSafe(|| tool.build(args))).unwrap_or_else(|panic| Err(panicked(tool.name(), &*panic)))
}

/// What the model is told of a tool that panicked.
pub(super) fn panicked(tool: &str, panic: &(dyn Any + Send)) -> ToolFailure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    tracing::error!(tool, panic = text, "a tool panicked");
    ToolFailure::new(ErrorType::UnhandledException, format!("Tool \"{tool}\" failed unexpectedly: {text}"))
}
