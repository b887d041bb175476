//! "Always allow": which rule does such an answer write, where, and until when?

use std::path::PathBuf;

use super::pattern::TextPattern;
use super::{
    ArgsPattern, Decision, Mode, ModeRefused, Policy, PolicyCall, Priority, Rule, Source, Tier, ToolPattern, builtin,
    shell,
};

// A session in which a person clicked "always" this often has a person who should write rules instead.
const REMEMBERED_MAX: usize = 256;
/// The tool whose approval ends plan mode, for edits that are asked about or for edits that are not.
const EXIT: &str = "exit_plan_mode";
const IN_SESSION: Source = Source::Named("always allow");
/// The tool for which an answer is about one agent, since the others do other things elsewhere.
const AGENT_TOOL: &str = "invoke_agent";
/// Above what people write, below the greatest.
const FRACTION: u16 = 950;

/// What a lasting answer would cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Always {
    /// The session goes to [`Mode::AutoEdit`].
    AutoEdit,
    /// Commands that begin with any of these words.
    Commands(Vec<Vec<String>>),
    /// Edits of one file with this tool.
    File {
        /// The tool.
        tool: String,
        /// The file, as the call names it.
        path: String,
    },
    /// Every task for this agent.
    Agent(String),
    /// Every call of this tool.
    Tool(String),
    /// Every tool of this MCP server.
    Server(String),
}

/// Where lasting answers are kept beyond a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavePlace {
    /// The file, named [`SAVED_FILE`](super::SAVED_FILE).
    pub path: PathBuf,
    /// Whose rules they are.
    pub tier: Tier,
}

/// A lasting answer on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastingOffer {
    /// The option's id.
    pub id: &'static str,
    /// What a person reads.
    pub label: String,
    /// What it covers.
    pub always: Always,
    /// Whether it is kept beyond the session.
    pub save: bool,
}

impl Always {
    fn what(&self) -> String {
        let quoted = |words: &Vec<String>| format!("\"{}\"", words.join(" "));
        match self {
            Self::AutoEdit => "all edits".to_owned(),
            Self::Commands(prefixes) => {
                format!("{} commands", prefixes.iter().map(quoted).collect::<Vec<_>>().join(", "))
            }
            Self::File { tool, path } => format!("{tool} of {path}"),
            Self::Agent(name) => format!("tasks for the agent {name}"),
            Self::Tool(name) => name.clone(),
            Self::Server(name) => format!("all tools of \"{name}\""),
        }
    }
}

impl Policy {
    /// The lasting answers that may be given about this call, in the order to show them.
    #[must_use]
    pub fn lasting(&self, call: &PolicyCall<'_>) -> Vec<LastingOffer> {
        if !self.always_allow_enabled {
            return Vec::new();
        }
        let mut offers = Vec::new();
        let name = call.tool.name;
        let mut offer = |id, always: Always, save: Option<&PathBuf>| {
            let what = always.what();
            let label = match (&always, save) {
                (Always::AutoEdit, _) if name == EXIT => "Approve, and allow all edits in this session".to_owned(),
                (Always::AutoEdit, _) => "Allow all edits in this session".to_owned(),
                (_, None) => format!("Always allow {what} in this session"),
                (_, Some(path)) => format!(
                    "Always allow {what} in {}, until the rule is removed from {}",
                    modes_in_words(self.mode),
                    path.display()
                ),
            };
            offers.push(LastingOffer { id, label, always, save: save.is_some() });
        };
        let save = self.save.as_ref().map(|place| &place.path);
        if builtin::EDITS.contains(&name) {
            if self.mode != Mode::Plan && self.mode < Mode::AutoEdit && self.may_enter(Mode::AutoEdit).is_ok() {
                offer("proceed_always", Always::AutoEdit, None);
            }
            let path = call.args.get("file_path").and_then(serde_json::Value::as_str);
            if let (Some(path), Some(place)) = (path, save) {
                let always = Always::File { tool: name.to_owned(), path: path.to_owned() };
                offer("proceed_always_and_save", always, Some(place));
            }
        } else if name == EXIT {
            if self.mode == Mode::Plan && self.may_enter(Mode::AutoEdit).is_ok() {
                offer("proceed_always", Always::AutoEdit, None);
            }
        } else if name == shell::TOOL {
            if let Some(prefixes) = self.prefixes_to_allow(call) {
                offer("proceed_always", Always::Commands(prefixes.clone()), None);
                if save.is_some() {
                    offer("proceed_always_and_save", Always::Commands(prefixes), save);
                }
            }
        } else if name == AGENT_TOOL {
            if let Some(agent) = call.args.get("agent_name").and_then(serde_json::Value::as_str) {
                offer("proceed_always", Always::Agent(agent.to_owned()), None);
                if save.is_some() {
                    offer("proceed_always_and_save", Always::Agent(agent.to_owned()), save);
                }
            }
        } else if !builtin::ALWAYS_ASKED.contains(&name) {
            match call.tool.mcp_server {
                None => offer("proceed_always", Always::Tool(name.to_owned()), None),
                Some(server) => {
                    offer("proceed_always_tool", Always::Tool(name.to_owned()), None);
                    offer("proceed_always_server", Always::Server(server.to_owned()), None);
                }
            }
            if save.is_some() {
                offer("proceed_always_and_save", Always::Tool(name.to_owned()), save);
            }
        }
        offers
    }

    /// Keeps a lasting answer: in force in this mode and in every more permissive one.
    pub fn remember(&mut self, always: &Always) -> Result<(), ModeRefused> {
        if *always == Always::AutoEdit {
            return self.set_mode(self.mode.max(Mode::AutoEdit));
        }
        for rule in self.rules_of(always, Tier::User, &IN_SESSION) {
            if self.rules.contains(&rule) {
                continue;
            }
            let ours = |rule: &Rule| rule.lasting && rule.source == IN_SESSION;
            if self.rules.iter().filter(|rule| ours(rule)).count() >= REMEMBERED_MAX
                && let Some(oldest) = self.rules.iter().position(ours)
            {
                self.rules.remove(oldest);
            }
            self.rules.push(rule);
        }
        self.sort();
        Ok(())
    }

    /// The rules that a lasting answer stands for.
    pub(super) fn rules_of(&self, always: &Always, tier: Tier, source: &Source) -> Vec<Rule> {
        let rule = |tool: &str, args: Option<ArgsPattern>| {
            let priority = Priority::new(tier, FRACTION);
            let mut rule = Rule::new(ToolPattern::Exact(tool.to_owned()), Decision::Allow, priority, source.clone());
            rule.lasting = true;
            rule.scope.args = args;
            rule.scope.modes = Some(Mode::ALL.into_iter().filter(|mode| *mode >= self.mode).collect());
            rule
        };
        match always {
            Always::AutoEdit => Vec::new(),
            Always::Commands(prefixes) => prefixes
                .iter()
                .map(|words| rule(shell::TOOL, Some(ArgsPattern::CommandPrefix(words.clone()))))
                .collect(),
            Always::File { tool, path } => {
                let pattern = TextPattern::new(&member_pattern("file_path", path));
                pattern.map(|pattern| rule(tool, Some(ArgsPattern::Text(pattern)))).into_iter().collect()
            }
            Always::Agent(name) => {
                let pattern = TextPattern::new(&member_pattern("agent_name", name));
                pattern.map(|pattern| rule(AGENT_TOOL, Some(ArgsPattern::Text(pattern)))).into_iter().collect()
            }
            Always::Tool(name) => vec![rule(name, None)],
            Always::Server(name) => {
                let mut rule = rule("*", None);
                rule.scope.tool = ToolPattern::Any;
                rule.scope.mcp_server = Some(name.clone());
                vec![rule]
            }
        }
    }
}

fn modes_in_words(mode: Mode) -> String {
    let names: Vec<&str> = Mode::ALL.into_iter().filter(|other| *other >= mode).map(Mode::in_files).collect();
    match names.as_slice() {
        [only] => format!("{only} mode"),
        [first @ .., last] => format!("{} and {last} mode", first.join(", ")),
        [] => "no mode".to_owned(),
    }
}

/// A pattern for calls with this argument: the whole member, so that nothing in another argument passes for it.
fn member_pattern(key: &str, value: &str) -> String {
    let json = serde_json::Value::String(value.to_owned()).to_string();
    format!("\\x00\"{key}\":{}\\x00", regex::escape(&json))
}
