//! Hooks around a tool's call, behind the ports of the tools.

use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::StopReason;
use convoke_tools::{
    AfterTool, ApprovalOutcome, ApprovalRequest, Approver, BeforeTool, ConfirmationDetails, HookCall, HookResult,
    TailCall, ToolHooks, ToolOrigin,
};
use serde_json::{Map, Value, json};

use super::verdict::Verdict;
use super::{HookEvent, STOP_EXECUTION, SessionHooks};

fn fields(call: &HookCall) -> Map<String, Value> {
    let mut fields = Map::from_iter([
        ("tool_name".to_owned(), call.tool.as_str().into()),
        ("tool_input".to_owned(), call.args.clone()),
    ]);
    let context = |origin: &ToolOrigin| json!({"server_name": origin.server, "tool_name": origin.tool});
    fields.extend(call.origin.as_ref().map(|origin| ("mcp_context".to_owned(), context(origin))));
    fields.extend(call.original_tool.as_ref().map(|name| ("original_request_name".to_owned(), name.as_str().into())));
    fields
}

fn stop(verdict: &Verdict) -> Option<StopReason> {
    let why = verdict.stop.as_ref()?;
    Some(StopReason { code: STOP_EXECUTION.to_owned(), message: format!("Agent execution stopped by hook: {why}") })
}

#[async_trait]
impl ToolHooks for SessionHooks {
    async fn before_tool(&self, call: &HookCall) -> BeforeTool {
        let event = HookEvent::BeforeTool;
        if !self.has(event) {
            return BeforeTool::default();
        }
        let verdict = self.fire(event, Some(&call.tool), fields(call)).await;
        BeforeTool { stop: stop(&verdict), deny: verdict.deny, ask: verdict.ask, rewrite: verdict.tool_input }
    }

    async fn after_tool(&self, call: &HookCall, result: &HookResult) -> AfterTool {
        let event = HookEvent::AfterTool;
        if !self.has(event) {
            return AfterTool::default();
        }
        let mut response = json!({"llmContent": result.text, "returnDisplay": result.text});
        if let (Some(kind), Some(response)) = (result.error_type, response.as_object_mut()) {
            response.insert("error".to_owned(), json!({"type": kind.as_str(), "message": result.text}));
        }
        let mut fields = fields(call);
        fields.insert("tool_response".to_owned(), response);
        let verdict = self.fire(event, Some(&call.tool), fields).await;
        AfterTool {
            stop: stop(&verdict),
            append: verdict.context(),
            replace: None,
            tail_call: verdict.tail_call.filter(|_| verdict.deny.is_none()).map(|(name, args)| TailCall { name, args }),
            deny: verdict.deny,
        }
    }
}

/// Tells `Notification` hooks that a person is about to be asked, and asks. The question does not wait for them.
pub(crate) struct NotifyingApprover {
    inner: Arc<dyn Approver>,
    hooks: Arc<SessionHooks>,
}

impl NotifyingApprover {
    pub(crate) fn new(inner: Arc<dyn Approver>, hooks: Arc<SessionHooks>) -> Self {
        Self { inner, hooks }
    }
}

#[async_trait]
impl Approver for NotifyingApprover {
    async fn request(&self, request: ApprovalRequest) -> ApprovalOutcome {
        if self.hooks.has(HookEvent::Notification) {
            self.hooks.notify("ToolPermission", notification(&request));
        }
        self.inner.request(request).await
    }
}

/// What is asked about: a sentence, and the details by their kind.
fn notification(request: &ApprovalRequest) -> Map<String, Value> {
    let title = &request.title;
    let mut needs = "a confirmation";
    let mut details = json!({"type": "info", "title": title, "prompt": title});
    if let ConfirmationDetails::Edit { path, old_text, new_text, .. } = &request.details {
        needs = "an edit";
        let name = std::path::Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        details = json!({
            "type": "edit", "title": title, "fileName": name, "filePath": path,
            "originalContent": old_text.as_deref(), "newContent": **new_text,
        });
    } else if let ConfirmationDetails::Exec { .. } = &request.details {
        needs = "an execution";
        let command = request.args.get("command").and_then(Value::as_str).unwrap_or(title);
        let root = command.split_whitespace().next();
        details = json!({"type": "exec", "title": title, "command": command, "rootCommand": root});
    } else if let ConfirmationDetails::Info { prompt } = &request.details {
        details = json!({"type": "info", "title": title, "prompt": prompt});
    }
    Map::from_iter([
        ("message".to_owned(), format!("{} asks for {needs}: {title}", request.tool).into()),
        ("details".to_owned(), details),
    ])
}
