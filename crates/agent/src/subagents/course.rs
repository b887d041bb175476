//! Sans-IO: when is a subagent's run over, and how did it end?
//!
//! ```text
//! Working ── handed in ──────────────▶ Over(Goal)
//!    ├── no call, turn limit, time up ─▶ Recovering ── handed in ─▶ Over(Goal, recovered from …)
//!    │                                      └── anything else ────▶ Over(what it would have been)
//!    └── aborted, failed ──────────────▶ Over(Aborted | Error)
//! ```
//! Time runs only while nobody is asked anything: a person who thinks costs a subagent nothing. The turn that recovers
//! has a time of its own. Turns are counted by the kernel, which reports when they are used up.
//!
//! Invariants, checked after every step of the tests:
//! - C1: there is a deadline exactly while it works or recovers and nobody is asked.
//! - C2: it recovers at most once, and only from a limit or a missing report.
//! - C3: no more time is left than the phase began with.
//! - C4: `Goal` is never claimed without a report, and a recovered one says from what.
//! - C5: what is over stays over.
//!
//! Source: runtime specification §12.4.

use std::time::Duration;

use convoke_stdx::Tick;

/// How a run ended; [`Self::as_str`] is the name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// It handed in its report.
    Goal,
    /// It used up its turns.
    MaxTurns,
    /// It used up its time.
    Timeout,
    /// Somebody stopped it.
    Aborted,
    /// It stopped without a report.
    NoCompleteTaskCall,
    /// Something failed.
    Error,
}

impl Mode {
    /// The name in the specification.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Goal => "GOAL",
            Self::MaxTurns => "MAX_TURNS",
            Self::Timeout => "TIMEOUT",
            Self::Aborted => "ABORTED",
            Self::NoCompleteTaskCall => "ERROR_NO_COMPLETE_TASK_CALL",
            Self::Error => "ERROR",
        }
    }
}

/// How an invocation of the kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The model has nothing more to do.
    Silent,
    /// The kernel's limit of model calls.
    TurnLimit,
    /// [`Course::is_time_up`] was heeded.
    TimeUp,
    /// Somebody stopped it.
    Aborted,
    /// It failed.
    Failed,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The run begins. Once.
    Begin,
    /// A person is asked something, by this agent or by one that it called.
    Asked,
    /// A question was answered or withdrawn.
    Settled,
    /// The report was handed in.
    HandedIn,
    /// An invocation ended.
    Ended(Ended),
}

/// What follows an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// One more turn, to hand in what there is; this limit was met.
    Recover(Mode),
    /// The run is over.
    Over {
        /// How.
        mode: Mode,
        /// The limit that it met before it handed in its report after all.
        recovered_from: Option<Mode>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Working,
    Recovering(Mode),
    Over { mode: Mode, recovered_from: Option<Mode> },
}

/// Bounds of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For the task.
    pub(crate) timeout: Duration,
    /// For the turn that recovers.
    pub(crate) grace: Duration,
}

/// The course of one run.
#[derive(Debug)]
pub(crate) struct Course {
    limits: Limits,
    phase: Phase,
    asked: u32,
    handed_in: bool,
    /// What was left of the phase's time at `since`.
    left: Duration,
    /// Since when time runs; `None` while it does not.
    since: Option<Tick>,
    recoveries: u32,
}

impl Course {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            phase: Phase::Ready,
            asked: 0,
            handed_in: false,
            left: limits.timeout,
            since: None,
            recoveries: 0,
        }
    }

    /// Takes one step; a verdict follows each end of an invocation.
    pub(crate) fn handle(&mut self, now: Tick, input: Input) -> Option<Verdict> {
        match input {
            Input::Begin => {
                if self.phase == Phase::Ready {
                    self.enter(now, Phase::Working, self.limits.timeout);
                }
                None
            }
            Input::Asked => {
                self.stop_clock(now);
                self.asked = self.asked.saturating_add(1);
                None
            }
            Input::Settled => {
                self.asked = self.asked.saturating_sub(1);
                self.start_clock(now);
                None
            }
            Input::HandedIn => {
                self.handed_in |= self.is_running();
                None
            }
            Input::Ended(ended) => Some(self.ended(now, ended)),
        }
    }

    fn ended(&mut self, now: Tick, ended: Ended) -> Verdict {
        let met = match ended {
            Ended::Silent => Mode::NoCompleteTaskCall,
            Ended::TurnLimit => Mode::MaxTurns,
            Ended::TimeUp => Mode::Timeout,
            Ended::Aborted => return self.over(now, Mode::Aborted),
            Ended::Failed if !self.handed_in => return self.over(now, Mode::Error),
            Ended::Failed => Mode::Error,
        };
        if self.handed_in && self.is_running() {
            return self.over(now, Mode::Goal);
        }
        match self.phase {
            Phase::Working => {
                self.recoveries += 1;
                self.enter(now, Phase::Recovering(met), self.limits.grace);
                Verdict::Recover(met)
            }
            // What it met first is the truth; that the last turn did not help either adds nothing to it.
            Phase::Recovering(first) => self.over(now, first),
            Phase::Ready | Phase::Over { .. } => self.over(now, Mode::Error),
        }
    }

    fn over(&mut self, now: Tick, mode: Mode) -> Verdict {
        self.stop_clock(now);
        let (mode, recovered_from) = match self.phase {
            Phase::Over { mode, recovered_from } => (mode, recovered_from),
            Phase::Recovering(first) if mode == Mode::Goal => (mode, Some(first)),
            Phase::Ready | Phase::Working | Phase::Recovering(_) => (mode, None),
        };
        self.phase = Phase::Over { mode, recovered_from };
        Verdict::Over { mode, recovered_from }
    }

    fn enter(&mut self, now: Tick, phase: Phase, time: Duration) {
        self.stop_clock(now);
        self.phase = phase;
        self.left = time;
        self.start_clock(now);
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Working | Phase::Recovering(_))
    }

    /// Whether this is the turn that recovers.
    pub(crate) fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovering(_))
    }

    fn start_clock(&mut self, now: Tick) {
        if self.is_running() && self.asked == 0 && self.since.is_none() {
            self.since = Some(now);
        }
    }

    fn stop_clock(&mut self, now: Tick) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(now.since(since));
        }
    }

    /// When time will be up, if nothing else happens.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        Some(self.since?.after(self.left))
    }

    /// Whether the running invocation has to end.
    pub(crate) fn is_time_up(&self, now: Tick) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// How the run ended, once it did.
    pub(crate) fn outcome(&self) -> Option<(Mode, Option<Mode>)> {
        match self.phase {
            Phase::Over { mode, recovered_from } => Some((mode, recovered_from)),
            Phase::Ready | Phase::Working | Phase::Recovering(_) => None,
        }
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        assert_eq!(self.next_deadline().is_some(), self.is_running() && self.asked == 0, "C1 {self:?}");
        assert!(self.recoveries <= 1, "C2 {self:?}");
        let budget = if self.recoveries == 0 { self.limits.timeout } else { self.limits.grace };
        assert!(self.left <= budget, "C3 {self:?}");
        if let Phase::Over { mode, recovered_from } = self.phase {
            assert!(mode != Mode::Goal || self.handed_in, "C4 {self:?}");
            assert!(recovered_from.is_none() || mode == Mode::Goal, "C4 {self:?}");
            assert_eq!(mode == Mode::Goal && self.recoveries == 1, recovered_from.is_some(), "C4 {self:?}");
        }
    }
}

#[cfg(test)]
mod tests;
