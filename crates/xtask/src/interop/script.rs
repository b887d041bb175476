//! A script of `tests/interop`, most often one that talks to a running daemon.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::daemon::Daemon;
use super::needs::Machine;
use crate::steps::{run as run_command, shown};

/// Node with its arguments. If there is a daemon, it is told where that is in `CONVOKE_BASE_URL`, `CONVOKE_TOKEN` and
/// `CONVOKE_WORKSPACE`.
pub(super) struct Script(Command);

impl Script {
    pub(super) fn new(node: PathBuf, args: &[&str]) -> Self {
        let mut command = Command::new(node);
        command.args(args);
        Self(command)
    }

    /// The files of a suite, run by Node's own test runner.
    pub(super) fn tests(node: PathBuf, files: &[&str]) -> Self {
        // One file after the other: they share a daemon. The timeout only bounds a failure, and what a failed test left
        // open does not hold the others up.
        let options =
            ["--test", "--test-concurrency=1", "--test-force-exit", "--test-reporter=spec", "--test-timeout=120000"];
        Self::new(node, &[&options, files].concat())
    }

    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Runs it to its end, without a daemon.
    pub(super) fn run(mut self, machine: &Machine) -> anyhow::Result<()> {
        run_command(self.0.current_dir(machine.scripts()).stdin(Stdio::null()))
    }

    /// Runs it to its end, and stops the daemon; both must end well. Returns what it said to have skipped.
    pub(super) fn run_against(mut self, daemon: &mut Daemon, machine: &Machine) -> anyhow::Result<Vec<String>> {
        let command = &mut self.0;
        command
            .current_dir(machine.scripts())
            .env("CONVOKE_BASE_URL", daemon.url())
            .env("CONVOKE_TOKEN", daemon.token())
            .env("CONVOKE_WORKSPACE", daemon.workspace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        println!("$ {}", shown(command));
        let mut running = command.spawn().context("failed to start node")?;
        let mut skipped = Vec::new();
        if let Some(output) = running.stdout.take() {
            for line in BufReader::new(output).lines() {
                let line = line.context("failed to read what node says")?;
                println!("{line}");
                skipped.extend(line.strip_prefix("skip ").map(str::to_owned));
            }
        }
        let status = running.wait().context("failed to wait for node")?;
        let stopped = daemon.stop();
        if !status.success() || stopped.is_err() {
            println!("the daemon's last words:\n{}", daemon.last_words());
        }
        if !status.success() {
            bail!("{}: {status}", shown(command));
        }
        stopped?;
        Ok(skipped)
    }
}
