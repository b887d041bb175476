//! May a daemon start with these options? Every refusal is a named variant whose text tells what to do.
//!
//! `cli` prints `convoke serve: ` before the text and exits with 1. The flags' numbers are read here as well, so that
//! `--max-sessions abc` is refused in the same words as `-1`. Source: daemon specification, §a, "Boot failures".

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use convoke_bridge::BridgeOptions;
use convoke_protocol::daemon::capability::PermissionPolicy;
use serde_json::Value;

use crate::options::{AgentSource, DaemonOptions, TokenOption};
use crate::origin::{self, AllowedOrigin};

#[cfg(test)]
mod tests;

/// Why a daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// `policy` in the settings is not an object.
    #[error("invalid policy: must be an object with permissionStrategy and consensusQuorum, not {0}")]
    InvalidPolicy(String),
    /// `policy.permissionStrategy` names no policy.
    #[error(
        "invalid policy.permissionStrategy \"{0}\"; must be one of first-responder, designated, consensus, local-only"
    )]
    InvalidStrategy(String),
    /// `policy.consensusQuorum` is not a positive integer.
    #[error("invalid policy.consensusQuorum {0}; must be a positive integer")]
    InvalidQuorum(String),
    /// `--require-auth` with nothing to authenticate by.
    #[error(
        "Refusing to start with --require-auth set but no bearer token configured. Set QWEN_SERVER_TOKEN or pass \
         --token, or omit --require-auth to keep the loopback developer default."
    )]
    RequireAuthWithoutToken,
    /// `--allow-origin '*'` with nothing to authenticate by.
    #[error(
        "Refusing to start with --allow-origin '*' but no bearer token configured. '*' admits any cross-origin browser \
         to the API; without a token of yours, any local page can drive the daemon. Set QWEN_SERVER_TOKEN or pass \
         --token, or list specific origins instead of '*'."
    )]
    AnyOriginWithoutToken,
    /// `--allow-origin` of another machine with nothing to authenticate by.
    #[error(
        "Refusing to start with --allow-origin \"{0}\" but no bearer token configured. Non-loopback HTTP(S) browser \
         origins can drive the full operator API, including code execution as the daemon user. Set QWEN_SERVER_TOKEN \
         or pass --token, or use a loopback origin."
    )]
    RemoteOriginWithoutToken(String),
    /// `--allow-origin` is neither `*` nor an origin in its canonical form.
    #[error(
        "Invalid --allow-origin pattern \"{pattern}\": {problem}. Expected `*` or a URL origin of the form \
         `<scheme>://<host>[:<port>]` (no trailing slash, no path, no userinfo, no query)."
    )]
    InvalidOrigin {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// `--no-auth` where others could connect.
    #[error(
        "Refusing to start with --no-auth on \"{0}\": everyone who reaches that address could drive the agent. Bind a \
         loopback address, or drop --no-auth."
    )]
    NoAuthBeyondLoopback(String),
    /// `--hostname` with a port in it.
    #[error(
        "Invalid --hostname \"{hostname}\": looks like a \"host:port\" combination. Use --port for the port, e.g. \
         \"--hostname {host} --port {port}\"."
    )]
    HostnameWithPort {
        /// As given.
        hostname: String,
        /// Its first part.
        host: String,
        /// Its second part.
        port: String,
    },
    /// `--hostname ''`.
    #[error(
        "Invalid --hostname: empty value binds every interface. Pass an explicit address (e.g. --hostname 0.0.0.0) or \
         omit the flag."
    )]
    EmptyHostname,
    /// `--hostname` is not an address and not `localhost`, and does not resolve.
    #[error("Invalid --hostname \"{hostname}\": does not resolve to an address")]
    UnknownHostname {
        /// As given.
        hostname: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// `--workspace` is relative.
    #[error("Invalid --workspace \"{}\": must be an absolute path.", .0.display())]
    WorkspaceNotAbsolute(PathBuf),
    /// `--workspace` does not exist.
    #[error("Invalid --workspace \"{}\": directory does not exist.", .0.display())]
    WorkspaceMissing(PathBuf),
    /// `--workspace` is not a folder.
    #[error("Invalid --workspace \"{}\": exists but is not a directory.", .0.display())]
    WorkspaceNotFolder(PathBuf),
    /// `--workspace` can't be looked at.
    #[error("Invalid --workspace \"{}\": can't be read.", path.display())]
    WorkspaceUnreadable {
        /// As given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `--permission-response-timeout-ms`.
    #[error(
        "Invalid permissionResponseTimeoutMs: {0}. Must be a non-negative integer (milliseconds, 0 = disabled / wait \
         forever)."
    )]
    InvalidPermissionTimeout(String),
    /// `--event-ring-size`.
    #[error("Invalid eventRingSize: {0}. Must be a positive integer in [1, 1000000].")]
    InvalidRingSize(String),
    /// `--max-subscribers-per-session`.
    #[error("Invalid maxSubscribersPerSession: {0}. Must be a positive integer in [1, 1024].")]
    InvalidMaxSubscribers(String),
    /// `--max-sessions`.
    #[error("Invalid maxSessions: {0}. Must be a number >= 0 (0 / Infinity = unlimited).")]
    InvalidMaxSessions(String),
    /// `--prompt-deadline-ms`.
    #[error("Invalid promptDeadlineMs: {0}. Must be a positive integer (milliseconds).")]
    InvalidPromptDeadline(String),
    /// `--writer-idle-timeout-ms`.
    #[error("Invalid writerIdleTimeoutMs: {0}. Must be a positive integer (milliseconds).")]
    InvalidWriterIdle(String),
    /// No agent to host.
    #[error("no agent command is configured")]
    NoAgent,
    /// The given port is taken, or the address is not ours.
    #[error("can't listen on {address}: {source}")]
    Bind {
        /// Where.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No random numbers for the token.
    #[error("can't make a token: {0}")]
    Token(String),
    /// The token file can't be written.
    #[error("can't write the token file \"{}\"", path.display())]
    TokenFile {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Checks everything that can be checked without opening a socket.
pub fn validate(options: &DaemonOptions) -> Result<(), BootError> {
    check_hostname(&options.hostname)?;
    check_workspace(&options.workspace)?;
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
    if matches!(options.token, TokenOption::NoAuth) && !is_loopback_bind(&options.hostname) {
        return Err(BootError::NoAuthBeyondLoopback(options.hostname.clone()));
    }
    let ring = options.bridge.limits.ring_frames;
    if !RING_SIZE.contains(&ring) {
        return Err(BootError::InvalidRingSize(ring.to_string()));
    }
    let subscribers = options.bridge.limits.subscribers;
    if !SUBSCRIBERS.contains(&subscribers) {
        return Err(BootError::InvalidMaxSubscribers(subscribers.to_string()));
    }
    if options.bridge.prompt_deadline.is_some_and(|d| d.is_zero()) {
        return Err(BootError::InvalidPromptDeadline("0".to_owned()));
    }
    if options.limits.writer_idle.is_some_and(|d| d.is_zero()) {
        return Err(BootError::InvalidWriterIdle("0".to_owned()));
    }
    if options.bridge.quorum == Some(0) {
        return Err(BootError::InvalidQuorum("0".to_owned()));
    }
    if matches!(&options.agent, AgentSource::Command(command) if command.program.is_empty()) {
        return Err(BootError::NoAgent);
    }
    Ok(())
}

const RING_SIZE: std::ops::RangeInclusive<usize> = 1..=1_000_000;

/// One step of the bridge hands a frame to all of a session's subscribers, and everybody else waits for it: a thousand
/// take less than a millisecond.
const SUBSCRIBERS: std::ops::RangeInclusive<usize> = 1..=1024;

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

/// `--max-sessions`: 0 and `Infinity` are unlimited, which is 0.
pub fn parse_max_sessions(text: &str) -> Result<usize, BootError> {
    let number = number(text);
    if number == f64::INFINITY {
        return Ok(0);
    }
    whole(number.floor(), usize::MAX as f64).ok_or_else(|| BootError::InvalidMaxSessions(number.to_string()))
}

/// `--event-ring-size`, in frames.
pub fn parse_ring_size(text: &str) -> Result<usize, BootError> {
    let number = number(text);
    whole(number, *RING_SIZE.end() as f64)
        .filter(|n| RING_SIZE.contains(n))
        .ok_or_else(|| BootError::InvalidRingSize(number.to_string()))
}

/// `--max-subscribers-per-session`.
pub fn parse_max_subscribers(text: &str) -> Result<usize, BootError> {
    let number = number(text);
    whole(number, *SUBSCRIBERS.end() as f64)
        .filter(|n| SUBSCRIBERS.contains(n))
        .ok_or_else(|| BootError::InvalidMaxSubscribers(number.to_string()))
}

/// `--permission-response-timeout-ms`: 0 waits for ever.
pub fn parse_permission_timeout(text: &str) -> Result<Option<Duration>, BootError> {
    let number = number(text);
    let millis = whole(number, MAX_MILLIS).ok_or_else(|| BootError::InvalidPermissionTimeout(number.to_string()))?;
    Ok((millis > 0).then(|| Duration::from_millis(millis as u64)))
}

/// `--prompt-deadline-ms`.
pub fn parse_prompt_deadline(text: &str) -> Result<Duration, BootError> {
    positive_millis(text).map_err(BootError::InvalidPromptDeadline)
}

/// `--writer-idle-timeout-ms`.
pub fn parse_writer_idle(text: &str) -> Result<Duration, BootError> {
    positive_millis(text).map_err(BootError::InvalidWriterIdle)
}

/// Longest time that a flag may name: what a 32-bit timer of other implementations holds, 24.8 days.
const MAX_MILLIS: f64 = 2_147_483_647.0;

fn positive_millis(text: &str) -> Result<Duration, String> {
    let number = number(text);
    whole(number, MAX_MILLIS)
        .filter(|n| *n > 0)
        .map(|n| Duration::from_millis(n as u64))
        .ok_or_else(|| number.to_string())
}

/// A flag's value as a number; what is none is NaN.
fn number(text: &str) -> f64 {
    text.trim().parse().unwrap_or(f64::NAN)
}

/// A number that is whole and within 0 and `max`.
fn whole(number: f64, max: f64) -> Option<usize> {
    (number.fract() == 0.0 && (0.0..=max).contains(&number)).then_some(number as usize)
}
