//! Going back and branching off: methods of our own, since ACP has none.
//!
//! What may be expected to go wrong is an `outcome` of the answer, and no error.

use agent_client_protocol as sdk;
use convoke_protocol::{
    BranchOutcome, RewindConflict, RewindOutcome, RewindPoint, RewindRequest, RewindWhat, SessionControl,
};
use convoke_stdx::iso8601;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::rpc_error::{INVALID_PARAMS, RpcError};

/// The methods' names.
pub(super) const METHODS: [&str; 3] =
    ["_convoke/session/rewind_points", "_convoke/session/rewind", "_convoke/session/branch"];

/// `_convoke/session/rewind_points`. The answer is `{outcome: "points", points}`, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, sdk::JsonRpcRequest)]
#[request(method = "_convoke/session/rewind_points", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct PointsRequest {
    pub(super) session_id: String,
}

/// `_convoke/session/rewind`. `to` is the id of a point or its number, `what` is `conversation`, `files` or `both`.
#[derive(Clone, Debug, Serialize, Deserialize, sdk::JsonRpcRequest)]
#[request(method = "_convoke/session/rewind", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackRequest {
    pub(super) session_id: String,
    pub(super) to: Value,
    #[serde(default)]
    pub(super) what: Option<String>,
    #[serde(default)]
    pub(super) force: bool,
}

/// `_convoke/session/branch`. `at` is the id of a point or its number; everything that was said without it.
#[derive(Clone, Debug, Serialize, Deserialize, sdk::JsonRpcRequest)]
#[request(method = "_convoke/session/branch", response = Value)]
#[serde(rename_all = "camelCase")]
pub(super) struct BranchRequest {
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) at: Option<Value>,
}

/// What a client wants to know or to be done.
pub(super) enum Aside {
    Points,
    Rewind { to: Value, what: Option<String>, force: bool },
    Branch(Option<Value>),
}

impl Aside {
    /// Has it done.
    pub(super) async fn carry_out(self, control: &dyn SessionControl) -> Result<Value, RpcError> {
        Ok(match self {
            Self::Points => match control.rewind_points().await {
                Ok(points) => json!({"outcome": "points", "points": points.iter().map(point).collect::<Vec<_>>()}),
                Err(why) => json!({"outcome": "unavailable", "why": why}),
            },
            Self::Rewind { to, what, force } => {
                let wrong = |message: &str| RpcError::new(INVALID_PARAMS, message);
                let to = name(&to).ok_or_else(|| wrong("`to` must be the id or the number of a point"))?;
                let what = what.map_or(Some(RewindWhat::default()), |what| RewindWhat::parse(&what));
                let what = what.ok_or_else(|| wrong("`what` must be conversation, files or both"))?;
                rewound(&control.rewind(RewindRequest { to, what, force }).await)
            }
            Self::Branch(at) => {
                let wrong = || RpcError::new(INVALID_PARAMS, "`at` must be the id or the number of a point");
                let at = at.map(|at| name(&at).ok_or_else(wrong)).transpose()?;
                branched(&control.branch(at.as_deref()).await)
            }
        })
    }
}

/// The name of a point: a text, or a number.
fn name(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => number.as_u64().map(|number| number.to_string()),
        _ => None,
    }
}

fn point(point: &RewindPoint) -> Value {
    let lasting = point.lasting.iter().map(|effect| json!({"kind": effect.kind, "what": effect.what}));
    json!({
        "messageId": point.id,
        "number": point.number,
        "prompt": point.prompt,
        "at": iso8601(point.at_ms),
        "files": point.files,
        "filesTotal": point.files_total,
        "turn": {"files": point.turn.files, "added": point.turn.added, "removed": point.turn.removed},
        "lasting": lasting.collect::<Vec<_>>(),
    })
}

fn rewound(outcome: &RewindOutcome) -> Value {
    match outcome {
        RewindOutcome::Done(done) => json!({
            "outcome": "done",
            "messageId": done.id,
            "number": done.number,
            "what": done.what.name(),
            "prompt": done.prompt,
            "files": done.files,
            "left": conflicts(&done.left),
        }),
        RewindOutcome::Busy => json!({"outcome": "busy"}),
        RewindOutcome::UnknownPoint => json!({"outcome": "unknown_point"}),
        RewindOutcome::Conflicts(found) => json!({"outcome": "conflicts", "conflicts": conflicts(found)}),
        RewindOutcome::Unavailable { why } => json!({"outcome": "unavailable", "why": why}),
        RewindOutcome::Failed { why } => json!({"outcome": "failed", "why": why}),
    }
}

fn conflicts(conflicts: &[RewindConflict]) -> Value {
    conflicts.iter().map(|conflict| json!({"path": conflict.path, "why": conflict.why})).collect()
}

fn branched(outcome: &BranchOutcome) -> Value {
    match outcome {
        BranchOutcome::Branched { session, title } => {
            json!({"outcome": "branched", "sessionId": session, "title": title})
        }
        BranchOutcome::Busy => json!({"outcome": "busy"}),
        BranchOutcome::UnknownPoint => json!({"outcome": "unknown_point"}),
        BranchOutcome::Unavailable { why } => json!({"outcome": "unavailable", "why": why}),
    }
}
