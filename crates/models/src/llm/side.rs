//! Side requests: one whole answer beside the conversation, such as a summary or a classification.
//!
//! Source: runtime specification §4.8. Nobody is asked about their stand-ins; one that is used up is left out, and the
//! next of its chain answers.

use std::sync::Arc;

use convoke_adk::{LlmRequest, ModelError};
use tokio_util::sync::CancellationToken;

use super::{GeneratorLlm, refused_prompt};
use crate::catalog::{ConfigKey, ModelName};
use crate::chain::FailureKind;
use crate::generator::GenerateResponse;
use crate::retry::{RetryPolicy, retry_with_backoff};
use crate::steering::Admission;

impl GeneratorLlm {
    /// Asks the model of the request (an alias, such as `summarizer-default`; without one the configured model),
    /// without the defaults of a conversation, and repeats where it is refused.
    ///
    /// Errors: the last one; a refused prompt is a [`BadRequest`](convoke_adk::ModelErrorKind::BadRequest).
    pub async fn ask(&self, request: LlmRequest, cancel: &CancellationToken) -> Result<GenerateResponse, ModelError> {
        let name = if request.model.is_empty() { self.configured() } else { request.model.clone() };
        let attempts = RetryPolicy::for_side_requests().max_attempts;
        let mut tried = Vec::new();
        let mut model = self.side_model(&name, &tried)?;
        loop {
            let error = match self.ask_model(&name, &model, request.clone(), attempts, cancel).await {
                Err(error) if FailureKind::of(error.kind).is_some() => error,
                done => return done,
            };
            tried.push(model);
            // The failure of the model that was meant says more than that of a stand-in that is marked.
            model = self.side_model(&name, &tried).map_err(|_| error)?;
        }
    }

    /// Asks under an alias, once.
    pub(crate) async fn ask_once(
        &self,
        alias: &str,
        request: LlmRequest,
        cancel: &CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let model = self.side_model(alias, &[])?;
        self.ask_model(alias, &model, request, 1, cancel).await
    }

    /// Whether a question that the work can do without may be asked.
    pub(crate) fn may_ask_aside(&self) -> bool {
        self.generator().is_ok_and(|generator| generator.has_answer_to_spare())
    }

    /// The first model of the name's chain that can be called.
    fn side_model(&self, name: &str, tried: &[ModelName]) -> Result<ModelName, ModelError> {
        let now = self.now();
        let catalog = &self.session.options.catalog;
        let first = catalog.resolve(name);
        let chain = catalog.chain(name, &first);
        let behind = chain.stand_ins(&first).filter(|(_, before)| !before);
        let candidates = std::iter::once(&first).chain(behind.map(|(policy, _)| &policy.model));
        self.steer(|steering, availability| {
            let mut left = candidates.filter(|model| !tried.contains(model));
            let found = left.find(|model| availability.health(now, steering.scope(), model).is_available());
            match (found, steering.admit(now, availability, found.unwrap_or(&first))) {
                (Some(model), _) => Ok(model.clone()),
                (None, Admission::Refuse(failed)) => Err(failed.error),
                (None, Admission::Call { .. }) => Err(ModelError::new(
                    convoke_adk::ModelErrorKind::Other,
                    format!("no model is left to ask for {name}"),
                )),
            }
        })
    }

    async fn ask_model(
        &self,
        name: &str,
        model: &ModelName,
        mut request: LlmRequest,
        attempts: u32,
        cancel: &CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        request.config = self.session.options.catalog.config(&ConfigKey::side(name), model, &request.config);
        request.turn_to(model.id());
        let request = Arc::new(request);
        let generator = self.session.connections.of(model)?;
        let mut policy = self.patience(&self.session.options.retry, model);
        policy.max_attempts = policy.max_attempts.min(attempts);
        let call = || generator.generate_content(Arc::clone(&request), cancel.clone());
        match retry_with_backoff(&policy, cancel, call).await {
            Ok(response) => refused_prompt(&response).map_or(Ok(response), Err),
            Err(error) => {
                // What will not heal by itself is remembered: the conversation would only find it out again.
                if let Some(kind @ (FailureKind::Quota | FailureKind::NotFound)) = FailureKind::of(error.kind) {
                    let now = self.now();
                    self.steer(|_, availability| availability.mark_terminal(now, model, kind, error.retry_after));
                }
                Err(error)
            }
        }
    }
}
