//! Who decides whether a call may run, must be asked about, or is refused? This module, and no other.
//!
//! A [`Policy`] is an ordered list of [`Rule`]s; the first one that matches a call decides it. Without a match the
//! answer is to ask. Where there is nobody to ask, asking means refusing. Among rules of equal priority the strictest
//! comes first: deny, ask, allow. A command is judged program by program, and the strictest answer counts. A person's
//! lasting answer ([`Policy::remember`]) only takes questions away: it can't lift a refusal. What comes behind the rules
//! (safety checkers, hooks) is joined with [`Judgement::tighten`], which only goes towards refusing.
//! Pure: no clock, no files, no environment. Source: runtime specification §6.6 and §6.7.

mod allowed;
mod builtin;
mod call;
mod cases;
#[cfg(test)]
pub(crate) mod chance;
mod checker;
mod file;
mod judge;
mod lasting;
#[cfg(test)]
mod lattice;
mod pattern;
mod plans;
mod rule;
mod saved;
mod session;
mod settings;
pub(crate) mod shell;
#[cfg(test)]
mod tests;
mod verdict;

use std::path::{Path, PathBuf};

pub use allowed::{AllowedToolError, canonical_tool_name, parse_allowed_tool};
pub use call::{PolicyCall, ToolFacts};
pub use cases::{Case, CasesError, parse_cases};
pub use checker::{Checker, CheckerKind};
pub use file::{PolicyFile, PolicyFileError, parse_policy};
pub use lasting::{Always, LastingOffer, SavePlace};
pub use pattern::TextPattern;
pub use plans::PlanFolder;
pub use rule::{ArgsPattern, Priority, Rule, Scope, Source, Tier, ToolPattern};
pub use saved::{SAVED_FILE, SaveError};
pub use session::{ModeChange, SessionPolicy};
pub use settings::PolicySettings;
pub use shell::Script;
pub use verdict::{Judgement, Step};

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
    /// All, from the strictest to the most permissive.
    pub const ALL: [Self; 4] = [Self::Plan, Self::Default, Self::AutoEdit, Self::Yolo];

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

    /// The name in policy files.
    #[must_use]
    pub fn in_files(self) -> &'static str {
        if self == Self::AutoEdit { "autoEdit" } else { self.as_str() }
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

impl Decision {
    /// The name in policy files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask_user",
            Self::Deny => "deny",
        }
    }

    /// The decision of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Allow, Self::Ask, Self::Deny].into_iter().find(|decision| decision.as_str() == name)
    }
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
    /// Whether [`Mode::Plan`] may be entered.
    pub plan_enabled: bool,
    /// Whether lasting answers are on offer.
    pub always_allow_enabled: bool,
    /// Where lasting answers are kept beyond the session; `None` keeps none.
    pub save: Option<SavePlace>,
    /// Rules beyond the built-in ones.
    pub rules: Vec<Rule>,
    /// Who else is asked about what the rules let pass.
    pub checkers: Vec<Checker>,
    /// Where plans may be written in plan mode.
    pub plans: Option<PlanFolder>,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Default,
            interactive: true,
            trusted: true,
            yolo_enabled: true,
            plan_enabled: true,
            always_allow_enabled: true,
            save: None,
            rules: Vec::new(),
            checkers: Vec::new(),
            plans: None,
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
    /// Plan mode was switched off.
    #[error("enter plan mode, which is disabled")]
    PlanDisabled,
}

/// Why asking means refusing. Source: runtime specification §6.3.
const NEEDS_USER: &str = "It requires user confirmation, which is not supported in non-interactive mode.";

// Rules of files, and one for each tool of a trusted server.
const RULES_MAX: usize = 65_536;

/// The rules of one session, and its mode.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    interactive: bool,
    trusted: bool,
    yolo_enabled: bool,
    plan_enabled: bool,
    always_allow_enabled: bool,
    save: Option<SavePlace>,
    /// In the order in which they are asked.
    rules: Vec<Rule>,
    checkers: Vec<Checker>,
    plans: Option<PlanFolder>,
    /// The mode that plan mode was entered from, while it is on.
    planned_from: Option<Mode>,
    /// The plan that is carried out.
    approved_plan: Option<PathBuf>,
}

impl Policy {
    /// The built-in rules and those of `options`. Fails if the mode may not be entered.
    pub fn new(options: PolicyOptions) -> Result<Self, ModeRefused> {
        let mut rules = builtin::rules();
        rules.extend(options.rules);
        let mut checkers = options.checkers;
        checkers.sort_by_key(|checker| std::cmp::Reverse(checker.priority));
        let mut policy = Self {
            mode: Mode::Default,
            interactive: options.interactive,
            trusted: options.trusted,
            yolo_enabled: options.yolo_enabled,
            plan_enabled: options.plan_enabled,
            always_allow_enabled: options.always_allow_enabled,
            save: options.save,
            rules,
            checkers,
            plans: options.plans,
            planned_from: None,
            approved_plan: None,
        };
        policy.sort();
        policy.set_mode(options.mode)?;
        // A session that begins with planning comes from nowhere.
        policy.planned_from = None;
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

    /// The rules, in the order in which they are asked.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Where plans may be written in plan mode.
    #[must_use]
    pub fn plans(&self) -> Option<&PlanFolder> {
        self.plans.as_ref()
    }

    /// Whether [`Self::set_mode`] would enter `mode`.
    pub fn may_enter(&self, mode: Mode) -> Result<(), ModeRefused> {
        if mode.is_privileged() && !self.trusted {
            return Err(ModeRefused::Untrusted);
        }
        match mode {
            Mode::Yolo if !self.yolo_enabled => Err(ModeRefused::YoloDisabled),
            Mode::Plan if !self.plan_enabled => Err(ModeRefused::PlanDisabled),
            Mode::Plan | Mode::Default | Mode::AutoEdit | Mode::Yolo => Ok(()),
        }
    }

    /// Enters `mode`.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), ModeRefused> {
        self.may_enter(mode)?;
        let before = std::mem::replace(&mut self.mode, mode);
        if mode == Mode::Plan {
            // Who plans anew has no plan yet.
            self.approved_plan = None;
            if before != Mode::Plan {
                self.planned_from = Some(before);
            }
        } else {
            self.planned_from = None;
        }
        Ok(())
    }

    /// Ends plan mode: `plan` is carried out from now on.
    ///
    /// With somebody to ask, edits are asked about again; the answer that allows them all has changed the mode already.
    /// With nobody, it is as it was before there was planning, and never more than that.
    pub fn carry_out(&mut self, plan: PathBuf) {
        if self.mode == Mode::Plan {
            let before = self.planned_from.take().filter(|mode| !self.interactive && self.may_enter(*mode).is_ok());
            self.mode = before.unwrap_or(Mode::Default);
        }
        self.approved_plan = Some(plan);
    }

    /// The plan that was approved last, unless planning began anew.
    #[must_use]
    pub fn approved_plan(&self) -> Option<&Path> {
        self.approved_plan.as_deref()
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
        self.sort();
    }

    /// The checkers to ask about a call that the rules let pass or want to ask about, in their order.
    #[must_use]
    pub fn checkers(&self, call: &PolicyCall<'_>) -> Vec<Checker> {
        let asked = |checker: &&Checker| {
            checker.scope.in_force(self.mode, self.interactive)
                && checker.scope.covers(&call.tool)
                && self.concerns_any_part(checker.scope.args.as_ref(), call)
        };
        self.checkers.iter().filter(asked).cloned().collect()
    }

    /// Whether the model should be told of `tool`: not if every call would be refused, whatever its arguments.
    #[must_use]
    pub fn offer(&self, tool: &ToolFacts<'_>) -> Offer {
        for rule in self.rules.iter().filter(|rule| self.is_in_force(rule) && rule.covers(tool)) {
            match (rule.decision, rule.scope.args.is_some()) {
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

    fn sort(&mut self) {
        self.rules.sort_by(|a, b| b.priority.cmp(&a.priority).then(b.decision.cmp(&a.decision)));
    }

    fn is_in_force(&self, rule: &Rule) -> bool {
        // What is allowed without a word about modes was not meant for a mode that changes nothing.
        let too_general = self.mode == Mode::Plan
            && rule.decision == Decision::Allow
            && rule.scope.modes.is_none()
            && rule.priority.tier() > Tier::Default;
        let no_folder = rule.scope.args == Some(ArgsPattern::PlanFiles) && self.plans.is_none();
        !too_general && !no_folder && rule.scope.in_force(self.mode, self.interactive)
    }

    fn refusal(&self, rule: &Rule) -> String {
        match &rule.deny_message {
            Some(message) => message.clone(),
            None => format!("It is denied in {} mode ({}).", self.mode.as_str(), rule.source),
        }
    }
}
