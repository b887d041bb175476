//! The shell around the scheduler machine: one task that owns it, looks after every call that is under way, and tells
//! everybody who has a port what happens.
//!
//! A tool that itself dispatches calls (a subagent) needs a scheduler of its own: on the same one its batch would wait
//! for the call that waits for it.

mod answer;
mod driver;
mod prepare;
mod safety;
#[cfg(test)]
mod tests;
mod told;
mod work;

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{
    DispatchEnd, DispatchOutcome, FunctionCall, FunctionResponse, InvocationContext, StopReason, ToolDispatcher,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Span;

use crate::scheduler::Limits;
use crate::{
    Approver, CallResult, FileWatch, NoHooks, NoObserver, NobodyApproves, NobodyWatches, SchedulerObserver,
    SessionPolicy, ToolHooks, ToolRegistry, Truncation,
};
use driver::{Driver, Request};
pub use safety::CheckerHost;

/// What a [`ToolScheduler`] is made from.
#[derive(Clone)]
pub struct SchedulerOptions {
    /// The tools.
    pub registry: Arc<ToolRegistry>,
    /// Who decides; the same one that the registry has.
    pub policy: SessionPolicy,
    /// Whom to ask.
    pub approver: Arc<dyn Approver>,
    /// Who watches.
    pub observer: Arc<dyn SchedulerObserver>,
    /// Who has a say.
    pub hooks: Arc<dyn ToolHooks>,
    /// Who keeps what calls change.
    pub watch: Arc<dyn FileWatch>,
    /// What happens to large output.
    pub truncation: Truncation,
    /// Bounds.
    pub limits: Limits,
    /// What safety checkers are run with.
    pub checkers: CheckerHost,
    /// The subagent whose calls these are; rules may be about one.
    pub subagent: Option<String>,
    /// What the model is told of a call that a person refused: a sentence or two.
    pub refusal: &'static str,
}

impl SchedulerOptions {
    /// Nobody to ask, nobody who watches, no hooks, default bounds.
    #[must_use]
    pub fn new(registry: Arc<ToolRegistry>, policy: SessionPolicy) -> Self {
        Self {
            registry,
            policy,
            approver: Arc::new(NobodyApproves),
            observer: Arc::new(NoObserver),
            hooks: Arc::new(NoHooks),
            watch: Arc::new(NobodyWatches),
            truncation: Truncation::default(),
            limits: Limits::default(),
            checkers: CheckerHost::default(),
            subagent: None,
            refusal: answer::DENIED,
        }
    }
}

// A sender waits when it is full; with one caller per session it never is.
const REQUESTS_MAX: usize = 16;

/// Runs the calls of a session. Dropping it ends everything that is under way.
pub struct ToolScheduler {
    registry: Arc<ToolRegistry>,
    requests: mpsc::Sender<Request>,
    _driver: AbortOnDropHandle<()>,
}

impl ToolScheduler {
    /// Starts the scheduler's task. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(options: SchedulerOptions) -> Self {
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let registry = Arc::clone(&options.registry);
        let driver = tokio::spawn(Driver::new(options, receiver).run());
        Self { registry, requests, _driver: AbortOnDropHandle::new(driver) }
    }

    /// Runs `calls` and returns one response per call, in call order.
    ///
    /// Cancellation: on `cancel`, or when the future is dropped, calls that wait never run and running ones are told
    /// to stop. It comes back within [`Limits::cancel_grace`], and says of each call what became of it.
    pub async fn schedule(&self, calls: Vec<FunctionCall>, cancel: &CancellationToken) -> DispatchOutcome {
        if calls.is_empty() {
            return DispatchOutcome::default();
        }
        let prepared = calls.iter().map(|call| prepare::call(&self.registry, call)).collect();
        let cancel = cancel.child_token();
        let _cancel_when_dropped = cancel.clone().drop_guard();
        let (reply, delivered) = oneshot::channel();
        let _ = self.requests.send(Request::Submit { calls: prepared, cancel, span: Span::current(), reply }).await;
        match delivered.await {
            Ok(delivered) => delivered.into_outcome(),
            Err(_) => DispatchOutcome {
                responses: calls.iter().map(|call| FunctionResponse::error(call, answer::CLOSED)).collect(),
                ..DispatchOutcome::default()
            },
        }
    }

    /// Cancels the calls with this id, and no others.
    pub async fn cancel_call(&self, call_id: &str) {
        let _ = self.requests.send(Request::CancelCall(call_id.to_owned())).await;
    }

    /// Cancels everything.
    pub async fn cancel_all(&self) {
        let _ = self.requests.send(Request::CancelAll).await;
    }
}

#[async_trait]
impl ToolDispatcher for ToolScheduler {
    async fn dispatch(&self, cx: &InvocationContext, calls: Vec<FunctionCall>) -> DispatchOutcome {
        self.schedule(calls, &cx.cancel).await
    }
}

/// A batch that is done.
struct Delivered {
    results: Vec<CallResult>,
    stop: Option<StopReason>,
}

impl Delivered {
    fn into_outcome(self) -> DispatchOutcome {
        let mut outcome = DispatchOutcome::default();
        for result in self.results {
            outcome.responses.push(result.response);
            outcome.siblings.extend(result.parts);
        }
        outcome.end = self.stop.map_or(DispatchEnd::Continue, DispatchEnd::Stop);
        outcome
    }
}
