//! What both ends share about the wire: writing frames, and knowing which messages are open.
//!
//! The SDK takes in whatever it is handed. These two keep what it is handed within bounds: a pipe that is not read
//! stops the writer, and a peer that does not wait for answers is not read.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client_protocol as sdk;
use futures::{Stream, StreamExt};
use sdk::{RawJsonRpcId, RawJsonRpcMessage, TransportFrame};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Requests of the peer that are worked on at once. A session has one prompt and a few small ones, and there are at
/// most a thousand sessions.
const REQUESTS_MAX: usize = 2048;

/// Writes frames as lines until they end, then closes the pipe. `written` is told of each.
pub(crate) async fn write_frames(
    frames: impl Stream<Item = TransportFrame>,
    mut output: impl AsyncWrite + Unpin,
    written: impl Fn(&TransportFrame),
) -> io::Result<()> {
    let mut frames = std::pin::pin!(frames);
    while let Some(frame) = frames.next().await {
        let mut line = frame.to_json().map_err(|error| io::Error::other(error.message))?.into_bytes();
        line.push(b'\n');
        output.write_all(&line).await?;
        output.flush().await?;
        written(&frame);
    }
    output.shutdown().await
}

/// The open messages between a client and us, its agent.
#[derive(Debug, Default)]
pub(crate) struct Open {
    ids: Mutex<Ids>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct Ids {
    theirs: usize,
    ours: HashSet<RawJsonRpcId>,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message that is about to be written.
    pub(crate) fn outgoing(&self, message: &RawJsonRpcMessage) {
        match message {
            RawJsonRpcMessage::Request(request) => _ = self.lock().ours.insert(request.id.clone()),
            RawJsonRpcMessage::Notification(_) => {}
            RawJsonRpcMessage::Response(_) => {
                {
                    let mut ids = self.lock();
                    // Answers to malformed lines were never counted.
                    ids.theirs = ids.theirs.saturating_sub(1);
                }
                self.answered.notify_one();
            }
        }
    }

    /// Notes a message that was read; waits while too many requests are open. `false` for an answer nobody waits for.
    pub(crate) async fn incoming(&self, message: &RawJsonRpcMessage) -> bool {
        match message {
            RawJsonRpcMessage::Request(_) => {
                while self.lock().theirs >= REQUESTS_MAX {
                    self.answered.notified().await;
                }
                self.lock().theirs += 1;
                true
            }
            RawJsonRpcMessage::Notification(_) => true,
            RawJsonRpcMessage::Response(_) => message.response_id().is_some_and(|id| self.lock().ours.remove(id)),
        }
    }
}
