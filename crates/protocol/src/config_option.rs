//! What a person may set in a session while it lives: the model, how much it thinks.

/// A setting of a session, with what it is now. Source: ACP v1, `SessionConfigOption`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigOption {
    /// Name for programs; unique within the session.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What kind of setting it is, so that a front end can give it its usual place.
    pub category: ConfigCategory,
    /// The value now.
    pub current: String,
    /// The values on offer, the current one among them.
    pub choices: Vec<ConfigChoice>,
}

/// The kinds of settings that front ends have places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfigCategory {
    /// What may be done without asking.
    Mode,
    /// Which model answers.
    Model,
    /// How much it thinks.
    ThoughtLevel,
}

/// One value of a [`ConfigOption`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChoice {
    /// The value.
    pub value: String,
    /// What a person reads.
    pub name: String,
}

impl ConfigChoice {
    /// A choice of this value and name.
    pub fn new(value: impl Into<String>, name: impl Into<String>) -> Self {
        Self { value: value.into(), name: name.into() }
    }
}

/// Why a setting was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetConfigError {
    /// The session has no such setting.
    #[error("set \"{0}\": this session has no such option")]
    UnknownOption(String),
    /// The value is not on offer.
    #[error("set \"{option}\" to \"{value}\": not a value on offer")]
    UnknownValue {
        /// The setting.
        option: String,
        /// The value.
        value: String,
    },
    /// The mode is refused.
    #[error(transparent)]
    Mode(#[from] crate::SetModeError),
}
