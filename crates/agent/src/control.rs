//! What can be done with a session besides prompting it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_adk::{InMemorySessionService, SessionKey, SessionService};
use convoke_mcp::McpServers;
use convoke_protocol::{
    ApprovalMode, BranchOutcome, CommandInfo, CompressOutcome, ConfigOption, RewindOutcome, RewindPoint, RewindRequest,
    SessionControl, SetConfigError, SetModeError, SteerOutcome,
};
use convoke_tools::{BackgroundProcesses, ModeRefused, SessionPolicy};

use crate::AdkAgentProtocol;
use crate::config;
use crate::hooks::SessionHooks;
use crate::models::SessionModel;
use crate::modes;
use crate::prompts::Prompts;
use crate::record::Recorder;
use crate::rewind::Rewinder;
use crate::told;

/// The controls of one session.
pub(crate) struct Control {
    pub(crate) policy: SessionPolicy,
    pub(crate) model: SessionModel,
    pub(crate) protocol: Arc<AdkAgentProtocol>,
    pub(crate) background: Arc<BackgroundProcesses>,
    pub(crate) hooks: Arc<SessionHooks>,
    pub(crate) servers: Arc<McpServers>,
    pub(crate) sessions: Arc<InMemorySessionService>,
    pub(crate) key: SessionKey,
    /// Large output of this session, for as long as it lives or its record does.
    pub(crate) outputs: Option<PathBuf>,
    pub(crate) prompts: Arc<Prompts>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) rewinder: Option<Arc<Rewinder>>,
}

#[async_trait]
impl SessionControl for Control {
    fn approval_mode(&self) -> ApprovalMode {
        modes::from_tools(self.policy.mode())
    }

    fn approval_modes(&self) -> Vec<ApprovalMode> {
        let offered = [ApprovalMode::Default, ApprovalMode::AutoEdit, ApprovalMode::Yolo, ApprovalMode::Plan];
        offered.into_iter().filter(|mode| self.policy.may_enter(modes::to_tools(*mode)).is_ok()).collect()
    }

    fn set_approval_mode(&self, mode: ApprovalMode) -> Result<(), SetModeError> {
        let change = self.policy.set_mode(modes::to_tools(mode)).map_err(|refused| match refused {
            ModeRefused::Untrusted => SetModeError::Untrusted(mode),
            ModeRefused::YoloDisabled | ModeRefused::PlanDisabled => SetModeError::Unavailable(mode),
        })?;
        if change.is_one() {
            told::mode_switched(&self.key.session_id, change);
        }
        self.model.mode_changed(change);
        Ok(())
    }

    fn model(&self) -> String {
        self.model.llm.model()
    }

    fn commands(&self) -> Vec<CommandInfo> {
        self.prompts.commands()
    }

    fn context_window(&self) -> Option<u64> {
        let llm = self.model.steered.as_ref()?;
        let catalog = &llm.options().catalog;
        Some(catalog.token_limit(&catalog.resolve(&self.model.llm.model())))
    }

    fn config_options(&self) -> Vec<ConfigOption> {
        config::options(self, &self.model)
    }

    fn set_config_option(&self, id: &str, value: &str) -> Result<(), SetConfigError> {
        config::set(self, &self.model, id, value)
    }

    async fn compress(&self) -> CompressOutcome {
        self.protocol.compress().await
    }

    fn steer(&self, text: &str) -> SteerOutcome {
        self.protocol.steer(text)
    }

    async fn rewind_points(&self) -> Result<Vec<RewindPoint>, String> {
        self.protocol.rewind_points().await
    }

    async fn rewind(&self, request: RewindRequest) -> RewindOutcome {
        self.protocol.rewind(request).await
    }

    async fn branch(&self, at: Option<&str>) -> BranchOutcome {
        self.protocol.branch(at).await
    }

    async fn close(&self) {
        self.protocol.close().await;
        self.hooks.close().await;
        self.background.close().await;
        self.servers.close().await;
        self.sessions.delete(&self.key);
        if let Some(keeper) = self.rewinder.as_ref().and_then(|rewinder| rewinder.keeper.as_ref()) {
            keeper.close().await;
        }
        let recorded = match &self.recorder {
            Some(recorder) => recorder.close().await,
            None => false,
        };
        // What was masked or cut points into it, and comes back with the record.
        if let Some(folder) = self.outputs.clone().filter(|_| !recorded) {
            // Most sessions never made one; whatever else goes wrong leaves files behind and harms nobody.
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
        }
    }
}
