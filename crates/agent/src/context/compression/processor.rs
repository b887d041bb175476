//! Compression among the stages that make a request: behind the contents, before masking.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::processors::Contents;
use convoke_adk::{FlowError, InvocationContext, LlmRequest, RequestProcessor};
use convoke_protocol::CompressOutcome;

use super::Compressor;
use crate::context::tokens::text_tokens;

/// [`Compressor`] as a stage.
pub(crate) struct CompressionProcessor(Arc<Compressor>);

impl CompressionProcessor {
    pub(crate) fn new(compressor: Arc<Compressor>) -> Self {
        Self(compressor)
    }
}

#[async_trait]
impl RequestProcessor for CompressionProcessor {
    fn name(&self) -> &'static str {
        "compression"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        let instruction = request.system_instruction.iter().map(|text| text_tokens(text)).sum();
        match self.0.compress_if_due(&cx.session, instruction, &cx.cancel).await {
            _ if cx.cancel.is_cancelled() => Err(FlowError::Cancelled),
            CompressOutcome::Noop | CompressOutcome::Busy => Ok(()),
            // A failure may have cut old output all the same.
            CompressOutcome::Compressed { .. } | CompressOutcome::Failed { .. } => Contents.run(cx, request).await,
        }
    }
}
