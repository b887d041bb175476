//! Hears of each call that may change files, and has its line in the record before the call runs and after it came back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use convoke_stdx::{Clock, cut};
use convoke_tools::{FileWatch, WatchTicket, Workspace, WritingCall};
use tokio_util::task::TaskTracker;

use super::SnapshotBounds;
use super::blobs::Blobs;
use super::ledger::{Begun, Ledger};
use super::timeline::{Effect, EffectKind, FilesLine, unfinished};
use crate::record::Recorder;

/// Bytes of a command in a line of the record, where people read it.
const WHAT_BYTES_MAX: usize = 200;

/// The tool whose effects are those of a command.
const SHELL: &str = "run_shell_command";

/// Keeps what the calls of one session and of its subagents change.
#[derive(Clone)]
pub(crate) struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Mutex<Ledger>,
    recorder: Recorder,
    clock: Clock,
    /// What the record left unfinished, until it is looked at.
    left: Mutex<Vec<FilesLine>>,
    looks: TaskTracker,
}

impl Keeper {
    /// Keeps the files of `workspace`. `past` is what the record says of them so far.
    pub(crate) fn new(
        workspace: Workspace,
        recorder: Recorder,
        bounds: SnapshotBounds,
        past: &[FilesLine],
    ) -> Option<Self> {
        let blobs = Blobs::new(recorder.rewind_folder()?.join("blobs"));
        let left = unfinished(past).into_iter().cloned().collect();
        let inner = Inner {
            ledger: Mutex::new(Ledger::new(workspace, blobs, bounds)),
            recorder,
            clock: Clock::start(),
            left: Mutex::new(left),
            looks: TaskTracker::new(),
        };
        Some(Self { inner: Arc::new(inner) })
    }

    /// The turn is over: calls that were dropped are done now, whatever they changed.
    pub(crate) async fn settle(&self) {
        self.run(|inner| inner.settle(true)).await;
    }

    /// Calls that were running when a process before this one was killed are done now.
    pub(crate) async fn settle_past(&self) {
        self.run(|inner| inner.settle(false)).await;
    }

    /// Waits for looks that nobody waits for any more.
    pub(crate) async fn close(&self) {
        self.settle().await;
        self.inner.looks.close();
        self.inner.looks.wait().await;
    }

    /// Does something with what is known, while no call begins or ends. Blocks.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Ledger, u64) -> T) -> T {
        let now_ms = self.inner.clock.now().wall_ms;
        work(&mut self.inner.ledger(), now_ms)
    }

    async fn run(&self, work: impl FnOnce(&Inner) + Send + 'static) {
        let inner = Arc::clone(&self.inner);
        // Whoever stops waiting leaves the look to its end, which is bounded by the number of files.
        if let Err(error) = self.inner.looks.spawn_blocking(move || work(&inner)).await {
            tracing::warn!(%error, "the files of a call could not be looked at");
        }
    }
}

impl Inner {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A panic leaves knowledge that the next look puts right.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what no call will end: of the past, and, at the end of a turn, of this process.
    fn settle(&self, turn_over: bool) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        let mut ledger = self.ledger();
        for begun in left {
            let changes = ledger.finish(&begun, self.clock.now().wall_ms);
            self.recorder.files(FilesLine { end: begun.begin, changes, unsure: true, ..FilesLine::default() });
        }
        for call in if turn_over { ledger.open_calls() } else { Vec::new() } {
            self.end(&mut ledger, &call);
        }
    }

    fn begin(&self, call: WritingCall, ticket: &str) {
        self.settle(false);
        let mut ledger = self.ledger();
        let anything = call.files.is_none();
        let Begun { changes, mut line, unwatched } = ledger.begin(ticket, call.files, self.clock.now().wall_ms);
        if !changes.is_empty() {
            self.recorder.files(FilesLine { changes, ..FilesLine::default() });
        }
        if anything {
            let kind = match call.tool.as_str() {
                _ if unwatched => EffectKind::Unwatched,
                SHELL => EffectKind::Command,
                _ => EffectKind::Tool,
            };
            let what = if call.tool == SHELL { call.what } else { format!("{} {}", call.tool, call.what) };
            let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
            line.effect = Some(Effect { kind, what: cut::head(&what, WHAT_BYTES_MAX).to_owned() });
        }
        self.recorder.files(line);
    }

    fn end(&self, ledger: &mut Ledger, call: &str) {
        let Some(changes) = ledger.end(call, self.clock.now().wall_ms) else { return };
        let lines = Some(ledger.lines(&changes)).filter(|lines| *lines != (0, 0));
        self.recorder.files(FilesLine { end: Some(call.to_owned()), changes, lines, ..FilesLine::default() });
    }
}

#[async_trait]
impl FileWatch for Keeper {
    async fn before(&self, call: WritingCall) -> WatchTicket {
        let ticket = uuid::Uuid::new_v4().simple().to_string();
        let name = ticket.clone();
        self.run(move |inner| inner.begin(call, &name)).await;
        WatchTicket(ticket)
    }

    async fn after(&self, ticket: WatchTicket) {
        self.run(move |inner| inner.end(&mut inner.ledger(), &ticket.0)).await;
    }
}
