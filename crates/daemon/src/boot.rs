//! May a daemon start with these options? Every refusal is a named variant whose text tells what to do.
//!
//! `cli` prints `convoke: serve: ` before the text and exits with 1. Source: daemon specification, §a, "Boot failures".

mod error;
mod numbers;

use std::io;
use std::net::IpAddr;
use std::path::Path;

use convoke_bridge::BridgeOptions;
use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::options::{AgentSource, DaemonOptions, TokenOption};
use crate::origin::{self, AllowedOrigin};

pub use error::BootError;
pub use numbers::NumberRule;

#[cfg(test)]
mod tests;

/// Checks everything that can be checked without opening a socket.
pub fn validate(options: &DaemonOptions) -> Result<(), BootError> {
    check_listeners(options)?;
    check_workspace(&options.workspace)?;
    if let TokenOption::Given(token) = &options.token
        && !token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(BootError::UnusableToken);
    }
    let given = matches!(options.token, TokenOption::Given(_));
    if options.require_auth && !given {
        return Err(BootError::RequireAuthWithoutToken);
    }
    for pattern in &options.allow_origins {
        let allowed = AllowedOrigin::parse(pattern)
            .map_err(|problem| BootError::InvalidOrigin { pattern: pattern.clone(), problem })?;
        match allowed {
            AllowedOrigin::Any if !given => return Err(BootError::AnyOriginWithoutToken),
            AllowedOrigin::Exact(origin) if !given && !origin::is_loopback(&origin) => {
                return Err(BootError::RemoteOriginWithoutToken(origin));
            }
            AllowedOrigin::Any | AllowedOrigin::Exact(_) => {}
        }
    }
    if matches!(options.token, TokenOption::NoAuth) && !is_local(options) {
        return Err(BootError::NoAuthBeyondLoopback(options.hostname.clone()));
    }
    NumberRule::EVENT_RING_SIZE.check(options.bridge.limits.ring_frames)?;
    NumberRule::MAX_SUBSCRIBERS.check(options.bridge.limits.subscribers)?;
    for (rule, duration) in [
        (NumberRule::PROMPT_DEADLINE, options.bridge.prompt_deadline),
        (NumberRule::WRITER_IDLE, options.limits.writer_idle),
    ] {
        if duration.is_some_and(|duration| duration.is_zero()) {
            return Err(rule.refuse(0.0));
        }
    }
    if let Some(rate) = &options.rate {
        for (rule, number) in [
            (NumberRule::RATE_PROMPT, rate.prompt as usize),
            (NumberRule::RATE_MUTATION, rate.mutation as usize),
            (NumberRule::RATE_READ, rate.read as usize),
            (NumberRule::RATE_WINDOW, usize::try_from(rate.window.as_millis()).unwrap_or(usize::MAX)),
        ] {
            rule.check(number)?;
        }
    }
    if options.bridge.quorum == Some(0) {
        return Err(BootError::InvalidQuorum("0".to_owned()));
    }
    if matches!(&options.agent, AgentSource::Command(command) if command.program.is_empty()) {
        return Err(BootError::NoAgent);
    }
    Ok(())
}

fn check_listeners(options: &DaemonOptions) -> Result<(), BootError> {
    if options.tcp {
        check_hostname(&options.hostname)?;
    } else if options.tls.is_some() {
        return Err(BootError::TlsWithoutTcp);
    } else if options.socket.is_none() {
        return Err(BootError::NoListener);
    }
    match &options.socket {
        Some(path) if !path.is_absolute() => Err(BootError::InvalidListen(path.display().to_string())),
        Some(_) | None => Ok(()),
    }
}

/// Whether only this machine can reach the daemon.
pub(crate) fn is_local(options: &DaemonOptions) -> bool {
    !options.tcp || is_loopback_bind(&options.hostname)
}

fn check_hostname(hostname: &str) -> Result<(), BootError> {
    if hostname.trim().is_empty() {
        return Err(BootError::EmptyHostname);
    }
    // `::1` and `[::1]` have colons of their own; everything else with one colon and digits behind it is a mix-up.
    if bind_ip(hostname).is_none()
        && let Some((host, port)) = hostname.rsplit_once(':')
    {
        return Err(BootError::HostnameWithPort {
            hostname: hostname.to_owned(),
            host: host.to_owned(),
            port: port.to_owned(),
        });
    }
    Ok(())
}

/// The address that a hostname spells out; `[v6]` counts.
pub(crate) fn bind_ip(hostname: &str) -> Option<IpAddr> {
    hostname.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hostname).parse().ok()
}

/// Whether only this machine can reach a bind: 127.0.0.0/8, `localhost`, `::1`, `[::1]`.
pub(crate) fn is_loopback_bind(hostname: &str) -> bool {
    hostname.eq_ignore_ascii_case("localhost") || bind_ip(hostname).is_some_and(|ip| ip.is_loopback())
}

fn check_workspace(path: &Path) -> Result<(), BootError> {
    if !path.is_absolute() {
        return Err(BootError::WorkspaceNotAbsolute(path.to_owned()));
    }
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(BootError::WorkspaceNotFolder(path.to_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(BootError::WorkspaceMissing(path.to_owned()))
        }
        Err(source) => Err(BootError::WorkspaceUnreadable { path: path.to_owned(), source }),
    }
}

/// Takes the policy of the settings' `policy` object into `options`, and returns a warning for the operator if a part
/// of it has no effect.
pub fn apply_policy(options: &mut BridgeOptions, policy: Option<&Value>) -> Result<Option<&'static str>, BootError> {
    let Some(policy) = policy else { return Ok(None) };
    let Value::Object(policy) = policy else { return Err(BootError::InvalidPolicy(shown(policy))) };
    if let Some(strategy) = policy.get("permissionStrategy") {
        options.policy = strategy
            .as_str()
            .and_then(PermissionPolicy::parse)
            .ok_or_else(|| BootError::InvalidStrategy(shown(strategy)))?;
    }
    if let Some(timeout) = policy.get("permissionResponseTimeoutMs") {
        // As JSON, so that a number in quotes is none.
        options.permission_timeout = NumberRule::PERMISSION_TIMEOUT.read_millis_or_off(&timeout.to_string())?;
    }
    if let Some(rule) = policy.get("cancel") {
        options.cancel =
            rule.as_str().and_then(CancelRule::parse).ok_or_else(|| BootError::InvalidCancelRule(shown(rule)))?;
    }
    let Some(quorum) = policy.get("consensusQuorum") else { return Ok(None) };
    let number = quorum.as_u64().filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
    options.quorum = Some(number.ok_or_else(|| BootError::InvalidQuorum(shown(quorum)))?);
    Ok((options.policy != PermissionPolicy::Consensus).then_some(
        "policy.consensusQuorum is set but policy.permissionStrategy is not \"consensus\"; the override will be ignored.",
    ))
}

/// A settings value as the peer's messages show it: strings without quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
