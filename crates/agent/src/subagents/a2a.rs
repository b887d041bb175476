//! Agents elsewhere, spoken to over A2A: a task is sent, followed and told like a run of our own.
//!
//! ```text
//! definition ─ card ─▶ client (HTTP, bounded) ─ results ─▶ exchange (sans-IO) ─▶ the call's answer
//!                        ▲ wire (two dialects)                 ╰─▶ live output, a thread in the session's log
//! ```
//! The conversation with an agent goes on from call to call of one session; a task that waits for more input gets the
//! next call's text. Whatever ends a call before its task is over cancels the task. Where a card offers streams, what
//! happens is streamed, else the task is asked for; and so it is where a stream broke off. Source: runtime
//! specification §12.3; the A2A specification, 0.3.0 and 1.0.

mod client;
mod credential;
mod exchange;
mod probe;
mod rules;
mod run;
mod wire;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::definition::{AgentCardSource, RemoteAgent};
use client::{A2aClient, A2aError};
pub use credential::{SecretVariable, Variables};
pub use probe::{RemoteState, probe};
pub(crate) use rules::remote_rules;
pub(crate) use run::run;

/// What is known of the agents that one session has spoken to; at most as many as there are definitions.
#[derive(Clone, Default)]
pub(crate) struct RemoteAgents(Arc<Mutex<BTreeMap<String, Known>>>);

#[derive(Clone, Default)]
struct Known {
    client: Option<Arc<A2aClient>>,
    context: Option<String>,
    /// A task that waits for input.
    waiting: Option<String>,
}

impl RemoteAgents {
    fn with<T>(&self, name: &str, step: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        step(known.entry(name.to_owned()).or_default())
    }

    async fn client(&self, name: &str, agent: &RemoteAgent, variables: &Variables) -> Result<Arc<A2aClient>, A2aError> {
        if let Some(client) = self.with(name, |known| known.client.clone()) {
            return Ok(client);
        }
        let client = Arc::new(A2aClient::connect(agent, variables).await?);
        self.with(name, |known| known.client = Some(client.clone()));
        Ok(client)
    }
}

/// Where an agent is, for people.
pub(crate) fn place(agent: &RemoteAgent) -> String {
    match &agent.card {
        AgentCardSource::Url(url) => client::shown(url),
        AgentCardSource::Inline(card) => match wire::Interface::of_card(card) {
            Ok(interface) => client::shown(&interface.url),
            Err(_) => "(no address)".to_owned(),
        },
    }
}
