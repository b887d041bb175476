//! Saying something to a running turn: a method of our own, since ACP has none.

use agent_client_protocol as sdk;
use convoke_protocol::SteerOutcome;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The method's name.
pub(super) const METHOD: &str = "_convoke/session/steer";

/// `_convoke/session/steer`. The turn that runs reads `text` before its next model call.
#[derive(Clone, Debug, Serialize, Deserialize, sdk::JsonRpcRequest)]
#[request(method = "_convoke/session/steer", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct SteerRequest {
    pub(super) session_id: String,
    pub(super) text: String,
}

/// The answer: `{outcome}`, which is `taken`, `no_turn` (send a prompt then), or `full`.
pub(super) fn told(outcome: &SteerOutcome) -> Value {
    let outcome = match outcome {
        SteerOutcome::Taken => "taken",
        SteerOutcome::NoTurn => "no_turn",
        SteerOutcome::Full => "full",
    };
    json!({"outcome": outcome})
}
