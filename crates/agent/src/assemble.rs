//! Putting a session together.

mod context;
mod flow;
mod records;
mod tools;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use convoke_adk::{InMemorySessionService, LlmAgent, RunConfig, Runner, SessionKey, SessionService, Toolset};
use convoke_models::FallbackPort;
use convoke_protocol::{
    AgentInfo, ApprovalMode, Authenticator, EventLog, HostedSession, NewSession, PermissionPort, SessionError,
    SessionFactory, SessionId, SessionRecords,
};
use convoke_stdx::Clock;
use convoke_tools::{
    BackgroundLimits, BackgroundProcesses, DeclarativeTool, FileWatch, Guards, NobodyWatches, PlanFolder,
    PolicyOptions, SchedulerObserver, SchedulerOptions, SessionPolicy, ToolScheduler, Workspace, WorkspaceOptions,
};
use uuid::Uuid;

use crate::AgentOptions;
use crate::client_files::OpenFiles;
use crate::client_terminals::Terminals;
use crate::context_files::find_context_files;
use crate::control::Control;
use crate::discovered::discover;
use crate::hooks::{NotifyingApprover, SessionHooks, SessionHooksParts, SessionStartSource};
use crate::limits::{Stopwatch, Unhurried};
use crate::mcp::{self, McpToolset, ServersAtHand};
use crate::models::{ModelEvents, ModelPorts, PortFallback, SessionModel};
use crate::modes::{self, ModeNews};
use crate::permission::PortApprover;
use crate::plans;
use crate::prompts::Prompts;
use crate::protocol::{AdkAgentProtocol, Guide, Parts};
use crate::questions::PortQuestioner;
use crate::record::{AGENT as AGENT_NAME, Recorder, state_after};
use crate::rewind::{Keeper, Rewinder};
use crate::subagents::{AgentRegistry, Caller, ChildSeat, RemoteAgents, remote_rules};
use crate::tool_events::{CurrentStream, ToolEvents};
use crate::web::LlmWeb;
use context::SessionContext;
use convoke_mcp::McpServers;
use flow::FlowParts;
use records::{Past, RecordKeeper};
use tools::ToolPorts;

/// Makes a folder where there is none. One that can't be made costs the kept output, not the session.
fn made(folder: &Path) -> bool {
    // What is kept there is what the agent read: nobody else's business.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .inspect_err(|error| tracing::warn!(folder = %folder.display(), %error, "large output will not be kept"))
        .is_ok()
}

/// Makes sessions of our own runtime. Copies make sessions of the same kind, with the same memory of ids.
#[derive(Clone)]
pub struct AgentFactory {
    options: Arc<AgentOptions>,
    sessions: Arc<InMemorySessionService>,
    records: Option<Arc<RecordKeeper>>,
    /// Of the commands of all sessions.
    guards: Guards,
    clock: Clock,
}

/// A session, put together.
pub(crate) struct Assembled {
    pub(crate) id: SessionId,
    pub(crate) protocol: Arc<AdkAgentProtocol>,
    policy: SessionPolicy,
    model: SessionModel,
    background: Arc<BackgroundProcesses>,
    hooks: Arc<SessionHooks>,
    servers: Arc<McpServers>,
    /// Those of a subagent's own, which end with its run.
    pub(crate) own_servers: Option<Arc<McpServers>>,
    sessions: Arc<InMemorySessionService>,
    key: SessionKey,
    outputs: Option<PathBuf>,
    prompts: Arc<Prompts>,
    recorder: Option<Recorder>,
    rewinder: Option<Arc<Rewinder>>,
}

impl Assembled {
    /// Hands it out, with its controls.
    fn host(self) -> HostedSession {
        let Self { id, protocol, policy, model, background, hooks, servers, sessions, key, .. } = self;
        let Self { outputs, prompts, recorder, rewinder, .. } = self;
        let control = Control {
            policy,
            model,
            protocol: protocol.clone(),
            background,
            hooks,
            servers,
            sessions,
            key,
            outputs,
            prompts,
            recorder,
            rewinder,
        };
        HostedSession { id, agent: protocol, control: Arc::new(control) }
    }

    /// Forgets the session when the guard goes.
    pub(crate) fn forget_when_dropped(&self) -> Forgets {
        Forgets { sessions: self.sessions.clone(), key: self.key.clone() }
    }
}

/// Forgets a subagent's session when it is dropped.
pub(crate) struct Forgets {
    sessions: Arc<InMemorySessionService>,
    key: SessionKey,
}

impl Drop for Forgets {
    fn drop(&mut self) {
        self.sessions.delete(&self.key);
    }
}

/// Application name of our sessions; ADK asks for one.
const APP_NAME: &str = "convoke";
/// A process serves one user.
const USER_ID: &str = "user";

impl AgentFactory {
    /// A factory with these options.
    #[must_use]
    pub fn new(options: AgentOptions) -> Self {
        let records = options.records.clone().map(|records| Arc::new(RecordKeeper::new(records)));
        let guards = Guards::new(options.spawner.clone());
        Self { options: Arc::new(options), sessions: Arc::default(), records, guards, clock: Clock::start() }
    }

    pub(crate) fn options(&self) -> &AgentOptions {
        &self.options
    }

    fn workspace(&self, cwd: &Path, more: &[PathBuf], seat: Option<&ChildSeat>) -> Result<Workspace, SessionError> {
        let options = &self.options;
        let unusable = |reason: String| SessionError::Workspace { path: cwd.to_owned(), reason };
        if !cwd.is_absolute() {
            return Err(unusable("it is not an absolute path".to_owned()));
        }
        if !cwd.is_dir() {
            return Err(unusable("it is not a folder".to_owned()));
        }
        let all = WorkspaceOptions {
            cwd: cwd.to_owned(),
            more_roots: options.include_directories.iter().chain(more).cloned().collect(),
            read_roots: options.output_folder.iter().filter(|folder| made(folder)).cloned().collect(),
            home: options.home.clone(),
            filtering: options.tools.filtering,
            kept: Vec::new(),
        };
        let all = match seat {
            Some(seat) => seat.workspace(all, &options.context.names)?,
            None => all,
        };
        Workspace::new(all).map_err(|error| unusable(error.to_string()))
    }

    fn policy(&self, mode: Option<ApprovalMode>, plans: Option<PlanFolder>) -> Result<SessionPolicy, SessionError> {
        let ours = &self.options.policy;
        SessionPolicy::new(PolicyOptions { mode: mode.map_or(ours.mode, modes::to_tools), plans, ..ours.clone() })
            .map_err(|error| SessionError::Failed(error.to_string()))
    }

    fn model(
        &self,
        id: &SessionId,
        permission: &Arc<dyn PermissionPort>,
        events: &Arc<ModelEvents>,
        seat: Option<&ChildSeat>,
    ) -> Result<SessionModel, SessionError> {
        let asker = seat.map(ChildSeat::asker).unwrap_or_default();
        let fallback = self.options.interactive.then(|| PortFallback::new(id.clone(), permission.clone(), asker));
        let notices = events.clone();
        let ports = ModelPorts {
            fallback: fallback.map(|port| Arc::new(port) as Arc<dyn FallbackPort>),
            on_notice: Arc::new(move |notice| notices.on_notice(notice)),
        };
        match seat {
            Some(seat) => seat.caller.model.for_subagent(seat.agent.model.as_deref(), ports),
            None => (self.options.connect)(ports),
        }
    }

    /// A subagent's session for one run.
    pub(crate) fn assemble_run(&self, new: NewSession, seat: &ChildSeat) -> Result<Assembled, SessionError> {
        self.assemble(new, Vec::new(), Past::default(), Some(seat))
    }

    /// Puts a session together; with a seat, a subagent's, which shares what its caller lends it.
    fn assemble(
        &self,
        new: NewSession,
        discovered: Vec<Arc<dyn DeclarativeTool>>,
        past: Past,
        seat: Option<&ChildSeat>,
    ) -> Result<Assembled, SessionError> {
        let NewSession { cwd, additional_directories, session_id, permission, files, terminals, .. } = new;
        let NewSession { approval_mode, mcp_servers, .. } = new;
        let options: &AgentOptions = &self.options;
        let caller = seat.map(|seat| &seat.caller);
        let workspace = self.workspace(&cwd, &additional_directories, seat)?;
        let id = session_id.unwrap_or_else(|| SessionId(Uuid::new_v4().to_string()));
        // People know the outermost session only: questions and files are its own.
        let known_as = caller.map_or_else(|| id.clone(), |caller| caller.session_id.clone());
        let outputs = options.output_folder.as_ref().map(|folder| folder.join(format!("session-{known_as}")));
        // Whoever calls a subagent plans, not the subagent.
        let plans = match caller {
            Some(_) => None,
            None => plans::folder(options, &workspace, outputs.as_deref())?,
        };
        let workspace = match &plans {
            Some(plans) => workspace.with_plans(plans.clone()),
            None => workspace,
        };
        let workspace = Arc::new(match (caller, files) {
            (Some(caller), _) => workspace.with_client_of(&caller.workspace),
            (None, Some(files)) => workspace.with_client_files(Arc::new(OpenFiles(files))),
            (None, None) => workspace,
        });
        let cwd = if seat.is_some() { workspace.cwd().to_owned() } else { cwd };
        let policy = match caller {
            Some(caller) => caller.policy.clone(),
            None => self.policy(approval_mode, plans.clone())?,
        };
        let stream = CurrentStream::default();
        let stopwatch = Stopwatch::new();
        let permission: Arc<dyn PermissionPort> =
            Arc::new(Unhurried { inner: permission, stopwatch: stopwatch.clone() });
        let model_events = Arc::new(ModelEvents::new(stream.clone()));
        let model = self.model(&known_as, &permission, &model_events, seat)?;
        let key = SessionKey { app_name: APP_NAME.to_owned(), user_id: USER_ID.to_owned(), session_id: id.to_string() };
        let Some(live) = self.sessions.create(key.clone(), state_after(&past.events), self.clock.now().wall_ms) else {
            return Err(SessionError::Taken(id));
        };
        live.with(|session| session.events = past.events);
        let goes_on = past.recorder.is_some();
        let keeper = self.records.as_ref();
        let recorder = past.recorder.or_else(|| match seat {
            Some(_) => Some(keeper?.begin_subagent(&known_as, &id, &cwd)),
            None => Some(keeper?.begin(&id, &cwd)),
        });
        let rewinder = match (seat, &recorder, keeper) {
            (None, Some(recorder), Some(keeper)) => {
                let bounds = options.snapshots;
                let files = bounds
                    .and_then(|bounds| Keeper::new(workspace.as_ref().clone(), recorder.clone(), bounds, &past.files));
                Some(Arc::new(Rewinder {
                    records: keeper.records().clone(),
                    recorder: recorder.clone(),
                    keeper: files,
                    cwd: workspace.cwd().to_owned(),
                }))
            }
            _ => None,
        };
        let watch: Arc<dyn FileWatch> = match (caller, rewinder.as_ref().and_then(|rewinder| rewinder.keeper.clone())) {
            (Some(caller), _) => caller.watch.clone(),
            (None, Some(keeper)) => Arc::new(keeper),
            (None, None) => Arc::new(NobodyWatches),
        };
        let background = match caller {
            Some(caller) => caller.background.clone(),
            None => Arc::new(BackgroundProcesses::new(BackgroundLimits::default())),
        };
        // A subagent asks its caller's people through its calls, and nothing else.
        let asks = options.interactive && seat.is_none();
        let news = ModeNews::new(id.0.clone(), stream.clone(), model.clone());
        let ports = ToolPorts {
            questioner: asks.then(|| PortQuestioner::new(id.clone(), permission.clone())),
            stream: stream.clone(),
            plans: plans.clone().and_then(|folder| plans::desk(folder, &policy, news.clone())),
            web: model.steered.clone().map(LlmWeb::new),
            terminals: terminals.filter(|_| options.client_terminals).map(|client| Arc::new(Terminals(client)) as _),
            subagent: seat.map(|seat| seat.definition.name.clone()),
            discovered,
            guards: self.guards.clone(),
        };
        let further = options.include_directories.iter().chain(&additional_directories).cloned();
        let roots: Vec<PathBuf> = std::iter::once(cwd.clone()).chain(further).collect();
        let own_servers = seat.and_then(|seat| {
            mcp::of_definition(options, roots.clone(), &seat.agent.mcp_servers, &seat.caller.server_names())
        });
        // A subagent has the tools of its caller's servers, as far as its definition names them.
        let servers = match caller {
            Some(caller) => caller.servers.clone(),
            None => mcp::servers(options, roots, mcp_servers),
        };
        let registry = tools::registry(options, &policy, &workspace, &background, ports)?;
        if let Some(seat) = seat {
            tools::of_subagent(options, seat, &registry)?;
        }
        let asker = seat.map(ChildSeat::asker).unwrap_or_default();
        let log = caller.map_or_else(EventLog::new, |caller| caller.log.clone());
        // Whom a hook runs for is the session that people know, whichever agent it is about.
        let hooks = match caller {
            Some(caller) => caller.hooks.clone(),
            None => SessionHooks::new(SessionHooksParts {
                options,
                session_id: id.clone(),
                cwd: cwd.clone(),
                transcript: recorder.as_ref().and_then(Recorder::path),
                plans: plans.as_ref().map(|plans| plans.path().to_owned()),
                stream: stream.clone(),
                permission: permission.clone(),
            }),
        };
        let lent = Caller {
            session_id: known_as.clone(),
            folder: caller.map_or_else(|| cwd.clone(), |caller| caller.folder.clone()),
            kept: match seat {
                Some(seat) if seat.agent.writes_memory => seat.caller.kept.clone(),
                Some(_) => options.context.names.clone(),
                None => Vec::new(),
            },
            workspace: workspace.clone(),
            permission: permission.clone(),
            policy: policy.clone(),
            registry: Arc::downgrade(&registry),
            background: background.clone(),
            watch: watch.clone(),
            log: log.clone(),
            hooks: hooks.clone(),
            servers: servers.clone(),
            model: model.clone(),
            agents: match caller {
                Some(caller) => caller.agents.clone(),
                None => {
                    let agents = self.agents(&cwd);
                    remote_rules(&agents).into_iter().for_each(|rule| policy.add_rule(rule));
                    Arc::new(agents)
                }
            },
            remotes: RemoteAgents::default(),
            agreed: caller.map(|caller| caller.agreed.clone()).unwrap_or_default(),
            thread: seat.map(|seat| seat.thread.clone()),
            guide: seat.map(|seat| seat.guide.clone()),
        };
        tools::agents(self, seat, lent, &registry)?;
        let approver = Arc::new(PortApprover::new(known_as, permission, asker));
        let approver = Arc::new(NotifyingApprover::new(approver, hooks.clone()));
        let mut observer: Arc<dyn SchedulerObserver> = Arc::new(ToolEvents::new(stream.clone(), news));
        let mut sessions: Arc<dyn SessionService> = self.sessions.clone();
        if let Some(recorder) = &recorder {
            let stream = stream.clone();
            recorder.on_stopped(move |message| stream.recording_stopped(&message));
            observer = recorder.observer(observer);
            sessions = recorder.sessions(sessions);
        }
        let mut scheduler = SchedulerOptions {
            checkers: tools::checkers(options, &workspace),
            approver,
            observer,
            hooks: hooks.clone(),
            watch,
            truncation: tools::truncation(options, outputs.clone()),
            ..SchedulerOptions::new(registry.clone(), policy.clone())
        };
        if let Some(seat) = seat {
            tools::seat_scheduler(&mut scheduler, seat);
        }
        let dispatcher = Arc::new(ToolScheduler::start(scheduler));
        let (memory, _) = find_context_files(&cwd, &options.context);
        let prompts = Arc::new(Prompts::new(
            &options.prompts,
            options.policy.trusted,
            workspace,
            registry.clone(),
            dispatcher.clone(),
            memory,
            ServersAtHand::new(servers.clone(), options.mcp.wait),
        ));
        let context =
            SessionContext::new(options, &id, &model, hooks.clone(), outputs.clone(), &stream, recorder.as_ref());
        let used = Arc::new(AtomicU64::new(0));
        let flow = FlowParts {
            options,
            cwd: &cwd,
            policy: &policy,
            model: &model,
            hooks: &hooks,
            seat,
            history: &context.history,
            masker: context.masker.as_ref(),
            compressor: &context.compressor,
            used: &used,
        };
        // Its caller's servers are in a subagent's registry already.
        let toolset: Arc<dyn Toolset> = match (seat, &own_servers) {
            (Some(_), None) => registry,
            (Some(_), Some(own)) | (None, Some(own)) => {
                Arc::new(McpToolset::new(options, registry, own.clone(), policy.clone(), stream.clone()))
            }
            (None, None) => {
                Arc::new(McpToolset::new(options, registry, servers.clone(), policy.clone(), stream.clone()))
            }
        };
        let agent = LlmAgent {
            name: seat.map_or(AGENT_NAME, |seat| seat.definition.name.as_str()).to_owned(),
            model: model.llm.clone(),
            processors: flow.processors(),
            toolsets: vec![toolset],
            dispatcher,
        };
        let turns = seat.map_or(options.max_turns, |seat| Some(seat.agent.max_turns));
        let config = RunConfig { max_llm_calls: turns.or(RunConfig::default().max_llm_calls) };
        let runner = Runner::new(agent, sessions, flow.plugins(), config)
            .map_err(|error| SessionError::Failed(error.to_string()))?;
        let protocol = Arc::new(AdkAgentProtocol::new(Parts {
            log,
            runner,
            key: key.clone(),
            model: model.clone(),
            model_events,
            hooks: hooks.clone(),
            start: if goes_on { SessionStartSource::Resume } else { SessionStartSource::Startup },
            stream,
            prompts: prompts.clone(),
            recorder: recorder.clone(),
            rewinder: rewinder.clone(),
            cwd,
            compressor: context.compressor,
            limits: options.limits,
            stopwatch,
            used,
            thread: seat.map(|seat| seat.thread.clone()),
            guide: seat.map(|seat| seat.guide.clone() as Arc<dyn Guide>),
            cancel: seat.map(|seat| seat.cancel.clone()).unwrap_or_default(),
        }));
        Ok(Assembled {
            id,
            protocol,
            policy,
            model,
            background,
            hooks,
            servers,
            own_servers,
            sessions: self.sessions.clone(),
            key,
            outputs,
            prompts,
            recorder,
            rewinder,
        })
    }

    /// The subagents of a session in `cwd`. What is wrong with a definition is told by `convoke agents list`, and here.
    fn agents(&self, cwd: &Path) -> AgentRegistry {
        let registry = AgentRegistry::load(&self.options.subagents, cwd);
        for problem in registry.problems() {
            tracing::warn!(place = problem.place, problem = problem.message, "an agent can't be used");
        }
        registry
    }
}

#[async_trait]
impl SessionFactory for AgentFactory {
    fn info(&self) -> AgentInfo {
        self.options.info.clone()
    }

    fn authenticator(&self) -> Option<&dyn Authenticator> {
        self.options.authenticator.as_deref()
    }

    async fn new_session(&self, new: NewSession) -> Result<HostedSession, SessionError> {
        if let (Some(records), Some(id)) = (&self.records, &new.session_id)
            && records.knows(id).await
        {
            return Err(SessionError::Taken(id.clone()));
        }
        if let Some(records) = &self.records {
            records.finish_rewinds(&new.cwd).await;
        }
        let discovered = discover(&self.options, &new.cwd).await;
        Ok(self.assemble(new, discovered, Past::default(), None)?.host())
    }

    fn records(&self) -> Option<&dyn SessionRecords> {
        self.records.as_ref().map(|_| self as &dyn SessionRecords)
    }
}
