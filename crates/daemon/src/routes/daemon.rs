//! The daemon about itself: health, capabilities, status, audit.

use convoke_bridge::AuditRecord;
use convoke_stdx::iso8601;
use http::StatusCode;
use serde_json::{Value, json};

use super::Incoming;
use crate::facts::millis;
use crate::http_error::HttpError;
use crate::metrics::{self, Snapshot};
use crate::respond::{self, Reply};
use crate::service::Service;

const OK: &[u8] = br#"{"status":"ok"}"#;

/// `GET /health`: requests are accepted. With `?deep=1` also how much there is, and whether the agent is up.
pub(super) async fn health(service: &Service, incoming: &Incoming<'_>) -> Result<Reply, HttpError> {
    if !incoming.query("deep").is_some_and(|deep| matches!(deep.as_str(), "1" | "true" | "")) {
        return Ok(respond::json_bytes(StatusCode::OK, OK.into()));
    }
    let body = service.handle.look(|view| {
        let counts = view.bridge.counts();
        let last = view.last_call_wall_ms;
        json!({
            "status": "ok",
            "workspaceCount": 1,
            "sessions": counts.sessions,
            "pendingPermissions": counts.pending_permissions,
            "activePrompts": counts.active_prompts,
            "activeWork": counts.active_prompts > 0,
            "activeWorkReporting": "full",
            "activeWorkStaleMs": 0,
            "connectedClients": counts.subscribers,
            "channelAlive": view.agent_up,
            "lastActivityAt": last.map(iso8601),
            "idleSinceMs": last.map(|last| view.wall_ms.saturating_sub(last)),
        })
    });
    Ok(respond::json(StatusCode::OK, &body.await?))
}

/// `GET /capabilities`.
pub(super) fn capabilities(service: &Service) -> Reply {
    respond::json_bytes(StatusCode::OK, service.facts.capabilities.clone())
}

/// `GET /daemon/status`: the operator's snapshot. Source: daemon specification, §d.
pub(super) async fn status(service: &Service, incoming: &Incoming<'_>) -> Result<Reply, HttpError> {
    let detail = incoming.query("detail").unwrap_or_else(|| "summary".to_owned());
    if !matches!(detail.as_str(), "summary" | "full") {
        return Err(HttpError::bad_request("detail must be one of: summary, full", "invalid_detail"));
    }
    let facts = std::sync::Arc::clone(&service.facts);
    let full = detail == "full";
    let body = service.handle.look(move |view| {
        let counts = view.bridge.counts();
        let limits = &facts.bridge.limits;
        let optional = |duration: Option<std::time::Duration>| duration.map(millis);
        let mut body = json!({
            "v": 1,
            "detail": detail,
            "generatedAt": iso8601(view.wall_ms),
            "status": if view.agent_up { "ok" } else { "degraded" },
            "issues": if view.agent_up { json!([]) } else { json!([{"code": "agent_not_up", "severity": "info"}]) },
            "daemon": {
                "pid": std::process::id(),
                "uptimeMs": millis(view.uptime),
                "mode": "http-bridge",
                "workspaceCwd": facts.workspace,
                "qwenCodeVersion": facts.version,
                "runId": facts.run_id,
            },
            "security": {
                "tokenConfigured": facts.has_token,
                "requireAuth": facts.require_auth,
                "loopbackBind": facts.loopback_bind,
                "allowOriginConfigured": facts.origin_mode != "none",
                "allowOriginMode": facts.origin_mode,
                "sessionShellCommandEnabled": false,
            },
            "limits": {
                "maxSessions": limits.sessions_per_workspace,
                "maxTotalSessions": limits.sessions_total,
                "maxPendingPromptsPerSession": limits.pending_prompts,
                "listenerMaxConnections": facts.limits.connections,
                "eventRingSize": limits.ring_frames,
                "maxSubscribersPerSession": limits.subscribers,
                "compactedReplayMaxBytes": facts.limits.replay_bytes,
                "maxJournalEvents": facts.limits.journal_events,
                "maxJournalBytes": facts.limits.journal_bytes,
                "sessionPromptSettledCloseGraceMs": millis(facts.bridge.settled_grace),
                "promptDeadlineMs": optional(facts.bridge.prompt_deadline),
                "writerIdleTimeoutMs": optional(facts.limits.writer_idle),
                "channelIdleTimeoutMs": optional(facts.limits.agent_idle),
                "sessionIdleTimeoutMs": optional(facts.bridge.idle_timeout),
                "rateLimit": facts.rate.map(|rate| json!({
                    "prompt": rate.prompt,
                    "mutation": rate.mutation,
                    "read": rate.read,
                    "windowMs": millis(rate.window),
                })),
                "permissionResponseTimeoutMs": optional(facts.bridge.permission_timeout).unwrap_or(0),
            },
            "runtime": {
                "sessions": {"active": counts.sessions, "admissionInFlight": counts.starting},
                "permissions": {"pending": counts.pending_permissions, "policy": facts.bridge.policy.name()},
                "channel": {"live": view.agent_up},
                "agents": view.agents.wire(full),
                "transport": {
                    "restSseActive": counts.subscribers,
                    "queuedFrames": counts.queued_frames,
                    "queuedBytes": counts.queued_bytes,
                },
                "events": {"keptFrames": counts.kept_frames, "keptBytes": counts.kept_bytes},
                "calls": {"waiting": view.waiting_calls},
                "activity": {
                    "activePrompts": counts.active_prompts,
                    "connectedClients": counts.clients,
                    "lastActivityAt": view.last_call_wall_ms.map(iso8601),
                },
            },
        });
        if full && let Value::Object(fields) = &mut body {
            let features = facts.features();
            let versions = json!({"current": "v1", "supported": ["v1"]});
            fields.insert("capabilities".to_owned(), json!({"protocolVersions": versions, "features": features}));
        }
        body
    });
    Ok(respond::json(StatusCode::OK, &body.await?))
}

/// `GET /openapi.json`.
pub(super) fn openapi(service: &Service) -> Reply {
    respond::json(StatusCode::OK, &crate::api::document(&service.facts.version))
}

/// `GET /metrics`: the daemon's figures, for a monitor.
pub(super) async fn metrics(service: &Service) -> Result<Reply, HttpError> {
    let snapshot = service.handle.look(|view| Snapshot {
        counts: view.bridge.counts(),
        agent_up: view.agent_up,
        uptime: view.uptime,
    });
    Ok(respond::text(service.metrics.render(&snapshot.await?), metrics::MEDIA_TYPE))
}

/// `GET /audit`: who decided what, the last records, oldest first. Only where a token keeps others out.
pub(super) async fn audit(service: &Service) -> Result<Reply, HttpError> {
    if !service.facts.has_token {
        let body = json!({"error": "This route needs a bearer token to be configured", "code": "token_required"});
        return Err(HttpError::new(StatusCode::UNAUTHORIZED, body));
    }
    let records = service.handle.look(|view| view.bridge.audit().cloned().collect::<Vec<AuditRecord>>()).await?;
    Ok(respond::json(StatusCode::OK, &json!({"v": 1, "records": records})))
}
