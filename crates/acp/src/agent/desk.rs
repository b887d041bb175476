//! Which sessions does this client have?
//!
//! Makes them, finds the one that a request is meant for, and waits for their ends. What happens in a session is the
//! business of its own task.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol::v1::schema;
use convoke_protocol::{AuthError, HostedSession, ListSessions, NewSession, SessionError, SessionFactory, SessionId};
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::rpc_error::{INVALID_PARAMS, INVALID_REQUEST, RpcError};

use super::abilities::Abilities;
use super::files::AcpFiles;
use super::outbox::Outbox;
use super::past::{self, GoOn, Past};
use super::permission::{self, Question};
use super::servers;
use super::session::{Command, Opening, Responder, Session, answer};
use super::settings::describe;
use super::terminals::AcpTerminals;

/// Sessions of one client. The daemon's own cap is far below.
const SESSIONS_MAX: usize = 1024;

/// Commands that wait in one session: it takes them at once, so more than a few are a flood.
const COMMANDS_MAX: usize = 64;

/// What a client asks for.
pub(super) enum Incoming {
    /// A session, new or recorded.
    Open(Wanted, Responder),
    List(ListSessions, Responder),
    Delete(SessionId, Responder),
    Authenticate {
        method: String,
        secret: Option<String>,
        responder: Responder,
    },
    Logout(Responder),
    To(SessionId, Command),
    Cancel(SessionId),
}

/// Which session, and what it is made from.
pub(super) struct Wanted {
    pub(super) cwd: PathBuf,
    pub(super) additional_directories: Vec<PathBuf>,
    pub(super) mcp_servers: Vec<schema::McpServer>,
    pub(super) origin: Origin,
}

/// Where a session comes from.
pub(super) enum Origin {
    /// Nowhere; the id may be chosen.
    New(Option<SessionId>),
    /// The record of an earlier one.
    Record(SessionId, GoOn),
}

/// A session's task, from outside.
struct Handle {
    commands: mpsc::Sender<Command>,
    cancel: Arc<Notify>,
}

/// Knows the sessions.
pub(super) struct Desk {
    factory: Arc<dyn SessionFactory>,
    outbox: Outbox,
    abilities: Abilities,
    sessions: HashMap<SessionId, Handle>,
    tasks: JoinSet<Done>,
}

/// What a task of the desk ended with.
enum Done {
    Made(Box<Made>),
    Ended(SessionId),
    /// A request that belongs to no session was answered.
    Answered,
}

struct Made {
    opened: Result<(HostedSession, Past), RpcError>,
    is_new: bool,
    files: Arc<AcpFiles>,
    terminals: AcpTerminals,
    questions: mpsc::Receiver<Question>,
    responder: Responder,
}

impl Desk {
    pub(super) fn new(factory: Arc<dyn SessionFactory>, outbox: Outbox, abilities: Abilities) -> Self {
        Self { factory, outbox, abilities, sessions: HashMap::new(), tasks: JoinSet::new() }
    }

    /// Serves until `stop` or until there is nobody to serve, then closes every session.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Incoming>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done),
                request = requests.recv() => match request {
                    Some(request) => self.request(request),
                    None => break,
                },
            }
        }
        drop(requests);
        // Without their handles the sessions close; one that is still being made closes as soon as it is.
        self.sessions.clear();
        while let Some(done) = self.tasks.join_next().await {
            if let Ok(Done::Made(made)) = done
                && let Ok((hosted, _)) = made.opened
            {
                hosted.control.close().await;
            }
        }
    }

    fn request(&mut self, request: Incoming) {
        match request {
            Incoming::Open(wanted, responder) => match self.check(&wanted) {
                Ok(()) => self.make(wanted, responder),
                Err(error) => answer(responder, Err(error)),
            },
            Incoming::List(list, responder) => {
                if let Some(error) = list.cwd.as_deref().and_then(|cwd| must_be_absolute("cwd", cwd).err()) {
                    return answer(responder, Err(error));
                }
                let factory = Arc::clone(&self.factory);
                self.tasks.spawn(async move {
                    answer(responder, past::list(&*factory, list).await);
                    Done::Answered
                });
            }
            Incoming::Delete(id, responder) if !SessionId::is_well_formed(id.as_str()) => {
                answer(responder, Err(RpcError::bad_session_id()));
            }
            Incoming::Delete(id, responder) => {
                let factory = Arc::clone(&self.factory);
                self.tasks.spawn(async move {
                    answer(responder, past::delete(&*factory, &id).await);
                    Done::Answered
                });
            }
            Incoming::To(id, command) => {
                let refused = match self.sessions.get(&id) {
                    Some(session) => match session.commands.try_send(command) {
                        Ok(()) => return,
                        Err(TrySendError::Full(command)) => (command, RpcError::busy()),
                        Err(TrySendError::Closed(command)) => (command, RpcError::no_session(id.as_str())),
                    },
                    None => (command, RpcError::no_session(id.as_str())),
                };
                if let Some(responder) = refused.0.into_responder() {
                    answer(responder, Err(refused.1));
                }
            }
            Incoming::Authenticate { method, secret, responder } => {
                let factory = Arc::clone(&self.factory);
                self.tasks.spawn(async move {
                    let done = match factory.authenticator() {
                        Some(authenticator) => authenticator.authenticate(&method, secret).await.map_err(Into::into),
                        None => Err(AuthError::UnknownMethod(method).into()),
                    };
                    answer(responder, done.map(|()| json!({})));
                    Done::Answered
                });
            }
            Incoming::Logout(responder) => {
                let factory = Arc::clone(&self.factory);
                self.tasks.spawn(async move {
                    if let Some(authenticator) = factory.authenticator() {
                        authenticator.logout().await;
                    }
                    answer(responder, Ok(json!({})));
                    Done::Answered
                });
            }
            Incoming::Cancel(id) => match self.sessions.get(&id) {
                Some(session) if session.commands.try_send(Command::Cancel).is_err() => session.cancel.notify_one(),
                Some(_) => {}
                None => tracing::debug!(session = %id, "cancelled a session that is not here"),
            },
        }
    }

    fn check(&self, wanted: &Wanted) -> Result<(), RpcError> {
        if let Origin::New(Some(id)) | Origin::Record(id, _) = &wanted.origin
            && !SessionId::is_well_formed(id.as_str())
        {
            return Err(RpcError::bad_session_id());
        }
        must_be_absolute("cwd", &wanted.cwd)?;
        for folder in &wanted.additional_directories {
            must_be_absolute("additionalDirectories", folder)?;
        }
        // Each session has its task, and so has each that is being made.
        if self.tasks.len() >= SESSIONS_MAX {
            return Err(RpcError::new(INVALID_REQUEST, format!("there are {SESSIONS_MAX} sessions already")));
        }
        Ok(())
    }

    fn make(&mut self, wanted: Wanted, responder: Responder) {
        let Wanted { cwd, additional_directories, mcp_servers, origin } = wanted;
        let (permission, questions) = permission::port(self.abilities.clone());
        let files = Arc::new(AcpFiles::new(self.outbox.client().clone(), self.abilities.clone()));
        let terminals = AcpTerminals::new(self.outbox.client().clone(), self.abilities.clone());
        let new = NewSession {
            terminals: Some(Arc::new(terminals.clone())),
            mcp_servers: servers::brought(&mcp_servers),
            additional_directories,
            files: Some(files.clone()),
            ..NewSession::new(cwd, permission)
        };
        let factory = Arc::clone(&self.factory);
        self.tasks.spawn(async move {
            let is_new = matches!(origin, Origin::New(_));
            let opened = match origin {
                Origin::New(session_id) => {
                    let hosted = factory.new_session(NewSession { session_id, ..new }).await;
                    hosted.map(|hosted| (hosted, Past::default())).map_err(Into::into)
                }
                Origin::Record(id, go_on) => past::open(&*factory, id, go_on, new).await,
            };
            Done::Made(Box::new(Made { opened, is_new, files, terminals, questions, responder }))
        });
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Made(made)) => self.admit(*made),
            Ok(Done::Ended(id)) => {
                // By now the same session may be open again.
                if self.sessions.get(&id).is_some_and(|session| session.commands.is_closed()) {
                    self.sessions.remove(&id);
                }
            }
            Ok(Done::Answered) => {}
            // Its responders went with it, and so every request of it was answered with an error.
            Err(error) => {
                tracing::error!(%error, "a session's task failed");
                self.sessions.retain(|_, session| !session.commands.is_closed());
            }
        }
    }

    fn admit(&mut self, made: Made) {
        let Made { opened, is_new, files, terminals, questions, responder } = made;
        let (hosted, past) = match opened {
            Ok(opened) => opened,
            Err(error) => return answer(responder, Err(error)),
        };
        // Sessions that were never prompted have no record that would keep a second one out.
        if self.sessions.get(&hosted.id).is_some_and(|session| !session.commands.is_closed()) {
            answer(responder, Err(SessionError::Taken(hosted.id.clone()).into()));
            self.tasks.spawn(async move {
                hosted.control.close().await;
                Done::Answered
            });
            return;
        }
        files.belong_to(&hosted.id);
        terminals.belong_to(&hosted.id);
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let cancel = Arc::new(Notify::new());
        let id = hosted.id.clone();
        let introduction = describe(Some(&id).filter(|_| is_new), &*hosted.control, past.damaged);
        let events = hosted.agent.log().subscribe();
        let session = Session {
            hosted,
            opening: Opening { past, introduction, responder },
            outbox: self.outbox.clone(),
            abilities: self.abilities.clone(),
            commands: inbox,
            cancel: Arc::clone(&cancel),
            questions,
        };
        self.sessions.insert(id.clone(), Handle { commands, cancel });
        self.tasks.spawn(async move {
            session.run(events).await;
            Done::Ended(id)
        });
    }
}

fn must_be_absolute(field: &str, folder: &Path) -> Result<(), RpcError> {
    if folder.is_absolute() {
        return Ok(());
    }
    let message = format!("{field} must be an absolute path, not \"{}\"", folder.display());
    Err(RpcError::new(INVALID_PARAMS, message))
}
