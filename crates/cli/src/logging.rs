//! Logs go to stderr, as text or as one JSON object a line; traces, if anybody wants them, to a collector.

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::environment::Environment;
use crate::telemetry::{self, Traces};

/// How a log line is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: `{"timestamp", "level", "target", "message", …}`.
    Json,
}

/// Holds what must be sent before the process ends. Keep it until then.
#[must_use]
#[derive(Default)]
pub(crate) struct Logging {
    _traces: Option<Traces>,
}

/// Starts logging as text, at `level`, `debug` with `--debug`, or as `CONVOKE_LOG` says (`info,convoke_daemon=debug`).
///
/// A filter that can't be read is told and left out: logging is never a reason not to work.
pub(crate) fn start(level: LevelFilter, debug: bool, environment: &Environment) -> Logging {
    start_with(level, debug, environment, LogFormat::Text, None)
}

/// The same, in this format and with traces.
pub(crate) fn start_with(
    level: LevelFilter,
    debug: bool,
    environment: &Environment,
    format: LogFormat,
    traces: Option<Traces>,
) -> Logging {
    let level = if debug { LevelFilter::DEBUG } else { level };
    let exported = traces.as_ref().map(Traces::layer);
    let lines = lines(format).with_filter(filter(level, environment));
    // Only a second start fails, and then the first one holds.
    let _ = tracing_subscriber::registry().with(lines).with(exported).try_init();
    Logging { _traces: traces }
}

fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = fmt::layer().with_writer(std::io::stderr);
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
    match format!("{}=off", telemetry::TARGET).parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}
