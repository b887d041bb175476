//! The shell around a run's course: its clock, the report that it waits for, and the words that it puts to the model.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use convoke_protocol::StreamEndReason;
use convoke_stdx::Clock;
use serde_json::Value;
use tokio::sync::Notify;

use super::complete_task::COMPLETE_TASK;
use super::course::{Course, Ended, Input, Limits, Mode, Verdict};
use crate::protocol::{Ending, Guide, Next};
use crate::told;

/// Guides one run.
pub(crate) struct RunGuide {
    name: String,
    run: String,
    clock: Clock,
    course: Mutex<Course>,
    changed: Notify,
    report: Mutex<Option<Value>>,
    turns: AtomicU32,
    /// The run that called this one: while somebody is asked here, it waits as well.
    caller: Option<Arc<RunGuide>>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) struct RunOutcome {
    pub(crate) mode: Mode,
    pub(crate) recovered_from: Option<Mode>,
    pub(crate) report: Option<Value>,
    pub(crate) turns: u32,
}

impl RunGuide {
    pub(crate) fn new(name: &str, run: &str, limits: Limits, caller: Option<Arc<Self>>) -> Self {
        Self {
            name: name.to_owned(),
            run: run.to_owned(),
            clock: Clock::start(),
            course: Mutex::new(Course::new(limits)),
            changed: Notify::new(),
            report: Mutex::default(),
            turns: AtomicU32::new(0),
            caller,
        }
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        // Each step is complete before anything can panic.
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, input: Input) -> Option<Verdict> {
        let verdict = self.course().handle(self.clock.now().tick, input);
        self.changed.notify_waiters();
        verdict
    }

    /// Time begins to run.
    pub(crate) fn begin(&self) {
        self.step(Input::Begin);
    }

    /// Takes the report, if there is none yet.
    pub(crate) fn hand_in(&self, report: Value) -> bool {
        let mut held = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return false;
        }
        *held = Some(report);
        drop(held);
        self.step(Input::HandedIn);
        true
    }

    /// Whether there is a report.
    pub(crate) fn has_report(&self) -> bool {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether this is the last turn, which may do nothing but hand in.
    pub(crate) fn is_recovering(&self) -> bool {
        self.course().is_recovering()
    }

    /// The model is called.
    pub(crate) fn count_turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// A person is asked, until the guard goes: time stands still here and in every run that waits for this one.
    pub(crate) fn asking(self: &Arc<Self>) -> Asking {
        let guard = Asking(Arc::clone(self));
        guard.for_all(Input::Asked);
        guard
    }

    /// How the run ended; a run that never came to its end failed.
    pub(crate) fn outcome(&self) -> RunOutcome {
        let (mode, recovered_from) = self.course().outcome().unwrap_or((Mode::Error, None));
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let report = report.filter(|_| mode == Mode::Goal);
        RunOutcome { mode, recovered_from, report, turns: self.turns.load(Ordering::Relaxed) }
    }

    fn demand(met: Mode) -> String {
        let why = match met {
            Mode::MaxTurns => "You have used up your turns.",
            Mode::Timeout => "Your time is up.",
            _ => "You stopped without handing in a report.",
        };
        format!(
            "{why} This is your last turn: call `{COMPLETE_TASK}` now, and nothing else, with the best report that you \
             can give of what you know and did. Say what is unfinished."
        )
    }
}

/// A question is open. Dropping it says that it is not any more.
pub(crate) struct Asking(Arc<RunGuide>);

impl Asking {
    fn for_all(&self, input: Input) {
        let mut guide = Some(&self.0);
        while let Some(one) = guide {
            one.step(input);
            guide = one.caller.as_ref();
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.for_all(Input::Settled);
    }
}

#[async_trait]
impl Guide for RunGuide {
    async fn time_up(&self) {
        loop {
            let changed = self.changed.notified();
            futures::pin_mut!(changed);
            changed.as_mut().enable();
            let (up, deadline) = {
                let course = self.course();
                (course.is_time_up(self.clock.now().tick), course.next_deadline())
            };
            if up {
                return;
            }
            match deadline {
                None => changed.await,
                Some(tick) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(self.clock.instant_of(tick).into()) => {}
                },
            }
        }
    }

    fn ended(&self, ending: Ending) -> Next {
        let ended = match ending.reason {
            StreamEndReason::Completed | StreamEndReason::MaxBudget if ending.data.contains_key("code") => {
                Ended::Failed
            }
            StreamEndReason::Completed | StreamEndReason::MaxBudget => Ended::Silent,
            StreamEndReason::MaxTurns => Ended::TurnLimit,
            StreamEndReason::MaxTime => Ended::TimeUp,
            StreamEndReason::Aborted => Ended::Aborted,
            StreamEndReason::Failed | StreamEndReason::Refusal => Ended::Failed,
        };
        match self.step(Input::Ended(ended)) {
            Some(Verdict::Recover(met)) => {
                told::recovering(&self.run, &self.name, met.as_str());
                Next::Again(Self::demand(met))
            }
            Some(Verdict::Over { mode, recovered_from }) => Next::End(end(mode, recovered_from, ending)),
            None => Next::End(ending),
        }
    }
}

/// A run's end as its thread's. Source: runtime specification §1.9.
fn end(mode: Mode, recovered_from: Option<Mode>, last: Ending) -> Ending {
    let reason = match mode {
        Mode::Goal => StreamEndReason::Completed,
        Mode::Timeout => StreamEndReason::MaxTime,
        Mode::MaxTurns => StreamEndReason::MaxTurns,
        Mode::Aborted => StreamEndReason::Aborted,
        Mode::Error | Mode::NoCompleteTaskCall => StreamEndReason::Failed,
    };
    let ending = Ending { reason, data: last.data }.with("terminateReason", mode.as_str());
    match recovered_from {
        Some(from) => ending.with("recoveredFrom", from.as_str()),
        None => ending,
    }
}
