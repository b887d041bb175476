//! A world of models that answer as a test says, on a clock that only moves when everybody waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{Content, Llm, LlmRequest, LlmResponse, ModelError, ModelErrorKind};
use convoke_models::{
    Catalog, ContentGenerator, EmbedRequest, EmbedResponse, FallbackPort, FallbackQuestion, GenerateResponse,
    GeneratorLlm, Intent, LlmOptions, ModelNotice, OpenAiOptions, Provider, Registry, ResponseStream,
    SharedAvailability, TokenCount,
};
use convoke_stdx::{Now, Tick};
use futures::StreamExt;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const PRO: &str = "gemini-3-pro-preview";
pub(crate) const FLASH: &str = "gemini-3-flash-preview";
/// 2026-11-21T02:00:00Z.
pub(crate) const START_MS: u64 = 1_795_226_400_000;

/// What a call comes to.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Says(&'static str),
    /// A piece, then silence without a finish reason.
    BreaksOff(&'static str),
    /// A piece, then this failure.
    FailsLate(ModelErrorKind),
    Fails(ModelErrorKind, Option<u64>),
    /// Nothing comes, ever.
    Hangs,
}

/// A call that came.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) model: String,
    pub(crate) at_ms: u64,
    pub(crate) request: Arc<LlmRequest>,
}

type Answers = Box<dyn FnMut(&str) -> (Duration, Answer) + Send>;

/// The models.
pub(crate) struct World {
    start: Instant,
    answers: Mutex<Answers>,
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) notices: Mutex<Vec<ModelNotice>>,
    pub(crate) questions: Mutex<Vec<FallbackQuestion>>,
    pub(crate) availability: SharedAvailability,
    /// Whether it has one session, whose announcements can be held against the calls.
    pub(crate) exclusive: AtomicBool,
    catalog: Arc<Catalog>,
    registry: Registry,
}

pub(crate) fn error(kind: ModelErrorKind, after: Option<u64>) -> ModelError {
    ModelError { retry_after: after.map(Duration::from_secs), ..ModelError::new(kind, "the server says no") }
}

impl World {
    pub(crate) fn new(answers: Answers) -> Arc<Self> {
        let registry = Registry::new("gemini", Provider::Gemini(convoke_models::GeminiOptions::default()))
            .with("local", Provider::OpenAi(OpenAiOptions::new("http://localhost")));
        let chains = json!({"modelChains": {"mine": ["gemini-9", "gemini-8", "local/q"]}});
        Arc::new(Self {
            start: Instant::now(),
            answers: Mutex::new(answers),
            calls: Mutex::default(),
            notices: Mutex::default(),
            questions: Mutex::default(),
            availability: SharedAvailability::default(),
            exclusive: AtomicBool::new(false),
            catalog: Arc::new(Catalog::new(&registry).with_settings(&chains).unwrap()),
            registry,
        })
    }

    /// Answers in this order, whoever is asked; then "done".
    pub(crate) fn scripted(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        let mut answers: VecDeque<_> = answers.into_iter().collect();
        Self::new(Box::new(move |_| (Duration::ZERO, answers.pop_front().unwrap_or(Answer::Says("done")))))
    }

    pub(crate) fn now(&self) -> Now {
        let ms = u64::try_from(self.start.elapsed().as_millis()).unwrap();
        Now { tick: Tick(ms), wall_ms: START_MS + ms }
    }

    pub(crate) fn models_called(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|call| call.model.clone()).collect()
    }

    /// A call comes: its model must not be marked, and must be the one that was told of.
    fn check_call(&self, name: &str) {
        let mark = self.availability.lock().unwrap().mark(self.now(), &self.catalog.resolve(name));
        assert!(mark.is_none(), "{name} is called although it is marked: {mark:?}");
        if self.exclusive.load(Ordering::Relaxed) {
            assert_eq!(self.announced().as_deref(), Some(name), "the model that is called is another one");
        }
    }

    /// Seconds between the calls.
    pub(crate) fn waits(&self) -> Vec<f64> {
        let calls = self.calls.lock().unwrap();
        let pairs = calls.iter().zip(calls.iter().skip(1));
        pairs.map(|(one, two)| (two.at_ms - one.at_ms) as f64 / 1000.0).collect()
    }

    /// The model that was told of last.
    pub(crate) fn announced(&self) -> Option<String> {
        self.notices.lock().unwrap().iter().rev().find_map(|notice| match notice {
            ModelNotice::Selected { model, .. } => Some(model.to_string()),
            ModelNotice::FellBack { to, .. } => Some(to.to_string()),
            ModelNotice::Retrying { .. } => None,
        })
    }

    /// A session in this world; whoever is asked gives these intents.
    pub(crate) fn session(self: &Arc<Self>, configured: &str, intents: Option<Vec<Intent>>) -> GeneratorLlm {
        let port = intents.map(|intents| {
            let intents = Mutex::new(intents.into_iter().collect());
            Arc::new(Person { world: Arc::clone(self), intents }) as Arc<dyn FallbackPort>
        });
        self.session_with(configured, port)
    }

    pub(crate) fn session_with(
        self: &Arc<Self>,
        configured: &str,
        port: Option<Arc<dyn FallbackPort>>,
    ) -> GeneratorLlm {
        self.made(configured, port, false)
    }

    /// One that asks a classifier, with nobody to ask.
    pub(crate) fn classifying_session(self: &Arc<Self>, configured: &str) -> GeneratorLlm {
        self.made(configured, None, true)
    }

    fn made(self: &Arc<Self>, configured: &str, port: Option<Arc<dyn FallbackPort>>, classify: bool) -> GeneratorLlm {
        let mut options = LlmOptions::new(configured);
        options.catalog = Arc::clone(&self.catalog);
        options.availability = Arc::clone(&self.availability);
        options.fallback = port;
        options.routing.classify = classify;
        let time = Arc::clone(self);
        options.time = Arc::new(move || time.now());
        let told = Arc::clone(self);
        options.on_notice = Some(Arc::new(move |notice| told.notices.lock().unwrap().push(notice.clone())));
        let server = |provider: &str| Arc::new(Server { world: Arc::clone(self), provider: provider.to_owned() }) as _;
        let connections = self.registry.connect_with(server);
        GeneratorLlm::connected(connections, options)
    }
}

/// Says what it is told to say.
struct Person {
    world: Arc<World>,
    intents: Mutex<VecDeque<Intent>>,
}

#[async_trait]
impl FallbackPort for Person {
    async fn choose(&self, question: &FallbackQuestion) -> Option<Intent> {
        self.world.questions.lock().unwrap().push(question.clone());
        self.intents.lock().unwrap().pop_front()
    }
}

/// The world as a generator.
struct Server {
    world: Arc<World>,
    provider: String,
}

fn piece(text: &str, finish: Option<&str>) -> GenerateResponse {
    let mut candidate = json!({"content": {"parts": [{"text": text}]}});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    serde_json::from_value(json!({"candidates": [candidate], "modelVersion": "a version"})).unwrap()
}

#[async_trait]
impl ContentGenerator for Server {
    async fn generate_content(
        &self,
        request: Arc<LlmRequest>,
        cancel: CancellationToken,
    ) -> Result<GenerateResponse, ModelError> {
        let mut stream = self.generate_content_stream(request, cancel);
        stream.next().await.unwrap()
    }

    fn generate_content_stream(&self, request: Arc<LlmRequest>, _: CancellationToken) -> ResponseStream {
        let world = Arc::clone(&self.world);
        let model = match self.provider.as_str() {
            "gemini" => request.model.clone(),
            provider => format!("{provider}/{}", request.model),
        };
        let stream = async_stream::stream! {
            world.check_call(&model);
            let at_ms = world.now().tick.0;
            world.calls.lock().unwrap().push(Call { model: model.clone(), at_ms, request });
            let (delay, answer) = (world.answers.lock().unwrap())(&model);
            tokio::time::sleep(delay).await;
            match answer {
                Answer::Says(text) => yield Ok(piece(text, Some("STOP"))),
                Answer::BreaksOff(text) => yield Ok(piece(text, None)),
                Answer::FailsLate(kind) => {
                    yield Ok(piece("half", None));
                    yield Err(error(kind, None));
                }
                Answer::Fails(kind, after) => yield Err(error(kind, after)),
                Answer::Hangs => std::future::pending().await,
            }
        };
        stream.boxed()
    }

    async fn count_tokens(&self, _: Arc<LlmRequest>, _: CancellationToken) -> Result<TokenCount, ModelError> {
        Ok(TokenCount::default())
    }

    async fn embed_content(&self, _: EmbedRequest, _: CancellationToken) -> Result<EmbedResponse, ModelError> {
        Ok(EmbedResponse::default())
    }
}

/// What a reader is left with: the text that was not taken back, or the failure.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) text: String,
    pub(crate) model: Option<String>,
    pub(crate) error: Option<ModelError>,
}

/// One model call of the kernel.
pub(crate) async fn ask(llm: &GeneratorLlm, cancel: &CancellationToken) -> Heard {
    let contents = vec![Arc::new(Content::user("hi"))];
    ask_with(llm, LlmRequest { model: llm.model(), contents, ..LlmRequest::default() }, cancel).await
}

pub(crate) async fn ask_with(llm: &GeneratorLlm, request: LlmRequest, cancel: &CancellationToken) -> Heard {
    let mut pieces = llm.generate(request, cancel.clone());
    let mut heard = Heard { text: String::new(), model: None, error: None };
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(LlmResponse { content, retracted, model, .. }) => {
                if retracted {
                    heard.text.clear();
                }
                heard.text.extend(content.map(|content| content.joined_text()));
                heard.model = model.or(heard.model);
            }
            Err(error) => heard.error = Some(error),
        }
    }
    heard
}
