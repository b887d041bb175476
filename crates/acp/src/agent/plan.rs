//! The model's list of things to do as ACP's plan.

use convoke_protocol::AgentEventBody;
use serde_json::{Value, json};

/// The tool whose answers are plans.
const TOOL: &str = "write_todos";

/// The plan that a call of the agent's own list wrote. A client replaces the one before as a whole, so an empty list
/// clears it. Our steps have no priorities; a step that was given up is in it no more, one that is stuck waits.
/// Source: ACP v1, `session/update` of kind `plan`.
pub(super) fn update(event: &AgentEventBody) -> Option<Value> {
    let AgentEventBody::ToolResponse { name, data: Some(data), is_error: false, .. } = event else { return None };
    if name != TOOL {
        return None;
    }
    let entry = |todo: &Value| {
        let status = match todo.get("status")?.as_str()? {
            "pending" | "blocked" => "pending",
            "in_progress" => "in_progress",
            "completed" => "completed",
            _ => return None,
        };
        Some(json!({"content": todo.get("description")?.as_str()?, "priority": "medium", "status": status}))
    };
    let entries: Vec<Value> = data.get("todos")?.as_array()?.iter().filter_map(entry).collect();
    Some(json!({"sessionUpdate": "plan", "entries": entries}))
}
