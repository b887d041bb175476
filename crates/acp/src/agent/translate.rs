//! What does an event of ours mean to an ACP client?
//!
//! Pure: one [`AgentEvent`] in, ACP `SessionUpdate`s out as JSON. User messages are not echoed, and ends and fatal errors
//! are left to the turn. A subagent's words, errors and model stay with its own thread; its calls and its usage are
//! told with `_meta.threadId`, and each call when it begins with whose it is and the call that it is a part of.
//! Source: ACP v1 `session/update`; runtime specification §1.3; `_meta.toolName` and `_meta.usage` as the daemon's
//! clients know them from recorded transcripts.

use std::collections::HashMap;

use convoke_protocol::{
    AgentEvent, AgentEventBody, ContentPart, DisplayContent, MessageRole, Meta, ToolCallId, ToolDisplay,
};
use serde_json::{Map, Value, json};

use super::abilities::Abilities;
use super::{content, plan};

/// The code of the notice that nothing is recorded any more.
const RECORDING_STOPPED: &str = "RECORDING_STOPPED";

/// Translates the events of one session.
#[derive(Debug, Default)]
pub(super) struct Translator {
    /// Calls without a response. As bounded as the calls that run at once.
    tools: HashMap<ToolCallId, Call>,
    /// The kind and the id of the message that its pieces are coming in for.
    message: Option<(&'static str, String)>,
    abilities: Abilities,
}

/// What the client was last told of a call, so that it is not told the same again.
#[derive(Debug)]
struct Call {
    name: String,
    /// The subagent whose call it is.
    agent: Option<String>,
    title: String,
    status: &'static str,
    /// The client's own terminal that it runs in.
    terminal: Option<Value>,
}

impl Translator {
    /// For a client with these abilities.
    pub(super) fn new(abilities: Abilities) -> Self {
        Self { abilities, ..Self::default() }
    }

    /// The updates that an event of an earlier time becomes: what the user said is told, too.
    pub(super) fn replayed(&mut self, event: &AgentEvent) -> Vec<Value> {
        match &event.body {
            AgentEventBody::Message { role: MessageRole::User, content } => {
                let said = |part| {
                    let mut update = json!({
                        "sessionUpdate": "user_message_chunk",
                        "content": content::block(part)?,
                        "messageId": event.id,
                    });
                    if let (false, Value::Object(update)) = (event.meta.is_empty(), &mut update) {
                        update.insert("_meta".to_owned(), json!(event.meta));
                    }
                    Some(update)
                };
                content.iter().filter_map(said).collect()
            }
            _ => self.updates(event),
        }
    }

    /// The updates that `event` becomes, often none, in order.
    pub(super) fn updates(&mut self, event: &AgentEvent) -> Vec<Value> {
        let thread = event.thread_id.as_deref();
        match &event.body {
            AgentEventBody::Message { role: MessageRole::Agent, content } if thread.is_none() => {
                content.iter().filter_map(|part| self.message(part, event)).collect()
            }
            AgentEventBody::ToolRequest { request_id, name, args, display, kind, locations } => {
                if thread.is_none() {
                    self.message = None;
                }
                let agent = event.meta.get("agentName").and_then(Value::as_str);
                let title = of_agent(agent, title(display.as_ref()).unwrap_or(name));
                let mut meta = tool_meta(Some(name), thread);
                for key in ["agentName", "parentToolCallId"] {
                    meta.extend(event.meta.get(key).map(|value| (key.to_owned(), value.clone())));
                }
                let agent = agent.map(ToOwned::to_owned);
                let call = Call { name: name.clone(), agent, title: title.clone(), status: "pending", terminal: None };
                self.tools.insert(request_id.clone(), call);
                vec![json!({
                    "sessionUpdate": "tool_call",
                    "toolCallId": request_id,
                    "title": title,
                    "kind": kind,
                    "status": "pending",
                    "content": [],
                    "locations": locations,
                    "rawInput": args,
                    "_meta": meta,
                })]
            }
            AgentEventBody::ToolUpdate { request_id, display, content, data } => {
                let status = status(data.as_ref());
                let mut update = self.call_update(request_id, status, thread);
                let mut news = true;
                if let Some(call) = self.tools.get_mut(request_id) {
                    news = std::mem::replace(&mut call.status, status) != status;
                    let title = title(display.as_ref()).map(|title| of_agent(call.agent.as_deref(), title));
                    if let Some(title) = title.filter(|title| *title != call.title) {
                        call.title.clone_from(&title);
                        update.insert("title".to_owned(), json!(title));
                        news = true;
                    }
                }
                let mut content = tool_content(display.as_ref(), content.as_deref());
                if let (Some(id), Some(call)) =
                    (data.as_ref().and_then(|data| data.get("terminalId")), self.tools.get_mut(request_id))
                {
                    // The client shows what it prints, live.
                    let terminal = call.terminal.insert(json!({"type": "terminal", "terminalId": id}));
                    content = vec![terminal.clone()];
                }
                if !content.is_empty() {
                    update.insert("content".to_owned(), json!(content));
                    news = true;
                }
                // The arguments changed after the call was announced: who watches must see what really runs.
                if let Some(args) = data.as_ref().and_then(|data| data.get("args")) {
                    update.insert("rawInput".to_owned(), args.clone());
                    news = true;
                }
                if news { vec![Value::Object(update)] } else { Vec::new() }
            }
            body @ AgentEventBody::ToolResponse { request_id, name, display, content, data, is_error } => {
                let call = Call {
                    name: name.clone(),
                    agent: None,
                    title: String::new(),
                    status: "in_progress",
                    terminal: None,
                };
                self.tools.entry(request_id.clone()).or_insert(call);
                let status = if *is_error { "failed" } else { "completed" };
                let mut update = self.call_update(request_id, status, thread);
                let terminal = self.tools.remove(request_id).and_then(|call| call.terminal);
                let mut content = tool_content(display.as_ref(), content.as_deref());
                if let Some(terminal) = terminal {
                    content.retain(|_| *is_error);
                    content.insert(0, terminal);
                }
                update.insert("content".to_owned(), json!(content));
                if let Some(DisplayContent::Diff { path, .. }) = display.as_ref().and_then(|d| d.result.as_ref()) {
                    update.insert("locations".to_owned(), json!([{"path": path}]));
                }
                if let Some(data) = data {
                    update.insert("rawOutput".to_owned(), data.clone());
                }
                // A subagent's plan is its own.
                let plan = plan::update(body).filter(|_| thread.is_none());
                std::iter::once(Value::Object(update)).chain(plan).collect()
            }
            AgentEventBody::Usage { model, input_tokens, output_tokens, cached_tokens } => {
                let usage = usage(*input_tokens, *output_tokens, *cached_tokens);
                let mut meta = json!({"usage": usage, "model": model});
                if let (Some(thread), Value::Object(meta)) = (thread, &mut meta) {
                    meta.insert("threadId".to_owned(), thread.into());
                }
                vec![json!({
                    "sessionUpdate": "agent_message_chunk",
                    "content": content::text_block(""),
                    "_meta": meta,
                })]
            }
            AgentEventBody::SessionUpdate { title, model, .. }
                if thread.is_none() && (title.is_some() || model.is_some()) =>
            {
                let mut update = Map::new();
                update.insert("sessionUpdate".to_owned(), json!("session_info_update"));
                update.extend(title.as_ref().map(|title| ("title".to_owned(), json!(title))));
                update.extend(model.as_ref().map(|model| ("_meta".to_owned(), json!({crate::MODEL_META: model}))));
                vec![Value::Object(update)]
            }
            AgentEventBody::Error { status, message, fatal: false } if thread.is_none() => {
                let mut error = event.meta.clone();
                error.insert("status".to_owned(), json!(status));
                vec![self.warning(message, &json!({"error": error}))]
            }
            // A hook's words to the user. They are not the agent's, so they don't go where its answer goes.
            AgentEventBody::Custom { kind, data: Some(data) } if kind == "hook_message" => {
                let text = data.get("message").and_then(Value::as_str).unwrap_or_default();
                vec![json!({
                    "sessionUpdate": "agent_thought_chunk",
                    "content": content::text_block(text),
                    "_meta": {"hookMessage": data},
                })]
            }
            AgentEventBody::Custom { kind, data: Some(data) } if kind == "notice" && thread.is_none() => {
                let stopped = data.get("code").and_then(Value::as_str) == Some(RECORDING_STOPPED);
                let info = json!({"sessionUpdate": "session_info_update", "_meta": {crate::RECORDING_META: false}});
                let message = data.get("message").and_then(Value::as_str).unwrap_or_default();
                let told = self.warning(message, &json!({"notice": data}));
                std::iter::once(told).chain(stopped.then_some(info)).collect()
            }
            AgentEventBody::Custom { kind, data: Some(data) } if kind == "session_rewound" && thread.is_none() => {
                vec![json!({"sessionUpdate": "session_info_update", "_meta": {crate::REWOUND_META: data}})]
            }
            AgentEventBody::AgentStart | AgentEventBody::AgentEnd { .. } => {
                self.message = None;
                Vec::new()
            }
            AgentEventBody::Message { .. }
            | AgentEventBody::SessionUpdate { .. }
            | AgentEventBody::Error { .. }
            | AgentEventBody::Custom { .. }
            | AgentEventBody::Unknown(_) => Vec::new(),
        }
    }

    /// Something that a person should know and that the model does not say.
    fn warning(&self, message: &str, meta: &Value) -> Value {
        if self.abilities.notices() {
            return json!({"sessionUpdate": "notice", "severity": "warning", "title": message, "_meta": meta});
        }
        json!({"sessionUpdate": "agent_thought_chunk", "content": content::text_block(message), "_meta": meta})
    }

    /// A piece of a message. Pieces of one kind without a call between them are one message.
    fn message(&mut self, part: &ContentPart, event: &AgentEvent) -> Option<Value> {
        let (kind, content) = match part {
            ContentPart::Thought { thought, .. } => ("agent_thought_chunk", content::text_block(thought)),
            other => ("agent_message_chunk", content::block(other)?),
        };
        let same = self.message.take().filter(|(of, _)| *of == kind);
        let (_, id) = self.message.insert(same.unwrap_or_else(|| (kind, event.id.to_string())));
        let mut update = json!({"sessionUpdate": kind, "content": content, "messageId": id});
        if let (false, Value::Object(update)) = (event.meta.is_empty(), &mut update) {
            update.insert("_meta".to_owned(), json!(event.meta));
        }
        Some(update)
    }

    fn call_update(&self, id: &ToolCallId, status: &str, thread: Option<&str>) -> Map<String, Value> {
        let mut update = Map::new();
        update.insert("sessionUpdate".to_owned(), json!("tool_call_update"));
        update.insert("toolCallId".to_owned(), json!(id));
        update.insert("status".to_owned(), json!(status));
        let meta = tool_meta(self.tools.get(id).map(|call| call.name.as_str()), thread);
        update.insert("_meta".to_owned(), Value::Object(meta));
        update
    }
}

/// What the call does, else the tool's name for people.
fn title(display: Option<&ToolDisplay>) -> Option<&String> {
    display.and_then(|display| display.description.as_ref().or(display.name.as_ref()))
}

/// A title that says which subagent does it.
fn of_agent(agent: Option<&str>, title: &str) -> String {
    agent.map_or_else(|| title.to_owned(), |agent| format!("{agent}: {title}"))
}

fn tool_meta(name: Option<&str>, thread: Option<&str>) -> Meta {
    let mut meta = Meta::new();
    meta.extend(name.map(|name| ("toolName".to_owned(), json!(name))));
    meta.extend(thread.map(|thread| ("threadId".to_owned(), json!(thread))));
    meta
}

/// The scheduler's state in ACP's words. Before a call executes it is pending, whatever it waits for.
fn status(data: Option<&Value>) -> &'static str {
    match data.and_then(|data| data.get("status")).and_then(Value::as_str) {
        Some("validating" | "scheduled" | "awaiting_approval" | "pending") => "pending",
        _ => "in_progress",
    }
}

/// What to show: the display's result if there is one, else what the model is told.
fn tool_content(display: Option<&ToolDisplay>, content: Option<&[ContentPart]>) -> Vec<Value> {
    if let Some(result) = display.and_then(|display| display.result.as_ref()) {
        return vec![content::display(result)];
    }
    let blocks = content.unwrap_or_default().iter().filter_map(content::block);
    blocks.map(|block| content::tool_block(&block)).collect()
}

fn usage(input: Option<u64>, output: Option<u64>, cached: Option<u64>) -> Map<String, Value> {
    let total = input.or(output).map(|_| input.unwrap_or(0).saturating_add(output.unwrap_or(0)));
    let counts =
        [("inputTokens", input), ("outputTokens", output), ("totalTokens", total), ("cachedReadTokens", cached)];
    counts.into_iter().filter_map(|(name, count)| Some((name.to_owned(), json!(count?)))).collect()
}

#[cfg(test)]
mod tests;
