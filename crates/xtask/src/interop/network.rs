//! A second machine, as far as a socket can tell: a network namespace with an address of its own.

use super::Skipped;
use super::needs::{Machine, Need};
use crate::steps::{command, run};

/// Loopback rules, judged from another address. The script starts the daemon itself, since it must live in a namespace.
pub(super) fn second_machine(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let programs = machine.programs()?;
    let node = machine.path(Need::Node)?;
    let unshare = machine.path(Need::Namespaces)?;
    let options = ["--map-root-user", "--net", "--"].map(str::to_owned);
    let script =
        ["--test", "--test-force-exit", "--test-timeout=180000", "netns/local-only.test.mjs"].map(str::to_owned);
    let line: Vec<String> = options.into_iter().chain([node.display().to_string()]).chain(script).collect();
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    run(command(&unshare, &line, &machine.scripts())
        .env("CONVOKE_PROGRAM", &programs.convoke)
        .env("CONVOKE_AGENT", &programs.scripted_agent))
}
