//! Agents elsewhere: do they answer, and which secrets are they told?

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use convoke_agent::{AgentDefinition, AgentKind, AgentRegistry, RemoteState, SubagentOptions, probe};
use futures::future::join_all;
use serde_json::{Value, json};

use super::agreed;
use crate::agent_host;
use crate::failure::Exit;
use crate::startup::Startup;

/// How the agents elsewhere stand, by their names. Those that nobody agreed to are not asked, and told nothing.
pub(super) fn states(
    registry: &AgentRegistry,
    options: &SubagentOptions,
    workspace: &Path,
    wait: u64,
) -> Result<BTreeMap<String, RemoteState>, Exit> {
    let asked: Vec<_> = registry
        .all()
        .filter(|agent| agreed(agent, options, workspace))
        .filter_map(|agent| match &agent.kind {
            AgentKind::Remote(remote) => Some((agent.name.clone(), remote)),
            AgentKind::Local(_) => None,
        })
        .collect();
    if asked.is_empty() {
        return Ok(BTreeMap::new());
    }
    let wait = Duration::from_secs(wait);
    let answers = join_all(asked.into_iter().map(async |(name, remote)| {
        let state = probe(remote, &options.variables, wait).await;
        (name, state)
    }));
    Ok(agent_host::runtime()?.block_on(answers).into_iter().collect())
}

/// A state in words.
pub(super) fn in_words(state: Option<&RemoteState>) -> String {
    match state {
        None => "not asked".to_owned(),
        Some(RemoteState::Ready { name, version, protocol, streams }) => {
            let streams = if *streams { ", streams" } else { "" };
            format!("ready ({name} {version}, A2A {protocol}{streams})")
        }
        Some(RemoteState::Unusable(why)) => format!("can't be used: {why}"),
    }
}

pub(super) fn as_json(state: Option<&RemoteState>) -> Value {
    match state {
        None => json!({"state": "not asked"}),
        Some(RemoteState::Ready { name, version, protocol, streams }) => {
            json!({"state": "ready", "agent": name, "version": version, "protocol": protocol, "streams": streams})
        }
        Some(RemoteState::Unusable(why)) => json!({"state": "unusable", "reason": why}),
    }
}

fn secret(agent: &AgentDefinition) -> Option<&str> {
    match &agent.kind {
        AgentKind::Remote(remote) => Some(remote.auth.as_ref()?.secret().name()),
        AgentKind::Local(_) => None,
    }
}

/// What proves to an agent who we are, for people: never the secret.
pub(super) fn shown_secret(agent: &AgentDefinition) -> Option<String> {
    Some(format!("${}", secret(agent)?))
}

/// Variables with secrets of agents elsewhere, which no command is to see.
pub(crate) fn secret_variables(options: &SubagentOptions, startup: &Startup) -> Vec<String> {
    let registry = AgentRegistry::load(options, &startup.workspace);
    registry.all().filter_map(|agent| secret(agent)).map(ToOwned::to_owned).collect()
}
