//! The kernel's model: which one is called, and what is done when an answer fails?
//!
//! One per session. A call that is *refused* before its first piece is repeated by [`LlmOptions::retry`]; a stream that
//! *broke* after it, or that turns out to be no answer (see the rules in `stream_check`), by
//! [`LlmOptions::stream_retry`]. When that is of no use, another model takes over, as [`Steering`] decides, within the
//! same call: parameters and tool declarations are made anew for it, and what was already said is taken back by a
//! piece with `retracted` set. Who listens to [`LlmOptions::on_notice`] is told of each such step before it is taken.
//! Source: runtime specification §4.4, §4.5, §4.7.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use convoke_adk::{GenerateConfig, Llm, LlmRequest, LlmResponse, ModelError, ModelErrorKind};
use convoke_stdx::{Clock, Now};
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use crate::availability::ModelAvailability;
use crate::catalog::{Catalog, ModelName, Tier};
use crate::fallback::{FallbackPort, ModelNotice};
use crate::generator::{ContentGenerator, GenerateResponse};
use crate::registry::Connections;
use crate::retry::RetryPolicy;
use crate::routing::{self, Decision, RoutingContext, RoutingOptions};
use crate::steering::{SequenceReset, Steering};

mod attempt;
mod generate;
mod side;

/// Hears of what happens to a call; called from within the stream, so it must not block.
pub type NoticeListener = Arc<dyn Fn(&ModelNotice) + Send + Sync>;

/// Where the present moment comes from.
pub type TimeSource = Arc<dyn Fn() -> Now + Send + Sync>;

/// Marks of failed models, shared by whoever is handed the same ones.
pub type SharedAvailability = Arc<Mutex<ModelAvailability>>;

/// How a [`GeneratorLlm`] asks.
#[derive(Clone)]
pub struct LlmOptions {
    /// The model for requests without one; an id, a name or an alias.
    pub model: String,
    /// For calls that are refused.
    pub retry: RetryPolicy,
    /// For streams that break or say nothing.
    pub stream_retry: RetryPolicy,
    /// What names mean, and how models are asked.
    pub catalog: Arc<Catalog>,
    /// Marks of failed models: a session's own, or shared with its subagents.
    pub availability: SharedAvailability,
    /// Who is asked before another model takes over; without it, policies decide alone.
    pub fallback: Option<Arc<dyn FallbackPort>>,
    /// How an automatic model is chosen.
    pub routing: RoutingOptions,
    /// Told of waits and of changes of the model.
    pub on_notice: Option<NoticeListener>,
    /// The clock.
    pub time: TimeSource,
}

impl fmt::Debug for LlmOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmOptions")
            .field("model", &self.model)
            .field("retry", &self.retry)
            .field("stream_retry", &self.stream_retry)
            .field("routing", &self.routing)
            .finish_non_exhaustive()
    }
}

impl LlmOptions {
    /// The usual bounds and the names of the Gemini API; nobody to ask, marks of its own.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        let clock = Clock::start();
        Self {
            model: model.into(),
            retry: RetryPolicy::default(),
            stream_retry: RetryPolicy::for_streams(),
            catalog: Arc::new(Catalog::gemini()),
            availability: SharedAvailability::default(),
            fallback: None,
            routing: RoutingOptions::default(),
            on_notice: None,
            time: Arc::new(move || clock.now()),
        }
    }
}

/// [`ContentGenerator`]s as the kernel's [`Llm`], for one session. Copies share their state.
#[derive(Clone)]
pub struct GeneratorLlm {
    session: Arc<Session>,
}

struct Session {
    connections: Connections,
    options: LlmOptions,
    /// Held for a look, never across an await; before the availability where both are.
    steering: Mutex<Steering>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let scope = self.steering.get_mut().unwrap_or_else(PoisonError::into_inner).scope();
        lock(&self.options.availability).close_scope(scope);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Steps under these locks are single assignments: a panic leaves nothing half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for GeneratorLlm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneratorLlm").field("options", &self.session.options).finish_non_exhaustive()
    }
}

impl GeneratorLlm {
    /// A model whose every call goes to `generator`.
    #[must_use]
    pub fn new(generator: Arc<dyn ContentGenerator>, options: LlmOptions) -> Self {
        Self::connected(Connections::single(generator), options)
    }

    /// A model whose calls go to whoever has the model that is called.
    #[must_use]
    pub fn connected(connections: Connections, options: LlmOptions) -> Self {
        let scope = lock(&options.availability).open_scope();
        let attended = options.fallback.is_some();
        let steering = Steering::new(Arc::clone(&options.catalog), scope, options.model.clone(), attended);
        Self { session: Arc::new(Session { connections, options, steering: Mutex::new(steering) }) }
    }

    /// A session of its own for a subagent, over the same connections: for `model`, or for what this one is configured
    /// with. Marks of failed models are shared; the model in use and replacements are not.
    ///
    /// Errors: nobody has the model.
    pub fn for_subagent(
        &self,
        model: Option<&str>,
        fallback: Option<Arc<dyn FallbackPort>>,
        on_notice: NoticeListener,
    ) -> Result<Self, ModelError> {
        let model = model.map_or_else(|| self.configured(), ToOwned::to_owned);
        let connections = self.session.connections.clone();
        connections.of(&self.session.options.catalog.resolve(&model))?;
        let options = LlmOptions { model, fallback, on_notice: Some(on_notice), ..self.session.options.clone() };
        Ok(Self::connected(connections, options))
    }

    /// Who answers for the configured model: for counting and embedding.
    pub fn generator(&self) -> Result<&Arc<dyn ContentGenerator>, ModelError> {
        self.session.connections.of(&self.configured_model())
    }

    /// Whether the configured model's provider searches the web and reads pages by itself.
    #[must_use]
    pub fn has_own_web(&self) -> bool {
        self.session.connections.has_own_web(&self.configured_model())
    }

    /// How it asks.
    #[must_use]
    pub fn options(&self) -> &LlmOptions {
        &self.session.options
    }

    /// A prompt of the user, or a run of a subagent, begins: once for each, whatever number of model calls follow.
    pub fn begin_turn(&self) {
        self.steer(Steering::begin_turn);
    }

    /// The user chose another model; a name or an alias.
    pub fn configure(&self, name: &str) {
        self.steer(|steering, _| steering.configure(name));
    }

    /// What the user asked for, which may be automatic.
    #[must_use]
    pub fn configured(&self) -> String {
        lock(&self.session.steering).configured().to_owned()
    }

    /// The next call is routed anew.
    pub fn reset_sequence(&self, why: SequenceReset) {
        self.steer(|steering, _| steering.reset(why));
    }

    /// Whether the session only plans: then no stand-in is worth a question.
    pub fn set_planning(&self, planning: bool) {
        self.steer(|steering, _| steering.set_planning(planning));
    }

    /// The model of the running sequence, once it was chosen.
    #[must_use]
    pub fn sequence(&self) -> Option<ModelName> {
        lock(&self.session.steering).sequence().cloned()
    }

    /// Chooses the model for a new sequence and keeps to it; the one of a running sequence stays.
    pub async fn route(&self, cx: RoutingContext<'_>, cancel: &CancellationToken) -> (ModelName, Option<Decision>) {
        if let Some(model) = self.sequence() {
            return (model, None);
        }
        let decision = routing::route(self, &self.session.options.routing, cx, cancel).await;
        let model = decision.model.clone();
        self.steer(|steering, _| steering.set_sequence(model.clone()));
        self.tell(&ModelNotice::Selected { model: model.clone(), decision: Some(decision.clone()) });
        (model, Some(decision))
    }

    pub(crate) fn now(&self) -> Now {
        (self.session.options.time)()
    }

    pub(crate) fn steer<T>(&self, step: impl FnOnce(&mut Steering, &mut ModelAvailability) -> T) -> T {
        let mut steering = lock(&self.session.steering);
        step(&mut steering, &mut lock(&self.session.options.availability))
    }

    pub(crate) fn configured_is_auto(&self) -> bool {
        self.session.options.catalog.is_auto(lock(&self.session.steering).configured())
    }

    pub(crate) fn configured_model(&self) -> ModelName {
        self.session.options.catalog.resolve(lock(&self.session.steering).configured())
    }

    /// The model of this tier that automatic choice would take, if it can be called.
    pub(crate) fn available_of_tier(&self, tier: Tier) -> Option<ModelName> {
        let now = self.now();
        self.steer(|steering, availability| {
            let model = self.session.options.catalog.of_tier(steering.configured(), tier);
            availability.health(now, steering.scope(), &model).is_available().then_some(model)
        })
    }

    fn tell(&self, notice: &ModelNotice) {
        if let Some(tell) = &self.session.options.on_notice {
            tell(notice);
        }
    }

    /// `policy`, without waits where a script answers.
    fn patience(&self, policy: &RetryPolicy, model: &ModelName) -> RetryPolicy {
        let policy = policy.clone();
        if self.session.connections.is_scripted(model) { policy.without_waits() } else { policy }
    }
}

impl Llm for GeneratorLlm {
    /// The model of the running sequence; between sequences the one that the next begins with, or the automatic name
    /// where that is still open.
    fn model(&self) -> String {
        let known = self.sequence().or_else(|| routing::foreseen(self, &self.session.options.routing));
        known.map_or_else(|| self.configured(), |model| model.to_string())
    }

    fn generate(
        &self,
        request: LlmRequest,
        cancel: CancellationToken,
    ) -> BoxStream<'static, Result<LlmResponse, ModelError>> {
        generate::generate(self.clone(), request, cancel)
    }
}

/// A prompt that the provider's filter refused will be refused again.
fn refused_prompt(response: &GenerateResponse) -> Option<ModelError> {
    let reason = response.block_reason().filter(|_| response.candidate().is_none())?;
    Some(ModelError::new(ModelErrorKind::BadRequest, format!("the provider refused the prompt ({reason})")))
}

/// What of a request stays the same whichever model it goes to.
struct Asked {
    /// The name as it was given, whose parameters hold for stand-ins too.
    name: String,
    config: GenerateConfig,
}

#[cfg(test)]
mod tests;
