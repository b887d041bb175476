//! Chains: who stands in for a model that can't answer, and who is asked about it?
//!
//! A [`Chain`] lists models, best first, each with a [`ModelPolicy`]: per kind of failure, whether to go on silently
//! and what to remember. It is the failed model's policy that decides, never its stand-in's. Source: runtime
//! specification §4.2, with ours: no last resort that is called although it is known to be used up, and a model that
//! costs more never takes over unasked.

use std::ops::{Index, IndexMut};

use convoke_adk::ModelErrorKind;

use crate::catalog::ModelName;

/// Most models in one chain: more than a person would wait for, one after the other.
const CHAIN_MAX: usize = 16;

/// Kinds of failures that another model may mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The quota is used up, for a day or for good.
    Quota,
    /// The model has no room for anybody at the moment.
    Capacity,
    /// Too many requests or a server that fails, and repeating did not help.
    Transient,
    /// There is no such model, or not for this key.
    NotFound,
    /// The server does not answer at all.
    Unreachable,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Quota, Self::Capacity, Self::Transient, Self::NotFound, Self::Unreachable];

    /// What a failed call means for its model; `None` where another model would not help: a refused key, a wrong
    /// request, an answer that can't be used, a cancellation.
    #[must_use]
    pub fn of(kind: ModelErrorKind) -> Option<Self> {
        match kind {
            ModelErrorKind::Quota => Some(Self::Quota),
            ModelErrorKind::Capacity => Some(Self::Capacity),
            ModelErrorKind::RateLimit | ModelErrorKind::Server => Some(Self::Transient),
            ModelErrorKind::NotFound => Some(Self::NotFound),
            ModelErrorKind::Network => Some(Self::Unreachable),
            ModelErrorKind::Auth
            | ModelErrorKind::BadRequest
            | ModelErrorKind::InvalidStream
            | ModelErrorKind::Cancelled
            | ModelErrorKind::Other => None,
        }
    }

    /// The stable name, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Capacity => "capacity",
            Self::Transient => "transient",
            Self::NotFound => "not_found",
            Self::Unreachable => "unreachable",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Quota => 0,
            Self::Capacity => 1,
            Self::Transient => 2,
            Self::NotFound => 3,
            Self::Unreachable => 4,
        }
    }
}

/// One value per kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerFailure<T>([T; 5]);

impl<T: Copy> PerFailure<T> {
    /// The same for all.
    #[must_use]
    pub fn all(value: T) -> Self {
        Self([value; 5])
    }
}

impl<T> Index<FailureKind> for PerFailure<T> {
    type Output = T;

    fn index(&self, kind: FailureKind) -> &T {
        &self.0[kind.index()]
    }
}

impl<T> IndexMut<FailureKind> for PerFailure<T> {
    fn index_mut(&mut self, kind: FailureKind) -> &mut T {
        &mut self.0[kind.index()]
    }
}

/// Whether a stand-in needs somebody's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on without asking.
    Silent,
    /// Ask; where nobody can be asked, fail.
    Ask,
    /// Ask; where nobody can be asked, go on.
    AskOrGoOn,
}

/// What is remembered of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The model is not called until its mark expires.
    Terminal,
    /// The model is tried once per turn.
    StickyRetry,
}

/// How one model of a chain is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPolicy {
    /// The model.
    pub model: ModelName,
    /// Whether a stand-in needs somebody's word.
    pub actions: PerFailure<Action>,
    /// What is remembered.
    pub transitions: PerFailure<Transition>,
    /// Attempts before a refusal that may heal counts as a failure; the retry policy's own bound otherwise.
    pub max_attempts: Option<u32>,
}

impl ModelPolicy {
    /// A model that the user chose by name: nothing takes its place unasked.
    #[must_use]
    pub fn new(model: ModelName) -> Self {
        Self {
            model,
            actions: PerFailure::all(Action::Ask),
            transitions: PerFailure::all(Transition::Terminal),
            max_attempts: None,
        }
    }

    /// A model that we chose: we may choose another where nobody can be asked.
    #[must_use]
    pub fn automatic(model: ModelName) -> Self {
        Self { actions: PerFailure::all(Action::AskOrGoOn), ..Self::new(model) }
    }

    /// A model of side requests, of which nobody needs to know.
    #[must_use]
    pub fn silent(model: ModelName) -> Self {
        Self { actions: PerFailure::all(Action::Silent), ..Self::new(model) }
    }

    /// The model that automatic choice would rather have: busy is not worth a question, and it is tried again with
    /// the next prompt.
    #[must_use]
    pub fn preferred(model: ModelName) -> Self {
        let mut policy = Self { max_attempts: Some(3), ..Self::automatic(model) };
        policy.actions[FailureKind::Transient] = Action::Silent;
        policy.transitions[FailureKind::Transient] = Transition::StickyRetry;
        policy
    }
}

/// Why a list of models is no chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It is empty.
    #[error("a chain needs at least one model")]
    Empty,
    /// It is too long.
    #[error("a chain has at most {CHAIN_MAX} models")]
    TooLong,
    /// A model stands in it twice.
    #[error("a chain has each model once")]
    Twice,
}

/// Models, best first. Never empty, each model once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    policies: Vec<ModelPolicy>,
    /// Whether the user wrote it: then its order says what is better, whatever the models are.
    written: bool,
}

impl Chain {
    /// A chain that the user wrote.
    pub fn written(policies: Vec<ModelPolicy>) -> Result<Self, ChainError> {
        if policies.is_empty() {
            return Err(ChainError::Empty);
        }
        if policies.len() > CHAIN_MAX {
            return Err(ChainError::TooLong);
        }
        let twice = |(index, one): (usize, &ModelPolicy)| policies.iter().take(index).any(|two| two.model == one.model);
        if policies.iter().enumerate().any(twice) {
            return Err(ChainError::Twice);
        }
        Ok(Self { policies, written: true })
    }

    /// One of ours.
    pub(crate) fn built_in(mut policies: Vec<ModelPolicy>) -> Self {
        // Where aliases are redefined, two places may come to mean one model.
        let mut seen = Vec::new();
        policies.retain(|policy| {
            let new = !seen.contains(&policy.model);
            seen.push(policy.model.clone());
            new
        });
        Self { policies, written: false }
    }

    /// Whether the user wrote it.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.written
    }

    /// All policies, best first.
    #[must_use]
    pub fn policies(&self) -> &[ModelPolicy] {
        &self.policies
    }

    /// Whether the model stands in it.
    #[must_use]
    pub fn has(&self, model: &ModelName) -> bool {
        self.policy(model).is_some()
    }

    /// How this model is treated.
    #[must_use]
    pub fn policy(&self, model: &ModelName) -> Option<&ModelPolicy> {
        self.policies.iter().find(|policy| policy.model == *model)
    }

    /// Who may stand in for `failed`, in the order to try: first those behind it, then those before it. The flag says
    /// whether it stands before it, which makes it the better model.
    pub fn stand_ins(&self, failed: &ModelName) -> impl Iterator<Item = (&ModelPolicy, bool)> {
        let at = self.policies.iter().position(|policy| policy.model == *failed);
        let (before, from) = self.policies.split_at(at.unwrap_or(0));
        let behind = from.iter().skip(usize::from(at.is_some()));
        behind.map(|policy| (policy, false)).chain(before.iter().map(|policy| (policy, true)))
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn name(id: &str) -> ModelName {
        ModelName::of_default(id)
    }

    #[test]
    fn stand_ins_are_those_behind_then_those_before() {
        let chain = Chain::written(["a", "b", "c"].map(|id| ModelPolicy::new(name(id))).to_vec()).unwrap();
        let of = |id: &str| chain.stand_ins(&name(id)).map(|(p, up)| (p.model.to_string(), up)).collect::<Vec<_>>();
        let pairs = |list: &[(&str, bool)]| list.iter().map(|(id, up)| ((*id).to_owned(), *up)).collect::<Vec<_>>();
        assert_eq!(of("a"), pairs(&[("b", false), ("c", false)]));
        assert_eq!(of("b"), pairs(&[("c", false), ("a", true)]));
        assert_eq!(of("c"), pairs(&[("a", true), ("b", true)]));
        assert_eq!(of("elsewhere"), pairs(&[("a", false), ("b", false), ("c", false)]));
    }

    #[test]
    fn a_chain_has_each_model_once_and_is_not_endless() {
        let list = |count: usize| (0..count).map(|n| ModelPolicy::new(name(&n.to_string()))).collect::<Vec<_>>();
        assert_eq!(Chain::written(list(0)), Err(ChainError::Empty));
        assert_eq!(Chain::written(list(17)), Err(ChainError::TooLong));
        assert_eq!(Chain::written([list(2), list(1)].concat()), Err(ChainError::Twice));
        assert_eq!(Chain::built_in([list(2), list(1)].concat()).policies().len(), 2);
    }
}
