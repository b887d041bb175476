//! What does a turn look like to a tracing back end? One span a turn, and under it one for each permission request.
//!
//! The driver feeds what goes into the bridge and what comes out. Names follow the OpenTelemetry conventions for
//! generative AI where there is one (`invoke_agent`, `gen_ai.conversation.id`); the rest is under `convoke.`. Without an
//! exporter these spans are disabled, and both maps stay as small as the sessions and requests that are live.

use std::collections::BTreeMap;

use convoke_bridge::{AgentKey, AuditEvent, AuditRecord, AuditResolution, Input, Output, TurnOutcome};
use convoke_protocol::{PromptId, RequestId, SessionId};
use http::StatusCode;
use tracing::Span;
use tracing::field::Empty;

/// The target of spans that are meant for export.
const TARGET: &str = "convoke::trace";

/// A span for one HTTP request, from its head to its status.
pub(crate) fn request(route: &'static str, session: Option<&str>) -> Span {
    tracing::info_span!(
        target: TARGET,
        "request",
        otel.name = route,
        otel.kind = "server",
        otel.status_code = Empty,
        http.route = route.split_once(' ').map_or(route, |(_, path)| path),
        http.request.method = route.split_once(' ').map_or("", |(method, _)| method),
        http.response.status_code = Empty,
        gen_ai.conversation.id = session,
    )
}

/// Ends the span of a request.
pub(crate) fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

struct Turn {
    agent: AgentKey,
    prompt: PromptId,
    span: Span,
}

/// The open spans of turns and permission requests.
#[derive(Default)]
pub(crate) struct Traces {
    turns: BTreeMap<SessionId, Turn>,
    requests: BTreeMap<RequestId, Span>,
}

impl Traces {
    /// What the bridge is about to hear.
    pub(crate) fn input(&mut self, input: &Input) {
        match input {
            Input::TurnEnded { session, prompt_id, outcome } => {
                if self.turns.get(session).is_none_or(|turn| turn.prompt != *prompt_id) {
                    return;
                }
                let Some(turn) = self.turns.remove(session) else { return };
                match outcome {
                    TurnOutcome::Complete { stop_reason } => {
                        turn.span.record("convoke.stop_reason", stop_reason.as_str());
                    }
                    TurnOutcome::Failed { .. } => drop(turn.span.record("otel.status_code", "ERROR")),
                }
            }
            Input::AgentGone { agent, .. } => self.turns.retain(|_, turn| {
                if turn.agent == *agent {
                    turn.span.record("otel.status_code", "ERROR");
                }
                turn.agent != *agent
            }),
            _ => {}
        }
    }

    /// What the bridge wants done.
    pub(crate) fn output(&mut self, output: &Output) {
        match output {
            Output::StartTurn { session, agent, prompt_id, .. } => {
                let span = tracing::info_span!(
                    target: TARGET,
                    parent: None,
                    "turn",
                    otel.name = "invoke_agent",
                    otel.status_code = Empty,
                    gen_ai.operation.name = "invoke_agent",
                    gen_ai.conversation.id = session.as_str(),
                    convoke.prompt.id = prompt_id.as_str(),
                    convoke.stop_reason = Empty,
                );
                self.turns.insert(session.clone(), Turn { agent: *agent, prompt: prompt_id.clone(), span });
            }
            Output::CloseSession { session, .. } => drop(self.turns.remove(session)),
            Output::Audit(record) => self.audited(record),
            _ => {}
        }
    }

    fn audited(&mut self, record: &AuditRecord) {
        match &record.event {
            AuditEvent::Requested { voters_at_issue, .. } => {
                let parent = self.turns.get(&record.session_id).and_then(|turn| turn.span.id());
                let span = tracing::info_span!(
                    target: TARGET,
                    parent: parent,
                    "permission",
                    otel.name = "permission_request",
                    gen_ai.conversation.id = record.session_id.as_str(),
                    convoke.permission.request_id = record.request_id.as_str(),
                    convoke.permission.policy = record.policy,
                    convoke.permission.voters = voters_at_issue.len(),
                    convoke.permission.resolution = Empty,
                    convoke.permission.option_id = Empty,
                );
                self.requests.insert(record.request_id.clone(), span);
            }
            AuditEvent::Resolved { resolution, .. } => {
                let Some(span) = self.requests.remove(&record.request_id) else { return };
                match resolution {
                    AuditResolution::Option { option_id } => {
                        span.record("convoke.permission.resolution", "option");
                        span.record("convoke.permission.option_id", option_id.as_str());
                    }
                    AuditResolution::Cancelled { reason } => {
                        span.record("convoke.permission.resolution", *reason);
                    }
                }
            }
            AuditEvent::NotAsked { .. }
            | AuditEvent::Voted { .. }
            | AuditEvent::Forbidden { .. }
            | AuditEvent::Timeout { .. } => {}
        }
    }
}
