//! Putting a session together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{
    GenerateConfig, InMemorySessionService, Instruction, LlmAgent, RunConfig, Runner, SessionKey, SessionService,
    Toolset,
};
use convoke_models::FallbackPort;
use convoke_protocol::{
    AgentInfo, ApprovalMode, EventLog, HostedSession, NewSession, SessionControl, SessionError, SessionFactory,
    SessionId, SetModeError,
};
use convoke_stdx::Clock;
use convoke_stdx::guard::Spawner;
use convoke_tools::builtin::{self, BuiltinOptions, ShellOptions};
use convoke_tools::{
    BackgroundLimits, BackgroundProcesses, ModeRefused, PolicyOptions, SchedulerOptions, SessionPolicy, ToolRegistry,
    ToolScheduler, Truncation, Workspace, WorkspaceOptions,
};
use serde_json::Map;
use uuid::Uuid;

use crate::context_files::{ContextFileOptions, find_context_files};
use crate::hooks::LifecycleHooks;
use crate::instructions::SystemInstruction;
use crate::models::{ConnectModel, ModelEvents, ModelPorts, PortFallback, SessionModel};
use crate::modes;
use crate::permission::PortApprover;
use crate::protocol::{AdkAgentProtocol, Parts};
use crate::routing::RoutingProcessor;
use crate::tool_events::{CurrentStream, ToolEvents};

/// What sessions are made from.
#[derive(Clone)]
pub struct AgentOptions {
    /// Who serves them.
    pub info: AgentInfo,
    /// Their model.
    pub connect: ConnectModel,
    /// Whether somebody can be asked.
    pub interactive: bool,
    /// What may be done without asking, to begin with.
    pub policy: PolicyOptions,
    /// Folders beside the working folder that may be read and written.
    pub include_directories: Vec<PathBuf>,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// Where context files are.
    pub context: ContextFileOptions,
    /// Tools that are not offered at all.
    pub exclude_tools: Vec<String>,
    /// How commands are started.
    pub spawner: Spawner,
    /// Environment variables that commands never see.
    pub secret_variables: Vec<String>,
    /// Where output that is too large for the model is kept, in a folder per session; nowhere otherwise. The agent may
    /// read it back.
    pub output_folder: Option<PathBuf>,
    /// How long a command may be silent; the tools' default otherwise.
    pub shell_inactivity: Option<Duration>,
    /// Most model calls of one prompt; the kernel's default otherwise.
    pub max_turns: Option<u32>,
    /// The user's programs around a prompt.
    pub hooks: Arc<dyn LifecycleHooks>,
}

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
        Self { options, sessions: Arc::default(), clock: Clock::start() }
    }

    fn register_tools(
        &self,
        registry: &ToolRegistry,
        workspace: Workspace,
        background: &Arc<BackgroundProcesses>,
    ) -> Result<(), SessionError> {
        let mut shell = ShellOptions::new(self.options.spawner.clone());
        shell.unset.clone_from(&self.options.secret_variables);
        if let Some(silence) = self.options.shell_inactivity {
            // Zero switches the limit off, as in the settings of other agents.
            shell.inactivity_timeout = Some(silence).filter(|silence| !silence.is_zero());
        }
        let options = BuiltinOptions { workspace: Arc::new(workspace), shell, background: background.clone() };
        for tool in builtin::tools(options) {
            if self.options.exclude_tools.iter().any(|name| name == tool.name()) {
                continue;
            }
            registry.register(tool).map_err(|error| SessionError::Failed(error.to_string()))?;
        }
        Ok(())
    }

    fn assemble(&self, new: NewSession) -> Result<HostedSession, SessionError> {
        let NewSession { cwd, session_id, permission, approval_mode } = new;
        let options = &self.options;
        let unusable = |reason: String| SessionError::Workspace { path: cwd.clone(), reason };
        if !cwd.is_absolute() {
            return Err(unusable("it is not an absolute path".to_owned()));
        }
        if !cwd.is_dir() {
            return Err(unusable("it is not a folder".to_owned()));
        }
        let workspace = Workspace::new(WorkspaceOptions {
            cwd: cwd.clone(),
            more_roots: options.include_directories.clone(),
            read_roots: options.output_folder.iter().filter(|folder| made(folder)).cloned().collect(),
            home: options.home.clone(),
        })
        .map_err(|error| unusable(error.to_string()))?;
        let policy = SessionPolicy::new(PolicyOptions {
            mode: approval_mode.map_or(options.policy.mode, modes::to_tools),
            ..options.policy.clone()
        })
        .map_err(|error| SessionError::Failed(error.to_string()))?;
        let id = session_id.unwrap_or_else(|| SessionId(Uuid::new_v4().to_string()));
        let stream = CurrentStream::default();
        let model_events = Arc::new(ModelEvents::new(stream.clone()));
        let fallback = options.interactive.then(|| PortFallback::new(id.clone(), permission.clone()));
        let notices = model_events.clone();
        let model = (options.connect)(ModelPorts {
            fallback: fallback.map(|port| Arc::new(port) as Arc<dyn FallbackPort>),
            on_notice: Arc::new(move |notice| notices.on_notice(notice)),
        })?;
        let key = SessionKey { app_name: APP_NAME.to_owned(), user_id: USER_ID.to_owned(), session_id: id.to_string() };
        if self.sessions.create(key.clone(), Map::new(), self.clock.now().wall_ms).is_none() {
            return Err(SessionError::Taken(id));
        }
        let background = Arc::new(BackgroundProcesses::new(BackgroundLimits::default()));
        let registry = Arc::new(ToolRegistry::new(policy.clone()));
        self.register_tools(&registry, workspace, &background)?;
        let outputs = options.output_folder.as_ref().map(|folder| folder.join(format!("session-{id}")));
        let scheduler = Arc::new(ToolScheduler::start(SchedulerOptions {
            approver: Arc::new(PortApprover::new(id.clone(), permission)),
            observer: Arc::new(ToolEvents::new(stream.clone())),
            truncation: Truncation { folder: outputs.clone(), ..Truncation::default() },
            ..SchedulerOptions::new(registry.clone(), policy.clone())
        }));
        let (context_files, unreadable) = find_context_files(&cwd, &options.context);
        for (path, error) in unreadable {
            tracing::warn!(path = %path.display(), %error, "a context file can't be read");
        }
        let instruction = SystemInstruction::new(policy.clone(), options.interactive, None, &context_files);
        let mut processors =
            LlmAgent::default_processors(GenerateConfig::default(), Instruction::Provider(Arc::new(instruction)));
        // Last: it looks at the conversation as it will be sent, and tools are declared for the model that it chose.
        if let Some(llm) = &model.steered {
            processors.push(Arc::new(RoutingProcessor::new(llm.clone(), policy.clone())));
        }
        let toolsets: Vec<Arc<dyn Toolset>> = vec![registry];
        let agent = LlmAgent {
            name: "convoke".to_owned(),
            model: model.llm.clone(),
            processors,
            toolsets,
            dispatcher: scheduler,
        };
        let config = RunConfig { max_llm_calls: options.max_turns.or(RunConfig::default().max_llm_calls) };
        let runner = Runner::new(agent, self.sessions.clone(), Vec::new(), config)
            .map_err(|error| SessionError::Failed(error.to_string()))?;
        let protocol = Arc::new(AdkAgentProtocol::new(Parts {
            log: EventLog::new(),
            runner,
            key: key.clone(),
            model: model.clone(),
            model_events,
            hooks: options.hooks.clone(),
            stream,
            cwd,
        }));
        let control = Control {
            policy,
            trusted: options.policy.trusted,
            yolo_enabled: options.policy.yolo_enabled,
            model,
            protocol: protocol.clone(),
            background,
            sessions: self.sessions.clone(),
            key,
            outputs,
        };
        Ok(HostedSession { id, agent: protocol, control: Arc::new(control) })
    }
}

#[async_trait]
impl SessionFactory for AgentFactory {
    fn info(&self) -> AgentInfo {
        self.options.info.clone()
    }

    async fn new_session(&self, new: NewSession) -> Result<HostedSession, SessionError> {
        self.assemble(new)
    }
}

/// What can be done with a session besides prompting it.
struct Control {
    policy: SessionPolicy,
    trusted: bool,
    yolo_enabled: bool,
    model: SessionModel,
    protocol: Arc<AdkAgentProtocol>,
    background: Arc<BackgroundProcesses>,
    sessions: Arc<InMemorySessionService>,
    key: SessionKey,
    /// Large output of this session, for as long as it lives.
    outputs: Option<PathBuf>,
}

#[async_trait]
impl SessionControl for Control {
    fn approval_mode(&self) -> ApprovalMode {
        modes::from_tools(self.policy.mode())
    }

    fn approval_modes(&self) -> Vec<ApprovalMode> {
        let mut offered = vec![ApprovalMode::Default];
        if self.trusted {
            offered.push(ApprovalMode::AutoEdit);
            offered.extend(self.yolo_enabled.then_some(ApprovalMode::Yolo));
        }
        offered
    }

    fn set_approval_mode(&self, mode: ApprovalMode) -> Result<(), SetModeError> {
        // Plan mode needs its own tools and instructions before it may be offered.
        if mode == ApprovalMode::Plan {
            return Err(SetModeError::Unavailable(mode));
        }
        let before = self.policy.mode();
        self.policy.set_mode(modes::to_tools(mode)).map_err(|refused| match refused {
            ModeRefused::Untrusted => SetModeError::Untrusted(mode),
            ModeRefused::YoloDisabled => SetModeError::Unavailable(mode),
        })?;
        self.model.mode_changed(before, self.policy.mode());
        Ok(())
    }

    fn model(&self) -> String {
        self.model.llm.model()
    }

    async fn close(&self) {
        self.protocol.close().await;
        self.background.close().await;
        self.sessions.delete(&self.key);
        if let Some(folder) = self.outputs.clone() {
            // Most sessions never made one; whatever else goes wrong leaves files behind and harms nobody.
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
        }
    }
}
