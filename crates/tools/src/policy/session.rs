//! One session's policy, shared by its registry, its scheduler and whoever switches its mode.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::{Always, Judgement, Mode, ModeRefused, Offer, Policy, PolicyOptions, Rule};

/// A handle to one session's [`Policy`]; clones share it.
#[derive(Clone, Debug)]
pub struct SessionPolicy(Arc<Mutex<Policy>>);

impl SessionPolicy {
    /// A policy of its own. Fails if the mode may not be entered.
    pub fn new(options: PolicyOptions) -> Result<Self, ModeRefused> {
        Ok(Self(Arc::new(Mutex::new(Policy::new(options)?))))
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.lock().mode()
    }

    /// Whether there is somebody to ask.
    #[must_use]
    pub fn interactive(&self) -> bool {
        self.lock().interactive()
    }

    /// Enters `mode`.
    pub fn set_mode(&self, mode: Mode) -> Result<(), ModeRefused> {
        self.lock().set_mode(mode)
    }

    /// Adds a rule for the rest of the session.
    pub fn add_rule(&self, rule: Rule) {
        self.lock().add_rule(rule);
    }

    /// Decides one call.
    #[must_use]
    pub fn judge(&self, tool: &str, args: &Value) -> Judgement {
        self.lock().judge(tool, args)
    }

    /// Whether the model should be told of `tool`.
    #[must_use]
    pub fn offer(&self, tool: &str) -> Offer {
        self.lock().offer(tool)
    }

    /// What a lasting answer about this call would cover.
    #[must_use]
    pub fn always(&self, tool: &str, args: &Value) -> Option<Always> {
        self.lock().always(tool, args)
    }

    /// Keeps a lasting answer, and returns the mode if that changed it.
    pub fn remember(&self, always: &Always) -> Result<Option<Mode>, ModeRefused> {
        let mut policy = self.lock();
        let before = policy.mode();
        policy.remember(always)?;
        let after = policy.mode();
        Ok((after != before).then_some(after))
    }

    fn lock(&self) -> MutexGuard<'_, Policy> {
        // Every step of a policy is complete, so what a panicking thread left is still a policy.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
