//! Does the request fit at all?
//!
//! The last stage before routing: compression and masking have done what they can. Only a request that can't fit by any
//! reading of the estimate is refused; between the model's window and that, its provider knows better than an estimate
//! of four characters a token, and says so with an error of its own. Source: runtime specification §4.7, "Context guard".

use async_trait::async_trait;
use convoke_adk::{FlowError, InvocationContext, LlmRequest, RequestProcessor, StopReason};

use super::tokens::text_tokens;
use super::{History, Size};
use crate::models::SessionModel;

/// The code of a request that does not fit.
pub(crate) const WILL_OVERFLOW: &str = "CONTEXT_WINDOW_WILL_OVERFLOW";

/// By how much an estimate may be too high: text like logs and tables has up to eight characters a token.
const ESTIMATE_ERROR: u64 = 2;

/// Refuses a request that is too large for its model.
pub(crate) struct ContextGuard {
    history: History,
    model: SessionModel,
}

impl ContextGuard {
    pub(crate) fn new(history: History, model: SessionModel) -> Self {
        Self { history, model }
    }
}

/// What to tell about a request that can't fit; `None` for one that may.
fn overflow(size: Size, window: u64) -> Option<String> {
    let least = size.counted + size.estimated / ESTIMATE_ERROR;
    if least <= window {
        return None;
    }
    let remaining = window.saturating_sub(size.counted);
    Some(format!(
        "the request needs about {} more tokens, and {remaining} of the model's {window} remain; shorten it, compress the \
         session, or choose a model with a larger window",
        size.estimated
    ))
}

#[async_trait]
impl RequestProcessor for ContextGuard {
    fn name(&self) -> &'static str {
        "context-guard"
    }

    async fn run(&self, cx: &InvocationContext, request: &mut LlmRequest) -> Result<(), FlowError> {
        let window = self.model.window();
        let instruction = request.system_instruction.iter().map(|text| text_tokens(text)).sum();
        let size = self.history.size(&cx.session, instruction);
        // What nobody said about a model is no reason to refuse.
        if let Some(message) = overflow(size, window.tokens).filter(|_| window.known) {
            cx.stop.request(StopReason { code: WILL_OVERFLOW.to_owned(), message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_not_fit_is_refused() {
        let size = |counted, estimated| Size { counted, estimated };
        assert_eq!(overflow(size(0, 2_000), 1_000), None);
        assert_eq!(overflow(size(900, 200), 1_000), None);
        let told = overflow(size(900, 210), 1_000).unwrap();
        assert!(told.contains("about 210 more tokens, and 100 of the model's 1000 remain"), "{told}");
        assert!(overflow(size(1_200, 2), 1_000).unwrap().contains("and 0 of"));
    }
}
