//! One prompt without a terminal: what comes in, what goes out, how it ends.

mod input;
mod json;
mod notice;
mod outcome;
mod stats;
mod stream_json;
mod text;

use std::path::PathBuf;

use async_trait::async_trait;
use convoke_protocol::{
    AgentEvent, AgentSend, AgentSession, ExitCode, HostedSession, NewSession, PermissionOutcome, PermissionPort,
    PermissionRequest, SendMessage, SessionFactory, SessionId,
};
use futures::StreamExt;

use crate::args::OutputFormat;
use crate::signals::Interrupts;
use crate::telemetry::RunConfig;
use outcome::Watcher;

pub(crate) use input::read_prompt;
pub(crate) use outcome::{Failure, Outcome};

/// One run.
pub(crate) struct RunOptions {
    pub(crate) prompt: String,
    pub(crate) cwd: PathBuf,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) format: OutputFormat,
    pub(crate) raw_output: bool,
    pub(crate) warnings: Vec<String>,
    /// Told as telemetry once the session is there.
    pub(crate) config: RunConfig,
}

/// Prints a run as it goes. `Err` only when nobody reads any more.
trait Report {
    fn begin(&mut self, session: &HostedSession, prompt: &str) -> std::io::Result<()>;
    fn event(&mut self, event: &AgentEvent) -> std::io::Result<()>;
    fn end(&mut self, session_id: &SessionId, outcome: &Outcome) -> std::io::Result<()>;
}

/// Nobody can be asked: policy denies before it would come to that, and this is the answer if it ever does.
struct Nobody;

#[async_trait]
impl PermissionPort for Nobody {
    async fn request(&self, _: PermissionRequest) -> PermissionOutcome {
        PermissionOutcome::Cancelled
    }
}

/// Runs one prompt to its end and reports it.
pub(crate) async fn run(factory: &dyn SessionFactory, options: RunOptions) -> ExitCode {
    let mut report: Box<dyn Report> = match options.format {
        OutputFormat::Text => Box::new(text::Text::new(options.raw_output)),
        OutputFormat::Json => Box::new(json::Json::new(options.warnings)),
        OutputFormat::StreamJson => Box::new(stream_json::StreamJson::new()),
    };
    let new = NewSession {
        cwd: options.cwd,
        session_id: options.session_id,
        permission: std::sync::Arc::new(Nobody),
        approval_mode: None,
    };
    let session = match factory.new_session(new).await {
        Ok(session) => session,
        Err(error) => {
            let outcome = Outcome::refused(Failure::of_session(&error));
            // Nothing more can be done for a reader who is gone.
            let _ = report.end(&SessionId::from(""), &outcome);
            return outcome.exit;
        }
    };
    options.config.tell(Some(&session.id.0), Some(&session.control.model()));
    let outcome = prompt(&session, options.prompt, report.as_mut()).await;
    session.control.close().await;
    match outcome {
        Ok(outcome) => match report.end(&session.id, &outcome) {
            Ok(()) => outcome.exit,
            Err(_) => ExitCode::Failure,
        },
        Err(_) => ExitCode::Failure,
    }
}

async fn prompt(session: &HostedSession, prompt: String, report: &mut dyn Report) -> std::io::Result<Outcome> {
    let mut interrupts = Interrupts::listen();
    report.begin(session, &prompt)?;
    let view = AgentSession::new(session.agent.clone());
    let mut watcher = Watcher::new(session.control.model());
    let events = match view.send_stream(AgentSend::Message(SendMessage::text(prompt))).await {
        Ok(events) => events,
        Err(error) => return Ok(Outcome::refused(Failure::internal(error.to_string()))),
    };
    futures::pin_mut!(events);
    loop {
        tokio::select! {
            event = events.next() => {
                let Some(event) = event else { break };
                watcher.event(&event);
                report.event(&event)?;
            }
            // The stream goes on to its end, which the abort brings about.
            () = interrupts.next() => session.agent.abort().await,
        }
    }
    Ok(watcher.finish())
}
