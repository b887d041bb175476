//! `json`: one object at the end.

use std::io::{self, Write};

use convoke_protocol::{AgentEvent, HostedSession, SessionId};
use serde_json::{Map, Value, json};

use super::notice::Notice;
use super::{Failure, Outcome, Report};

/// Most warnings that are kept for the end. A hook can talk at every piece of an answer; nobody reads more.
const WARNINGS_MAX: usize = 1000;

/// Writes `{session_id, response, stats, warnings?}` to stdout, or `{session_id, error}` to stderr.
pub(super) struct Json {
    warnings: Vec<String>,
}

impl Json {
    pub(super) fn new(warnings: Vec<String>) -> Self {
        Self { warnings }
    }
}

impl Report for Json {
    fn begin(&mut self, _: &HostedSession) -> io::Result<()> {
        Ok(())
    }

    fn prompt(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn event(&mut self, event: &AgentEvent) -> io::Result<()> {
        if let Some(notice) = Notice::of_hook(event) {
            self.warn(notice.text)?;
        }
        super::outcome::warning(event).map_or(Ok(()), |message| self.warn(message))
    }

    fn warn(&mut self, message: &str) -> io::Result<()> {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(message.to_owned());
        }
        Ok(())
    }

    fn end(&mut self, session_id: &SessionId, outcome: &Outcome) -> io::Result<()> {
        if let Some(error) = &outcome.error {
            let object = json!({"session_id": session_id, "error": error_object(error)});
            return writeln!(io::stderr(), "{object:#}");
        }
        let mut object = Map::new();
        object.insert("session_id".to_owned(), json!(session_id));
        object.insert("response".to_owned(), json!(outcome.response));
        object.insert("stats".to_owned(), outcome.stats.session_metrics());
        let warnings: Vec<&str> = self.warnings.iter().map(String::as_str).chain(outcome.note).collect();
        if !warnings.is_empty() {
            object.insert("warnings".to_owned(), json!(warnings));
        }
        writeln!(io::stdout(), "{:#}", Value::Object(object))
    }
}

/// `{type, message, code, status?}`; `code` is the exit code.
pub(crate) fn error_object(error: &Failure) -> Value {
    let mut object = json!({"type": error.kind, "message": error.message, "code": error.exit.code()});
    if let (Some(status), Some(map)) = (error.status, object.as_object_mut()) {
        map.insert("status".to_owned(), status.into());
    }
    object
}
