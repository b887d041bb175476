use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::tests_support::{Answer, ScriptedLlm, call, end, key, piece, text};
use super::*;
use crate::{
    FunctionCall, FunctionDeclaration, FunctionResponse, GenerateConfig, InMemorySessionService, Instruction,
    LlmRequest, LlmResponse, ModelError, ModelErrorKind, Part, PluginError, SequentialDispatcher, StopReason, Tool,
    ToolContext, ToolError, Toolset,
};

struct Doubler;

#[async_trait]
impl Tool for Doubler {
    fn declaration(&self, _: &str) -> FunctionDeclaration {
        let parameters = json!({"type": "object"});
        FunctionDeclaration { name: "double".into(), description: "Doubles n.".into(), parameters }
    }

    async fn run(&self, args: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let n = args["n"].as_i64().ok_or(ToolError("n is missing".into()))?;
        Ok(json!(n * 2))
    }
}

struct Rig {
    runner: Runner,
    llm: Arc<ScriptedLlm>,
    stop: StopSignal,
    cancel: CancellationToken,
}

impl Rig {
    fn new(answers: Vec<Answer>, plugins: Vec<Arc<dyn Plugin>>, config: RunConfig) -> Self {
        let llm = ScriptedLlm::new(answers);
        let tools: Vec<Arc<dyn Toolset>> = vec![Arc::new(vec![Arc::new(Doubler) as Arc<dyn Tool>])];
        let agent = LlmAgent {
            name: "agent".into(),
            model: llm.clone(),
            processors: LlmAgent::default_processors(GenerateConfig::default(), Instruction::Text("Be brief.".into())),
            toolsets: tools.clone(),
            dispatcher: Arc::new(SequentialDispatcher::new(tools)),
        };
        let sessions = Arc::new(InMemorySessionService::default());
        sessions.create(key(), Map::new(), 0).unwrap();
        let runner = Runner::new(agent, sessions, plugins, config).unwrap();
        Self { runner, llm, stop: StopSignal::default(), cancel: CancellationToken::new() }
    }

    fn simple(answers: Vec<Answer>) -> Self {
        Self::new(answers, Vec::new(), RunConfig::default())
    }

    async fn run(&self, prompt: &str) -> (Vec<Event>, Result<(), RunError>) {
        let stream = self.runner.run(&key(), Some(Content::user(prompt)), self.stop.clone(), self.cancel.clone());
        futures::pin_mut!(stream);
        let mut events = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => events.push(event),
                Err(error) => return (events, Err(error)),
            }
        }
        (events, Ok(()))
    }

    fn kept(&self) -> Vec<Event> {
        self.runner.sessions().get(&key(), &GetSession::default()).unwrap().with(|s| s.events.clone())
    }
}

fn sketch(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| {
            let mark = if event.partial { "~" } else { "" };
            let body = match (&event.error, &event.content) {
                (Some(error), _) => format!("error {}", error.message),
                (None, Some(content)) => content
                    .parts
                    .iter()
                    .map(|part| {
                        if let Some(call) = part.function_call() {
                            format!("call {}", call.name)
                        } else if let Some(response) = part.function_response() {
                            format!("response {}", response.response)
                        } else {
                            part.as_text().unwrap_or_default().to_owned()
                        }
                    })
                    .collect::<Vec<_>>()
                    .join("|"),
                (None, None) => String::new(),
            };
            format!("{mark}{}: {body}", event.author)
        })
        .collect()
}

#[tokio::test]
async fn text_streams_in_pieces_and_is_kept_whole() {
    let rig = Rig::simple(vec![vec![text("Hel"), text("lo"), end("MAX_TOKENS")]]);
    let (events, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(sketch(&events), ["user: hi", "~agent: Hel", "~agent: lo", "agent: Hello"]);
    assert_eq!(sketch(&rig.kept()), ["user: hi", "agent: Hello"]);
    assert_eq!(events[3].finish_reason.as_ref().unwrap().0, "MAX_TOKENS");
    let request = &rig.llm.requests.lock().unwrap()[0];
    assert_eq!(request.system_instruction, ["Be brief."]);
    assert!(request.tools.contains_key("double"));
}

#[tokio::test]
async fn calls_run_and_the_model_is_asked_again() {
    let rig = Rig::simple(vec![
        vec![text("Let me see."), piece(vec![call("double"), call("nope")]), end("STOP")],
        vec![text("Two."), end("STOP")],
    ]);
    let (events, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(
        sketch(&events)[2..],
        [
            "agent: Let me see.|call double|call nope",
            "agent: response {\"output\":2}|response {\"error\":\"Tool \\\"nope\\\" not found.\"}",
            "~agent: Two.",
            "agent: Two.",
        ]
    );
    let requests = rig.llm.requests.lock().unwrap();
    assert_eq!(requests[1].contents.len(), 3);
    let calls = requests[1].contents[1].function_calls();
    let responses = requests[1].contents[2].function_responses();
    assert!(calls[0].id.as_ref().unwrap().starts_with("adk-"));
    assert_eq!(calls[0].id, responses[0].id);
}

#[tokio::test]
async fn signatures_and_unknown_fields_go_back_unchanged() {
    let signed: Part = serde_json::from_value(json!({"text": "b", "thoughtSignature": "sig", "new": 1})).unwrap();
    let rig = Rig::simple(vec![vec![text("a"), piece(vec![signed.clone()]), text("c"), end("STOP")]]);
    let (events, _) = rig.run("hi").await;
    let parts = &events.last().unwrap().content.as_ref().unwrap().parts;
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[1], signed);
}

#[tokio::test]
async fn a_model_error_is_an_event_and_what_was_said_is_kept() {
    let broken = Err(ModelError { status: Some(500), ..ModelError::new(ModelErrorKind::Server, "boom") });
    let rig = Rig::simple(vec![vec![text("Half"), broken]]);
    let (events, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(events.last().unwrap().error.as_ref().unwrap().status, Some(500));
    let kept = sketch(&rig.kept());
    assert_eq!(kept[1], "agent: Half|\n[The previous response was interrupted before it completed.]");
    assert_eq!(kept[2], "agent: error boom");
}

#[tokio::test]
async fn a_retraction_takes_back_what_was_said() {
    let again = LlmResponse { retracted: true, ..LlmResponse::default() };
    let rig = Rig::simple(vec![vec![text("Wrong"), Ok(again), text("Right"), end("STOP")]]);
    let (events, _) = rig.run("hi").await;
    assert_eq!(sketch(&events)[1..], ["~agent: Wrong", "~agent: ", "~agent: Right", "agent: Right"]);
    assert_eq!(events[2].actions.custom_metadata["retract"], true);
}

#[tokio::test]
async fn cancelling_ends_a_silent_model_at_once() {
    let rig = Rig::simple(Vec::new());
    rig.cancel.cancel();
    let (events, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Err(RunError::Flow(FlowError::Cancelled)));
    assert_eq!(sketch(&events), ["user: hi"]);
}

/// Cancels as soon as the model says something.
struct Canceller;

#[async_trait]
impl Plugin for Canceller {
    fn name(&self) -> &str {
        "canceller"
    }

    async fn on_event(&self, cx: &InvocationContext, event: &Event) -> Result<Option<Event>, PluginError> {
        if event.partial {
            cx.cancel.cancel();
        }
        Ok(None)
    }
}

#[tokio::test]
async fn what_was_said_before_a_cancellation_is_kept() {
    let rig = Rig::new(vec![vec![text("Half"), text("more")]], vec![Arc::new(Canceller)], RunConfig::default());
    let (_, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Err(RunError::Flow(FlowError::Cancelled)));
    let kept = sketch(&rig.kept());
    assert_eq!(kept[1], "agent: Half|\n[The previous response was interrupted before it completed.]");
}

#[tokio::test]
async fn the_call_limit_ends_a_runaway() {
    let again = || vec![piece(vec![call("double")]), end("STOP")];
    let config = RunConfig { max_llm_calls: Some(2) };
    let rig = Rig::new(vec![again(), again(), again()], Vec::new(), config);
    let (_, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Err(RunError::Flow(FlowError::LlmCallLimit(2))));
}

#[tokio::test]
async fn without_a_message_the_agent_goes_on() {
    let rig = Rig::simple(vec![vec![text("One"), end("STOP")], vec![text("More"), end("STOP")]]);
    rig.run("hi").await.1.unwrap();
    let stream = rig.runner.run(&key(), None, rig.stop.clone(), rig.cancel.clone());
    let events: Vec<_> = stream.map(|event| event.unwrap()).collect().await;
    assert_eq!(sketch(&events), ["~agent: More", "agent: More"]);
}

#[tokio::test]
async fn missing_session_and_empty_message_are_errors() {
    let rig = Rig::simple(Vec::new());
    let nowhere = SessionKey { session_id: "gone".into(), ..key() };
    let stream = rig.runner.run(&nowhere, None, rig.stop.clone(), rig.cancel.clone());
    let all: Vec<_> = stream.collect().await;
    assert_eq!(all, [Err(RunError::SessionNotFound("gone".into()))]);
    let empty = Content { role: crate::Role::User, parts: Vec::new() };
    let stream = rig.runner.run(&key(), Some(empty), rig.stop.clone(), rig.cancel.clone());
    let all: Vec<_> = stream.collect().await;
    assert_eq!(all, [Err(RunError::EmptyMessage)]);
}

/// Stops the invocation when it sees a call, as a loop detector would.
struct Stopper;

#[async_trait]
impl Plugin for Stopper {
    fn name(&self) -> &str {
        "stopper"
    }

    async fn on_event(&self, cx: &InvocationContext, event: &Event) -> Result<Option<Event>, PluginError> {
        if !event.function_calls().is_empty() {
            cx.stop.request(StopReason { code: "LOOP_DETECTED".into(), message: "loop".into() });
        }
        Ok(None)
    }
}

#[tokio::test]
async fn a_deferred_stop_delivers_the_event_and_cancels_its_calls() {
    let answers = vec![vec![piece(vec![call("double")]), end("STOP")]];
    let rig = Rig::new(answers, vec![Arc::new(Stopper)], RunConfig::default());
    let (events, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(
        sketch(&events)[1..],
        ["agent: call double", "agent: response {\"error\":\"Cancelled before it ran: loop\"}"]
    );
    assert_eq!(rig.stop.requested().unwrap().code, "LOOP_DETECTED");
    assert_eq!(rig.kept().len(), 3);
}

/// Counts every callback.
#[derive(Default)]
struct Counter(Mutex<BTreeMap<&'static str, u32>>);

impl Counter {
    fn count(&self, callback: &'static str) {
        *self.0.lock().unwrap().entry(callback).or_default() += 1;
    }
}

#[async_trait]
impl Plugin for Counter {
    fn name(&self) -> &str {
        "counter"
    }
    async fn on_user_message(&self, _: &InvocationContext, _: &Content) -> Result<Option<Content>, PluginError> {
        self.count("on_user_message");
        Ok(None)
    }
    async fn before_run(&self, _: &InvocationContext) -> Result<Option<Content>, PluginError> {
        self.count("before_run");
        Ok(None)
    }
    async fn on_event(&self, _: &InvocationContext, _: &Event) -> Result<Option<Event>, PluginError> {
        self.count("on_event");
        Ok(None)
    }
    async fn after_run(&self, _: &InvocationContext) -> Result<(), PluginError> {
        self.count("after_run");
        Ok(())
    }
    async fn before_agent(&self, _: &InvocationContext) -> Result<Option<Content>, PluginError> {
        self.count("before_agent");
        Ok(None)
    }
    async fn after_agent(&self, _: &InvocationContext) -> Result<Option<Content>, PluginError> {
        self.count("after_agent");
        Ok(None)
    }
    async fn before_tool_selection(
        &self,
        _: &InvocationContext,
        _: &LlmRequest,
    ) -> Result<Option<Vec<String>>, PluginError> {
        self.count("before_tool_selection");
        Ok(None)
    }
    async fn before_model(
        &self,
        _: &InvocationContext,
        _: &mut LlmRequest,
    ) -> Result<Option<LlmResponse>, PluginError> {
        self.count("before_model");
        Ok(None)
    }
    async fn after_model(&self, _: &InvocationContext, _: &LlmResponse) -> Result<Option<LlmResponse>, PluginError> {
        self.count("after_model");
        Ok(None)
    }
    async fn on_model_error(
        &self,
        _: &InvocationContext,
        _: &LlmRequest,
        _: &ModelError,
    ) -> Result<Option<LlmResponse>, PluginError> {
        self.count("on_model_error");
        Ok(Some(LlmResponse { content: Some(Content::model("instead")), ..LlmResponse::default() }))
    }
    async fn before_tool(
        &self,
        _: &InvocationContext,
        _: &FunctionCall,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        self.count("before_tool");
        Ok(None)
    }
    async fn after_tool(
        &self,
        _: &InvocationContext,
        _: &FunctionCall,
        _: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        self.count("after_tool");
        Ok(None)
    }
    async fn on_tool_error(
        &self,
        _: &InvocationContext,
        _: &FunctionCall,
        _: &FunctionResponse,
    ) -> Result<Option<FunctionResponse>, PluginError> {
        self.count("on_tool_error");
        Ok(None)
    }
}

#[tokio::test]
async fn every_callback_is_called() {
    let counter = Arc::new(Counter::default());
    let broken = || Err(ModelError::new(ModelErrorKind::Other, "no"));
    let answers = vec![vec![piece(vec![call("double"), call("nope")])], vec![text("x"), broken()]];
    let rig = Rig::new(answers, vec![counter.clone()], RunConfig::default());
    let (events, outcome) = rig.run("hi").await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(sketch(&events).last().unwrap(), "agent: instead");
    let counts = counter.0.lock().unwrap().clone();
    let expected = BTreeMap::from([
        ("on_user_message", 1),
        ("before_run", 1),
        ("before_agent", 1),
        ("before_tool_selection", 2),
        ("before_model", 2),
        ("after_model", 2),
        ("on_model_error", 1),
        ("before_tool", 2),
        ("on_tool_error", 1),
        ("after_tool", 2),
        ("on_event", 5),
        ("after_agent", 1),
        ("after_run", 1),
    ]);
    assert_eq!(counts, expected);
}

#[test]
fn two_plugins_of_one_name_are_refused() {
    let twice: Vec<Arc<dyn Plugin>> = vec![Arc::new(Stopper), Arc::new(Stopper)];
    assert_eq!(PluginManager::new(twice).err(), Some("stopper".into()));
}
