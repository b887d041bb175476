//! The life of one agent's connection: one task that owns everything, and ends it in order.
//!
//! ```text
//! running ──asked, or nobody holds it──▶ stdin closes ─┐
//!    ├──── agent exits: rest of its output ────────────┼─▶ up to a grace ─▶ leash goes ─▶ exit is told, once
//!    └──── breach of a limit, panic, pipe error ───────┘
//! ```
//! A panic in any part is caught at that part's task, so it ends this agent and no other.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol as sdk;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use sdk::TransportFrame;
use tokio::io::AsyncWrite;
use tokio::sync::{oneshot, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::wire;

use super::error::{EndCause, Exit};
use super::event::{ChildEvent, Publisher, Slot};
use super::intake::Gate;
use super::process::Process;

/// The SDK's handle on a connection.
pub(super) type Connection = sdk::ConnectionTo<sdk::Agent>;

/// Runs the SDK's side of a connection until `stop`, handing its handle out through `ready`.
pub(super) async fn drive(
    transport: sdk::Channel,
    gate: Arc<Gate>,
    ready: oneshot::Sender<Connection>,
    stop: CancellationToken,
) -> Option<EndCause> {
    // Without the SDK's own look at versions: the handshake is judged in one place, by whoever reads the answer.
    let connection = sdk::Builder::new(sdk::Client).name("convoke").on_receive_dispatch(
        async move |message: sdk::Dispatch, _: Connection| match message {
            sdk::Dispatch::Request(request, responder) => {
                gate.request(request, responder)?;
                Ok(sdk::Handled::Yes)
            }
            other @ (sdk::Dispatch::Notification(_) | sdk::Dispatch::Response(..)) => {
                Ok(sdk::Handled::No { message: other, retry: false })
            }
        },
        sdk::on_receive_dispatch!(),
    );
    let ended = connection
        .connect_with(transport, async move |connection: Connection| {
            // Nobody waits any longer if the caller gave up.
            let _ = ready.send(connection);
            stop.cancelled().await;
            Ok(())
        })
        .await;
    ended.err().map(|error| EndCause::Broken(error.message))
}

/// Writes the SDK's messages to the agent. Its end closes the agent's stdin.
pub(super) async fn outlet(
    frames: UnboundedReceiver<TransportFrame>,
    input: impl AsyncWrite + Unpin,
    gate: Arc<Gate>,
) -> Option<EndCause> {
    let frames = frames.inspect(|frame| {
        if let TransportFrame::Single(message) = frame {
            gate.outgoing(message);
        }
    });
    // A closed stdin is how an exit is first seen from here.
    wire::write_frames(frames, input, |_| {}).await.err().map(|_| EndCause::Exited)
}

/// Everything that [`run`] owns.
pub(super) struct Supervised {
    pub(super) process: Option<Process>,
    pub(super) publisher: Publisher,
    /// The place for [`ChildEvent::Exited`].
    pub(super) last: Option<Slot>,
    /// The end is asked for.
    pub(super) closing: CancellationToken,
    /// Ends [`drive`].
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
    pub(super) ended: watch::Sender<Option<Arc<Exit>>>,
}

/// Owns an agent from start to end. Never panics, and always tells the exit.
pub(super) async fn run(
    mut own: Supervised,
    intake: impl Future<Output = EndCause> + Send + 'static,
    rest: Vec<futures::future::BoxFuture<'static, Option<EndCause>>>,
) {
    let mut parts = JoinSet::new();
    let intake = parts.spawn(async move { Some(intake.await) }).id();
    for part in rest {
        parts.spawn(part);
    }
    let mut intake = Some(intake);
    let cause = tokio::select! {
        biased;
        () = own.closing.cancelled() => EndCause::Closed,
        cause = first_end(&mut parts, &mut intake) => cause,
        () = exited(own.process.as_mut()) => EndCause::Exited,
    };
    tracing::debug!(?cause, "ending an agent");
    if cause == EndCause::Exited {
        finish_output(&mut own, &mut parts, &mut intake).await;
    }
    own.stop.cancel();
    let deadline = Instant::now() + own.grace;
    // The rest of the answers goes out and stdin closes, while the intake keeps the agent's stdout flowing.
    let _ = timeout_at(deadline, drain(&mut parts, intake)).await;
    let _ = match own.process.as_mut() {
        Some(process) => timeout_at(deadline, process.exited()).await,
        // Pipes without a process end by closing.
        None => timeout_at(deadline, async { while parts.join_next().await.is_some() {} }).await,
    };
    parts.abort_all();
    let (exit_code, signal, stderr_tail) = match own.process.take() {
        Some(process) => process.end().await,
        None => (None, None, String::new()),
    };
    while parts.join_next().await.is_some() {}
    let exit = Arc::new(Exit { cause, exit_code, signal, stderr_tail });
    own.ended.send_replace(Some(Arc::clone(&exit)));
    if let Some(slot) = own.last.take() {
        slot.send(ChildEvent::Exited(exit));
    }
}

async fn exited(process: Option<&mut Process>) {
    match process {
        Some(process) => process.exited().await,
        None => std::future::pending().await,
    }
}

/// Waits for the part that has a reason to end the whole.
async fn first_end(parts: &mut JoinSet<Option<EndCause>>, intake: &mut Option<Id>) -> EndCause {
    loop {
        match parts.join_next_with_id().await {
            Some(Ok((id, cause))) => {
                if *intake == Some(id) {
                    *intake = None;
                }
                if let Some(cause) = cause {
                    return cause;
                }
            }
            Some(Err(error)) => {
                if *intake == Some(error.id()) {
                    *intake = None;
                }
                return EndCause::Broken(error.to_string());
            }
            None => return EndCause::Broken("nothing is left of the connection".to_owned()),
        }
    }
}

/// Lets the intake deliver what the agent wrote before it exited.
///
/// The pipe ends with the agent's tree. Should something have escaped and hold it open, a grace of silence ends it;
/// an owner that is behind is waited for.
async fn finish_output(own: &mut Supervised, parts: &mut JoinSet<Option<EndCause>>, intake: &mut Option<Id>) {
    if let Some(process) = own.process.as_mut() {
        // Only stdout may have been closed; then the process gets its grace like any other.
        if tokio::time::timeout(own.grace, process.exited()).await.is_ok() {
            process.unleash();
        }
    }
    while intake.is_some() {
        tokio::select! {
            biased;
            () = own.closing.cancelled() => return,
            _ = first_end(parts, intake) => {}
            () = tokio::time::sleep(own.grace) => if !own.publisher.is_waiting() { return },
        }
    }
}

/// Waits for every part but the intake.
async fn drain(parts: &mut JoinSet<Option<EndCause>>, mut intake: Option<Id>) {
    while parts.len() > usize::from(intake.is_some()) {
        match parts.join_next_with_id().await {
            Some(Ok((id, _))) if intake == Some(id) => intake = None,
            Some(Err(error)) if intake == Some(error.id()) => intake = None,
            Some(_) => {}
            None => return,
        }
    }
}
