//! The agent's instruction.

use async_trait::async_trait;

use crate::{FlowError, Instruction, InvocationContext, LlmRequest, RequestProcessor};

/// Appends the agent's instruction to the system instruction.
pub struct Instructions {
    instruction: Instruction,
}

impl Instructions {
    /// Requests get `instruction`.
    #[must_use]
    pub fn new(instruction: Instruction) -> Self {
        Self { instruction }
    }
}

#[async_trait]
impl RequestProcessor for Instructions {
    fn name(&self) -> &'static str {
        "instructions"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        let text = match &self.instruction {
            Instruction::Text(text) => text.clone(),
            Instruction::Provider(provider) => provider.instruction(cx).await,
        };
        if !text.is_empty() {
            request.system_instruction.push(text);
        }
        Ok(())
    }
}
