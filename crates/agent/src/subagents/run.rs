//! One run of a subagent, from its caller's side: begun, followed, ended, told.
//!
//! The run is a session of the same factory with a thread of its own in its caller's log. Cancelling the call ends the
//! run, and so does dropping it. Source: runtime specification §1.9 and §12.4.

use std::sync::Arc;

use convoke_protocol::{AgentEventBody, AgentProtocol, AgentSend, NewSession, SendMessage};
use convoke_stdx::{Clock, cut};
use convoke_tools::{ErrorType, ExecutionContext, ResultDisplay, ToolFailure, ToolOutput};
use futures::StreamExt;
use serde_json::{Value, json};
use uuid::Uuid;

use super::caller::{Caller, ChildSeat};
use super::course::{Limits, Mode};
use super::definition::{AgentDefinition, LocalAgent};
use super::guide::{RunGuide, RunOutcome};
use super::progress::Progress;
use super::prompt;
use super::thread::Thread;
use crate::{AgentFactory, told};

/// Most characters of a result's summary. Source: runtime specification §12.4.
const SUMMARY_MAX: usize = 200;

/// Runs `agent` on `task` for `caller`.
pub(crate) async fn run(
    factory: &AgentFactory,
    caller: &Arc<Caller>,
    definition: &Arc<AgentDefinition>,
    agent: &LocalAgent,
    task: &str,
    cx: &ExecutionContext,
) -> Result<ToolOutput, ToolFailure> {
    let name = definition.name.as_str();
    let id = Uuid::new_v4().to_string();
    let thread = Arc::new(Thread::new(id.clone(), caller.thread.as_deref(), name, &cx.call_id));
    let limits = Limits { timeout: agent.timeout, grace: factory.options().subagents.recovery_grace };
    let guide = Arc::new(RunGuide::new(name, &id, limits, caller.guide.clone()));
    let cancel = cx.cancel.child_token();
    // Whatever becomes of this call: nobody would hear of a run that outlived it.
    let _ends_with_the_call = cancel.clone().drop_guard();
    let task = prompt::task(task);
    let seat = ChildSeat {
        caller: Arc::clone(caller),
        definition: Arc::clone(definition),
        agent: agent.clone(),
        thread,
        guide: Arc::clone(&guide),
        cancel,
        instruction: prompt::instruction(agent, task),
    };
    let new = NewSession {
        session_id: Some(id.as_str().into()),
        ..NewSession::new(caller.workspace.cwd().to_owned(), Arc::clone(&caller.permission))
    };
    let started = |error: String| {
        ToolFailure::new(ErrorType::ExecutionFailed, format!("Subagent '{name}' could not be started: {error}."))
    };
    let child = factory.assemble_run(new, &seat).map_err(|error| started(error.to_string()))?;
    let _forgotten = child.forget_when_dropped();
    let begun = Clock::start();
    let mut progress = Progress::new(name, &id);
    let mut events = caller.log.subscribe();
    guide.begin();
    let sent = child.protocol.send(AgentSend::Message(SendMessage::text(task))).await;
    if let Err(error) = sent {
        return Err(started(error.to_string()));
    }
    while let Some(event) = events.next().await {
        if event.thread_id.as_deref() != Some(&id) {
            continue;
        }
        if matches!(event.body, AgentEventBody::AgentEnd { .. }) {
            break;
        }
        if let Some(output) = progress.event(&event) {
            cx.update(output);
        }
    }
    // What its caller lent it stays.
    child.protocol.close().await;
    if let Some(servers) = &child.own_servers {
        servers.close().await;
    }
    let outcome = guide.outcome();
    let end = told::RunEnd {
        turns: outcome.turns,
        reason: outcome.mode.as_str(),
        recovered_from: outcome.recovered_from.map(super::Mode::as_str),
    };
    told::run_ended(&id, name, begun.now().tick.0, &end);
    answer(name, &id, &progress, outcome)
}

/// The run's end as its caller's model and people read it.
fn answer(name: &str, id: &str, progress: &Progress, outcome: RunOutcome) -> Result<ToolOutput, ToolFailure> {
    let RunOutcome { mode, recovered_from, report, turns } = outcome;
    let recovered = recovered_from.map_or_else(String::new, |from| {
        let from = from.as_str();
        format!(
            "Recovered From: {from} (it was interrupted, and reported in one more turn; its work may be unfinished)\n"
        )
    });
    let head = format!("Subagent '{name}' finished.\nTermination Reason: {}\n{recovered}Result:\n", mode.as_str());
    if let Some(report) = report {
        let (state, summary) = ("completed", summary(&report));
        let result = text_of(&report);
        let mut shown = progress.report(state);
        if let Value::Object(shown) = &mut shown {
            shown.insert("terminateReason".to_owned(), mode.as_str().into());
            shown.insert("recoveredFrom".to_owned(), recovered_from.map(Mode::as_str).into());
            shown.insert("turns".to_owned(), turns.into());
            shown.insert("result".to_owned(), report);
        }
        return Ok(ToolOutput {
            text: format!("{head}{result}"),
            display: ResultDisplay::Text(result),
            summary: Some(summary),
            data: Some(json!({"progress": shown})),
            ..ToolOutput::default()
        });
    }
    let why = match (mode, progress.error()) {
        (Mode::Error, Some(error)) => format!("It failed: {error}"),
        (Mode::Error, None) => "It failed.".to_owned(),
        (Mode::Aborted, _) => "It was stopped before it was done.".to_owned(),
        (Mode::MaxTurns, _) => "It used up its turns and handed in no report.".to_owned(),
        (Mode::Timeout, _) => "It used up its time and handed in no report.".to_owned(),
        (Mode::NoCompleteTaskCall | Mode::Goal, _) => "It stopped without handing in a report.".to_owned(),
    };
    let words = progress.last_words().map_or_else(String::new, |words| format!("\nThe last that it said:\n{words}"));
    let message = format!("{head}{why} The task is not done.{words}");
    tracing::debug!(agent_id = id, turns, "a subagent did not reach its goal");
    let display = ResultDisplay::Text(message.clone());
    Err(match mode {
        Mode::Aborted => ToolFailure::Cancelled { message, display },
        _ => ToolFailure::Error { error_type: ErrorType::ExecutionFailed, message, display },
    })
}

/// A report as text: plain where it is a text, else as JSON.
fn text_of(report: &Value) -> String {
    report.as_str().map_or_else(|| format!("{report:#}"), ToOwned::to_owned)
}

/// Its first line, cut.
fn summary(report: &Value) -> String {
    let text = match report {
        Value::Object(map) => map.values().find_map(Value::as_str).unwrap_or_default(),
        other => other.as_str().unwrap_or_default(),
    };
    let line = text.trim().lines().next().unwrap_or_default();
    let short = cut::head(line, SUMMARY_MAX);
    if short.len() < line.len() { format!("{short}…") } else { short.to_owned() }
}
