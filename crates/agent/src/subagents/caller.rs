//! What a session hands down to the subagents that it calls.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use convoke_mcp::McpServers;
use convoke_protocol::{EventLog, PermissionPort, SessionError, SessionId};
use convoke_tools::{
    Access, BackgroundProcesses, DeclarativeTool, FileWatch, Kind, SessionPolicy, ToolRegistry, Workspace,
    WorkspaceOptions,
};
use tokio_util::sync::CancellationToken;

use super::a2a::RemoteAgents;
use super::definition::{AgentDefinition, LocalAgent};
use super::guide::RunGuide;
use super::registry::AgentRegistry;
use super::thread::{Asker, Thread};
use crate::hooks::SessionHooks;
use crate::models::SessionModel;

/// Tools that belong to the session's own agent: they speak for the session, or to its people.
const NOT_FOR_SUBAGENTS: [&str; 4] = ["update_topic", "ask_user", "enter_plan_mode", "exit_plan_mode"];

/// A session that calls subagents.
pub(crate) struct Caller {
    /// The session that people know: the outermost one.
    pub(crate) session_id: SessionId,
    /// The folder that it was opened in.
    pub(crate) folder: PathBuf,
    pub(crate) workspace: Arc<Workspace>,
    /// Names of context files that it may not write.
    pub(crate) kept: Vec<String>,
    pub(crate) permission: Arc<dyn PermissionPort>,
    pub(crate) policy: SessionPolicy,
    /// Not owned: the tool that calls is one of its tools.
    pub(crate) registry: Weak<ToolRegistry>,
    pub(crate) background: Arc<BackgroundProcesses>,
    /// Who keeps what calls change.
    pub(crate) watch: Arc<dyn FileWatch>,
    pub(crate) log: EventLog,
    pub(crate) hooks: Arc<SessionHooks>,
    pub(crate) servers: Arc<McpServers>,
    pub(crate) model: SessionModel,
    pub(crate) agents: Arc<AgentRegistry>,
    /// Its conversations with agents elsewhere.
    pub(crate) remotes: RemoteAgents,
    /// Hashes of workspace agents that were agreed to for this session; at most as many as there are agents.
    pub(crate) agreed: Arc<Mutex<HashSet<String>>>,
    pub(crate) thread: Option<Arc<Thread>>,
    pub(crate) guide: Option<Arc<RunGuide>>,
}

impl Caller {
    /// How many subagents led here.
    pub(crate) fn depth(&self) -> usize {
        self.thread.as_ref().map_or(0, |thread| thread.path().len())
    }

    pub(crate) fn asker(&self) -> Asker {
        match (&self.thread, &self.guide) {
            (Some(thread), Some(guide)) => Asker::subagent(Arc::clone(thread), Arc::clone(guide)),
            _ => Asker::default(),
        }
    }

    /// The MCP servers that people know by these names: the session's, and those of the runs that lead here.
    pub(crate) fn server_names(&self) -> HashSet<String> {
        let tools = self.registry.upgrade().map(|registry| registry.all()).unwrap_or_default();
        let of_tools = tools.iter().filter_map(|tool| tool.origin().map(|origin| origin.server.clone()));
        self.servers.reports().into_iter().map(|report| report.name).chain(of_tools).collect()
    }

    pub(crate) fn has_agreed(&self, hash: &str) -> bool {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).contains(hash)
    }

    pub(crate) fn agree(&self, hash: &str) {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.to_owned());
    }
}

/// Where a session comes to life: on its own, or as the run of a subagent.
pub(crate) struct ChildSeat {
    pub(crate) caller: Arc<Caller>,
    pub(crate) definition: Arc<AgentDefinition>,
    pub(crate) agent: LocalAgent,
    pub(crate) thread: Arc<Thread>,
    pub(crate) guide: Arc<RunGuide>,
    pub(crate) cancel: CancellationToken,
    pub(crate) instruction: String,
}

impl ChildSeat {
    pub(crate) fn asker(&self) -> Asker {
        Asker::subagent(Arc::clone(&self.thread), Arc::clone(&self.guide))
    }

    /// The folders of the run: its caller's, or those of them that its definition names. Context files are its caller's:
    /// it reads them, and writes them only where the definition and every caller allow it.
    pub(crate) fn workspace(&self, all: WorkspaceOptions, memory: &[String]) -> Result<WorkspaceOptions, SessionError> {
        let caller = &self.caller;
        let kept = if self.agent.writes_memory { caller.kept.clone() } else { memory.to_vec() };
        let all = WorkspaceOptions { cwd: caller.workspace.cwd().to_owned(), kept, ..all };
        if self.agent.directories.is_empty() {
            let more_roots = caller.workspace.roots().iter().skip(1).cloned().collect();
            return Ok(WorkspaceOptions { more_roots, ..all });
        }
        let mut roots = Vec::new();
        for folder in &self.agent.directories {
            let unusable = |reason: String| SessionError::Workspace { path: folder.clone(), reason };
            let text = folder.to_string_lossy();
            let real = caller.workspace.resolve(&text, Access::Write).map_err(|error| unusable(error.to_string()))?;
            if !real.as_path().is_dir() {
                return Err(unusable("it is not a folder".to_owned()));
            }
            roots.push(real.as_path().to_owned());
        }
        let cwd = roots.remove(0);
        Ok(WorkspaceOptions { cwd, more_roots: roots, ..all })
    }

    /// Makes `registry`, which has the built-in tools of the run's workspace, what the definition allows: of its caller's
    /// tools those that it names. Agents call no agents unless the tool for it is registered afterwards.
    pub(crate) fn choose_tools(&self, registry: &ToolRegistry) -> Result<(), SessionError> {
        let wanted = |tool: &dyn DeclarativeTool| {
            self.agent.may_call(tool.name()) && tool.kind() != Kind::Agent && !NOT_FOR_SUBAGENTS.contains(&tool.name())
        };
        let of_caller = self.caller.registry.upgrade().map(|registry| registry.all()).unwrap_or_default();
        for tool in registry.all() {
            if !wanted(tool.as_ref()) || !of_caller.iter().any(|theirs| theirs.name() == tool.name()) {
                registry.remove(tool.name());
            }
        }
        for tool in of_caller {
            if wanted(tool.as_ref()) && registry.get(tool.name()).is_none() && tool.name() != super::COMPLETE_TASK {
                registry.register(tool).map_err(|error| SessionError::Failed(error.to_string()))?;
            }
        }
        Ok(())
    }
}
