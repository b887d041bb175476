//! The port to tools.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{FunctionDeclaration, InvocationContext};

/// Something the model can call.
#[doc(alias = "BaseTool")]
#[async_trait]
pub trait Tool: Send + Sync {
    /// How the model sees it; `model` is the one that is about to be asked.
    fn declaration(&self, model: &str) -> FunctionDeclaration;

    /// Whether this model is told of it.
    fn offered_to(&self, _model: &str) -> bool {
        true
    }

    /// Runs one call. An error is told to the model; it does not end the invocation.
    async fn run(&self, args: Value, cx: &ToolContext) -> Result<Value, ToolError>;
}

/// What a running tool has at hand.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The call's id.
    pub call_id: String,
    /// Ends the call.
    pub cancel: CancellationToken,
}

/// Why a call failed, as the model is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ToolError(pub String);

/// Several tools that come and go together.
#[doc(alias = "BaseToolset")]
#[async_trait]
pub trait Toolset: Send + Sync {
    /// The tools on offer now.
    async fn tools(&self, cx: &InvocationContext) -> Vec<Arc<dyn Tool>>;
}

#[async_trait]
impl Toolset for Vec<Arc<dyn Tool>> {
    async fn tools(&self, _cx: &InvocationContext) -> Vec<Arc<dyn Tool>> {
        self.clone()
    }
}
