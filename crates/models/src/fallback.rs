//! Fallback: what is a person asked when a model can't answer, and what is told of it?
//!
//! A [`FallbackPort`] is filled where somebody can be asked; without one, policies decide alone. Source: runtime
//! specification §4.4; the intents are upstream's without the one that spends money.

use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::ModelError;

use crate::catalog::ModelName;
use crate::chain::FailureKind;
use crate::routing::Decision;

/// What somebody wants when a model can't answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Go on with the stand-in, and use it from now on.
    RetryAlways,
    /// Go on with the stand-in for this turn.
    RetryOnce,
    /// End the turn; the model will be tried again later.
    RetryLater,
    /// End the turn.
    Stop,
    /// End the turn and say where more quota is to be had.
    Upgrade,
}

impl Intent {
    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 5] = [Self::RetryAlways, Self::RetryOnce, Self::RetryLater, Self::Stop, Self::Upgrade];

    /// The stable name, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RetryAlways => "retry_always",
            Self::RetryOnce => "retry_once",
            Self::RetryLater => "retry_later",
            Self::Stop => "stop",
            Self::Upgrade => "upgrade",
        }
    }

    /// The intent of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|intent| intent.name() == name)
    }
}

/// May another model take over?
#[derive(Clone, Debug)]
pub struct FallbackQuestion {
    /// The model that can't answer.
    pub failed: ModelName,
    /// The model that would.
    pub stand_in: ModelName,
    /// Whether the stand-in is the larger one, which may cost more.
    pub is_upgrade: bool,
    /// What failed.
    pub kind: FailureKind,
    /// The server's words.
    pub message: String,
    /// When the failed model was said to be back, by the wall clock.
    pub reset_wall_ms: Option<u64>,
    pub(crate) error: ModelError,
}

/// Asks a person.
#[async_trait]
pub trait FallbackPort: Send + Sync {
    /// Asks and waits for the answer; `None` if there will be none, which ends the turn.
    ///
    /// Cancellation: dropping the future withdraws the question. How long to wait is the port's to bound.
    async fn choose(&self, question: &FallbackQuestion) -> Option<Intent>;
}

/// Told while a model call is under way, in order.
#[derive(Clone, Debug)]
pub enum ModelNotice {
    /// This model is about to be called, for the first time in its sequence.
    Selected {
        /// Which one.
        model: ModelName,
        /// Why, if it was routed.
        decision: Option<Decision>,
    },
    /// An attempt failed; the same model is asked again after a wait.
    Retrying {
        /// Which one.
        model: ModelName,
        /// How many attempts have failed.
        failed_attempts: u32,
        /// The bound on them.
        max_attempts: u32,
        /// The wait.
        delay: Duration,
        /// Why.
        error: ModelError,
    },
    /// Another model takes over.
    FellBack {
        /// The model that could not answer.
        from: ModelName,
        /// The model that is called now.
        to: ModelName,
        /// What failed.
        kind: FailureKind,
        /// The server's words.
        error: ModelError,
        /// Whether somebody was asked.
        asked: bool,
        /// When the first one was said to be back, by the wall clock.
        reset_wall_ms: Option<u64>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intents_have_names() {
        for intent in Intent::ALL {
            assert_eq!(Intent::parse(intent.name()), Some(intent));
        }
        assert_eq!(Intent::parse("proceed_once"), None);
    }
}
