//! Does an agent elsewhere answer? Its card is fetched and read; it gets no task.

use std::time::Duration;

use super::client::A2aClient;
use super::credential::Variables;
use crate::subagents::definition::RemoteAgent;

/// How an agent elsewhere stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteState {
    /// It has a card that we can use.
    Ready {
        /// What it calls itself.
        name: String,
        /// Its own version.
        version: String,
        /// The version of the protocol that we would speak.
        protocol: &'static str,
        /// Whether it streams.
        streams: bool,
    },
    /// It can't be called, and why.
    Unusable(String),
}

/// Reads an agent's card, within `wait`.
pub async fn probe(agent: &RemoteAgent, variables: &Variables, wait: Duration) -> RemoteState {
    match tokio::time::timeout(wait, A2aClient::connect(agent, variables)).await {
        Err(_) => RemoteState::Unusable(format!("there was no answer within {} seconds", wait.as_secs_f64())),
        Ok(Err(error)) => RemoteState::Unusable(format!("could not {error}")),
        Ok(Ok(client)) => RemoteState::Ready {
            name: client.about.name,
            version: client.about.version,
            protocol: client.interface.version.as_str(),
            streams: client.interface.streams,
        },
    }
}
