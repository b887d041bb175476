//! Which command line does the daemon host? Another agent's, or this binary's own as a child.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use convoke_daemon::AgentCommand;

use crate::args::{AgentArgs, ServeArgs};
use crate::credentials;
use crate::startup::Startup;
use crate::trust::Trust;

/// Environment variables that only the daemon may see; its agents get the rest.
pub(super) const DAEMON_SECRETS: &[&str] = &["QWEN_SERVER_TOKEN", "CONVOKE_TOKEN"];

/// The agent that the arguments ask for.
pub(super) fn agent(args: &ServeArgs, startup: &Startup, workspace: PathBuf) -> anyhow::Result<AgentCommand> {
    match &args.agent {
        Some(line) => foreign_agent(line, workspace),
        None => our_agent(&args.our_agent, startup),
    }
}

/// `--agent "COMMAND ARGS"`, split as a shell would.
fn foreign_agent(line: &str, cwd: PathBuf) -> anyhow::Result<AgentCommand> {
    let words = shlex::split(line).with_context(|| format!("read --agent {line:?}: a quote is not closed"))?;
    let mut words = words.into_iter().map(OsString::from);
    let program = words.next().context("read --agent: it names no program")?;
    let (args, env_remove) = (words.collect(), names(DAEMON_SECRETS));
    Ok(AgentCommand { program, args, cwd, env_remove, env_set: Vec::new() })
}

/// This binary, as an agent. Refuses at once if it would have no model, rather than with the first session.
fn our_agent(args: &AgentArgs, startup: &Startup) -> anyhow::Result<AgentCommand> {
    credentials::choose(args, &startup.environment, &startup.settings)
        .context("start our own agent (another one: --agent \"COMMAND\")")?;
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
    AgentCommand { program, args: line, cwd, env_remove: names(DAEMON_SECRETS), env_set: Vec::new() }
}

fn names(names: &[&str]) -> Vec<OsString> {
    names.iter().map(OsString::from).collect()
}
