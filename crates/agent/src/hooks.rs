//! The user's own programs around a session: which ports are there, and who calls what behind them?
//!
//! [`LifecycleHooks`] is the port around a prompt; it is called for every prompt and does nothing unless something is
//! plugged in. Behind it, behind the port of the tools and behind the kernel's plugins stands one
//! `SessionHooks`, which runs the commands that settings name. Source: runtime specification §10.

mod bridge;
mod command;
mod conversation;
mod event;
mod matcher;
mod output;
mod runner;
mod session;
mod settings;
mod tool;
mod verdict;

use std::sync::Arc;

use async_trait::async_trait;

pub(crate) use bridge::HookBridge;
pub use event::HookEvent;
pub(crate) use session::{SessionHooks, SessionHooksParts};
pub use settings::{HookDefinition, HookLayer, HookSettings, HookSource};
pub(crate) use tool::NotifyingApprover;

/// The code of an end that a hook asked for by blocking.
pub(crate) const BLOCKED: &str = "AGENT_EXECUTION_BLOCKED";
/// The code of an ordinary end: a hook or a tool said that the work is done.
pub(crate) const STOP_EXECUTION: &str = "stop_execution";

/// The commands of a session, and what they are given.
#[derive(Clone)]
pub struct HookOptions {
    /// What settings say, the nearest source first.
    pub layers: Vec<HookLayer>,
    /// Which commands of a project the user knows.
    pub trust: Arc<dyn HookTrust>,
}

impl Default for HookOptions {
    fn default() -> Self {
        Self { layers: Vec::new(), trust: Arc::new(TrustNothing) }
    }
}

/// Remembers which commands of a project its user has agreed to.
///
/// A command that comes with a folder runs only once a person saw it: the folder may be somebody else's.
pub trait HookTrust: Send + Sync {
    /// Whether a command with this [digest](HookDefinition::digest) may run.
    fn is_trusted(&self, digest: &str) -> bool;

    /// Remembers these. The error says what was attempted.
    fn trust(&self, hooks: &[Arc<HookDefinition>]) -> Result<(), String>;
}

/// Knows no command, and remembers none.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustNothing;

impl HookTrust for TrustNothing {
    fn is_trusted(&self, _: &str) -> bool {
        false
    }

    fn trust(&self, _: &[Arc<HookDefinition>]) -> Result<(), String> {
        Err("remember trusted hooks: there is no place for it".to_owned())
    }
}

/// Has a say before and after a prompt is worked on, and hears what happens to the session.
#[async_trait]
pub trait LifecycleHooks: Send + Sync {
    /// Before the first prompt of a session, or the first after its context was cleared. What it returns is text to
    /// put before that prompt.
    async fn session_start(&self, _source: SessionStartSource) -> Option<String> {
        None
    }

    /// The session ends, or its context is cleared. Called once for each start.
    async fn session_end(&self, _reason: SessionEndReason) {}

    /// Before the agent sees a prompt.
    async fn before_agent(&self, _prompt: &str) -> BeforeAgent {
        BeforeAgent::default()
    }

    /// After the agent is done. `active` says that the run goes on because of an earlier answer of this hook.
    async fn after_agent(&self, _prompt: &str, _response: &str, _active: bool) -> AfterAgent {
        AfterAgent::default()
    }

    /// The history is about to be compressed: only when it really is.
    async fn pre_compress(&self, _trigger: CompressTrigger) {}
}

/// What a session begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStartSource {
    /// Nothing.
    Startup,
    /// An earlier session's history.
    Resume,
    /// Nothing: its context was cleared.
    Clear,
}

impl SessionStartSource {
    /// As hooks read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Resume => "resume",
            Self::Clear => "clear",
        }
    }
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEndReason {
    /// It was closed.
    Exit,
    /// Its context was cleared.
    Clear,
}

impl SessionEndReason {
    /// As hooks read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Clear => "clear",
        }
    }
}

/// Who wants the history compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressTrigger {
    /// The user.
    Manual,
    /// We: it grew too large.
    Auto,
}

impl CompressTrigger {
    /// As hooks read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Auto => "auto",
        }
    }
}

/// What a hook wants before a prompt is worked on. The strictest wish is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeforeAgent {
    /// Don't work on it, for this reason.
    pub block: Option<String>,
    /// End here, in good order, for this reason.
    pub stop: Option<String>,
    /// Text to add to what the model reads.
    pub additional_context: Option<String>,
}

/// What a hook wants after the agent is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AfterAgent {
    /// Go on, with this as the next prompt.
    pub continue_with: Option<String>,
    /// End here, for this reason, whatever else is wished.
    pub stop: Option<String>,
    /// Forget the conversation.
    pub clear_context: bool,
}

/// No hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLifecycleHooks;

#[async_trait]
impl LifecycleHooks for NoLifecycleHooks {}
