//! One task for an agent elsewhere: sent, followed, shown, ended, told.

use std::sync::Arc;
use std::time::Duration;

use convoke_mcp::untrusted;
use convoke_protocol::{AgentEventBody, ContentPart, MessageRole, StreamEndReason, StreamId};
use convoke_stdx::{Clock, cut};
use convoke_tools::{ErrorType, ExecutionContext, LiveOutput, ResultDisplay, ToolFailure, ToolOutput};
use serde_json::{Value, json};
use tracing::Instrument;
use uuid::Uuid;

use super::client::{A2aClient, A2aError};
use super::credential::Variables;
use super::exchange::{Exchange, State};
use crate::emitter::Emitter;
use crate::subagents::caller::Caller;
use crate::subagents::course::Mode;
use crate::subagents::definition::RemoteAgent;
use crate::subagents::thread::Thread;
use crate::told;

/// Between two looks at a task whose agent does not stream, to begin with and in the end.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(5);
/// Looks in a row that may fail before the task is given up.
const POLL_FAILURES: u32 = 3;
/// How long an agent may take to hear of a cancellation: less than any scheduler waits for a cancelled call.
const CANCEL_MAX: Duration = Duration::from_secs(2);
/// Milliseconds between two shows of how far it is: an agent may send news faster than anybody reads them.
const SHOW_EVERY: u64 = 200;
/// Most bytes that are shown of a run while it goes on.
const SHOWN_MAX: usize = 2 << 10;
/// Most bytes of a result's summary. Source: runtime specification §12.4.
const SUMMARY_MAX: usize = 200;
/// A2A's `TaskNotFoundError`.
const TASK_NOT_FOUND: i64 = -32001;

/// Gives the remote agent `name` a task and waits for what comes of it.
pub(crate) async fn run(
    caller: &Caller,
    name: &str,
    agent: &RemoteAgent,
    variables: &Variables,
    task: &str,
    cx: &ExecutionContext,
) -> Result<ToolOutput, ToolFailure> {
    let id = Uuid::new_v4().to_string();
    let clock = Clock::start();
    let thread = Thread::new(id.clone(), caller.thread.as_deref(), name, &cx.call_id);
    let span = told::run(&id, name);
    let told = Told::begin(caller, thread, clock, task);
    let mut run = Run { caller, name, id: &id, cx, clock, shown: None, exchange: Exchange::default() };
    let end = run.finish(agent, variables, task).instrument(span.clone()).await;
    let reason = end.name(&run.exchange);
    told.end(&run.exchange.text(), end.stream_reason(&run.exchange), reason);
    // Turns are its own business.
    let told = told::RunEnd { turns: 0, reason, recovered_from: None };
    span.in_scope(|| told::run_ended(&id, name, clock.now().tick.0, &told));
    run.answer(&end)
}

/// The run as a thread of the session: begun once and ended once, whatever becomes of the call.
struct Told {
    emitter: Emitter,
    is_over: bool,
}

impl Told {
    fn begin(caller: &Caller, thread: Thread, clock: Clock, task: &str) -> Self {
        let stream = StreamId(format!("{}-1", thread.id()));
        let emitter = Emitter::new(caller.log.clone(), stream, Some(Arc::new(thread)), clock);
        let content = vec![ContentPart::Text { text: task.to_owned() }];
        emitter.emit(AgentEventBody::Message { role: MessageRole::User, content });
        emitter.emit(AgentEventBody::AgentStart);
        Self { emitter, is_over: false }
    }

    fn end(mut self, text: &str, reason: StreamEndReason, terminated: &str) {
        if !text.is_empty() {
            let content = vec![ContentPart::Text { text: text.to_owned() }];
            self.emitter.emit(AgentEventBody::Message { role: MessageRole::Agent, content });
        }
        self.finish(reason, terminated);
    }

    fn finish(&mut self, reason: StreamEndReason, terminated: &str) {
        self.is_over = true;
        let data = Some(json!({"terminateReason": terminated}));
        self.emitter.emit(AgentEventBody::AgentEnd { reason, data });
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if !self.is_over {
            self.finish(StreamEndReason::Aborted, Mode::Aborted.as_str());
        }
    }
}

/// How a run ended.
enum End {
    /// Nothing more comes by itself; the exchange says what there is.
    Settled,
    Aborted,
    TimeUp(Duration),
    Failed(A2aError),
}

impl End {
    /// In the words of runs of our own, and one that only an agent elsewhere has.
    fn name(&self, exchange: &Exchange) -> &'static str {
        match self {
            Self::Settled => match exchange.state() {
                State::Completed => Mode::Goal.as_str(),
                State::InputRequired => "INPUT_REQUIRED",
                State::Canceled => Mode::Aborted.as_str(),
                State::Working | State::Failed | State::Rejected | State::AuthRequired => Mode::Error.as_str(),
            },
            Self::Aborted => Mode::Aborted.as_str(),
            Self::TimeUp(_) => Mode::Timeout.as_str(),
            Self::Failed(_) => Mode::Error.as_str(),
        }
    }

    fn stream_reason(&self, exchange: &Exchange) -> StreamEndReason {
        match self {
            Self::Settled => match exchange.state() {
                State::Completed | State::InputRequired => StreamEndReason::Completed,
                State::Canceled => StreamEndReason::Aborted,
                State::Working | State::Failed | State::Rejected | State::AuthRequired => StreamEndReason::Failed,
            },
            Self::Aborted => StreamEndReason::Aborted,
            Self::TimeUp(_) => StreamEndReason::MaxTime,
            Self::Failed(_) => StreamEndReason::Failed,
        }
    }
}

struct Run<'a> {
    caller: &'a Caller,
    name: &'a str,
    id: &'a str,
    cx: &'a ExecutionContext,
    clock: Clock,
    /// When something was last shown.
    shown: Option<u64>,
    exchange: Exchange,
}

impl Run<'_> {
    async fn finish(&mut self, agent: &RemoteAgent, variables: &Variables, task: &str) -> End {
        let remotes = self.caller.remotes.clone();
        let cancel = self.cx.cancel.clone();
        let connecting = tokio::time::timeout(agent.timeout, remotes.client(self.name, agent, variables));
        let client = match cancel.run_until_cancelled(connecting).await {
            None => return End::Aborted,
            Some(Err(_)) => return End::TimeUp(agent.timeout),
            Some(Ok(Err(error))) => return End::Failed(error),
            Some(Ok(Ok(client))) => client,
        };
        let (context, waiting) = remotes.with(self.name, |known| (known.context.clone(), known.waiting.take()));
        let following = self.converse(&client, task, context.as_deref(), waiting.as_deref());
        let followed = cancel.run_until_cancelled(tokio::time::timeout(agent.timeout, following)).await;
        let end = match followed {
            None => End::Aborted,
            Some(Err(_)) => End::TimeUp(agent.timeout),
            Some(Ok(Err(error))) => End::Failed(error),
            Some(Ok(Ok(()))) => End::Settled,
        };
        let state = self.exchange.state();
        let goes_on = match end {
            // Nobody here can log in there, and a task that waits for that would wait for ever.
            End::Settled => state == State::AuthRequired,
            End::Aborted | End::TimeUp(_) | End::Failed(_) => matches!(state, State::Working | State::AuthRequired),
        };
        if let Some(task) = self.exchange.task().filter(|_| goes_on) {
            give_up(&client, self.name, task).await;
        }
        remotes.with(self.name, |known| {
            if matches!(end, End::Failed(_)) {
                // Its card may have changed.
                known.client = None;
            }
            known.context = self.exchange.context().map(ToOwned::to_owned).or(known.context.take());
            let waits = state == State::InputRequired;
            known.waiting = match self.exchange.task() {
                Some(task) => waits.then(|| task.to_owned()),
                // What was not heard was not answered.
                None => waiting.filter(|_| !matches!(end, End::Settled)),
            };
        });
        end
    }

    /// Sends the message; to a new task, if the one that waited is gone.
    async fn converse(
        &mut self,
        client: &A2aClient,
        text: &str,
        context: Option<&str>,
        waiting: Option<&str>,
    ) -> Result<(), A2aError> {
        match self.follow(client, text, context, waiting).await {
            Err(A2aError::Rpc { code: TASK_NOT_FOUND, .. }) if waiting.is_some() => {
                self.exchange = Exchange::default();
                self.follow(client, text, context, None).await
            }
            other => other,
        }
    }

    /// Sends the message and follows its task to a state in which nothing more comes by itself.
    async fn follow(
        &mut self,
        client: &A2aClient,
        text: &str,
        context: Option<&str>,
        waiting: Option<&str>,
    ) -> Result<(), A2aError> {
        let mut results = client.send(text, context, waiting).await?;
        loop {
            match results.next().await {
                Ok(Some(result)) => {
                    self.exchange.apply(&result);
                    self.show();
                    if self.exchange.state() != State::Working {
                        return Ok(());
                    }
                }
                Ok(None) => break,
                // A stream that broke is no task that failed, once there is a task.
                Err(error) if error.is_passing() && self.exchange.task().is_some() => break,
                Err(error) => return Err(error),
            }
        }
        drop(results);
        let Some(task) = self.exchange.task().map(ToOwned::to_owned) else {
            return Err(A2aError::Answer("there is neither a message nor a task in it".to_owned()));
        };
        let (mut wait, mut failures) = (POLL_MIN, 0);
        while self.exchange.state() == State::Working {
            tokio::time::sleep(wait).await;
            wait = (wait * 3 / 2).min(POLL_MAX);
            match client.task(&task).await {
                Ok(result) => {
                    failures = 0;
                    self.exchange.apply(&result);
                    self.show();
                }
                Err(error) if error.is_passing() && failures + 1 < POLL_FAILURES => failures += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Shows how far it is.
    fn show(&mut self) {
        let now = self.clock.now().tick.0;
        if self.shown.is_some_and(|last| now < last + SHOW_EVERY) {
            return;
        }
        self.shown = Some(now);
        let all = self.exchange.text();
        let says = self.exchange.says();
        let news = cut::tail(if says.is_empty() { &all } else { says }, SHOWN_MAX);
        let activity = json!({"type": "THOUGHT_CHUNK", "text": news});
        let data = Some(json!({"activity": activity, "progress": self.progress("running")}));
        let text = if news.is_empty() { "It works on the task.".to_owned() } else { news.to_owned() };
        self.cx.update(LiveOutput { text, pid: None, total_bytes: 0, data });
    }

    /// How far it is, in the shape that runs of our own have.
    fn progress(&self, state: &str) -> Value {
        let says = cut::head(self.exchange.says(), SHOWN_MAX);
        let recent: Vec<Value> = (!says.is_empty())
            .then(|| json!({"type": "thought", "id": "", "content": says, "status": state}))
            .into_iter()
            .collect();
        json!({
            "isSubagentProgress": true,
            "agentName": self.name,
            "threadId": self.id,
            "state": state,
            "waitingForConfirmation": false,
            "recentActivity": recent,
            "contextId": self.exchange.context(),
            "taskId": self.exchange.task(),
        })
    }

    /// The end as its caller's model and people read it.
    fn answer(&self, end: &End) -> Result<ToolOutput, ToolFailure> {
        let (name, reason, text) = (self.name, end.name(&self.exchange), self.exchange.text());
        let state = self.exchange.state();
        let (lead, why) = match end {
            End::Settled if state == State::Completed => return Ok(self.report(&text)),
            End::Settled if state == State::InputRequired => return Ok(self.question(&text)),
            End::Settled => (
                "finished",
                match state {
                    State::Rejected => "It refused the task.".to_owned(),
                    State::Canceled => "It was stopped on its side.".to_owned(),
                    State::AuthRequired => {
                        "It wants somebody to log in on its side, which can't be done from here; the \
                                        task was cancelled."
                            .to_owned()
                    }
                    _ => "It failed.".to_owned(),
                },
            ),
            End::Aborted => ("was stopped", "It was stopped before it was done.".to_owned()),
            End::TimeUp(limit) => {
                ("was stopped", format!("It was not done after {} minutes.", limit.as_secs_f64() / 60.0))
            }
            End::Failed(error) => ("failed", format!("Could not {error}.")),
        };
        let said = if text.is_empty() { String::new() } else { format!("\nIt said:\n{}", untrusted(&text)) };
        let message = format!(
            "Remote agent '{name}' {lead}.\nTermination Reason: {reason}\nResult:\n{why} The task is not done.{said}"
        );
        let display = ResultDisplay::Text(format!("{why}\n{text}").trim_end().to_owned());
        Err(match end {
            End::Aborted => ToolFailure::Cancelled { message, display },
            End::Settled | End::TimeUp(_) | End::Failed(_) => {
                ToolFailure::Error { error_type: ErrorType::ExecutionFailed, message, display }
            }
        })
    }

    fn report(&self, text: &str) -> ToolOutput {
        let said = if text.is_empty() { "It is done and said nothing." } else { text };
        let head = format!("Remote agent '{}' finished.\nTermination Reason: GOAL\nResult:\n", self.name);
        self.output(format!("{head}{}", untrusted(said)), said, "completed")
    }

    fn question(&self, text: &str) -> ToolOutput {
        let asked = if text.is_empty() { "It does not say for what." } else { text };
        let head = format!(
            "Remote agent '{}' waits for input.\nTermination Reason: INPUT_REQUIRED\nThe task is not done. To answer, \
             call the agent again with the answer as prompt: it goes on with the same task.\nIt asks:\n",
            self.name
        );
        self.output(format!("{head}{}", untrusted(asked)), asked, "input_required")
    }

    fn output(&self, text: String, shown: &str, state: &str) -> ToolOutput {
        let line = shown.trim().lines().next().unwrap_or_default();
        let short = cut::head(line, SUMMARY_MAX);
        let summary = if short.len() < line.len() { format!("{short}…") } else { short.to_owned() };
        ToolOutput {
            text,
            display: ResultDisplay::Text(shown.to_owned()),
            summary: Some(summary),
            data: Some(json!({"progress": self.progress(state)})),
            ..ToolOutput::default()
        }
    }
}

/// Tells the agent to end a task that nobody waits for any more.
async fn give_up(client: &A2aClient, name: &str, task: &str) {
    match tokio::time::timeout(CANCEL_MAX, client.cancel(task)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(agent = name, %error, "a remote agent did not cancel a task"),
        Err(_) => tracing::warn!(agent = name, "a remote agent did not answer that a task is cancelled"),
    }
}
