//! Sans-IO: one list of calls on its way, and the group of it that is under way.

use std::collections::VecDeque;

use convoke_stdx::Tick;

use super::{BatchId, CallKey, End, Lane, Output, Reason};

/// Where a call stands inside the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Judging,
    Asking,
    Scheduled,
    Executing,
    /// Executing, told to stop, and dropped at this tick.
    Stopping(Tick),
    Ended,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) key: CallKey,
    pub(super) lane: Lane,
    pub(super) state: State,
    pub(super) tails: u32,
}

impl Call {
    pub(super) fn is_executing(&self) -> bool {
        matches!(self.state, State::Executing | State::Stopping(_))
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        match self.state {
            State::Stopping(deadline) => Some(deadline),
            State::Waiting | State::Judging | State::Asking | State::Scheduled | State::Executing | State::Ended => {
                None
            }
        }
    }

    pub(super) fn judge(&mut self, out: &mut Vec<Output>) {
        self.state = State::Judging;
        out.push(Output::Judge(self.key));
    }

    pub(super) fn schedule(&mut self, out: &mut Vec<Output>) {
        self.state = State::Scheduled;
        out.push(Output::Scheduled(self.key));
    }

    pub(super) fn end(&mut self, end: End, out: &mut Vec<Output>) {
        self.state = State::Ended;
        out.push(Output::Ended { call: self.key, end });
    }

    pub(super) fn cancel(&mut self, reason: Reason, deadline: Tick, out: &mut Vec<Output>) {
        match self.state {
            State::Waiting | State::Scheduled => self.end(End::NeverRan(reason), out),
            State::Judging | State::Asking => {
                out.push(Output::Drop(self.key));
                self.end(End::NeverRan(reason), out);
            }
            State::Executing => {
                self.state = State::Stopping(deadline);
                out.push(Output::Interrupt(self.key));
            }
            State::Stopping(_) | State::Ended => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    /// In the model's order.
    pub(super) calls: Vec<Call>,
    /// Indices of calls that wait, in the order in which they begin.
    pub(super) queue: VecDeque<usize>,
    /// Indices of calls that are under way together.
    pub(super) group: Vec<usize>,
    /// Nothing more begins.
    pub(super) closed: bool,
}

impl Batch {
    /// A batch of at most `room` calls; the rest end at once.
    pub(super) fn new(id: BatchId, calls: Vec<(CallKey, Option<Lane>)>, room: usize, out: &mut Vec<Output>) -> Self {
        let mut batch = Self { id, calls: Vec::new(), queue: VecDeque::new(), group: Vec::new(), closed: false };
        for (index, (key, lane)) in calls.into_iter().enumerate() {
            out.push(Output::Accepted(key));
            let mut call = Call { key, lane: lane.unwrap_or(Lane::Alone), state: State::Waiting, tails: 0 };
            match lane {
                _ if index >= room => call.end(End::NeverRan(Reason::TooMany), out),
                None => call.end(End::Error, out),
                Some(_) => batch.queue.push_back(index),
            }
            batch.calls.push(call);
        }
        // A stable sort: calls of equal standing keep the model's order.
        let calls = &batch.calls;
        batch.queue.make_contiguous().sort_by_key(|index| calls.get(*index).is_none_or(|c| c.lane != Lane::First));
        batch
    }

    pub(super) fn is_done(&self) -> bool {
        self.calls.iter().all(|call| call.state == State::Ended)
    }

    /// One question was refused: whatever has not begun ends.
    pub(super) fn refuse_rest(&mut self, out: &mut Vec<Output>) {
        self.closed = true;
        for call in self.calls.iter_mut().filter(|call| !call.is_executing()) {
            // Nothing that executes is touched, so the deadline is never used.
            call.cancel(Reason::OtherRefused, Tick::default(), out);
        }
    }

    pub(super) fn cancel(&mut self, reason: Reason, deadline: Tick, out: &mut Vec<Output>) {
        self.closed = true;
        for call in &mut self.calls {
            call.cancel(reason, deadline, out);
        }
    }

    /// Forgets calls that have ended.
    pub(super) fn tidy(&mut self) {
        let calls = &self.calls;
        let state = |index: &usize| calls.get(*index).map_or(State::Ended, |call| call.state);
        self.queue.retain(|index| state(index) == State::Waiting);
        self.group.retain(|index| state(index) != State::Ended);
    }

    /// Starts the group once all of it is ready, and forms the next one once it has ended.
    pub(super) fn advance(&mut self, group_max: usize, out: &mut Vec<Output>) {
        loop {
            if self.group.is_empty() {
                if !self.form_group(group_max, out) {
                    return;
                }
                continue;
            }
            let mut members = self.group.iter().filter_map(|index| self.calls.get(*index));
            if members.any(|call| matches!(call.state, State::Judging | State::Asking)) {
                return;
            }
            for index in &self.group {
                if let Some(call) = self.calls.get_mut(*index).filter(|call| call.state == State::Scheduled) {
                    call.state = State::Executing;
                    out.push(Output::Execute(call.key));
                }
            }
            return;
        }
    }

    fn form_group(&mut self, group_max: usize, out: &mut Vec<Output>) -> bool {
        while let Some(index) = self.queue.front().copied() {
            let Some(call) = self.calls.get_mut(index) else { break };
            let together = call.lane == Lane::Together;
            if !self.group.is_empty() && (!together || self.group.len() >= group_max) {
                break;
            }
            self.queue.pop_front();
            self.group.push(index);
            call.judge(out);
            if !together {
                break;
            }
        }
        !self.group.is_empty()
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self, active: bool, limits: &super::Limits) {
        assert!(self.group.len() <= limits.group_max, "I7");
        assert!(!self.is_done(), "I5: a batch that is done leaves");
        let in_group = |index: usize| self.group.contains(&index);
        for (index, call) in self.calls.iter().enumerate() {
            match call.state {
                State::Waiting => {
                    assert!(!in_group(index) && self.queue.contains(&index), "a call waits in the queue");
                    assert!(!self.closed, "I6");
                }
                State::Ended => assert!(!self.queue.contains(&index), "I5"),
                State::Judging | State::Asking | State::Scheduled => {
                    assert!(active, "I1");
                    assert!(in_group(index), "I3");
                    assert!(!self.closed, "I6");
                }
                State::Executing | State::Stopping(_) => {
                    assert!(active, "I1");
                    assert!(in_group(index), "I3");
                }
            }
        }
        let members: Vec<&Call> = self.group.iter().filter_map(|index| self.calls.get(*index)).collect();
        if members.iter().any(|call| call.is_executing()) {
            let undecided = |call: &&Call| matches!(call.state, State::Judging | State::Asking | State::Scheduled);
            assert!(!members.iter().any(undecided), "I4");
        }
        if members.iter().any(|call| call.lane != Lane::Together) {
            assert_eq!(members.len(), 1, "I2");
        }
        if active {
            assert!(!members.is_empty(), "I9");
        }
    }
}
