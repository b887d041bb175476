//! What a tool is in this room: something that checks its arguments first and runs later.
//!
//! [`DeclarativeTool::build`] turns arguments into an [`Invocation`] that can describe itself, be asked about, and
//! run. A tool holds no session state unless its constructor was given some, so one tool serves all sessions.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::FunctionDeclaration;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{LiveOutput, Reach, ToolFailure, ToolOutput};

/// A tool that the model can call.
#[doc(alias = "BaseDeclarativeTool")]
pub trait DeclarativeTool: Send + Sync {
    /// The name to call.
    fn name(&self) -> &str;

    /// The name for people.
    fn display_name(&self) -> &str;

    /// What kind of tool it is.
    fn kind(&self) -> Kind;

    /// How the model sees it; `model` is the one that is about to be asked.
    fn declaration(&self, model: &str) -> FunctionDeclaration;

    /// Where it comes from, for a tool of an MCP server.
    fn origin(&self) -> Option<&ToolOrigin> {
        None
    }

    /// Whether calls may run beside others. By default, calls of tools that only read.
    fn parallelizable(&self) -> bool {
        self.kind().is_read_only()
    }

    /// Whether this model is told of it.
    fn offered_to(&self, _model: &str) -> bool {
        true
    }

    /// Whether calls come before all others of their batch.
    fn goes_first(&self) -> bool {
        false
    }

    /// Whether running it is nothing but asking a person, so that leave to ask need not be asked for.
    fn asks_itself(&self) -> bool {
        false
    }

    /// The MCP server that it comes from: rules may be about all tools of one.
    fn mcp_server(&self) -> Option<&str> {
        self.origin().map(|origin| origin.server.as_str())
    }

    /// What it says of itself, such as `readOnlyHint`: rules may ask for it.
    fn annotations(&self) -> Map<String, Value> {
        let Some(origin) = self.origin() else { return Map::new() };
        let hints = [
            ("readOnlyHint", origin.read_only),
            ("destructiveHint", origin.destructive),
            ("idempotentHint", origin.idempotent),
            ("openWorldHint", origin.open_world),
        ];
        hints.into_iter().filter_map(|(name, hint)| Some((name.to_owned(), hint?.into()))).collect()
    }

    /// Whether output past [`Truncation::threshold`](crate::Truncation) is cut. The others bound their output themselves.
    fn truncates_output(&self) -> bool {
        false
    }

    /// What a call with these arguments may change on the disk.
    fn reach(&self, _args: &Value) -> Reach {
        match self.kind() {
            Kind::Edit => Reach::Locations,
            Kind::Execute | Kind::Delete | Kind::Move | Kind::Other => Reach::Anything,
            Kind::Read
            | Kind::Search
            | Kind::Think
            | Kind::Agent
            | Kind::Fetch
            | Kind::Communicate
            | Kind::Plan
            | Kind::SwitchMode => Reach::Nothing,
        }
    }

    /// Checks `args` and prepares a call. Must not change anything, and must not wait for anything but a local disk.
    fn build(&self, args: &Value) -> Result<Arc<dyn Invocation>, ToolFailure>;
}

/// Whose a tool is, for one of an MCP server, and what the server says about it.
///
/// The hints are the server's own words: they may make a decision stricter, and more lenient only if the user trusts
/// the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOrigin {
    /// The server.
    pub server: String,
    /// What the server calls the tool.
    pub tool: String,
    /// Whether the user trusts the server.
    pub trusted: bool,
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy.
    pub destructive: Option<bool>,
    /// Doing it twice is doing it once.
    pub idempotent: Option<bool>,
    /// It reaches out to the world.
    pub open_world: Option<bool>,
}

/// One call of a tool, with arguments that were checked.
#[async_trait]
pub trait Invocation: Send + Sync {
    /// What this call does, in one line for people: the file, or the command.
    fn description(&self) -> String;

    /// Files it will touch.
    fn locations(&self) -> Vec<Location> {
        Vec::new()
    }

    /// What a person should see before it runs. A failure ends the call without asking.
    async fn confirmation(&self) -> Result<ConfirmationDetails, ToolFailure> {
        Ok(ConfirmationDetails::Info { prompt: self.description() })
    }

    /// What the model is told if a person says no: a sentence or two. `None` for what it is told of any call.
    fn refusal(&self) -> Option<&'static str> {
        None
    }

    /// Why a person must be asked, whatever policy says; `None` leaves it to policy.
    fn demand(&self) -> Option<String> {
        None
    }

    /// Runs it.
    ///
    /// Cancellation: on `cx.cancel` it stops, leaves no process behind and returns [`ToolFailure::Cancelled`] with
    /// what it had. One that does not come back in time is dropped.
    async fn execute(&self, cx: &ExecutionContext) -> Result<ToolOutput, ToolFailure>;
}

/// What a running call has at hand.
#[derive(Clone)]
pub struct ExecutionContext {
    /// The call's id.
    pub call_id: String,
    /// Ends the call.
    pub cancel: CancellationToken,
    live: Arc<dyn Fn(LiveOutput) + Send + Sync>,
}

impl ExecutionContext {
    /// A context whose live output goes to `live`, which must not block.
    pub fn new(
        call_id: impl Into<String>,
        cancel: CancellationToken,
        live: impl Fn(LiveOutput) + Send + Sync + 'static,
    ) -> Self {
        Self { call_id: call_id.into(), cancel, live: Arc::new(live) }
    }

    /// Shows what there is so far. May be dropped when a newer one is on its way.
    pub fn update(&self, output: LiveOutput) {
        (self.live)(output);
    }
}

impl std::fmt::Debug for ExecutionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutionContext").field("call_id", &self.call_id).finish_non_exhaustive()
    }
}

/// What a tool does. Source: runtime specification §13.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Agent,
    Fetch,
    Communicate,
    Plan,
    SwitchMode,
    Other,
}

impl Kind {
    /// The name in the specification.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::Search => "search",
            Self::Execute => "execute",
            Self::Think => "think",
            Self::Agent => "agent",
            Self::Fetch => "fetch",
            Self::Communicate => "communicate",
            Self::Plan => "plan",
            Self::SwitchMode => "switch_mode",
            Self::Other => "other",
        }
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::Read | Self::Search | Self::Fetch)
    }
}

/// A file that a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Absolute path.
    pub path: String,
    /// Line, counted from 1.
    pub line: Option<u32>,
}

/// What a person should see before a call runs.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfirmationDetails {
    /// A file would change.
    Edit {
        /// Absolute path.
        path: String,
        /// Content now; `None` for a new file.
        old_text: Option<Arc<str>>,
        /// Content afterwards.
        new_text: Arc<str>,
        /// The unified patch between the two.
        diff: String,
    },
    /// A command would run.
    Exec {
        /// The whole command.
        command: String,
        /// The programs it names, as far as can be told; empty for a command that is too complex to tell.
        root_commands: Vec<String>,
    },
    /// A tool of an MCP server would be called.
    Mcp {
        /// The server.
        server: String,
        /// What the server calls the tool.
        tool: String,
        /// The arguments, all of them.
        args: Value,
    },
    /// A plan would be carried out.
    Plan {
        /// Absolute path.
        path: String,
        /// All of it, in Markdown.
        text: Arc<str>,
    },
    /// Anything else.
    Info {
        /// What would happen.
        prompt: String,
    },
}
