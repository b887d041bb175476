//! The stages that make a request.

use async_trait::async_trait;

use crate::{FlowError, InvocationContext, LlmRequest};

/// One stage of making a request. An agent owns one explicit, ordered list of them.
///
/// A processor that shortens or masks the history changes the session through `cx.session` as well, so that what is
/// kept and what is sent agree.
#[doc(alias = "BaseLlmRequestProcessor")]
#[async_trait]
pub trait RequestProcessor: Send + Sync {
    /// For logs.
    fn name(&self) -> &'static str;

    /// Changes the request.
    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError>;
}

/// Where an agent's instruction comes from.
#[derive(Clone)]
pub enum Instruction {
    /// This text.
    Text(String),
    /// Made anew for each request, such as for the session's mode.
    Provider(std::sync::Arc<dyn InstructionProvider>),
}

/// Makes an instruction for the moment.
#[async_trait]
pub trait InstructionProvider: Send + Sync {
    /// The instruction for the next request; empty for none.
    async fn instruction(&self, cx: &InvocationContext) -> String;
}
