//! Agents that are made with the SDK of others, given tasks by our binary.

use super::Skipped;
use super::needs::{Machine, Need};
use super::script::Script;

/// The official Python SDK, in both versions of the protocol.
pub(super) fn python_sdk(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let convoke = machine.programs()?.convoke;
    // One after the other: each has the time of a whole file.
    for version in ["1.0", "0.3"] {
        Script::tests(machine.path(Need::Node)?, &["a2a/agents.test.mjs"])
            .env("CONVOKE_PROGRAM", &convoke)
            .env("CONVOKE_A2A_PYTHON", machine.path(Need::A2aPython)?)
            .env("CONVOKE_A2A_VERSION", version)
            .run(machine)?;
    }
    Ok(())
}
