//! What does a running daemon know about itself? Fixed at its start, shown by `/capabilities` and `/daemon/status`.

use bytes::Bytes;
use convoke_bridge::BridgeOptions;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::options::{DaemonLimits, DaemonOptions, RateOptions};
use crate::roster::Roster;

/// What works, by its tag on the wire. A tag is here only if its routes answer as specified.
const FEATURES: &[&str] = &[
    "health",
    "daemon_status",
    "capabilities",
    "session_create",
    "session_id_override",
    "session_scope_override",
    "session_load",
    "session_resume",
    "unstable_session_resume",
    "session_list",
    "session_source_metadata",
    "session_prompt",
    "session_turn_status",
    "session_cancel",
    "session_events",
    "slow_client_warning",
    "typed_event_schema",
    "client_identity",
    "client_heartbeat",
    "session_permission_vote",
    "permission_vote",
    "session_status",
    "session_close",
    "session_metadata",
    "session_set_model",
    "session_context",
    "session_supported_commands",
    "session_approval_mode_control",
    "session_rewind",
    "permission_mediation",
    "non_blocking_prompt",
];

/// A daemon's own facts.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The workspace as the wire names it.
    pub(crate) workspace: String,
    /// Its short id.
    pub(crate) workspace_id: String,
    /// The names of its agents.
    pub(crate) agents: Vec<String>,
    /// The one that runs sessions that ask for none.
    pub(crate) default_agent: String,
    pub(crate) version: String,
    pub(crate) bridge: BridgeOptions,
    pub(crate) limits: DaemonLimits,
    pub(crate) rate: Option<RateOptions>,
    pub(crate) has_token: bool,
    pub(crate) require_auth: bool,
    pub(crate) loopback_bind: bool,
    pub(crate) origin_mode: &'static str,
    /// The body of `/capabilities`.
    pub(crate) capabilities: Bytes,
    /// Names this run.
    pub(crate) run_id: String,
}

impl Facts {
    pub(crate) fn new(
        options: &DaemonOptions,
        has_token: bool,
        loopback_bind: bool,
        origin_mode: &'static str,
    ) -> Self {
        let workspace = options.workspace.display().to_string();
        let workspace_id = workspace_id(&workspace);
        let roster = Roster::new(options);
        let mut facts = Self {
            workspace,
            workspace_id,
            agents: roster.names().map(str::to_owned).collect(),
            default_agent: roster.default_name().to_owned(),
            version: options.version.clone(),
            bridge: options.bridge.clone(),
            limits: options.limits.clone(),
            rate: options.rate,
            has_token,
            require_auth: options.require_auth,
            loopback_bind,
            origin_mode,
            capabilities: Bytes::new(),
            run_id: uuid::Uuid::new_v4().simple().to_string(),
        };
        facts.capabilities = Bytes::from(facts.envelope(options.trusted).to_string());
        facts
    }

    /// The tags of this daemon.
    pub(crate) fn features(&self) -> Vec<&'static str> {
        let mut features = FEATURES.to_vec();
        let conditional = [
            ("require_auth", self.require_auth),
            ("allow_origin", self.origin_mode != "none"),
            ("rate_limit", self.rate.is_some()),
            ("prompt_absolute_deadline", self.bridge.prompt_deadline.is_some()),
            ("writer_idle_timeout", self.limits.writer_idle.is_some()),
        ];
        features.extend(conditional.into_iter().filter(|(_, on)| *on).map(|(tag, _)| tag));
        features
    }

    /// Source: daemon specification, §c.
    fn envelope(&self, trusted: bool) -> Value {
        let limits = &self.bridge.limits;
        json!({
            "v": 1,
            "protocolVersions": {"current": "v1", "supported": ["v1"]},
            "qwenCodeVersion": self.version,
            "mode": "http-bridge",
            "features": self.features(),
            "modelServices": [],
            "agents": self.agents,
            "defaultAgent": self.default_agent,
            "workspaceCwd": self.workspace,
            "transports": ["rest"],
            "policy": {"permission": self.bridge.policy.name(), "cancel": self.bridge.cancel.name()},
            "limits": {
                "maxRegisteredWorkspaces": 1,
                "maxSessionsPerWorkspace": limits.sessions_per_workspace,
                "maxTotalSessions": limits.sessions_total,
                "maxPendingPromptsPerSession": limits.pending_prompts,
                "sessionRestoreTimeoutMs": millis(self.limits.restore_timeout),
            },
            "workspaces": [{
                "id": self.workspace_id,
                "cwd": self.workspace,
                "primary": true,
                // To the peer's page, `false` means that no session may be opened here; ours may always be.
                "trusted": true,
                "settingsTrusted": trusted,
                "workflowsEnabled": false,
                "removable": false,
            }],
        })
    }
}

/// Sixteen hex digits of the path's digest.
fn workspace_id(workspace: &str) -> String {
    Sha256::digest(workspace.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A duration as the wire's limits show it.
pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
