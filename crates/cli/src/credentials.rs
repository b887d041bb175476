//! Which model provider the user has, from environment and settings.

use std::path::Path;
use std::sync::Arc;

use convoke_models::{
    AnthropicOptions, Catalog, Credential, FakeMode, FakeScript, GeminiOptions, OpenAiOptions, Provider, Registry,
};
use convoke_protocol::ExitCode;

use crate::args::AgentArgs;
use crate::environment::Environment;
use crate::settings::Settings;

/// What to say to somebody who has no model yet.
pub(crate) const NO_CREDENTIAL: &str = "\
no model to talk to. Four ways to get one:
  1. GEMINI_API_KEY=…                          a key of the Gemini API
  2. OPENAI_API_KEY=… [OPENAI_MODEL=…]         a key of OpenAI, or of a server that speaks its API (OPENAI_BASE_URL=…)
  3. ANTHROPIC_API_KEY=… ANTHROPIC_MODEL=…     a key of Anthropic
  4. OPENAI_BASE_URL=… OPENAI_MODEL=…          a local server without a key: Ollama, vLLM, llama.cpp
Without any: `convoke demo` shows everything with a scripted model.";

/// Variables that hold credentials: children of the agent and of the daemon never see them.
pub(crate) const SECRET_VARIABLES: &[&str] =
    &["GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "QWEN_SERVER_TOKEN", "CONVOKE_TOKEN"];

/// Why there is no model.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct NoModel {
    /// What a command ends with that can't go on without.
    pub(crate) exit: ExitCode,
    message: String,
}

impl NoModel {
    fn new(exit: ExitCode, message: impl ToString) -> Self {
        Self { exit, message: message.to_string() }
    }
}

/// The providers, what their models are called, and the one to ask.
pub(crate) struct ModelChoice {
    pub(crate) registry: Registry,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) model: String,
}

impl ModelChoice {
    fn new(registry: Registry, model: String, settings: &Settings) -> Result<Self, NoModel> {
        let catalog = Catalog::new(&registry);
        let catalog = match settings.get("modelConfigs") {
            Some(configs) => {
                catalog.with_settings(configs).map_err(|error| NoModel::new(ExitCode::Configuration, error))?
            }
            None => catalog,
        };
        Ok(Self { registry, catalog: Arc::new(catalog), model })
    }
}

/// Finds the provider. Command line over environment over settings.
pub(crate) fn choose(args: &AgentArgs, environment: &Environment, settings: &Settings) -> Result<ModelChoice, NoModel> {
    let named = |variable: &str| {
        args.model.as_deref().or_else(|| environment.get(variable)).or_else(|| settings.text("model.name"))
    };
    let openai_model =
        || args.model.as_deref().or_else(|| environment.get("OPENAI_MODEL")).or_else(|| settings.text("openai.model"));
    if args.embedded_story {
        let script =
            FakeScript::embedded(crate::demo::STORY, true).map_err(|error| NoModel::new(ExitCode::Failure, error))?;
        let provider = Provider::Fake { script: Arc::new(script), mode: FakeMode::NonStrict };
        return ModelChoice::new(Registry::new("demo", provider), "demo-story".to_owned(), settings);
    }
    let provider = real_provider(openai_model().is_some(), environment, settings)
        .ok_or_else(|| NoModel::new(ExitCode::Auth, NO_CREDENTIAL))?;
    let model = match &provider {
        Provider::OpenAi(_) => openai_model().map(ToOwned::to_owned).ok_or_else(|| {
            NoModel::new(ExitCode::Auth, "name the server's model with -m or OPENAI_MODEL (as well as OPENAI_BASE_URL)")
        })?,
        Provider::Anthropic(_) => named("ANTHROPIC_MODEL").map(ToOwned::to_owned).ok_or_else(|| {
            NoModel::new(ExitCode::Auth, "name the model with -m or ANTHROPIC_MODEL (as well as ANTHROPIC_API_KEY)")
        })?,
        Provider::Gemini(_) | Provider::Vertex(_) | Provider::Fake { .. } => {
            named("GEMINI_MODEL").unwrap_or("auto").to_owned()
        }
    };
    let name = match provider {
        Provider::OpenAi(_) => "openai",
        Provider::Anthropic(_) => "anthropic",
        Provider::Vertex(_) => "vertex",
        Provider::Gemini(_) | Provider::Fake { .. } => "gemini",
    };
    let registry = Registry::new(name, provider).recorded_in(args.record_responses.clone());
    let registry = match (&args.fake_responses_non_strict, &args.fake_responses) {
        (Some(path), _) => registry.answered_by(fake(path, FakeMode::NonStrict)?),
        (None, Some(path)) => registry.answered_by(fake(path, FakeMode::Strict)?),
        (None, None) => registry,
    };
    ModelChoice::new(registry, model, settings)
}

fn fake(path: &Path, mode: FakeMode) -> Result<Provider, NoModel> {
    let script = FakeScript::load(path).map_err(|error| NoModel::new(ExitCode::Failure, error))?;
    Ok(Provider::Fake { script: Arc::new(script), mode })
}

/// The provider that the environment has credentials for; with both, settings or the model's own variable decide.
fn real_provider(has_openai_model: bool, environment: &Environment, settings: &Settings) -> Option<Provider> {
    let gemini = || {
        let key = environment.get("GEMINI_API_KEY")?;
        let mut options = GeminiOptions { api_key: Some(Credential::from(key.to_owned())), ..GeminiOptions::default() };
        if let Some(base) = environment.get("GOOGLE_GEMINI_BASE_URL") {
            options.base_url = base.to_owned();
        }
        Some(Provider::Gemini(options))
    };
    let openai = || {
        let key = environment.get("OPENAI_API_KEY");
        let base = environment.get("OPENAI_BASE_URL").or_else(|| settings.text("openai.baseUrl"));
        if key.is_none() && base.is_none() {
            return None;
        }
        let mut options = OpenAiOptions::new(base.unwrap_or("https://api.openai.com/v1"));
        options.api_key = key.map(|key| Credential::from(key.to_owned()));
        Some(Provider::OpenAi(options))
    };
    let anthropic = || {
        let api_key = Some(Credential::from(environment.get("ANTHROPIC_API_KEY")?.to_owned()));
        let mut options = AnthropicOptions { api_key, ..AnthropicOptions::default() };
        if let Some(base) = environment.get("ANTHROPIC_BASE_URL") {
            options.base_url = base.to_owned();
        }
        Some(Provider::Anthropic(options))
    };
    match settings.text("security.auth.selectedType") {
        Some("openai") => openai(),
        Some("anthropic") => anthropic(),
        Some("gemini-api-key") => gemini().or_else(openai),
        // Whoever names a model for the one server and has a key for the other meant the former.
        _ if has_openai_model && environment.get("OPENAI_MODEL").is_some() => openai().or_else(gemini),
        _ => gemini().or_else(openai).or_else(anthropic),
    }
}
