//! `run-one REPORT PROGRAM [ARG…]`: what did one program cost?
//!
//! Starts the program with its own standard input, waits for it, and writes `WALL_NS CPU_US MAXRSS_KIB ENDED_NS CODE` to the
//! file REPORT. A process of its own for two reasons: the kernel counts a child's memory from the moment of its fork, so
//! the parent must be small; and the times of ended children are only known as a sum, so there must be one child.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};

use convoke_bench::clock::monotonic_nanos;
use nix::sys::resource::{UsageWho, getrusage};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let (Some(report), Some(program)) = (args.next(), args.next()) else {
        return ExitCode::from(2);
    };
    match run(report, program, args.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(report: OsString, program: OsString, args: Vec<OsString>) -> io::Result<()> {
    let started = monotonic_nanos();
    let status = Command::new(program).args(args).status()?;
    let ended = monotonic_nanos();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu: i64 = [usage.user_time(), usage.system_time()].iter().map(|t| t.tv_sec() * 1_000_000 + t.tv_usec()).sum();
    // A signal has no code.
    let code = status.code().unwrap_or(-1);
    std::fs::write(report, format!("{} {cpu} {} {ended} {code}\n", ended - started, usage.max_rss()))
}
