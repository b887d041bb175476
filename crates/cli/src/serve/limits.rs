//! Which bounds did the operator set? Flags and settings over the defaults of bridge and daemon.

use convoke_bridge::BridgeOptions;
use convoke_daemon::{BootError, DaemonLimits, NumberRule, RateOptions, apply_policy};

use crate::args::LimitArgs;
use crate::failure::complain;
use crate::settings::Settings;

/// How the bridge decides, and its bounds.
pub(super) fn bridge(args: &LimitArgs, settings: &Settings) -> Result<BridgeOptions, BootError> {
    let mut bridge = BridgeOptions::default();
    if let Some(warning) = apply_policy(&mut bridge, settings.get("policy"))? {
        complain(warning);
    }
    // The flag lies over the setting; what lies under it was still checked.
    if let Some(timeout) =
        given(&args.permission_response_timeout_ms, |text| NumberRule::PERMISSION_TIMEOUT.read_millis_or_off(text))?
    {
        bridge.permission_timeout = timeout;
    }
    if let Some(timeout) =
        given(&args.session_idle_timeout_ms, |text| NumberRule::SESSION_IDLE.read_millis_or_off(text))?
    {
        bridge.idle_timeout = timeout;
    }
    match given(&args.session_reap_interval_ms, |text| NumberRule::REAP_INTERVAL.read_millis_or_off(text))? {
        None => {}
        Some(Some(interval)) => bridge.reap_interval = interval,
        // Nobody looks, so nothing is found.
        Some(None) => bridge.idle_timeout = None,
    }
    if let Some(grace) =
        given(&args.session_prompt_settled_close_grace_ms, |text| NumberRule::SETTLED_GRACE.read_millis(text))?
    {
        bridge.settled_grace = grace;
    }
    bridge.prompt_deadline = given(&args.prompt_deadline_ms, |text| NumberRule::PROMPT_DEADLINE.read_millis(text))?;
    let limits = &mut bridge.limits;
    for (text, rule, limit) in [
        (&args.max_sessions, NumberRule::MAX_SESSIONS, &mut limits.sessions_per_workspace),
        (&args.max_total_sessions, NumberRule::MAX_TOTAL_SESSIONS, &mut limits.sessions_total),
        (&args.max_pending_prompts_per_session, NumberRule::MAX_PENDING_PROMPTS, &mut limits.pending_prompts),
        (&args.max_subscribers_per_session, NumberRule::MAX_SUBSCRIBERS, &mut limits.subscribers),
        (&args.event_ring_size, NumberRule::EVENT_RING_SIZE, &mut limits.ring_frames),
    ] {
        if let Some(number) = given(text, |text| rule.read(text))? {
            *limit = number;
        }
    }
    Ok(bridge)
}

/// The daemon's own bounds.
pub(super) fn daemon(args: &LimitArgs) -> Result<DaemonLimits, BootError> {
    let mut limits = DaemonLimits::default();
    if let Some(number) = given(&args.max_connections, |text| NumberRule::MAX_CONNECTIONS.read(text))? {
        limits.connections = number;
    }
    for (text, rule, limit) in [
        (&args.compacted_replay_max_bytes, NumberRule::REPLAY_BYTES, &mut limits.replay_bytes),
        (&args.max_journal_events, NumberRule::JOURNAL_EVENTS, &mut limits.journal_events),
        (&args.max_journal_bytes, NumberRule::JOURNAL_BYTES, &mut limits.journal_bytes),
    ] {
        if let Some(number) = given(text, |text| rule.read(text))? {
            *limit = number;
        }
    }
    for (text, rule, limit) in [
        (&args.initialize_timeout_ms, NumberRule::INITIALIZE_TIMEOUT, &mut limits.initialize_timeout),
        (&args.session_restore_timeout_ms, NumberRule::RESTORE_TIMEOUT, &mut limits.restore_timeout),
    ] {
        if let Some(duration) = given(text, |text| rule.read_millis(text))? {
            *limit = duration;
        }
    }
    limits.writer_idle = given(&args.writer_idle_timeout_ms, |text| NumberRule::WRITER_IDLE.read_millis(text))?;
    Ok(limits)
}

/// How often a peer may call. The numbers are checked whether they are used or not.
pub(super) fn rate(args: &LimitArgs) -> Result<Option<RateOptions>, BootError> {
    let mut rate = RateOptions::default();
    for (text, rule, number) in [
        (&args.rate_limit_prompt, NumberRule::RATE_PROMPT, &mut rate.prompt),
        (&args.rate_limit_mutation, NumberRule::RATE_MUTATION, &mut rate.mutation),
        (&args.rate_limit_read, NumberRule::RATE_READ, &mut rate.read),
    ] {
        if let Some(given) = given(text, |text| rule.read(text))? {
            *number = u32::try_from(given).unwrap_or(u32::MAX);
        }
    }
    if let Some(window) = given(&args.rate_limit_window_ms, |text| NumberRule::RATE_WINDOW.read_millis(text))? {
        rate.window = window;
    }
    Ok(args.rate_limit.then_some(rate))
}

/// The value of a flag that was given.
fn given<T>(text: &Option<String>, read: impl FnOnce(&str) -> Result<T, BootError>) -> Result<Option<T>, BootError> {
    text.as_deref().map(read).transpose()
}
