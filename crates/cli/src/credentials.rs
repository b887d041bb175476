//! Which model a prompt goes to, and through which provider: arguments over environment over settings.

use std::path::Path;
use std::sync::Arc;

use convoke_models::{Catalog, FakeMode, FakeScript, Provider, Registry};
use convoke_protocol::ExitCode;

use crate::args::AgentArgs;
use crate::providers::{self, Configured, Ground, Kind, Providers};
use crate::settings::Settings;
use crate::startup::Startup;

/// What to say to somebody who has no model yet.
const NO_CREDENTIAL: &str = "\
no model to talk to. Some ways to get one:
  1. GEMINI_API_KEY=…                          a key of the Gemini API
  2. OPENAI_API_KEY=… OPENAI_MODEL=…           a key of OpenAI, or of a server that speaks its API (OPENAI_BASE_URL=…)
  3. ANTHROPIC_API_KEY=… ANTHROPIC_MODEL=…     a key of Anthropic
  4. GOOGLE_GENAI_USE_VERTEXAI=true            Vertex AI, with a key or the credentials of gcloud
  5. OPENAI_BASE_URL=… OPENAI_MODEL=…          a local server without a key: Ollama, vLLM, llama.cpp
  6. \"providers\" in the settings               any of these by a name of your own
`convoke models` says what was looked for. Without any: `convoke demo` shows everything with a scripted model.";

/// Variables that hold credentials: children of the agent never see them.
const SECRET_VARIABLES: &[&str] = &[
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "QWEN_SERVER_TOKEN",
    "CONVOKE_TOKEN",
];

/// All of them, with those that the settings take secrets from.
pub(crate) fn secret_variables(settings: &Settings) -> Vec<String> {
    let fixed = SECRET_VARIABLES.iter().map(|name| (*name).to_owned());
    fixed.chain(providers::variables(settings)).collect()
}

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
    /// What decided, for people.
    pub(crate) why: String,
    /// Names that may be chosen later: automatic ones and aliases where they hold, and those that the settings list.
    pub(crate) offered: Arc<[String]>,
}

impl ModelChoice {
    fn new(registry: Registry, pick: Pick, listed: Vec<String>, settings: &Settings) -> Result<Self, NoModel> {
        let catalog = Catalog::new(&registry);
        let catalog = match settings.get("modelConfigs") {
            Some(configs) => {
                catalog.with_settings(configs).map_err(|error| NoModel::new(ExitCode::Configuration, error))?
            }
            None => catalog,
        };
        let aliases = ["auto", "pro", "flash", "flash-lite"].map(str::to_owned);
        let aliases = aliases.into_iter().filter(|_| registry.has_gemini_names());
        let offered = aliases.chain(listed).collect();
        Ok(Self { registry, catalog: Arc::new(catalog), model: pick.model, why: pick.why, offered })
    }
}

/// Reads the providers, for whoever wants to see them all.
pub(crate) fn providers(startup: &Startup) -> Result<Providers, NoModel> {
    let Startup { environment, settings, home, .. } = startup;
    let ground = Ground { environment, settings, home: home.as_ref() };
    Providers::read(&ground).map_err(|error| NoModel::new(ExitCode::Configuration, error))
}

/// Finds provider and model.
pub(crate) fn choose(args: &AgentArgs, startup: &Startup) -> Result<ModelChoice, NoModel> {
    let settings = &startup.settings;
    if args.embedded_story {
        let script =
            FakeScript::embedded(crate::demo::STORY, true).map_err(|error| NoModel::new(ExitCode::Failure, error))?;
        let provider = Provider::Fake { script: Arc::new(script), mode: FakeMode::NonStrict };
        let why = "the demo's script answers".to_owned();
        let pick = Pick { provider: "demo".to_owned(), model: "demo-story".to_owned(), why };
        return ModelChoice::new(Registry::new("demo", provider), pick, Vec::new(), settings);
    }
    let providers = providers(startup)?;
    let picker = Picker { args, startup, providers: &providers };
    let pick = picker.pick();
    picker.enforce(pick.as_ref().ok())?;
    let pick = pick?;
    let (_, _, provider) = providers
        .usable()
        .find(|(name, ..)| *name == pick.provider)
        .ok_or_else(|| NoModel::new(ExitCode::Auth, NO_CREDENTIAL))?;
    let registry = Registry::new(pick.provider.as_str(), provider.clone()).recorded_in(args.record_responses.clone());
    let others = providers.usable().filter(|(name, ..)| *name != pick.provider);
    let registry = others.fold(registry, |registry, (name, _, provider)| registry.with(name, provider.clone()));
    let registry = match (&args.fake_responses_non_strict, &args.fake_responses) {
        (Some(path), _) => registry.answered_by(fake(path, FakeMode::NonStrict)?),
        (None, Some(path)) => registry.answered_by(fake(path, FakeMode::Strict)?),
        (None, None) => registry,
    };
    let listed = providers.usable().flat_map(|(name, one, _)| {
        let is_default = name == pick.provider;
        one.models.iter().map(move |id| if is_default { id.clone() } else { format!("{name}/{id}") })
    });
    let listed = listed.collect();
    ModelChoice::new(registry, pick, listed, settings)
}

fn fake(path: &Path, mode: FakeMode) -> Result<Provider, NoModel> {
    let script = FakeScript::load(path).map_err(|error| NoModel::new(ExitCode::Failure, error))?;
    Ok(Provider::Fake { script: Arc::new(script), mode })
}

/// A provider, the name of a model of it, and what decided.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pick {
    provider: String,
    model: String,
    why: String,
}

struct Picker<'a> {
    args: &'a AgentArgs,
    startup: &'a Startup,
    providers: &'a Providers,
}

impl Picker<'_> {
    fn env(&self, name: &str) -> Option<&str> {
        self.startup.environment.get(name)
    }

    fn setting(&self, key: &str) -> Option<&str> {
        self.startup.settings.text(key)
    }

    fn pick(&self) -> Result<Pick, NoModel> {
        if let Some(model) = self.args.model.as_deref()
            && let Some(pick) = self.by_name(model, "-m")?
        {
            return Ok(pick);
        }
        let default = self.default_provider()?;
        let variable = default.as_ref().map(|(name, _)| self.model_variable(name));
        let from_variable = variable.and_then(|variable| Some((self.env(variable)?, variable)));
        // A name that says its provider goes before a provider that nobody asked for.
        if let (None, None, Some(model)) = (&self.args.model, from_variable, self.setting("model.name"))
            && let Some(pick) = self.by_name(model, "the setting model.name")?
        {
            return Ok(pick);
        }
        let (provider, why) = default.ok_or_else(|| NoModel::new(ExitCode::Auth, NO_CREDENTIAL))?;
        let configured = self.providers.get(&provider);
        let kind = configured.map_or(Kind::Gemini, |one| one.kind);
        let of_setting = || match kind {
            Kind::OpenAi => Some((self.setting("openai.model")?, "the setting openai.model")),
            Kind::Gemini | Kind::Vertex | Kind::Anthropic => {
                Some((self.setting("model.name")?, "the setting model.name"))
            }
        };
        let named = self.args.model.as_deref().map(|model| (model, "-m")).or(from_variable).or_else(of_setting);
        let (model, who) = match (named, configured.and_then(|one| one.models.first())) {
            (Some((model, who)), _) => (model.to_owned(), format!("{who} names the model")),
            (None, Some(first)) => (first.clone(), format!("it is the first of providers.{provider}.models")),
            (None, None) if matches!(kind, Kind::Gemini | Kind::Vertex) => {
                ("auto".to_owned(), "no model is named".to_owned())
            }
            (None, None) => {
                let message = format!(
                    "name the model of the provider {provider} with -m, {} or providers.{provider}.models in the \
                     settings; `convoke models` lists what it has",
                    self.model_variable(&provider)
                );
                return Err(NoModel::new(ExitCode::Auth, message));
            }
        };
        Ok(Pick { provider, model, why: format!("{why}; {who}") })
    }

    /// The variable that names the model of a provider.
    fn model_variable(&self, provider: &str) -> &'static str {
        match self.providers.get(provider).map(|one| one.kind) {
            Some(Kind::OpenAi) => "OPENAI_MODEL",
            Some(Kind::Anthropic) => "ANTHROPIC_MODEL",
            Some(Kind::Gemini | Kind::Vertex) | None => "GEMINI_MODEL",
        }
    }

    /// The provider that a model's name speaks of: `provider/model`, a model on a provider's list, or a vendor's own
    /// name where that vendor is at hand.
    fn by_name(&self, model: &str, who: &str) -> Result<Option<Pick>, NoModel> {
        if let Some((provider, id)) = model.split_once('/')
            && let Some(configured) = self.providers.get(provider)
        {
            if let Err(missing) = &configured.provider {
                return Err(self.missing(provider, missing));
            }
            return Ok(Some(pick(provider, id, format!("{who} names the provider"))));
        }
        let listing = |one: &Configured| one.models.iter().any(|listed| listed == model);
        if let Some((provider, ..)) = self.providers.usable().find(|(_, one, _)| listing(one)) {
            return Ok(Some(pick(provider, model, format!("{who} names a model of providers.{provider}.models"))));
        }
        let vendor = [("claude-", "anthropic"), ("gpt-", "openai")].iter().find(|(start, _)| model.starts_with(start));
        Ok(vendor
            // A gateway may have the same names.
            .filter(|(_, provider)| self.providers.is_usable(provider) && !self.is_chosen_by_setting())
            .map(|(_, provider)| pick(provider, model, format!("{who} names a model of {provider}"))))
    }

    fn is_chosen_by_setting(&self) -> bool {
        self.setting("security.auth.selectedType").and_then(|chosen| self.named_type(chosen)).is_some()
    }

    /// Refuses what `security.auth.enforcedType` does not name. The words are those that scripts look for.
    fn enforce(&self, pick: Option<&Pick>) -> Result<(), NoModel> {
        let Some(enforced) = self.setting("security.auth.enforcedType").filter(|enforced| !enforced.is_empty()) else {
            return Ok(());
        };
        let chosen = self.setting("security.auth.selectedType").filter(|chosen| !chosen.is_empty());
        let current = match pick.map(|pick| pick.provider.as_str()) {
            // A login that is asked for and that we have not is no key that happens to be there.
            _ if chosen.is_some_and(|chosen| self.named_type(chosen).is_none()) => chosen,
            _ if chosen.is_none() && self.startup.environment.flag("GOOGLE_GENAI_USE_GCA") => Some("oauth-personal"),
            Some("gemini") => Some(chosen.filter(|chosen| *chosen == "gateway").unwrap_or("gemini-api-key")),
            Some("vertex") => Some("vertex-ai"),
            other => other,
        };
        let why = match current {
            Some(current) if current == enforced => return Ok(()),
            Some(current) => format!(
                "the enforced authentication type is '{enforced}', but the current type is '{current}'; set \
                 security.auth.selectedType, or the variables of the right one"
            ),
            None => format!("the authentication type '{enforced}' is enforced, but none is configured"),
        };
        Err(NoModel::new(ExitCode::Auth, why))
    }

    fn missing(&self, provider: &str, what: &str) -> NoModel {
        if (provider, what) == ("gemini", "GEMINI_API_KEY is not set") {
            // The words that clients of Gemini CLI look for.
            let why =
                "use the provider gemini (GEMINI_API_KEY is not set): Gemini API key is missing or not configured.";
            return NoModel::new(ExitCode::Auth, why);
        }
        NoModel::new(ExitCode::Auth, format!("use the provider {provider}: {what}"))
    }

    /// The provider that a value of `security.auth.selectedType` means.
    fn named_type<'b>(&self, chosen: &'b str) -> Option<&'b str> {
        match chosen {
            "gemini-api-key" | "gateway" => Some("gemini"),
            "vertex-ai" => Some("vertex"),
            // A value of another program, such as a login that we have not.
            name => self.providers.get(name).map(|_| name),
        }
    }

    /// The provider for models whose names say nothing, and what decided.
    fn default_provider(&self) -> Result<Option<(String, String)>, NoModel> {
        let demanded = match self.setting("security.auth.selectedType").and_then(|chosen| self.named_type(chosen)) {
            Some(name) => Some((name, "the setting security.auth.selectedType".to_owned())),
            None if self.startup.environment.flag("GOOGLE_GENAI_USE_VERTEXAI") => {
                Some(("vertex", "GOOGLE_GENAI_USE_VERTEXAI is set".to_owned()))
            }
            None => None,
        };
        if let Some((name, why)) = demanded {
            return match self.providers.get(name).map(|one| &one.provider) {
                Some(Err(missing)) => Err(self.missing(name, missing)),
                Some(Ok(_)) | None => Ok(Some((name.to_owned(), why))),
            };
        }
        // Whoever names a model for the one server and has a key for the other meant the former.
        let by_variable = [("openai", "OPENAI_MODEL"), ("anthropic", "ANTHROPIC_MODEL")];
        let by_variable = by_variable.iter().find(|(name, variable)| {
            self.providers.is_usable(name) && self.env(variable).is_some() && self.env("GEMINI_MODEL").is_none()
        });
        if let Some((name, variable)) = by_variable {
            return Ok(Some(((*name).to_owned(), format!("{variable} is set"))));
        }
        let usual = ["gemini", "openai", "anthropic"].into_iter().find(|name| self.providers.is_usable(name));
        // Vertex AI needs no more than a file that another program left: it is only taken when it is asked for.
        let written = |with_models: bool| {
            let fits = |one: &Configured| one.from_settings && (!with_models || !one.models.is_empty());
            self.providers.usable().find(|(_, one, _)| fits(one)).map(|(name, ..)| name)
        };
        let written = || written(true).or_else(|| written(false));
        Ok(usual
            .or_else(written)
            .map(|name| (name.to_owned(), format!("{name} is the first provider with a credential"))))
    }
}

fn pick(provider: &str, model: &str, why: String) -> Pick {
    Pick { provider: provider.to_owned(), model: model.to_owned(), why }
}

#[cfg(test)]
mod tests;
