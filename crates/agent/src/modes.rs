//! The approval mode, between the protocol's word for it and the tools', and who hears that it changed.

use convoke_protocol::{AgentEventBody, ApprovalMode};
use convoke_tools::{Mode, ModeChange};
use serde_json::json;

use crate::models::SessionModel;
use crate::told;
use crate::tool_events::CurrentStream;

/// Tells of a mode that changed within a prompt: by a lasting answer, or by a tool. Copies tell the same ones.
#[derive(Clone)]
pub(crate) struct ModeNews {
    session_id: String,
    stream: CurrentStream,
    model: SessionModel,
}

impl ModeNews {
    pub(crate) fn new(session_id: String, stream: CurrentStream, model: SessionModel) -> Self {
        Self { session_id, stream, model }
    }

    /// A plan was approved.
    pub(crate) fn plan_begun(&self, mode: Mode) {
        told::plan_begun(&self.session_id, mode);
    }

    pub(crate) fn tell(&self, change: ModeChange) {
        if !change.is_one() {
            return;
        }
        told::mode_switched(&self.session_id, change);
        self.model.mode_changed(change);
        if let Some(emitter) = self.stream.get() {
            let config = Some(json!({"approvalMode": from_tools(change.after).acp()}));
            emitter.emit(AgentEventBody::SessionUpdate { title: None, model: None, config });
        }
    }
}

pub(crate) fn to_tools(mode: ApprovalMode) -> Mode {
    match mode {
        ApprovalMode::Plan => Mode::Plan,
        ApprovalMode::Default => Mode::Default,
        ApprovalMode::AutoEdit => Mode::AutoEdit,
        ApprovalMode::Yolo => Mode::Yolo,
    }
}

pub(crate) fn from_tools(mode: Mode) -> ApprovalMode {
    match mode {
        Mode::Plan => ApprovalMode::Plan,
        Mode::Default => ApprovalMode::Default,
        Mode::AutoEdit => ApprovalMode::AutoEdit,
        Mode::Yolo => ApprovalMode::Yolo,
    }
}
