//! `convoke serve`: the daemon, wired.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use convoke_bridge::BridgeOptions;
use convoke_daemon::{
    AgentCommand, AgentSource, Daemon, DaemonLimits, DaemonOptions, ExitOutcome, PortOption, TokenOption, apply_policy,
    parse_max_sessions, parse_permission_timeout, parse_ring_size,
};
use convoke_protocol::{ApprovalMode, ExitCode};
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

use crate::args::{AgentArgs, ServeArgs};
use crate::failure::{Exit, complain, print};
use crate::startup::Startup;
use crate::trust::Trust;
use crate::{agent_host, credentials, logging, signals};

/// Environment variables that only the daemon may see; its agents get the rest.
const DAEMON_SECRETS: &[&str] = &["QWEN_SERVER_TOKEN", "CONVOKE_TOKEN"];

/// Serves until a signal comes. Every failure to start ends with 1, as clients of the wire expect.
pub(crate) fn run(args: &ServeArgs) -> Exit {
    let startup = match Startup::read(args.workspace.as_deref(), args.our_agent.skip_trust) {
        Ok(startup) => startup,
        Err(_) => return Exit::from(ExitCode::Failure),
    };
    logging::start(LevelFilter::INFO, args.our_agent.debug, &startup.environment);
    startup.warn();
    match serve(args, &startup) {
        Ok(exit) => exit,
        Err(error) => Exit::because(ExitCode::Failure, format!("serve: {error:#}")),
    }
}

fn serve(args: &ServeArgs, startup: &Startup) -> anyhow::Result<Exit> {
    let options = options(args, startup)?;
    runtime()?.block_on(async move {
        let daemon = Daemon::bind(options).await?;
        for notice in daemon.notices() {
            complain(notice);
        }
        // The one place where a token is shown: to the operator, who has no other way to learn it.
        if let Some(token) = daemon.generated_token().map(ExposeSecret::expose_secret) {
            complain(&format!("the token of this run is {token}"));
            complain(&format!("open {}/#token={token}", daemon.url()));
        }
        print(&daemon.ready_line());
        Ok(until_signal(daemon).await)
    })
}

/// Runs the daemon until a signal comes; a second one ends it at once.
pub(crate) async fn until_signal(daemon: Daemon) -> Exit {
    let (shutdown, kill) = (CancellationToken::new(), CancellationToken::new());
    let running = daemon.run(shutdown.clone(), kill.clone());
    futures::pin_mut!(running);
    let mut interrupts = signals::Interrupts::listen();
    loop {
        tokio::select! {
            outcome = &mut running => {
                return Exit::from(match outcome {
                    ExitOutcome::Clean => ExitCode::Success,
                    ExitOutcome::Forced => ExitCode::Failure,
                });
            }
            () = interrupts.next() => {
                if shutdown.is_cancelled() {
                    kill.cancel();
                }
                shutdown.cancel();
            }
        }
    }
}

/// Two threads: one for the owner of the bridge, one for sockets. More would only take turns waiting.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().context("start the runtime")
}

fn options(args: &ServeArgs, startup: &Startup) -> anyhow::Result<DaemonOptions> {
    let mut bridge = BridgeOptions::default();
    if let Some(warning) = apply_policy(&mut bridge, startup.settings.get("policy"))? {
        complain(warning);
    }
    if let Some(text) = &args.permission_response_timeout_ms {
        bridge.permission_timeout = parse_permission_timeout(text)?;
    } else if let Some(value) = startup.settings.get("policy.permissionResponseTimeoutMs") {
        bridge.permission_timeout = parse_permission_timeout(&value.to_string())?;
    }
    if let Some(text) = &args.max_sessions {
        bridge.limits.sessions_per_workspace = parse_max_sessions(text)?;
    }
    if let Some(text) = &args.event_ring_size {
        bridge.limits.ring_frames = parse_ring_size(text)?;
    }
    if let Some(number) = whole("--max-pending-prompts-per-session", &args.max_pending_prompts_per_session)? {
        bridge.limits.pending_prompts = number;
    }
    let mut limits = DaemonLimits::default();
    if let Some(number) = whole("--max-connections", &args.max_connections)? {
        limits.connections = number;
    }
    if let Some(number) = whole("--initialize-timeout-ms", &args.initialize_timeout_ms)? {
        limits.initialize_timeout = Duration::from_millis(u64::try_from(number)?);
    }
    let given = args.token.as_deref().or_else(|| startup.environment.get("QWEN_SERVER_TOKEN"));
    if args.token.is_some() {
        complain(
            "warning: a token on the command line is visible to every user of this machine; use QWEN_SERVER_TOKEN",
        );
    }
    let token = match given.map(str::trim).filter(|token| !token.is_empty()) {
        _ if args.no_auth => TokenOption::NoAuth,
        Some(token) => TokenOption::Given(SecretString::from(token)),
        None => TokenOption::Generate,
    };
    if args.no_auth {
        complain("warning: --no-auth lets every process of this machine drive the agent");
    }
    let approval_mode = args.our_agent.mode().unwrap_or(ApprovalMode::Default);
    let workspace = workspace(args.workspace.as_deref(), startup);
    Ok(DaemonOptions {
        hostname: args.hostname.clone(),
        port: args.port.map_or(PortOption::Default, PortOption::Given),
        workspace: workspace.clone(),
        token,
        require_auth: args.require_auth,
        allow_origins: args.allow_origin.clone(),
        token_file: startup.home.as_ref().map(|home| home.folder().join("run").join("serve-token")),
        audit_file: startup.home.as_ref().map(|home| home.folder().join("audit").join("permissions.jsonl")),
        agent: AgentSource::Command(match &args.agent {
            Some(line) => foreign_agent(line, workspace)?,
            None => our_agent(&args.our_agent, startup)?,
        }),
        spawner: agent_host::spawner(),
        bridge,
        limits,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        approval_mode,
        trusted: startup.trust == Trust::Trusted,
    })
}

/// A given folder is checked as it was written; the current one is resolved.
fn workspace(given: Option<&Path>, startup: &Startup) -> PathBuf {
    match given {
        Some(path) if !path.is_absolute() || !path.is_dir() => path.to_owned(),
        Some(_) | None => startup.workspace.clone(),
    }
}

fn whole(flag: &str, text: &Option<String>) -> anyhow::Result<Option<usize>> {
    let Some(text) = text else { return Ok(None) };
    let number = text.trim().parse().with_context(|| format!("Invalid {flag}: {text}. Must be a number >= 0"))?;
    Ok(Some(number))
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
