//! One answer of the conversation, from whichever model can give it.

use std::sync::Arc;

use convoke_adk::{LlmRequest, LlmResponse, ModelError, ModelErrorKind};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::attempt::{Opened, next};
use super::{Asked, GeneratorLlm, refused_prompt};
use crate::catalog::{ConfigKey, ModelName};
use crate::chain::FailureKind;
use crate::fallback::ModelNotice;
use crate::generator::or_cancelled;
use crate::retry::{Backoff, entropy};
use crate::steering::{Admission, Failed, Verdict};
use crate::stream_check::{Fault, StreamCheck};

/// Appended to the instructions after an answer without words: the same question tends to get the same silence.
const NUDGE: &str = "Your last answer had no visible text. Answer with text or with a function call.";

/// How an attempt ended without an answer.
enum Broken {
    Failed(ModelError),
    NoAnswer(Fault),
}

impl Broken {
    fn error(&self) -> ModelError {
        match self {
            Self::Failed(error) => error.clone(),
            Self::NoAnswer(fault) => fault.into(),
        }
    }

    fn is_silence(&self) -> bool {
        matches!(self, Self::NoAnswer(fault) if fault.is_silence())
    }
}

/// The pieces of one answer. Each names the model that it comes from.
pub(super) fn generate(
    llm: GeneratorLlm,
    mut request: LlmRequest,
    cancel: CancellationToken,
) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
    let answer = async_stream::try_stream! {
        let (asked, mut model) = llm.meant(&mut request);
        let mut request = Arc::new(request);
        // A model that failed in this call is not asked again in it: so changes of the model come to an end.
        let mut tried: Vec<ModelName> = Vec::new();
        let mut is_retry = false;
        loop {
            let mut backoff = Backoff::new(llm.patience(&llm.session.options.stream_retry, &model));
            let mut nudged = false;
            let mut said = false;
            let admission = llm.admit(&model);
            let failed = 'attempts: loop {
                let max_attempts = match &admission {
                    Admission::Call { max_attempts } => *max_attempts,
                    Admission::Refuse(failed) => break 'attempts failed.clone(),
                };
                llm.turn_to(&model, &asked, &mut request, is_retry);
                let Opened { first, mut stream } = match llm.open(&model, &request, max_attempts, &cancel).await {
                    Ok(opened) => opened,
                    Err(error) => match FailureKind::of(error.kind) {
                        Some(kind) => break 'attempts Failed { kind, error },
                        None => {
                            Err(error)?;
                            return;
                        }
                    },
                };
                let mut check = StreamCheck::new(&request);
                said = false;
                let mut item = first;
                let broken = loop {
                    match item {
                        Some(Ok(response)) => {
                            if let Some(error) = refused_prompt(&response) {
                                Err(error)?;
                            }
                            check.see(&response);
                            said = true;
                            yield LlmResponse { model: Some(model.to_string()), ..response.into_piece() };
                        }
                        Some(Err(error)) => break Broken::Failed(error),
                        None => match check.finish() {
                            Ok(()) => {
                                llm.steer(|steering, availability| steering.succeeded(availability, &model));
                                return;
                            }
                            Err(fault) => break Broken::NoAnswer(fault),
                        },
                    }
                    item = next(&mut stream, &cancel).await;
                };
                drop(stream);
                let error = broken.error();
                if matches!(broken, Broken::NoAnswer(_)) {
                    crate::observe::no_answer(&request.model, &error);
                }
                let may_repeat = error.kind == ModelErrorKind::InvalidStream || error.kind.is_retryable();
                let notice = if may_repeat { backoff.after(&error, entropy()) } else { None };
                let Some(notice) = notice else {
                    crate::observe::gave_up(&error);
                    match FailureKind::of(error.kind) {
                        Some(kind) => break 'attempts Failed { kind, error },
                        None => {
                            Err(error)?;
                            return;
                        }
                    }
                };
                crate::observe::content_retry(&request.model, &notice);
                if said {
                    yield LlmResponse { retracted: true, model: Some(model.to_string()), ..LlmResponse::default() };
                }
                if broken.is_silence() && !nudged {
                    nudged = true;
                    Arc::make_mut(&mut request).system_instruction.push(NUDGE.to_owned());
                }
                is_retry = true;
                llm.wait(&model, &notice, &cancel).await?;
            };
            tried.push(model.clone());
            let stand_in = llm.fall_back(&model, &failed, &tried, &cancel).await?;
            let metadata = Map::from_iter([("fallback".to_owned(), told(&model, &stand_in, &failed))]);
            model = stand_in;
            yield LlmResponse {
                retracted: said,
                model: Some(model.to_string()),
                metadata,
                ..LlmResponse::default()
            };
        }
    };
    answer.boxed()
}

fn told(from: &ModelName, to: &ModelName, failed: &Failed) -> Value {
    json!({"from": from, "to": to, "reason": failed.kind.name()})
}

impl GeneratorLlm {
    /// The model that `request` goes to first, and what of it does not depend on that.
    fn meant(&self, request: &mut LlmRequest) -> (Asked, ModelName) {
        let now = self.now();
        self.steer(|steering, _| {
            let name = match request.model.as_str() {
                "" => steering.configured().to_owned(),
                name => name.to_owned(),
            };
            let model = steering.in_place_of(now, &self.session.options.catalog.resolve(&name));
            // Parameters follow the name that the user gave, which may be an alias; a routed model is not.
            let is_routed = steering.sequence().is_some_and(|sequence| *sequence == model);
            let name = if is_routed { steering.configured().to_owned() } else { name };
            (Asked { name, config: std::mem::take(&mut request.config) }, model)
        })
    }

    fn admit(&self, model: &ModelName) -> Admission {
        let now = self.now();
        self.steer(|steering, availability| steering.admit(now, availability, model))
    }

    /// Makes parameters and tool declarations for `model`, and says that it is about to be called.
    fn turn_to(&self, model: &ModelName, asked: &Asked, request: &mut Arc<LlmRequest>, is_retry: bool) {
        let key = ConfigKey { is_retry, ..ConfigKey::chat(&asked.name) };
        let request = Arc::make_mut(request);
        request.config = self.session.options.catalog.config(&key, model, &asked.config);
        request.turn_to(model.id());
        let is_new = self.steer(|steering, _| {
            let is_new = steering.sequence() != Some(model);
            if steering.sequence().is_none() {
                steering.set_sequence(model.clone());
            }
            is_new
        });
        if is_new {
            self.tell(&ModelNotice::Selected { model: model.clone(), decision: None });
        }
    }

    /// Finds the model that takes over from `model`, asking where that is due.
    ///
    /// Errors: what the turn ends with, where none does.
    async fn fall_back(
        &self,
        model: &ModelName,
        failed: &Failed,
        tried: &[ModelName],
        cancel: &CancellationToken,
    ) -> Result<ModelName, ModelError> {
        let now = self.now();
        let verdict = self.steer(|steering, availability| steering.failed(now, availability, model, failed, tried));
        let (verdict, asked) = match (verdict, &self.session.options.fallback) {
            (Verdict::Ask(question), Some(port)) => {
                let answer = async { Ok(port.choose(&question).await) };
                let intent = or_cancelled(cancel, answer).await?;
                crate::observe::asked(&question, intent);
                let now = self.now();
                let answered =
                    self.steer(|steering, availability| steering.answered(now, availability, &question, intent));
                (answered, true)
            }
            (verdict, _) => (verdict, false),
        };
        match verdict {
            Verdict::Switch(to) => {
                let reset = failed.error.retry_after.filter(|_| failed.kind == FailureKind::Quota);
                let notice = ModelNotice::FellBack {
                    from: model.clone(),
                    to: to.clone(),
                    kind: failed.kind,
                    error: failed.error.clone(),
                    asked,
                    reset_wall_ms: reset.map(|after| crate::availability::later(now.wall_ms, after)),
                };
                crate::observe::fell_back(model, &to, failed.kind, asked);
                self.tell(&notice);
                Ok(to)
            }
            Verdict::GiveUp(error) => Err(error),
            // Questions are only put where there is a port.
            Verdict::Ask(_) => Err(failed.error.clone()),
        }
    }
}
