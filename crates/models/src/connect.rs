//! The door: which generator stands behind these options?

use std::path::PathBuf;
use std::sync::Arc;

use crate::fake::{FakeGenerator, FakeMode, FakeScript};
use crate::generator::ContentGenerator;
use crate::llm::{GeneratorLlm, LlmOptions};
use crate::observe::Observed;
use crate::providers::anthropic::{Anthropic, AnthropicOptions};
use crate::providers::gemini::{Gemini, GeminiOptions};
use crate::providers::openai::{OpenAi, OpenAiOptions};
use crate::providers::vertex::{VertexOptions, vertex};
use crate::record::Recorder;
use crate::registry::Registry;

/// Who answers.
#[derive(Clone, Debug)]
pub enum Provider {
    /// The Gemini API.
    Gemini(GeminiOptions),
    /// A server with OpenAI's chat completions.
    OpenAi(OpenAiOptions),
    /// A server with Anthropic's Messages.
    Anthropic(AnthropicOptions),
    /// Gemini models on Vertex AI.
    Vertex(VertexOptions),
    /// A script. Each [`connect`] starts at its first line; parse it once and share it.
    Fake {
        /// What to answer.
        script: Arc<FakeScript>,
        /// How lines are chosen.
        mode: FakeMode,
    },
}

impl Provider {
    /// Whether the names of the Gemini API, such as `pro` and `auto`, mean something here. Other servers have their own.
    #[must_use]
    pub fn has_gemini_names(&self) -> bool {
        match self {
            Self::Gemini(_) | Self::Vertex(_) | Self::Fake { .. } => true,
            Self::OpenAi(_) | Self::Anthropic(_) => false,
        }
    }

    /// The provider as `gen_ai.provider.name` has it.
    fn name(&self) -> &'static str {
        match self {
            Self::Gemini(_) => "gcp.gemini",
            Self::OpenAi(_) => "openai",
            Self::Anthropic(_) => "anthropic",
            Self::Vertex(_) => "gcp.vertex_ai",
            Self::Fake { .. } => "fake",
        }
    }
}

/// What to connect to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who answers.
    pub provider: Provider,
    /// A file that gets one line per finished call, in the format of fake responses.
    pub record: Option<PathBuf>,
}

impl Options {
    /// Not recorded.
    #[must_use]
    pub fn new(provider: Provider) -> Self {
        Self { provider, record: None }
    }
}

/// Why there is no generator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// It can't be parsed, or is not HTTP.
    #[error("read the base URL: {0}")]
    BaseUrl(String),
    /// The name of a custom header.
    #[error("use '{0}' as a header name")]
    Header(String),
    /// The value, which is not told, of this header.
    #[error("use the value of header '{0}': it holds characters that no header may have")]
    HeaderValue(String),
    /// It would become part of a host's name.
    #[error("use '{0}' as a location of Vertex AI")]
    Location(String),
    /// None was named, and the provider has none of its own.
    #[error("choose a model: this server has no default, so one must be named")]
    NoModel,
}

/// Whether this can be a server's base URL.
pub fn check_base_url(text: &str) -> Result<(), ConnectError> {
    crate::http::parse_base(text).map(drop)
}

/// Makes the generator. Nothing is sent and nothing is loaded before its first call.
pub fn connect(options: Options) -> Result<Arc<dyn ContentGenerator>, ConnectError> {
    let name = options.provider.name();
    let generator: Arc<dyn ContentGenerator> = match options.provider {
        Provider::Gemini(options) => Arc::new(Gemini::new(options)?),
        Provider::OpenAi(options) => Arc::new(OpenAi::new(options)?),
        Provider::Anthropic(options) => Arc::new(Anthropic::new(options)?),
        Provider::Vertex(options) => Arc::new(vertex(options)?),
        Provider::Fake { script, mode } => Arc::new(FakeGenerator::new(script, mode)),
    };
    let generator: Arc<dyn ContentGenerator> = Arc::new(Observed::new(generator, name));
    Ok(match options.record {
        Some(path) => Arc::new(Recorder::new(generator, path)),
        None => generator,
    })
}

/// Makes the kernel's model for one session. Scripts are repeated without waits, and a strict one is asked which model is
/// right only where its next line is the answer: the question would take a line of it.
pub fn connect_llm(registry: &Registry, options: LlmOptions) -> Result<GeneratorLlm, ConnectError> {
    let model = options.catalog.resolve(&options.model);
    if matches!(model.as_str(), "" | "auto") {
        return Err(ConnectError::NoModel);
    }
    let connections = registry.connect()?;
    connections.of(&model).map_err(|_| ConnectError::NoModel)?;
    Ok(GeneratorLlm::connected(connections, options))
}

#[cfg(test)]
mod tests {
    use convoke_adk::Llm;
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::catalog::Catalog;

    fn llm(provider: Provider, name: &str) -> Result<GeneratorLlm, ConnectError> {
        let registry = Registry::new("default", provider);
        let mut options = LlmOptions::new(name);
        options.catalog = Arc::new(Catalog::new(&registry));
        connect_llm(&registry, options)
    }

    fn model(provider: Provider, name: &str) -> Result<String, ConnectError> {
        llm(provider, name).map(|llm| llm.model())
    }

    #[test]
    fn aliases_belong_to_gemini() {
        let gemini = || Provider::Gemini(GeminiOptions::default());
        let openai = || Provider::OpenAi(OpenAiOptions::new("http://localhost:11434"));
        assert_eq!(model(gemini(), "pro"), Ok(crate::catalog::PRO.to_owned()));
        assert_eq!(model(openai(), "pro"), Ok("pro".to_owned()));
        assert_eq!(model(openai(), "auto"), Err(ConnectError::NoModel));
    }

    #[test]
    fn a_strict_script_is_asked_which_model_is_right_only_where_it_has_the_answer_ready() {
        let model = |text: &str, mode| {
            let script = Arc::new(FakeScript::parse(text, "test").unwrap());
            llm(Provider::Fake { script, mode }, "auto").unwrap().model()
        };
        let stream = r#"{"method": "generateContentStream", "response": []}"#;
        let whole = r#"{"method": "generateContent", "response": {}}"#;
        let pro = crate::catalog::PRO;
        assert_eq!(model("", FakeMode::Strict), pro, "known without asking");
        assert_eq!(model(&format!("{stream}\n{whole}"), FakeMode::Strict), pro, "the line is the turn's");
        assert_eq!(model(&format!("{whole}\n{stream}"), FakeMode::Strict), "auto", "still open");
        assert_eq!(model("", FakeMode::NonStrict), "auto", "still open");
    }
}
