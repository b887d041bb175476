//! What happens in a session, in the words of version 2.
//!
//! Pure, but for the message that an empty chunk belongs to and the ids of words that have none.

use serde_json::{Map, Value, json};

use super::patch;
use super::requests::Fields;

/// The only plan of a session.
const PLAN: &str = "plan";

/// What the updates of one session need to know of each other.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The agent's last message.
    message: Option<String>,
}

/// An update of version 1; `None` is nothing that version 2 has a word for. `id` makes an id for a message.
pub(super) fn rewrite(mut update: Fields, thread: &mut Thread, id: impl FnOnce() -> String) -> Option<Value> {
    let kind = update.get("sessionUpdate").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
            let known = update.get("messageId").and_then(Value::as_str);
            let message = match known {
                Some(known) => known.to_owned(),
                // It is there for its `_meta`; it must not become a message.
                None if update.get("content").is_some_and(says_nothing) => thread.message.clone()?,
                None => id(),
            };
            if kind == "agent_message_chunk" {
                thread.message = Some(message.clone());
            }
            update.insert("messageId".to_owned(), json!(message));
        }
        "tool_call" | "tool_call_update" => {
            update = call(update, kind == "tool_call");
            update.insert("sessionUpdate".to_owned(), json!("tool_call_update"));
        }
        "plan" => {
            let plan = json!({"type": "items", "planId": PLAN, "entries": update.remove("entries")});
            update.insert("sessionUpdate".to_owned(), json!("plan_update"));
            update.insert("plan".to_owned(), plan);
        }
        "available_commands_update" => {
            if let Some(Value::Array(commands)) = update.get_mut("availableCommands") {
                commands.iter_mut().for_each(command);
            }
        }
        "config_option_update" => {
            if let Some(all) = update.get_mut("configOptions") {
                options(all);
            }
        }
        // The option of that category tells it.
        "current_mode_update" => return None,
        _ => {}
    }
    Some(Value::Object(update))
}

fn says_nothing(content: &Value) -> bool {
    content.get("type").and_then(Value::as_str) == Some("text")
        && content.get("text").and_then(Value::as_str) == Some("")
}

/// A tool call. The tool's name is told with the call, not with each of its updates.
pub(super) fn call(mut call: Fields, is_whole: bool) -> Fields {
    let name = call.get("_meta").and_then(|meta| meta.get("toolName")).filter(|_| is_whole).cloned();
    call.extend(name.map(|name| ("name".to_owned(), name)));
    if let Some(Value::Array(content)) = call.get_mut("content") {
        for block in content {
            if block.get("type").and_then(Value::as_str) == Some("diff") {
                *block = diff(block);
            }
        }
    }
    call
}

fn diff(told: &Value) -> Value {
    let field = |name: &str| told.get(name).and_then(Value::as_str);
    let (path, old, new) = (field("path").unwrap_or_default(), field("oldText"), field("newText").unwrap_or_default());
    let operation = if old.is_some() { "modify" } else { "add" };
    json!({
        "type": "diff",
        "changes": [{"operation": operation, "path": path, "fileType": "text"}],
        "patch": {"format": "git_patch", "text": patch::git(path, old, new)},
    })
}

/// A list of options, each with its id.
pub(super) fn options(options: &mut Value) {
    let Value::Array(options) = options else { return };
    for option in options {
        if let Value::Object(option) = option {
            rename(option, "id", "configId");
        }
    }
}

fn command(command: &mut Value) {
    let Value::Object(command) = command else { return };
    command.insert("type".to_owned(), json!("command"));
    if let Some(Value::Object(input)) = command.get_mut("input") {
        input.insert("type".to_owned(), json!("text"));
    }
}

pub(super) fn rename(fields: &mut Map<String, Value>, from: &str, to: &str) {
    let value = fields.remove(from);
    fields.extend(value.map(|value| (to.to_owned(), value)));
}
