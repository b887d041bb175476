//! Which status, code and words does a refusal have on the wire? The one table.
//!
//! The bridge's outcomes know nothing of HTTP; clients match on `code`. Source: daemon specification, §d, §f.4, §i.

use bytes::Bytes;
use convoke_bridge::{Refusal, StartFailure};
use http::StatusCode;
use http::header::{self, HeaderValue};
use serde_json::{Value, json};

use crate::respond::{self, Reply};

#[cfg(test)]
mod tests;

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpError {
    status: StatusCode,
    retry_after_s: Option<u64>,
    body: Value,
}

/// Seconds after which everything that is full may have room again.
const RETRY_SOON_S: u64 = 5;

impl HttpError {
    pub(crate) fn new(status: StatusCode, body: Value) -> Self {
        Self { status, retry_after_s: None, body }
    }

    /// `{error, code}` with status 400.
    pub(crate) fn bad_request(text: &str, code: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, json!({"error": text, "code": code}))
    }

    /// `{error}` with status 400, where the peer gives no code.
    pub(crate) fn malformed(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, json!({"error": text}))
    }

    pub(crate) fn retry_soon(mut self) -> Self {
        self.retry_after_s = Some(RETRY_SOON_S);
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The fields of its body.
    pub(crate) fn into_body(self) -> serde_json::Map<String, Value> {
        match self.body {
            Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        }
    }

    /// Puts it on the wire.
    pub(crate) fn reply(&self) -> Reply {
        let bytes = serde_json::to_vec(&self.body).unwrap_or_default();
        let mut reply = respond::json_bytes(self.status, Bytes::from(bytes));
        if let Some(seconds) = self.retry_after_s {
            reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply
    }

    /// A header that is no client id.
    pub(crate) fn client_id_shape() -> Self {
        Self::bad_request(
            "`X-Qwen-Client-Id` must be a non-empty token of 128 characters or fewer",
            "invalid_client_id",
        )
    }

    /// The daemon's own parts are gone: it is stopping.
    pub(crate) fn draining() -> Self {
        let body = json!({"error": "The daemon is shutting down", "code": "daemon_draining"});
        Self::new(StatusCode::SERVICE_UNAVAILABLE, body)
    }

    /// A defect of ours; details are in the log only.
    pub(crate) fn internal() -> Self {
        let body = json!({"error": "Internal server error", "code": "internal_error"});
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, body)
    }
}

impl From<&Refusal> for HttpError {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::SessionNotFound { session } => no_session(session.as_str()),
            Refusal::SessionClosing { session } => Self::new(
                StatusCode::NOT_FOUND,
                json!({
                    "error": format!("Session \"{session}\" is closing"),
                    "code": "session_closing",
                    "sessionId": session,
                }),
            ),
            Refusal::InvalidClientId { session, client } => Self::new(
                StatusCode::BAD_REQUEST,
                json!({
                    "error": format!("Client id \"{client}\" is not registered for session {session}"),
                    "code": "invalid_client_id",
                    "sessionId": session,
                    "clientId": client,
                }),
            ),
            Refusal::SessionLimit { limit, scope } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                json!({
                    "error": format!("Session limit reached ({limit})"),
                    "code": "session_limit_exceeded",
                    "limit": limit,
                    "scope": scope.name(),
                }),
            )
            .retry_soon(),
            Refusal::ClientLimit { limit } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                json!({
                    "error": format!("Client limit reached ({limit})"),
                    "code": "client_limit_exceeded",
                    "limit": limit,
                }),
            )
            .retry_soon(),
            Refusal::SessionIdConflict { session, conflict, workspace } => Self::new(
                StatusCode::CONFLICT,
                json!({
                    "error": format!("Session \"{session}\" already exists or is being created."),
                    "code": "session_id_conflict",
                    "sessionId": session,
                    "conflict": conflict.name(),
                    "liveWorkspaceCwd": workspace,
                }),
            ),
            Refusal::RestoreInProgress { session } => Self::new(
                StatusCode::CONFLICT,
                json!({
                    "error": format!("Session \"{session}\" is being restored"),
                    "code": "restore_in_progress",
                    "sessionId": session,
                }),
            )
            .retry_soon(),
            Refusal::StartFailed(failure) => Self::from(failure),
            Refusal::Draining => Self::draining(),
            Refusal::PromptQueueFull { session, limit, pending } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                json!({
                    "error": format!("Prompt queue full for session \"{session}\" ({pending}/{limit} pending)"),
                    "code": "prompt_queue_full",
                    "sessionId": session,
                    "limit": limit,
                    "pendingCount": pending,
                }),
            )
            .retry_soon(),
            Refusal::SubscriberLimit { limit } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                json!({
                    "error": format!("EventBus subscriber limit reached ({limit})"),
                    "code": "subscriber_limit_exceeded",
                    "limit": limit,
                }),
            )
            .retry_soon(),
            Refusal::RequestNotFound { session, request } => {
                Self::new(StatusCode::NOT_FOUND, no_request(session.as_ref().map(|s| s.as_str()), request.as_str()))
            }
            Refusal::AlreadyResolved { session, request, outcome: _ } => {
                let mut body = no_request(session.as_ref().map(|s| s.as_str()), request.as_str());
                if let Value::Object(fields) = &mut body {
                    fields.insert("code".to_owned(), json!("permission_already_resolved"));
                }
                Self::new(StatusCode::NOT_FOUND, body)
            }
            Refusal::InvalidOption { request, option_id } => Self::new(
                StatusCode::BAD_REQUEST,
                json!({
                    "error": format!(
                        "Permission {request}: optionId \"{option_id}\" is not in the set of options the agent offered."
                    ),
                    "code": "invalid_option_id",
                    "requestId": request,
                    "optionId": option_id,
                }),
            ),
            Refusal::Forbidden { session, request, reason } => Self::new(
                StatusCode::FORBIDDEN,
                json!({
                    "error": format!(
                        "Permission {request} on session {session}: vote rejected by policy ({}).", reason.name()
                    ),
                    "code": "permission_forbidden",
                    "requestId": request,
                    "sessionId": session,
                    "reason": reason.name(),
                }),
            ),
            Refusal::InvalidMetadata { field, problem } => Self::new(
                StatusCode::BAD_REQUEST,
                json!({
                    "error": format!("Invalid session metadata: {field} {problem}"),
                    "code": "invalid_metadata",
                    "field": field,
                }),
            ),
        }
    }
}

impl From<&StartFailure> for HttpError {
    fn from(failure: &StartFailure) -> Self {
        match failure {
            StartFailure::InitTimeout { timeout_ms, phase } => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                json!({
                    "error": format!("The agent was not ready within {timeout_ms}ms ({phase})"),
                    "code": "init_timeout",
                    "retryable": true,
                    "sideEffectPossible": phase != "initialize",
                    "phase": phase,
                    "timeoutMs": timeout_ms,
                }),
            )
            .retry_soon(),
            StartFailure::RestoreTimeout { timeout_ms } => Self::new(
                StatusCode::GATEWAY_TIMEOUT,
                json!({
                    "error": format!("The session was not restored within {timeout_ms}ms"),
                    "code": "session_restore_timeout",
                    "timeoutMs": timeout_ms,
                }),
            )
            .retry_soon(),
            StartFailure::NotStored { session } => no_session(session.as_str()),
            StartFailure::Unavailable { message } => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                json!({
                    "error": format!("The agent is not available: {message}"),
                    "code": "acp_channel_unavailable",
                }),
            ),
            StartFailure::Agent { code, message, data } => {
                let mut body = json!({"error": message, "code": code});
                if let (Value::Object(fields), Some(data)) = (&mut body, data) {
                    fields.insert("data".to_owned(), data.clone());
                }
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, body)
            }
        }
    }
}

fn no_session(session: &str) -> HttpError {
    HttpError::new(
        StatusCode::NOT_FOUND,
        json!({
            "error": format!("No session with id \"{session}\""),
            "code": "session_not_found",
            "sessionId": session,
        }),
    )
}

/// The same words for a request that never was, is another session's, or is forgotten: no oracle.
fn no_request(session: Option<&str>, request: &str) -> Value {
    match session {
        Some(session) => json!({
            "error": "No pending permission request for session",
            "sessionId": session,
            "requestId": request,
        }),
        None => json!({"error": "No pending permission request", "requestId": request}),
    }
}
