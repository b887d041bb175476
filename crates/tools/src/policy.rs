//! Who decides whether a call may run, must be asked about, or is refused? This module, and no other.
//!
//! A [`Policy`] is an ordered list of [`Rule`]s; the first one that matches a call decides it. Without a match the
//! answer is to ask. Where there is nobody to ask, asking means refusing. Among rules of equal priority the strictest
//! comes first: deny, ask, allow. A person's lasting answer ([`Policy::remember`]) only takes questions away: it can't
//! lift a refusal. Pure: no clock, no files, no environment. Source: runtime specification §6.6 and §6.7.

mod allowed;
mod builtin;
pub(crate) mod command;
mod rule;
mod session;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use allowed::{AllowedToolError, canonical_tool_name, parse_allowed_tool};
pub use command::{Command, SimpleCommand};
pub use rule::{ArgsPattern, Priority, Rule, Tier, ToolPattern};
pub use session::SessionPolicy;

/// How much may be done without asking, from the strictest to the most permissive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
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

impl Mode {
    /// The name, as in the specification.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Default => "default",
            Self::AutoEdit => "auto_edit",
            Self::Yolo => "yolo",
        }
    }

    fn is_privileged(self) -> bool {
        self > Self::Default
    }
}

/// What is decided about a call. The order is strictness: `Deny` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// It runs.
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// A decision, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What is decided.
    pub decision: Decision,
    /// What the rule has to say about a refusal.
    pub message: Option<String>,
    /// The rule's source, such as `built-in` or `--allowed-tools`; `default` where no rule matched.
    pub source: String,
}

/// Whether the model is told of a tool at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Some call of it might run.
    Offered,
    /// Every call of it would be refused, for this reason: a sentence.
    Withheld(String),
}

/// What a [`Policy`] is made from.
#[derive(Clone, Debug)]
pub struct PolicyOptions {
    /// The mode to begin with.
    pub mode: Mode,
    /// Whether there is somebody to ask.
    pub interactive: bool,
    /// Whether the folder is trusted. An untrusted one stays in [`Mode::Default`] or [`Mode::Plan`].
    pub trusted: bool,
    /// Whether [`Mode::Yolo`] may be entered.
    pub yolo_enabled: bool,
    /// Whether lasting answers are on offer.
    pub always_allow_enabled: bool,
    /// Rules beyond the built-in ones.
    pub rules: Vec<Rule>,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Default,
            interactive: true,
            trusted: true,
            yolo_enabled: true,
            always_allow_enabled: true,
            rules: Vec::new(),
        }
    }
}

/// Why a mode was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModeRefused {
    /// The folder is not trusted.
    #[error("enter a privileged approval mode in an untrusted folder")]
    Untrusted,
    /// Yolo was switched off.
    #[error("enter yolo mode, which is disabled")]
    YoloDisabled,
}

/// What a lasting answer would cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Always {
    /// The session goes to [`Mode::AutoEdit`].
    AutoEdit,
    /// Commands that begin with these words, and are simple.
    Commands(Vec<String>),
    /// Every call of this tool.
    Tool(String),
}

impl Always {
    /// What a person reads on the option.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::AutoEdit => "Allow all edits in this session".to_owned(),
            Self::Commands(words) => format!("Always allow \"{}\" commands in this session", words.join(" ")),
            Self::Tool(name) => format!("Always allow {name} in this session"),
        }
    }
}

/// Why asking means refusing. Source: runtime specification §6.3.
const NEEDS_USER: &str = "It requires user confirmation, which is not supported in non-interactive mode.";

// Rules of files, and one for each tool of a trusted server.
const RULES_MAX: usize = 8192;

// A session in which a person clicked "always" this often has a person who should write rules instead.
const REMEMBERED_MAX: usize = 256;

/// The rules of one session, and its mode.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    interactive: bool,
    trusted: bool,
    yolo_enabled: bool,
    always_allow_enabled: bool,
    rules: Vec<Rule>,
    remembered: Vec<Rule>,
}

impl Policy {
    /// The built-in rules and those of `options`. Fails if the mode may not be entered.
    pub fn new(options: PolicyOptions) -> Result<Self, ModeRefused> {
        let PolicyOptions { mode, interactive, trusted, yolo_enabled, always_allow_enabled, rules: more } = options;
        let mut rules = builtin::rules();
        rules.extend(more);
        rules.sort_by(|a, b| b.priority.cmp(&a.priority).then(b.decision.cmp(&a.decision)));
        let mut policy = Self {
            mode: Mode::Default,
            interactive,
            trusted,
            yolo_enabled,
            always_allow_enabled,
            rules,
            remembered: Vec::new(),
        };
        policy.set_mode(mode)?;
        Ok(policy)
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether there is somebody to ask.
    #[must_use]
    pub fn interactive(&self) -> bool {
        self.interactive
    }

    /// Enters `mode`.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), ModeRefused> {
        if mode.is_privileged() && !self.trusted {
            return Err(ModeRefused::Untrusted);
        }
        if mode == Mode::Yolo && !self.yolo_enabled {
            return Err(ModeRefused::YoloDisabled);
        }
        self.mode = mode;
        Ok(())
    }

    /// Adds a rule for the rest of the session.
    pub fn add_rule(&mut self, rule: Rule) {
        if self.rules.contains(&rule) {
            return;
        }
        if self.rules.len() >= RULES_MAX {
            tracing::warn!(source = %rule.source, "there are too many rules; one is left out");
            return;
        }
        self.rules.push(rule);
        self.rules.sort_by(|a, b| b.priority.cmp(&a.priority).then(b.decision.cmp(&a.decision)));
    }

    /// Decides one call. `tool` is the registered name, never an alias.
    #[must_use]
    pub fn judge(&self, tool: &str, args: &Value) -> Judgement {
        let command = command::of_call(tool, args);
        let (mut decision, message, source) = match self.decisive(&self.rules, tool, args, command.as_ref()) {
            Some(rule) => (rule.decision, rule.deny_message.clone(), rule.source.clone()),
            None => (Decision::Ask, None, "default".to_owned()),
        };
        if decision == Decision::Allow && self.redirection_needs_asking(command.as_ref()) {
            decision = Decision::Ask;
        }
        if decision == Decision::Ask
            && let Some(rule) = self.decisive(&self.remembered, tool, args, command.as_ref())
        {
            return Judgement { decision: Decision::Allow, message: None, source: rule.source.clone() };
        }
        if decision == Decision::Ask && !self.interactive {
            let message = Some(NEEDS_USER.to_owned());
            return Judgement { decision: Decision::Deny, message, source };
        }
        Judgement { decision, message, source }
    }

    /// Whether the model should be told of `tool`: not if every call would be refused, whatever its arguments.
    #[must_use]
    pub fn offer(&self, tool: &str) -> Offer {
        for rule in self.rules.iter().filter(|rule| self.is_in_force(rule) && rule.tool.matches(tool)) {
            match (rule.decision, rule.args.is_some()) {
                (Decision::Deny, true) => {}
                (Decision::Ask, true) if !self.interactive => {}
                (Decision::Allow, _) | (Decision::Ask, true) => return Offer::Offered,
                (Decision::Ask, false) if self.interactive => return Offer::Offered,
                (Decision::Ask, false) => return Offer::Withheld(NEEDS_USER.to_owned()),
                (Decision::Deny, false) => return Offer::Withheld(self.refusal(rule)),
            }
        }
        if self.interactive { Offer::Offered } else { Offer::Withheld(NEEDS_USER.to_owned()) }
    }

    /// What a lasting answer about this call would cover; `None` if it may not be given.
    #[must_use]
    pub fn always(&self, tool: &str, args: &Value) -> Option<Always> {
        if !self.always_allow_enabled {
            return None;
        }
        if builtin::EDITS.contains(&tool) {
            return (self.trusted && self.mode < Mode::AutoEdit).then_some(Always::AutoEdit);
        }
        match command::of_call(tool, args) {
            Some(Command::Simple(command)) => command.root().map(|root| Always::Commands(vec![root.to_owned()])),
            Some(Command::Complex { .. }) => None,
            None => Some(Always::Tool(tool.to_owned())),
        }
    }

    /// Keeps a lasting answer: in force in this mode and in every more permissive one.
    pub fn remember(&mut self, always: &Always) -> Result<(), ModeRefused> {
        let (tool, args) = match always {
            Always::AutoEdit => return self.set_mode(self.mode.max(Mode::AutoEdit)),
            Always::Commands(words) => (command::TOOL, Some(ArgsPattern::CommandPrefix(words.clone()))),
            Always::Tool(name) => (name.as_str(), None),
        };
        let modes = [Mode::Plan, Mode::Default, Mode::AutoEdit, Mode::Yolo];
        let rule = Rule {
            args,
            modes: Some(modes.into_iter().filter(|mode| *mode >= self.mode).collect()),
            ..Rule::new(ToolPattern::parse(tool), Decision::Allow, Priority::new(Tier::User, 950), "always allow")
        };
        if !self.remembered.contains(&rule) {
            if self.remembered.len() == REMEMBERED_MAX {
                self.remembered.remove(0);
            }
            self.remembered.push(rule);
        }
        Ok(())
    }

    fn decisive<'a>(&self, rules: &'a [Rule], tool: &str, args: &Value, command: Option<&Command>) -> Option<&'a Rule> {
        rules.iter().find(|rule| self.is_in_force(rule) && rule.matches(tool, args, command))
    }

    fn is_in_force(&self, rule: &Rule) -> bool {
        rule.modes.as_ref().is_none_or(|modes| modes.contains(&self.mode))
            && rule.interactive.is_none_or(|interactive| interactive == self.interactive)
    }

    // A rule that allows a command says nothing about the files that its output goes to.
    fn redirection_needs_asking(&self, command: Option<&Command>) -> bool {
        matches!(command, Some(Command::Complex { redirects: true })) && !self.mode.is_privileged()
    }

    fn refusal(&self, rule: &Rule) -> String {
        match &rule.deny_message {
            Some(message) => message.clone(),
            None => format!("It is denied in {} mode ({}).", self.mode.as_str(), rule.source),
        }
    }
}
