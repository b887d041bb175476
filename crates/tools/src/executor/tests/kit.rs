//! Tools that do what a test says, a person who answers from a list, an observer that keeps everything.

use std::sync::Mutex;
use std::time::Duration;

use convoke_adk::FunctionDeclaration;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use super::super::*;
use crate::{
    ApprovalOutcome, ApprovalRequest, CallRecord, ConfirmationDetails, DeclarativeTool, ErrorType, ExecutionContext,
    Invocation, Kind, LiveOutput, Mode, ModeChange, PolicyOptions, ToolFailure, ToolOutput,
};

pub(super) type Run =
    dyn Fn(Value, ExecutionContext) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> + Send + Sync;

/// A tool that does what the test says.
pub(super) struct Probe {
    name: &'static str,
    kind: Kind,
    run: Arc<Run>,
}

pub(super) struct ProbeCall {
    run: Arc<Run>,
    args: Value,
}

impl DeclarativeTool for Probe {
    fn name(&self) -> &str {
        self.name
    }

    fn display_name(&self) -> &str {
        "Probe"
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn declaration(&self, _model: &str) -> FunctionDeclaration {
        FunctionDeclaration { name: self.name.to_owned(), description: String::new(), parameters: json!({}) }
    }

    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure> {
        assert!(args.get("build") != Some(&json!("panic")), "built badly");
        if args.get("bad").is_some() {
            return Err(ToolFailure::new(ErrorType::InvalidToolParams, "params/bad must not be there"));
        }
        Ok(Arc::new(ProbeCall { run: Arc::clone(&self.run), args: args.clone() }))
    }
}

#[async_trait]
impl Invocation for ProbeCall {
    fn description(&self) -> String {
        self.args.to_string()
    }

    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        Ok(ConfirmationDetails::Info { prompt: "really?".to_owned() })
    }

    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure> {
        (self.run)(self.args.clone(), cx.clone()).await
    }
}

pub(super) fn probe<F, Fut>(name: &'static str, kind: Kind, run: F) -> Arc<dyn DeclarativeTool>
where
    F: Fn(Value, ExecutionContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolFailure>> + Send + 'static,
{
    Arc::new(Probe { name, kind, run: Arc::new(move |args, cx| Box::pin(run(args, cx))) })
}

pub(super) fn says(name: &'static str, kind: Kind) -> Arc<dyn DeclarativeTool> {
    probe(name, kind, |args, _| async move { Ok(ToolOutput::text(format!("ran {args}"))) })
}

/// Runs until it is cancelled, then has something to say.
pub(super) fn waits(name: &'static str, started: Arc<Notify>) -> Arc<dyn DeclarativeTool> {
    probe(name, Kind::Execute, move |_, cx| {
        let started = Arc::clone(&started);
        async move {
            cx.update(LiveOutput { text: "half".to_owned(), total_bytes: 4, ..LiveOutput::default() });
            started.notify_one();
            cx.cancel.cancelled().await;
            Err(ToolFailure::cancelled("half of it"))
        }
    })
}

/// Keeps all records.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) records: Mutex<Vec<CallRecord>>,
    pub(super) modes: Mutex<Vec<Mode>>,
}

impl SchedulerObserver for Recorder {
    fn on_change(&self, record: &CallRecord) {
        assert_eq!(record.status.is_terminal(), record.result.is_some());
        self.records.lock().unwrap().push(record.clone());
    }

    fn on_mode(&self, change: ModeChange) {
        self.modes.lock().unwrap().push(change.after);
    }
}

impl Recorder {
    pub(super) fn statuses(&self, call_id: &str) -> Vec<&'static str> {
        let records = self.records.lock().unwrap();
        records.iter().filter(|record| record.call_id == call_id).map(|record| record.status.as_str()).collect()
    }

    pub(super) fn last(&self, call_id: &str) -> CallRecord {
        let records = self.records.lock().unwrap();
        records.iter().rev().find(|record| record.call_id == call_id).cloned().unwrap()
    }
}

/// Answers from a list, and remembers the questions.
#[derive(Default)]
pub(super) struct Person {
    pub(super) answers: Mutex<Vec<ApprovalOutcome>>,
    pub(super) asked: Mutex<Vec<ApprovalRequest>>,
    /// Waits until so many questions are open.
    pub(super) together: Option<Barrier>,
}

impl Person {
    pub(super) fn who_says(answers: impl IntoIterator<Item = ApprovalOutcome>) -> Arc<Self> {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Arc::new(Self { answers: Mutex::new(answers), ..Self::default() })
    }
}

#[async_trait]
impl Approver for Person {
    async fn request(&self, request: ApprovalRequest) -> ApprovalOutcome {
        self.asked.lock().unwrap().push(request);
        if let Some(barrier) = &self.together {
            barrier.wait().await;
        }
        let answer = self.answers.lock().unwrap().pop();
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

pub(super) struct Bench {
    pub(super) scheduler: ToolScheduler,
    pub(super) policy: SessionPolicy,
    pub(super) observer: Arc<Recorder>,
}

pub(super) fn bench(
    tools: Vec<Arc<dyn DeclarativeTool>>,
    policy: PolicyOptions,
    change: impl FnOnce(&mut SchedulerOptions),
) -> Bench {
    let policy = SessionPolicy::new(policy).unwrap();
    let registry = Arc::new(ToolRegistry::new(policy.clone()));
    for tool in tools {
        registry.register(tool).unwrap();
    }
    let observer = Arc::new(Recorder::default());
    let mut options = SchedulerOptions::new(registry, policy.clone());
    options.observer = Arc::clone(&observer) as Arc<dyn SchedulerObserver>;
    change(&mut options);
    Bench { scheduler: ToolScheduler::start(options), policy, observer }
}

pub(super) fn yolo() -> PolicyOptions {
    PolicyOptions { mode: Mode::Yolo, ..PolicyOptions::default() }
}

pub(super) fn call(id: &str, name: &str, args: Value) -> FunctionCall {
    FunctionCall { id: Some(id.to_owned()), name: name.to_owned(), args }
}

impl Bench {
    pub(super) async fn run(&self, calls: Vec<FunctionCall>) -> DispatchOutcome {
        let ids: Vec<_> = calls.iter().map(|call| call.id.clone()).collect();
        let outcome = within(self.scheduler.schedule(calls, &CancellationToken::new())).await;
        assert_eq!(outcome.responses.iter().map(|response| response.id.clone()).collect::<Vec<_>>(), ids);
        outcome
    }
}

/// A deadline around waiting for an event; never what a test is about.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it never happened")
}

pub(super) fn texts(outcome: &DispatchOutcome) -> Vec<&str> {
    let text = |response: &FunctionResponse| {
        let value = response.response.get("output").or(response.response.get("error"));
        value.and_then(Value::as_str).unwrap_or_default().len()
    };
    assert!(outcome.responses.iter().all(|response| text(response) > 0), "a response that says nothing");
    outcome.responses.iter().filter_map(|response| response.response.as_object()?.values().next()?.as_str()).collect()
}
