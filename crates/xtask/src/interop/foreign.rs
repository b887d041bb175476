//! Clients and agents that others wrote, unchanged, with our daemon between them.

use anyhow::Context;

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
    let agent = format!("'{}' --models", programs.scripted_agent.display());
    for policy in POLICIES {
        let settings = format!(r#"{{"policy": {{"permissionStrategy": "{policy}"}}}}"#);
        let setup = Setup { agent: agent.clone(), settings: Some(&settings), ..Setup::scripted(&programs) };
        let mut daemon = Daemon::start(&setup)?;
        Script::tests(node.clone(), &["sdk/conversation.test.mjs", "sdk/policy.test.mjs"])
            .env("CONVOKE_POLICY", policy)
            .run_against(&mut daemon, machine)?;
    }
    let small = Setup { args: &["--event-ring-size", SMALL_RING], ..Setup::scripted(&programs) };
    Script::tests(node, &["sdk/reconnect.test.mjs"]).run_against(&mut Daemon::start(&small)?, machine)?;
    Ok(())
}

/// The protocol's official SDK as a client: of `/acp` by HTTP and by WebSocket, and of `convoke attach` by stdio.
pub(super) fn acp_sdk(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let programs = machine.programs()?;
    Script::tests(machine.path(Need::Node22)?, &["acp/sdk.test.mjs"])
        .env("CONVOKE_PROGRAM", &programs.convoke)
        .run_against(&mut Daemon::start(&Setup::scripted(&programs))?, machine)?;
    Ok(())
}

/// The same SDK as an editor of our own agent.
pub(super) fn acp_sdk_editor(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let node = machine.path(Need::Node22)?;
    Script::tests(node, &["acp/agent.test.mjs"]).env("CONVOKE_PROGRAM", machine.programs()?.convoke).run(machine)
}

/// The protocol's SDK for Python as an editor of our own agent.
pub(super) fn acp_python_editor(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let python = machine.path(Need::AcpPython)?;
    Script::new(python, &["acp/agent.py"]).env("CONVOKE_PROGRAM", machine.programs()?.convoke).run(machine)
}

/// The peer's page, as it is in its npm package, behind a proxy that stands in for its own server.
pub(super) fn qwen_web_shell(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let programs = machine.programs()?;
    let mut daemon = Daemon::start(&Setup::scripted(&programs))?;
    Script::tests(machine.path(Need::Node22)?, &["webshell/shell.test.mjs"])
        .env("CONVOKE_CHROMIUM", machine.path(Need::Browser)?)
        .run_against(&mut daemon, machine)?;
    Ok(())
}

/// An agent that is not ours runs under the daemon. Its model is a file, so that no network is needed; the key only
/// passes its check that there is one.
pub(super) fn gemini_cli(machine: &Machine, _: &mut Skipped) -> anyhow::Result<()> {
    let programs = machine.programs()?;
    let node = machine.path(Need::Node22)?;
    let folder = machine.scripts();
    let home = tempfile::tempdir().context("failed to make a home for the agent")?;
    std::fs::create_dir(home.path().join(".gemini"))?;
    std::fs::copy(folder.join("gemini/settings.json"), home.path().join(".gemini/settings.json"))?;
    let home = home.path().display().to_string();
    let agent = format!(
        "'{}' '{}' --acp --fake-responses '{}'",
        node.display(),
        folder.join("node_modules/@google/gemini-cli/bundle/gemini.js").display(),
        folder.join("gemini/responses.jsonl").display(),
    );
    let setup = Setup {
        agent,
        // It needs 10 s to start on a quiet machine with two cores.
        args: &["--initialize-timeout-ms", "90000"],
        variables: &[("HOME", &home), ("GEMINI_CLI_HOME", &home), ("GEMINI_API_KEY", "not-a-key")],
        ..Setup::scripted(&programs)
    };
    Script::tests(node, &["gemini/permission.test.mjs"]).run_against(&mut Daemon::start(&setup)?, machine)?;
    Ok(())
}
