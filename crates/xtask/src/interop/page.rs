//! The page that we ship: its modules, its types, its vendored files, and itself in a browser.

use std::path::PathBuf;

use anyhow::{Context, ensure};

use super::Skipped;
use super::daemon::{Daemon, Setup};
use super::needs::{Machine, Need};
use super::script::Script;
use crate::steps::{command, run as run_command};

/// The unit tests of the page's modules.
pub(super) fn modules(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let root = machine.root();
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
    run_command(command(machine.path(Need::Node)?, &["--test"], root).args(files))
}

/// The vendored libraries are the ones that were reviewed.
pub(super) fn vendored_files(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let folder = machine.root().join("web/vendor");
    run_command(&mut command("sha256sum", &["--check", "--strict", "--quiet", "SHA256SUMS"], &folder))
}

/// The page's types, by the compiler that editors use.
pub(super) fn types(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let tsc = machine.path(Need::Packages)?.join("node_modules/.bin/tsc");
    run_command(&mut command(tsc, &["-p", "web/jsconfig.json"], machine.root()))
}

/// The page, in windows of a real browser, against its scripted daemon and against ours.
pub(super) fn in_a_browser(machine: &Machine, skipped: &mut Skipped) -> anyhow::Result<()> {
    let programs = machine.programs()?;
    let mut daemon = Daemon::start(&Setup::scripted(&programs))?;
    let left_out = Script::new(machine.path(Need::Node)?, &["page/run.mjs"])
        .env("CONVOKE_CHROMIUM", machine.path(Need::Browser)?)
        .env("CONVOKE_PROMPT_COMMAND", "approval, please")
        .env("CONVOKE_PROMPT_TEXT", "say hello")
        .run_against(&mut daemon, machine)?;
    skipped.extend(left_out.into_iter().map(|test| format!("page in a browser: {test}")));
    Ok(())
}
