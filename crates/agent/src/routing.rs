//! The place of routing among the stages that make a request: behind whatever shortens the conversation, before tools
//! are declared.

use async_trait::async_trait;
use convoke_adk::{FlowError, InvocationContext, LlmRequest, RequestProcessor};
use convoke_models::GeneratorLlm;
use convoke_models::routing::{Phase, RoutingContext};
use convoke_tools::{Mode, SessionPolicy};
use serde_json::json;

use crate::models::told;

/// Chooses the model of a sequence, once per prompt, and keeps to it for the model calls that follow.
pub(crate) struct RoutingProcessor {
    llm: GeneratorLlm,
    policy: SessionPolicy,
    /// What telemetry calls the model calls.
    purpose: &'static str,
}

impl RoutingProcessor {
    pub(crate) fn new(llm: GeneratorLlm, policy: SessionPolicy, purpose: &'static str) -> Self {
        Self { llm, policy, purpose }
    }
}

#[async_trait]
impl RequestProcessor for RoutingProcessor {
    fn name(&self) -> &'static str {
        "routing"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        let planning = self.policy.mode() == Mode::Plan;
        self.llm.set_planning(planning);
        let phase = match (planning, self.policy.approved_plan()) {
            (true, _) => Phase::Planning,
            (false, Some(_)) => Phase::Implementing,
            (false, None) => Phase::Ordinary,
        };
        let context = RoutingContext { contents: &request.contents, phase };
        let (model, decision) = self.llm.route(context, &cx.cancel).await;
        if cx.cancel.is_cancelled() {
            return Err(FlowError::Cancelled);
        }
        let routing = match &decision {
            Some(decision) => told(decision),
            None => json!({"model": model, "source": "agent-router/sequence", "latencyMs": 0}),
        };
        request.metadata.insert("routing".to_owned(), routing);
        request.model = model.to_string();
        request.purpose = self.purpose;
        Ok(())
    }
}
