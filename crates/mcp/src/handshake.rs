//! Which protocol does a server speak, and what if it takes long to say so?
//!
//! The newest protocol begins with `server/discover`, the older ones with `initialize`. A server that knows only the
//! latter refuses the former, or says nothing to it at all; one that is being installed says nothing either. So the
//! first question has [`PROBE_WAIT`] for its answer, and then the second is asked beside it, on the same connection: whichever is
//! answered first decides, and an answer that comes later is recognised and put aside.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::Either;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, NumberOrString, ProtocolVersion, RequestId, ServerJsonRpcMessage,
    ServerResult,
};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, RunningService, serve_client_with_lifecycle};
use rmcp::transport::Transport;

use crate::handler::Handler;

/// How long a server may think about `server/discover` before it is greeted in the older way as well.
pub(crate) const PROBE_WAIT: Duration = Duration::from_secs(10);
/// The SDK numbers requests from 0, for each try anew. What is asked second gets a number that nothing else comes to.
const SECOND: RequestId = NumberOrString::Number(1 << 40);
/// Stale answers to look out for: one to each question.
const STALE_MAX: usize = 2;

/// Shakes hands over `transport`, in the way of the newest protocol if `old` does not rule it out. Nothing here but the
/// first question is bounded: whoever calls this bounds all of it.
pub(crate) async fn shake<T>(
    make: impl Fn() -> Handler,
    transport: T,
    old: bool,
) -> Result<RunningService<RoleClient, Handler>, ClientInitializeError>
where
    T: Transport<RoleClient> + 'static,
{
    let place = Place::default();
    if old {
        return serve(make(), Loan::new(transport, &place), ClientLifecycleMode::Initialize).await;
    }
    let discover = || ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let probe = serve(make(), Loan::new(transport, &place), discover());
    let loan = match tokio::time::timeout(PROBE_WAIT, probe).await {
        Ok(Err(error)) if is_old_style(&error) => place.back(Vec::new()),
        Ok(done) => return done,
        Err(_) => place.back(vec![NumberOrString::Number(0)]),
    };
    let Some(loan) = loan else { return Err(ClientInitializeError::Cancelled) };
    match serve(make(), loan, ClientLifecycleMode::Initialize).await {
        Err(error) => match place.late() {
            // It is a new one after all, and its answer is here.
            Some(loan) => serve(make(), loan, discover()).await,
            None => Err(error),
        },
        done => done,
    }
}

async fn serve<T: Transport<RoleClient> + 'static>(
    handler: Handler,
    loan: Loan<T>,
    mode: ClientLifecycleMode,
) -> Result<RunningService<RoleClient, Handler>, ClientInitializeError> {
    serve_client_with_lifecycle(handler, loan, mode).await
}

/// Whether a server that answers `server/discover` so speaks an older protocol: any refusal but those of the new one, and
/// one that names what it speaks, if that is older.
fn is_old_style(error: &ClientInitializeError) -> bool {
    let new = [ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY, ErrorCode::HEADER_MISMATCH];
    match error {
        ClientInitializeError::JsonRpcError(error) => !new.contains(&error.code),
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            server_supported.iter().any(ProtocolVersion::has_initialize)
        }
        _ => false,
    }
}

/// Where a transport is between two tries.
struct Place<T>(Arc<Mutex<Option<Returned<T>>>>);

/// A transport that came back, and what a try left behind.
struct Returned<T> {
    transport: T,
    stale: Vec<RequestId>,
    late: Option<ServerJsonRpcMessage>,
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Place<T> {
    fn take(&self) -> Option<Returned<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The transport for `initialize`; answers to `stale` may come yet.
    fn back(&self, stale: Vec<RequestId>) -> Option<Loan<T>> {
        let Returned { transport, .. } = self.take()?;
        let mut loan = Loan::new(transport, self);
        (loan.second, loan.stale) = (true, stale);
        Some(loan)
    }

    /// The transport for `server/discover` once more, if its answer came late: it is not asked again.
    fn late(&self) -> Option<Loan<T>> {
        let Returned { transport, mut stale, late } = self.take()?;
        let answer = late?;
        stale.push(SECOND);
        stale.truncate(STALE_MAX);
        let mut loan = Loan::new(transport, self);
        (loan.answer, loan.stale) = (Some(answer), stale);
        Some(loan)
    }
}

/// A transport for one try. It goes back to its place when it is dropped.
struct Loan<T> {
    transport: Option<T>,
    place: Arc<Mutex<Option<Returned<T>>>>,
    /// Requests of earlier tries that may be answered yet.
    stale: Vec<RequestId>,
    /// `initialize` goes under a number of its own.
    second: bool,
    /// The answer to a question that was asked in an earlier try.
    answer: Option<ServerJsonRpcMessage>,
    /// Answers that need no server; one at most.
    ready: VecDeque<ServerJsonRpcMessage>,
    /// The answer that makes this try needless.
    late: Option<ServerJsonRpcMessage>,
}

impl<T> Loan<T> {
    fn new(transport: T, place: &Place<T>) -> Self {
        Self {
            transport: Some(transport),
            place: place.0.clone(),
            stale: Vec::new(),
            second: false,
            answer: None,
            ready: VecDeque::new(),
            late: None,
        }
    }

    /// Whether `id` is that of a request that nobody waits for; asked once for each.
    fn forget(&mut self, id: Option<&RequestId>) -> bool {
        // Some answer a number with the same number as text, and some an unknown request without any.
        let at = match id {
            Some(id) => self.stale.iter().position(|stale| stale.to_string() == id.to_string()),
            None => (!self.stale.is_empty()).then_some(0),
        };
        at.map(|at| self.stale.remove(at)).is_some()
    }

    /// What goes on to the SDK. `Err` ends this try.
    fn pass(&mut self, mut message: ServerJsonRpcMessage) -> Result<Option<ServerJsonRpcMessage>, ()> {
        let id = match &mut message {
            ServerJsonRpcMessage::Response(response) => Some(&mut response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_mut(),
            _ => return Ok(Some(message)),
        };
        if self.second
            && let Some(id) = id
            && id.to_string() == SECOND.to_string()
        {
            *id = NumberOrString::Number(0);
            return Ok(Some(message));
        }
        let id = match &message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        if !self.forget(id.as_ref()) {
            return Ok(Some(message));
        }
        match &message {
            ServerJsonRpcMessage::Response(response) if matches!(response.result, ServerResult::DiscoverResult(_)) => {
                self.late = Some(message);
                Err(())
            }
            _ => Ok(None),
        }
    }
}

impl<T> Drop for Loan<T> {
    fn drop(&mut self) {
        let Some(transport) = self.transport.take() else { return };
        let returned = Returned { transport, stale: std::mem::take(&mut self.stale), late: self.late.take() };
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for Loan<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            match &request.request {
                ClientRequest::DiscoverRequest(_) if let Some(mut answer) = self.answer.take() => {
                    if let ServerJsonRpcMessage::Response(response) = &mut answer {
                        response.id = request.id.clone();
                    }
                    self.ready.push_back(answer);
                    return Either::Left(std::future::ready(Ok(())));
                }
                ClientRequest::InitializeRequest(_) if self.second => request.id = SECOND,
                _ => {}
            }
        }
        match &mut self.transport {
            Some(transport) => Either::Right(transport.send(message)),
            // Only a dropped loan has none.
            None => Either::Left(std::future::ready(Ok(()))),
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        loop {
            let message = self.transport.as_mut()?.receive().await?;
            match self.pass(message) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(()) => return None,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        match &mut self.transport {
            Some(transport) => transport.close().await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
