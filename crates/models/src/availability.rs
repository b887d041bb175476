//! Availability: which models can be called now?
//!
//! Sans-IO: marks of models that failed. A model without a mark is healthy. A *terminal* one is not called until its
//! mark expires; a *sticky* one is tried once per turn. Terminal marks hold for everybody who is handed the same
//! machine, such as a session's subagents: a quota is used up for all. Sticky ones belong to a [`Scope`], whose turn
//! begins with [`ModelAvailability::begin_turn`]: once per prompt of the user, once per run of a subagent, never per
//! model call. Source: runtime specification §4.1, §4.9; departure: marks of quotas expire.
//!
//! Invariants: no model is both terminal and sticky (I1); a sticky mark belongs to an open scope (I2); marks are
//! bounded (I3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use convoke_stdx::{Now, Tick};

use crate::catalog::ModelName;
use crate::chain::FailureKind;

/// Most models with a mark. Only models that were called get one, and those stand in chains that a person wrote; beyond
/// this the mark that ends first gives way.
const MARKS_MAX: usize = 256;
/// How long a model without room, or with a server that fails, is left alone. Source: §4.1.
const CAPACITY_PAUSE: Duration = Duration::from_secs(30);
/// How long a quota counts as used up where nobody said until when: long enough not to nag, short enough that a quota
/// that was raised is found.
const QUOTA_PAUSE: Duration = Duration::from_secs(60 * 60);

/// One user of the machine: a session, or a run of a subagent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(u64);

/// Why a model is not called, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What failed.
    pub kind: FailureKind,
    /// When it may be called again; `None` for never.
    pub until: Option<Tick>,
    /// The moment that the server named for it, by the wall clock.
    pub reset_wall_ms: Option<u64>,
}

/// Whether a model can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Yes.
    Healthy,
    /// Once in this turn.
    Sticky {
        /// Attempts that this one time may take.
        attempts: Option<u32>,
    },
    /// It had its one time in this turn.
    Consumed,
    /// No.
    Terminal(Mark),
}

impl Health {
    /// Whether it can be called.
    #[must_use]
    pub fn is_available(self) -> bool {
        matches!(self, Self::Healthy | Self::Sticky { .. })
    }
}

#[derive(Clone, Copy, Debug)]
struct Sticky {
    attempts: Option<u32>,
    consumed: bool,
}

/// The marks.
#[derive(Clone, Debug, Default)]
pub struct ModelAvailability {
    terminal: BTreeMap<ModelName, Mark>,
    sticky: BTreeMap<(Scope, ModelName), Sticky>,
    open: BTreeSet<Scope>,
    next_scope: u64,
}

impl ModelAvailability {
    /// One more user, who begins with a fresh turn.
    pub fn open_scope(&mut self) -> Scope {
        let scope = Scope(self.next_scope);
        self.next_scope += 1;
        self.open.insert(scope);
        scope
    }

    /// A user is gone; its sticky marks go with it.
    pub fn close_scope(&mut self, scope: Scope) {
        self.open.remove(&scope);
        self.sticky.retain(|(of, _), _| *of != scope);
    }

    /// A new turn: sticky models may be tried once more.
    pub fn begin_turn(&mut self, scope: Scope) {
        let own = self.sticky.iter_mut().filter(|((of, _), _)| *of == scope);
        own.for_each(|(_, sticky)| sticky.consumed = false);
    }

    /// Whether `model` can be called now.
    #[must_use]
    pub fn health(&self, now: Now, scope: Scope, model: &ModelName) -> Health {
        if let Some(mark) = self.mark(now, model) {
            return Health::Terminal(mark);
        }
        match self.sticky.get(&(scope, model.clone())) {
            None => Health::Healthy,
            Some(Sticky { consumed: true, .. }) => Health::Consumed,
            Some(Sticky { attempts, .. }) => Health::Sticky { attempts: *attempts },
        }
    }

    /// The terminal mark of `model`, unless it has expired.
    #[must_use]
    pub fn mark(&self, now: Now, model: &ModelName) -> Option<Mark> {
        let mark = self.terminal.get(model)?;
        mark.until.is_none_or(|until| now.tick < until).then_some(*mark)
    }

    /// `model` is about to be called: a sticky one has had its time.
    pub fn consume(&mut self, scope: Scope, model: &ModelName) {
        if let Some(sticky) = self.sticky.get_mut(&(scope, model.clone())) {
            sticky.consumed = true;
        }
    }

    /// `model` is not to be called until it is well again: `after` as the server said, else as the kind says.
    pub fn mark_terminal(&mut self, now: Now, model: &ModelName, kind: FailureKind, after: Option<Duration>) {
        self.sweep(now);
        let until = match (kind, after) {
            (FailureKind::NotFound, _) => None,
            (_, Some(after)) => Some(now.tick.after(after)),
            (FailureKind::Quota, None) => Some(now.tick.after(QUOTA_PAUSE)),
            (FailureKind::Capacity | FailureKind::Transient | FailureKind::Unreachable, None) => {
                Some(now.tick.after(CAPACITY_PAUSE))
            }
        };
        let reset_wall_ms = after.filter(|_| kind == FailureKind::Quota).map(|after| later(now.wall_ms, after));
        self.sticky.retain(|(_, sticky), _| sticky != model);
        if self.terminal.len() >= MARKS_MAX && !self.terminal.contains_key(model) {
            let first = self.terminal.iter().min_by_key(|(_, mark)| mark.until.unwrap_or(Tick(u64::MAX)));
            if let Some(first) = first.map(|(name, _)| name.clone()) {
                self.terminal.remove(&first);
            }
        }
        self.terminal.insert(model.clone(), Mark { kind, until, reset_wall_ms });
    }

    /// `model` failed and may be tried once per turn; it just was.
    pub fn mark_sticky(&mut self, now: Now, scope: Scope, model: &ModelName, attempts: Option<u32>) {
        self.sweep(now);
        let full = self.sticky.len() >= MARKS_MAX;
        if self.terminal.contains_key(model) || !self.open.contains(&scope) || full {
            return;
        }
        self.sticky.insert((scope, model.clone()), Sticky { attempts, consumed: true });
    }

    /// `model` answered.
    pub fn mark_healthy(&mut self, scope: Scope, model: &ModelName) {
        self.terminal.remove(model);
        self.sticky.remove(&(scope, model.clone()));
    }

    /// The first moment, by the wall clock, at which one of these models was said to be back.
    pub fn next_reset<'a>(&self, now: Now, models: impl IntoIterator<Item = &'a ModelName>) -> Option<u64> {
        models.into_iter().filter_map(|model| self.mark(now, model)?.reset_wall_ms).min()
    }

    /// Forgets what has expired.
    fn sweep(&mut self, now: Now) {
        self.terminal.retain(|_, mark| mark.until.is_none_or(|until| now.tick < until));
    }

    /// Panics if an invariant is broken. For tests.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for (scope, model) in self.sticky.keys() {
            assert!(!self.terminal.contains_key(model), "I1: {model} is terminal and sticky");
            assert!(self.open.contains(scope), "I2: {model} is sticky for nobody");
        }
        assert!(self.terminal.len() <= MARKS_MAX && self.sticky.len() <= MARKS_MAX, "I3");
    }
}

/// The wall-clock moment `after` from `wall_ms`.
pub(crate) fn later(wall_ms: u64, after: Duration) -> u64 {
    wall_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
