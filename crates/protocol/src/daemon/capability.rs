//! Feature tags: the registry from which `/capabilities` and boot validation are made.

/// The four ways to decide a permission request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PermissionPolicy {
    /// The first valid vote decides.
    #[default]
    FirstResponder,
    /// Only the client that sent the prompt decides.
    Designated,
    /// A quorum of the clients present when it was asked decides.
    Consensus,
    /// Only a voter on the daemon's own machine decides.
    LocalOnly,
}

impl PermissionPolicy {
    /// Every policy, in the order of the wire's messages.
    pub const ALL: [Self; 4] = [Self::FirstResponder, Self::Designated, Self::Consensus, Self::LocalOnly];

    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstResponder => "first-responder",
            Self::Designated => "designated",
            Self::Consensus => "consensus",
            Self::LocalOnly => "local-only",
        }
    }

    /// Reads a wire name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == text)
    }
}

/// Whose vote to cancel ends a permission request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CancelRule {
    /// Anybody's: who can reach the daemon can stop its agent.
    #[default]
    Any,
    /// That of voters only whom the policy lets vote for an option.
    Eligible,
}

impl CancelRule {
    /// Every rule, in the order of the wire's messages.
    pub const ALL: [Self; 2] = [Self::Any, Self::Eligible];

    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Eligible => "eligible",
        }
    }

    /// Reads a wire name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == text)
    }
}
