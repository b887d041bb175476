//! What needs more than cargo: Node for the page's own tests, a browser for the page against a real daemon.
//!
//! Each check runs if its needs are met. What can't run is said at the end, by name and reason; what ran and failed
//! makes the task fail.

mod daemon;
mod needs;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};

use crate::steps::{cargo, command, run as run_command, shown, timed};
use daemon::Daemon;
use needs::Needs;

/// How one check ended.
enum Outcome {
    Passed,
    Failed(String),
    /// It could not run, and why.
    Skipped(String),
}

/// What the checks of one run said.
#[derive(Default)]
struct Report {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Report {
    fn take(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(reason) => self.failed.push(format!("{name} ({reason})")),
            Outcome::Skipped(reason) => self.skipped.push(format!("{name} ({reason})")),
        }
    }

    fn lines(&self) -> Vec<String> {
        let skipped = self.skipped.iter().map(|name| format!("skipped: {name}"));
        let failed = self.failed.iter().map(|name| format!("failed: {name}"));
        let total =
            format!("interop: {} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len());
        skipped.chain(failed).chain([total]).collect()
    }
}

/// Runs every check whose needs are met. With `install`, or in CI, a missing browser is fetched first.
pub(crate) fn run(root: &Path, install: bool) -> anyhow::Result<()> {
    let needs = Needs::meet(root, install || std::env::var_os("CI").is_some_and(|ci| ci == "true"));
    let mut report = Report::default();
    check(&mut report, "page modules", needs.node.as_ref(), |_| page_modules(root));
    check(&mut report, "vendored files", Ok(&()), |()| vendored_files(root));
    check(&mut report, "page types", needs.packages.as_ref(), |()| page_types(root));
    let mut skipped = Vec::new();
    check(&mut report, "page in a browser", needs.browser(), |browser| page_in_a_browser(root, browser, &mut skipped));
    report.skipped.extend(skipped);
    report.lines().iter().for_each(|line| println!("{line}"));
    ensure!(report.failed.is_empty(), "interop failed");
    Ok(())
}

fn check<N>(report: &mut Report, name: &str, need: Result<&N, &String>, run: impl FnOnce(&N) -> anyhow::Result<()>) {
    let outcome = match need {
        Err(reason) => Outcome::Skipped(reason.clone()),
        Ok(need) => {
            println!("-- {name}");
            let (result, took) = timed(|| run(need));
            println!("-- {name}: {:.1} s", took.as_secs_f64());
            result.map_or_else(|error| Outcome::Failed(format!("{error:#}")), |()| Outcome::Passed)
        }
    };
    report.take(name, outcome);
}

/// The unit tests of the page's modules.
fn page_modules(root: &Path) -> anyhow::Result<()> {
    let folder = root.join("web/tests");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .with_context(|| format!("failed to list {folder:?}"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    // Named one by one: what a folder means to `node --test` differs between versions.
    files.retain(|path| path.to_string_lossy().ends_with(".test.js"));
    files.sort();
    ensure!(!files.is_empty(), "no tests in web/tests");
    let files = files.iter().filter_map(|path| path.strip_prefix(root).ok());
    run_command(command("node", &["--test"], root).args(files))
}

/// The vendored libraries are the ones that were reviewed.
fn vendored_files(root: &Path) -> anyhow::Result<()> {
    run_command(&mut command("sha256sum", &["--check", "--strict", "--quiet", "SHA256SUMS"], &root.join("web/vendor")))
}

/// The page's types, by the compiler that editors use.
fn page_types(root: &Path) -> anyhow::Result<()> {
    let tsc = root.join(needs::PACKAGES).join("node_modules/.bin/tsc");
    run_command(&mut command(tsc, &["-p", "web/jsconfig.json"], root))
}

/// The page, in windows of a real browser, against its scripted daemon and against ours. Adds to `skipped` what it skipped itself.
fn page_in_a_browser(root: &Path, browser: &Path, skipped: &mut Vec<String>) -> anyhow::Result<()> {
    let build = ["build", "--package", "convoke-cli", "--package", "convoke-testkit", "--bins"];
    run_command(&mut command(cargo(), &build, root))?;
    let programs = root.join("target/debug");
    let mut daemon = Daemon::start(&programs.join("convoke"), &programs.join("scripted-acp-agent"))?;

    let mut page = command("node", &["page/run.mjs"], &root.join(needs::PACKAGES));
    page.env("CONVOKE_CHROMIUM", browser)
        .env("CONVOKE_BASE_URL", daemon.url())
        .env("CONVOKE_TOKEN", daemon.token())
        .env("CONVOKE_PROMPT_COMMAND", "approval, please")
        .env("CONVOKE_PROMPT_TEXT", "say hello")
        .stdout(Stdio::piped());
    println!("$ {}", shown(&page));
    let mut running = page.spawn().context("failed to start node")?;
    if let Some(output) = running.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.context("failed to read what node says")?;
            println!("{line}");
            skipped.extend(line.strip_prefix("skip ").map(|test| format!("page in a browser: {test}")));
        }
    }
    let status = running.wait().context("failed to wait for node")?;
    let stopped = daemon.stop();
    if !status.success() || stopped.is_err() {
        println!("the daemon's last words:\n{}", daemon.last_words());
    }
    if !status.success() {
        bail!("{}: {status}", shown(&page));
    }
    stopped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_run_is_said_by_name_and_what_failed_fails() {
        let mut report = Report::default();
        check(&mut report, "one", Ok(&1), |_| Ok(()));
        check(&mut report, "two", Ok(&2), |_| bail!("broken"));
        check(&mut report, "three", Err::<&(), _>(&"no node".to_owned()), |()| bail!("must not run"));
        assert_eq!(
            report.lines(),
            ["skipped: three (no node)", "failed: two (broken)", "interop: 1 passed, 1 failed, 1 skipped"]
        );
    }
}
