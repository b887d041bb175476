//! Logs go to stderr, as text.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::environment::Environment;

/// Starts logging at `level`, `debug` with `--debug`, or as `CONVOKE_LOG` says (`info,convoke_daemon=debug`).
///
/// A filter that can't be read is told and left out: logging is never a reason not to work.
pub(crate) fn start(level: LevelFilter, debug: bool, environment: &Environment) {
    let level = if debug { LevelFilter::DEBUG } else { level };
    let colours = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).with_ansi(colours);
    let started = match environment.get("CONVOKE_LOG").map(EnvFilter::try_new) {
        Some(Ok(filter)) => builder.with_env_filter(filter).try_init(),
        other => {
            if let Some(Err(error)) = other {
                crate::failure::complain(&format!("read CONVOKE_LOG: {error}"));
            }
            builder.with_max_level(level).try_init()
        }
    };
    // Only a second start fails, and then the first one holds.
    let _ = started;
}
