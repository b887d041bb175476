//! `text`: the answer, as it comes.

use std::io::{self, Write};

use anstream::adapter::StripBytes;
use convoke_protocol::{AgentEvent, AgentEventBody, ContentPart, HostedSession, MessageRole, SessionId};

use super::notice::Notice;
use super::{Outcome, Report};

/// Writes the agent's text to stdout; whatever else a person should know goes to stderr.
pub(super) struct Text {
    /// Removes escape sequences, also where one is split over two pieces.
    strip: Option<StripBytes>,
    ends_with_newline: bool,
}

impl Text {
    pub(super) fn new(raw: bool) -> Self {
        Self { strip: (!raw).then(StripBytes::new), ends_with_newline: true }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match &mut self.strip {
            None => out.write_all(text.as_bytes())?,
            Some(strip) => {
                for clean in strip.strip_next(text.as_bytes()) {
                    out.write_all(clean)?;
                }
            }
        }
        self.ends_with_newline = text.ends_with('\n');
        out.flush()
    }
}

impl Report for Text {
    fn begin(&mut self, _: &HostedSession) -> io::Result<()> {
        Ok(())
    }

    fn prompt(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn warn(&mut self, message: &str) -> io::Result<()> {
        writeln!(io::stderr(), "convoke: warning: {message}")
    }

    fn event(&mut self, event: &AgentEvent) -> io::Result<()> {
        match &event.body {
            AgentEventBody::Message { role: MessageRole::Agent, content } => {
                content.iter().filter_map(ContentPart::as_text).try_for_each(|text| self.write(text))
            }
            AgentEventBody::Custom { kind, .. } if kind == "retract" => {
                // What is on stdout can't be taken back; a person can be told.
                writeln!(io::stderr(), "convoke: the model starts its answer over")
            }
            AgentEventBody::Custom { .. } if let Some(notice) = Notice::of_hook(event) => {
                writeln!(io::stderr(), "{notice}")
            }
            _ if let Some(message) = super::outcome::warning(event) => self.warn(message),
            AgentEventBody::Error { message, .. } if event.meta.get("code") == Some(&"MODEL_FALLBACK".into()) => {
                writeln!(io::stderr(), "convoke: {message}")
            }
            AgentEventBody::ToolResponse { name, content, is_error: true, .. } => {
                let message: String = content.iter().flatten().filter_map(ContentPart::as_text).collect();
                writeln!(io::stderr(), "Error executing tool {name}: {message}")
            }
            AgentEventBody::ToolRequest { .. } if !self.ends_with_newline => self.write("\n"),
            _ => Ok(()),
        }
    }

    fn end(&mut self, _: &SessionId, outcome: &Outcome) -> io::Result<()> {
        if !self.ends_with_newline {
            self.write("\n")?;
        }
        if let Some(note) = outcome.note {
            writeln!(io::stderr(), "convoke: {note}")?;
        }
        match &outcome.error {
            Some(error) => writeln!(io::stderr(), "convoke: {}", error.message),
            None => Ok(()),
        }
    }
}
