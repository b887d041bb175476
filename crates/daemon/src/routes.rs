//! What does each route take, and what does it answer? One module per matter; every decision is the bridge's.

mod context;
mod daemon;
mod events;
pub(crate) mod list;
mod permission;
mod prompt;
mod rewind;
pub(crate) mod session;

use convoke_bridge::{Caller, Refusal};
use convoke_protocol::ClientId;
use http::request::Parts;

use crate::body::Fields;
use crate::http_error::HttpError;
use crate::peer::Connection;
use crate::respond::Reply;
use crate::route::Route;
use crate::service::{Service, client_id};

/// A request on its way to its route.
pub(crate) struct Incoming<'a> {
    /// Where it came from.
    pub(crate) connection: &'a Connection,
    /// Its method, path and headers.
    pub(crate) head: &'a Parts,
    /// Its body.
    pub(crate) fields: Fields,
}

impl Incoming<'_> {
    fn client(&self) -> Result<Option<ClientId>, HttpError> {
        client_id(&self.head.headers)
    }

    fn caller(&self) -> Result<Caller, HttpError> {
        Ok(Caller { client: self.client()?, loopback: self.connection.is_loopback() })
    }

    fn query(&self, name: &str) -> Option<String> {
        crate::route::query(self.head.uri.query(), name)
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// A text field; other types count as absent.
    fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }
}

impl From<Refusal> for HttpError {
    fn from(refusal: Refusal) -> Self {
        Self::from(&refusal)
    }
}

/// Answers a request of a known route.
pub(crate) async fn answer(service: &Service, route: &Route, incoming: Incoming<'_>) -> Result<Reply, HttpError> {
    match route {
        Route::Health => daemon::health(service, &incoming).await,
        Route::Capabilities => Ok(daemon::capabilities(service)),
        Route::DaemonStatus => daemon::status(service, &incoming).await,
        Route::Audit => daemon::audit(service).await,
        Route::Metrics => daemon::metrics(service).await,
        Route::OpenApi => Ok(daemon::openapi(service)),
        // Answered before bodies are read: see `service`.
        Route::AcpStream | Route::AcpMessage | Route::AcpLeave => Err(HttpError::internal()),
        Route::Sessions(workspace) => list::list(service, &incoming, workspace).await,
        Route::Create => session::create(service, &incoming).await,
        Route::Load(id) => session::load(service, &incoming, id).await,
        Route::Resume(id) => session::resume(service, &incoming, id).await,
        Route::Close(id) => session::close(service, &incoming, id).await,
        Route::Status(id) => session::status(service, id).await,
        Route::Heartbeat(id) => session::heartbeat(service, &incoming, id).await,
        Route::Detach(id) => session::detach(service, &incoming, id).await,
        Route::Metadata(id) => session::metadata(service, &incoming, id).await,
        Route::Rewind(id) => rewind::rewind(service, &incoming, id).await,
        Route::RewindSnapshots(id) => rewind::snapshots(service, id).await,
        Route::ApprovalMode(id) => context::approval_mode(service, &incoming, id).await,
        Route::Model(id) => context::model(service, &incoming, id).await,
        Route::Context(id) => context::context(service, id).await,
        Route::Commands(id) => context::commands(service, id).await,
        Route::Events(id) => events::open(service, &incoming, id).await,
        Route::Prompt(id) => prompt::send(service, incoming, id).await,
        Route::Cancel(id) => prompt::cancel(service, &incoming, id).await,
        Route::PendingPrompts(id) => prompt::pending(service, id).await,
        Route::Turn(id, prompt) => prompt::turn(service, id, prompt).await,
        Route::Vote(session, request) => permission::vote(service, &incoming, Some(session), request).await,
        Route::LegacyVote(request) => permission::vote(service, &incoming, None, request).await,
    }
}
