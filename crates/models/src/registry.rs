//! Providers by name: who answers for which model?
//!
//! A [`Registry`] lists providers, one of them the default; [`Registry::connect`] makes their generators, which send
//! nothing before their first call. With a [stand-in](Registry::answered_by), such as a file of fake responses, every
//! model of every provider is answered by it, from one place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use convoke_adk::{ModelError, ModelErrorKind};

use crate::catalog::ModelName;
use crate::connect::{ConnectError, Options, Provider, connect};
use crate::generator::ContentGenerator;

/// The providers that the user has.
#[derive(Clone, Debug)]
pub struct Registry {
    default: String,
    providers: BTreeMap<String, Provider>,
    stand_in: Option<Provider>,
    record: Option<PathBuf>,
}

impl Registry {
    /// One provider, which is the default: its models need no prefix.
    #[must_use]
    pub fn new(name: impl Into<String>, provider: Provider) -> Self {
        let default = name.into();
        let providers = BTreeMap::from([(default.clone(), provider)]);
        Self { default, providers, stand_in: None, record: None }
    }

    /// One more provider; its models are called `name/id`. One of the same name is replaced.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, provider: Provider) -> Self {
        self.providers.insert(name.into(), provider);
        self
    }

    /// Everything is answered by `provider`, whoever the model belongs to.
    #[must_use]
    pub fn answered_by(mut self, provider: Provider) -> Self {
        self.stand_in = Some(provider);
        self
    }

    /// A file that gets one line per finished call, in the format of fake responses.
    #[must_use]
    pub fn recorded_in(mut self, path: Option<PathBuf>) -> Self {
        self.record = path;
        self
    }

    /// The default provider's name.
    #[must_use]
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.providers.keys().map(String::as_str)
    }

    /// All providers with their names.
    pub fn providers(&self) -> impl Iterator<Item = (&str, &Provider)> {
        self.providers.iter().map(|(name, provider)| (name.as_str(), provider))
    }

    /// Who really answers: the stand-in, or the default provider.
    #[must_use]
    pub fn answering(&self) -> Option<&Provider> {
        self.stand_in.as_ref().or_else(|| self.providers.get(&self.default))
    }

    /// Whether names such as `pro` and `auto` are the default provider's.
    #[must_use]
    pub fn has_gemini_names(&self) -> bool {
        self.providers.get(&self.default).is_some_and(Provider::has_gemini_names)
    }

    /// Makes the generators. Nothing is sent and nothing is loaded before a first call.
    pub fn connect(&self) -> Result<Connections, ConnectError> {
        let make = |provider: &Provider| {
            let generator = connect(Options { provider: provider.clone(), record: self.record.clone() })?;
            let scripted = matches!(provider, Provider::Fake { .. });
            Ok(Connection { generator, scripted, own_web: provider.has_gemini_names() })
        };
        let connections = match &self.stand_in {
            Some(provider) => {
                let one = make(provider)?;
                let one = |provider: &Provider| Connection { own_web: provider.has_gemini_names(), ..one.clone() };
                self.providers.iter().map(|(name, provider)| (name.clone(), one(provider))).collect()
            }
            None => {
                let made = self.providers.iter().map(|(name, provider)| Ok((name.clone(), make(provider)?)));
                made.collect::<Result<_, ConnectError>>()?
            }
        };
        Ok(Connections { default: self.default.clone(), connections })
    }

    /// With generators of the caller's own, one per provider.
    pub fn connect_with(&self, make: impl Fn(&str) -> Arc<dyn ContentGenerator>) -> Connections {
        let connection =
            |name: &String| (name.clone(), Connection { generator: make(name), scripted: false, own_web: false });
        Connections { default: self.default.clone(), connections: self.providers.keys().map(connection).collect() }
    }
}

#[derive(Clone)]
struct Connection {
    generator: Arc<dyn ContentGenerator>,
    scripted: bool,
    /// Whether its models search the web and read pages by themselves.
    own_web: bool,
}

/// Generators by provider.
#[derive(Clone)]
pub struct Connections {
    default: String,
    connections: BTreeMap<String, Connection>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.connections.keys()).finish()
    }
}

impl Connections {
    /// Every model is answered by `generator`.
    #[must_use]
    pub fn single(generator: Arc<dyn ContentGenerator>) -> Self {
        let default = String::new();
        let connection = Connection { generator, scripted: false, own_web: false };
        Self { connections: BTreeMap::from([(default.clone(), connection)]), default }
    }

    fn connection(&self, model: &ModelName) -> Option<&Connection> {
        self.connections.get(model.provider().unwrap_or(&self.default))
    }

    /// Who answers for `model`.
    pub fn of(&self, model: &ModelName) -> Result<&Arc<dyn ContentGenerator>, ModelError> {
        let connection = self.connection(model).ok_or_else(|| {
            ModelError::new(ModelErrorKind::NotFound, format!("no provider is configured for the model {model}"))
        })?;
        Ok(&connection.generator)
    }

    /// Whether `model` searches the web and reads pages by itself.
    #[must_use]
    pub fn has_own_web(&self, model: &ModelName) -> bool {
        self.connection(model).is_some_and(|connection| connection.own_web)
    }

    /// Whether a script answers for `model`, with which no wait makes sense.
    #[must_use]
    pub fn is_scripted(&self, model: &ModelName) -> bool {
        self.connection(model).is_some_and(|connection| connection.scripted)
    }
}
