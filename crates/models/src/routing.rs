//! Routing: which model is right for this prompt?
//!
//! Strategies in one order; the first that has an opinion decides: *fallback* (the model that would be asked can't be),
//! *override* (the user named one), *approval mode* (planning wants the large model, carrying out a plan the fast one),
//! *classifier* or *numerical classifier* (a small model is asked how hard the work is), *default*. A classifier has
//! one attempt and a few seconds: one that is slow, fails or talks nonsense has no opinion. Source: runtime
//! specification §3.2, §3.3; departure: one attempt in place of five.

use std::sync::Arc;
use std::time::Duration;

use convoke_adk::Content;
use tokio_util::sync::CancellationToken;

use crate::catalog::{ModelName, Tier, is_gemini_3};
use crate::llm::GeneratorLlm;

mod classifier;

/// How long a classifier may take: a person waits for the first word. Source: §3.3.
const CLASSIFIER_BUDGET: Duration = Duration::from_secs(4);
/// The score from which work is hard. Source: §3.3.
const THRESHOLD: u8 = 90;

/// What the session is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing in particular.
    #[default]
    Ordinary,
    /// It plans and changes nothing.
    Planning,
    /// It carries out a plan that was approved.
    Implementing,
}

/// How to route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingOptions {
    /// Whether a small model may be asked. A script that would lose a line to it is not asked even so.
    pub classify: bool,
    /// Whether models of the third generation are chosen by score.
    pub numerical: bool,
    /// The score from which work is hard, 1 to 100.
    pub threshold: u8,
    /// Whether the phase matters.
    pub by_phase: bool,
    /// How long a classifier may take.
    pub budget: Duration,
}

impl Default for RoutingOptions {
    fn default() -> Self {
        Self { classify: true, numerical: true, threshold: THRESHOLD, by_phase: true, budget: CLASSIFIER_BUDGET }
    }
}

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct RoutingContext<'a> {
    /// The conversation as the model will see it, the newest content last.
    pub contents: &'a [Arc<Content>],
    /// What the session is doing.
    pub phase: Phase,
}

/// Which model, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The model.
    pub model: ModelName,
    /// Who decided: `agent-router/` and the strategy.
    pub source: &'static str,
    /// How long it took.
    pub latency_ms: u64,
    /// Why, for people.
    pub reasoning: String,
    /// What went wrong on the way, if a classifier was asked in vain.
    pub error: Option<String>,
}

/// A strategy's opinion.
struct Opinion {
    model: ModelName,
    source: &'static str,
    reasoning: String,
}

impl Opinion {
    fn new(model: ModelName, source: &'static str, reasoning: impl Into<String>) -> Self {
        Self { model, source, reasoning: reasoning.into() }
    }
}

/// Decides for `llm`. Cancelling ends it at once, with whatever can be said without asking.
pub async fn route(
    llm: &GeneratorLlm,
    options: &RoutingOptions,
    cx: RoutingContext<'_>,
    cancel: &CancellationToken,
) -> Decision {
    let begun = llm.now();
    let mut error = None;
    let opinion = match without_asking(llm, options, cx) {
        Some(opinion) => opinion,
        None => match by_classifier(llm, options, cx, cancel).await {
            Some(Ok(opinion)) => opinion,
            asked => {
                error = asked.and_then(Result::err);
                by_default(llm)
            }
        },
    };
    let Opinion { model, source, reasoning } = opinion;
    let taken = llm.now().tick.since(begun.tick);
    let latency_ms = u64::try_from(taken.as_millis()).unwrap_or(u64::MAX);
    let decision = Decision { model, source, latency_ms, reasoning, error };
    crate::observe::routed(&decision);
    decision
}

/// What the strategies say that need no model call; `None` if it takes one.
fn without_asking(llm: &GeneratorLlm, options: &RoutingOptions, cx: RoutingContext<'_>) -> Option<Opinion> {
    by_fallback(llm).or_else(|| by_override(llm)).or_else(|| by_phase(llm, options, cx.phase)).or_else(|| {
        // Nothing to choose from, or nobody to ask.
        (!options.classify || !llm.configured_is_auto() || !llm.may_ask_aside()).then(|| by_default(llm))
    })
}

/// The model that a prompt would begin with, where that takes no model call.
pub(crate) fn foreseen(llm: &GeneratorLlm, options: &RoutingOptions) -> Option<ModelName> {
    let cx = RoutingContext { contents: &[], phase: Phase::Ordinary };
    without_asking(llm, options, cx).map(|opinion| opinion.model)
}

fn by_fallback(llm: &GeneratorLlm) -> Option<Opinion> {
    let meant = llm.configured_model();
    let now = llm.now();
    let agreed = llm.steer(|steering, _| steering.in_place_of(now, &meant));
    if agreed != meant {
        let why = format!("{agreed} was chosen to stand in for {meant}");
        return Some(Opinion::new(agreed, "agent-router/fallback", why));
    }
    let stand_in = llm.steer(|steering, availability| steering.silent_stand_in(now, availability, &meant))?;
    let why = format!("Model {meant} is unavailable. Using fallback: {stand_in}");
    Some(Opinion::new(stand_in, "agent-router/fallback", why))
}

fn by_override(llm: &GeneratorLlm) -> Option<Opinion> {
    (!llm.configured_is_auto()).then(|| {
        let model = llm.configured_model();
        let why = format!("{model} was asked for");
        Opinion::new(model, "agent-router/override", why)
    })
}

fn by_phase(llm: &GeneratorLlm, options: &RoutingOptions, phase: Phase) -> Option<Opinion> {
    let (tier, why) = match phase {
        _ if !options.by_phase => return None,
        Phase::Ordinary => return None,
        Phase::Planning => (Tier::Pro, "a plan is being made"),
        Phase::Implementing => (Tier::Flash, "an approved plan is being carried out"),
    };
    let model = llm.available_of_tier(tier)?;
    Some(Opinion::new(model, "agent-router/approval-mode", why))
}

async fn by_classifier(
    llm: &GeneratorLlm,
    options: &RoutingOptions,
    cx: RoutingContext<'_>,
    cancel: &CancellationToken,
) -> Option<Result<Opinion, String>> {
    let numerical = options.numerical && is_gemini_3(llm.configured_model().id());
    let request =
        if numerical { classifier::score_request(cx.contents) } else { classifier::choice_request(cx.contents) };
    let request = request?;
    let ask = llm.ask_once("classifier", request, cancel);
    let answer = match tokio::time::timeout(options.budget, ask).await {
        Ok(Ok(answer)) => answer.text(),
        Ok(Err(error)) => return Some(Err(error.message)),
        Err(_) => return Some(Err(format!("no answer within {} s", options.budget.as_secs()))),
    };
    let (tier, source, why) = if numerical {
        let Some((score, why)) = classifier::read_score(&answer) else {
            crate::observe::unreadable("classifier");
            return Some(Err("the classifier's answer has no score".to_owned()));
        };
        let tier = if score >= options.threshold { Tier::Pro } else { Tier::Flash };
        (tier, "agent-router/NumericalClassifier (Default)", format!("score {score} of 100: {why}"))
    } else {
        let Some((tier, why)) = classifier::read_choice(&answer) else {
            crate::observe::unreadable("classifier");
            return Some(Err("the classifier's answer names no model".to_owned()));
        };
        (tier, "agent-router/Classifier", why)
    };
    match llm.available_of_tier(tier) {
        Some(model) => Some(Ok(Opinion::new(model, source, why))),
        None => Some(Err("the model that the classifier chose is unavailable".to_owned())),
    }
}

fn by_default(llm: &GeneratorLlm) -> Opinion {
    Opinion::new(llm.configured_model(), "agent-router/default", "the default")
}
