//! Settings: what does the user add to the catalog?
//!
//! The object `modelConfigs` of a settings file:
//!
//! * `customAliases`: `{name: {extends?, modelConfig: {model?, generateContentConfig?}}}`; a plain text is short for a
//!   model. `aliases` is read the same way, below it.
//! * `customOverrides`: `[{match: {model?, overrideScope?, isRetry?}, modelConfig: {generateContentConfig}}]`;
//!   `overrides` is read the same way, before it.
//! * `modelDefinitions`: `{model: {tokenLimit?, tier?}}`.
//! * `modelChains`: `{name: [model | {model, actions?, stateTransitions?, maxAttempts?}]}`, best model first.

use serde_json::{Map, Value};

use super::alias::{Alias, DEPTH_MAX};
use super::config::Override;
use super::{Catalog, Definition, Tier};
use crate::chain::{Action, Chain, ChainError, FailureKind, ModelPolicy, Transition};

/// Why `modelConfigs` can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// A value of the wrong shape.
    #[error("read modelConfigs.{key}: {reason}")]
    Shape {
        /// Where, with dots.
        key: String,
        /// What was expected.
        reason: &'static str,
    },
    /// Aliases that lead back to themselves.
    #[error("resolve the alias '{0}' of modelConfigs: it leads back to itself")]
    Circle(String),
    /// A chain that can't be one.
    #[error("read modelConfigs.modelChains.{name}: {source}")]
    Chain {
        /// The chain.
        name: String,
        /// Why.
        source: ChainError,
    },
}

fn shape(key: impl Into<String>, reason: &'static str) -> CatalogError {
    CatalogError::Shape { key: key.into(), reason }
}

fn object<'a>(value: &'a Value, key: &str) -> Result<&'a Map<String, Value>, CatalogError> {
    value.as_object().ok_or_else(|| shape(key, "it must be an object"))
}

/// A text that may be absent.
fn text(map: &Map<String, Value>, name: &str, key: &str) -> Result<Option<String>, CatalogError> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(shape(format!("{key}.{name}"), "it must be a text")),
    }
}

impl Catalog {
    /// Adds what the object `modelConfigs` of settings says.
    pub fn with_settings(mut self, settings: &Value) -> Result<Self, CatalogError> {
        let settings = object(settings, "*").map_err(|_| shape("*", "modelConfigs must be an object"))?;
        for list in ["aliases", "customAliases"] {
            for (name, value) in settings.get(list).map(|value| object(value, list)).transpose()?.into_iter().flatten()
            {
                let alias = read_alias(value, &format!("{list}.{name}"))?;
                self.aliases.insert(name.clone(), alias);
            }
        }
        self.check_circles()?;
        for list in ["overrides", "customOverrides"] {
            let Some(value) = settings.get(list) else { continue };
            let items = value.as_array().ok_or_else(|| shape(list, "it must be a list"))?;
            for (index, item) in items.iter().enumerate() {
                self.overrides.push(read_override(item, &format!("{list}[{index}]"))?);
            }
        }
        if let Some(value) = settings.get("modelDefinitions") {
            for (name, value) in object(value, "modelDefinitions")? {
                let definition = read_definition(value, &format!("modelDefinitions.{name}"))?;
                self.definitions.insert(self.resolve(name).to_string(), definition);
            }
        }
        if let Some(value) = settings.get("modelChains") {
            for (name, value) in object(value, "modelChains")? {
                let chain = self.read_chain(name, value)?;
                self.chains.insert(name.clone(), chain);
            }
        }
        Ok(self)
    }

    fn check_circles(&self) -> Result<(), CatalogError> {
        for name in self.aliases.keys() {
            // A model's alias may carry the model's own name: that is where the way ends.
            let mut at = name.as_str();
            let mut steps = 0;
            while let Some(alias) = self.aliases.get(at) {
                let next = alias.extends.as_deref().or(alias.model.as_deref()).filter(|next| *next != at);
                let Some(next) = next else { break };
                at = next;
                steps += 1;
                if steps > DEPTH_MAX {
                    return Err(CatalogError::Circle(name.clone()));
                }
            }
            let mut at = name.as_str();
            for step in 0.. {
                match self.alias_model(at).filter(|next| *next != at) {
                    Some(next) if step < DEPTH_MAX => at = next,
                    Some(_) => return Err(CatalogError::Circle(name.clone())),
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn read_chain(&self, name: &str, value: &Value) -> Result<Chain, CatalogError> {
        let key = format!("modelChains.{name}");
        let items = value.as_array().ok_or_else(|| shape(&key, "it must be a list of models"))?;
        let mut policies = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            policies.push(self.read_policy(item, &format!("{key}[{index}]"))?);
        }
        Chain::written(policies).map_err(|source| CatalogError::Chain { name: name.to_owned(), source })
    }

    fn read_policy(&self, value: &Value, key: &str) -> Result<ModelPolicy, CatalogError> {
        if let Some(name) = value.as_str() {
            return Ok(ModelPolicy::automatic(self.resolve(name)));
        }
        let map = object(value, key).map_err(|_| shape(key, "it must be a model's name or an object"))?;
        let name = text(map, "model", key)?.ok_or_else(|| shape(key, "it has no model"))?;
        let mut policy = ModelPolicy::automatic(self.resolve(&name));
        for (list, set) in [("actions", set_action as SetOne), ("stateTransitions", set_transition as SetOne)] {
            let Some(entries) = map.get(list) else { continue };
            for (kind, value) in object(entries, &format!("{key}.{list}"))? {
                let at = || format!("{key}.{list}.{kind}");
                let kinds = kinds(kind).ok_or_else(|| {
                    shape(at(), "choose terminal, capacity, transient, not_found, unreachable or unknown")
                })?;
                let value = value.as_str().ok_or_else(|| shape(at(), "it must be a text"))?;
                for kind in kinds {
                    set(&mut policy, *kind, value).map_err(|reason| shape(at(), reason))?;
                }
            }
        }
        match map.get("maxAttempts").map(|value| value.as_u64().and_then(|number| u32::try_from(number).ok())) {
            None => {}
            Some(Some(attempts @ 1..=10)) => policy.max_attempts = Some(attempts),
            Some(_) => return Err(shape(format!("{key}.maxAttempts"), "it must be a number from 1 to 10")),
        }
        Ok(policy)
    }
}

/// The failures behind a word of settings. `unknown` is all that has no word of its own.
fn kinds(word: &str) -> Option<&'static [FailureKind]> {
    Some(match word {
        "terminal" => &[FailureKind::Quota, FailureKind::Capacity],
        "capacity" => &[FailureKind::Capacity],
        "transient" => &[FailureKind::Transient],
        "not_found" => &[FailureKind::NotFound],
        "unreachable" | "unknown" => &[FailureKind::Unreachable],
        _ => return None,
    })
}

type SetOne = fn(&mut ModelPolicy, FailureKind, &str) -> Result<(), &'static str>;

fn set_action(policy: &mut ModelPolicy, kind: FailureKind, value: &str) -> Result<(), &'static str> {
    policy.actions[kind] = match value {
        "silent" => Action::Silent,
        "prompt" => Action::Ask,
        "prompt-or-silent" => Action::AskOrGoOn,
        _ => return Err("choose silent, prompt or prompt-or-silent"),
    };
    Ok(())
}

fn set_transition(policy: &mut ModelPolicy, kind: FailureKind, value: &str) -> Result<(), &'static str> {
    policy.transitions[kind] = match value {
        "terminal" => Transition::Terminal,
        "sticky_retry" => Transition::StickyRetry,
        _ => return Err("choose terminal or sticky_retry"),
    };
    Ok(())
}

fn read_alias(value: &Value, key: &str) -> Result<Alias, CatalogError> {
    if let Some(model) = value.as_str() {
        return Ok(Alias { model: Some(model.to_owned()), ..Alias::default() });
    }
    let map = object(value, key).map_err(|_| shape(key, "it must be a model's name or an object"))?;
    let (model, config) = model_config(map, key)?;
    Ok(Alias { extends: text(map, "extends", key)?, model, config })
}

fn model_config(map: &Map<String, Value>, key: &str) -> Result<(Option<String>, Map<String, Value>), CatalogError> {
    let key = format!("{key}.modelConfig");
    let Some(inner) = map.get("modelConfig") else { return Ok((None, Map::new())) };
    let inner = object(inner, &key)?;
    let config = match inner.get("generateContentConfig") {
        Some(config) => object(config, &format!("{key}.generateContentConfig"))?.clone(),
        None => Map::new(),
    };
    Ok((text(inner, "model", &key)?, config))
}

fn read_override(value: &Value, key: &str) -> Result<Override, CatalogError> {
    let map = object(value, key)?;
    let rule = map.get("match").ok_or_else(|| shape(key, "it has no match"))?;
    let rule = object(rule, &format!("{key}.match"))?;
    let is_retry = match rule.get("isRetry") {
        None => None,
        Some(value) => {
            Some(value.as_bool().ok_or_else(|| shape(format!("{key}.match.isRetry"), "choose true or false"))?)
        }
    };
    let (_, config) = model_config(map, key)?;
    Ok(Override { model: text(rule, "model", key)?, scope: text(rule, "overrideScope", key)?, is_retry, config })
}

fn read_definition(value: &Value, key: &str) -> Result<Definition, CatalogError> {
    let map = object(value, key)?;
    let tier = match text(map, "tier", key)? {
        None => None,
        // Words of other programs (`custom`, `auto`) say nothing about size.
        Some(word) => Tier::parse(&word),
    };
    let token_limit = match map.get("tokenLimit") {
        None => None,
        Some(value) => {
            let limit = value.as_u64().filter(|limit| *limit > 0);
            Some(limit.ok_or_else(|| shape(format!("{key}.tokenLimit"), "it must be a number above 0"))?)
        }
    };
    Ok(Definition { token_limit, tier })
}
