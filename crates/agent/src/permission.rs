//! Asking a human: the scheduler's question as the protocol's, and the answer back.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_protocol::{
    PermissionContent, PermissionOption, PermissionOptionKind, PermissionOutcome, PermissionPort, PermissionRequest,
    SessionId,
};
use convoke_tools::{ApprovalOptionKind, ApprovalOutcome, ApprovalRequest, Approver, ConfirmationDetails};

use crate::subagents::Asker;
use crate::tool_events;

/// Sends a session's questions to its permission port.
pub(crate) struct PortApprover {
    session_id: SessionId,
    port: Arc<dyn PermissionPort>,
    asker: Asker,
}

impl PortApprover {
    /// Asks for `asker` in the name of `session_id`, the session that people know.
    pub(crate) fn new(session_id: SessionId, port: Arc<dyn PermissionPort>, asker: Asker) -> Self {
        Self { session_id, port, asker }
    }

    fn permission_request(&self, request: ApprovalRequest) -> PermissionRequest {
        let mut content: Vec<PermissionContent> = request.reason.map(PermissionContent::Text).into_iter().collect();
        match request.details {
            ConfirmationDetails::Edit { path, old_text, new_text, .. } => content.push(PermissionContent::Diff {
                path,
                old_text: old_text.map(|text| text.to_string()),
                new_text: new_text.to_string(),
            }),
            // The whole command is the title and the raw input; repeating it would only hide it.
            ConfirmationDetails::Exec { .. } => {}
            // Server and tool are the title; the arguments are shown whole, as a client may cut its titles.
            ConfirmationDetails::Mcp { args, .. } => {
                content.push(PermissionContent::Text(serde_json::to_string_pretty(&args).unwrap_or_default()));
            }
            ConfirmationDetails::Plan { text, .. } => content.push(PermissionContent::Text(text.to_string())),
            ConfirmationDetails::Info { prompt } => content.push(PermissionContent::Text(prompt)),
        }
        PermissionRequest {
            session_id: self.session_id.clone(),
            tool_call_id: self.asker.call_id(&request.call_id),
            tool_name: request.tool,
            title: request.title,
            kind: tool_events::kind(request.kind),
            content,
            locations: tool_events::locations(&request.locations),
            raw_input: request.args,
            options: request
                .options
                .into_iter()
                .map(|option| PermissionOption {
                    option_id: option.id.to_owned(),
                    name: option.label,
                    kind: match option.kind {
                        ApprovalOptionKind::AllowOnce => PermissionOptionKind::AllowOnce,
                        ApprovalOptionKind::AllowAlways => PermissionOptionKind::AllowAlways,
                        ApprovalOptionKind::RejectOnce => PermissionOptionKind::RejectOnce,
                    },
                })
                .collect(),
            origin: self.asker.origin(),
        }
    }
}

#[async_trait]
impl Approver for PortApprover {
    async fn request(&self, request: ApprovalRequest) -> ApprovalOutcome {
        let _asking = self.asker.asking();
        match self.port.request(self.permission_request(request)).await {
            PermissionOutcome::Selected { option_id } => {
                ApprovalOutcome::from_option_id(&option_id).unwrap_or_else(|| ApprovalOutcome::Unanswered {
                    reason: format!("the answer \"{option_id}\" was not on offer"),
                })
            }
            PermissionOutcome::Cancelled => {
                ApprovalOutcome::Unanswered { reason: "the question was cancelled or timed out".to_owned() }
            }
        }
    }
}
