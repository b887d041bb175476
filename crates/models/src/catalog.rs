//! Models by name: which model does a name mean, how is it asked, who stands in for it?
//!
//! A [`Catalog`] holds the built-in names of the Gemini API and what settings add to them. Everything behind it speaks
//! of a [`ModelName`], which is never an alias: `id` for a model of the default provider, `provider/id` for one of
//! another provider that the [registry](crate::Registry) knows. So a chain may go from a Gemini model to one on the
//! user's own machine. Source: runtime specification §3.5, §3.6; departure: parameters of an alias are kept when
//! another model stands in for the one it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use convoke_adk::GenerateConfig;
use serde::{Serialize, Serializer};

use crate::chain::{Chain, ModelPolicy};
use crate::registry::Registry;

mod alias;
mod config;
mod family;
mod settings;

pub use alias::Alias;
pub use config::{ConfigKey, Override};
pub(crate) use family::has_thoughts;
pub use family::{Tier, is_gemini_3};
pub use settings::CatalogError;

/// The pro model.
pub const PRO: &str = "gemini-3-pro-preview";
/// The flash model.
pub const FLASH: &str = "gemini-3-flash-preview";
/// The smallest model.
pub const FLASH_LITE: &str = "gemini-3.1-flash-lite";
/// The pro model of the generation before.
pub const PRO_2_5: &str = "gemini-2.5-pro";
/// The flash model of the generation before.
pub const FLASH_2_5: &str = "gemini-2.5-flash";
/// The model for vectors.
pub const EMBEDDING: &str = "gemini-embedding-001";

/// What fits into a model that is not known: the least that current coding models have.
const UNKNOWN_TOKEN_LIMIT: u64 = 128_000;

/// A model's full name: `id`, or `provider/id` for one of a provider that is not the default. Made by
/// [`Catalog::resolve`]; what is announced, marked and shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    text: Arc<str>,
    /// Where the id begins: behind `provider/`, or at 0.
    id_at: usize,
}

impl ModelName {
    fn new(provider: Option<&str>, id: &str) -> Self {
        match provider {
            Some(provider) => Self { text: format!("{provider}/{id}").into(), id_at: provider.len() + 1 },
            None => Self { text: id.into(), id_at: 0 },
        }
    }

    /// A model of the default provider, by its id.
    #[must_use]
    pub fn of_default(id: &str) -> Self {
        Self::new(None, id)
    }

    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the provider calls it.
    #[must_use]
    pub fn id(&self) -> &str {
        self.text.get(self.id_at..).unwrap_or(&self.text)
    }

    /// Whose it is; `None` for the default provider.
    #[must_use]
    pub fn provider(&self) -> Option<&str> {
        self.text.get(..self.id_at.checked_sub(1)?)
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Serialize for ModelName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// What is known of a model beyond its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// How many tokens a request may have.
    pub token_limit: Option<u64>,
    /// How large it is among its kind.
    pub tier: Option<Tier>,
}

/// Names, parameters and chains. Cheap to read, made once per process.
#[derive(Clone, Debug)]
pub struct Catalog {
    default_provider: String,
    providers: BTreeSet<String>,
    aliases: BTreeMap<String, Alias>,
    overrides: Vec<Override>,
    definitions: BTreeMap<String, Definition>,
    /// Chains that the user wrote.
    chains: BTreeMap<String, Chain>,
    /// Whether the names of the Gemini API hold.
    gemini: bool,
}

impl Catalog {
    /// The names that hold for these providers: those of the Gemini API where the default provider speaks it, or is a
    /// script; otherwise only what [settings](Self::with_settings) say.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let gemini = registry.has_gemini_names();
        Self {
            default_provider: registry.default_name().to_owned(),
            providers: registry.names().map(str::to_owned).collect(),
            aliases: if gemini { alias::built_in() } else { BTreeMap::new() },
            overrides: Vec::new(),
            definitions: BTreeMap::new(),
            chains: BTreeMap::new(),
            gemini,
        }
    }

    /// The names of the Gemini API, for a provider that speaks it.
    pub(crate) fn gemini() -> Self {
        Self::new(&Registry::new("gemini", crate::Provider::Gemini(crate::GeminiOptions::default())))
    }

    /// The model that `name` means. Aliases are followed; what is no alias is a name already. An automatic name means
    /// the model that it would start with.
    #[must_use]
    pub fn resolve(&self, name: &str) -> ModelName {
        let mut name = name.trim();
        // As deep as aliases may be nested; a circle was refused when the settings were read.
        for _ in 0..alias::DEPTH_MAX {
            match self.alias_model(name) {
                Some(next) if next != name => name = next,
                _ => break,
            }
        }
        let name = name.strip_prefix("models/").unwrap_or(name);
        match name.split_once('/') {
            Some((provider, id)) if provider == self.default_provider => ModelName::of_default(id),
            Some((provider, id)) if self.providers.contains(provider) => ModelName::new(Some(provider), id),
            _ => ModelName::of_default(name),
        }
    }

    /// The model of the nearest alias up the chain that names one.
    fn alias_model(&self, name: &str) -> Option<&str> {
        let mut alias = self.aliases.get(name)?;
        for _ in 0..alias::DEPTH_MAX {
            match (&alias.model, &alias.extends) {
                (Some(model), _) => return Some(model),
                (None, Some(parent)) => alias = self.aliases.get(parent)?,
                (None, None) => return None,
            }
        }
        None
    }

    /// Whether `name` leaves the choice to us: `auto`, `auto-gemini-3`, `auto-gemini-2.5`, where those hold.
    #[must_use]
    pub fn is_auto(&self, name: &str) -> bool {
        matches!(name.trim(), "" | "auto") && self.aliases.contains_key("auto")
            || self.gemini && matches!(name.trim(), "auto-gemini-3" | "auto-gemini-2.5")
    }

    /// The model that `auto` or its like takes for easy work, or for hard work.
    #[must_use]
    pub fn of_tier(&self, automatic: &str, tier: Tier) -> ModelName {
        let older = automatic.trim() == "auto-gemini-2.5";
        match (tier, older) {
            (Tier::Pro, _) => self.resolve(automatic),
            (Tier::Flash, true) => self.resolve(FLASH_2_5),
            (Tier::Flash, false) => self.resolve("flash"),
            (Tier::FlashLite, _) => self.resolve("flash-lite"),
        }
    }

    /// How many tokens a request to `model` may have.
    #[must_use]
    pub fn token_limit(&self, model: &ModelName) -> u64 {
        self.known_token_limit(model).unwrap_or(UNKNOWN_TOKEN_LIMIT)
    }

    /// The same, where it is known: `None` for a model that neither settings nor its family say anything about.
    #[must_use]
    pub fn known_token_limit(&self, model: &ModelName) -> Option<u64> {
        let defined = self.definitions.get(model.as_str()).and_then(|definition| definition.token_limit);
        defined.or_else(|| family::token_limit(model.id()))
    }

    /// Whether `name` is an alias.
    #[must_use]
    pub fn is_alias(&self, name: &str) -> bool {
        self.aliases.contains_key(name.trim())
    }

    /// How large `model` is among its kind, where that is known.
    #[must_use]
    pub fn tier(&self, model: &ModelName) -> Option<Tier> {
        let defined = self.definitions.get(model.as_str()).and_then(|definition| definition.tier);
        defined.or_else(|| family::tier(model.id()))
    }

    /// How `model` is asked: the defaults of its family (for a conversation), over them the parameters of the alias
    /// that was asked for, over them matching overrides, and over all what `request` sets.
    #[must_use]
    pub fn config(&self, key: &ConfigKey<'_>, model: &ModelName, request: &GenerateConfig) -> GenerateConfig {
        config::materialise(self, key, model, request)
    }

    /// Who stands in for `model`, where `configured` is what the user asked for.
    ///
    /// A chain that the user wrote comes first: the one named like `configured` or like the model, then any that has
    /// the model. Then the built-in ones; a model in none of them stands alone.
    #[must_use]
    pub fn chain(&self, configured: &str, model: &ModelName) -> Chain {
        let named = [configured.trim(), model.as_str()].into_iter().find_map(|name| self.chains.get(name));
        let written = named.filter(|chain| chain.has(model)).or_else(|| self.chains.values().find(|c| c.has(model)));
        match written {
            Some(chain) => chain.clone(),
            None => self.built_in_chain(configured, model),
        }
    }

    fn built_in_chain(&self, configured: &str, model: &ModelName) -> Chain {
        let alone = || Chain::built_in(vec![ModelPolicy::new(model.clone())]);
        if !self.gemini || model.provider().is_some() {
            return alone();
        }
        let auto = self.is_auto(configured);
        let pair = |pro: &str, flash: &str| {
            let (pro, flash) = (self.resolve(pro), self.resolve(flash));
            if auto {
                Chain::built_in(vec![ModelPolicy::preferred(pro), ModelPolicy::automatic(flash)])
            } else {
                Chain::built_in(vec![ModelPolicy::new(pro), ModelPolicy::new(flash)])
            }
        };
        let lite = || {
            let models = ["flash-lite", "flash", PRO_2_5].map(|name| ModelPolicy::silent(self.resolve(name)));
            Chain::built_in(models.to_vec())
        };
        [pair("pro", "flash"), pair(PRO_2_5, FLASH_2_5), lite()]
            .into_iter()
            .find(|chain| chain.has(model))
            .unwrap_or_else(alone)
    }
}

#[cfg(test)]
mod tests;
