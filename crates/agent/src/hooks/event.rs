//! The moments at which a hook may run.

/// A moment at which a hook may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookEvent {
    /// Before policy judges a call.
    BeforeTool,
    /// After a call ran.
    AfterTool,
    /// Before the agent sees a prompt.
    BeforeAgent,
    /// After the agent is done with a prompt.
    AfterAgent,
    /// A person is about to be asked.
    Notification,
    /// Before the first prompt.
    SessionStart,
    /// The session is closed or cleared.
    SessionEnd,
    /// Before the history is compressed.
    PreCompress,
    /// Before a model call.
    BeforeModel,
    /// Each piece of an answer.
    AfterModel,
    /// Before the tools that may be called are decided.
    BeforeToolSelection,
}

impl HookEvent {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::BeforeTool,
        Self::AfterTool,
        Self::BeforeAgent,
        Self::AfterAgent,
        Self::Notification,
        Self::SessionStart,
        Self::SessionEnd,
        Self::PreCompress,
        Self::BeforeModel,
        Self::AfterModel,
        Self::BeforeToolSelection,
    ];

    /// As settings and hooks write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeTool => "BeforeTool",
            Self::AfterTool => "AfterTool",
            Self::BeforeAgent => "BeforeAgent",
            Self::AfterAgent => "AfterAgent",
            Self::Notification => "Notification",
            Self::SessionStart => "SessionStart",
            Self::SessionEnd => "SessionEnd",
            Self::PreCompress => "PreCompress",
            Self::BeforeModel => "BeforeModel",
            Self::AfterModel => "AfterModel",
            Self::BeforeToolSelection => "BeforeToolSelection",
        }
    }

    /// The event of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }

    /// Whether a matcher is a pattern over the names of tools; for all others it is the trigger itself.
    pub(super) fn matches_tools(self) -> bool {
        matches!(self, Self::BeforeTool | Self::AfterTool)
    }
}
