//! `convoke acp`: our agent for one client over stdio.

mod folders;

use std::sync::Arc;

use convoke_protocol::ExitCode;
use futures::FutureExt as _;
use tracing::level_filters::LevelFilter;

use self::folders::Folders;
use crate::agent_host::{self, Use};
use crate::args::AgentArgs;
use crate::failure::Exit;
use crate::signals;
use crate::startup::Startup;

/// Serves until stdin ends or a signal comes.
pub(crate) fn run(args: &AgentArgs) -> Exit {
    let startup = match Startup::read(None, args.skip_trust) {
        Ok(startup) => startup,
        Err(exit) => return exit,
    };
    let logging = match agent_host::logging(LevelFilter::WARN, args.debug, &startup, Use::Interactive) {
        Ok(logging) => logging,
        Err(exit) => return exit,
    };
    logging.ends_with(serve(args, &startup))
}

fn serve(args: &AgentArgs, startup: &Startup) -> Exit {
    startup.warn();
    agent_host::run_config(args, startup).tell(None, None);
    let factory = match Folders::new(args, startup) {
        Ok(folders) => Arc::new(folders),
        Err(exit) => return exit,
    };
    let runtime = match agent_host::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let with_v2 = startup.settings.flag("experimental.acpV2") == Some(true);
    let exit = runtime.block_on(async move {
        let shutdown = tokio_util::sync::CancellationToken::new();
        let mut interrupts = signals::Interrupts::listen();
        let serving = if with_v2 {
            let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
            convoke_acp::serve_with_v2(factory, input, output, shutdown.clone()).left_future()
        } else {
            convoke_acp::serve_stdio(factory, shutdown.clone()).right_future()
        };
        futures::pin_mut!(serving);
        loop {
            tokio::select! {
                ended = &mut serving => return match ended {
                    Ok(()) => Exit::ok(),
                    Err(error) => Exit::because(ExitCode::Failure, error),
                },
                () = interrupts.next() => shutdown.cancel(),
            }
        }
    });
    // A read of stdin can't be taken back; the process ends without it.
    runtime.shutdown_background();
    exit
}
