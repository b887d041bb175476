//! `convoke-bench [--quick] [--only MEASURE]…`: what does the finished binary cost, next to the least that would do?
//!
//! Prints one Markdown table. Run it as `cargo xtask bench`, which builds the product and the floors first.

mod daemon;
mod http;
mod measures;
mod model_server;
mod proc;
mod run;
mod stats;
mod table;

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;

use crate::measures::permission::Voters;
use crate::measures::tool_loop::Calls;
use crate::measures::{Effort, acp, fan_out, headless, input, memory, permission, serve, start, tool_loop};
use crate::run::Programs;
use crate::table::{HEAD, Row, Target};

/// What can be named after `--only`, in the table's order; the beginning of a name, up to a dash, names a group.
const MEASURES: [&str; 22] = [
    "start",
    "prompt",
    "stdin-400k",
    "stdin-5m",
    "loop-read",
    "loop-large",
    "loop-shell",
    "daemon",
    "memory-clients",
    "memory-agent",
    "memory-acp",
    "memory-soak",
    "requests",
    "fan-out-1",
    "fan-out-50",
    "fan-out-200",
    "saturation-1",
    "saturation-50",
    "saturation-200",
    "permission-3",
    "permission-10",
    "permission-race",
];

// One thread: the clients take one of the machine's processors and leave the others to what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run_all().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where it can't be written, the code has to do.
            let _unread = writeln!(std::io::stderr(), "bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_all() -> anyhow::Result<()> {
    let (effort, chosen) = parse(std::env::args().skip(1))?;
    let programs = Programs::beside_us()?;
    let mut failed = Vec::new();
    say(HEAD)?;
    for name in chosen {
        // One measure that can't be taken does not take the others along.
        match measure(name, &programs, effort).await {
            Ok(rows) => rows.iter().try_for_each(|row| say(&row.to_string()))?,
            Err(error) => failed.push(format!("{name}: failed to {error:#}")),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

async fn measure(name: &str, programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    match name {
        "start" => start::measure(programs, effort).await,
        "prompt" => headless::one_prompt(programs, effort).await,
        "stdin-400k" => input::measure(programs, effort, 400, Target::at_most(45.0, 19.0)).await,
        "stdin-5m" => input::measure(programs, effort, 5000, Target::at_most(80.0, 40.0)).await,
        "loop-read" => tool_loop::measure(programs, effort, Calls::Reads).await,
        "loop-large" => tool_loop::measure(programs, effort, Calls::LargeReads).await,
        "loop-shell" => tool_loop::measure(programs, effort, Calls::Shells).await,
        "daemon" => serve::standing(programs, effort).await,
        "memory-clients" => memory::clients(programs, effort).await,
        "memory-agent" => memory::our_agent(programs, effort).await,
        "memory-acp" => acp::sessions(programs, effort).await,
        "memory-soak" => memory::soak(programs, effort).await,
        "requests" => serve::small_requests(programs, effort).await,
        "fan-out-1" => fan_out::paced(programs, effort, 1).await,
        "fan-out-50" => fan_out::paced(programs, effort, 50).await,
        "fan-out-200" => fan_out::paced(programs, effort, 200).await,
        "saturation-1" => fan_out::saturated(programs, effort, 1).await,
        "saturation-50" => fan_out::saturated(programs, effort, 50).await,
        "saturation-200" => fan_out::saturated(programs, effort, 200).await,
        "permission-3" => permission::votes(programs, effort, 3, Voters::One).await,
        "permission-10" => permission::votes(programs, effort, 10, Voters::One).await,
        _ => permission::votes(programs, effort, 10, Voters::All).await,
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> anyhow::Result<(Effort, Vec<&'static str>)> {
    let (mut effort, mut chosen) = (Effort::FULL, Vec::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--only" => {
                let name = args.next().unwrap_or_default();
                let group = format!("{name}-");
                let before = chosen.len();
                chosen.extend(MEASURES.iter().filter(|known| **known == name || known.starts_with(&group)));
                if chosen.len() == before {
                    bail!("choose a measure or a group after --only: {}", MEASURES.join(", "));
                }
            }
            other => bail!("understand {other}: use [--quick] [--only MEASURE]…"),
        }
    }
    if chosen.is_empty() {
        chosen = MEASURES.to_vec();
    }
    Ok((effort, chosen))
}

fn say(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &[&str]) -> anyhow::Result<Vec<&'static str>> {
        parse(args.iter().map(|arg| (*arg).to_owned())).map(|(_, chosen)| chosen)
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        assert_eq!(names(&[]).unwrap(), MEASURES);
        assert_eq!(names(&["--only", "prompt", "--quick", "--only", "start"]).unwrap(), ["prompt", "start"]);
        assert_eq!(names(&["--only", "fan-out"]).unwrap(), ["fan-out-1", "fan-out-50", "fan-out-200"]);
        assert_eq!(names(&["--only", "fan-out-50"]).unwrap(), ["fan-out-50"]);
        assert!(names(&["--only", "fa"]).is_err());
        assert!(names(&["--only", "all"]).is_err());
        assert!(names(&["--only"]).is_err());
        assert!(names(&["--fast"]).is_err());
    }
}
