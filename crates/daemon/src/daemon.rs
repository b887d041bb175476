//! One daemon from its start to its end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use convoke_bridge::Bridge;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::agents::AgentsOptions;
use crate::audit_log::{AuditWriter, audit_log};
use crate::auth::{Auth, remove_token_file, write_token_file};
use crate::boot::{self, BootError, bind_ip, is_loopback_bind, validate};
use crate::driver::Driver;
use crate::facts::Facts;
use crate::metrics::{Metrics, Tally};
use crate::options::{DaemonOptions, PortOption, TokenOption};
use crate::origin::{AllowedOrigin, Wall};
use crate::server;
use crate::service::Service;

/// A daemon that listens but does not answer yet: callers that connect now wait for [`Daemon::run`].
pub struct Daemon {
    listener: TcpListener,
    address: SocketAddr,
    service: Arc<Service>,
    driver: Driver,
    audit: Option<AuditWriter>,
    notices: Vec<String>,
    hostname: String,
    generated: bool,
    token_file: Option<std::path::PathBuf>,
}

/// How a daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// In good order: every agent ended by itself.
    Clean,
    /// An agent had to be killed, or the daemon was told to end at once.
    Forced,
}

impl Daemon {
    /// Checks the options, listens, and makes everything that needs no agent.
    ///
    /// The usual port moves on to the next free one where it is taken; [`Daemon::notices`] tells. A given port does not.
    pub async fn bind(options: DaemonOptions) -> Result<Self, BootError> {
        validate(&options)?;
        let mut notices = Vec::new();
        let listener = listen(&options, &mut notices).await?;
        let address =
            listener.local_addr().map_err(|source| BootError::Bind { address: options.hostname.clone(), source })?;
        let auth = Auth::new(&options.token)?;
        if let (Some(path), Some(token)) = (&options.token_file, auth.token()) {
            write_token_file(path, token)?;
        }
        let loopback = is_loopback_bind(&options.hostname);
        let allowed = options.allow_origins.iter().filter_map(|pattern| AllowedOrigin::parse(pattern).ok()).collect();
        let has_token = auth.token().is_some();
        let wall = Wall::new(address.port(), loopback, has_token, allowed);
        let facts = Arc::new(Facts::new(&options, has_token, loopback, wall.mode()));
        let (audit, audit_writer) = audit_log(options.audit_file);
        let generated = matches!(options.token, TokenOption::Generate);
        let token_file = options.token_file.filter(|_| has_token);
        let agents = AgentsOptions {
            source: options.agent,
            spawner: options.spawner,
            workspace: options.workspace,
            limits: options.limits,
            approval_mode: options.approval_mode,
            version: options.version,
        };
        let metrics = Arc::new(Metrics::new(&facts.version));
        let tally = Tally::new(Arc::clone(&metrics));
        let (driver, handle) = Driver::new(Bridge::new(options.bridge), agents, audit, tally);
        let health_open = loopback && !options.require_auth;
        let service = Arc::new(Service { wall, auth, health_open, handle, facts, metrics });
        let hostname = options.hostname;
        Ok(Self { listener, address, service, driver, audit: audit_writer, notices, hostname, generated, token_file })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        match bind_ip(&self.hostname) {
            Some(IpAddr::V6(v6)) => format!("http://[{v6}]:{}", self.address.port()),
            Some(IpAddr::V4(_)) | None => format!("http://{}:{}", self.hostname, self.address.port()),
        }
    }

    /// The one line for stdout.
    #[must_use]
    pub fn ready_line(&self) -> String {
        let workspace = &self.service.facts.workspace;
        format!("convoke serve listening on {} (mode=http-bridge, workspace={workspace})", self.url())
    }

    /// The bearer token; `None` if callers need none.
    #[must_use]
    pub fn token(&self) -> Option<&SecretString> {
        self.service.auth.token()
    }

    /// The token if it was made at this start, and nobody knows it yet.
    #[must_use]
    pub fn generated_token(&self) -> Option<&SecretString> {
        self.token().filter(|_| self.generated)
    }

    /// Lines for the operator's stderr, such as `port 4170 is in use, trying 4171...`.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Answers, until `shutdown` asks for a good end or `kill` for an immediate one.
    ///
    /// A good end: the port refuses at once, sessions and pending requests are resolved, streams end, agents are asked
    /// to leave and get [`crate::DaemonLimits::shutdown`]. Dropping the future ends everything at once, too.
    pub async fn run(self, shutdown: CancellationToken, kill: CancellationToken) -> ExitOutcome {
        let Self { listener, service, driver, audit, token_file, .. } = self;
        // A child, so that an end of our own accord stays ours.
        let stop = shutdown.child_token();
        let token = service.auth.token().cloned();
        let mut helpers = JoinSet::new();
        if let Some(writer) = audit {
            helpers.spawn(writer.run());
        }
        let mut server = JoinSet::new();
        server.spawn(server::serve(listener, service, stop.clone()));
        let mut driving = JoinSet::new();
        driving.spawn(driver.run(stop.clone()));
        let end = async {
            let clean = matches!(driving.join_next().await, Some(Ok(true)));
            // A driver that panicked leaves a server without purpose.
            stop.cancel();
            while server.join_next().await.is_some() {}
            while helpers.join_next().await.is_some() {}
            if clean { ExitOutcome::Clean } else { ExitOutcome::Forced }
        };
        let outcome = tokio::select! {
            biased;
            () = kill.cancelled() => ExitOutcome::Forced,
            outcome = end => outcome,
        };
        if let (Some(path), Some(token)) = (token_file, token) {
            remove_token_file(&path, &token);
        }
        outcome
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn listen(options: &DaemonOptions, notices: &mut Vec<String>) -> Result<TcpListener, BootError> {
    let ip = resolve(&options.hostname).await?;
    let mut port = match options.port {
        PortOption::Given(port) => port,
        PortOption::Default => PortOption::USUAL,
    };
    loop {
        let address = SocketAddr::new(ip, port);
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => {
                let taken = error.kind() == io::ErrorKind::AddrInUse;
                let next = port.checked_add(1).filter(|_| taken && options.port == PortOption::Default);
                let Some(next) = next else {
                    return Err(BootError::Bind { address: address.to_string(), source: error });
                };
                notices.push(format!("port {port} is in use, trying {next}..."));
                port = next;
            }
        }
    }
}

async fn resolve(hostname: &str) -> Result<IpAddr, BootError> {
    if let Some(ip) = bind_ip(hostname) {
        return Ok(ip);
    }
    let unknown = |source| BootError::UnknownHostname { hostname: hostname.to_owned(), source };
    let mut addresses = tokio::net::lookup_host((hostname, 0)).await.map_err(unknown)?.collect::<Vec<_>>();
    // `localhost` is both; clients try 127.0.0.1 more often.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let none = || unknown(io::Error::new(io::ErrorKind::NotFound, "no address"));
    let ip = addresses.first().map(SocketAddr::ip).ok_or_else(none)?;
    if boot::is_loopback_bind(hostname) && !crate::peer::is_loopback(ip) {
        // A name that the guards below take for this machine must be it.
        return Err(unknown(io::Error::other("does not lead to this machine")));
    }
    Ok(ip)
}
