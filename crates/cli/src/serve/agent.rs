//! Which agents does the daemon host? Those of the settings by their names, another one's command line, or this binary's
//! own as a child.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use convoke_daemon::{AgentCommand, AgentSource, NamedAgents, SECRET_VARIABLES};
use serde_json::Value;

use crate::agents;
use crate::args::{AgentArgs, ServeArgs};
use crate::credentials;
use crate::failure::complain;
use crate::settings::Settings;
use crate::startup::Startup;
use crate::trust::Trust;

/// The name of our own agent.
const OURS: &str = "convoke";

/// The agent of sessions that ask for none, and every other one by its name.
pub(super) fn agents(args: &ServeArgs, startup: &Startup) -> anyhow::Result<(AgentSource, NamedAgents)> {
    let cwd = &startup.workspace;
    let mut others = from_settings(&startup.settings, cwd)?;
    let ours = || our_agent(&args.our_agent, startup);
    let wanted = args.agent.as_deref().or_else(|| startup.settings.text("serve.agent"));
    let (default_name, agent) = match wanted {
        None | Some(OURS) => (OURS.to_owned(), ours()?),
        Some(wanted) => match others.remove(wanted) {
            Some(agent) => (wanted.to_owned(), agent),
            None => foreign_agent(wanted, cwd)?,
        },
    };
    // Ours is there for the asking, if it has a model.
    if default_name != OURS
        && let Ok(ours) = ours()
    {
        others.insert(OURS.to_owned(), ours);
    }
    let others = others.into_iter().map(|(name, command)| (name, AgentSource::Command(command))).collect();
    Ok((AgentSource::Command(agent), NamedAgents { default_name, others }))
}

/// `agents: { NAME: { command, args, env } }`.
fn from_settings(settings: &Settings, cwd: &Path) -> anyhow::Result<BTreeMap<String, AgentCommand>> {
    let mut agents = BTreeMap::new();
    for (name, agent) in settings.get("agents").and_then(Value::as_object).into_iter().flatten() {
        // Other programs keep other things under this key of files that we read, too.
        let Some(program) = agent.get("command").and_then(Value::as_str).filter(|command| !command.is_empty()) else {
            if agents::KEYS.contains(&name.as_str()) {
                continue;
            }
            complain(&format!("warning: agents.{name} in the settings has no command and is ignored"));
            continue;
        };
        let well_formed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name == OURS || name.is_empty() || name.len() > 64 || !name.chars().all(well_formed) {
            bail!("read agents.{name}: a name has up to 64 letters, digits, '.', '_' and '-', and is not {OURS}");
        }
        let texts = |value: Option<&Value>| value.and_then(Value::as_str).map(OsString::from);
        let args = match agent.get("args") {
            None => Some(Vec::new()),
            Some(args) => args.as_array().and_then(|args| args.iter().map(|arg| texts(Some(arg))).collect()),
        };
        let env = match agent.get("env") {
            None => Some(Vec::new()),
            Some(env) => env.as_object().and_then(|env| {
                env.iter().map(|(name, value)| Some((OsString::from(name), texts(Some(value))?))).collect()
            }),
        };
        let args = args.with_context(|| format!("read agents.{name}.args: it must be a list of texts"))?;
        let env_set: Vec<(OsString, OsString)> =
            env.with_context(|| format!("read agents.{name}.env: its values must be texts"))?;
        if let Some((secret, _)) = env_set.iter().find(|(name, _)| SECRET_VARIABLES.iter().any(|secret| name == secret))
        {
            bail!("read agents.{name}.env: {} is the daemon's own", secret.display());
        }
        let command =
            AgentCommand { program: program.into(), args, cwd: cwd.to_owned(), env_remove: Vec::new(), env_set };
        agents.insert(name.clone(), command);
    }
    Ok(agents)
}

/// `--agent "COMMAND ARGS"`, split as a shell would, under its program's name.
fn foreign_agent(line: &str, cwd: &Path) -> anyhow::Result<(String, AgentCommand)> {
    let words = shlex::split(line).with_context(|| format!("read --agent {line:?}: a quote is not closed"))?;
    let mut words = words.into_iter().map(OsString::from);
    let program = words.next().context("read --agent: it names no program")?;
    let name = Path::new(&program).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let args = words.collect();
    Ok((name, AgentCommand { program, args, cwd: cwd.to_owned(), env_remove: Vec::new(), env_set: Vec::new() }))
}

/// This binary, as an agent. Refuses at once if it would have no model, rather than with the first session.
fn our_agent(args: &AgentArgs, startup: &Startup) -> anyhow::Result<AgentCommand> {
    credentials::choose(args, startup).context("start our own agent (another one: --agent \"COMMAND\")")?;
    Ok(our_agent_command(args, startup))
}

/// The command line that gives a child the same options as these.
pub(crate) fn our_agent_command(args: &AgentArgs, startup: &Startup) -> AgentCommand {
    let program = std::env::current_exe().map_or_else(|_| OsString::from("convoke"), PathBuf::into_os_string);
    let mut line: Vec<OsString> = vec!["acp".into()];
    let mut option = |name: &str, value: &std::ffi::OsStr| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        line.push(word);
    };
    if let Some(model) = &args.model {
        option("model", model.as_ref());
    }
    if let Some(mode) = args.mode() {
        option("approval-mode", mode.cli().as_ref());
    }
    for tool in &args.allowed_tools {
        option("allowed-tools", tool.as_ref());
    }
    for (name, paths) in [("policy", &args.policy), ("admin-policy", &args.admin_policy)] {
        for path in paths {
            option(name, std::path::absolute(path).unwrap_or_else(|_| path.clone()).as_os_str());
        }
    }
    for folder in &args.include_directories {
        option("include-directories", folder.as_ref());
    }
    for (name, file) in [
        ("fake-responses", &args.fake_responses),
        ("fake-responses-non-strict", &args.fake_responses_non_strict),
        ("record-responses", &args.record_responses),
    ] {
        if let Some(file) = file {
            option(name, std::path::absolute(file).unwrap_or_else(|_| file.clone()).as_os_str());
        }
    }
    // Trust was looked up here; the child works in the same folder.
    line.extend((args.skip_trust && startup.trust == Trust::Trusted).then(|| "--skip-trust".into()));
    line.extend(args.debug.then(|| "--debug".into()));
    line.extend(args.embedded_story.then(|| "--embedded-story".into()));
    let cwd = startup.workspace.clone();
    AgentCommand { program, args: line, cwd, env_remove: Vec::new(), env_set: Vec::new() }
}
