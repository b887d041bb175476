//! One connection with one client: its pipes, its methods, its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol as sdk;
use convoke_protocol::SessionFactory;
use futures::channel::mpsc::{Sender, UnboundedSender, channel};
use futures::{SinkExt, Stream, StreamExt};
use sdk::{RawJsonRpcMessage, TransportFrame};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::lines::{Line, Lines};
use crate::rpc_error::{INTERNAL, INVALID_REQUEST, RpcError};
use crate::wire::{self, Open};

use super::abilities::Abilities;
use super::desk::Desk;
use super::methods;
use super::outbox::{Client, Credits, Outbox, UPDATE};

/// Requests and notifications on their way to their session. A client that sends more at once is told to wait.
const INCOMING_MAX: usize = 1024;

/// The longest line of a client: a prompt with some images in base64.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long the end waits for a client that may have stopped reading.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Why a connection could not be served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The client's messages can't be read.
    #[error("read from the client")]
    Read(#[source] io::Error),
    /// The protocol's machinery failed.
    #[error("serve the client: {0}")]
    Broken(RpcError),
}

/// Serves sessions of `factory` to the ACP client on stdin and stdout.
///
/// Ends like [`serve`]. A read of stdin can't be interrupted: after `shutdown`, end the process or shut the runtime down
/// in the background.
pub async fn serve_stdio(factory: Arc<dyn SessionFactory>, shutdown: CancellationToken) -> Result<(), ServeError> {
    serve(factory, tokio::io::stdin(), tokio::io::stdout(), shutdown).await
}

/// Serves sessions of `factory` to the ACP client that writes `input` and reads `output`, one JSON-RPC message a line.
///
/// Returns once the client closed `input`, stopped reading `output`, or `shutdown` is cancelled, and all sessions are
/// closed: running turns are aborted, open questions answered as cancelled. Source: ACP v1; runtime specification §17.
pub async fn serve(
    factory: Arc<dyn SessionFactory>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let (ours, theirs) = sdk::Channel::duplex();
    let credits = Credits::new();
    let open = Arc::new(Open::default());
    let stop = shutdown.child_token();
    let over = stop.clone();
    let mut pipes = JoinSet::new();
    // One answer at a time: the next line is read when it is on its way.
    let (asides, beside) = channel(1);
    pipes.spawn(read(input, ours.tx, asides, Arc::clone(&open), stop.clone()));
    let said = futures::stream::select(ours.rx, beside);
    pipes.spawn(write(said, output, open, credits.clone(), stop.clone()));
    let (incoming, requests) = mpsc::channel(INCOMING_MAX);
    let abilities = Abilities::default();
    let served = methods::connection(Arc::clone(&factory), abilities.clone(), incoming)
        .connect_with(theirs, async move |client: Client| {
            let outbox = Outbox::new(client, credits);
            Desk::new(factory, outbox, abilities).run(requests, stop).await;
            Ok(())
        })
        .await;
    let mut result = served.map_err(|error| ServeError::Broken(error.into()));
    over.cancel();
    // The last answers go out, if the client takes them.
    let flushed = tokio::time::timeout(FLUSH_MAX, async {
        while let Some(ended) = pipes.join_next().await {
            match ended {
                Ok(Err(error)) => result = Err(error),
                Ok(Ok(())) => {}
                Err(error) => result = Err(ServeError::Broken(RpcError::new(INTERNAL, error.to_string()))),
            }
        }
    });
    if flushed.await.is_err() {
        tracing::debug!("the client does not read; what was left for it is lost");
    }
    result
}

/// Reads the client's messages until it closes the pipe or `stop`; either way the end is near.
async fn read(
    input: impl AsyncRead + Unpin,
    to_sdk: UnboundedSender<TransportFrame>,
    mut asides: Sender<TransportFrame>,
    open: Arc<Open>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let _stop = stop.clone().drop_guard();
    let mut lines = Lines::new(input, LINE_BYTES_MAX);
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = stop.cancelled() => return Ok(()),
        };
        let line = match line {
            Ok(Line::Bytes(line)) => line,
            Ok(Line::End) => return Ok(()),
            Ok(Line::TooLong) => {
                // Whose id is somewhere in what was not read.
                let refused = async {
                    let told = asides.send(TransportFrame::parse_json(&too_long())).await;
                    told.is_ok() && lines.skip().await.is_ok()
                };
                tokio::select! {
                    true = refused => continue,
                    () = stop.cancelled() => return Ok(()),
                    else => return Ok(()),
                }
            }
            Err(error) => return Err(ServeError::Read(error)),
        };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let frame = TransportFrame::parse_json(&String::from_utf8_lossy(&line));
        let welcome = match &frame {
            TransportFrame::Single(message) => tokio::select! {
                welcome = open.incoming(message) => welcome,
                () = stop.cancelled() => return Ok(()),
            },
            // The SDK answers it.
            _ => true,
        };
        if welcome && to_sdk.unbounded_send(frame).is_err() {
            return Ok(());
        }
    }
}

/// The answer to a message that is longer than any honest one.
pub(super) fn too_long() -> String {
    let message = format!("a message of more than {LINE_BYTES_MAX} bytes can't be read");
    let error = json!({"code": INVALID_REQUEST, "message": message});
    json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string()
}

async fn write(
    frames: impl Stream<Item = TransportFrame>,
    output: impl AsyncWrite + Unpin,
    open: Arc<Open>,
    credits: Credits,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let stop = stop.drop_guard();
    let mut frames = std::pin::pin!(frames.inspect(|frame| {
        if let TransportFrame::Single(message) = frame {
            open.outgoing(message);
        }
    }));
    let written = |frame: &TransportFrame| {
        if let TransportFrame::Single(RawJsonRpcMessage::Notification(notification)) = frame
            && &*notification.method == UPDATE
        {
            credits.give_back();
        }
    };
    let gone = wire::write_frames(frames.as_mut(), output, written).await.is_err();
    credits.close();
    drop(stop);
    // A client that stopped reading is a client that left, which is no failure: what is said meanwhile goes nowhere.
    while gone && frames.next().await.is_some() {}
    Ok(())
}
