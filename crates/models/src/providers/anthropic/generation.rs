//! Parameters: what may a Claude be asked for?
//!
//! Which of them a model takes is told by its name's version: thoughts came with 3.7, thoughts without a budget with
//! 4.6, and 4.7 dropped the sampling parameters. A name without a version (of a gateway, of another model behind the
//! same protocol) gets what every model takes.

use convoke_adk::{Content, LlmRequest, Role, ThinkingLevel};
use serde_json::{Value, json};

use crate::providers::ANTHROPIC;

/// Tokens of thought, where a budget must be named.
const THINKING_BUDGET: u32 = 8192;
/// The least budget that the API takes.
const THINKING_BUDGET_MIN: u32 = 1024;

/// A version such as (4, 5); only names that begin with `claude` have one.
type Version = (u32, u32);

/// How to generate.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Generation {
    pub(super) max_tokens: u32,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) top_k: Option<u32>,
    pub(super) thinking: Option<Value>,
    pub(super) effort: Option<&'static str>,
}

impl Generation {
    pub(super) fn of(request: &LlmRequest) -> Self {
        let config = &request.config;
        let version = version(&request.model);
        let max_tokens = config.max_output_tokens.unwrap_or(default_max_tokens(version));
        let wanted = config.include_thoughts == Some(true) || config.thinking.is_some();
        let wanted = wanted && config.thinking != Some(ThinkingLevel::Off) && may_think(&request.contents);
        let budget = match config.thinking {
            Some(ThinkingLevel::Off | ThinkingLevel::Low) => THINKING_BUDGET / 4,
            Some(ThinkingLevel::Medium) | None => THINKING_BUDGET,
            Some(ThinkingLevel::High) => THINKING_BUDGET * 3,
        };
        let budget = budget.min(max_tokens.saturating_sub(1));
        let thinking = match version {
            _ if !wanted => None,
            // Without `summarized`, newer models think in silence.
            Some(version) if version >= (4, 6) => Some(json!({"type": "adaptive", "display": "summarized"})),
            Some(version) if version >= (3, 7) && budget >= THINKING_BUDGET_MIN => {
                Some(json!({"type": "enabled", "budget_tokens": budget}))
            }
            _ => None,
        };
        // The API refuses them beside thoughts, and newer models always.
        let samples = thinking.is_none() && version.is_none_or(|version| version < (4, 7));
        let temperature = config.temperature.filter(|_| samples).map(|temperature| temperature.min(1.0));
        Self {
            max_tokens,
            temperature,
            // Newer models take one of the two.
            top_p: config.top_p.filter(|_| samples && (temperature.is_none() || version.is_none())),
            top_k: config.top_k.filter(|_| samples),
            // How much, where the model decides by itself how to use it.
            effort: config.thinking.filter(|_| wanted && version >= Some((4, 6))).map(ThinkingLevel::name),
            thinking,
        }
    }
}

/// What an answer may have if nobody says: the least of what the models of a generation can.
fn default_max_tokens(version: Option<Version>) -> u32 {
    match version {
        Some(version) if version >= (3, 7) => 32_000,
        Some(version) if version < (3, 5) => 4096,
        _ => 8192,
    }
}

/// Whether thoughts may be asked for: the API wants a turn that went on with tools to have begun with a thought, which
/// one that another model began does not have.
fn may_think(contents: &[std::sync::Arc<Content>]) -> bool {
    let has = |content: &Content, key: &str| content.parts.iter().any(|part| part.raw().contains_key(key));
    let current =
        contents.iter().rev().take_while(|content| content.role == Role::Model || has(content, "functionResponse"));
    current
        .filter(|content| content.role == Role::Model && has(content, "functionCall"))
        .last()
        .is_none_or(|first| first.parts.iter().any(|part| part.is_thought() && part.raw().contains_key(ANTHROPIC)))
}

/// `claude-sonnet-4-5-20250929`, `claude-3-7-sonnet-latest`, `anthropic/claude-opus-4.6`: the first one or two small
/// numbers.
fn version(model: &str) -> Option<Version> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let words = name.strip_prefix("claude-")?.split(['-', '.', '@', ':']);
    let small = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
    let mut words = words.skip_while(|word| small(word).is_none());
    let major = small(words.next()?)?;
    Some((major, words.next().and_then(small).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use convoke_adk::{GenerateConfig, Part};
    use pretty_assertions::assert_eq;

    use super::*;

    fn generation(model: &str, config: GenerateConfig) -> Generation {
        Generation::of(&LlmRequest { model: model.to_owned(), config, ..LlmRequest::default() })
    }

    #[test]
    fn versions() {
        for (model, expected) in [
            ("claude-sonnet-4-5-20250929", Some((4, 5))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("claude-3-opus-20240229", Some((3, 0))),
            ("claude-opus-5", Some((5, 0))),
            ("anthropic/claude-opus-4.6", Some((4, 6))),
            ("claude-haiku-4-5@20251001", Some((4, 5))),
            ("claude-latest", None),
            ("qwen3-coder-4", None),
        ] {
            assert_eq!(version(model), expected, "{model}");
        }
    }

    #[test]
    fn levels_of_thought() {
        let asked = |model, level| {
            let one = generation(model, GenerateConfig { thinking: Some(level), ..Default::default() });
            (one.thinking.map(|thinking| thinking["budget_tokens"].clone()), one.effort)
        };
        assert_eq!(asked("claude-sonnet-4-5", ThinkingLevel::Off), (None, None));
        assert_eq!(asked("claude-sonnet-4-5", ThinkingLevel::Low), (Some(json!(2048)), None));
        assert_eq!(asked("claude-sonnet-4-5", ThinkingLevel::High), (Some(json!(24_576)), None));
        assert_eq!(asked("claude-opus-4-6", ThinkingLevel::High), (Some(Value::Null), Some("high")));
        assert_eq!(asked("claude-3-5-haiku-latest", ThinkingLevel::High), (None, None));
    }

    #[test]
    fn sampling() {
        let config = GenerateConfig { temperature: Some(1.5), top_p: Some(0.9), top_k: Some(4), ..Default::default() };
        let sampled = |model| {
            let one = generation(model, config.clone());
            (one.temperature, one.top_p, one.top_k)
        };
        assert_eq!(sampled("claude-sonnet-4-5"), (Some(1.0), None, Some(4)), "one of temperature and top_p");
        assert_eq!(sampled("claude-opus-4-7"), (None, None, None));
        assert_eq!(sampled("glm-5"), (Some(1.0), Some(0.9), Some(4)));
    }

    #[test]
    fn bounds() {
        let bound = |model, max_output_tokens| {
            generation(model, GenerateConfig { max_output_tokens, ..Default::default() }).max_tokens
        };
        assert_eq!(bound("claude-opus-4-1", None), 32_000);
        assert_eq!(bound("claude-3-5-haiku-latest", None), 8192);
        assert_eq!(bound("claude-3-opus-20240229", None), 4096);
        assert_eq!(bound("glm-5", None), 8192);
        assert_eq!(bound("claude-opus-4-1", Some(7)), 7);
    }

    #[test]
    fn thoughts_are_asked_for_as_the_model_takes_it() {
        let thinking = |model, max_output_tokens| {
            let config = GenerateConfig {
                include_thoughts: Some(true),
                temperature: Some(0.0),
                max_output_tokens,
                ..Default::default()
            };
            let one = generation(model, config);
            assert!(one.thinking.is_none() || one.temperature.is_none(), "{one:?}");
            one.thinking
        };
        assert_eq!(thinking("claude-opus-4-6", None), Some(json!({"type": "adaptive", "display": "summarized"})));
        let enabled = |budget: u32| Some(json!({"type": "enabled", "budget_tokens": budget}));
        assert_eq!(thinking("claude-sonnet-4-5", None), enabled(8192));
        assert_eq!(thinking("claude-sonnet-4-5", Some(2000)), enabled(1999));
        assert_eq!(thinking("claude-sonnet-4-5", Some(1000)), None);
        assert_eq!(thinking("claude-3-5-sonnet", None), None);
        assert_eq!(generation("claude-opus-4-6", GenerateConfig::default()).thinking, None);
    }

    #[test]
    fn a_turn_that_another_model_began_goes_on_without_thoughts() {
        let part = |value: Value| Part::from(value.as_object().unwrap().clone());
        let call = || part(json!({"functionCall": {"name": "f", "args": {}}}));
        let thought = || part(json!({"thought": true, "anthropic": {"type": "thinking"}}));
        let result = || part(json!({"functionResponse": {"name": "f", "response": {}}}));
        let content = |role, parts| Arc::new(Content { role, parts });
        let user = || Arc::new(Content::user("hi"));
        let foreign = [user(), content(Role::Model, vec![call()]), content(Role::User, vec![result()])];
        assert!(!may_think(&foreign));
        let ours = [user(), content(Role::Model, vec![thought(), call()]), content(Role::User, vec![result()])];
        assert!(may_think(&ours));
        let next: Vec<_> =
            foreign.into_iter().chain([content(Role::Model, vec![Part::text("done")]), user()]).collect();
        assert!(may_think(&next), "a new prompt begins a new turn");
        assert!(may_think(&[]));
    }
}
