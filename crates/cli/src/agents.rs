//! Subagents: where are their definitions, and `convoke agents`, which shows them and agrees to those of a folder.

pub(crate) mod documents;
pub(crate) mod remote;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use convoke_agent::{
    Acknowledgements, AgentCardSource, AgentDefinition, AgentKind, AgentRegistry, AgentSource, RemoteState,
    SubagentOptions, Variables, read_overrides,
};
use convoke_protocol::ExitCode;
use serde_json::{Value, json};

use documents::DOCUMENTS;

use crate::args::{AgentsArgs, AgentsCommand};
use crate::extensions::{self, Extension};
use crate::failure::{Exit, complain, print};
use crate::home::folders_in;
use crate::startup::Startup;
use crate::trust::Trust;

/// The folder with definitions, in a home's and a workspace's folder of ours.
const FOLDER: &str = "agents";
/// Keys below `agents` in the settings that are about subagents; the others are agents that a daemon hosts.
pub(crate) const KEYS: [&str; 2] = ["overrides", "maxDepth"];
/// Deeper than this nobody can follow who asks for what.
const DEPTH_MAX: i64 = 4;

/// What subagents are made from.
pub(crate) fn options(startup: &Startup, extensions: &[Extension]) -> SubagentOptions {
    let settings = &startup.settings;
    let ours = SubagentOptions::default();
    let depth = settings.integer("agents.maxDepth").map(|depth| depth.clamp(1, DEPTH_MAX));
    let acknowledged = |folder: PathBuf| folder.join("acknowledgments").join("agents.json");
    let folders = startup.home.as_ref().map(|home| home.folders());
    SubagentOptions {
        enabled: settings.flag("experimental.enableAgents") != Some(false),
        documents: &DOCUMENTS,
        extension_folders: extensions.iter().map(|extension| extension.part(FOLDER)).collect(),
        user_folders: folders.iter().flatten().map(|folder| folder.join(FOLDER)).collect(),
        workspace_folders: match startup.trust {
            Trust::Trusted => folders_in(Path::new("")).map(|folder| folder.join(FOLDER)).to_vec(),
            Trust::Untrusted => Vec::new(),
        },
        overrides: read_overrides(settings.get("agents.overrides")).0,
        acknowledgements: Acknowledgements {
            file: startup.home.as_ref().map(|home| acknowledged(home.folder())),
            more: folders.into_iter().flatten().take(1).map(acknowledged).collect(),
        },
        variables: {
            let environment = startup.environment.clone();
            Variables::new(move |name| environment.get(name).map(ToOwned::to_owned))
        },
        depth_max: depth.and_then(|depth| usize::try_from(depth).ok()).unwrap_or(ours.depth_max),
        ..ours
    }
}

/// What a person should hear about when a command begins.
pub(crate) fn warnings(startup: &Startup) -> Vec<String> {
    let mut warnings: Vec<String> =
        read_overrides(startup.settings.get("agents.overrides")).1.iter().map(ToString::to_string).collect();
    let own = startup.home.as_ref().is_some_and(|home| home.parent() == startup.workspace);
    let there = folders_in(&startup.workspace).iter().any(|folder| folder.join(FOLDER).is_dir());
    if startup.trust == Trust::Untrusted && there && !own {
        warnings.push(format!(
            "agents of {} are ignored because the folder is not trusted; add it to trustedFolders.json or pass \
             --skip-trust",
            startup.workspace.display()
        ));
    }
    warnings
}

/// `convoke agents`.
pub(crate) fn run(args: &AgentsArgs) -> Exit {
    let (AgentsCommand::List { skip_trust, .. } | AgentsCommand::Acknowledge { skip_trust, .. }) = &args.command;
    let startup = match Startup::read(None, *skip_trust) {
        Ok(startup) => startup,
        Err(exit) => return exit,
    };
    startup.warn();
    let (extensions, warnings) = extensions::chosen(&startup, &[]);
    warnings.iter().for_each(|warning| complain(&format!("warning: {warning}")));
    let options = options(&startup, &extensions);
    let registry = AgentRegistry::load(&options, &startup.workspace);
    match &args.command {
        AgentsCommand::List { json, wait, .. } => {
            let states = match remote::states(&registry, &options, &startup.workspace, *wait) {
                Ok(states) => states,
                Err(exit) => return exit,
            };
            if *json {
                print(&as_json(&registry, &options, &startup.workspace, &states).to_string());
                return Exit::ok();
            }
            as_text(&registry, &options, &startup.workspace, &states).iter().for_each(|line| print(line));
            registry.problems().iter().for_each(|problem| complain(&problem.to_string()));
            Exit::ok()
        }
        AgentsCommand::Acknowledge { name, .. } => acknowledge(name, &registry, &options, &startup.workspace),
    }
}

fn acknowledge(name: &str, registry: &AgentRegistry, options: &SubagentOptions, workspace: &Path) -> Exit {
    let hash = match registry.get(name).map(|agent| &agent.source) {
        Some(AgentSource::Workspace { hash, .. }) => hash,
        Some(source) => {
            let why = format!("agree to agent {name}: it is {}, which needs no agreement", source.name());
            return Exit::because(ExitCode::Input, why);
        }
        None => return Exit::because(ExitCode::Input, format!("agree to agent {name}: there is none of this name")),
    };
    match options.acknowledgements.record(workspace, name, hash) {
        Ok(()) => {
            print(&format!("Agent {name} of {} may be used, until its file changes.", workspace.display()));
            Exit::ok()
        }
        Err(error) => Exit::because(ExitCode::Failure, format!("remember that agent {name} may be used: {error}")),
    }
}

/// Whether the agent may be called; one of a folder needs a yes first.
fn agreed(agent: &AgentDefinition, options: &SubagentOptions, workspace: &Path) -> bool {
    match &agent.source {
        AgentSource::BuiltIn | AgentSource::Extension(_) | AgentSource::User(_) => true,
        AgentSource::Workspace { hash, .. } => options.acknowledgements.contain(workspace, &agent.name, hash),
    }
}

fn as_text(
    registry: &AgentRegistry,
    options: &SubagentOptions,
    workspace: &Path,
    states: &BTreeMap<String, RemoteState>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for agent in registry.all() {
        let source = match (agent.source.path(), agreed(agent, options, workspace)) {
            (None, _) => agent.source.name().to_owned(),
            (Some(path), true) => format!("{}, {}", agent.source.name(), path.display()),
            (Some(path), false) => format!("{}, {}, asks before it is used", agent.source.name(), path.display()),
        };
        match &agent.kind {
            AgentKind::Local(local) => {
                lines.push(format!("{} (local, {source})", agent.name));
                let tools = local.tool_names().map_or_else(|| "all".to_owned(), |names| names.join(", "));
                let model = local.model.as_deref().unwrap_or("the caller's");
                lines.push(format!(
                    "  tools: {tools}; model: {model}; at most {} turns, {} minutes",
                    local.max_turns,
                    minutes(local.timeout)
                ));
            }
            AgentKind::Remote(far) => {
                lines.push(format!("{} (remote, {source})", agent.name));
                let secret = remote::shown_secret(agent).map_or_else(String::new, |name| format!("; is told {name}"));
                lines.push(format!("  card: {}{secret}; at most {} minutes", card(&far.card), minutes(far.timeout)));
                lines.push(format!("  {}", remote::in_words(states.get(&agent.name))));
            }
        }
        lines.push(format!("  {}", agent.description.trim().replace('\n', "\n  ")));
    }
    if lines.is_empty() {
        lines.push("There are no agents.".to_owned());
    }
    lines
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

fn card(card: &AgentCardSource) -> &str {
    match card {
        AgentCardSource::Url(url) => url,
        AgentCardSource::Inline(_) => "in the definition",
    }
}

fn as_json(
    registry: &AgentRegistry,
    options: &SubagentOptions,
    workspace: &Path,
    states: &BTreeMap<String, RemoteState>,
) -> Value {
    let agents = registry.all().map(|agent| {
        let mut object = json!({
            "name": agent.name,
            "displayName": agent.display_name,
            "description": agent.description,
            "source": agent.source.name(),
            "path": agent.source.path(),
            "acknowledged": agreed(agent, options, workspace),
        });
        let more = match &agent.kind {
            AgentKind::Local(local) => json!({
                "kind": "local",
                "tools": local.tool_names(),
                "model": local.model,
                "maxTurns": local.max_turns,
                "timeoutMinutes": minutes(local.timeout),
            }),
            AgentKind::Remote(far) => json!({
                "kind": "remote",
                "card": card(&far.card),
                "timeoutMinutes": minutes(far.timeout),
                "secret": remote::shown_secret(agent),
                "remote": remote::as_json(states.get(&agent.name)),
            }),
        };
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        object
    });
    let problems =
        registry.problems().iter().map(|problem| json!({"place": problem.place, "message": problem.message}));
    json!({"agents": agents.collect::<Vec<_>>(), "problems": problems.collect::<Vec<_>>()})
}
