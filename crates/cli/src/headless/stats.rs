//! Counting what a run used. Source: runtime specification §15.4.

use std::time::Instant;

use convoke_protocol::{AgentEvent, AgentEventBody, DisplayContent, ToolCallId};
use serde_json::{Map, Value, json};

/// Model calls, tokens, tool calls and changed lines.
#[derive(Debug)]
pub(crate) struct Stats {
    started: Instant,
    asked: Instant,
    model: String,
    models: Vec<(String, ModelStats)>,
    tools: Vec<(String, ToolStats)>,
    open: Vec<(ToolCallId, Instant)>,
    lines_added: usize,
    lines_removed: usize,
}

#[derive(Clone, Debug, Default)]
struct ModelStats {
    requests: u64,
    errors: u64,
    /// The same by their kind, of which there are a handful.
    errors_by_type: Vec<(String, u64)>,
    latency_ms: u64,
    prompt: u64,
    candidates: u64,
    total: u64,
    cached: u64,
    thoughts: u64,
    tool: u64,
}

#[derive(Clone, Debug, Default)]
struct ToolStats {
    count: u64,
    fail: u64,
    duration_ms: u64,
    decisions: Decisions,
}

/// Who decided, by the names of the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Decisions {
    accept: u64,
    reject: u64,
    modify: u64,
    auto_accept: u64,
}

impl Decisions {
    fn add(&mut self, decision: &str) {
        match decision {
            "accept" => self.accept += 1,
            "reject" => self.reject += 1,
            "modify" => self.modify += 1,
            "auto_accept" => self.auto_accept += 1,
            _ => {}
        }
    }

    fn object(all: impl Iterator<Item = Self>) -> Value {
        let mut sum = Self::default();
        for one in all {
            sum.accept += one.accept;
            sum.reject += one.reject;
            sum.modify += one.modify;
            sum.auto_accept += one.auto_accept;
        }
        json!({"accept": sum.accept, "reject": sum.reject, "modify": sum.modify, "auto_accept": sum.auto_accept})
    }
}

/// The entry under `name`, made if there is none; a run knows a handful of models and tools.
fn entry<'a, T: Default>(list: &'a mut Vec<(String, T)>, name: &str) -> &'a mut T {
    let index = list.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        list.push((name.to_owned(), T::default()));
        list.len() - 1
    });
    &mut list[index].1
}

fn ms_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl Stats {
    pub(crate) fn new(model: String) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            asked: now,
            model,
            models: Vec::new(),
            tools: Vec::new(),
            open: Vec::new(),
            lines_added: 0,
            lines_removed: 0,
        }
    }

    pub(crate) fn event(&mut self, event: &AgentEvent) {
        match &event.body {
            AgentEventBody::SessionUpdate { model: Some(model), .. } => {
                self.model.clone_from(model);
                self.asked = Instant::now();
            }
            AgentEventBody::Usage { model, input_tokens, output_tokens, cached_tokens } => {
                let detail =
                    |key: &str| event.meta.get("usageMetadata").and_then(|u| u.get(key)).and_then(Value::as_u64);
                let latency = ms_since(self.asked);
                let stats = entry(&mut self.models, model);
                stats.requests += 1;
                stats.latency_ms += latency;
                stats.prompt += input_tokens.unwrap_or_default();
                stats.cached += cached_tokens.unwrap_or_default();
                let thoughts = detail("thoughtsTokenCount").unwrap_or_default();
                let output = output_tokens.unwrap_or_default();
                stats.thoughts += thoughts;
                stats.candidates += output.saturating_sub(thoughts);
                stats.tool += detail("toolUsePromptTokenCount").unwrap_or_default();
                stats.total += detail("totalTokenCount").unwrap_or(input_tokens.unwrap_or_default() + output);
            }
            AgentEventBody::Error { .. } if event.meta.contains_key("errorKind") => {
                let kind = event.meta.get("errorKind").and_then(Value::as_str).unwrap_or("unknown").to_owned();
                let model = self.model.clone();
                let stats = entry(&mut self.models, &model);
                stats.requests += 1;
                stats.errors += 1;
                *entry(&mut stats.errors_by_type, &kind) += 1;
            }
            AgentEventBody::ToolRequest { request_id, .. } => self.open.push((request_id.clone(), Instant::now())),
            AgentEventBody::ToolResponse { request_id, name, display, is_error, data, .. } => {
                self.asked = Instant::now();
                let begun = self.open.iter().position(|(id, _)| id == request_id).map(|i| self.open.swap_remove(i).1);
                let stats = entry(&mut self.tools, name);
                stats.count += 1;
                stats.fail += u64::from(*is_error);
                stats.duration_ms += begun.map_or(0, ms_since);
                if let Some(decision) = data.as_ref().and_then(|data| data.get("decision")).and_then(Value::as_str) {
                    stats.decisions.add(decision);
                }
                if let Some(DisplayContent::Diff { before_text, after_text, .. }) =
                    display.as_ref().and_then(|display| display.result.as_ref()).filter(|_| !is_error)
                {
                    self.changed(before_text.as_deref().unwrap_or_default(), after_text);
                }
            }
            _ => {}
        }
    }

    /// Lines that are only on one side, as a multiset: enough for a count, without a second diff.
    fn changed(&mut self, before: &str, after: &str) {
        let mut left: Vec<&str> = before.lines().collect();
        let mut right: Vec<&str> = after.lines().collect();
        left.sort_unstable();
        right.sort_unstable();
        let (mut l, mut r, mut common) = (0, 0, 0);
        while let (Some(a), Some(b)) = (left.get(l), right.get(r)) {
            match a.cmp(b) {
                std::cmp::Ordering::Less => l += 1,
                std::cmp::Ordering::Greater => r += 1,
                std::cmp::Ordering::Equal => (l, r, common) = (l + 1, r + 1, common + 1),
            }
        }
        self.lines_added += right.len() - common;
        self.lines_removed += left.len() - common;
    }

    /// The long form of `json`.
    pub(crate) fn session_metrics(&self) -> Value {
        let models: Map<String, Value> = self
            .models
            .iter()
            .map(|(name, m)| {
                let tokens = json!({
                    "input": m.prompt.saturating_sub(m.cached), "prompt": m.prompt, "candidates": m.candidates,
                    "total": m.total, "cached": m.cached, "thoughts": m.thoughts, "tool": m.tool,
                });
                let api = json!({
                    "totalRequests": m.requests, "totalErrors": m.errors, "totalLatencyMs": m.latency_ms,
                    "errorsByType": m.errors_by_type.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                });
                let main = json!({
                    "totalRequests": m.requests, "totalErrors": m.errors, "totalLatencyMs": m.latency_ms,
                    "tokens": tokens,
                });
                (name.clone(), json!({"api": api, "tokens": tokens, "roles": {"main": main}}))
            })
            .collect();
        let by_name: Map<String, Value> = self
            .tools
            .iter()
            .map(|(name, t)| {
                let counts = json!({
                    "count": t.count, "success": t.count - t.fail, "fail": t.fail, "durationMs": t.duration_ms,
                    "decisions": Decisions::object(std::iter::once(t.decisions)),
                });
                (name.clone(), counts)
            })
            .collect();
        let sum = |pick: fn(&ToolStats) -> u64| self.tools.iter().map(|(_, t)| pick(t)).sum::<u64>();
        json!({
            "models": models,
            "tools": {
                "totalCalls": sum(|t| t.count),
                "totalSuccess": sum(|t| t.count - t.fail),
                "totalFail": sum(|t| t.fail),
                "totalDurationMs": sum(|t| t.duration_ms),
                "totalDecisions": Decisions::object(self.tools.iter().map(|(_, t)| t.decisions)),
                "byName": by_name,
            },
            "files": {"totalLinesAdded": self.lines_added, "totalLinesRemoved": self.lines_removed},
        })
    }

    /// The short form of `stream-json`.
    pub(crate) fn stream_stats(&self) -> Value {
        let short = |m: &ModelStats| {
            Map::from_iter([
                ("total_tokens".to_owned(), json!(m.total)),
                ("input_tokens".to_owned(), json!(m.prompt)),
                ("output_tokens".to_owned(), json!(m.candidates)),
                ("cached".to_owned(), json!(m.cached)),
                ("input".to_owned(), json!(m.prompt.saturating_sub(m.cached))),
            ])
        };
        let mut all = ModelStats::default();
        for (_, m) in &self.models {
            all.total += m.total;
            all.prompt += m.prompt;
            all.candidates += m.candidates;
            all.cached += m.cached;
        }
        let mut stats = short(&all);
        stats.insert("duration_ms".to_owned(), ms_since(self.started).into());
        stats.insert("tool_calls".to_owned(), self.tools.iter().map(|(_, t)| t.count).sum::<u64>().into());
        let models: Map<String, Value> =
            self.models.iter().map(|(name, m)| (name.clone(), Value::Object(short(m)))).collect();
        stats.insert("models".to_owned(), models.into());
        Value::Object(stats)
    }
}
