//! What a run came to.

use convoke_protocol::{AgentEvent, AgentEventBody, ContentPart, ExitCode, MessageRole, SessionError, StreamEndReason};
use serde_json::Value;

use super::stats::Stats;

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: ExitCode,
    /// The agent's words of its last turn.
    pub(crate) response: String,
    pub(crate) error: Option<Failure>,
    /// Something a person should know although the run went well.
    pub(crate) note: Option<&'static str>,
    pub(crate) stats: Stats,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A stable name.
    pub(crate) kind: String,
    /// What a person reads.
    pub(crate) message: String,
    /// What the process ends with.
    pub(crate) exit: ExitCode,
    /// The HTTP status, where there was one.
    pub(crate) status: Option<u64>,
}

impl Failure {
    pub(crate) fn new(kind: &str, message: impl Into<String>, exit: ExitCode) -> Self {
        Self { kind: kind.to_owned(), message: message.into(), exit, status: None }
    }

    /// What keeps a run from beginning. Scripts know it by the code; the type is the one that others give it.
    pub(crate) fn before_the_run(why: impl std::fmt::Display, exit: ExitCode) -> Self {
        Self::new("Error", why.to_string(), exit)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new("internal", message, ExitCode::Failure)
    }

    pub(crate) fn of_session(error: &SessionError) -> Self {
        let (kind, exit) = match error {
            SessionError::Auth(_) => ("auth", ExitCode::Auth),
            SessionError::Workspace { .. } => ("workspace", ExitCode::Input),
            SessionError::Taken(_) => ("session_id", ExitCode::Input),
            SessionError::Unknown(_) => ("INVALID_SESSION_IDENTIFIER", ExitCode::Input),
            SessionError::Open(_) => ("session_in_use", ExitCode::Input),
            SessionError::WrongFolder { .. } => ("workspace", ExitCode::Input),
            SessionError::Cursor | SessionError::Record(_) => ("record", ExitCode::Input),
            SessionError::Failed(_) => ("session", ExitCode::Failure),
        };
        Self::new(kind, error.to_string(), exit)
    }

    fn of_error_event(event: &AgentEvent, message: &str) -> Self {
        let meta = |key: &str| event.meta.get(key);
        let kind = meta("errorKind").or_else(|| meta("code")).and_then(Value::as_str).unwrap_or("internal");
        let exit = match kind {
            "auth" => ExitCode::Auth,
            "quota" | "rate_limit" | "capacity" => ExitCode::Quota,
            "LOOP_DETECTED" => ExitCode::Loop,
            "no_space_left" => ExitCode::Tool,
            "COMMAND_REFUSED" | "REWIND_REFUSED" => ExitCode::Input,
            _ => ExitCode::Failure,
        };
        let status = meta("status").and_then(Value::as_u64);
        // The prefix that scripts for other agents look for.
        let message = if meta("errorKind").is_some() { format!("[API Error: {message}]") } else { message.to_owned() };
        Self { kind: kind.to_owned(), message, exit, status }
    }
}

impl Outcome {
    /// A run that never began.
    pub(crate) fn refused(failure: Failure) -> Self {
        let (exit, error) = (failure.exit, Some(failure));
        Self { exit, response: String::new(), error, note: None, stats: Stats::new(String::new()) }
    }
}

/// What a person should know of an event that ends nothing.
pub(super) fn warning(event: &AgentEvent) -> Option<&str> {
    match &event.body {
        AgentEventBody::Custom { kind, data: Some(data) } if kind == "notice" => data.get("message")?.as_str(),
        // A hook refused the prompt: there is no answer, and nothing failed.
        AgentEventBody::Error { message, fatal: false, .. }
            if event.meta.get("code").is_some_and(|code| code == "AGENT_EXECUTION_BLOCKED") =>
        {
            Some(message)
        }
        _ => None,
    }
}

/// A call that was refused by policy, a hook or a person, as a sentence.
fn denial(event: &AgentEvent) -> Option<String> {
    let AgentEventBody::ToolResponse { name, content, data, is_error: true, .. } = &event.body else { return None };
    let field = |key: &str| data.as_ref().and_then(|data| data.get(key)).and_then(Value::as_str);
    let told: String = content.iter().flatten().filter_map(ContentPart::as_text).collect();
    // A tool that policy withholds was never judged: to the model it is not there.
    let withheld = field("errorType") == Some("tool_not_registered") && told.contains("not found: policy");
    (withheld || field("decision") == Some("reject")).then(|| format!("a call of {name} was refused: {told}"))
}

/// Collects an outcome out of a stream's events.
pub(super) struct Watcher {
    response: String,
    error: Option<Failure>,
    stats: Stats,
    end: Option<(StreamEndReason, Value)>,
    /// Whether the next text begins a new turn of the model.
    turn_over: bool,
    /// The first call that was refused.
    denied: Option<String>,
    newly_denied: bool,
    interrupted: bool,
}

impl Watcher {
    pub(super) fn new(model: String) -> Self {
        Self {
            response: String::new(),
            error: None,
            stats: Stats::new(model),
            end: None,
            turn_over: false,
            denied: None,
            newly_denied: false,
            interrupted: false,
        }
    }

    pub(super) fn event(&mut self, event: &AgentEvent) {
        self.stats.event(event);
        if self.denied.is_none() {
            self.denied = denial(event);
            self.newly_denied = self.denied.is_some();
        }
        match &event.body {
            AgentEventBody::Message { role: MessageRole::Agent, content } => {
                for text in content.iter().filter_map(ContentPart::as_text) {
                    if std::mem::take(&mut self.turn_over) {
                        self.response.clear();
                    }
                    self.response.push_str(text);
                }
            }
            AgentEventBody::Custom { kind, .. } if kind == "retract" => self.response.clear(),
            AgentEventBody::ToolResponse { .. } => self.turn_over = true,
            // The run goes on with another model, and may yet fail for a reason of its own.
            AgentEventBody::Error { .. } if event.meta.get("code") == Some(&"MODEL_FALLBACK".into()) => {}
            AgentEventBody::Error { message, .. } => self.error = Some(Failure::of_error_event(event, message)),
            AgentEventBody::AgentEnd { reason, data } => {
                self.end = Some((*reason, data.clone().unwrap_or_default()));
            }
            _ => {}
        }
    }

    /// Whether the last event was the first refusal.
    pub(super) fn first_denial(&mut self) -> bool {
        std::mem::take(&mut self.newly_denied)
    }

    /// A question ended it.
    pub(super) fn refused(&mut self, what: String) {
        self.denied.get_or_insert(what);
    }

    /// The user ended it.
    pub(super) fn interrupted(&mut self) {
        self.interrupted = true;
    }

    /// `fails` says that a refused call ended the run.
    pub(super) fn finish(self, fails: bool) -> Outcome {
        let Self { response, error, stats, end, denied, interrupted, .. } = self;
        if let Some(denied) = denied.filter(|_| fails && !interrupted) {
            let failure = Failure::new("denied", denied, ExitCode::Denied);
            return Outcome { exit: ExitCode::Denied, response, error: Some(failure), note: None, stats };
        }
        let (reason, data) = end.unwrap_or((StreamEndReason::Failed, Value::Null));
        let mut note = None;
        let error = match reason {
            StreamEndReason::Completed => None,
            StreamEndReason::MaxBudget if data.get("message").is_some() => {
                let message = data.get("message").and_then(Value::as_str).unwrap_or_default();
                Some(Failure::new("max_budget", message, ExitCode::Budget))
            }
            StreamEndReason::MaxBudget => {
                note = Some("the answer was cut off at the model's output limit");
                None
            }
            StreamEndReason::Aborted => Some(Failure::new("cancelled", "cancelled", ExitCode::Cancelled)),
            StreamEndReason::MaxTime => {
                let seconds = data.get("maxSeconds").and_then(Value::as_f64);
                let seconds = seconds.map_or_else(String::new, |seconds| format!(" ({seconds} s)"));
                let message = format!("the time for one prompt{seconds} is over");
                Some(Failure::new("max_time", message, ExitCode::Turns))
            }
            StreamEndReason::MaxTurns => {
                let limit = data.get("maxTurns").and_then(Value::as_u64);
                let limit = limit.map_or_else(String::new, |limit| format!(" ({limit})"));
                let message = format!("the limit of turns for one prompt{limit} is reached");
                Some(Failure::new("max_turns", message, ExitCode::Turns))
            }
            StreamEndReason::Refusal => {
                let finish = data.get("finishReason").and_then(Value::as_str).unwrap_or("refusal");
                Some(Failure::new("refusal", format!("the model refused to answer ({finish})"), ExitCode::Failure))
            }
            StreamEndReason::Failed => Some(error.unwrap_or_else(|| {
                let finish = data.get("finishReason").and_then(Value::as_str).unwrap_or("unknown");
                Failure::internal(format!("the model ended its answer with {finish}"))
            })),
        };
        let exit = error.as_ref().map_or(ExitCode::Success, |error| error.exit);
        Outcome { exit, response, error, note, stats }
    }
}
