//! A client's credential: which key do the sessions of this process use?
//!
//! What environment and settings give is there from the start. A client of `convoke acp` may hand over a key for as long
//! as the process lives; it is kept in memory only, and lies over everything else until the client takes it back.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use convoke_protocol::{AuthError, AuthMethod, Authenticator};
use serde_json::Value;

use crate::args::AgentArgs;
use crate::credentials::{self, ModelChoice, NoModel};
use crate::startup::Startup;

/// The choice of a model as it is now.
type Choice = Arc<Result<ModelChoice, NoModel>>;

/// Knows the choice, and lets a client change it.
pub(crate) struct Login {
    args: AgentArgs,
    startup: Startup,
    choice: Mutex<Choice>,
}

/// A method: the provider that it is for, and the variable that its key would be in.
const METHODS: &[(&str, &str, &str, &str)] = &[
    ("gemini-api-key", "Gemini API key", "gemini-api-key", "GEMINI_API_KEY"),
    ("openai-api-key", "OpenAI API key", "openai", "OPENAI_API_KEY"),
    ("anthropic-api-key", "Anthropic API key", "anthropic", "ANTHROPIC_API_KEY"),
];

impl Login {
    /// What environment and settings give.
    pub(crate) fn new(args: AgentArgs, startup: Startup) -> Self {
        let choice = Mutex::new(Arc::new(credentials::choose(&args, &startup)));
        Self { args, startup, choice }
    }

    /// What the command line says.
    pub(crate) fn args(&self) -> &AgentArgs {
        &self.args
    }

    /// The choice for the next session.
    pub(crate) fn choice(&self) -> Choice {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, choice: Result<ModelChoice, NoModel>) {
        *self.choice.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(choice);
    }

    /// The choice with `secret` in `variable`, of that provider and no other.
    fn with(&self, provider: &str, given: Option<(&str, String)>) -> Result<ModelChoice, NoModel> {
        let mut startup = self.startup.clone();
        startup.settings.set("security.auth.selectedType", Value::from(provider));
        if let Some((variable, secret)) = given {
            startup.environment.set(variable, secret);
        }
        credentials::choose(&self.args, &startup)
    }
}

#[async_trait]
impl Authenticator for Login {
    fn methods(&self) -> Vec<AuthMethod> {
        let method = |(id, name, _, variable): &(&'static str, &'static str, &str, &str)| AuthMethod {
            id,
            name,
            description: format!("Set {variable} for the agent, or hand the key over in _meta.api-key"),
        };
        METHODS.iter().map(method).collect()
    }

    async fn authenticate(&self, method: &str, secret: Option<String>) -> Result<(), AuthError> {
        let (_, _, provider, variable) =
            METHODS.iter().find(|(id, ..)| *id == method).ok_or_else(|| AuthError::UnknownMethod(method.to_owned()))?;
        let choice = self.with(provider, secret.map(|secret| (*variable, secret)));
        match choice {
            Ok(choice) => {
                self.set(Ok(choice));
                Ok(())
            }
            // What worked before goes on working.
            Err(missing) => Err(AuthError::Missing(missing.to_string())),
        }
    }

    async fn logout(&self) {
        self.set(credentials::choose(&self.args, &self.startup));
    }
}
