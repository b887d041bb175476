//! What is the daemon told? Every flag, variable and setting comes together here.

use std::path::{Path, PathBuf};

use convoke_daemon::{BootError, DaemonOptions, Isolation, PortOption, TlsFiles};
use convoke_protocol::ApprovalMode;

use super::{agent, limits, token};
use crate::agent_host;
use crate::args::{IsolationArg, ServeArgs};
use crate::startup::Startup;
use crate::trust::Trust;

/// The daemon's options; every value is checked, and the first bad one is the error.
pub(super) fn options(args: &ServeArgs, startup: &Startup) -> anyhow::Result<DaemonOptions> {
    let bridge = limits::bridge(&args.limits, &startup.settings)?;
    let limits = limits::daemon(&args.limits)?;
    let rate = limits::rate(&args.limits)?;
    let token = token::token(args, &startup.environment)?;
    let socket = args.listen.as_deref().map(socket).transpose()?;
    let workspace = workspace(args.workspace.as_deref(), startup);
    let (agent, agents) = agent::agents(args, startup)?;
    let folder = startup.home.as_ref().map(|home| home.folder());
    Ok(DaemonOptions {
        tcp: socket.is_none() || args.hostname.is_some() || args.port.is_some(),
        hostname: args.hostname.clone().unwrap_or_else(|| "127.0.0.1".to_owned()),
        port: args.port.map_or(PortOption::Default, PortOption::Given),
        socket,
        tls: tls(args),
        rate,
        page: !args.no_web,
        workspace,
        token,
        require_auth: args.require_auth,
        allow_origins: args.allow_origin.clone(),
        token_file: folder.as_ref().map(|folder| folder.join("run").join("serve-token")),
        audit_file: folder.as_ref().map(|folder| folder.join("audit").join("permissions.jsonl")),
        audit_sink: None,
        sessions_folder: folder.as_ref().map(|folder| folder.join("sessions")),
        agent,
        agents,
        isolation: match args.isolation {
            IsolationArg::Workspace => Isolation::Workspace,
            IsolationArg::Session => Isolation::Session,
        },
        spawner: agent_host::spawner(),
        bridge,
        limits,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        approval_mode: args.our_agent.mode().unwrap_or(ApprovalMode::Default),
        trusted: startup.trust == Trust::Trusted,
    })
}

/// A given folder is checked as it was written; the current one is resolved.
fn workspace(given: Option<&Path>, startup: &Startup) -> PathBuf {
    match given {
        Some(path) if !path.is_absolute() || !path.is_dir() => path.to_owned(),
        Some(_) | None => startup.workspace.clone(),
    }
}

/// `unix:PATH`; a relative path is one of the current folder.
fn socket(listen: &str) -> anyhow::Result<PathBuf> {
    let path = listen.strip_prefix("unix:").filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| BootError::InvalidListen(listen.to_owned()))?;
    Ok(std::path::absolute(path)?)
}

fn tls(args: &ServeArgs) -> Option<TlsFiles> {
    let (certificate, key) = (args.tls_cert.clone()?, args.tls_key.clone()?);
    Some(TlsFiles { certificate, key })
}
