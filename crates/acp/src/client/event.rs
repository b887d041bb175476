//! What an agent says without being asked, queued for its owner within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use convoke_protocol::SessionId;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::Exit;
use super::permission::PermissionAsk;
use super::served::ClientCall;

/// Events that wait for the owner. A model streams some hundred chunks a second; a second's worth hides its hiccups.
const EVENTS_MAX: usize = 256;

/// Bytes of updates that wait for the owner, unless one line alone may be larger.
const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The size that updates are counted in.
const BYTES_UNIT: usize = 1024;

/// Something that an agent says.
#[derive(Debug)]
pub enum ChildEvent {
    /// `session/update`.
    Update(UpdateEvent),
    /// `session/request_permission`.
    PermissionRequest(Box<PermissionAsk>),
    /// A file or a terminal, if [`AgentOptions::serves`](crate::AgentOptions::serves).
    Call(Box<ClientCall>),
    /// The agent is gone. Comes exactly once, and nothing comes after it.
    Exited(Arc<Exit>),
}

/// One `session/update`, exactly as it was on the wire: unknown kinds and fields are all there.
#[derive(Debug)]
pub struct UpdateEvent {
    /// The session.
    pub session_id: SessionId,
    /// The update: `{"sessionUpdate": …}`.
    pub update: Box<RawValue>,
    /// `_meta` beside the update, if there is any.
    pub meta: Option<Box<RawValue>>,
}

#[derive(Debug)]
struct Queued {
    event: ChildEvent,
    /// Given back when the owner takes the event.
    _bytes: Option<OwnedSemaphorePermit>,
}

/// The owner's end of the queue. Dropping it ends the agent: nobody could answer its questions any more.
///
/// A full queue stops the reading of the agent's output, so read it without waiting for other calls in between.
#[derive(Debug)]
pub struct AgentEvents {
    queue: mpsc::Receiver<Queued>,
    taken: watch::Sender<u64>,
    exited: bool,
    _close: DropGuard,
}

impl AgentEvents {
    /// The next event; `None` after [`ChildEvent::Exited`]. Cancel-safe.
    pub async fn recv(&mut self) -> Option<ChildEvent> {
        if self.exited {
            return None;
        }
        let queued = self.queue.recv().await?;
        Some(self.take(queued))
    }

    /// The next event if there is one already.
    pub fn try_recv(&mut self) -> Option<ChildEvent> {
        let queued = self.queue.try_recv().ok()?;
        Some(self.take(queued))
    }

    fn take(&mut self, queued: Queued) -> ChildEvent {
        self.exited = matches!(queued.event, ChildEvent::Exited(_));
        self.taken.send_modify(|taken| *taken += 1);
        queued.event
    }
}

/// The agent's end of the queue.
#[derive(Clone, Debug)]
pub(super) struct Publisher {
    queue: mpsc::Sender<Queued>,
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    sent: Arc<AtomicU64>,
    taken: watch::Receiver<u64>,
    waiting: Arc<AtomicBool>,
}

/// A place in the queue, kept free for one event.
#[derive(Debug)]
pub(super) struct Slot {
    permit: OwnedPermit<Queued>,
    bytes: Option<OwnedSemaphorePermit>,
    sent: Arc<AtomicU64>,
}

impl Slot {
    pub(super) fn send(self, event: ChildEvent) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.permit.send(Queued { event, _bytes: self.bytes });
    }
}

/// A queue whose owner's end cancels `closing` when it is dropped.
pub(super) fn queue(line_bytes_max: usize, closing: &CancellationToken) -> (Publisher, AgentEvents) {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    let (taken_sender, taken) = watch::channel(0);
    let bytes_max = EVENT_BYTES_MAX.max(line_bytes_max).div_ceil(BYTES_UNIT);
    let events =
        AgentEvents { queue: receiver, taken: taken_sender, exited: false, _close: closing.clone().drop_guard() };
    let publisher = Publisher {
        queue: sender,
        bytes: Arc::new(Semaphore::new(bytes_max)),
        bytes_max,
        sent: Arc::default(),
        taken,
        waiting: Arc::default(),
    };
    (publisher, events)
}

impl Publisher {
    /// Waits for room for one event that took `bytes` on the wire; `None` if the owner is gone. Cancel-safe.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<Slot> {
        let units = u32::try_from(bytes.div_ceil(BYTES_UNIT).min(self.bytes_max)).unwrap_or(u32::MAX);
        let _waiting = Waiting::new(&self.waiting);
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(units).await.ok()?;
        let permit = self.queue.clone().reserve_owned().await.ok()?;
        Some(Slot { permit, bytes: Some(bytes), sent: Arc::clone(&self.sent) })
    }

    /// Whether somebody is in [`Self::reserve`] now: the owner is behind.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Waits until the owner took everything that is queued now, or is gone.
    pub(super) async fn drained(&self) {
        let sent = self.sent.load(Ordering::SeqCst);
        // An error means that the owner is gone.
        let _ = self.taken.clone().wait_for(|taken| *taken >= sent).await;
    }
}

/// Marks a wait for the owner, also when that wait is cancelled.
struct Waiting<'a>(&'a AtomicBool);

impl<'a> Waiting<'a> {
    fn new(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::SeqCst);
        Self(flag)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
