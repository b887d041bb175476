//! `convoke mcp`: which servers are there, do they answer, and how does one come into settings?

mod edit;
mod login;
mod status;

use convoke_protocol::ExitCode;

use crate::args::{McpArgs, McpCommand};
use crate::failure::Exit;
use crate::startup::Startup;

/// Does what was asked for.
pub(crate) fn run(args: &McpArgs) -> Exit {
    let startup = match Startup::read(None, args.skip_trust) {
        Ok(startup) => startup,
        Err(exit) => return exit,
    };
    startup.warn();
    let done = match &args.command {
        McpCommand::Add(add) => edit::add(&startup, add),
        McpCommand::Remove { name, scope } => edit::remove(&startup, name, *scope),
        McpCommand::List { json, wait } => status::list(&startup, *json, *wait),
        McpCommand::Login(login) => login::login(&startup, login),
        McpCommand::Logout { name } => login::logout(&startup, name),
        McpCommand::Test { name, json, wait } => status::test(&startup, name, *json, *wait),
    };
    match done {
        Ok(()) => Exit::ok(),
        Err(exit) => exit,
    }
}

fn fail(code: ExitCode, why: impl std::fmt::Display) -> Exit {
    Exit::because(code, why)
}
