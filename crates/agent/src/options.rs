//! What sessions are made from: everything that settings, environment and home decide arrives here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use convoke_protocol::{AgentInfo, Authenticator};
use convoke_stdx::guard::Spawner;
use convoke_tools::{PolicyOptions, SandboxOptions};

use crate::{
    ConnectModel, ContextFileOptions, HistoryListener, HookOptions, LifecycleHooks, LoopOptions, MaskingOptions,
    McpSettings, NoHistoryListener, NoLifecycleHooks, PromptLimits, PromptOptions, RecordOptions, SnapshotBounds,
    SubagentOptions, ToolOptions,
};

/// A session is compressed when half of the window is used. Source: runtime specification §8.
const DEFAULT_COMPRESSION: f64 = 0.5;

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
    /// Which tools come with us, and within what bounds.
    pub tools: ToolOptions,
    /// The MCP servers that bring more of them.
    pub mcp: McpSettings,
    /// How commands are started.
    pub spawner: Spawner,
    /// Environment variables that commands never see.
    pub secret_variables: Vec<String>,
    /// What commands may change and reach; all that this process may otherwise.
    pub sandbox: Option<SandboxOptions>,
    /// Where output that is too large for the model is kept, in a folder per session; nowhere otherwise. The agent may
    /// read it back.
    pub output_folder: Option<PathBuf>,
    /// Where sessions are recorded; nowhere otherwise.
    pub records: Option<RecordOptions>,
    /// How much of the workspace is kept, for files to go back with the conversation; nothing where sessions are not
    /// recorded, or for `None`.
    pub snapshots: Option<SnapshotBounds>,
    /// Whether commands in the foreground run in the client's terminals, where it has some. Never those that are to
    /// be in a sandbox.
    pub client_terminals: bool,
    /// How long a command may be silent; the tools' default otherwise.
    pub shell_inactivity: Option<Duration>,
    /// Characters of a command's output that the model reads, the rest is kept in a file; 0 for all of it. The tools'
    /// default otherwise.
    pub output_threshold: Option<usize>,
    /// When old tool output is masked; `None` for never. Needs an output folder.
    pub masking: Option<MaskingOptions>,
    /// The part of the model's window at which a session is compressed; 0 for never.
    pub compression_threshold: f64,
    /// Where it is written down what the model gets to see; `None` for nowhere.
    pub context_trace: Option<PathBuf>,
    /// How loops are looked for.
    pub loops: LoopOptions,
    /// Most model calls of one prompt; the kernel's default otherwise.
    pub max_turns: Option<u32>,
    /// What prompts may be short for.
    pub prompts: PromptOptions,
    /// Where a credential can be given; `None` where nobody can.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// Its other bounds.
    pub limits: PromptLimits,
    /// Who hears that a session's past was changed.
    pub history: Arc<dyn HistoryListener>,
    /// The embedder's own code around a prompt; asked before the user's commands.
    pub hooks: Arc<dyn LifecycleHooks>,
    /// The user's commands.
    pub user_hooks: HookOptions,
    /// Agents that the session's own can call.
    pub subagents: SubagentOptions,
    /// Where plans are written, relative to the working folder and inside of the workspace; beside the session's kept
    /// output otherwise.
    pub plan_folder: Option<PathBuf>,
}

impl AgentOptions {
    /// The least that a session needs; everything else is off or the default of the room that it belongs to.
    #[must_use]
    pub fn new(info: AgentInfo, connect: ConnectModel, spawner: Spawner) -> Self {
        Self {
            info,
            connect,
            interactive: false,
            policy: PolicyOptions::default(),
            include_directories: Vec::new(),
            home: None,
            context: ContextFileOptions::default(),
            tools: ToolOptions::default(),
            mcp: McpSettings::default(),
            spawner,
            secret_variables: Vec::new(),
            sandbox: None,
            output_folder: None,
            records: None,
            snapshots: Some(SnapshotBounds::default()),
            client_terminals: false,
            shell_inactivity: None,
            output_threshold: None,
            masking: Some(MaskingOptions::default()),
            compression_threshold: DEFAULT_COMPRESSION,
            context_trace: None,
            loops: LoopOptions::default(),
            max_turns: None,
            prompts: PromptOptions::default(),
            authenticator: None,
            limits: PromptLimits::default(),
            history: Arc::new(NoHistoryListener),
            hooks: Arc::new(NoLifecycleHooks),
            user_hooks: HookOptions::default(),
            subagents: SubagentOptions::default(),
            plan_folder: None,
        }
    }
}
