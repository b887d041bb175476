//! Model and generation parameters of the agent.

use async_trait::async_trait;

use crate::{FlowError, GenerateConfig, InvocationContext, LlmRequest, RequestProcessor};

/// Sets the request's generation parameters from the agent's, at the start of each step.
pub struct Basic {
    config: GenerateConfig,
}

impl Basic {
    /// Requests get `config`.
    #[must_use]
    pub fn new(config: GenerateConfig) -> Self {
        Self { config }
    }
}

#[async_trait]
impl RequestProcessor for Basic {
    fn name(&self) -> &'static str {
        "basic"
    }

    async fn run(&self, _: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        request.config = self.config.clone();
        Ok(())
    }
}
