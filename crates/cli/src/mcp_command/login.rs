//! Logging in to a server, and out again.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use convoke_mcp::{Flow, LoginRequest, LoginStep};
use convoke_protocol::ExitCode;
use futures::Stream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::{fail, status};
use crate::args::McpLoginArgs;
use crate::failure::{Exit, complain, print};
use crate::startup::Startup;
use crate::{agent_host, browser, mcp};

/// The longest line that may be an address.
const LINE_MAX: u64 = 64 * 1024;

fn file(startup: &Startup) -> Result<PathBuf, Exit> {
    let home = startup.home.as_ref();
    home.map(mcp::tokens_file)
        .ok_or_else(|| fail(ExitCode::Configuration, "keep a token: there is no home folder to keep it in"))
}

/// Logs in to the server, and keeps what it gives.
pub(super) fn login(startup: &Startup, args: &McpLoginArgs) -> Result<(), Exit> {
    let name = &args.name;
    let (configs, left_out) = status::configured(startup);
    let Some(config) = configs.into_iter().find(|config| config.name == *name) else {
        return Err(status::unknown("log in to", name, &left_out));
    };
    let tokens = file(startup)?;
    let flow = match (args.device, args.browser) {
        (true, _) => Flow::Device,
        (_, true) => Flow::Browser,
        _ => Flow::Auto,
    };
    let request = LoginRequest {
        server: &config,
        tokens: &tokens,
        flow,
        port: args.port,
        patience: Duration::from_secs(args.timeout),
        client: "convoke",
    };
    // Over a remote shell the browser is somewhere else.
    let opens = !args.no_open
        && std::io::stdout().is_terminal()
        && ["SSH_CONNECTION", "CI"].iter().all(|name| startup.environment.get(name).is_none());
    let show = |url: &str| {
        if opens {
            browser::open(url, &startup.environment);
        }
    };
    let tell = |step| match step {
        LoginStep::Open { url, comes_back } => {
            print(&format!("Open {url}"));
            print(match comes_back {
                true => "If the browser is on another machine, paste the address here that it ends at.",
                false => "Paste the address here that the browser ends at.",
            });
            show(&url);
        }
        LoginStep::Type { url, complete, code } => {
            print(&format!("Open {url} and type in {code}"));
            show(complete.as_deref().unwrap_or(&url));
        }
        LoginStep::Note(note) => complain(&format!("warning: {note}")),
    };
    let runtime = agent_host::runtime()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = convoke_mcp::login(request, tell, Box::pin(lines())) => done.map_err(|error| fail(ExitCode::Auth, error)),
            _ = tokio::signal::ctrl_c() => Err(fail(ExitCode::Cancelled, format!("log in to {name}: it was cancelled"))),
        }
    });
    // A read of stdin that nobody waits for any more must not hold the exit up.
    runtime.shutdown_background();
    let done = done?;
    let good_for = match done.expires_in {
        _ if done.renews => "; the token is renewed by itself".to_owned(),
        Some(seconds) => format!("; the token is good for {} minutes", seconds / 60),
        None => String::new(),
    };
    print(&format!("logged in to {name}{good_for}"));
    Ok(())
}

/// Forgets what the server gave.
pub(super) fn logout(startup: &Startup, name: &str) -> Result<(), Exit> {
    let tokens = file(startup)?;
    // The server may be out of settings already.
    match convoke_mcp::logout(&tokens, name) {
        Ok(true) => print(&format!("logged out of {name}")),
        Ok(false) => return Err(fail(ExitCode::Input, format!("log out of {name}: there is no token for it"))),
        Err(error) => return Err(fail(ExitCode::Failure, error)),
    }
    Ok(())
}

/// What a person types or pastes, up to the end of stdin.
fn lines() -> impl Stream<Item = String> {
    futures::stream::unfold(BufReader::new(tokio::io::stdin()), |mut input| async move {
        let mut bytes = Vec::new();
        match (&mut input).take(LINE_MAX).read_until(b'\n', &mut bytes).await {
            Ok(count) if count > 0 => Some((String::from_utf8_lossy(&bytes).into_owned(), input)),
            _ => None,
        }
    })
}
