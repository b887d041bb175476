//! The repository's one tool, run as `cargo xtask TASK`: what must hold before a change is ready?
//!
//! It needs nothing but the Rust toolchain (`interop` needs Node and a browser too, and says so). Every task exits
//! with 0 when all is well and with 1 after naming what is not.

#![expect(clippy::print_stdout, reason = "a command-line tool talks on its standard output")]

mod bench;
mod ci;
mod interop;
mod sim;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

const USAGE: &str = "\
usage: cargo xtask TASK

  ci [STEP…]           everything that must pass, or only the steps named
  tidy                 the house rules no compiler checks
  interop [--install] [SUITE…]
                       the page's own tests, and the page, other clients and other agents against a real daemon; all, or
                       the suites whose names contain a word; --install fetches a missing browser with apt-get
  sim [--seed N | --seeds COUNT] [--steps M]
                       random walks of the bridge: 1000, or one, or some; a failure is shortened and shown
  bench [ARG…]         what the finished binary costs, next to the least that would do";

fn main() -> ExitCode {
    match dispatch(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> anyhow::Result<()> {
    let root = root()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ci", steps @ ..] => ci::run(&root, steps),
        ["tidy"] => tidy::run(&root),
        ["sim", args @ ..] => sim::run(args),
        ["bench", args @ ..] => bench::run(&root, args),
        ["interop", "--install", suites @ ..] => interop::run(&root, true, suites),
        ["interop", suites @ ..] => interop::run(&root, false, suites),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("unknown task {:?}\n{USAGE}", other.join(" ")),
    }
}

/// The repository's root, two floors above this package.
fn root() -> anyhow::Result<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).map(Path::to_path_buf).context("failed to find the repository above crates/xtask")
}
