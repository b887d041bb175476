//! The scripted ACP agent as a process: JSON-RPC on stdin and stdout. See `convoke_testkit::run_scripted_agent`.

use std::io::Write;
use std::process::ExitCode;

use convoke_testkit::{Script, run_scripted_agent};

fn main() -> ExitCode {
    let Some(script) = Script::parse(std::env::args().skip(1)) else { return ExitCode::from(2) };
    if script.exit_at_start.is_some() {
        // Last words, for whoever reports an exit; without a stderr there is nobody to tell.
        let _ = std::io::stderr().write_all(b"starting\nboom: no such model\n");
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let code = runtime.block_on(run_scripted_agent(script, tokio::io::stdin(), tokio::io::stdout()));
    // A read of stdin can't be interrupted; it must not hold up the exit.
    runtime.shutdown_background();
    ExitCode::from(code)
}
