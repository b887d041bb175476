//! How much an agent may do without asking.

/// The approval mode of a session, from the strictest to the most permissive.
///
/// Each border spells it in its own way: `auto_edit` on the command line and in settings ([`Self::cli`]),
/// `autoEdit` in ACP ([`Self::acp`]), `auto-edit` on the daemon's wire ([`Self::wire`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApprovalMode {
    /// Only reading and planning.
    Plan,
    /// Asks before each change and each command.
    #[default]
    Default,
    /// Edits files without asking, asks for the rest.
    AutoEdit,
    /// Asks for nothing.
    Yolo,
}

impl ApprovalMode {
    /// Every mode, strictest first.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Default, Self::AutoEdit, Self::Yolo];

    /// `plan`, `default`, `auto_edit`, `yolo`.
    #[must_use]
    pub fn cli(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Default => "default",
            Self::AutoEdit => "auto_edit",
            Self::Yolo => "yolo",
        }
    }

    /// `plan`, `default`, `autoEdit`, `yolo`.
    #[must_use]
    pub fn acp(self) -> &'static str {
        match self {
            Self::AutoEdit => "autoEdit",
            other => other.cli(),
        }
    }

    /// `plan`, `default`, `auto-edit`, `yolo`.
    #[must_use]
    pub fn wire(self) -> &'static str {
        match self {
            Self::AutoEdit => "auto-edit",
            other => other.cli(),
        }
    }

    /// What a person reads.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Plan => "Plan",
            Self::Default => "Default",
            Self::AutoEdit => "Auto edit",
            Self::Yolo => "YOLO",
        }
    }

    /// Reads any border's spelling of a mode.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| text == m.cli() || text == m.acp() || text == m.wire())
    }
}

#[cfg(test)]
mod tests {
    use super::ApprovalMode;

    #[test]
    fn every_spelling_reads_back() {
        for mode in ApprovalMode::ALL {
            for text in [mode.cli(), mode.acp(), mode.wire()] {
                assert_eq!(ApprovalMode::parse(text), Some(mode));
            }
        }
        assert_eq!(ApprovalMode::parse("auto"), None);
    }
}
