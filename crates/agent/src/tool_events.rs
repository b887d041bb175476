//! The scheduler's records as `tool_request`, `tool_update` and `tool_response`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use convoke_protocol::{AgentEventBody, ContentPart, DisplayContent, Meta, ToolDisplay, ToolKind, ToolLocation};
use convoke_tools::{
    CallRecord, CallResult, CallStatus, Kind, LiveOutput, Location, ModeChange, ResultDisplay, SchedulerObserver,
};
use serde_json::{Map, Value, json};

use crate::emitter::Emitter;
use crate::modes::ModeNews;

/// The stream that runs now; tool events and mode changes belong to it.
#[derive(Clone, Default)]
pub(crate) struct CurrentStream(Arc<Mutex<Option<Arc<Emitter>>>>);

impl CurrentStream {
    pub(crate) fn set(&self, emitter: Option<Arc<Emitter>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = emitter;
    }

    pub(crate) fn get(&self) -> Option<Arc<Emitter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CurrentStream {
    /// Says once that the session goes on without a record.
    pub(crate) fn recording_stopped(&self, message: &str) {
        if let Some(emitter) = self.get() {
            let data = json!({"code": "RECORDING_STOPPED", "message": message});
            emitter.emit(AgentEventBody::Custom { kind: "notice".to_owned(), data: Some(data) });
        }
    }
}

/// Emits each call's life in order: one request, any number of updates, one response.
pub(crate) struct ToolEvents {
    stream: CurrentStream,
    modes: ModeNews,
    /// Calls that were announced and have not ended: at most one batch of one model answer.
    open: Mutex<HashSet<String>>,
}

impl ToolEvents {
    pub(crate) fn new(stream: CurrentStream, modes: ModeNews) -> Self {
        Self { stream, modes, open: Mutex::default() }
    }

    /// Whether the call is seen for the first time.
    fn opens(&self, record: &CallRecord) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if record.status.is_terminal() { !open.remove(&record.call_id) } else { open.insert(record.call_id.clone()) }
    }
}

impl SchedulerObserver for ToolEvents {
    fn on_change(&self, record: &CallRecord) {
        let Some(emitter) = self.stream.get() else { return };
        if self.opens(record) {
            emitter.emit_with(request(&emitter, record), legacy_state(record));
        }
        match &record.result {
            Some(result) => emitter.emit_with(response(&emitter, record, result), Meta::new()),
            None if record.status == CallStatus::Validating => return,
            None => emitter.emit(update(&emitter, record)),
        };
    }

    fn on_mode(&self, change: ModeChange) {
        self.modes.tell(change);
    }
}

pub(crate) fn display(record: &CallRecord) -> ToolDisplay {
    let description = match (record.description.as_str(), record.kind) {
        ("", _) => None,
        // A bare path or pattern says what, but not what is done with it.
        (what, Kind::Read | Kind::Search | Kind::Fetch) => Some(format!("{} {what}", record.display_name)),
        (what, _) => Some(what.to_owned()),
    };
    ToolDisplay { name: Some(record.display_name.clone()), description, ..ToolDisplay::default() }
}

fn legacy_state(record: &CallRecord) -> Meta {
    let state = object([
        ("displayName", record.display_name.as_str().into()),
        ("isOutputMarkdown", false.into()),
        ("description", record.description.as_str().into()),
        ("kind", record.kind.as_str().into()),
    ]);
    object([("legacyState", Value::Object(state))])
}

/// A map without room to grow: every event of a session is kept, and a map that grew holds up to seven times its first
/// entry.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A map that may have grown, for an event.
pub(crate) fn fitted(map: Map<String, Value>) -> Map<String, Value> {
    map.into_iter().collect()
}

fn request(emitter: &Emitter, record: &CallRecord) -> AgentEventBody {
    AgentEventBody::ToolRequest {
        request_id: emitter.call_id(&record.call_id),
        name: record.call.name.clone(),
        args: record.call.args.clone(),
        display: Some(display(record)),
        kind: kind(record.kind),
        locations: locations(&record.locations),
    }
}

fn update(emitter: &Emitter, record: &CallRecord) -> AgentEventBody {
    let result = record.live.as_ref().map(|LiveOutput { text, pid, data, .. }| match data {
        None => DisplayContent::Terminal { pid: *pid, exit_code: None, ansi: text.clone() },
        Some(_) => DisplayContent::Text { text: text.clone() },
    });
    let status = ("status", Value::from(record.status.as_str()));
    let mut data = match &record.original {
        None => object([status]),
        // The arguments changed after the request was announced: who watches must see what really runs.
        Some(_) => object([status, ("name", record.call.name.as_str().into()), ("args", record.call.args.clone())]),
    };
    if let Some(Value::Object(more)) = record.live.as_ref().and_then(|live| live.data.as_ref()) {
        data.extend(more.clone());
    }
    AgentEventBody::ToolUpdate {
        request_id: emitter.call_id(&record.call_id),
        display: Some(ToolDisplay { result, ..display(record) }),
        content: None,
        data: Some(Value::Object(data)),
    }
}

fn response(emitter: &Emitter, record: &CallRecord, result: &CallResult) -> AgentEventBody {
    let told = result.response.error_message().or_else(|| result.response.response.get("output")?.as_str());
    let content = told.map(|text| vec![ContentPart::text(text)]);
    let mut data = match &result.data {
        Some(Value::Object(map)) => map.clone(),
        Some(other) => Map::from_iter([("value".to_owned(), other.clone())]),
        None => Map::new(),
    };
    if let Some(error_type) = result.error_type {
        data.insert("errorType".to_owned(), error_type.as_str().into());
    }
    if let Some(file) = &result.output_file {
        data.insert("outputFile".to_owned(), file.as_str().into());
    }
    data.insert("contentLength".to_owned(), result.content_length.into());
    data.insert("status".to_owned(), record.status.as_str().into());
    data.insert("ran".to_owned(), result.ran.into());
    if let Some(decision) = record.decision {
        data.insert("decision".to_owned(), decision.as_str().into());
    }
    AgentEventBody::ToolResponse {
        request_id: emitter.call_id(&record.call_id),
        name: record.call.name.clone(),
        display: Some(ToolDisplay {
            result: result_display(&result.display),
            result_summary: result.summary.clone(),
            ..display(record)
        }),
        content,
        data: Some(Value::Object(fitted(data))),
        is_error: record.status != CallStatus::Success,
    }
}

pub(crate) fn result_display(display: &ResultDisplay) -> Option<DisplayContent> {
    match display {
        ResultDisplay::Nothing => None,
        ResultDisplay::Text(text) => Some(DisplayContent::Text { text: text.clone() }),
        ResultDisplay::Diff { path, old_text, new_text, .. } => Some(DisplayContent::Diff {
            path: path.clone(),
            before_text: old_text.as_ref().map(ToString::to_string),
            after_text: new_text.to_string(),
        }),
        ResultDisplay::Terminal { pid, exit_code, text } => {
            Some(DisplayContent::Terminal { pid: *pid, exit_code: *exit_code, ansi: text.clone() })
        }
    }
}

pub(crate) fn kind(kind: Kind) -> ToolKind {
    match kind {
        Kind::Read => ToolKind::Read,
        Kind::Edit => ToolKind::Edit,
        Kind::Delete => ToolKind::Delete,
        Kind::Move => ToolKind::Move,
        Kind::Search => ToolKind::Search,
        Kind::Execute => ToolKind::Execute,
        Kind::Think => ToolKind::Think,
        Kind::Fetch => ToolKind::Fetch,
        // What a plan is for is the mode that follows; clients show its text where they show such a switch.
        Kind::SwitchMode | Kind::Plan => ToolKind::SwitchMode,
        Kind::Agent | Kind::Communicate | Kind::Other => ToolKind::Other,
    }
}

pub(crate) fn locations(locations: &[Location]) -> Vec<ToolLocation> {
    locations.iter().map(|l| ToolLocation { path: l.path.clone(), line: l.line }).collect()
}
