//! What can a person's prompt have of the session's servers? A list of them, and `@server:uri`.
//!
//! A prompt may come before the first request has started the servers, so both start them and wait for them as it does.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use convoke_adk::Part;
use convoke_mcp::{McpServers, McpTool, untrusted};
use tokio_util::sync::CancellationToken;

use super::state_name;

/// The servers, and how long a prompt waits for them.
pub(crate) struct ServersAtHand {
    pub(super) servers: Arc<McpServers>,
    wait: Duration,
}

impl ServersAtHand {
    pub(crate) fn new(servers: Arc<McpServers>, wait: Duration) -> Self {
        Self { servers, wait }
    }

    pub(super) async fn started(&self, cancel: &CancellationToken) {
        self.servers.start();
        // Whoever is late is listed as such, and is read from in vain.
        cancel.run_until_cancelled(self.servers.settled(self.wait)).await;
    }

    /// The server and the resource that `path` names, if it begins with the name of a server and a colon.
    pub(crate) fn names(&self, path: &str) -> Option<(String, String)> {
        let reports = self.servers.reports();
        let named = reports.iter().filter_map(|report| {
            let uri = path.strip_prefix(report.name.as_str())?.strip_prefix(':')?;
            (!uri.is_empty()).then(|| (report.name.clone(), uri.to_owned()))
        });
        // Of two servers, one of whose names begins with the other's and a colon, the longer is meant.
        named.max_by_key(|(server, _)| server.len())
    }

    /// A resource, as it goes to the model: its text marked as a stranger's, then its media.
    pub(crate) async fn read(&self, server: &str, uri: &str, cancel: &CancellationToken) -> Result<Vec<Part>, String> {
        self.started(cancel).await;
        let read = cancel.run_until_cancelled(self.servers.read_resource(server, uri)).await;
        let answer = read.ok_or("it was cancelled")?.map_err(|error| error.to_string())?;
        let text = (!answer.text.is_empty()).then(|| Part::text(untrusted(&answer.text)));
        let parts: Vec<Part> = text.into_iter().chain(answer.parts).collect();
        if parts.is_empty() { Err("it is empty".to_owned()) } else { Ok(parts) }
    }

    /// All servers, where they stand, and what they have.
    pub(crate) async fn listing(&self, described: bool, cancel: &CancellationToken) -> String {
        if self.servers.is_empty() {
            return "There are no MCP servers.".to_owned();
        }
        self.started(cancel).await;
        let (tools, prompts) = (self.servers.tools(), self.servers.prompts());
        let mut list = "MCP servers:\n".to_owned();
        // Writing to a string can't fail.
        for report in self.servers.reports() {
            let _ = write!(list, "  {} - {}", report.name, state_name(&report));
            if let Some(reason) = &report.reason {
                let _ = write!(list, ": {reason}");
            }
            list.push('\n');
            if let Some(description) = report.description.as_ref().filter(|_| described) {
                let _ = writeln!(list, "    {description}");
            }
            for tool in tools.iter().filter(|tool| tool.server == report.name) {
                let _ = writeln!(list, "    tool {}{}", tool.name, told(tool, described));
            }
            for listed in prompts.iter().filter(|listed| listed.server == report.name) {
                let _ = writeln!(list, "    prompt {}", listed.prompt.name);
            }
            for listed in self.servers.resources(Some(&report.name)) {
                let _ = writeln!(list, "    resource @{}:{}", listed.server, listed.resource.uri);
            }
        }
        list.truncate(list.trim_end().len());
        list
    }
}

/// The first line of what a tool says of itself.
fn told(tool: &McpTool, described: bool) -> String {
    let first = tool.description.lines().find(|line| !line.trim().is_empty()).filter(|_| described);
    first.map(|line| format!(" - {}", convoke_stdx::cut::head(line.trim(), 200))).unwrap_or_default()
}
