//! Providers: which servers does the user have, and what would it take to have another?
//!
//! `gemini`, `vertex`, `openai` and `anthropic` are there from the start and live on variables; an entry of `providers`
//! in the settings changes one of them or adds one. What can't be used keeps the reason. Nothing is sent here.

use std::collections::BTreeMap;

use convoke_models::Provider;
use serde_json::Value;

use crate::environment::Environment;
use crate::home::Home;
use crate::secret::Reference;
use crate::settings::Settings;

mod entry;
mod make;

pub(crate) use entry::Kind;
use entry::{Entry, InvalidEntry};

/// A server, or why there is none.
pub(crate) struct Configured {
    pub(crate) kind: Kind,
    /// The provider, or what was looked for and not found.
    pub(crate) provider: Result<Provider, String>,
    /// The models that the settings name, best first.
    pub(crate) models: Vec<String>,
    /// Whether the settings speak of it.
    pub(crate) from_settings: bool,
}

/// What the user has, by name.
pub(crate) struct Providers {
    by_name: BTreeMap<String, Configured>,
    warnings: Vec<String>,
}

/// What is read for them.
pub(crate) struct Ground<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) settings: &'a Settings,
    pub(crate) home: Option<&'a Home>,
}

impl Providers {
    /// Reads settings and variables. A broken entry is an error, used or not: it may send a key elsewhere.
    pub(crate) fn read(ground: &Ground<'_>) -> Result<Self, InvalidEntry> {
        let mut entries: BTreeMap<String, Entry> =
            Kind::ALL.iter().map(|kind| (kind.name().to_owned(), Entry::built_in(*kind))).collect();
        let mut warnings = Vec::new();
        match ground.settings.get("providers") {
            None | Some(Value::Null) => {}
            Some(Value::Object(written)) => {
                for (name, value) in written {
                    let entry = Entry::read(name, value)?;
                    warnings.extend(entry.warning(name));
                    entries.insert(name.clone(), entry);
                }
            }
            Some(_) => return Err(InvalidEntry::new("", "it must be an object of providers by name")),
        }
        let mut by_name = BTreeMap::new();
        for (name, entry) in entries {
            let provider = make::provider(&name, &entry, ground)?;
            let Entry { kind, models, from_settings, .. } = entry;
            by_name.insert(name, Configured { kind, provider, models, from_settings });
        }
        Ok(Self { by_name, warnings })
    }

    /// What a person should hear about, once.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Configured> {
        self.by_name.get(name)
    }

    /// All, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Configured)> {
        self.by_name.iter().map(|(name, one)| (name.as_str(), one))
    }

    /// Those that can be asked.
    pub(crate) fn usable(&self) -> impl Iterator<Item = (&str, &Configured, &Provider)> {
        self.all().filter_map(|(name, one)| Some((name, one, one.provider.as_ref().ok()?)))
    }

    pub(crate) fn is_usable(&self, name: &str) -> bool {
        self.get(name).is_some_and(|one| one.provider.is_ok())
    }
}

/// The variables that the settings take secrets from.
pub(crate) fn variables(settings: &Settings) -> Vec<String> {
    let mut names = Vec::new();
    for entry in settings.get("providers").and_then(Value::as_object).into_iter().flatten().map(|(_, entry)| entry) {
        let headers = entry.get("headers").and_then(Value::as_object).into_iter().flatten().map(|(_, value)| value);
        for value in ["apiKey", "accessToken"].iter().filter_map(|key| entry.get(*key)).chain(headers) {
            if let Ok(reference) = Reference::parse(value) {
                names.extend(reference.variable().map(str::to_owned));
            }
        }
    }
    names
}
