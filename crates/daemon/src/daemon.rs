//! One daemon from its start to its end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use convoke_bridge::Bridge;
use secrecy::SecretString;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::acp_http::{AcpCrew, AcpDesk};
use crate::agents::AgentsOptions;
use crate::audit_log::AuditLog;
use crate::auth::{Auth, remove_token_file, write_token_file};
use crate::boot::{BootError, bind_ip, is_local, validate};
use crate::driver::Driver;
use crate::facts::Facts;
use crate::line_file::{LineWriter, line_file};
use crate::listener::{Listeners, SocketFile, Tls};
use crate::metrics::{Metrics, Tally};
use crate::options::{DaemonOptions, TokenOption};
use crate::origin::{AllowedOrigin, Wall};
use crate::roster::Roster;
use crate::server;
use crate::service::Service;
use crate::session_store::{self, SessionStore};
use crate::toll::Toll;

/// A daemon that listens but does not answer yet: callers that connect now wait for [`Daemon::run`].
pub struct Daemon {
    listeners: Listeners,
    tls: Option<Tls>,
    address: Option<SocketAddr>,
    socket: Option<SocketFile>,
    service: Arc<Service>,
    driver: Driver,
    /// Of the audit and of the list of sessions.
    writers: Vec<LineWriter>,
    acp_crew: AcpCrew,
    notices: Vec<String>,
    hostname: String,
    generated: bool,
    token_file: Option<PathBuf>,
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
        let tls = Tls::load(&options)?;
        let mut listeners = Listeners::bind(&options, &mut notices).await?;
        let address =
            listeners.address().map_err(|source| BootError::Bind { address: options.hostname.clone(), source })?;
        let socket = listeners.take_socket_file();
        if let (Some(socket), Some(_)) = (&socket, address) {
            notices.push(format!("listening on unix:{} as well", socket.path().display()));
        }
        let auth = Auth::new(&options.token)?;
        if let (Some(path), Some(token)) = (&options.token_file, auth.token()) {
            write_token_file(path, token)?;
        }
        let loopback = is_local(&options);
        let allowed = options.allow_origins.iter().filter_map(|pattern| AllowedOrigin::parse(pattern).ok()).collect();
        let has_token = auth.token().is_some();
        let wall = Wall::new(address.map(|address| address.port()), loopback, has_token, allowed);
        let roster = Roster::new(&options);
        let facts = Arc::new(Facts::new(&options, has_token, loopback, wall.mode()));
        let (audit, audit_writer) = line_file(options.audit_file.clone());
        if let (Some(writer), Some(path)) = (&audit_writer, &options.audit_file)
            && let Err(error) = writer.check().await
        {
            // Not a reason to refuse the start: nothing is decided wrongly, and nothing is lost.
            notices.push(format!(
                "warning: the audit file {} can't be written ({error}); decisions go to this log instead",
                path.display()
            ));
        }
        let sessions_file = options.sessions_folder.map(|folder| folder.join(format!("{}.jsonl", facts.workspace_id)));
        let stored = sessions_file.as_deref().map(session_store::read).unwrap_or_default();
        let (sessions, sessions_writer) = line_file(sessions_file);
        let writers = [audit_writer, sessions_writer].into_iter().flatten().collect();
        let generated = matches!(options.token, TokenOption::Generate);
        let token_file = options.token_file.filter(|_| has_token);
        let agents = AgentsOptions {
            roster,
            isolation: options.isolation,
            spawner: options.spawner,
            workspace: options.workspace,
            limits: options.limits,
            approval_mode: options.approval_mode,
            version: options.version,
        };
        let metrics = Arc::new(Metrics::new(&facts.version));
        let tally = Tally::new(Arc::clone(&metrics));
        let (driver, handle) = Driver::new(
            Bridge::new(options.bridge),
            agents,
            SessionStore::new(&stored, sessions),
            AuditLog::new(audit, options.audit_sink),
            tally,
        );
        let health_open = loopback && !options.require_auth;
        let rate = options.rate.map(|rate| Arc::new(Toll::new(rate)));
        let (acp, acp_crew) = AcpDesk::new(handle.clone(), Arc::clone(&facts), rate.clone());
        let service =
            Arc::new(Service { wall, auth, health_open, page: options.page, handle, facts, metrics, rate, acp });
        Ok(Self {
            listeners,
            tls,
            address,
            socket,
            service,
            driver,
            writers,
            acp_crew,
            notices,
            hostname: options.hostname,
            generated,
            token_file,
        })
    }

    /// The TCP address; `None` if it listens on a Unix-domain socket only.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it listens: a URL, or `unix:PATH`.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match (self.address, &self.socket) {
            (Some(address), _) => match bind_ip(&self.hostname) {
                Some(IpAddr::V6(v6)) => format!("{scheme}://[{v6}]:{}", address.port()),
                Some(IpAddr::V4(_)) | None => format!("{scheme}://{}:{}", self.hostname, address.port()),
            },
            (None, Some(socket)) => format!("unix:{}", socket.path().display()),
            (None, None) => String::new(),
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
        let Self { listeners, tls, socket, service, driver, acp_crew, writers, token_file, .. } = self;
        // A child, so that an end of our own accord stays ours.
        let stop = shutdown.child_token();
        let token = service.auth.token().cloned();
        let mut helpers = JoinSet::new();
        for writer in writers {
            helpers.spawn(writer.run());
        }
        helpers.spawn(acp_crew.run(stop.clone()));
        let mut server = JoinSet::new();
        server.spawn(server::serve(listeners, tls, service, stop.clone()));
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
        // Killed, the driver is gone at once; what it has decided is still written, if the disk takes it.
        let last_words = async {
            driving.shutdown().await;
            while helpers.join_next().await.is_some() {}
        };
        let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
        drop(socket);
        if let (Some(path), Some(token)) = (token_file, token) {
            remove_token_file(&path, &token);
        }
        outcome
    }
}

/// How long a killed daemon may take to write what it has decided: far more than a disk needs that takes anything at all.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_secs(1);

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("address", &self.address).finish_non_exhaustive()
    }
}
