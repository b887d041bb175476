//! Sans-IO: in which order do calls run, which ones together, and what becomes of the rest when one is cancelled?
//!
//! ```text
//! Submit ─▶ batch queue ─▶ active batch: queue of calls ─▶ group (one call, or several that may run together)
//!
//! validating ──Judge──▶ judging ─┬─ Ask ─▶ awaiting_approval ─┐
//!     ▲                          ├─ Allow ───────────────────▶├─▶ scheduled ─▶ executing ─▶ success | error | cancelled
//!     └──── Revise, tail call ───┘ Deny ─▶ error              └─ Refuse ─▶ cancelled, with the rest of the batch
//! ```
//! A group is judged and asked about at once; it starts when every member is scheduled or ended. A cancelled call that
//! is executing gets [`Limits::cancel_grace`] to come back with what it has, then it is dropped.
//!
//! Invariants, checked after every step of the tests:
//! - I1: only calls of the first batch are ever past waiting.
//! - I2: a call that runs alone never executes beside another one.
//! - I3: calls begin in queue order; nothing begins before an earlier call outside of its group has ended.
//! - I4: no call executes while another of its group is being judged or asked about.
//! - I5: a call ends once, and nothing follows its end; a batch is done once, when all its calls have ended.
//! - I6: nothing of a batch begins executing after it was cancelled or a question of it was refused.
//! - I7: batches, calls and groups stay within [`Limits`].
//! - I8: there is a deadline exactly while a cancelled call is still executing.
//! - I9: whenever there is a batch, something is under way: the machine never waits for nothing.

mod batch;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use convoke_stdx::Tick;

use batch::{Batch, Call, State};

/// One call, for as long as its scheduler lives. Minted by the shell; the model's own ids may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey(pub u64);

/// One list of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// How a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Before all others of its batch, alone.
    First,
    /// Beside its neighbours of the same lane.
    Together,
    /// Alone, in order.
    Alone,
}

/// Bounds. Source: runtime specification §6.2 where it gives one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Batches at a time, the active one included. One session has one caller; more are a runaway.
    pub batches_max: usize,
    /// Calls of one batch. Far above any honest answer of a model.
    pub calls_max: usize,
    /// Calls that run together: each may hold files and a blocking thread.
    pub group_max: usize,
    /// Tail calls that one call may lead to, lest two hooks play ping-pong.
    pub tail_calls_max: u32,
    /// How long a cancelled call may take to come back.
    pub cancel_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batches_max: 64,
            calls_max: 256,
            group_max: 16,
            tail_calls_max: 8,
            // Longer than a guarded child gets between TERM and KILL.
            cancel_grace: Duration::from_secs(8),
        }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A list of calls. A `None` lane is a call that can't run; its end was told already.
    Submit {
        /// The list.
        batch: BatchId,
        /// Its calls, in the model's order.
        calls: Vec<(CallKey, Option<Lane>)>,
    },
    /// Hooks and policy came to a verdict.
    Judged {
        /// The call.
        call: CallKey,
        /// The verdict.
        verdict: Verdict,
    },
    /// A question was answered.
    Answered {
        /// The call.
        call: CallKey,
        /// The answer.
        answer: Answer,
    },
    /// A call that executed came back.
    Finished {
        /// The call.
        call: CallKey,
        /// How.
        ending: Ending,
    },
    /// One call is no longer wanted.
    CancelCall {
        /// The call.
        call: CallKey,
    },
    /// A batch is no longer wanted.
    CancelBatch {
        /// The batch.
        batch: BatchId,
    },
    /// Nothing is wanted any more.
    CancelAll,
    /// Time went by.
    Tick,
}

/// What hooks and policy say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run.
    Allow,
    /// A person is to be asked.
    Ask,
    /// It may not, or can't.
    Deny,
}

/// What a person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Run it.
    Proceed,
    /// Run it with other arguments: judge again.
    Revise,
    /// Don't, and nothing after it either.
    Refuse,
}

/// How an execution came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Success,
    /// Not well.
    Error,
    /// It noticed that it was cancelled.
    Cancelled,
    /// With another call to make in its place, which runs next, in this lane.
    Tail(Lane),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Take the call on: it waits.
    Accepted(CallKey),
    /// Run hooks and policy.
    Judge(CallKey),
    /// Ask a person.
    Ask(CallKey),
    /// It is free to run.
    Scheduled(CallKey),
    /// Run it.
    Execute(CallKey),
    /// Tell a running call to stop.
    Interrupt(CallKey),
    /// Drop whatever is under way for the call: a judgement, a question, an execution.
    Drop(CallKey),
    /// It ended.
    Ended {
        /// The call.
        call: CallKey,
        /// How.
        end: End,
    },
    /// All calls of the batch have ended.
    BatchDone(BatchId),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It came back well.
    Success,
    /// It came back not well, or was denied.
    Error,
    /// It executed, was told to stop, and came back.
    Stopped,
    /// It executed, was told to stop, and was dropped when it did not.
    Dropped,
    /// It never ran.
    NeverRan(Reason),
}

/// Why a call never ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its question was refused.
    Refused,
    /// The question of another call of its batch was refused.
    OtherRefused,
    /// It was cancelled by itself.
    Cancelled,
    /// Its batch was cancelled.
    BatchCancelled,
    /// Its batch was cancelled before its turn came.
    CancelledInQueue,
    /// There were too many.
    TooMany,
    /// It was one tail call too many.
    TooManyTailCalls,
}

/// The machine.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    batches: VecDeque<Batch>,
}

impl Scheduler {
    /// A machine with nothing to do.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, batches: VecDeque::new() }
    }

    /// Takes one step. Inputs about calls that have ended are late, and ignored.
    pub fn handle(&mut self, now: Tick, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Submit { batch, calls } => self.submit(batch, calls, out),
            Input::Judged { call, verdict } => self.judged(call, verdict, out),
            Input::Answered { call, answer } => self.answered(call, answer, out),
            Input::Finished { call, ending } => self.finished(call, ending, out),
            Input::CancelCall { call } => {
                let deadline = now.after(self.limits.cancel_grace);
                if let Some(call) = self.call(call) {
                    call.cancel(Reason::Cancelled, deadline, out);
                }
            }
            Input::CancelBatch { batch } => self.cancel(now, |b| b.id == batch, out),
            Input::CancelAll => self.cancel(now, |_| true, out),
            Input::Tick => self.drop_overdue(now, out),
        }
        self.advance(out);
    }

    /// When [`Input::Tick`] is wanted next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        self.batches.iter().flat_map(|batch| &batch.calls).filter_map(Call::deadline).min()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    fn submit(&mut self, batch: BatchId, calls: Vec<(CallKey, Option<Lane>)>, out: &mut Vec<Output>) {
        let room = if self.batches.len() < self.limits.batches_max { self.limits.calls_max } else { 0 };
        let batch = Batch::new(batch, calls, room, out);
        self.batches.push_back(batch);
    }

    fn judged(&mut self, call: CallKey, verdict: Verdict, out: &mut Vec<Output>) {
        let Some(call) = self.call(call).filter(|call| call.state == State::Judging) else { return };
        match verdict {
            Verdict::Allow => call.schedule(out),
            Verdict::Ask => {
                call.state = State::Asking;
                out.push(Output::Ask(call.key));
            }
            Verdict::Deny => call.end(End::Error, out),
        }
    }

    fn answered(&mut self, key: CallKey, answer: Answer, out: &mut Vec<Output>) {
        let Some(call) = self.call(key).filter(|call| call.state == State::Asking) else { return };
        match answer {
            Answer::Proceed => call.schedule(out),
            Answer::Revise => call.judge(out),
            Answer::Refuse => {
                call.end(End::NeverRan(Reason::Refused), out);
                if let Some(batch) = self.batches.front_mut() {
                    batch.refuse_rest(out);
                }
            }
        }
    }

    fn finished(&mut self, key: CallKey, ending: Ending, out: &mut Vec<Output>) {
        let tails_max = self.limits.tail_calls_max;
        let Some(batch) = self.batches.front_mut() else { return };
        let Some(index) = batch.calls.iter().position(|call| call.key == key) else { return };
        let closed = batch.closed;
        let Some(call) = batch.calls.get_mut(index).filter(|call| call.is_executing()) else { return };
        let stopping = call.deadline().is_some();
        match ending {
            Ending::Success => call.end(End::Success, out),
            Ending::Error => call.end(End::Error, out),
            Ending::Cancelled => call.end(End::Stopped, out),
            // What it was to be replaced by is not wanted any more.
            Ending::Tail(_) if stopping || closed => call.end(End::Stopped, out),
            Ending::Tail(_) if call.tails >= tails_max => {
                call.end(End::NeverRan(Reason::TooManyTailCalls), out);
            }
            Ending::Tail(lane) => {
                call.tails += 1;
                call.lane = lane;
                call.state = State::Waiting;
                batch.group.retain(|member| *member != index);
                batch.queue.push_front(index);
            }
        }
    }

    fn cancel(&mut self, now: Tick, wanted: impl Fn(&Batch) -> bool, out: &mut Vec<Output>) {
        let deadline = now.after(self.limits.cancel_grace);
        for (place, batch) in self.batches.iter_mut().enumerate() {
            if wanted(batch) {
                let reason = if place == 0 { Reason::BatchCancelled } else { Reason::CancelledInQueue };
                batch.cancel(reason, deadline, out);
            }
        }
    }

    fn drop_overdue(&mut self, now: Tick, out: &mut Vec<Output>) {
        for call in self.batches.iter_mut().flat_map(|batch| &mut batch.calls) {
            if call.deadline().is_some_and(|deadline| deadline <= now) {
                out.push(Output::Drop(call.key));
                call.end(End::Dropped, out);
            }
        }
    }

    /// Lets everything begin that may: the only place that starts a group, an execution or a batch.
    fn advance(&mut self, out: &mut Vec<Output>) {
        let mut place = 0;
        while let Some(batch) = self.batches.get_mut(place) {
            batch.tidy();
            if place == 0 {
                batch.advance(self.limits.group_max, out);
            }
            if batch.is_done() {
                out.push(Output::BatchDone(batch.id));
                self.batches.remove(place);
            } else {
                place += 1;
            }
        }
    }

    fn call(&mut self, key: CallKey) -> Option<&mut Call> {
        self.batches.iter_mut().flat_map(|batch| &mut batch.calls).find(|call| call.key == key)
    }

    /// Panics if an invariant that can be seen from the state alone does not hold.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        // Refused batches leave at once, so at most one more than allowed was ever there.
        assert!(self.batches.len() <= self.limits.batches_max, "I7");
        for (place, batch) in self.batches.iter().enumerate() {
            batch.check_invariants(place == 0, &self.limits);
        }
        let stopping = self.batches.iter().flat_map(|batch| &batch.calls).any(|call| call.deadline().is_some());
        assert_eq!(self.next_deadline().is_some(), stopping, "I8");
    }
}
