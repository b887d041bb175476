//! Parameters: how is a model asked, once it is known which one it is?

use convoke_adk::{GenerateConfig, ThinkingLevel};
use serde_json::{Map, Value};

use super::alias::{Alias, DEPTH_MAX, merge};
use super::{Catalog, ModelName, family};

/// What is asked for: the name as it was given, by whom, and whether it is a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigKey<'a> {
    /// The name as it was given: an alias, whose parameters hold for whatever model stands in, or a model's.
    pub name: &'a str,
    /// Who asks: a subagent's name; `None` for the main agent.
    pub scope: Option<&'a str>,
    /// Whether an answer that could not be used came before.
    pub is_retry: bool,
    /// Whether this is the conversation, and not a side request.
    pub is_chat: bool,
}

impl<'a> ConfigKey<'a> {
    /// The main agent's conversation.
    #[must_use]
    pub fn chat(name: &'a str) -> Self {
        Self { name, is_chat: true, ..Self::default() }
    }

    /// A side request under an alias.
    #[must_use]
    pub fn side(name: &'a str) -> Self {
        Self { name, ..Self::default() }
    }
}

/// Parameters for requests that match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Override {
    /// A model's name, or an alias on the way to it.
    pub model: Option<String>,
    /// Who asks; `core` is the main agent.
    pub scope: Option<String>,
    /// Whether it is a repetition.
    pub is_retry: Option<bool>,
    /// The parameters.
    pub config: Map<String, Value>,
}

impl Override {
    /// How well it matches: how near to the model its name stands in `names` (nearest last), and how many fields say
    /// something; `None` if it does not match.
    fn rank(&self, key: &ConfigKey<'_>, names: &[&str]) -> Option<(usize, usize)> {
        let level = match &self.model {
            Some(model) => names.iter().rposition(|name| name == model)? + 1,
            None => 0,
        };
        if self.scope.as_deref().is_some_and(|scope| scope != key.scope.unwrap_or("core")) {
            return None;
        }
        if self.is_retry.is_some_and(|is_retry| is_retry != key.is_retry) {
            return None;
        }
        let fields = [self.model.is_some(), self.scope.is_some(), self.is_retry.is_some()];
        Some((level, fields.iter().filter(|field| **field).count()))
    }
}

pub(super) fn materialise(
    catalog: &Catalog,
    key: &ConfigKey<'_>,
    model: &ModelName,
    request: &GenerateConfig,
) -> GenerateConfig {
    let mut merged = Map::new();
    let mut names = Vec::new();
    let family = if key.is_chat { family::chat_alias(model.id()) } else { None };
    // What is set for one model by its name does not hold for its stand-in; what an alias sets does.
    let asked = Some(key.name.trim()).filter(|name| catalog.resolve(name).as_str() != *name);
    for name in family.into_iter().chain(asked).chain([model.as_str()]) {
        add_alias(catalog, name, &mut merged, &mut names);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut matching: Vec<_> = catalog
        .overrides
        .iter()
        .enumerate()
        .filter_map(|(index, one)| Some((one.rank(key, &names)?, index, one)))
        .collect();
    matching.sort_by_key(|(rank, index, _)| (*rank, *index));
    for (.., one) in matching {
        merge(&mut merged, &one.config);
    }
    let mut config = over(request, from_json(merged));
    if let Some(level) = config.thinking
        && family::has_thoughts(model.id())
    {
        config.include_thoughts = Some(level != ThinkingLevel::Off);
        config.extra.insert("thinkingConfig".to_owned(), Value::Object(thinking(model.id(), level)));
    }
    config
}

/// A level in the words of the Gemini API. Newer models have levels of their own, older ones a budget in tokens; neither
/// of the large ones can do without any thought.
fn thinking(model: &str, level: ThinkingLevel) -> Map<String, Value> {
    let large = family::tier(model) == Some(family::Tier::Pro);
    let (key, value) = if family::is_gemini_3(model) {
        let word = match level {
            ThinkingLevel::Off if large => "LOW",
            ThinkingLevel::Off => "MINIMAL",
            ThinkingLevel::Low => "LOW",
            // The first of the large ones knows two levels.
            ThinkingLevel::Medium if model.starts_with("gemini-3-pro") => "HIGH",
            ThinkingLevel::Medium => "MEDIUM",
            ThinkingLevel::High => "HIGH",
        };
        ("thinkingLevel", Value::from(word))
    } else {
        let budget: u32 = match level {
            ThinkingLevel::Off if large => 128,
            ThinkingLevel::Off => 0,
            ThinkingLevel::Low => 1024,
            ThinkingLevel::Medium => 8192,
            ThinkingLevel::High => 24_576,
        };
        ("thinkingBudget", Value::from(budget))
    };
    Map::from_iter([(key.to_owned(), value)])
}

/// Merges an alias and all that it extends, the farthest first. One that was merged already is not merged again, so
/// that a base does not undo what came after it.
fn add_alias<'a>(catalog: &'a Catalog, name: &'a str, merged: &mut Map<String, Value>, names: &mut Vec<&'a str>) {
    let mut chain: Vec<(&str, &Alias)> = Vec::new();
    let mut next = Some(name);
    while let Some(name) = next
        && chain.len() < DEPTH_MAX
        && let Some(alias) = catalog.aliases.get(name)
    {
        chain.push((name, alias));
        next = alias.extends.as_deref().or_else(|| alias.model.as_deref().filter(|model| *model != name));
    }
    for (name, alias) in chain.into_iter().rev() {
        if !names.contains(&name) {
            merge(merged, &alias.config);
            names.push(name);
        }
    }
}

/// `generateContentConfig` in the kernel's words.
pub(super) fn from_json(mut json: Map<String, Value>) -> GenerateConfig {
    let mut take = |key: &str| json.remove(key);
    let small = |value: Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let mut config = GenerateConfig {
        temperature: take("temperature").and_then(|value| value.as_f64()),
        top_p: take("topP").and_then(|value| value.as_f64()),
        top_k: take("topK").and_then(small),
        max_output_tokens: take("maxOutputTokens").and_then(small),
        ..GenerateConfig::default()
    };
    if let Some(Value::Object(thinking)) = json.get_mut("thinkingConfig") {
        config.include_thoughts = thinking.remove("includeThoughts").and_then(|value| value.as_bool());
        if thinking.is_empty() {
            json.remove("thinkingConfig");
        }
    }
    config.extra = json;
    config
}

/// `request` over `defaults`.
fn over(request: &GenerateConfig, mut defaults: GenerateConfig) -> GenerateConfig {
    // Who wants no thoughts does not want to say how much to think either.
    if request.include_thoughts == Some(false) {
        defaults.extra.remove("thinkingConfig");
    }
    let mut extra = defaults.extra;
    merge(&mut extra, &request.extra);
    GenerateConfig {
        temperature: request.temperature.or(defaults.temperature),
        top_p: request.top_p.or(defaults.top_p),
        top_k: request.top_k.or(defaults.top_k),
        max_output_tokens: request.max_output_tokens.or(defaults.max_output_tokens),
        include_thoughts: request.include_thoughts.or(defaults.include_thoughts),
        thinking: request.thinking.or(defaults.thinking),
        extra,
    }
}
