//! Putting a session together.

mod context;
mod flow;
mod records;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use convoke_adk::{InMemorySessionService, LlmAgent, RunConfig, Runner, SessionKey, SessionService};
use convoke_models::FallbackPort;
use convoke_protocol::{
    AgentInfo, ApprovalMode, Authenticator, EventLog, HostedSession, NewSession, PermissionPort, SessionError,
    SessionFactory, SessionId, SessionRecords,
};
use convoke_stdx::Clock;
use convoke_tools::{
    BackgroundLimits, BackgroundProcesses, DeclarativeTool, PolicyOptions, SchedulerObserver, SessionPolicy, Workspace,
    WorkspaceOptions,
};
use uuid::Uuid;

use crate::AgentOptions;
use crate::client_files::OpenFiles;
use crate::context_files::find_context_files;
use crate::control::Control;
use crate::discovered::discover;
use crate::hooks::{NotifyingApprover, SessionHooks, SessionHooksParts, SessionStartSource};
use crate::limits::{Stopwatch, Unhurried};
use crate::mcp::{self, McpToolset, ServersAtHand};
use crate::models::{ModelEvents, ModelPorts, PortFallback, SessionModel};
use crate::modes;
use crate::permission::PortApprover;
use crate::prompts::Prompts;
use crate::protocol::{AdkAgentProtocol, Parts};
use crate::questions::PortQuestioner;
use crate::record::{AGENT as AGENT_NAME, Recorder, state_after};
use crate::tool_events::{CurrentStream, ToolEvents};
use crate::web::LlmWeb;
use context::SessionContext;
use flow::FlowParts;
use records::{Past, RecordKeeper};
use tools::ToolPorts;

/// Makes a folder where there is none. One that can't be made costs the kept output, not the session.
fn made(folder: &Path) -> bool {
    std::fs::create_dir_all(folder)
        .inspect_err(|error| tracing::warn!(folder = %folder.display(), %error, "large output will not be kept"))
        .is_ok()
}

/// Makes sessions of our own runtime.
pub struct AgentFactory {
    options: AgentOptions,
    sessions: Arc<InMemorySessionService>,
    records: Option<RecordKeeper>,
    clock: Clock,
}

/// Application name of our sessions; ADK asks for one.
const APP_NAME: &str = "convoke";
/// A process serves one user.
const USER_ID: &str = "user";

impl AgentFactory {
    /// A factory with these options.
    #[must_use]
    pub fn new(options: AgentOptions) -> Self {
        let records = options.records.clone().map(RecordKeeper::new);
        Self { options, sessions: Arc::default(), records, clock: Clock::start() }
    }

    fn workspace(&self, cwd: &Path, more: &[PathBuf]) -> Result<Workspace, SessionError> {
        let options = &self.options;
        let unusable = |reason: String| SessionError::Workspace { path: cwd.to_owned(), reason };
        if !cwd.is_absolute() {
            return Err(unusable("it is not an absolute path".to_owned()));
        }
        if !cwd.is_dir() {
            return Err(unusable("it is not a folder".to_owned()));
        }
        Workspace::new(WorkspaceOptions {
            cwd: cwd.to_owned(),
            more_roots: options.include_directories.iter().chain(more).cloned().collect(),
            read_roots: options.output_folder.iter().filter(|folder| made(folder)).cloned().collect(),
            home: options.home.clone(),
            filtering: options.tools.filtering,
        })
        .map_err(|error| unusable(error.to_string()))
    }

    fn policy(&self, mode: Option<ApprovalMode>) -> Result<SessionPolicy, SessionError> {
        let ours = &self.options.policy;
        SessionPolicy::new(PolicyOptions { mode: mode.map_or(ours.mode, modes::to_tools), ..ours.clone() })
            .map_err(|error| SessionError::Failed(error.to_string()))
    }

    fn model(
        &self,
        id: &SessionId,
        permission: &Arc<dyn PermissionPort>,
        events: &Arc<ModelEvents>,
    ) -> Result<SessionModel, SessionError> {
        let fallback = self.options.interactive.then(|| PortFallback::new(id.clone(), permission.clone()));
        let notices = events.clone();
        (self.options.connect)(ModelPorts {
            fallback: fallback.map(|port| Arc::new(port) as Arc<dyn FallbackPort>),
            on_notice: Arc::new(move |notice| notices.on_notice(notice)),
        })
    }

    fn assemble(
        &self,
        new: NewSession,
        discovered: Vec<Arc<dyn DeclarativeTool>>,
        past: Past,
    ) -> Result<HostedSession, SessionError> {
        let NewSession { cwd, additional_directories, session_id, permission, files, approval_mode, mcp_servers } = new;
        let options = &self.options;
        let workspace = self.workspace(&cwd, &additional_directories)?;
        let workspace = Arc::new(match files {
            Some(files) => workspace.with_client_files(Arc::new(OpenFiles(files))),
            None => workspace,
        });
        let policy = self.policy(approval_mode)?;
        let id = session_id.unwrap_or_else(|| SessionId(Uuid::new_v4().to_string()));
        let stream = CurrentStream::default();
        let stopwatch = Stopwatch::new();
        let permission: Arc<dyn PermissionPort> =
            Arc::new(Unhurried { inner: permission, stopwatch: stopwatch.clone() });
        let model_events = Arc::new(ModelEvents::new(stream.clone()));
        let model = self.model(&id, &permission, &model_events)?;
        let key = SessionKey { app_name: APP_NAME.to_owned(), user_id: USER_ID.to_owned(), session_id: id.to_string() };
        let Some(live) = self.sessions.create(key.clone(), state_after(&past.events), self.clock.now().wall_ms) else {
            return Err(SessionError::Taken(id));
        };
        live.with(|session| session.events = past.events);
        let goes_on = past.recorder.is_some();
        let recorder = past.recorder.or_else(|| Some(self.records.as_ref()?.begin(&id, &cwd)));
        let background = Arc::new(BackgroundProcesses::new(BackgroundLimits::default()));
        let ports = ToolPorts {
            questioner: options.interactive.then(|| PortQuestioner::new(id.clone(), permission.clone())),
            stream: stream.clone(),
            web: model.steered.clone().map(LlmWeb::new),
            discovered,
        };
        let further = options.include_directories.iter().chain(&additional_directories).cloned();
        let roots = std::iter::once(cwd.clone()).chain(further).collect();
        let servers = mcp::servers(options, roots, mcp_servers);
        let registry = tools::registry(options, &policy, &workspace, &background, ports)?;
        let outputs = options.output_folder.as_ref().map(|folder| folder.join(format!("session-{id}")));
        let hooks = SessionHooks::new(SessionHooksParts {
            options,
            session_id: id.clone(),
            cwd: cwd.clone(),
            transcript: recorder.as_ref().and_then(Recorder::path),
            stream: stream.clone(),
            permission: permission.clone(),
        });
        let approver = Arc::new(PortApprover::new(id.clone(), permission));
        let approver = Arc::new(NotifyingApprover::new(approver, hooks.clone()));
        let mut observer: Arc<dyn SchedulerObserver> = Arc::new(ToolEvents::new(stream.clone()));
        let mut sessions: Arc<dyn SessionService> = self.sessions.clone();
        if let Some(recorder) = &recorder {
            let stream = stream.clone();
            recorder.on_stopped(move |message| stream.recording_stopped(&message));
            observer = recorder.observer(observer);
            sessions = recorder.sessions(sessions);
        }
        let truncation = tools::truncation(options, outputs.clone());
        let dispatcher = tools::scheduler(
            tools::checkers(options, &workspace),
            &policy,
            &registry,
            truncation,
            approver,
            observer,
            hooks.clone(),
        );
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
            history: &context.history,
            masker: context.masker.as_ref(),
            compressor: &context.compressor,
            used: &used,
        };
        let mcp_tools = McpToolset::new(options, registry, servers.clone(), policy.clone(), stream.clone());
        let agent = LlmAgent {
            name: AGENT_NAME.to_owned(),
            model: model.llm.clone(),
            processors: flow.processors(),
            toolsets: vec![Arc::new(mcp_tools)],
            dispatcher,
        };
        let config = RunConfig { max_llm_calls: options.max_turns.or(RunConfig::default().max_llm_calls) };
        let runner = Runner::new(agent, sessions, flow.plugins(), config)
            .map_err(|error| SessionError::Failed(error.to_string()))?;
        let protocol = Arc::new(AdkAgentProtocol::new(Parts {
            log: EventLog::new(),
            runner,
            key: key.clone(),
            model: model.clone(),
            model_events,
            hooks: hooks.clone(),
            start: if goes_on { SessionStartSource::Resume } else { SessionStartSource::Startup },
            stream,
            prompts: prompts.clone(),
            recorder: recorder.clone(),
            cwd,
            compressor: context.compressor,
            limits: options.limits,
            stopwatch,
            used,
        }));
        let control = Control {
            policy,
            trusted: options.policy.trusted,
            yolo_enabled: options.policy.yolo_enabled,
            model,
            protocol: protocol.clone(),
            background,
            hooks,
            servers,
            sessions: self.sessions.clone(),
            key,
            outputs,
            prompts,
            recorder,
        };
        Ok(HostedSession { id, agent: protocol, control: Arc::new(control) })
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
        let discovered = discover(&self.options, &new.cwd).await;
        self.assemble(new, discovered, Past::default())
    }

    fn records(&self) -> Option<&dyn SessionRecords> {
        self.records.as_ref().map(|_| self as &dyn SessionRecords)
    }
}
