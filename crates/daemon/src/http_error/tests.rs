use convoke_bridge::{ForbiddenReason, IdConflict, LimitScope};
use convoke_protocol::{ClientId, RequestId, SessionId};

use super::*;

/// Every refusal there is, once per shape.
fn all() -> Vec<Refusal> {
    let session = SessionId::from("s1");
    let request = RequestId::from("r1");
    let failed = Refusal::StartFailed;
    vec![
        Refusal::SessionNotFound { session: session.clone() },
        Refusal::SessionClosing { session: session.clone() },
        Refusal::InvalidClientId { session: session.clone(), client: ClientId::from("mallory") },
        Refusal::SessionLimit { limit: 2, scope: LimitScope::Workspace },
        Refusal::SessionLimit { limit: 800, scope: LimitScope::Total },
        Refusal::ClientLimit { limit: 1024 },
        Refusal::SessionIdConflict {
            session: session.clone(),
            conflict: IdConflict::Live,
            workspace: "/workspace/demo".into(),
        },
        Refusal::RestoreInProgress { session: session.clone() },
        failed(StartFailure::InitTimeout { timeout_ms: 10_000, phase: "initialize".into() }),
        failed(StartFailure::RestoreTimeout { timeout_ms: 60_000 }),
        failed(StartFailure::NotStored { session: session.clone() }),
        failed(StartFailure::Unavailable { message: "the agent exited (exit code 1)".into() }),
        failed(StartFailure::Agent {
            code: -32603,
            message: "Internal error".into(),
            data: Some(json!({"details": "x"})),
        }),
        failed(StartFailure::Agent { code: -32000, message: "Authentication required".into(), data: None }),
        Refusal::Draining,
        Refusal::PromptQueueFull { session: session.clone(), limit: 2, pending: 2 },
        Refusal::SubscriberLimit { limit: 64 },
        Refusal::RequestNotFound { session: Some(session.clone()), request: request.clone() },
        Refusal::RequestNotFound { session: None, request: request.clone() },
        Refusal::AlreadyResolved {
            session: Some(session.clone()),
            request: request.clone(),
            outcome: json!({"outcome": "cancelled"}),
        },
        Refusal::AlreadyResolved { session: None, request: request.clone(), outcome: json!({"outcome": "cancelled"}) },
        Refusal::InvalidOption { request: request.clone(), option_id: "zzz".into() },
        Refusal::Forbidden {
            session: session.clone(),
            request: request.clone(),
            reason: ForbiddenReason::DesignatedMismatch,
        },
        Refusal::Forbidden { session, request, reason: ForbiddenReason::RemoteNotAllowed },
        Refusal::InvalidMetadata { field: "displayName", problem: "must not contain control characters" },
    ]
}

#[test]
fn the_table() {
    let mut table = String::new();
    for refusal in all() {
        let error = HttpError::from(&refusal);
        let retry = error.retry_after_s.map(|s| format!(" retry-after={s}")).unwrap_or_default();
        table.push_str(&format!("{}{retry} {}\n", error.status.as_u16(), error.body));
    }
    insta::assert_snapshot!(table);
}

/// An attacker who probes ids must not tell a foreign, a forgotten and an invented request apart.
#[test]
fn unknown_requests_answer_alike() {
    let body = |request: &str| no_request(Some("s1"), request).to_string().replace(request, "R");
    assert_eq!(body("invented"), body("5c0e1d4b-foreign"));
}
