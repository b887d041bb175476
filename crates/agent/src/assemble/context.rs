//! What keeps a session within its model's window.

use std::path::PathBuf;
use std::sync::Arc;

use convoke_protocol::SessionId;

use super::AGENT_NAME;
use crate::AgentOptions;
use crate::context::compression::{Compressor, CompressorParts};
use crate::context::masking::Masker;
use crate::context::{History, Meter};
use crate::hooks::LifecycleHooks;
use crate::models::SessionModel;
use crate::record::Recorder;
use crate::tool_events::CurrentStream;

/// The stages' parts that a session has one of.
pub(super) struct SessionContext {
    pub(super) history: History,
    /// `None` where there is no folder to keep output in: what can't be kept is not masked.
    pub(super) masker: Option<Arc<Masker>>,
    pub(super) compressor: Arc<Compressor>,
}

impl SessionContext {
    pub(super) fn new(
        options: &AgentOptions,
        id: &SessionId,
        model: &SessionModel,
        hooks: Arc<dyn LifecycleHooks>,
        outputs: Option<PathBuf>,
        stream: &CurrentStream,
        recorder: Option<&Recorder>,
    ) -> Self {
        let listener = match recorder {
            Some(recorder) => recorder.history(options.history.clone()),
            None => options.history.clone(),
        };
        let history = History { session_id: id.to_string(), meter: Meter::default(), listener };
        let masking = options.masking.unwrap_or_default();
        let masker = outputs.map(|folder| Arc::new(Masker::new(history.clone(), folder, masking)));
        let compressor = Compressor::new(CompressorParts {
            history: history.clone(),
            model: model.clone(),
            hooks,
            masker: masker.clone(),
            stream: stream.clone(),
            threshold: options.compression_threshold,
            agent_name: AGENT_NAME.to_owned(),
        });
        Self { history, masker, compressor: Arc::new(compressor) }
    }
}
