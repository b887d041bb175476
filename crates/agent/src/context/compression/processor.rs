//! Compression among the stages that make a request: behind the contents, before masking.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::processors::Contents;
use convoke_adk::{FlowError, InvocationContext, LlmRequest, RequestProcessor};
use convoke_protocol::CompressOutcome;

use super::Compressor;
use crate::context::tokens::text_tokens;
use crate::context::trace::ContextTrace;

/// [`Compressor`] as a stage.
pub(crate) struct CompressionProcessor {
    compressor: Arc<Compressor>,
    trace: Option<Arc<ContextTrace>>,
}

impl CompressionProcessor {
    pub(crate) fn new(compressor: Arc<Compressor>, trace: Option<Arc<ContextTrace>>) -> Self {
        Self { compressor, trace }
    }
}

#[async_trait]
impl RequestProcessor for CompressionProcessor {
    fn name(&self) -> &'static str {
        "compression"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        let instruction = request.system_instruction.iter().map(|text| text_tokens(text)).sum();
        let outcome = self.compressor.compress_if_due(&cx.session, instruction, &cx.cancel).await;
        if let (Some(trace), CompressOutcome::Compressed { before, after }) = (&self.trace, &outcome) {
            trace.pressure(*before, *after).await;
        }
        match outcome {
            _ if cx.cancel.is_cancelled() => Err(FlowError::Cancelled),
            CompressOutcome::Noop | CompressOutcome::Busy => Ok(()),
            // A failure may have cut old output all the same.
            CompressOutcome::Compressed { .. } | CompressOutcome::Failed { .. } => Contents.run(cx, request).await,
        }
    }
}
