//! The ports to the user's own programs around a prompt. Called for every prompt; empty unless something is plugged in.

use async_trait::async_trait;

/// Has a say before and after a prompt is worked on.
#[async_trait]
pub trait LifecycleHooks: Send + Sync {
    /// Before the agent sees a prompt.
    async fn before_agent(&self, _prompt: &str) -> BeforeAgent {
        BeforeAgent::default()
    }

    /// After the agent is done. `active` says that the run goes on because of an earlier answer of this hook.
    async fn after_agent(&self, _prompt: &str, _response: &str, _active: bool) -> AfterAgent {
        AfterAgent::Done
    }
}

/// What a hook wants before a prompt is worked on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeAgent {
    /// Don't work on it, for this reason.
    pub block: Option<String>,
    /// Text to add to what the model reads.
    pub additional_context: Option<String>,
}

/// What a hook wants after the agent is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterAgent {
    /// Nothing.
    Done,
    /// Go on, with this as the next prompt.
    Continue(String),
}

/// No hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLifecycleHooks;

#[async_trait]
impl LifecycleHooks for NoLifecycleHooks {}
