//! `convoke demo`: everything, with a scripted model, in a fresh workspace.

mod client;
mod script;
mod workspace;

use std::net::SocketAddr;

use anyhow::Context;
use convoke_bridge::BridgeOptions;
use convoke_daemon::{
    AgentSource, Daemon, DaemonLimits, DaemonOptions, Isolation, NamedAgents, PortOption, TokenOption,
};
use convoke_protocol::{ApprovalMode, ExitCode};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

use crate::args::{AgentArgs, DemoArgs};
use crate::failure::{Exit, print};
use crate::startup::Startup;
use crate::{agent_host, browser, logging, serve};

/// What the scripted model says: recorded answers, with a line for each way a person may decide.
pub(crate) const STORY: &str = include_str!("demo/story.jsonl");

/// Runs the demo until Ctrl-C, or with `--script` until the story is over.
pub(crate) fn run(args: &DemoArgs) -> Exit {
    match demo(args) {
        Ok(exit) => exit,
        Err(error) => Exit::because(ExitCode::Failure, format!("demo: {error:#}")),
    }
}

fn demo(args: &DemoArgs) -> anyhow::Result<Exit> {
    let folder = workspace::make().context("make the demo's workspace")?;
    // The folder was made a moment ago, by us: there is nothing in it to distrust.
    let startup = match Startup::read(Some(folder.path()), true) {
        Ok(startup) => startup,
        Err(exit) => return Ok(exit),
    };
    // A late vote is part of the story, not of the log.
    let _logging = logging::start(LevelFilter::ERROR, false, &startup.environment);
    let ours = AgentArgs {
        embedded_story: true,
        skip_trust: true,
        approval_mode: Some(crate::args::ApprovalArg::Default),
        ..AgentArgs::default()
    };
    let options = DaemonOptions {
        tcp: true,
        hostname: "127.0.0.1".to_owned(),
        port: PortOption::Given(args.port),
        socket: None,
        tls: None,
        rate: None,
        page: true,
        workspace: startup.workspace.clone(),
        token: TokenOption::Generate,
        require_auth: false,
        allow_origins: Vec::new(),
        token_file: None,
        audit_file: None,
        audit_sink: None,
        sessions_folder: None,
        agent: AgentSource::Command(serve::our_agent_command(&ours, &startup)),
        agents: NamedAgents::default(),
        isolation: Isolation::Workspace,
        spawner: agent_host::spawner(),
        bridge: BridgeOptions::default(),
        limits: DaemonLimits::default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        approval_mode: ApprovalMode::Default,
        trusted: true,
    };
    serve::runtime()?.block_on(async move {
        let daemon = Daemon::bind(options).await?;
        let token = daemon.generated_token().context("the daemon made no token")?.expose_secret().to_owned();
        if args.script {
            return play(daemon, &token).await;
        }
        let url = format!("{}/#token={token}", daemon.url());
        print(&format!("The agent works in {}", startup.workspace.display()));
        print(&format!("Open {url}"));
        print("Type a prompt, answer what it asks, open the URL a second time. Ctrl-C ends the demo.");
        if !args.no_open {
            browser::open(&url, &startup.environment);
        }
        Ok(serve::until_signal(daemon).await)
    })
}

async fn play(daemon: Daemon, token: &str) -> anyhow::Result<Exit> {
    let address: SocketAddr = daemon.address().context("the daemon has no address")?;
    let (shutdown, kill) = (CancellationToken::new(), CancellationToken::new());
    let running = daemon.run(shutdown.clone(), kill.clone());
    let playing = async {
        let played = script::play(address, token).await;
        shutdown.cancel();
        played
    };
    let (_, played) = tokio::join!(running, playing);
    played.map(|()| Exit::ok())
}
