//! Clients and agents that others wrote, unchanged, with our daemon between them.

use super::Skipped;
use super::daemon::{Daemon, Setup};
use super::needs::{Machine, Need};
use super::script::Script;

const POLICIES: [&str; 4] = ["first-responder", "designated", "consensus", "local-only"];

/// Frames that a session keeps where the SDK's way back after a long absence is tried.
const SMALL_RING: &str = "24";

/// The published SDK of the peer drives a daemon of each policy, and comes back after its stream was cut.
pub(super) fn qwen_sdk(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let programs = machine.programs()?;
    let node = machine.path(Need::Node22)?;
    for policy in POLICIES {
        let settings = format!(r#"{{"policy": {{"permissionStrategy": "{policy}"}}}}"#);
        let mut daemon = Daemon::start(&Setup { settings: Some(&settings), ..Setup::scripted(&programs) })?;
        Script::tests(node.clone(), &["sdk/conversation.test.mjs", "sdk/policy.test.mjs"])
            .env("CONVOKE_POLICY", policy)
            .run_against(&mut daemon, machine)?;
    }
    let small = Setup { args: &["--event-ring-size", SMALL_RING], ..Setup::scripted(&programs) };
    Script::tests(node, &["sdk/reconnect.test.mjs"]).run_against(&mut Daemon::start(&small)?, machine)?;
    Ok(())
}
