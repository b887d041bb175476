//! Which bounds did the operator set? Flags and settings over the defaults of bridge and daemon.

use std::time::Duration;

use anyhow::Context;
use convoke_bridge::BridgeOptions;
use convoke_daemon::{
    DaemonLimits, apply_policy, parse_max_sessions, parse_max_subscribers, parse_permission_timeout, parse_ring_size,
};

use crate::args::ServeArgs;
use crate::failure::complain;
use crate::settings::Settings;

/// How the bridge decides, and its bounds.
pub(super) fn bridge(args: &ServeArgs, settings: &Settings) -> anyhow::Result<BridgeOptions> {
    let mut bridge = BridgeOptions::default();
    if let Some(warning) = apply_policy(&mut bridge, settings.get("policy"))? {
        complain(warning);
    }
    if let Some(text) = &args.permission_response_timeout_ms {
        bridge.permission_timeout = parse_permission_timeout(text)?;
    } else if let Some(value) = settings.get("policy.permissionResponseTimeoutMs") {
        bridge.permission_timeout = parse_permission_timeout(&value.to_string())?;
    }
    if let Some(text) = &args.max_sessions {
        bridge.limits.sessions_per_workspace = parse_max_sessions(text)?;
    }
    if let Some(text) = &args.event_ring_size {
        bridge.limits.ring_frames = parse_ring_size(text)?;
    }
    if let Some(text) = &args.max_subscribers_per_session {
        bridge.limits.subscribers = parse_max_subscribers(text)?;
    }
    if let Some(number) = whole("--max-pending-prompts-per-session", &args.max_pending_prompts_per_session)? {
        bridge.limits.pending_prompts = number;
    }
    Ok(bridge)
}

/// The daemon's own bounds.
pub(super) fn daemon(args: &ServeArgs) -> anyhow::Result<DaemonLimits> {
    let mut limits = DaemonLimits::default();
    if let Some(number) = whole("--max-connections", &args.max_connections)? {
        limits.connections = number;
    }
    if let Some(number) = whole("--initialize-timeout-ms", &args.initialize_timeout_ms)? {
        limits.initialize_timeout = Duration::from_millis(u64::try_from(number)?);
    }
    Ok(limits)
}

fn whole(flag: &str, text: &Option<String>) -> anyhow::Result<Option<usize>> {
    let Some(text) = text else { return Ok(None) };
    let number = text.trim().parse().with_context(|| format!("Invalid {flag}: {text}. Must be a number >= 0"))?;
    Ok(Some(number))
}
