//! Logs go to stderr, as text or as one JSON object a line, and nobody who logs waits for them to get there; with
//! `GEMINI_DEBUG_LOG_FILE` to that file as well, in full. Telemetry and traces, if anybody wants them, go their own ways.

mod buffer;

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::sync::Mutex;

use convoke_stdx::{Clock, iso8601};
use serde_json::json;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use buffer::{Buffer, Lines};

use crate::environment::Environment;
use crate::failure::Exit;
use crate::telemetry::{self, Telemetry, Traces};

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: `{"timestamp", "level", "target", "message", …}`.
    Json,
}

impl LogFormat {
    /// The line that tells how many lines stderr did not take.
    fn about_dropped(self) -> fn(u64) -> String {
        match self {
            Self::Text => |dropped| format!(" WARN {}\n", about_dropped(dropped)),
            Self::Json => |dropped| {
                let timestamp = iso8601(Clock::start().now().wall_ms);
                let line = json!({"timestamp": timestamp, "level": "WARN", "message": about_dropped(dropped)});
                format!("{line}\n")
            },
        }
    }
}

fn about_dropped(dropped: u64) -> String {
    format!("{dropped} lines of this log were dropped: stderr did not take them in time")
}

/// Holds what must be sent and written before the process ends. Keep it until then.
#[must_use]
#[derive(Default)]
pub(crate) struct Logging {
    // First, because their end may be a line.
    _traces: Option<Traces>,
    telemetry: Option<Telemetry>,
    _lines: Option<Buffer>,
}

impl Logging {
    /// Tells telemetry what the process ends with, and hands it on.
    pub(crate) fn ends_with(&self, exit: Exit) -> Exit {
        if let Some(telemetry) = &self.telemetry {
            telemetry.ends_with(exit.code());
        }
        exit
    }
}

/// Starts logging as text, at `level`, `debug` with `--debug`, or as `CONVOKE_LOG` says (`info,convoke_daemon=debug`).
///
/// A filter that can't be read is told and left out: logging is never a reason not to work.
pub(crate) fn start(level: LevelFilter, debug: bool, environment: &Environment) -> Logging {
    start_with(level, debug, environment, LogFormat::Text, None)
}

/// The same, with telemetry.
pub(crate) fn start_telling(
    level: LevelFilter,
    debug: bool,
    environment: &Environment,
    telemetry: Option<Telemetry>,
) -> Logging {
    begin(level, debug, environment, LogFormat::Text, None, telemetry)
}

/// The same, in this format and with traces.
pub(crate) fn start_with(
    level: LevelFilter,
    debug: bool,
    environment: &Environment,
    format: LogFormat,
    traces: Option<Traces>,
) -> Logging {
    begin(level, debug, environment, format, traces, None)
}

fn begin(
    level: LevelFilter,
    debug: bool,
    environment: &Environment,
    format: LogFormat,
    traces: Option<Traces>,
    telemetry: Option<Telemetry>,
) -> Logging {
    let level = if debug { LevelFilter::DEBUG } else { level };
    let told = telemetry.as_ref().and_then(Telemetry::traces);
    let exported = traces.as_ref().or(told).map(Traces::layer);
    let events = telemetry.as_ref().map(Telemetry::layer);
    let kept = debug_file(environment).map(|file| {
        let layer = fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
        layer.with_filter(without_telemetry(EnvFilter::default().add_directive(LevelFilter::DEBUG.into())))
    });
    let buffer = Buffer::new(std::io::stderr(), format.about_dropped());
    let lines = lines(format, buffer.lines()).with_filter(filter(level, environment));
    // Only a second start fails, and then the first one holds.
    let _ = tracing_subscriber::registry().with(lines).with(exported).with(events).with(kept).try_init();
    Logging { _traces: traces, telemetry, _lines: Some(buffer) }
}

fn lines<S>(format: LogFormat, out: Lines) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = fmt::layer().with_writer(out);
    match format {
        LogFormat::Text => Box::new(layer.with_target(false).with_ansi(std::io::stderr().is_terminal())),
        LogFormat::Json => Box::new(layer.json().flatten_event(true).with_current_span(false).with_span_list(false)),
    }
}

/// What is written. Spans that are made for export are no lines.
fn filter(level: LevelFilter, environment: &Environment) -> EnvFilter {
    let filter = match environment.get("CONVOKE_LOG").map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        other => {
            if let Some(Err(error)) = other {
                crate::failure::complain(&format!("read CONVOKE_LOG: {error}"));
            }
            EnvFilter::default().add_directive(level.into())
        }
    };
    without_telemetry(filter)
}

/// Targets that are never part of a log: what is made for export holds what people wrote, and what the MCP SDK says of a login
/// holds the code that it is made with.
const NEVER: [&str; 3] = [telemetry::TRACE, telemetry::EVENTS, "rmcp::transport::auth"];

fn without_telemetry(filter: EnvFilter) -> EnvFilter {
    NEVER.iter().fold(filter, |filter, target| match format!("{target}=off").parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    })
}

/// The file that gets every line, whatever stderr gets. One that can't be opened is told and left out.
fn debug_file(environment: &Environment) -> Option<File> {
    let path = environment.path("GEMINI_DEBUG_LOG_FILE")?;
    match OpenOptions::new().create(true).append(true).open(&path) {
        Ok(file) => Some(file),
        Err(error) => {
            crate::failure::complain(&format!("write GEMINI_DEBUG_LOG_FILE {}: {error}", path.display()));
            None
        }
    }
}
