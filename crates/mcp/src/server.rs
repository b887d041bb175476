//! One server's task: carries out what its life asks for, and tells the others where it stands.

use std::sync::Arc;

use convoke_stdx::Clock;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::ServerConfig;
use crate::catalogue::{self, Catalogue};
use crate::client::{About, Client, ConnectError, Connection, connect};
use crate::lifecycle::{BACKOFF, Input, Lifecycle, Output, State};
use crate::servers::{Context, ServerState};
use crate::transport;

/// Announcements that wait for the task; more say nothing new.
const CHANGES_MAX: usize = 4;

/// Where a server stands, as others see it.
#[derive(Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) state: ServerState,
    /// Why it is not there.
    pub(crate) reason: Option<String>,
    pub(crate) needs_login: bool,
    pub(crate) client: Option<Client>,
    /// What it offers, or offered when it was last there.
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) about: About,
}

/// What a piece of work came to.
enum Done {
    Connected(u64, Box<Result<(Connection, Catalogue), ConnectError>>),
    Listed(u64, Option<Catalogue>),
    Ended(u64, String),
    /// Whether there is a token for a server that wanted a login.
    LoggedIn(bool),
}

/// The task of one server.
pub(crate) struct Actor {
    config: Arc<ServerConfig>,
    context: Arc<Context>,
    clock: Clock,
    life: Lifecycle,
    snapshot: watch::Sender<Snapshot>,
    revision: Arc<watch::Sender<u64>>,
    work: JoinSet<Done>,
    /// Ends the connection of the present generation, or the attempt at one.
    stop: CancellationToken,
    changes: (mpsc::Sender<u64>, mpsc::Receiver<u64>),
    /// Told when somebody wonders whether its user has logged in by now.
    look: Arc<Notify>,
    looking: bool,
    /// The server answered once, and spoke a protocol from before `server/discover`: the question is not asked again.
    old: bool,
    reached: bool,
}

impl Actor {
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        context: Arc<Context>,
        snapshot: watch::Sender<Snapshot>,
        revision: Arc<watch::Sender<u64>>,
        look: Arc<Notify>,
    ) -> Self {
        Self {
            config,
            context,
            clock: Clock::start(),
            life: Lifecycle::new(),
            snapshot,
            revision,
            work: JoinSet::new(),
            stop: CancellationToken::new(),
            changes: mpsc::channel(CHANGES_MAX),
            look,
            looking: false,
            old: false,
            reached: false,
        }
    }

    /// Starts the server and keeps it until `close`.
    pub(crate) async fn run(mut self, close: CancellationToken) {
        self.step(Input::Start);
        while self.life.state() != State::Closed || !self.work.is_empty() {
            let deadline = self.life.next_deadline().map(|tick| self.clock.instant_of(tick));
            let input = tokio::select! {
                biased;
                () = close.cancelled(), if self.life.state() != State::Closed => Input::Close,
                Some(done) = self.work.join_next(), if !self.work.is_empty() => match self.done(done) {
                    Some(input) => input,
                    None => continue,
                },
                Some(generation) = self.changes.1.recv() => Input::Changed { generation },
                () = self.look.notified() => {
                    self.look_for_token();
                    continue;
                }
                () = at(deadline), if deadline.is_some() => Input::Tick,
            };
            self.step(input);
        }
    }

    fn step(&mut self, input: Input) {
        let mut outputs = Vec::new();
        self.life.handle(self.clock.now(), input, &mut outputs);
        for output in outputs {
            self.carry_out(output);
        }
        self.publish();
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect { generation } => {
                self.stop = CancellationToken::new();
                let (config, context, stop) = (self.config.clone(), self.context.clone(), self.stop.clone());
                let old = self.old;
                self.work.spawn(async move {
                    let connected = tokio::select! {
                        biased;
                        () = stop.cancelled() => Err(ConnectError::new("it was ended", false)),
                        connected = connect(&config, &context, old) => connected,
                    };
                    Done::Connected(generation, Box::new(connected))
                });
            }
            Output::List { generation } => {
                let Some(client) = self.snapshot.borrow().client.clone() else { return };
                self.work.spawn(async move {
                    let has = client.peer.peer_info().map(|info| info.capabilities.clone()).unwrap_or_default();
                    let listed = tokio::select! {
                        listed = catalogue::read(&client.peer, &has) => listed.ok(),
                        () = client.gone.cancelled() => None,
                        () = tokio::time::sleep(client.timeout) => None,
                    };
                    Done::Listed(generation, listed)
                });
            }
            Output::Disconnect { .. } => self.stop.cancel(),
        }
    }

    fn look_for_token(&mut self) {
        let wants = self.life.state() == State::Failed && self.snapshot.borrow().needs_login && !self.looking;
        if let Some(tokens) = transport::tokens_of(&self.config, &self.context).filter(|_| wants) {
            self.looking = true;
            self.work.spawn(async move { Done::LoggedIn(matches!(tokens.current().await, Ok(Some(_)))) });
        }
    }

    /// Takes in a result, and says what it means for the server's life.
    fn done(&mut self, done: Result<Done, JoinError>) -> Option<Input> {
        match done {
            Ok(Done::Connected(generation, connected)) => match *connected {
                Ok((connection, catalogue)) => {
                    self.connected(generation, connection, catalogue);
                    Some(Input::Connected { generation })
                }
                Err(error) => {
                    tracing::warn!(server = %self.config.name, reason = %error, "an MCP server could not be reached");
                    // What never worked, and runs here, will not work in a second.
                    let again = error.again && (self.reached || !self.is_child());
                    self.snapshot.send_modify(|snapshot| {
                        snapshot.reason = Some(error.reason);
                        snapshot.needs_login = error.needs_login;
                    });
                    Some(Input::Refused { generation, again })
                }
            },
            Ok(Done::Listed(generation, listed)) => {
                let changed = listed.is_some_and(|catalogue| {
                    self.snapshot.send_if_modified(|snapshot| {
                        let differs = *snapshot.catalogue != catalogue;
                        if differs {
                            snapshot.catalogue = Arc::new(catalogue);
                        }
                        differs
                    })
                });
                if changed {
                    self.revise();
                }
                Some(Input::Listed { generation, changed })
            }
            Ok(Done::Ended(generation, reason)) => {
                if self.life.state() != State::Closed {
                    tracing::warn!(server = %self.config.name, %reason, "an MCP server is gone");
                }
                self.snapshot.send_modify(|snapshot| {
                    snapshot.client = None;
                    snapshot.reason = Some(reason);
                });
                Some(Input::Lost { generation })
            }
            Ok(Done::LoggedIn(there)) => {
                self.looking = false;
                (there && self.life.state() == State::Failed).then_some(Input::Start)
            }
            Err(error) => {
                tracing::error!(server = %self.config.name, %error, "the work of an MCP server failed");
                Some(Input::Close)
            }
        }
    }

    fn connected(&mut self, generation: u64, connection: Connection, catalogue: Catalogue) {
        (self.old, self.reached) = (connection.is_old(), true);
        if catalogue == Catalogue::default() {
            tracing::warn!(server = %self.config.name, "no prompts, tools or resources found on the MCP server");
        }
        let (client, about) = (connection.client.clone(), connection.about.clone());
        self.snapshot.send_modify(|snapshot| {
            snapshot.client = Some(client);
            snapshot.about = about;
            snapshot.catalogue = Arc::new(catalogue);
            snapshot.reason = None;
            snapshot.needs_login = false;
        });
        let (stop, changes) = (self.stop.clone(), self.changes.0.clone());
        // A connection that came too late is ended by the same stop.
        self.work.spawn(async move {
            let announce = || {
                // A full queue holds an announcement already.
                let _ = changes.try_send(generation);
            };
            Done::Ended(generation, connection.follow(stop, announce).await)
        });
    }

    fn is_child(&self) -> bool {
        matches!(self.config.transport, crate::TransportConfig::Stdio(_))
    }

    fn publish(&self) {
        let state = match self.life.state() {
            State::Idle | State::Connecting => ServerState::Connecting,
            State::Ready(_) => ServerState::Ready,
            State::Waiting { .. } => ServerState::Waiting { attempt: self.life.tries(), of: BACKOFF.len() },
            State::Failed => ServerState::Failed,
            State::Closed => ServerState::Closed,
        };
        let changed = self.snapshot.send_if_modified(|snapshot| {
            if !matches!(state, ServerState::Ready) {
                snapshot.client = None;
            }
            let differs = snapshot.state != state;
            snapshot.state = state;
            differs
        });
        if changed {
            self.revise();
        }
    }

    fn revise(&self) {
        self.revision.send_modify(|revision| *revision += 1);
    }
}

async fn at(deadline: Option<std::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
