//! The web through the session's model: side requests that search and read pages where its provider can.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{Content, LlmRequest};
use convoke_models::GeneratorLlm;
use convoke_tools::builtin::{Grounded, WebModel, WebTask};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A session's model, asked about the web.
pub(crate) struct LlmWeb {
    llm: GeneratorLlm,
}

impl LlmWeb {
    pub(crate) fn new(llm: GeneratorLlm) -> Self {
        Self { llm }
    }

    /// The alias that has the provider's own tool; without one, the configured model answers.
    fn alias(&self, task: WebTask) -> &'static str {
        match task {
            WebTask::Search => "web-search",
            WebTask::ReadPages => "web-fetch",
            WebTask::Digest if self.llm.has_own_web() => "web-fetch-fallback",
            WebTask::Digest => "",
        }
    }
}

#[async_trait]
impl WebModel for LlmWeb {
    fn searches(&self) -> bool {
        self.llm.has_own_web()
    }

    fn reads_pages(&self) -> bool {
        self.llm.has_own_web()
    }

    async fn ask(&self, task: WebTask, prompt: String, cancel: &CancellationToken) -> Result<Grounded, String> {
        let request = LlmRequest {
            model: self.alias(task).to_owned(),
            contents: vec![Arc::new(Content::user(prompt))],
            purpose: "utility_tool",
            ..LlmRequest::default()
        };
        let response = self.llm.ask(request, cancel).await.map_err(|error| error.to_string())?;
        let of_candidate = |key: &str| response.candidate().and_then(|candidate| candidate.get(key)).cloned();
        Ok(Grounded {
            text: response.text(),
            grounding: of_candidate("groundingMetadata").unwrap_or(Value::Null),
            pages: of_candidate("urlContextMetadata").unwrap_or(Value::Null),
        })
    }
}
