//! `convoke serve`: the daemon, wired.

mod agent;
mod limits;
mod options;
mod token;

pub(crate) use token::{TOKEN_VARIABLES, read_token};

use anyhow::Context;
use convoke_daemon::{Daemon, ExitOutcome};
use convoke_protocol::ExitCode;
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

pub(crate) use agent::our_agent_command;

use crate::args::ServeArgs;
use crate::failure::{Exit, complain, print};
use crate::startup::Startup;
use crate::telemetry::Traces;
use crate::{logging, signals};

/// Serves until a signal comes. Every failure to start ends with 1, as clients of the wire expect.
pub(crate) fn run(args: &ServeArgs) -> Exit {
    let startup = match Startup::read(args.workspace.as_deref(), args.our_agent.skip_trust) {
        Ok(startup) => startup,
        Err(_) => return Exit::from(ExitCode::Failure),
    };
    let traces = match Traces::open(&startup.environment, &startup.settings) {
        Ok(traces) => traces,
        Err(error) => return Exit::because(ExitCode::Failure, format!("serve: {error:#}")),
    };
    let debug = args.our_agent.debug;
    let logging = logging::start_with(LevelFilter::INFO, debug, &startup.environment, args.log_format, traces);
    startup.warn();
    let served = serve(args, &startup);
    // What led to the end comes before the end.
    drop(logging);
    match served {
        Ok(exit) => exit,
        Err(error) => Exit::because(ExitCode::Failure, format!("serve: {error:#}")),
    }
}

fn serve(args: &ServeArgs, startup: &Startup) -> anyhow::Result<Exit> {
    let options = options::options(args, startup)?;
    let runtime = runtime()?;
    let exit = runtime.block_on(async move {
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
    });
    // Whatever still hangs on a file system that does not answer ends with the process.
    runtime.shutdown_background();
    exit
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
