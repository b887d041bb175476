//! The binary: arguments, settings, wiring.
//!
//! The only room that reads settings, environment and home, and the only one that names concrete types of all others.

mod acp;
mod agent_host;
mod agents;
mod args;
mod attach;
mod browser;
mod credentials;
mod demo;
mod environment;
mod extensions;
mod failure;
mod headless;
mod home;
mod hooks;
mod logging;
mod login;
mod mcp;
mod mcp_command;
mod models_command;
mod policies;
mod policy_command;
mod providers;
mod sandbox;
mod secret;
mod serve;
mod sessions;
mod settings;
mod signals;
mod startup;
mod telemetry;
mod tool_options;
mod trust;
mod worktree;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use convoke_stdx::guard::{self, Duty, WatchOptions};

use args::{Cli, Command};
use failure::Exit;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let serves = args.get(1).is_some_and(|arg| arg == "serve");
    match args.get(1).and_then(|arg| arg.to_str()) {
        Some(guard::SUBCOMMAND) => run_guard(args.into_iter().skip(2)),
        // Answered before anything is parsed or loaded: tools ask for it all the time.
        Some("--version" | "-v" | "-V") if args.len() == 2 => {
            failure::print(&format!("convoke {}", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        _ => match Cli::try_parse_from(args) {
            Ok(cli) => dispatch(cli).into(),
            Err(error) => usage(&error, serves).into(),
        },
    }
}

/// This process becomes the guard of another one; see `stdx::guard`.
fn run_guard(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(options) = WatchOptions::parse(args) else {
        failure::complain("__guard is not for people");
        return ExitCode::FAILURE;
    };
    match guard::watch(&options) {
        Ok(end) => ExitCode::from(end.mirror()),
        Err(error) => {
            let what = match &options.duty {
                Duty::One { program, .. } => format!("start {}", program.display()),
                Duty::Jobs => "run programs".to_owned(),
            };
            failure::complain(&format!("{what}: {error}"));
            // What a shell answers for a command that is not there, or can't be run.
            ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
        }
    }
}

fn dispatch(cli: Cli) -> Exit {
    match cli.command {
        Some(Command::Acp(args)) => acp::run(&args),
        Some(Command::Serve(args)) => serve::run(&args),
        Some(Command::Attach(args)) => attach::run(&args),
        Some(Command::Policy(args)) => policy_command::run(&args),
        Some(Command::Agents(args)) => agents::run(&args),
        Some(Command::Models(args)) => models_command::run(&args),
        Some(Command::Hooks(args)) => hooks::command::run(&args),
        Some(Command::Mcp(args)) => mcp_command::run(&args),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Extensions(args)) => extensions::run(&args.command),
        None if cli.run.acp => acp::run(&cli.run.agent),
        None => agent_host::run_headless(cli.run),
    }
}

/// Help and version go to stdout; what is wrong goes to stderr with our own codes: the daemon has one for all.
fn usage(error: &clap::Error, serves: bool) -> Exit {
    let exit = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::ok(),
        ErrorKind::ArgumentConflict if !serves => Exit::from(convoke_protocol::ExitCode::Input),
        _ => Exit::from(convoke_protocol::ExitCode::Failure),
    };
    // A closed pipe is all that can go wrong here.
    let _ = error.print();
    exit
}
