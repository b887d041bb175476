//! The servers of one session: started together, looked up by name, ended together.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use convoke_stdx::guard::Spawner;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::{CallError, Progress};
use crate::catalogue::{TOOLS_MAX, ToolInfo};
use crate::client::Client;
use crate::names::NameBook;
use crate::server::{Actor, Snapshot};
use crate::{Annotations, Answer, PromptInfo, ResourceInfo, ServerConfig};

/// Servers of one session: each is a process or a connection.
const SERVERS_MAX: usize = 64;

/// What servers are run with.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// How children are started.
    pub spawner: Spawner,
    /// Environment variables that no child sees, unless its configuration sets them.
    pub secret_variables: Vec<String>,
    /// The workspace's folders; children run in the first one.
    pub roots: Vec<PathBuf>,
    /// Our name and version.
    pub client: (String, String),
    /// The file with the tokens of those who logged in; none are used otherwise.
    pub tokens: Option<PathBuf>,
}

/// What every connection needs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) spawner: Spawner,
    pub(crate) secret_variables: Vec<String>,
    pub(crate) roots: Arc<[PathBuf]>,
    pub(crate) client: (String, String),
    pub(crate) tokens: Option<PathBuf>,
}

/// Where a server stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerState {
    /// Nobody asked for it yet.
    #[default]
    Idle,
    /// On its way.
    Connecting,
    /// There.
    Ready,
    /// It went, and is started again in a while.
    Waiting {
        /// Which try it will be.
        attempt: usize,
        /// Of how many.
        of: usize,
    },
    /// Given up.
    Failed,
    /// Ended.
    Closed,
}

/// A server, for people.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub how: String,
    /// What it is for.
    pub description: Option<String>,
    /// Where it stands.
    pub state: ServerState,
    /// Why it is not there.
    pub reason: Option<String>,
    /// It wants a token.
    pub needs_login: bool,
    /// Its own name and version.
    pub server: String,
    /// The protocol that is spoken.
    pub protocol: String,
    /// Its tools that are offered.
    pub tools: usize,
    /// It has more tools than are taken of one server; how many that is.
    pub tools_cut_at: Option<usize>,
    /// Its prompts.
    pub prompts: usize,
    /// Its resources.
    pub resources: usize,
}

/// A server that is not there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its name.
    pub server: String,
}

/// One server, from outside of its task.
struct Entry {
    config: Arc<ServerConfig>,
    snapshot: watch::Receiver<Snapshot>,
    look: Arc<Notify>,
    /// Taken by the task when it starts.
    actor: Mutex<Option<Actor>>,
}

/// The servers of one session.
pub struct McpServers {
    entries: Vec<Arc<Entry>>,
    tasks: Mutex<JoinSet<()>>,
    close: CancellationToken,
    names: Mutex<NameBook>,
    revision: watch::Receiver<u64>,
}

/// A tool of a server, as it is offered here.
#[derive(Clone)]
pub struct McpTool {
    /// What it is called here.
    pub name: String,
    /// Its server.
    pub server: String,
    /// What its server calls it.
    pub tool: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it does, in its server's words.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
    /// What its server says of its effects.
    pub annotations: Annotations,
    /// The user trusts the server.
    pub trusted: bool,
    entry: Arc<Entry>,
}

/// A prompt and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpPrompt {
    /// Its server.
    pub server: String,
    /// The prompt.
    pub prompt: PromptInfo,
}

/// A resource and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpResource {
    /// Its server.
    pub server: String,
    /// The resource.
    pub resource: ResourceInfo,
}

impl McpServers {
    /// The servers of `configs`; none of them runs before [`Self::start`].
    #[must_use]
    pub fn new(options: McpOptions, configs: Vec<ServerConfig>) -> Self {
        let McpOptions { spawner, secret_variables, roots, client, tokens } = options;
        let context = Arc::new(Context { spawner, secret_variables, roots: roots.into(), client, tokens });
        let (revision, revised) = watch::channel(0);
        let revision = Arc::new(revision);
        if configs.len() > SERVERS_MAX {
            tracing::warn!(max = SERVERS_MAX, "there are too many MCP servers; the last ones are left out");
        }
        let entry = |config: ServerConfig| {
            let config = Arc::new(config);
            let (publish, snapshot) = watch::channel(Snapshot::default());
            let look = Arc::<Notify>::default();
            let actor = Actor::new(config.clone(), context.clone(), publish, revision.clone(), look.clone());
            Arc::new(Entry { config, snapshot, look, actor: Mutex::new(Some(actor)) })
        };
        Self {
            entries: configs.into_iter().take(SERVERS_MAX).map(entry).collect(),
            tasks: Mutex::default(),
            close: CancellationToken::new(),
            names: Mutex::default(),
            revision: revised,
        }
    }

    /// Whether there is no server at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Starts all servers, side by side. Called again it does nothing.
    pub fn start(&self) {
        if self.close.is_cancelled() {
            return;
        }
        let mut tasks = lock(&self.tasks);
        for entry in &self.entries {
            if let Some(actor) = lock(&entry.actor).take() {
                tasks.spawn(actor.run(self.close.clone()));
            }
        }
    }

    /// Lets servers that want a login look whether there was one since; those that find a token connect.
    pub fn look_for_logins(&self) {
        for entry in &self.entries {
            let snapshot = entry.snapshot.borrow();
            if snapshot.needs_login && snapshot.state == ServerState::Failed {
                entry.look.notify_one();
            }
        }
    }

    /// Waits until every server is there or has failed, at most for `at_most`; gives those that are on their way still.
    pub async fn settled(&self, at_most: Duration) -> Vec<Pending> {
        let mut revision = self.revision.clone();
        let all = async {
            while !self.pending().is_empty() {
                // The senders live as long as the tasks; without them nothing changes any more.
                if revision.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(at_most, all).await;
        self.pending()
    }

    fn pending(&self) -> Vec<Pending> {
        let on_their_way = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.snapshot.borrow().state, ServerState::Idle | ServerState::Connecting));
        on_their_way.map(|entry| Pending { server: entry.config.name.clone() }).collect()
    }

    /// A number that grows with every change of a server's state or lists.
    #[must_use]
    pub fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// The tools of all servers that are there, in the order of their configuration.
    #[must_use]
    pub fn tools(&self) -> Vec<McpTool> {
        let mut names = lock(&self.names);
        let mut tools = Vec::new();
        for entry in &self.entries {
            let snapshot = entry.snapshot.borrow().clone();
            if snapshot.client.is_none() {
                continue;
            }
            for tool in entry.offered(&snapshot) {
                let Some(name) = names.name(&entry.config.name, &tool.name) else { continue };
                tools.push(McpTool {
                    name,
                    server: entry.config.name.clone(),
                    tool: tool.name.clone(),
                    title: tool.title.clone(),
                    description: tool.description.clone(),
                    schema: tool.schema.clone(),
                    annotations: tool.annotations,
                    trusted: entry.config.trust,
                    entry: entry.clone(),
                });
            }
        }
        tools
    }

    /// The prompts of all servers that are there.
    #[must_use]
    pub fn prompts(&self) -> Vec<McpPrompt> {
        let of = |entry: &Arc<Entry>| {
            let prompts = entry.ready().map(|(_, snapshot)| snapshot.catalogue.prompts.clone()).unwrap_or_default();
            let server = entry.config.name.clone();
            prompts.into_iter().map(move |prompt| McpPrompt { server: server.clone(), prompt }).collect::<Vec<_>>()
        };
        self.entries.iter().flat_map(of).collect()
    }

    /// The resources of all servers that are there, or of one.
    #[must_use]
    pub fn resources(&self, server: Option<&str>) -> Vec<McpResource> {
        let wanted = self.entries.iter().filter(|entry| server.is_none_or(|name| name == entry.config.name));
        let of = |entry: &Arc<Entry>| {
            let resources = entry.ready().map(|(_, snapshot)| snapshot.catalogue.resources.clone()).unwrap_or_default();
            let server = entry.config.name.clone();
            resources
                .into_iter()
                .map(move |resource| McpResource { server: server.clone(), resource })
                .collect::<Vec<_>>()
        };
        wanted.flat_map(of).collect()
    }

    /// Renders a prompt of a server.
    pub async fn prompt(&self, server: &str, name: &str, arguments: Map<String, Value>) -> Result<Answer, CallError> {
        self.client(server)?.prompt(name, arguments).await
    }

    /// The server of a resource: `SERVER:URI`, or the address alone if it is in a server's list.
    #[must_use]
    pub fn find_resource(&self, reference: &str) -> Option<(String, String)> {
        let named = self.entries.iter().find_map(|entry| {
            let uri = reference.strip_prefix(entry.config.name.as_str())?.strip_prefix(':')?;
            (!uri.is_empty()).then(|| (entry.config.name.clone(), uri.to_owned()))
        });
        named.or_else(|| {
            let listed = self.resources(None).into_iter().find(|listed| listed.resource.uri == reference)?;
            Some((listed.server, listed.resource.uri))
        })
    }

    /// Reads a resource of a server.
    pub async fn read_resource(&self, server: &str, uri: &str) -> Result<Answer, CallError> {
        self.client(server)?.resource(uri).await
    }

    /// What the servers say about how they are to be used.
    #[must_use]
    pub fn instructions(&self) -> Vec<(String, String)> {
        let told = self.entries.iter().filter_map(|entry| {
            let (_, snapshot) = entry.ready()?;
            Some((entry.config.name.clone(), snapshot.about.instructions?))
        });
        told.collect()
    }

    /// Where all servers stand.
    #[must_use]
    pub fn reports(&self) -> Vec<ServerReport> {
        self.entries.iter().map(|entry| entry.report()).collect()
    }

    /// Ends all servers and waits for their ends, which are bounded.
    pub async fn close(&self) {
        self.close.cancel();
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }

    fn client(&self, server: &str) -> Result<Client, CallError> {
        let entry = self.entries.iter().find(|entry| entry.config.name == server);
        match entry {
            Some(entry) => entry.client(),
            None => Err(CallError::Gone { server: server.to_owned(), reason: "there is none of that name".to_owned() }),
        }
    }
}

impl Drop for McpServers {
    fn drop(&mut self) {
        self.close.cancel();
    }
}

impl Entry {
    fn ready(&self) -> Option<(Client, Snapshot)> {
        let snapshot = self.snapshot.borrow().clone();
        Some((snapshot.client.clone()?, snapshot))
    }

    fn client(&self) -> Result<Client, CallError> {
        let snapshot = self.snapshot.borrow();
        let gone = |reason: String| CallError::Gone { server: self.config.name.clone(), reason };
        match (&snapshot.client, snapshot.state) {
            (Some(client), _) => Ok(client.clone()),
            (None, ServerState::Waiting { .. }) => Err(gone("it ended and is being started again".to_owned())),
            (None, ServerState::Idle | ServerState::Connecting) => Err(gone("it is on its way".to_owned())),
            (None, _) => Err(gone(snapshot.reason.clone().unwrap_or_else(|| "it was ended".to_owned()))),
        }
    }

    fn offered<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ToolInfo> {
        snapshot.catalogue.tools.iter().filter(|tool| self.config.filter.admits(&tool.name))
    }

    fn report(&self) -> ServerReport {
        let snapshot = self.snapshot.borrow().clone();
        ServerReport {
            name: self.config.name.clone(),
            how: self.config.shown(),
            description: self.config.description.clone(),
            state: snapshot.state,
            needs_login: snapshot.needs_login,
            server: [snapshot.about.name.as_str(), snapshot.about.version.as_str()].join(" ").trim().to_owned(),
            protocol: snapshot.about.protocol.clone(),
            tools: self.offered(&snapshot).count(),
            tools_cut_at: snapshot.catalogue.too_many_tools.then_some(TOOLS_MAX),
            prompts: snapshot.catalogue.prompts.len(),
            resources: snapshot.catalogue.resources.len(),
            reason: snapshot.reason,
        }
    }
}

impl McpTool {
    /// Calls it with `arguments`.
    ///
    /// Cancellation: the server is told, and this returns at once. `on_progress` must not block.
    pub async fn call(
        &self,
        arguments: Map<String, Value>,
        cancel: &CancellationToken,
        on_progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> Result<Answer, CallError> {
        let client = self.entry.client()?;
        client.call(&self.tool, arguments, cancel, Arc::new(on_progress)).await
    }
}

impl std::fmt::Debug for McpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpTool").field("name", &self.name).field("server", &self.server).finish_non_exhaustive()
    }
}

impl PartialEq for McpTool {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.description == other.description
            && self.title == other.title
            && self.schema == other.schema
            && self.annotations == other.annotations
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
