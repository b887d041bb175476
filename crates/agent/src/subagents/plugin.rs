//! What a subagent's runner has that others have not: it ends with the report, and its last turn does nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{
    FunctionCall, FunctionResponse, InvocationContext, LlmRequest, LlmResponse, Plugin, PluginError, StopReason,
};

use super::complete_task::COMPLETE_TASK;
use super::guide::RunGuide;
use crate::protocol::STEP_OVER;

/// Watches one run.
pub(crate) struct RunPlugin {
    guide: Arc<RunGuide>,
}

impl RunPlugin {
    pub(crate) fn new(guide: Arc<RunGuide>) -> Self {
        Self { guide }
    }

    fn stop(cx: &InvocationContext) {
        cx.stop.request(StopReason { code: STEP_OVER.to_owned(), message: "the run is over".to_owned() });
    }
}

#[async_trait]
impl Plugin for RunPlugin {
    fn name(&self) -> &str {
        "subagent"
    }

    async fn before_model(
        &self,
        _: &InvocationContext,
        _: &mut LlmRequest,
    ) -> Result<Option<LlmResponse>, PluginError> {
        self.guide.count_turn();
        Ok(None)
    }

    async fn before_tool(
        &self,
        cx: &InvocationContext,
        call: &FunctionCall,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        if !self.guide.is_recovering() {
            return Ok(None);
        }
        // There is no turn after this one, whatever it calls.
        Self::stop(cx);
        let refused = || {
            let message = format!("Only `{COMPLETE_TASK}` may be called now; this call never ran.");
            FunctionResponse::error(call, message)
        };
        Ok((call.name != COMPLETE_TASK).then(refused))
    }

    async fn after_tool(
        &self,
        cx: &InvocationContext,
        call: &FunctionCall,
        _: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        if call.name == COMPLETE_TASK && self.guide.has_report() {
            Self::stop(cx);
        }
        Ok(None)
    }
}
