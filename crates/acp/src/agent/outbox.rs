//! Updates to a client, as fast as it reads them and no faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_client_protocol as sdk;
use convoke_protocol::SessionId;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The SDK's handle on the client.
pub(super) type Client = sdk::v1::ConnectionTo<sdk::Client>;

/// Updates that may wait in the SDK's queue, over all sessions. Enough to keep a pipe busy; the rest waits in the
/// sessions' logs.
const UPDATES_MAX: usize = 64;

/// The method of an update.
pub(super) const UPDATE: &str = "session/update";

/// Sends updates. All clones share the same credits.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    client: Client,
    credits: Credits,
}

/// What [`Outbox`] takes and the writer of the connection gives back.
#[derive(Clone, Debug)]
pub(super) struct Credits(Arc<Semaphore>, Arc<AtomicUsize>);

impl Credits {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(UPDATES_MAX)), Arc::default())
    }

    /// An update was written.
    pub(super) fn give_back(&self) {
        let owed = self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |owed| owed.checked_sub(1));
        if owed.is_err() {
            self.0.add_permits(1);
        }
    }

    fn owe(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing will be written any more.
    pub(super) fn close(&self) {
        self.0.close();
    }
}

/// The right to send one update. Dropping it unused gives it back.
pub(super) struct Credit(OwnedSemaphorePermit);

impl Outbox {
    pub(super) fn new(client: Client, credits: Credits) -> Self {
        Self { client, credits }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for the right to send; `None` once the connection is gone. Cancel-safe.
    pub(super) async fn credit(&self) -> Option<Credit> {
        Arc::clone(&self.credits.0).acquire_owned().await.ok().map(Credit)
    }

    pub(super) fn send(&self, credit: Credit, session: &SessionId, update: Value) {
        if self.publish(session, update) {
            // The writer gives it back.
            credit.0.forget();
        }
    }

    /// Sends without waiting for a credit: for the last few updates before an answer that they may not miss.
    pub(super) fn send_now(&self, session: &SessionId, update: Value) {
        let credit = Arc::clone(&self.credits.0).try_acquire_owned();
        match (self.publish(session, update), credit) {
            (true, Ok(credit)) => credit.forget(),
            // The writer will give back one that was never taken.
            (true, Err(_)) => self.credits.owe(),
            (false, _) => {}
        }
    }

    fn publish(&self, session: &SessionId, update: Value) -> bool {
        let params = json!({"sessionId": session, "update": update});
        let message = sdk::UntypedMessage { method: UPDATE.to_owned(), params };
        let sent = self.client.send_notification(message);
        if let Err(error) = &sent {
            tracing::debug!(code = error.code.value(), "an update found no client");
        }
        sent.is_ok()
    }
}
