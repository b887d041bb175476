//! `--on-ask`: what becomes of a question when nobody sits there?
//!
//! `deny` has policy refuse before it comes to a question. `fail` ends the run at the first call that is refused. `wait`
//! writes the question as a line and waits for a line with the answer, within bounds: it is never silent, and never for ever.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use convoke_protocol::{PermissionContent, PermissionOutcome, PermissionPort, PermissionRequest};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot};

use super::stream_json;

/// Nobody can be asked: policy denies before it would come to that, and this is the answer if it ever does.
pub(super) struct Nobody;

#[async_trait]
impl PermissionPort for Nobody {
    async fn request(&self, _: PermissionRequest) -> PermissionOutcome {
        PermissionOutcome::Cancelled
    }
}

/// A question ends the run: it is told, and never answered.
#[derive(Default)]
pub(super) struct Refuser {
    refused: Mutex<Option<String>>,
    told: Notify,
}

impl Refuser {
    /// What was asked. Cancel-safe.
    pub(super) async fn asked(&self) -> String {
        loop {
            if let Some(what) = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return what;
            }
            self.told.notified().await;
        }
    }
}

#[async_trait]
impl PermissionPort for Refuser {
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome {
        let what = format!("a call of {} was refused: nobody can be asked ({})", request.tool_name, request.title);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        self.told.notify_one();
        // The run ends by it; an answer would let it go on meanwhile.
        std::future::pending().await
    }
}

/// Asks with a line on stdout, and waits for a line on stdin.
pub(super) struct Asker {
    /// How long one question waits.
    patience: Duration,
    pending: Mutex<Pending>,
    /// Who writes questions among the events of the running prompt; without one they are written as they come.
    desk: Mutex<Option<mpsc::Sender<Question>>>,
}

/// A question on its way to stdout.
pub(super) struct Question {
    fields: Value,
    written: oneshot::Sender<io::Result<()>>,
}

impl Question {
    pub(super) fn write(self) {
        let written = stream_json::line("permission_request", self.fields);
        // Whoever asked may have gone meanwhile.
        let _ = self.written.send(written);
    }
}

/// Questions that wait to be written: as many as calls of one answer that ask at once.
const QUESTIONS_MAX: usize = 64;

/// Questions that are open: at most one for each call of an answer, which the scheduler bounds.
#[derive(Default)]
struct Pending {
    asked: u64,
    open: HashMap<String, oneshot::Sender<PermissionOutcome>>,
    /// Nobody writes answers any more.
    closed: bool,
}

impl Asker {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, pending: Mutex::default(), desk: Mutex::default() }
    }

    /// Questions come here until this is dropped or opened again.
    pub(super) fn open_desk(&self) -> mpsc::Receiver<Question> {
        let (desk, questions) = mpsc::channel(QUESTIONS_MAX);
        *self.desk.lock().unwrap_or_else(PoisonError::into_inner) = Some(desk);
        questions
    }

    async fn write(&self, fields: Value) -> io::Result<()> {
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(desk) = desk {
            let (written, done) = oneshot::channel();
            if desk.try_send(Question { fields: fields.clone(), written }).is_ok()
                && let Ok(written) = done.await
            {
                return written;
            }
        }
        stream_json::line("permission_request", fields)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer came. `Err` says what is wrong with it.
    pub(super) fn answer(&self, request_id: &str, option_id: Option<String>) -> Result<(), String> {
        let outcome =
            option_id.map_or(PermissionOutcome::Cancelled, |option_id| PermissionOutcome::Selected { option_id });
        let waiting = self.pending().open.remove(request_id);
        let waiting = waiting.ok_or_else(|| format!("nothing waits for an answer to request \"{request_id}\""))?;
        // It may have been withdrawn at this moment.
        let _ = waiting.send(outcome);
        Ok(())
    }

    /// No answer will come any more.
    pub(super) fn close(&self) {
        let mut pending = self.pending();
        pending.closed = true;
        // Dropping the senders is the answer.
        pending.open.clear();
    }

    fn ask(&self) -> Option<(String, oneshot::Receiver<PermissionOutcome>)> {
        let mut pending = self.pending();
        if pending.closed {
            return None;
        }
        pending.asked += 1;
        let id = format!("ask-{}", pending.asked);
        let (sender, receiver) = oneshot::channel();
        pending.open.insert(id.clone(), sender);
        Some((id, receiver))
    }
}

#[async_trait]
impl PermissionPort for Asker {
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome {
        let Some((id, answer)) = self.ask() else { return PermissionOutcome::Cancelled };
        if self.write(question(&id, &request, self.patience)).await.is_err() {
            self.pending().open.remove(&id);
            return PermissionOutcome::Cancelled;
        }
        let (outcome, why) = match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(outcome)) => (outcome, None),
            Ok(Err(_)) => (PermissionOutcome::Cancelled, Some("stdin ended")),
            Err(_) => (PermissionOutcome::Cancelled, Some("timeout")),
        };
        self.pending().open.remove(&id);
        let resolved = match &outcome {
            PermissionOutcome::Selected { option_id } => {
                json!({"request_id": id, "outcome": "selected", "option_id": option_id})
            }
            PermissionOutcome::Cancelled => json!({"request_id": id, "outcome": "cancelled", "reason": why}),
        };
        // A reader who is gone will be noticed by whoever writes the next event.
        let _ = stream_json::line("permission_resolved", resolved);
        outcome
    }
}

fn question(id: &str, request: &PermissionRequest, patience: Duration) -> Value {
    let content: Vec<Value> = request
        .content
        .iter()
        .map(|content| match content {
            PermissionContent::Text(text) => json!({"type": "text", "text": text}),
            PermissionContent::Diff { path, old_text, new_text } => {
                json!({"type": "diff", "path": path, "old_text": old_text, "new_text": new_text})
            }
        })
        .collect();
    let options = request.options.iter();
    let options: Vec<Value> = options
        .map(|option| json!({"option_id": option.option_id, "name": option.name, "kind": option.kind}))
        .collect();
    json!({
        "request_id": id,
        "tool_id": request.tool_call_id,
        "tool_name": request.tool_name,
        "title": request.title,
        "parameters": request.raw_input,
        "content": content,
        "options": options,
        "timeout_ms": u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
    })
}
