//! One session's policy, shared by its registry, its scheduler and whoever switches its mode.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::saved::{self, SaveError};
use super::{
    Always, Checker, Judgement, LastingOffer, Mode, ModeRefused, Offer, PlanFolder, Policy, PolicyCall, PolicyOptions,
    Rule, SavePlace, ToolFacts,
};

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

    /// Where plans may be written in plan mode.
    #[must_use]
    pub fn plans(&self) -> Option<PlanFolder> {
        self.lock().plans().cloned()
    }

    /// Whether [`Self::set_mode`] would enter `mode`.
    pub fn may_enter(&self, mode: Mode) -> Result<(), ModeRefused> {
        self.lock().may_enter(mode)
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
    pub fn judge(&self, call: &PolicyCall<'_>) -> Judgement {
        // A copy, since a long command must not hold up whoever switches the mode.
        let policy = self.lock().clone();
        policy.judge(call)
    }

    /// The checkers to ask about a call, in their order.
    #[must_use]
    pub fn checkers(&self, call: &PolicyCall<'_>) -> Vec<Checker> {
        self.lock().checkers(call)
    }

    /// Whether the model should be told of `tool`.
    #[must_use]
    pub fn offer(&self, tool: &ToolFacts<'_>) -> Offer {
        self.lock().offer(tool)
    }

    /// The lasting answers that may be given about this call.
    #[must_use]
    pub fn lasting(&self, call: &PolicyCall<'_>) -> Vec<LastingOffer> {
        self.lock().lasting(call)
    }

    /// Keeps a lasting answer, and returns the mode if that changed it.
    pub fn remember(&self, always: &Always) -> Result<Option<Mode>, ModeRefused> {
        let mut policy = self.lock();
        let before = policy.mode();
        policy.remember(always)?;
        let after = policy.mode();
        Ok((after != before).then_some(after))
    }

    /// Writes a lasting answer to the file for them, and keeps it in this session as well. Blocks on a local disk.
    pub fn save(&self, always: &Always) -> Result<SavePlace, SaveError> {
        let (place, rules) = {
            let policy = self.lock();
            let place = policy.save.clone().ok_or(SaveError::Nowhere)?;
            let rules = policy.rules_of(always, place.tier, &super::Source::Named("always allow"));
            (place, rules)
        };
        saved::append(&place.path, &rules)?;
        // A lasting rule never changes the mode; nothing to refuse.
        let _ = self.remember(always);
        Ok(place)
    }

    fn lock(&self) -> MutexGuard<'_, Policy> {
        // Every step of a policy is complete, so what a panicking thread left is still a policy.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
