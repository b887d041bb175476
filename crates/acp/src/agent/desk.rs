//! Which sessions does this client have?
//!
//! Makes them, finds the one that a request is meant for, and waits for their ends. What happens in a session is the
//! business of its own task.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_client_protocol::v1::schema;
use convoke_protocol::{AuthError, HostedSession, NewSession, SessionError, SessionFactory, SessionId};
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::rpc_error::{INVALID_PARAMS, INVALID_REQUEST, RpcError};

use super::abilities::Abilities;
use super::files::AcpFiles;
use super::outbox::Outbox;
use super::permission::{self, Question};
use super::servers;
use super::session::{Command, Responder, Session, answer};
use super::settings::describe;

/// Sessions of one client. The daemon's own cap is far below.
const SESSIONS_MAX: usize = 1024;

/// Commands that wait in one session: it takes them at once, so more than a few are a flood.
const COMMANDS_MAX: usize = 64;

/// What a client asks for.
pub(super) enum Incoming {
    New(schema::NewSessionRequest, Responder),
    Authenticate { method: String, secret: Option<String>, responder: Responder },
    Logout(Responder),
    To(SessionId, Command),
    Cancel(SessionId),
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
    hosted: Result<HostedSession, SessionError>,
    files: Arc<AcpFiles>,
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
                && let Ok(hosted) = made.hosted
            {
                hosted.control.close().await;
            }
        }
    }

    fn request(&mut self, request: Incoming) {
        match request {
            Incoming::New(request, responder) => match self.check(&request.cwd, &request.additional_directories) {
                Ok(()) => self.make(request, responder),
                Err(error) => answer(responder, Err(error)),
            },
            Incoming::To(id, command) => {
                let refused = match self.sessions.get(&id) {
                    Some(session) => match session.commands.try_send(command) {
                        Ok(()) => return,
                        Err(TrySendError::Full(command)) => (command, RpcError::busy()),
                        Err(TrySendError::Closed(command)) => (command, RpcError::no_session(id.as_str())),
                    },
                    None => (command, RpcError::no_session(id.as_str())),
                };
                answer(refused.0.into_responder(), Err(refused.1));
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
                Some(session) => session.cancel.notify_one(),
                None => tracing::debug!(session = %id, "cancelled a session that is not here"),
            },
        }
    }

    fn check(&self, cwd: &Path, more: &[PathBuf]) -> Result<(), RpcError> {
        let fields = std::iter::once(("cwd", cwd));
        let fields = fields.chain(more.iter().map(|folder| ("additionalDirectories", folder.as_path())));
        for (field, folder) in fields {
            if !folder.is_absolute() {
                let message = format!("{field} must be an absolute path, not \"{}\"", folder.display());
                return Err(RpcError::new(INVALID_PARAMS, message));
            }
        }
        // Each session has its task, and so has each that is being made.
        if self.tasks.len() >= SESSIONS_MAX {
            return Err(RpcError::new(INVALID_REQUEST, format!("there are {SESSIONS_MAX} sessions already")));
        }
        Ok(())
    }

    fn make(&mut self, request: schema::NewSessionRequest, responder: Responder) {
        let chosen = request.meta.as_ref().and_then(|meta| meta.get(crate::SESSION_ID_META)?.as_str());
        let (permission, questions) = permission::port(self.abilities.clone());
        let files = Arc::new(AcpFiles::new(self.outbox.client().clone(), self.abilities.clone()));
        let new = NewSession {
            session_id: chosen.filter(|id| !id.is_empty()).map(SessionId::from),
            mcp_servers: servers::brought(&request.mcp_servers),
            additional_directories: request.additional_directories,
            files: Some(files.clone()),
            ..NewSession::new(request.cwd, permission)
        };
        let factory = Arc::clone(&self.factory);
        self.tasks.spawn(async move {
            let hosted = factory.new_session(new).await;
            Done::Made(Box::new(Made { hosted, files, questions, responder }))
        });
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Made(made)) => match made.hosted {
                Ok(hosted) => {
                    made.files.belong_to(&hosted.id);
                    self.admit(hosted, made.questions, made.responder);
                }
                Err(error) => answer(made.responder, Err(error.into())),
            },
            Ok(Done::Ended(id)) => _ = self.sessions.remove(&id),
            Ok(Done::Answered) => {}
            // Its responders went with it, and so every request of it was answered with an error.
            Err(error) => {
                tracing::error!(%error, "a session's task failed");
                self.sessions.retain(|_, session| !session.commands.is_closed());
            }
        }
    }

    fn admit(&mut self, hosted: HostedSession, questions: mpsc::Receiver<Question>, responder: Responder) {
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let cancel = Arc::new(Notify::new());
        let id = hosted.id.clone();
        let introduction = describe(Some(&id), &*hosted.control);
        let events = hosted.agent.log().subscribe();
        let session = Session {
            hosted,
            outbox: self.outbox.clone(),
            abilities: self.abilities.clone(),
            commands: inbox,
            cancel: Arc::clone(&cancel),
            questions,
        };
        self.sessions.insert(id.clone(), Handle { commands, cancel });
        // Answered first: no client knows what to do with updates of a session that it has not heard of.
        answer(responder, Ok(introduction));
        self.tasks.spawn(async move {
            session.run(events).await;
            Done::Ended(id)
        });
    }
}
