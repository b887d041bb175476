//! MCP servers that are made with the SDKs of others, under our binary.

use super::Skipped;
use super::needs::{Machine, Need};
use super::script::Script;

/// Three generations of the official TypeScript SDK: the first, the last of its line, and the one for the newest protocol.
pub(super) fn typescript_sdk(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    servers(machine)?.run(machine)
}

/// The official Python SDK.
pub(super) fn python_sdk(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    servers(machine)?.env("CONVOKE_MCP_PYTHON", machine.path(Need::McpPython)?).run(machine)
}

fn servers(machine: &Machine) -> anyhow::Result<Script> {
    let node = machine.path(Need::Node22)?;
    Ok(Script::tests(node, &["mcp/servers.test.mjs"]).env("CONVOKE_PROGRAM", machine.programs()?.convoke))
}
