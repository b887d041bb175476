//! What do settings say about hooks? Source: runtime specification §10.1.
//!
//! A source that is farther away is weaker, but only in order: no source can switch off the hooks of another one, except
//! that the user and the system can switch off anybody's. Otherwise a cloned folder could take the guard off its door.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::matcher::Matcher;
use super::{HookEvent, HookTrust};

/// How long a hook may take where its entry says nothing.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most hooks of a session. Each is a process per event; hundreds are a mistake in a generator.
const HOOKS_MAX: usize = 256;

/// Whose hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookSource {
    /// The working folder's. They came with it, so they need an acknowledgement.
    Project,
    /// The user's.
    User,
    /// The machine's.
    System,
    /// An extension's, by name. Its installation was the acknowledgement.
    Extension(String),
}

impl fmt::Display for HookSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project => f.write_str("project"),
            Self::User => f.write_str("user"),
            Self::System => f.write_str("system"),
            Self::Extension(name) => write!(f, "extension {name}"),
        }
    }
}

/// What one source says.
#[derive(Clone, Debug)]
pub struct HookLayer {
    /// Whose it is.
    pub source: HookSource,
    /// Its `hooks`: an object of events.
    pub hooks: Value,
    /// Its `hooksConfig`.
    pub config: Value,
}

/// One command to run at an event.
#[derive(Clone, Debug)]
pub struct HookDefinition {
    /// When.
    pub event: HookEvent,
    /// Whose.
    pub source: HookSource,
    /// For which tools or triggers, as it was written.
    pub matcher: Option<String>,
    /// What it is called.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What the shell runs.
    pub command: String,
    /// Variables that it gets on top.
    pub env: Vec<(String, String)>,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether all hooks of the event run one after the other.
    pub sequential: bool,
    /// Whether nobody switched it off.
    pub enabled: bool,
    pub(super) matching: Matcher,
}

impl HookDefinition {
    /// What people know it by: its name, else its command.
    #[must_use]
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.command)
    }

    /// Whether it may run as far as trust is concerned: what came with the folder runs once its user agreed to it, in
    /// `trust` or by having the very same among his own of `all`.
    #[must_use]
    pub fn may_run(&self, all: &[Arc<Self>], trust: &dyn HookTrust) -> bool {
        if self.source != HookSource::Project || !self.enabled {
            return true;
        }
        let digest = self.digest();
        let own = |other: &Arc<Self>| other.source != HookSource::Project && other.digest() == digest;
        all.iter().any(own) || trust.is_trusted(&digest)
    }

    /// A digest of what would run and when: any change of it makes another hook of it.
    #[must_use]
    pub fn digest(&self) -> String {
        let what = serde_json::json!([self.event.name(), self.command, self.env]);
        let mut text = String::with_capacity(64);
        for byte in Sha256::digest(what.to_string()) {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// All hooks of a session, the nearest source first.
#[derive(Clone, Debug, Default)]
pub struct HookSettings {
    /// The hooks, those that are switched off included.
    pub hooks: Vec<Arc<HookDefinition>>,
    /// What could not be understood.
    pub warnings: Vec<String>,
}

/// What `hooksConfig` switches off.
#[derive(Default)]
struct Off {
    all: bool,
    names: Vec<String>,
}

impl Off {
    fn read(config: &Value) -> Self {
        let names = config.get("disabled").and_then(Value::as_array).into_iter().flatten();
        Self {
            all: config.get("enabled") == Some(&Value::Bool(false)),
            names: names.filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
        }
    }

    fn covers(&self, hook: &HookDefinition) -> bool {
        self.all || self.names.iter().any(|name| hook.name.as_ref() == Some(name) || hook.command == *name)
    }
}

impl HookSettings {
    /// Reads `layers`, the nearest source first. What can't be used is left out with a warning.
    #[must_use]
    pub fn read(layers: &[HookLayer]) -> Self {
        let mut read = Self::default();
        let off: Vec<(&HookSource, Off)> =
            layers.iter().map(|layer| (&layer.source, Off::read(&layer.config))).collect();
        for layer in layers {
            read.layer(layer, &off);
        }
        if read.hooks.len() > HOOKS_MAX {
            read.warnings.push(format!("there are {} hooks; only the first {HOOKS_MAX} run", read.hooks.len()));
            read.hooks.truncate(HOOKS_MAX);
        }
        read
    }

    fn layer(&mut self, layer: &HookLayer, off: &[(&HookSource, Off)]) {
        let Some(events) = layer.hooks.as_object() else {
            if !layer.hooks.is_null() {
                self.warnings.push(format!("hooks ({}): it must be an object of events", layer.source));
            }
            return;
        };
        for (name, groups) in events {
            let at = format!("hooks.{name} ({})", layer.source);
            let (Some(event), Some(groups)) = (HookEvent::parse(name), groups.as_array()) else {
                self.warnings.push(format!("{at}: it is no list of an event's hooks"));
                continue;
            };
            for group in groups {
                self.group(layer, event, group, &at, off);
            }
        }
    }

    fn group(&mut self, layer: &HookLayer, event: HookEvent, group: &Value, at: &str, off: &[(&HookSource, Off)]) {
        let matcher = group.get("matcher").and_then(Value::as_str);
        let (matching, odd) = Matcher::new(event, matcher);
        self.warnings.extend(odd.map(|why| format!("{at}: {why}")));
        let sequential = group.get("sequential") == Some(&Value::Bool(true));
        for entry in group.get("hooks").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| {
                entry.get(key).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty()).map(ToOwned::to_owned)
            };
            let kind = entry.get("type").and_then(Value::as_str).unwrap_or("command");
            let (true, Some(command)) = (kind == "command", text("command")) else {
                self.warnings.push(format!("{at}: an entry without a command is left out"));
                continue;
            };
            let mut hook = HookDefinition {
                event,
                source: layer.source.clone(),
                matcher: matcher.map(ToOwned::to_owned),
                name: text("name"),
                description: text("description"),
                command,
                env: env(entry.get("env")),
                timeout: timeout(entry.get("timeout")),
                sequential,
                enabled: true,
                matching: matching.clone(),
            };
            hook.enabled = !off.iter().any(|(source, off)| {
                let may = **source == layer.source || matches!(source, HookSource::User | HookSource::System);
                may && off.covers(&hook)
            });
            self.hooks.push(Arc::new(hook));
        }
    }
}

fn env(value: Option<&Value>) -> Vec<(String, String)> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// In milliseconds.
fn timeout(value: Option<&Value>) -> Duration {
    let given = value.and_then(Value::as_f64).filter(|ms| *ms >= 1.0);
    given.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok()).unwrap_or(TIMEOUT)
}

/// The hooks of one event, and how they run.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) hooks: Vec<Arc<HookDefinition>>,
    pub(super) sequential: bool,
}

impl Plan {
    /// Chooses among `hooks` what runs at `event`. The same hook in several places runs once.
    pub(super) fn new(hooks: &[Arc<HookDefinition>], event: HookEvent, subject: Option<&str>) -> Self {
        let mut plan = Self::default();
        for hook in hooks {
            if hook.event != event || !hook.enabled || !hook.matching.matches(subject) {
                continue;
            }
            plan.sequential |= hook.sequential;
            if !plan.hooks.iter().any(|other| other.name == hook.name && other.command == hook.command) {
                plan.hooks.push(hook.clone());
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn layer(source: HookSource, hooks: Value, config: Value) -> HookLayer {
        HookLayer { source, hooks, config }
    }

    fn entry(command: &str) -> Value {
        json!({"hooks": [{"type": "command", "command": command}]})
    }

    #[test]
    fn a_full_entry_is_read() {
        let hooks = json!({"BeforeTool": [{"matcher": "write_file|replace", "sequential": true, "hooks": [
            {"type": "command", "command": " ./check.sh ", "name": "check", "timeout": 1500, "env": {"K": "V", "n": 1}},
            {"type": "runtime"}, {"command": ""}, {"command": "other", "timeout": -1}]}],
            "Nope": [], "AfterTool": {}});
        let read = HookSettings::read(&[layer(HookSource::User, hooks, Value::Null)]);
        let first = &read.hooks[0];
        assert_eq!((first.command.as_str(), first.label()), ("./check.sh", "check"));
        assert_eq!((first.timeout, first.sequential), (Duration::from_millis(1500), true));
        assert_eq!(first.env, [("K".to_owned(), "V".to_owned())]);
        assert_eq!((read.hooks[1].label(), read.hooks[1].timeout), ("other", TIMEOUT));
        assert_eq!((read.hooks.len(), read.warnings.len()), (2, 4));
    }

    #[test]
    fn the_same_hook_in_two_places_runs_once_and_one_sequential_group_binds_all() {
        let ours = json!({"BeforeAgent": [entry("a"), {"sequential": true, "hooks": [{"command": "b"}]}]});
        let theirs = json!({"BeforeAgent": [entry("a"), entry("c")]});
        let read = HookSettings::read(&[
            layer(HookSource::Project, ours, Value::Null),
            layer(HookSource::User, theirs, Value::Null),
        ]);
        let plan = Plan::new(&read.hooks, HookEvent::BeforeAgent, None);
        let commands: Vec<_> = plan.hooks.iter().map(|hook| hook.command.as_str()).collect();
        assert_eq!((commands, plan.sequential), (vec!["a", "b", "c"], true));
        assert!(Plan::new(&read.hooks, HookEvent::AfterAgent, None).hooks.is_empty());
    }

    #[test]
    fn a_project_switches_off_its_own_hooks_only() {
        let hooks = |command: &str| json!({"BeforeAgent": [entry(command)]});
        let enabled = |project: Value, user: Value| {
            let read = HookSettings::read(&[
                layer(HookSource::Project, hooks("theirs"), project),
                layer(HookSource::User, hooks("mine"), user),
            ]);
            read.hooks.iter().map(|hook| hook.enabled).collect::<Vec<_>>()
        };
        assert_eq!(enabled(json!({"enabled": false}), json!({})), [false, true]);
        assert_eq!(enabled(json!({"disabled": ["mine"]}), json!({})), [true, true]);
        assert_eq!(enabled(json!({}), json!({"disabled": ["mine", "theirs"]})), [false, false]);
        assert_eq!(enabled(json!({}), json!({"enabled": false})), [false, false]);
    }

    #[test]
    fn a_digest_is_of_what_runs() {
        let digest = |entry: Value| {
            let hooks = json!({"BeforeAgent": [{"hooks": [entry]}]});
            HookSettings::read(&[layer(HookSource::Project, hooks, Value::Null)]).hooks[0].digest()
        };
        let plain = digest(json!({"command": "a"}));
        assert_eq!(plain.len(), 64);
        assert_eq!(plain, digest(json!({"command": "a", "name": "x", "timeout": 5})));
        assert_ne!(plain, digest(json!({"command": "b"})));
        assert_ne!(plain, digest(json!({"command": "a", "env": {"BASH_ENV": "evil.sh"}})));
    }
}
