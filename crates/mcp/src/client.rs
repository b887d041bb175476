//! One connection: shaking hands, and noticing its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, ServerCapabilities, SubscriptionFilter};
use rmcp::service::{ClientInitializeError, Peer, RunningService, Subscription};
use rmcp::transport::IntoTransport;
use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::catalogue::{self, Catalogue};
use crate::handler::{CHANGES_MAX, Handler, ProgressTable};
use crate::handshake;
use crate::servers::Context;
use crate::transport::{self, Process, SseError};
use crate::{ServerConfig, TransportConfig};

/// How long a server may take from its start to its lists: installing a package on the way is common.
const CONNECT_MAX: Duration = Duration::from_mins(2);
/// How long a connection may take to end in good order.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// What speaks to a connected server. Clones speak to the same one.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) server: String,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) progress: Arc<ProgressTable>,
    /// Fires when the connection is gone.
    pub(crate) gone: CancellationToken,
    /// Fires when the server wants a login that it did not want before.
    pub(crate) refused: CancellationToken,
    pub(crate) timeout: Duration,
    pub(crate) roots: Arc<[PathBuf]>,
}

/// Who answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) protocol: String,
    pub(crate) instructions: Option<String>,
}

/// A connection that is up.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) about: About,
    pub(crate) capabilities: ServerCapabilities,
    pub(crate) changed: mpsc::Receiver<()>,
    running: RunningService<RoleClient, Handler>,
    process: Option<Process>,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct ConnectError {
    pub(crate) reason: String,
    /// Another try may help.
    pub(crate) again: bool,
    /// The server wants a token.
    pub(crate) needs_login: bool,
}

impl ConnectError {
    pub(crate) fn new(reason: impl Into<String>, again: bool) -> Self {
        Self { reason: reason.into(), again, needs_login: false }
    }
}

/// What to do about a server that wants a token.
fn wants_login_of(config: &ServerConfig) -> String {
    let written = match &config.transport {
        TransportConfig::Http(remote) | TransportConfig::Sse(remote) | TransportConfig::Detect(remote) => {
            remote.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
        }
        TransportConfig::Stdio(_) => false,
    };
    match (written, config.oauth.enabled) {
        (true, _) => "it does not take the Authorization header of its configuration".to_owned(),
        (false, false) => "it wants a login, and its configuration says oauth.enabled false".to_owned(),
        (false, true) => format!("it needs login: run `convoke mcp login {}`", config.name),
    }
}

/// Whether `error` says that the server wants a token, or another one.
pub(crate) fn wants_login(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let http = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
        if error.is::<AuthRequiredError>()
            || matches!(http, Some(StreamableHttpError::AuthRequired(_)))
            || matches!(error.downcast_ref::<SseError>(), Some(SseError::Status(401)))
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The causes of `error`, in one line.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many a library repeats its cause in its own words.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    convoke_stdx::cut::head(&text, 2_000).to_owned()
}

/// Reaches the server and reads its lists. Dropping the future ends what was started.
pub(crate) async fn connect(
    config: &ServerConfig,
    context: &Context,
    old: bool,
) -> Result<(Connection, Catalogue), ConnectError> {
    let connecting = async {
        let connection = open(config, context, old).await?;
        let lists = catalogue::read(&connection.client.peer, &connection.capabilities).await;
        let catalogue =
            lists.map_err(|error| ConnectError::new(format!("list what it offers: {}", told(&error)), true))?;
        Ok::<_, ConnectError>((connection, catalogue))
    };
    match tokio::time::timeout(CONNECT_MAX, connecting).await {
        Ok(Err(error)) if error.needs_login => Err(ConnectError { reason: wants_login_of(config), ..error }),
        Ok(connected) => connected,
        Err(_) => {
            Err(ConnectError::new(format!("it did not answer within {} seconds", CONNECT_MAX.as_secs_f64()), true))
        }
    }
}

async fn open(config: &ServerConfig, context: &Context, old: bool) -> Result<Connection, ConnectError> {
    match &config.transport {
        TransportConfig::Stdio(stdio) => {
            let (process, pipes) = transport::start(stdio, &config.name, context)
                .map_err(|error| ConnectError::new(format!("start {}: {error}", stdio.command), false))?;
            let shaken = shake_hands(config, context, pipes, old).await;
            match shaken {
                Ok(connection) => Ok(Connection { process: Some(process), ..connection }),
                Err(mut error) => {
                    let said = process.end().await;
                    if !said.is_empty() {
                        error.reason = format!("{}; it said: {said}", error.reason);
                    }
                    Err(error)
                }
            }
        }
        TransportConfig::Http(remote) => {
            shake_hands(config, context, transport::streamable(remote, config, context).await?, old).await
        }
        TransportConfig::Sse(remote) => {
            let opened = transport::sse(remote, config, context).await?;
            shake_hands(config, context, opened, true).await
        }
        TransportConfig::Detect(remote) => {
            let http = shake_hands(config, context, transport::streamable(remote, config, context).await?, old).await;
            let Err(first) = http else { return http };
            if first.needs_login {
                return Err(first);
            }
            match transport::sse(remote, config, context).await {
                Ok(opened) => shake_hands(config, context, opened, true).await,
                Err(second) if second.needs_login => Err(second),
                Err(second) => Err(ConnectError::new(format!("{first}; as an event stream: {second}"), first.again)),
            }
        }
    }
}

async fn shake_hands<T, E, A>(
    config: &ServerConfig,
    context: &Context,
    transport: T,
    old: bool,
) -> Result<Connection, ConnectError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let progress = Arc::<ProgressTable>::default();
    let (announce, changed) = mpsc::channel(CHANGES_MAX);
    let handler = || Handler {
        server: config.name.clone(),
        client: context.client.clone(),
        roots: context.roots.clone(),
        progress: progress.clone(),
        changed: announce.clone(),
    };
    let running = handshake::shake(handler, transport.into_transport(), old).await.map_err(refusal)?;
    // The connection's own copy is the last one, so that its end is heard.
    drop(announce);
    let peer = running.peer().clone();
    let info = peer.peer_info();
    let about = info.as_ref().map(|info| About {
        name: info.server_info.as_ref().map(|server| server.name.clone()).unwrap_or_default(),
        version: info.server_info.as_ref().map(|server| server.version.clone()).unwrap_or_default(),
        protocol: info.protocol_version.to_string(),
        instructions: info.instructions.clone(),
    });
    let client = Client {
        server: config.name.clone(),
        peer,
        progress,
        gone: CancellationToken::new(),
        refused: CancellationToken::new(),
        timeout: config.timeout,
        roots: context.roots.clone(),
    };
    let capabilities = info.map(|info| info.capabilities.clone()).unwrap_or_default();
    Ok(Connection { client, about: about.unwrap_or_default(), capabilities, changed, running, process: None })
}

fn refusal(error: ClientInitializeError) -> ConnectError {
    let needs_login = error.is_authorization_required() || error.auth_challenge().is_some();
    let again = !needs_login && !matches!(error, ClientInitializeError::NoCompatibleProtocolVersion { .. });
    let reason = if needs_login { "it needs login".to_owned() } else { told(&error) };
    ConnectError { reason, again, needs_login }
}

impl Connection {
    /// Whether the server speaks a protocol from before `server/discover`.
    pub(crate) fn is_old(&self) -> bool {
        self.about.protocol.as_str() < ProtocolVersion::V_2026_07_28.to_string().as_str()
    }

    /// Follows the connection to its end and says why it ended. `stop` ends it; `on_change` hears of every announcement
    /// of a changed list, on whichever way the server's protocol has for it.
    pub(crate) async fn follow(self, stop: CancellationToken, on_change: impl Fn()) -> String {
        let old = self.is_old();
        let Self { client, capabilities, mut changed, running, mut process, .. } = self;
        let mut subscription = if old { None } else { subscribe(&client.peer, &capabilities).await };
        let closing = running.cancellation_token();
        // Fused: it is looked at again after it ended.
        let waiting = running.waiting().fuse();
        futures::pin_mut!(waiting);
        let mut open = true;
        let reason = loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break "it was ended".to_owned(),
                _ = &mut waiting => break "the connection closed".to_owned(),
                () = exited(process.as_mut()) => break "its process ended".to_owned(),
                () = client.refused.cancelled() => break "it needs login".to_owned(),
                change = changed.recv(), if open => match change {
                    Some(()) => on_change(),
                    None => open = false,
                },
                more = next(subscription.as_mut()), if subscription.is_some() => match more {
                    true => on_change(),
                    // Announcements are a convenience: without them the lists stay as they are.
                    false => subscription = None,
                },
            }
        };
        client.gone.cancel();
        drop(subscription);
        closing.cancel();
        if !waiting.is_terminated() {
            let _ = tokio::time::timeout(CLOSE_WAIT, &mut waiting).await;
        }
        match process {
            Some(process) => {
                let said = process.end().await;
                if said.is_empty() || stop.is_cancelled() { reason } else { format!("{reason}; it said: {said}") }
            }
            None => reason,
        }
    }
}

async fn exited(process: Option<&mut Process>) {
    match process {
        Some(process) => process.exited().await,
        None => std::future::pending().await,
    }
}

/// The newest protocol announces changes to those who ask for it only.
async fn subscribe(peer: &Peer<RoleClient>, has: &ServerCapabilities) -> Option<Subscription> {
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = has.tools.as_ref().and_then(|tools| tools.list_changed).filter(|has| *has);
    filter.prompts_list_changed = has.prompts.as_ref().and_then(|prompts| prompts.list_changed).filter(|has| *has);
    filter.resources_list_changed = has.resources.as_ref().and_then(|all| all.list_changed).filter(|has| *has);
    if filter == SubscriptionFilter::new() {
        return None;
    }
    match tokio::time::timeout(CLOSE_WAIT, peer.listen(filter)).await {
        Ok(Ok(subscription)) => Some(subscription),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a server does not announce its changes");
            None
        }
        Err(_) => None,
    }
}

async fn next(subscription: Option<&mut Subscription>) -> bool {
    match subscription {
        Some(subscription) => matches!(subscription.next().await, Ok(Some(_))),
        None => std::future::pending().await,
    }
}
