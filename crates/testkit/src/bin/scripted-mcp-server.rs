//! The scripted MCP server as a process. See `convoke_testkit::run_scripted_mcp`.

use std::io::Write;
use std::process::ExitCode;

use convoke_testkit::{McpScript, run_scripted_mcp};

fn main() -> ExitCode {
    let Some(script) = McpScript::parse(std::env::args().skip(1)) else { return ExitCode::from(2) };
    if script.exit {
        // Last words, for whoever reports an exit; without a stderr there is nobody to tell.
        let _ = std::io::stderr().write_all(b"starting\nboom: no such database\n");
        return ExitCode::FAILURE;
    }
    match run_scripted_mcp(script, std::io::stdin().lock(), std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
