//! Going back: to which points of a session, what of it, and what came of that?

/// A point that a session can go back to: right before a prompt of its.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewindPoint {
    /// The prompt's id, which stays what it is.
    pub id: String,
    /// Its place among the prompts, from 1.
    pub number: usize,
    /// The prompt, in short.
    pub prompt: String,
    /// When it was given, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Files that are different since: some of their names, absolute.
    pub files: Vec<String>,
    /// How many there are.
    pub files_total: usize,
    /// What happened between this prompt and the next one.
    pub turn: TurnChanges,
    /// What happened since and can't be undone.
    pub lasting: Vec<LastingEffect>,
}

/// What the calls of one turn did to files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnChanges {
    /// Files that are different.
    pub files: usize,
    /// Lines of text that were added.
    pub added: usize,
    /// And removed.
    pub removed: usize,
}

/// Something that going back does not undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastingEffect {
    /// `command`, `tool`, `unwatched`, or `file` for a file whose content was not kept.
    pub kind: &'static str,
    /// The command, the tool or the file.
    pub what: String,
}

/// What to take back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RewindWhat {
    /// What was said.
    Conversation,
    /// What calls did to files.
    Files,
    /// Both.
    #[default]
    Both,
}

impl RewindWhat {
    /// Its name for people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Files => "files",
            Self::Both => "both",
        }
    }

    /// What is called so.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Conversation, Self::Files, Self::Both].into_iter().find(|what| what.name() == name)
    }
}

/// A wish to go back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewindRequest {
    /// The id of a point, or its number.
    pub to: String,
    /// What to take back.
    pub what: RewindWhat,
    /// Whether files that somebody else changed are taken back as well.
    pub force: bool,
}

/// What became of a wish to go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewindOutcome {
    /// It was done.
    Done(Rewound),
    /// A turn is running; nothing changed.
    Busy,
    /// There is no such point; nothing changed.
    UnknownPoint,
    /// Somebody else changed files that would be taken back; nothing changed.
    Conflicts(Vec<RewindConflict>),
    /// This session can't; nothing changed.
    Unavailable {
        /// Why.
        why: String,
    },
    /// It went wrong. What was begun is finished when the session is opened again.
    Failed {
        /// Why.
        why: String,
    },
}

/// A way back that was gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewound {
    /// The point.
    pub id: String,
    /// Its place among the prompts, from 1.
    pub number: usize,
    /// What was taken back.
    pub what: RewindWhat,
    /// The prompt, whole, to give it again or change it.
    pub prompt: String,
    /// Files that are again what they were, absolute.
    pub files: Vec<String>,
    /// Files that are not, and why.
    pub left: Vec<RewindConflict>,
}

/// A file that is not taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindConflict {
    /// The file, absolute.
    pub path: String,
    /// Why, for people: a fragment.
    pub why: String,
}

/// What became of a wish for a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchOutcome {
    /// There is a session that goes on from there. It is loaded like any other.
    Branched {
        /// Its id.
        session: crate::SessionId,
        /// Its name for people.
        title: String,
    },
    /// A turn is running.
    Busy,
    /// There is no such point.
    UnknownPoint,
    /// This session can't.
    Unavailable {
        /// Why.
        why: String,
    },
}
