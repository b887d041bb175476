//! One session's policy, shared by its registry, its scheduler and whoever switches its mode.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::saved::{self, SaveError};
use super::{
    Always, Checker, Judgement, LastingOffer, Mode, ModeRefused, Offer, PlanFolder, Policy, PolicyCall, PolicyOptions,
    Rule, SavePlace, ToolFacts,
};

/// A step from one mode to another, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeChange {
    /// The mode before.
    pub before: Mode,
    /// The mode now.
    pub after: Mode,
}

impl ModeChange {
    /// Whether the mode is another one now.
    #[must_use]
    pub fn is_one(self) -> bool {
        self.before != self.after
    }
}

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
    pub fn set_mode(&self, mode: Mode) -> Result<ModeChange, ModeRefused> {
        let mut policy = self.lock();
        let before = policy.mode();
        policy.set_mode(mode)?;
        Ok(ModeChange { before, after: mode })
    }

    /// Ends plan mode: `plan` is carried out from now on.
    pub fn carry_out(&self, plan: PathBuf) -> ModeChange {
        let mut policy = self.lock();
        let before = policy.mode();
        policy.carry_out(plan);
        ModeChange { before, after: policy.mode() }
    }

    /// The plan that is carried out, if one was approved.
    #[must_use]
    pub fn approved_plan(&self) -> Option<PathBuf> {
        self.lock().approved_plan().map(ToOwned::to_owned)
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

    /// Keeps a lasting answer, which may change the mode.
    pub fn remember(&self, always: &Always) -> Result<ModeChange, ModeRefused> {
        let mut policy = self.lock();
        let before = policy.mode();
        policy.remember(always)?;
        Ok(ModeChange { before, after: policy.mode() })
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
