//! The MCP servers of a session: when do they start, and how do their tools get to the registry?
//!
//! Servers start with the first request of a session, side by side, and hold it up by [`McpSettings::wait`] at most. A
//! server that comes later adds its tools before the next request of the same turn. Either is told.

mod at_hand;
mod prompts;
mod resources;
mod tool;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{InvocationContext, Tool, Toolset};
use convoke_mcp::{McpOptions, McpServers, McpTool, Selection, ServerConfig, ServerReport, ServerState};
use convoke_protocol::{AgentEventBody, SessionServer};
use convoke_tools::policy::{Decision, Priority, Rule, Source, Tier, ToolPattern};
use convoke_tools::{SessionPolicy, ToolRegistry};
use serde_json::{Map, Value, json};

use crate::AgentOptions;
use crate::tool_events::CurrentStream;

pub(crate) use at_hand::ServersAtHand;

/// How long the first request waits for servers, unless settings say otherwise.
const WAIT: Duration = Duration::from_secs(5);
/// The rank of a trusted server's tools among the user's rules. Source: runtime specification §6.6.
const TRUSTED: u16 = 200;

/// Which MCP servers sessions have.
#[derive(Clone, Debug)]
pub struct McpSettings {
    /// The servers that every session has, the foremost of a name first.
    pub servers: Vec<ServerConfig>,
    /// Which of them may be used, and which of those that a client brings.
    pub selection: Selection,
    /// How long the first request of a session waits for them.
    pub wait: Duration,
    /// The file with the tokens of servers that were logged in to.
    pub tokens: Option<PathBuf>,
}

impl Default for McpSettings {
    fn default() -> Self {
        Self { servers: Vec::new(), selection: Selection::default(), wait: WAIT, tokens: None }
    }
}

/// The servers of a session: those of the options, and behind them those that its client brought.
pub(crate) fn servers(options: &AgentOptions, roots: Vec<PathBuf>, brought: Vec<SessionServer>) -> Arc<McpServers> {
    let brought = brought.iter().filter_map(|server| untrusted(&server.name, &server.config, "the client")).collect();
    let mut configs = convoke_mcp::merge([options.mcp.servers.clone(), brought]);
    configs.retain(|config| options.mcp.selection.admits(&config.name));
    Arc::new(McpServers::new(mcp_options(options, roots), configs))
}

/// The servers that a subagent's definition brings, for the time of a run; none otherwise.
///
/// One whose name is among `taken` is left out: rules and answers are about names, and what was allowed for the server that
/// people know would hold for this one.
pub(crate) fn of_definition(
    options: &AgentOptions,
    roots: Vec<PathBuf>,
    brought: &Map<String, Value>,
    taken: &HashSet<String>,
) -> Option<Arc<McpServers>> {
    let is_free = |(name, _): &(&String, &Value)| {
        let is_taken = taken.contains(name.as_str());
        if is_taken {
            tracing::warn!(server = %name, "a server of a subagent is left out: its caller has one of that name");
        }
        !is_taken
    };
    let read = |(name, entry): (&String, &Value)| {
        untrusted(name, &in_camel_case(entry), "a subagent").filter(|config| options.mcp.selection.admits(&config.name))
    };
    let configs: Vec<ServerConfig> = brought.iter().filter(is_free).filter_map(read).collect();
    if configs.is_empty() {
        return None;
    }
    Some(Arc::new(McpServers::new(mcp_options(options, roots), configs)))
}

/// A server that `whose` brings. Who brings it is not the user, so its word that it is trusted counts for nothing.
fn untrusted(name: &str, entry: &Value, whose: &str) -> Option<ServerConfig> {
    ServerConfig::parse(name, entry)
        .map(|config| ServerConfig { trust: false, ..config })
        .inspect_err(|error| tracing::warn!(%error, whose, "a server that was brought is left out"))
        .ok()
}

/// What all servers of a session have in common.
fn mcp_options(options: &AgentOptions, roots: Vec<PathBuf>) -> McpOptions {
    McpOptions {
        spawner: options.spawner.clone(),
        secret_variables: options.secret_variables.clone(),
        roots,
        client: (options.info.name.clone(), options.info.version.clone()),
        tokens: options.mcp.tokens.clone(),
    }
}

/// Keys as settings write them: definitions have `include_tools` where settings have `includeTools`.
fn in_camel_case(entry: &Value) -> Value {
    let Value::Object(entry) = entry else { return entry.clone() };
    let renamed = |key: &str| match key {
        "http_url" => "httpUrl".to_owned(),
        "include_tools" => "includeTools".to_owned(),
        "exclude_tools" => "excludeTools".to_owned(),
        other => other.to_owned(),
    };
    Value::Object(entry.iter().map(|(key, value)| (renamed(key), value.clone())).collect())
}

/// The registry, with the tools of servers as they come and go.
pub(crate) struct McpToolset {
    registry: Arc<ToolRegistry>,
    servers: Arc<McpServers>,
    policy: SessionPolicy,
    trusted: bool,
    stream: CurrentStream,
    wait: Duration,
    waited: AtomicBool,
    state: Mutex<Known>,
}

/// What was taken over from the servers so far.
#[derive(Default)]
struct Known {
    revision: Option<u64>,
    /// Registered tools by their names here; bounded by the registry.
    tools: HashMap<String, McpTool>,
    /// The last state of each server that was told.
    told: HashMap<String, ServerState>,
    /// Servers of which a person knows that they are not there.
    absent: HashSet<String>,
    resources: bool,
}

impl McpToolset {
    pub(crate) fn new(
        options: &AgentOptions,
        registry: Arc<ToolRegistry>,
        servers: Arc<McpServers>,
        policy: SessionPolicy,
        stream: CurrentStream,
    ) -> Self {
        Self {
            registry,
            servers,
            policy,
            trusted: options.policy.trusted,
            stream,
            wait: options.mcp.wait,
            waited: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Makes the registry hold what the servers offer now.
    fn take_over(&self) {
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = self.servers.revision();
        if known.revision == Some(revision) {
            return;
        }
        known.revision = Some(revision);
        let offered = self.servers.tools();
        let gone: Vec<String> = known
            .tools
            .iter()
            .filter(|(name, tool)| !offered.iter().any(|other| other.name == **name && other == *tool))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            known.tools.remove(&name);
            self.registry.remove(&name);
        }
        for tool in offered {
            if known.tools.contains_key(&tool.name) {
                continue;
            }
            if tool.trusted && self.trusted {
                self.policy.add_rule(trust(&tool));
            }
            match self.registry.register(Arc::new(tool::ServerTool::new(tool.clone()))) {
                Ok(()) => _ = known.tools.insert(tool.name.clone(), tool),
                Err(error) => tracing::warn!(%error, "a tool of an MCP server is not offered"),
            }
        }
        if !known.resources && !self.servers.resources(None).is_empty() {
            known.resources = true;
            for tool in resources::tools(&self.servers) {
                if let Err(error) = self.registry.register(tool) {
                    tracing::warn!(%error, "a tool for MCP resources is not offered");
                }
            }
        }
        self.tell(&mut known);
    }

    /// Tells what changed about the servers since it was last told.
    fn tell(&self, known: &mut Known) {
        let Some(emitter) = self.stream.get() else { return };
        for report in self.servers.reports() {
            if known.told.get(&report.name) == Some(&report.state) {
                continue;
            }
            known.told.insert(report.name.clone(), report.state);
            if report.state == ServerState::Idle {
                continue;
            }
            let state = state_name(&report);
            let data = json!({
                "server": report.name,
                "state": state,
                "reason": report.reason,
                "tools": report.tools,
                "prompts": report.prompts,
                "resources": report.resources,
            });
            emitter.emit(AgentEventBody::Custom { kind: "mcp_server".to_owned(), data: Some(data) });
            // Once for each time that it goes: the tries to come say nothing new.
            let absent = report.state != ServerState::Ready;
            let noted = absent && !known.absent.insert(report.name.clone());
            if !absent {
                known.absent.remove(&report.name);
            }
            if let Some(message) = notice(&report, self.wait).filter(|_| !noted) {
                let data = json!({"severity": "warning", "code": "MCP_SERVER", "message": message});
                emitter.emit(AgentEventBody::Custom { kind: "notice".to_owned(), data: Some(data) });
            }
        }
    }
}

/// What a person should know of a server that is not there, or not with all that it has.
fn notice(report: &ServerReport, waited: Duration) -> Option<String> {
    let name = &report.name;
    let reason = report.reason.as_deref().unwrap_or("it gave no reason").replace('\n', " ");
    match report.state {
        ServerState::Idle | ServerState::Closed => None,
        ServerState::Ready => report
            .tools_cut_at
            .map(|max| format!("the MCP server \"{name}\" has more than {max} tools; the rest is left out")),
        ServerState::Connecting => Some(format!(
            "the MCP server \"{name}\" did not answer within {} s; going on without it until it does",
            waited.as_secs_f64()
        )),
        ServerState::Waiting { .. } => {
            Some(format!("the MCP server \"{name}\" is not there: {reason}; it is tried again"))
        }
        ServerState::Failed => Some(format!("the MCP server \"{name}\" is not there: {reason}")),
    }
}

/// What people know a server's state by.
fn state_name(report: &ServerReport) -> &'static str {
    match report.state {
        ServerState::Idle => "idle",
        ServerState::Connecting => "connecting",
        ServerState::Ready => "connected",
        ServerState::Waiting { .. } => "restarting",
        ServerState::Failed if report.needs_login => "needs_login",
        ServerState::Failed => "failed",
        ServerState::Closed => "closed",
    }
}

/// The user's trust in a server, as a rule about one of its tools. Names are exact: nothing is read out of a name.
fn trust(tool: &McpTool) -> Rule {
    let priority = Priority::new(Tier::User, TRUSTED);
    Rule::new(ToolPattern::Exact(tool.name.clone()), Decision::Allow, priority, Source::Named("mcpServers trust"))
}

#[async_trait]
impl Toolset for McpToolset {
    async fn tools(&self, cx: &InvocationContext) -> Vec<Arc<dyn Tool>> {
        if !self.servers.is_empty() {
            self.servers.start();
            self.servers.look_for_logins();
            // Once a session: whoever was too slow then is not waited for again.
            if !self.waited.swap(true, Ordering::Relaxed) {
                tokio::select! {
                    late = self.servers.settled(self.wait) => for server in late {
                        tracing::warn!(server = %server.server, waited = ?self.wait, "an MCP server is late");
                    },
                    () = cx.cancel.cancelled() => {}
                }
            }
            self.take_over();
        }
        self.registry.tools(cx).await
    }
}
