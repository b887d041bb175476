//! What a run was configured with, told once as `gemini_cli.config`.

use tracing::{Level, event};

use super::EVENTS;

/// What is told. No value of a setting that could be a secret is among it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunConfig {
    pub(crate) approval_mode: String,
    pub(crate) output_format: String,
    pub(crate) debug_mode: bool,
    pub(crate) mcp_servers: Vec<String>,
    pub(crate) extensions: Vec<String>,
}

impl RunConfig {
    /// Tells it. `session_id` and `model` where there is a session already.
    pub(crate) fn tell(&self, session_id: Option<&str>, model: Option<&str>) {
        event!(
            target: EVENTS,
            Level::INFO,
            event.name = "gemini_cli.config",
            session.id = session_id,
            model,
            approval_mode = self.approval_mode,
            output_format = self.output_format,
            debug_mode = self.debug_mode,
            mcp_servers = self.mcp_servers.join(","),
            mcp_servers_count = self.mcp_servers.len(),
            extensions = self.extensions.join(","),
            extensions_count = self.extensions.len(),
        );
    }
}
