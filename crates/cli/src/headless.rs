//! A run without a terminal: what comes in, what goes out, how it ends.

mod ask;
mod channel;
mod input;
mod json;
mod notice;
mod outcome;
mod stats;
mod stream_json;
mod text;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentSend, AgentSession, ContentPart, ExitCode, HostedSession, LoadFrom, LoadSession,
    NewSession, PermissionPort, SendMessage, SessionError, SessionFactory, SessionId, SteerOutcome,
};
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::args::{InputFormat, OnAsk, OutputFormat};
use crate::signals::Interrupts;
use crate::telemetry::RunConfig;
use ask::{Asker, Nobody, Question, Refuser};
use channel::{Line, Lines};
use outcome::Watcher;

pub(crate) use input::{Prompt, read_prompt};
pub(crate) use outcome::{Failure, Outcome};

/// One run.
pub(crate) struct RunOptions {
    /// What has to be done before the first prompt, typed like one.
    pub(crate) first: Option<Prompt>,
    /// The first prompt; `None` where it comes as a line.
    pub(crate) prompt: Option<Prompt>,
    pub(crate) cwd: PathBuf,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) input: InputFormat,
    /// What it goes on with.
    pub(crate) past: Option<LoadFrom>,
    pub(crate) format: OutputFormat,
    pub(crate) raw_output: bool,
    pub(crate) on_ask: OnAsk,
    /// How long a question waits for an answer.
    pub(crate) patience: Duration,
    pub(crate) warnings: Vec<String>,
    /// Told as telemetry once the session is there.
    pub(crate) config: RunConfig,
}

/// Prints a run as it goes. `Err` only when nobody reads any more.
trait Report {
    fn begin(&mut self, session: &HostedSession) -> io::Result<()>;
    fn prompt(&mut self, prompt: &str) -> io::Result<()>;
    fn event(&mut self, event: &AgentEvent) -> io::Result<()>;
    /// Something that a person should know, and that ends nothing.
    fn warn(&mut self, message: &str) -> io::Result<()>;
    fn end(&mut self, session_id: &SessionId, outcome: &Outcome) -> io::Result<()>;
}

/// Prompts that wait for the running one. Who sends more has stopped reading answers.
const PROMPTS_WAITING_MAX: usize = 64;

fn report(format: OutputFormat, raw_output: bool, warnings: Vec<String>) -> Box<dyn Report> {
    match format {
        OutputFormat::Text => Box::new(text::Text::new(raw_output)),
        OutputFormat::Json => Box::new(json::Json::new(warnings)),
        OutputFormat::StreamJson => Box::new(stream_json::StreamJson::new()),
    }
}

/// Reports a run that can't begin, in its own format.
pub(crate) fn refuse(format: OutputFormat, session_id: &SessionId, failure: Failure) -> ExitCode {
    let outcome = Outcome::refused(failure);
    // Nothing more can be done for a reader who is gone.
    let _ = report(format, false, Vec::new()).end(session_id, &outcome);
    outcome.exit
}

/// Runs to the end and reports it.
pub(crate) async fn run(factory: &dyn SessionFactory, options: RunOptions) -> ExitCode {
    let mut report = report(options.format, options.raw_output, options.warnings);
    let asker = (options.on_ask == OnAsk::Wait).then(|| Arc::new(Asker::new(options.patience)));
    let refuser = (options.on_ask == OnAsk::Fail).then(|| Arc::new(Refuser::default()));
    let permission: Arc<dyn PermissionPort> = match (&asker, &refuser) {
        (Some(asker), _) => asker.clone(),
        (None, Some(refuser)) => refuser.clone(),
        (None, None) => Arc::new(Nobody),
    };
    let new = NewSession { session_id: options.session_id, ..NewSession::new(options.cwd, permission) };
    let session = match session(factory, new, options.past).await {
        Ok(session) => session,
        Err(error) => {
            let outcome = Outcome::refused(Failure::of_session(&error));
            // Nothing more can be done for a reader who is gone.
            let _ = report.end(&SessionId::from(""), &outcome);
            return outcome.exit;
        }
    };
    options.config.tell(Some(&session.id.0), Some(&session.control.model()));
    let mut run = Run {
        session: &session,
        report: report.as_mut(),
        lines: (options.input == InputFormat::StreamJson).then(Lines::of_stdin),
        first: options.first,
        waiting: options.prompt.into_iter().collect(),
        asker,
        refuser,
        interrupts: Interrupts::listen(),
        over: false,
    };
    let code = run.all().await;
    session.control.close().await;
    code.unwrap_or(ExitCode::Failure)
}

/// A session with what goes in and out of it.
struct Run<'a> {
    session: &'a HostedSession,
    report: &'a mut dyn Report,
    /// Lines on stdin, until they end.
    lines: Option<Lines>,
    first: Option<Prompt>,
    waiting: VecDeque<Prompt>,
    asker: Option<Arc<Asker>>,
    /// There, if a refused call ends the run.
    refuser: Option<Arc<Refuser>>,
    interrupts: Interrupts,
    /// A signal came: nothing begins any more.
    over: bool,
}

enum Wake {
    Event(Option<Arc<AgentEvent>>),
    Question(Question),
    Line(Option<Line>),
    Refused(String),
    Interrupt,
}

impl Run<'_> {
    /// Every prompt that comes. The last one's end is the process's.
    async fn all(&mut self) -> io::Result<ExitCode> {
        self.report.begin(self.session)?;
        let mut last = None;
        if let Some(first) = self.first.take() {
            let outcome = self.one(first).await?;
            if outcome.exit != ExitCode::Success || (self.waiting.is_empty() && self.lines.is_none()) {
                self.report.end(&self.session.id, &outcome)?;
                return Ok(outcome.exit);
            }
        }
        while let Some(prompt) = self.next_prompt().await? {
            let outcome = self.one(prompt).await?;
            let over = self.over || (self.refuser.is_some() && outcome.exit == ExitCode::Denied);
            if over && !self.waiting.is_empty() {
                let unread = self.waiting.len();
                self.report.warn(&format!("the run is over, and messages that waited were not read: {unread}"))?;
            }
            self.report.end(&self.session.id, &outcome)?;
            last = Some(outcome.exit);
            if over {
                break;
            }
        }
        if last.is_none() {
            let outcome = Outcome::refused(Failure::new("input", "no prompt came on stdin", ExitCode::Input));
            self.report.end(&self.session.id, &outcome)?;
            last = Some(outcome.exit);
        }
        Ok(last.unwrap_or(ExitCode::Input))
    }

    /// The next prompt; `None` when none will come.
    async fn next_prompt(&mut self) -> io::Result<Option<Prompt>> {
        loop {
            if let Some(prompt) = self.waiting.pop_front() {
                return Ok(Some(prompt));
            }
            let Some(lines) = &mut self.lines else { return Ok(None) };
            let line = tokio::select! {
                line = lines.next() => line,
                () = self.interrupts.next() => return Ok(None),
            };
            self.line(line, false).await?;
        }
    }

    /// A line of stdin, or its end.
    async fn line(&mut self, line: Option<Line>, running: bool) -> io::Result<()> {
        match line {
            None => {
                self.lines = None;
                if let Some(asker) = &self.asker {
                    asker.close();
                }
                Ok(())
            }
            // Whoever waits already came first; a command is none of the model's.
            Some(Line::Message(text))
                if running
                    && self.waiting.is_empty()
                    && !text.trim_start().starts_with('/')
                    && self.session.control.steer(&text) == SteerOutcome::Taken =>
            {
                Ok(())
            }
            Some(Line::Message(text)) if self.waiting.len() < PROMPTS_WAITING_MAX => {
                self.waiting.push_back(Prompt::plain(text));
                Ok(())
            }
            Some(Line::Message(_)) => self.report.warn("a message was dropped: too many wait already"),
            Some(Line::Answer { request_id, option_id }) => {
                let answered = match &self.asker {
                    Some(asker) => asker.answer(&request_id, option_id),
                    None => Err("nothing is asked without --on-ask wait".to_owned()),
                };
                answered.or_else(|odd| self.report.warn(&odd))
            }
            Some(Line::Interrupt) if running => {
                self.session.agent.abort().await;
                Ok(())
            }
            Some(Line::Interrupt) => Ok(()),
            Some(Line::Odd(what)) => self.report.warn(&what),
        }
    }

    /// What was taken as a word to a prompt that ended before it was read is the next prompt.
    fn wait_again(&mut self, event: &AgentEvent) {
        let AgentEventBody::Custom { kind, data: Some(data) } = &event.body else { return };
        if kind == "steering_unread" {
            let texts = data.get("texts").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            // They came before anything that waits; the inbox that held them is bounded.
            let mut unread: VecDeque<Prompt> = texts.map(|text| Prompt::plain(text.to_owned())).collect();
            unread.append(&mut self.waiting);
            self.waiting = unread;
        }
    }

    async fn event(&mut self, watcher: &mut Watcher, event: &AgentEvent) -> io::Result<()> {
        watcher.event(event);
        self.report.event(event)?;
        self.wait_again(event);
        if self.refuser.is_some() && watcher.first_denial() {
            self.session.agent.abort().await;
        }
        Ok(())
    }

    /// One prompt, to its end.
    async fn one(&mut self, prompt: Prompt) -> io::Result<Outcome> {
        self.report.prompt(&prompt.shown())?;
        let view = AgentSession::new(self.session.agent.clone());
        let mut watcher = Watcher::new(self.session.control.model());
        let content = prompt.into_parts().into_iter().map(ContentPart::text).collect();
        let message = SendMessage { content, ..SendMessage::default() };
        let events = match view.send_stream(AgentSend::Message(message)).await {
            Ok(events) => events.fuse(),
            Err(error) => return Ok(Outcome::refused(Failure::internal(error.to_string()))),
        };
        futures::pin_mut!(events);
        let mut questions = self.asker.as_ref().map(|asker| asker.open_desk());
        loop {
            let wake = tokio::select! {
                event = events.next() => Wake::Event(event),
                question = next_question(&mut questions) => Wake::Question(question),
                line = next_line(&mut self.lines) => Wake::Line(line),
                what = next_refusal(self.refuser.as_deref()) => Wake::Refused(what),
                () = self.interrupts.next() => Wake::Interrupt,
            };
            match wake {
                Wake::Event(None) => break,
                Wake::Event(Some(event)) => self.event(&mut watcher, &event).await?,
                Wake::Question(question) => {
                    // The call that it is about was told before it was asked.
                    while let Some(Some(event)) = events.next().now_or_never() {
                        self.event(&mut watcher, &event).await?;
                    }
                    question.write();
                }
                Wake::Line(line) => self.line(line, true).await?,
                Wake::Refused(what) => {
                    watcher.refused(what);
                    self.session.agent.abort().await;
                }
                // The stream goes on to its end, which the abort brings about.
                Wake::Interrupt => {
                    self.over = true;
                    watcher.interrupted();
                    self.session.agent.abort().await;
                }
            }
        }
        Ok(watcher.finish(self.refuser.is_some()))
    }
}

/// Never, where a question ends nothing.
async fn next_refusal(refuser: Option<&Refuser>) -> String {
    match refuser {
        Some(refuser) => refuser.asked().await,
        None => std::future::pending().await,
    }
}

/// Never, where questions are not asked.
async fn next_question(questions: &mut Option<mpsc::Receiver<Question>>) -> Question {
    if let Some(questions) = questions
        && let Some(question) = questions.recv().await
    {
        return question;
    }
    std::future::pending().await
}

/// Never, once there are no lines any more.
async fn next_line(lines: &mut Option<Lines>) -> Option<Line> {
    match lines {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}

/// A new session, or one that goes on.
async fn session(
    factory: &dyn SessionFactory,
    new: NewSession,
    past: Option<LoadFrom>,
) -> Result<HostedSession, SessionError> {
    let Some(from) = past else { return factory.new_session(new).await };
    let Some(records) = factory.records() else {
        return Err(SessionError::Record(
            "resume a session: there is no home in which sessions are recorded".to_owned(),
        ));
    };
    let loaded = records.load_session(LoadSession { from, session: new, replay: false }).await?;
    if loaded.damaged > 0 {
        let lines = loaded.damaged;
        crate::failure::complain(&format!(
            "warning: {lines} lines of the session's record can't be read and are missing"
        ));
    }
    Ok(loaded.session)
}
