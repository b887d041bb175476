//! Steering: which model does a session call, and which one when that fails?
//!
//! Sans-IO: one per session, on top of a [`ModelAvailability`] that it may share. Three values are kept apart: what the
//! user *configured* (which may be automatic), the model of the running *sequence* (chosen once per prompt and kept
//! for all of its model calls), and *replacements* that the user agreed to for longer. Nothing here changes the first.
//! A call that failed for good is answered with a [`Verdict`]. Source: runtime specification §3.4, §4.4 and (b) 14;
//! departures: the failed model's policy decides; nothing that costs more takes over unasked; a model that is marked
//! is never called, not even as the last one left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_adk::{ModelError, ModelErrorKind};
use convoke_stdx::{Now, Tick};

use crate::availability::{Health, Mark, ModelAvailability, Scope, later};
use crate::catalog::{Catalog, ModelName};
use crate::chain::{Action, Chain, FailureKind, ModelPolicy, Transition};
use crate::fallback::{FallbackQuestion, Intent};

mod told;

/// Most replacements that are remembered: more models than a session meets.
const REPLACEMENTS_MAX: usize = 64;

/// Why the next call is routed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceReset {
    /// A prompt of the user, or a subagent's run, begins.
    NewTurn,
    /// The user chose another model.
    ModelChanged,
    /// The approval mode went into or out of one that changes what is asked of a model.
    ModeChanged,
}

/// Why a call may not be made, or did not work out.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What failed.
    pub kind: FailureKind,
    /// The error, as the last attempt had it.
    pub error: ModelError,
}

/// What becomes of a call that failed.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Another model is called.
    Switch(ModelName),
    /// Somebody is asked; the answer goes to [`Steering::answered`].
    Ask(Box<FallbackQuestion>),
    /// Nothing is left: the error that the turn ends with.
    GiveUp(ModelError),
}

/// Whether a model may be called.
#[derive(Clone, Debug)]
pub enum Admission {
    /// Yes.
    Call {
        /// Attempts before a refusal counts as a failure; the retry policy's own bound otherwise.
        max_attempts: Option<u32>,
    },
    /// No.
    Refuse(Failed),
}

#[derive(Clone, Debug)]
struct Replacement {
    by: ModelName,
    /// When the model that failed was said to be back.
    until: Option<Tick>,
}

/// The state of one session.
#[derive(Clone, Debug)]
pub struct Steering {
    catalog: Arc<Catalog>,
    scope: Scope,
    configured: String,
    sequence: Option<ModelName>,
    replaced: BTreeMap<ModelName, Replacement>,
    /// Whether somebody can be asked.
    attended: bool,
    /// Whether the session only plans: then nothing is worth a question.
    planning: bool,
}

impl Steering {
    /// A session for `configured`, a name or an alias. `attended`: whether somebody can be asked.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, scope: Scope, configured: impl Into<String>, attended: bool) -> Self {
        Self {
            catalog,
            scope,
            configured: configured.into(),
            sequence: None,
            replaced: BTreeMap::new(),
            attended,
            planning: false,
        }
    }

    /// What the user asked for.
    #[must_use]
    pub fn configured(&self) -> &str {
        &self.configured
    }

    /// Its scope of the availability.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The model of the running sequence, once it was chosen.
    #[must_use]
    pub fn sequence(&self) -> Option<&ModelName> {
        self.sequence.as_ref()
    }

    /// A turn begins: the next call is routed, and sticky models may be tried again.
    pub fn begin_turn(&mut self, availability: &mut ModelAvailability) {
        availability.begin_turn(self.scope);
        self.reset(SequenceReset::NewTurn);
    }

    /// The next call is routed anew.
    pub fn reset(&mut self, why: SequenceReset) {
        tracing::debug!(?why, sequence = self.sequence.as_ref().map(ModelName::as_str), "the next call is routed anew");
        self.sequence = None;
    }

    /// The user chose another model. What was agreed to for the one before is void; marks stay.
    pub fn configure(&mut self, name: impl Into<String>) {
        self.configured = name.into();
        self.replaced.clear();
        self.reset(SequenceReset::ModelChanged);
    }

    /// Whether the session only plans.
    pub fn set_planning(&mut self, planning: bool) {
        if self.planning != planning {
            self.planning = planning;
            self.reset(SequenceReset::ModeChanged);
        }
    }

    /// The model that is called where `model` is meant: itself, or what the user agreed to in its place.
    #[must_use]
    pub fn in_place_of(&self, now: Now, model: &ModelName) -> ModelName {
        match self.replaced.get(model) {
            Some(one) if one.until.is_none_or(|until| now.tick < until) => one.by.clone(),
            _ => model.clone(),
        }
    }

    /// The running sequence has this model.
    pub fn set_sequence(&mut self, model: ModelName) {
        self.sequence = Some(model);
    }

    /// The chain that holds for `model` in this session.
    #[must_use]
    pub fn chain(&self, model: &ModelName) -> Chain {
        self.catalog.chain(&self.configured, model)
    }

    /// A model that takes over from `model`, which can't be called, without a question; for routing.
    #[must_use]
    pub fn silent_stand_in(&self, now: Now, availability: &ModelAvailability, model: &ModelName) -> Option<ModelName> {
        let Health::Terminal(mark) = availability.health(now, self.scope, model) else {
            // A sticky model that had its time in this turn was left silently, or after a question in this turn.
            let consumed = availability.health(now, self.scope, model) == Health::Consumed;
            return consumed
                .then(|| self.next(now, availability, model, FailureKind::Transient, &[]))
                .flatten()
                .map(|n| n.0);
        };
        let (next, upgrade) = self.next(now, availability, model, mark.kind, &[])?;
        let action = self.action(model, mark.kind);
        (!upgrade && (action == Action::Silent || (action == Action::AskOrGoOn && !self.attended))).then_some(next)
    }

    /// Whether `model` may be called now. If so, it is about to be.
    pub fn admit(&self, now: Now, availability: &mut ModelAvailability, model: &ModelName) -> Admission {
        let policy = self.chain(model).policy(model).and_then(|policy| policy.max_attempts);
        match availability.health(now, self.scope, model) {
            Health::Healthy => Admission::Call { max_attempts: policy },
            Health::Sticky { attempts } => {
                availability.consume(self.scope, model);
                Admission::Call { max_attempts: attempts.or(policy) }
            }
            Health::Consumed => {
                let message = format!("{model} was busy a moment ago");
                let error = ModelError::new(ModelErrorKind::RateLimit, message);
                Admission::Refuse(Failed { kind: FailureKind::Transient, error })
            }
            Health::Terminal(mark) => Admission::Refuse(Failed { kind: mark.kind, error: refused(now, model, mark) }),
        }
    }

    /// The call of `model` worked.
    pub fn succeeded(&self, availability: &mut ModelAvailability, model: &ModelName) {
        availability.mark_healthy(self.scope, model);
    }

    /// The call of `model` failed for good, or was not admitted. `tried`: models that failed in this call already.
    pub fn failed(
        &mut self,
        now: Now,
        availability: &mut ModelAvailability,
        model: &ModelName,
        failed: &Failed,
        tried: &[ModelName],
    ) -> Verdict {
        let Some((next, upgrade)) = self.next(now, availability, model, failed.kind, tried) else {
            return Verdict::GiveUp(self.nothing_left(now, availability, model, failed));
        };
        let action = self.action(model, failed.kind);
        if upgrade || action == Action::Ask || (action == Action::AskOrGoOn && self.attended) {
            if !self.attended {
                return Verdict::GiveUp(self.nothing_left(now, availability, model, failed));
            }
            let reset = failed.error.retry_after.filter(|_| failed.kind == FailureKind::Quota);
            return Verdict::Ask(Box::new(FallbackQuestion {
                failed: model.clone(),
                stand_in: next,
                is_upgrade: upgrade,
                kind: failed.kind,
                message: failed.error.message.clone(),
                reset_wall_ms: reset.map(|after| later(now.wall_ms, after)),
                error: failed.error.clone(),
            }));
        }
        self.remember(now, availability, model, failed.kind, failed.error.retry_after);
        self.sequence = Some(next.clone());
        Verdict::Switch(next)
    }

    /// Somebody answered a question of [`Self::failed`]; `None` is no answer.
    pub fn answered(
        &mut self,
        now: Now,
        availability: &mut ModelAvailability,
        question: &FallbackQuestion,
        intent: Option<Intent>,
    ) -> Verdict {
        let FallbackQuestion { failed, stand_in, kind, error, .. } = question;
        match intent {
            Some(Intent::RetryAlways) => {
                self.remember(now, availability, failed, *kind, error.retry_after);
                self.replace(now, availability, failed, stand_in);
                self.sequence = Some(stand_in.clone());
                Verdict::Switch(stand_in.clone())
            }
            Some(Intent::RetryOnce) => {
                self.remember(now, availability, failed, *kind, error.retry_after);
                self.sequence = Some(stand_in.clone());
                Verdict::Switch(stand_in.clone())
            }
            // Nothing is remembered: who stops, or comes back later, means the same model.
            Some(Intent::RetryLater | Intent::Stop | Intent::Upgrade) | None => {
                Verdict::GiveUp(told::declined(question, intent))
            }
        }
    }

    /// Whether anybody could take over from `model` without or after a question.
    #[must_use]
    pub fn has_stand_in(
        &self,
        now: Now,
        availability: &ModelAvailability,
        model: &ModelName,
        kind: FailureKind,
    ) -> bool {
        let action = self.action(model, kind);
        self.next(now, availability, model, kind, &[]).is_some_and(|_| self.attended || action != Action::Ask)
    }

    /// Who takes over from `model`, and whether it costs more.
    fn next(
        &self,
        now: Now,
        availability: &ModelAvailability,
        model: &ModelName,
        kind: FailureKind,
        tried: &[ModelName],
    ) -> Option<(ModelName, bool)> {
        let chain = self.chain(model);
        let costs_more = |other: &ModelName| match (self.catalog.tier(other), self.catalog.tier(model)) {
            (Some(other), Some(own)) => other > own,
            _ => false,
        };
        chain
            .stand_ins(model)
            .map(|(policy, before)| (&policy.model, before || (!chain.is_written() && costs_more(&policy.model))))
            .filter(|(other, _)| *other != model && !tried.contains(other))
            // A server that does not answer does not answer for its other models either.
            .filter(|(other, _)| kind != FailureKind::Unreachable || other.provider() != model.provider())
            .filter(|(other, _)| availability.health(now, self.scope, other).is_available())
            .find(|(_, upgrade)| self.attended || !upgrade)
            .map(|(other, upgrade)| (other.clone(), upgrade))
    }

    fn action(&self, model: &ModelName, kind: FailureKind) -> Action {
        if self.planning {
            return Action::Silent;
        }
        self.chain(model).policy(model).map_or(Action::Ask, |policy| policy.actions[kind])
    }

    fn remember(
        &self,
        now: Now,
        availability: &mut ModelAvailability,
        model: &ModelName,
        kind: FailureKind,
        after: Option<Duration>,
    ) {
        // A mark that is there already, because the call was not even made, knows better.
        if !availability.health(now, self.scope, model).is_available() && availability.mark(now, model).is_some() {
            return;
        }
        let policy = self.chain(model).policy(model).cloned().unwrap_or_else(|| ModelPolicy::new(model.clone()));
        match policy.transitions[kind] {
            Transition::Terminal => availability.mark_terminal(now, model, kind, after),
            Transition::StickyRetry => availability.mark_sticky(now, self.scope, model, policy.max_attempts),
        }
    }

    /// A→B and B→C make A→C. A model never replaces itself.
    fn replace(&mut self, now: Now, availability: &ModelAvailability, failed: &ModelName, by: &ModelName) {
        self.replaced.retain(|_, one| one.until.is_none_or(|until| now.tick < until));
        let until = availability.mark(now, failed).filter(|mark| mark.kind == FailureKind::Quota).and_then(|m| m.until);
        for one in self.replaced.values_mut().filter(|one| one.by == *failed) {
            one.by = by.clone();
        }
        self.replaced.remove(by);
        if self.replaced.len() < REPLACEMENTS_MAX {
            self.replaced.insert(failed.clone(), Replacement { by: by.clone(), until });
        }
    }

    fn nothing_left(
        &self,
        now: Now,
        availability: &ModelAvailability,
        model: &ModelName,
        failed: &Failed,
    ) -> ModelError {
        let chain = self.chain(model);
        let own = failed.error.retry_after.filter(|_| failed.kind == FailureKind::Quota);
        let own = own.map(|after| later(now.wall_ms, after));
        let others = availability.next_reset(now, chain.policies().iter().map(|policy| &policy.model));
        let reset = own.into_iter().chain(others).min();
        told::nothing_left(now, model, failed, chain.policies().len() > 1, reset)
    }

    /// Panics if an invariant is broken: no replacement leads to another one or to itself. For tests.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for (failed, one) in &self.replaced {
            assert_ne!(*failed, one.by, "a model replaces itself");
            assert!(!self.replaced.contains_key(&one.by), "{failed} leads to a model that is replaced itself");
        }
        assert!(self.replaced.len() <= REPLACEMENTS_MAX);
    }
}

/// Why a marked model is not called.
pub(crate) fn refused(now: Now, model: &ModelName, mark: Mark) -> ModelError {
    let (kind, what) = match mark.kind {
        FailureKind::Quota => (ModelErrorKind::Quota, "is out of quota"),
        FailureKind::Capacity => (ModelErrorKind::Capacity, "has no room at the moment"),
        FailureKind::Transient => (ModelErrorKind::RateLimit, "is busy"),
        FailureKind::NotFound => (ModelErrorKind::NotFound, "was not found"),
        FailureKind::Unreachable => (ModelErrorKind::Network, "could not be reached a moment ago"),
    };
    let retry_after = mark.reset_wall_ms.map(|reset| Duration::from_millis(reset.saturating_sub(now.wall_ms)));
    ModelError { retry_after, ..ModelError::new(kind, format!("{model} {what}")) }
}

#[cfg(test)]
mod tests;
