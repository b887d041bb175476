//! The task that owns the machine: wait, step, carry out.

use std::collections::HashMap;
use std::future::Future;

use convoke_adk::{FunctionCall, StopReason};
use convoke_stdx::{Clock, Tick};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::answer::{self, Known};
use super::prepare::{self, Prepared};
use super::work::{self, Candidate, Done, Executed, Judged, JudgedVerdict, Phase, Question};
use super::{Delivered, SchedulerOptions, told};
use crate::scheduler::{Answer, BatchId, CallKey, End, Ending, Input, Output, Scheduler, Verdict};
use crate::{
    ApprovalOutcome, CallDecision, CallRecord, CallStatus, ErrorType, ExecutionContext, HookCall, Kind, LiveOutput,
    ToolFailure,
};

/// What is asked of the driver.
pub(super) enum Request {
    /// `span` is where the calls belong in a trace.
    Submit {
        calls: Vec<Prepared>,
        cancel: CancellationToken,
        span: Span,
        reply: oneshot::Sender<Delivered>,
    },
    CancelCall(String),
    CancelAll,
}

enum Wake {
    Request(Option<Request>),
    Joined(Result<(Id, Done), JoinError>),
    BatchCancelled(BatchId),
    Live(CallKey, LiveOutput),
    Deadline,
}

// Live output is a view; when more comes than anybody looks at, the newest is as good as any.
const LIVE_MAX: usize = 64;

/// One call that is under way.
struct Flight {
    prepared: Prepared,
    record: CallRecord,
    known: Known,
    question: Option<Box<Question>>,
    token: CancellationToken,
    task: Option<AbortHandle>,
    /// Where it belongs in a trace.
    span: Span,
    /// When it began to execute.
    begun: Option<Tick>,
}

/// One batch whose caller waits.
struct Delivery {
    calls: Vec<CallKey>,
    stop: Option<StopReason>,
    reply: oneshot::Sender<Delivered>,
}

pub(super) struct Driver {
    options: SchedulerOptions,
    requests: mpsc::Receiver<Request>,
    machine: Scheduler,
    clock: Clock,
    minted: u64,
    flights: HashMap<CallKey, Flight>,
    deliveries: HashMap<BatchId, Delivery>,
    tasks: JoinSet<Done>,
    task_of: HashMap<Id, (CallKey, Phase)>,
    cancels: FuturesUnordered<BoxFuture<'static, BatchId>>,
    live: mpsc::Receiver<(CallKey, LiveOutput)>,
    live_sender: mpsc::Sender<(CallKey, LiveOutput)>,
}

impl Driver {
    pub(super) fn new(options: SchedulerOptions, requests: mpsc::Receiver<Request>) -> Self {
        let (live_sender, live) = mpsc::channel(LIVE_MAX);
        Self {
            machine: Scheduler::new(options.limits),
            options,
            requests,
            clock: Clock::start(),
            minted: 0,
            flights: HashMap::new(),
            deliveries: HashMap::new(),
            tasks: JoinSet::new(),
            task_of: HashMap::new(),
            cancels: FuturesUnordered::new(),
            live,
            live_sender,
        }
    }

    /// Runs until the [`ToolScheduler`](super::ToolScheduler) is gone. Dropping it drops all that is under way.
    pub(super) async fn run(mut self) {
        loop {
            let inputs = match self.wait().await {
                Wake::Request(None) => return,
                Wake::Request(Some(request)) => self.request(request),
                Wake::Joined(Ok((id, done))) => self.done(id, done).into_iter().collect(),
                Wake::Joined(Err(error)) => self.lost(error).into_iter().collect(),
                Wake::BatchCancelled(batch) => vec![Input::CancelBatch { batch }],
                Wake::Live(call, output) => {
                    self.show(call, output);
                    continue;
                }
                Wake::Deadline => vec![Input::Tick],
            };
            let mut outputs = Vec::new();
            for input in inputs {
                self.machine.handle(self.clock.now().tick, input, &mut outputs);
            }
            for output in outputs {
                self.carry_out(output);
            }
        }
    }

    /// Every future in here may be dropped without losing anything.
    async fn wait(&mut self) -> Wake {
        let deadline = self.machine.next_deadline().map(|tick| self.clock.instant_of(tick).into());
        let sleep = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now));
        tokio::select! {
            request = self.requests.recv() => Wake::Request(request),
            Some(joined) = self.tasks.join_next_with_id() => Wake::Joined(joined),
            Some(batch) = self.cancels.next() => Wake::BatchCancelled(batch),
            Some((call, output)) = self.live.recv() => Wake::Live(call, output),
            () = sleep, if deadline.is_some() => Wake::Deadline,
        }
    }

    fn request(&mut self, request: Request) -> Vec<Input> {
        match request {
            Request::Submit { calls, cancel, span, reply } => vec![self.submit(calls, cancel, &span, reply)],
            Request::CancelAll => vec![Input::CancelAll],
            Request::CancelCall(id) => {
                let mut keys: Vec<CallKey> = self
                    .flights
                    .iter()
                    .filter(|(_, flight)| flight.record.call_id == id)
                    .map(|(key, _)| *key)
                    .collect();
                keys.sort();
                keys.into_iter().map(|call| Input::CancelCall { call }).collect()
            }
        }
    }

    fn submit(
        &mut self,
        prepared: Vec<Prepared>,
        cancel: CancellationToken,
        span: &Span,
        reply: oneshot::Sender<Delivered>,
    ) -> Input {
        let batch = BatchId(self.mint());
        let mut calls = Vec::new();
        for prepared in prepared {
            let key = CallKey(self.mint());
            calls.push((key, prepared.invocation.is_ok().then_some(prepared.lane)));
            self.flights.insert(key, Flight::new(key, prepared, span));
        }
        let keys = calls.iter().map(|(key, _)| *key).collect();
        self.deliveries.insert(batch, Delivery { calls: keys, stop: None, reply });
        self.cancels.push(Box::pin(async move {
            cancel.cancelled_owned().await;
            batch
        }));
        Input::Submit { batch, calls }
    }

    fn mint(&mut self) -> u64 {
        self.minted += 1;
        self.minted
    }

    fn done(&mut self, id: Id, done: Done) -> Option<Input> {
        let (call, _) = self.task_of.remove(&id)?;
        let flight = self.flights.get_mut(&call)?;
        flight.task = None;
        match done {
            Done::Judged(judged) => {
                let (verdict, stop) = flight.judged(*judged);
                self.stop_after(call, stop);
                Some(Input::Judged { call, verdict })
            }
            Done::Asked(outcome, saved) => {
                let answer = self.answered(call, outcome, saved);
                Some(Input::Answered { call, answer })
            }
            Done::Executed(executed) => {
                let ending = self.executed(call, *executed);
                Some(Input::Finished { call, ending })
            }
        }
    }

    /// A task that panicked; one that was aborted is of no interest any more.
    fn lost(&mut self, error: JoinError) -> Option<Input> {
        let (call, phase) = self.task_of.remove(&error.id())?;
        let panic = error.try_into_panic().ok()?;
        let flight = self.flights.get_mut(&call)?;
        flight.task = None;
        let failure = prepare::panicked(&flight.record.call.name, &*panic);
        Some(match phase {
            Phase::Judge => {
                flight.known.result = Some(Err(failure));
                Input::Judged { call, verdict: Verdict::Deny }
            }
            Phase::Ask => {
                flight.known.unanswered = Some("asking failed".to_owned());
                Input::Answered { call, answer: Answer::Refuse }
            }
            Phase::Execute => {
                flight.known.result = Some(Err(failure));
                Input::Finished { call, ending: Ending::Error }
            }
        })
    }

    fn answered(&mut self, call: CallKey, outcome: ApprovalOutcome, saved: Option<Result<(), String>>) -> Answer {
        let Some(flight) = self.flights.get_mut(&call) else { return Answer::Refuse };
        let lasting = flight.question.take().map(|question| question.lasting).unwrap_or_default();
        flight.record.decision = Some(match &outcome {
            ApprovalOutcome::ProceedOnce | ApprovalOutcome::ProceedAlways(_) => CallDecision::Accept,
            ApprovalOutcome::Revise { .. } => CallDecision::Modify,
            ApprovalOutcome::Cancel | ApprovalOutcome::Unanswered { .. } => CallDecision::Reject,
        });
        match outcome {
            ApprovalOutcome::ProceedOnce => Answer::Proceed,
            ApprovalOutcome::ProceedAlways(id) => {
                match saved {
                    Some(Ok(())) => return Answer::Proceed,
                    // Not beyond the session, then; within it at least.
                    Some(Err(reason)) => tracing::warn!(reason, "a lasting answer was not saved"),
                    None => {}
                }
                let offer = lasting.into_iter().find(|offer| offer.id == id);
                match offer.map(|offer| self.options.policy.remember(&offer.always)) {
                    Some(Ok(change)) if change.is_one() => self.options.observer.on_mode(change),
                    Some(Ok(_)) | None => {}
                    // The mode was taken back while the question was open: this once, then.
                    Some(Err(error)) => tracing::warn!(%error, "a lasting answer was not kept"),
                }
                Answer::Proceed
            }
            ApprovalOutcome::Revise { args } => {
                flight.rewrite(args);
                flight.prepared.invocation = Err(unbuilt());
                Answer::Revise
            }
            ApprovalOutcome::Cancel => Answer::Refuse,
            ApprovalOutcome::Unanswered { reason } => {
                flight.known.unanswered = Some(reason);
                Answer::Refuse
            }
        }
    }

    fn executed(&mut self, call: CallKey, executed: Executed) -> Ending {
        let Executed { result, output_file, tail_call, stop } = executed;
        let fatal = result.as_ref().err().and_then(|failure| {
            let kind = failure.error_type().filter(|kind| kind.is_fatal())?;
            Some(StopReason { code: kind.as_str().to_owned(), message: failure.message().to_owned() })
        });
        self.stop_after(call, stop.or(fatal));
        let Some(flight) = self.flights.get_mut(&call) else { return Ending::Error };
        let ending = match &result {
            Ok(_) => Ending::Success,
            Err(ToolFailure::Error { .. }) => Ending::Error,
            Err(ToolFailure::Cancelled { .. }) => Ending::Cancelled,
        };
        flight.known.result = Some(result);
        flight.known.output_file = output_file;
        let Some(tail) = tail_call.filter(|_| ending != Ending::Cancelled) else { return ending };
        let first = flight.record.call.clone();
        let next = FunctionCall { id: first.id.clone(), name: tail.name, args: tail.args };
        let prepared = prepare::call(&self.options.registry, &next);
        flight.known.instead_of.get_or_insert(first.name);
        flight.describe(prepared);
        match &flight.prepared.invocation {
            Ok(_) => Ending::Tail(flight.prepared.lane),
            Err(failure) => {
                flight.known.result = Some(Err(failure.clone()));
                Ending::Error
            }
        }
    }

    fn stop_after(&mut self, call: CallKey, stop: Option<StopReason>) {
        let Some(stop) = stop else { return };
        if let Some(delivery) = self.deliveries.values_mut().find(|delivery| delivery.calls.contains(&call)) {
            delivery.stop.get_or_insert(stop);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Accepted(call) => self.move_on(call, CallStatus::Validating),
            Output::Judge(call) => self.judge(call),
            Output::Ask(call) => {
                self.move_on(call, CallStatus::AwaitingApproval);
                self.ask(call);
            }
            Output::Scheduled(call) => self.move_on(call, CallStatus::Scheduled),
            Output::Execute(call) => {
                self.move_on(call, CallStatus::Executing);
                self.execute(call);
            }
            Output::Interrupt(call) => {
                if let Some(flight) = self.flights.get(&call) {
                    flight.token.cancel();
                }
            }
            Output::Drop(call) => {
                if let Some(flight) = self.flights.get_mut(&call) {
                    // The token reaches what an abort can't: blocking threads.
                    flight.token.cancel();
                    if let Some(task) = flight.task.take() {
                        task.abort();
                    }
                }
            }
            Output::Ended { call, end } => self.end(call, end),
            Output::BatchDone(batch) => self.deliver(batch),
        }
    }

    fn move_on(&mut self, call: CallKey, status: CallStatus) {
        if let Some(flight) = self.flights.get_mut(&call) {
            flight.record.status = status;
            self.options.observer.on_change(&flight.record);
        }
    }

    fn show(&mut self, call: CallKey, output: LiveOutput) {
        if let Some(flight) = self.flights.get_mut(&call).filter(|f| f.record.status == CallStatus::Executing) {
            flight.record.live = Some(output);
            self.options.observer.on_change(&flight.record);
        }
    }

    fn judge(&mut self, call: CallKey) {
        let Some(flight) = self.flights.get_mut(&call) else { return };
        let Some(tool) = flight.prepared.tool.clone() else { return };
        if flight.record.status != CallStatus::Validating {
            flight.record.status = CallStatus::Validating;
            self.options.observer.on_change(&flight.record);
        }
        let invocation = flight.prepared.invocation.as_ref().ok().cloned();
        let candidate = Candidate { call: flight.hook_call(), tool, invocation };
        let options = self.options.clone();
        self.start(call, Phase::Judge, async move { Done::Judged(Box::new(work::judge(options, candidate).await)) });
    }

    fn ask(&mut self, call: CallKey) {
        let Some(question) = self.flights.get(&call).and_then(|flight| flight.question.as_ref()) else { return };
        let (options, question) = (self.options.clone(), question.as_ref().clone());
        self.start(call, Phase::Ask, work::ask(options, question));
    }

    fn execute(&mut self, call: CallKey) {
        let Some(flight) = self.flights.get_mut(&call) else { return };
        let (Some(tool), Ok(invocation)) = (flight.prepared.tool.clone(), flight.prepared.invocation.clone()) else {
            return;
        };
        flight.known.ran = true;
        flight.begun.get_or_insert(self.clock.now().tick);
        let live = self.live_sender.clone();
        let show = move |output| {
            // Full means that newer output is shown soon anyway.
            let _ = live.try_send((call, output));
        };
        let cx = ExecutionContext::new(flight.record.call_id.clone(), flight.token.clone(), show);
        let hook_call = flight.hook_call();
        let options = self.options.clone();
        let (truncates, reach) = (tool.truncates_output(), tool.reach(&hook_call.args));
        self.start(call, Phase::Execute, async move {
            Done::Executed(Box::new(work::execute(options, hook_call, truncates, reach, invocation, cx).await))
        });
    }

    fn start(&mut self, call: CallKey, phase: Phase, work: impl Future<Output = Done> + Send + 'static) {
        let span = self.flights.get(&call).map_or_else(Span::none, |flight| flight.span.clone());
        let task = self.tasks.spawn(work.instrument(span));
        self.task_of.insert(task.id(), (call, phase));
        if let Some(flight) = self.flights.get_mut(&call) {
            flight.task = Some(task);
        }
    }

    fn end(&mut self, call: CallKey, end: End) {
        let Some(flight) = self.flights.get_mut(&call) else { return };
        let mut known = std::mem::take(&mut flight.known);
        let own = flight.prepared.invocation.as_ref().ok().and_then(|invocation| invocation.refusal());
        known.refusal = Some(own.unwrap_or(self.options.refusal));
        if known.result.is_none()
            && let Err(failure) = &flight.prepared.invocation
        {
            known.result = Some(Err(failure.clone()));
        }
        // The response goes to the call that the model wrote, whatever ran in its place.
        let asked = flight.record.original.as_ref().unwrap_or(&flight.record.call);
        let (status, result) = answer::of(asked, end, known);
        flight.record.status = status;
        flight.record.result = Some(result);
        let took = flight.begun.map(|begun| self.clock.now().tick.since(begun)).unwrap_or_default();
        told::ended(&flight.span, &flight.record, took);
        self.options.observer.on_change(&flight.record);
    }

    fn deliver(&mut self, batch: BatchId) {
        let Some(delivery) = self.deliveries.remove(&batch) else { return };
        let flights = delivery.calls.iter().filter_map(|call| self.flights.remove(call));
        let results = flights.filter_map(|flight| flight.record.result).collect();
        // Nobody waits any more if the caller was dropped.
        let _ = delivery.reply.send(Delivered { results, stop: delivery.stop });
    }
}

impl Flight {
    fn new(key: CallKey, prepared: Prepared, parent: &Span) -> Self {
        let call = prepared.call.clone();
        let record = CallRecord {
            call_id: call.id.clone().unwrap_or_else(|| format!("call-{}", key.0)),
            call,
            original: None,
            status: CallStatus::Validating,
            display_name: String::new(),
            description: String::new(),
            kind: Kind::Other,
            locations: Vec::new(),
            decision: None,
            live: None,
            result: None,
        };
        let mut flight = Self {
            span: told::span(parent, &record.call_id, &record.call),
            begun: None,
            record,
            known: Known::default(),
            question: None,
            token: CancellationToken::new(),
            task: None,
            prepared,
        };
        flight.refresh();
        flight
    }

    /// Goes on as another call.
    fn describe(&mut self, prepared: Prepared) {
        let before = std::mem::replace(&mut self.record.call, prepared.call.clone());
        self.record.original.get_or_insert(before);
        self.record.live = None;
        self.prepared = prepared;
        self.refresh();
    }

    fn rewrite(&mut self, args: Value) {
        let before = self.record.call.clone();
        self.record.original.get_or_insert(before);
        self.record.call.args = args;
    }

    fn refresh(&mut self) {
        let tool = self.prepared.tool.as_ref();
        self.record.display_name = tool.map_or(self.record.call.name.as_str(), |tool| tool.display_name()).to_owned();
        self.record.kind = tool.map_or(Kind::Other, |tool| tool.kind());
        if let Ok(invocation) = &self.prepared.invocation {
            self.record.description = invocation.description();
            self.record.locations = invocation.locations();
        }
    }

    fn hook_call(&self) -> HookCall {
        let tool = self.prepared.tool.as_ref().map_or(self.record.call.name.as_str(), |tool| tool.name());
        HookCall {
            call_id: self.record.call_id.clone(),
            tool: tool.to_owned(),
            args: self.record.call.args.clone(),
            original_tool: self.known.instead_of.clone(),
            origin: self.prepared.tool.as_ref().and_then(|tool| tool.origin()).cloned(),
        }
    }

    fn judged(&mut self, judged: Judged) -> (Verdict, Option<StopReason>) {
        let Judged { args, invocation, verdict } = judged;
        if let Some(args) = args {
            self.rewrite(args);
        }
        if let Some(invocation) = invocation {
            self.prepared.invocation = Ok(invocation);
            self.refresh();
        }
        match &verdict {
            // A person who changed the arguments has decided already.
            JudgedVerdict::Allow => {
                self.record.decision.get_or_insert(CallDecision::AutoAccept);
            }
            JudgedVerdict::Ask(_) => {}
            JudgedVerdict::Deny(..) => self.record.decision = Some(CallDecision::Reject),
        }
        match verdict {
            JudgedVerdict::Allow => (Verdict::Allow, None),
            JudgedVerdict::Ask(question) => {
                self.question = Some(question);
                (Verdict::Ask, None)
            }
            JudgedVerdict::Deny(failure, stop) => {
                self.known.result = Some(Err(failure));
                (Verdict::Deny, stop)
            }
        }
    }
}

fn unbuilt() -> ToolFailure {
    ToolFailure::new(ErrorType::InvalidToolParams, "The revised arguments were never checked.")
}
