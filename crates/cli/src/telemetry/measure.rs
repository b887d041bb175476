//! What an event adds to the metrics. A dictionary: one instrument per entry. Source: runtime specification §19.

use serde_json::{Value, json};

use super::record::Record;

/// What is measured, under which name.
#[derive(Debug)]
pub(super) struct Instrument {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: &'static str,
    pub(super) description: &'static str,
}

/// How measurements come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Histogram,
}

/// One value for one instrument.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) instrument: &'static Instrument,
    pub(super) value: f64,
    pub(super) attributes: Vec<(&'static str, Value)>,
}

const fn counter(name: &'static str, description: &'static str) -> Instrument {
    Instrument { name, kind: Kind::Counter, unit: "", description }
}

const fn histogram(name: &'static str, unit: &'static str, description: &'static str) -> Instrument {
    Instrument { name, kind: Kind::Histogram, unit, description }
}

pub(super) static SESSION_COUNT: Instrument = counter("gemini_cli.session.count", "Processes that were started");
pub(super) static TOOL_CALL_COUNT: Instrument = counter("gemini_cli.tool.call.count", "Tool calls");
pub(super) static TOOL_CALL_LATENCY: Instrument =
    histogram("gemini_cli.tool.call.latency", "ms", "How long tool calls executed");
static API_REQUEST_COUNT: Instrument = counter("gemini_cli.api.request.count", "Model calls");
static API_REQUEST_LATENCY: Instrument = histogram("gemini_cli.api.request.latency", "ms", "How long model calls took");
static TOKEN_USAGE: Instrument = counter("gemini_cli.token.usage", "Tokens by kind");
static FILE_OPERATION_COUNT: Instrument = counter("gemini_cli.file.operation.count", "Files created, updated, read");
static LINES_CHANGED: Instrument = counter("gemini_cli.lines.changed", "Lines added and removed by the model");
static INVALID_CHUNK_COUNT: Instrument = counter("gemini_cli.chat.invalid_chunk.count", "Streams that held no answer");
static CONTENT_RETRY_COUNT: Instrument = counter("gemini_cli.chat.content_retry.count", "Streams that were repeated");
static CONTENT_RETRY_FAILURE_COUNT: Instrument =
    counter("gemini_cli.chat.content_retry_failure.count", "Streams that were given up");
static NETWORK_RETRY_COUNT: Instrument = counter("gemini_cli.network_retry.count", "Model calls that were repeated");
static CHAT_COMPRESSION: Instrument = counter("gemini_cli.chat_compression", "Conversations that were compressed");
static ROUTING_LATENCY: Instrument =
    histogram("gemini_cli.model_routing.latency", "ms", "How long it took to choose a model");
static ROUTING_FAILURE_COUNT: Instrument =
    counter("gemini_cli.model_routing.failure.count", "Choices of a model that failed");
static PLAN_EXECUTION_COUNT: Instrument = counter("gemini_cli.plan.execution.count", "Plans that were approved");
static EXIT_FAIL_COUNT: Instrument = counter("gemini_cli.exit.fail.count", "Processes that ended with an error");
static HOOK_CALL_COUNT: Instrument = counter("gemini_cli.hook_call.count", "Hooks that ran");
static HOOK_CALL_LATENCY: Instrument = histogram("gemini_cli.hook_call.latency", "ms", "How long hooks ran");
static AGENT_RUN_COUNT: Instrument = counter("gemini_cli.agent.run.count", "Runs of subagents");
static AGENT_RECOVERY_COUNT: Instrument =
    counter("gemini_cli.agent.recovery_attempt.count", "Runs of subagents that met a limit and got one more turn");
static AGENT_DURATION: Instrument = histogram("gemini_cli.agent.duration", "ms", "How long subagents ran");
static AGENT_TURNS: Instrument = histogram("gemini_cli.agent.turns", "turns", "Turns that subagents took");
static GEN_AI_TOKENS: Instrument =
    histogram("gen_ai.client.token.usage", "token", "Tokens of a model call, sent and received");
static GEN_AI_DURATION: Instrument = histogram("gen_ai.client.operation.duration", "s", "How long a model call took");

/// A process began.
pub(super) fn session() -> Measurement {
    Measurement { instrument: &SESSION_COUNT, value: 1.0, attributes: Vec::new() }
}

/// The process ends with this code, which is not 0.
pub(super) fn failed_exit(code: u8) -> Measurement {
    Measurement { instrument: &EXIT_FAIL_COUNT, value: 1.0, attributes: vec![("exit_code", json!(code))] }
}

/// What `record` adds.
pub(super) fn of(record: &Record) -> Vec<Measurement> {
    let mut to = Measured { record, out: Vec::new() };
    match record.name().strip_prefix("gemini_cli.").unwrap_or_default() {
        "tool_call" => tool_call(&mut to),
        "api_response" => {
            api_call(&mut to);
            tokens(&mut to);
        }
        "api_error" => api_call(&mut to),
        "file_operation" => to.count(&FILE_OPERATION_COUNT, &["operation", "extension"]),
        "chat.invalid_chunk" => to.count(&INVALID_CHUNK_COUNT, &["model"]),
        "chat.content_retry" => to.count(&CONTENT_RETRY_COUNT, &["model", "error_type"]),
        "chat.content_retry_failure" => to.count(&CONTENT_RETRY_FAILURE_COUNT, &["error_type"]),
        "network_retry_attempt" => to.count(&NETWORK_RETRY_COUNT, &["error_type"]),
        "chat_compression" => to.count(&CHAT_COMPRESSION, &["tokens_before", "tokens_after"]),
        "model_routing" => {
            to.take("routing_latency_ms", 1.0, &ROUTING_LATENCY, &["decision_model", "decision_source"]);
            if record.get("failed") == Some(&Value::Bool(true)) {
                to.count(&ROUTING_FAILURE_COUNT, &["decision_source"]);
            }
        }
        "plan.execution" => to.count(&PLAN_EXECUTION_COUNT, &["approval_mode"]),
        "hook_call" => {
            to.count(&HOOK_CALL_COUNT, &["hook_event_name", "hook_name", "success"]);
            to.take("duration_ms", 1.0, &HOOK_CALL_LATENCY, &["hook_event_name", "hook_name", "success"]);
        }
        "agent.recovery_attempt" => to.count(&AGENT_RECOVERY_COUNT, &["agent_name", "reason"]),
        "agent.finish" => {
            to.count(&AGENT_RUN_COUNT, &["agent_name", "terminate_reason"]);
            to.take("duration_ms", 1.0, &AGENT_DURATION, &["agent_name"]);
            to.take("turn_count", 1.0, &AGENT_TURNS, &["agent_name"]);
        }
        _ => {}
    }
    to.out
}

struct Measured<'a> {
    record: &'a Record,
    out: Vec<Measurement>,
}

impl Measured<'_> {
    fn attributes(&self, keys: &[&'static str]) -> Vec<(&'static str, Value)> {
        keys.iter().filter_map(|key| Some((*key, self.record.get(key)?.clone()))).collect()
    }

    fn put(&mut self, instrument: &'static Instrument, value: f64, attributes: Vec<(&'static str, Value)>) {
        self.out.push(Measurement { instrument, value, attributes });
    }

    fn count(&mut self, instrument: &'static Instrument, keys: &[&'static str]) {
        let attributes = self.attributes(keys);
        self.put(instrument, 1.0, attributes);
    }

    /// The record's `field`, divided by `by`.
    fn take(&mut self, field: &str, by: f64, instrument: &'static Instrument, keys: &[&'static str]) {
        if let Some(value) = self.record.number(field) {
            let attributes = self.attributes(keys);
            self.put(instrument, value / by, attributes);
        }
    }
}

fn tool_call(to: &mut Measured<'_>) {
    to.count(&TOOL_CALL_COUNT, &["function_name", "success", "decision", "tool_type"]);
    to.take("duration_ms", 1.0, &TOOL_CALL_LATENCY, &["function_name"]);
    for (field, kind) in [("model_added_lines", "added"), ("model_removed_lines", "removed")] {
        if let Some(lines) = to.record.number(field).filter(|lines| *lines > 0.0) {
            let mut attributes = to.attributes(&["function_name"]);
            attributes.push(("type", json!(kind)));
            to.put(&LINES_CHANGED, lines, attributes);
        }
    }
}

const GEN_AI: [&str; 4] =
    ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"];

fn api_call(to: &mut Measured<'_>) {
    to.count(&API_REQUEST_COUNT, &["model", "status_code", "error_type"]);
    to.take("duration_ms", 1.0, &API_REQUEST_LATENCY, &["model"]);
    let keys: Vec<&'static str> = GEN_AI.into_iter().chain(["error.type"]).collect();
    to.take("duration_ms", 1000.0, &GEN_AI_DURATION, &keys);
}

fn tokens(to: &mut Measured<'_>) {
    for (field, kind) in [
        ("input_token_count", "input"),
        ("output_token_count", "output"),
        ("thoughts_token_count", "thought"),
        ("cached_content_token_count", "cache"),
        ("tool_token_count", "tool"),
    ] {
        let Some(tokens) = to.record.number(field) else { continue };
        let mut attributes = to.attributes(&["model"]);
        attributes.push(("type", json!(kind)));
        to.put(&TOKEN_USAGE, tokens, attributes);
        if matches!(kind, "input" | "output") {
            let mut attributes = to.attributes(&GEN_AI);
            attributes.push(("gen_ai.token.type", json!(kind)));
            to.put(&GEN_AI_TOKENS, tokens, attributes);
        }
    }
}
