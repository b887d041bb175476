//! How much may one prompt cost? Tokens are counted as they are told; time runs only while nobody is asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{Event, InvocationContext, Plugin, PluginError, StopReason};
use convoke_protocol::{PermissionOutcome, PermissionPort, PermissionRequest, QuestionOutcome, QuestionRequest};
use convoke_stdx::{Clock, Tick};
use tokio::sync::Notify;

/// The code of a prompt that used up its tokens.
pub(crate) const MAX_BUDGET: &str = "MAX_TOKENS_PER_PROMPT_EXCEEDED";
/// And its time.
pub(crate) const MAX_TIME: &str = "MAX_TIME_PER_PROMPT_EXCEEDED";

/// Bounds of one prompt beside the number of its model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptLimits {
    /// Most tokens, sent and received, of all its model calls.
    pub tokens: Option<u64>,
    /// Longest time, without the time in which a person was asked.
    pub time: Option<Duration>,
}

/// Ends an invocation whose model calls cost too much.
pub(crate) struct BudgetPlugin {
    limit: u64,
    /// Of the running prompt.
    used: Arc<AtomicU64>,
}

impl BudgetPlugin {
    pub(crate) fn new(limit: u64, used: Arc<AtomicU64>) -> Self {
        Self { limit, used }
    }
}

#[async_trait]
impl Plugin for BudgetPlugin {
    fn name(&self) -> &'static str {
        "token-budget"
    }

    async fn on_event(&self, cx: &InvocationContext, event: &Event) -> Result<Option<Event>, PluginError> {
        let Some(usage) = event.usage.as_ref().filter(|_| !event.partial) else { return Ok(None) };
        let counted = usage.prompt_token_count + usage.candidates_token_count + usage.thoughts_token_count;
        let used = self.used.fetch_add(counted, Ordering::Relaxed) + counted;
        // An answer that is the last one anyway was paid for, and is given.
        if used > self.limit && !event.is_final_response() {
            let message = format!("the prompt has used {used} tokens, and {} are its limit", self.limit);
            cx.stop.request(StopReason { code: MAX_BUDGET.to_owned(), message });
        }
        Ok(None)
    }
}

/// A clock that stands still while a person is asked. Clones are the same clock.
#[derive(Clone)]
pub(crate) struct Stopwatch(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// What it had shown when it was stopped last.
    shown: Duration,
    /// Since when it runs; `None` while it stands still.
    since: Option<Tick>,
    /// Questions that are open.
    open: u32,
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { clock: Clock::start(), state: Mutex::default(), changed: Notify::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins at zero.
    pub(crate) fn restart(&self) {
        let now = self.0.clock.now().tick;
        let mut state = self.state();
        state.shown = Duration::ZERO;
        state.since = (state.open == 0).then_some(now);
    }

    fn shown(&self) -> (Duration, bool) {
        let now = self.0.clock.now().tick;
        let state = self.state();
        let running = state.since.map_or(Duration::ZERO, |since| now.since(since));
        (state.shown + running, state.since.is_some())
    }

    /// Stands still until the value is dropped.
    fn pause(&self) -> Pause {
        let now = self.0.clock.now().tick;
        let mut state = self.state();
        state.open += 1;
        if let Some(since) = state.since.take() {
            state.shown += now.since(since);
        }
        self.0.changed.notify_waiters();
        Pause(self.clone())
    }

    /// Waits until it shows `limit`.
    pub(crate) async fn reaches(&self, limit: Duration) {
        loop {
            let changed = self.0.changed.notified();
            let (shown, running) = self.shown();
            let Some(left) = limit.checked_sub(shown).filter(|left| !left.is_zero()) else { return };
            if running {
                // Whether it went on running is seen afterwards.
                let _ = tokio::time::timeout(left, changed).await;
            } else {
                changed.await;
            }
        }
    }
}

struct Pause(Stopwatch);

impl Drop for Pause {
    fn drop(&mut self) {
        let now = self.0.0.clock.now().tick;
        {
            let mut state = self.0.state();
            state.open = state.open.saturating_sub(1);
            if state.open == 0 {
                state.since = Some(now);
            }
        }
        self.0.0.changed.notify_waiters();
    }
}

/// The session's permission port; the clock stands still while it waits.
pub(crate) struct Unhurried {
    pub(crate) inner: Arc<dyn PermissionPort>,
    pub(crate) stopwatch: Stopwatch,
}

#[async_trait]
impl PermissionPort for Unhurried {
    async fn request(&self, request: PermissionRequest) -> PermissionOutcome {
        let _pause = self.stopwatch.pause();
        self.inner.request(request).await
    }

    fn takes_questions(&self) -> bool {
        self.inner.takes_questions()
    }

    async fn ask(&self, question: QuestionRequest) -> QuestionOutcome {
        let _pause = self.stopwatch.pause();
        self.inner.ask(question).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_clock_stands_still_while_somebody_is_asked() {
        let watch = Stopwatch::new();
        watch.restart();
        let first = watch.pause();
        let second = watch.pause();
        let (shown, running) = watch.shown();
        assert!(!running);
        drop(first);
        assert_eq!(watch.shown(), (shown, false));
        let waiting = watch.clone();
        let reached = tokio::spawn(async move { waiting.reaches(shown + Duration::from_millis(20)).await });
        tokio::task::yield_now().await;
        assert!(!reached.is_finished());
        drop(second);
        tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap().unwrap();
        assert!(watch.shown().0 >= shown + Duration::from_millis(20));
        watch.reaches(shown).await;
    }
}
