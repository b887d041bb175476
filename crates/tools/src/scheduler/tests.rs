//! Tables for what is promised by name, and random walks that check the invariants after every step.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn key(n: u64) -> CallKey {
    CallKey(n)
}

/// Feeds inputs and keeps what came out.
struct Bench {
    machine: Scheduler,
    now: Tick,
}

impl Bench {
    fn new() -> Self {
        Self { machine: Scheduler::new(Limits::default()), now: Tick(0) }
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.machine.handle(self.now, input, &mut out);
        self.machine.check_invariants();
        out
    }

    fn submit(&mut self, batch: u64, calls: &[(u64, Lane)]) -> Vec<Output> {
        let calls = calls.iter().map(|(call, lane)| (key(*call), Some(*lane))).collect();
        let out = self.step(Input::Submit { batch: BatchId(batch), calls });
        out.into_iter().filter(|output| !matches!(output, Output::Accepted(_))).collect()
    }

    fn judged(&mut self, call: u64, verdict: Verdict) -> Vec<Output> {
        self.step(Input::Judged { call: key(call), verdict })
    }

    fn allow(&mut self, call: u64) -> Vec<Output> {
        let out = self.judged(call, Verdict::Allow);
        out.into_iter().filter(|output| *output != Output::Scheduled(key(call))).collect()
    }

    fn answered(&mut self, call: u64, answer: Answer) -> Vec<Output> {
        self.step(Input::Answered { call: key(call), answer })
    }

    fn finished(&mut self, call: u64, ending: Ending) -> Vec<Output> {
        self.step(Input::Finished { call: key(call), ending })
    }
}

fn judge(call: u64) -> Output {
    Output::Judge(key(call))
}

fn execute(call: u64) -> Output {
    Output::Execute(key(call))
}

fn ended(call: u64, end: End) -> Output {
    Output::Ended { call: key(call), end }
}

fn never(call: u64, reason: Reason) -> Output {
    ended(call, End::NeverRan(reason))
}

use Lane::{Alone, First, Together};

#[test]
fn neighbours_that_read_run_together_and_others_alone() {
    let mut bench = Bench::new();
    let out = bench.submit(0, &[(1, Together), (2, Together), (3, Alone), (4, Together), (5, Together)]);
    assert_eq!(out, [judge(1), judge(2)]);
    assert_eq!(bench.allow(2), []);
    assert_eq!(bench.allow(1), [execute(1), execute(2)]);
    assert_eq!(bench.finished(2, Ending::Success), [ended(2, End::Success)]);
    assert_eq!(bench.finished(1, Ending::Error), [ended(1, End::Error), judge(3)]);
    assert_eq!(bench.allow(3), [execute(3)]);
    assert_eq!(bench.finished(3, Ending::Success), [ended(3, End::Success), judge(4), judge(5)]);
    assert_eq!(bench.judged(4, Verdict::Deny), [ended(4, End::Error)]);
    assert_eq!(bench.allow(5), [execute(5)]);
    let done = Output::BatchDone(BatchId(0));
    assert_eq!(bench.finished(5, Ending::Success), [ended(5, End::Success), done]);
    assert!(bench.machine.is_idle());
}

#[test]
fn what_goes_first_goes_first_and_a_group_has_a_bound() {
    let mut bench = Bench::new();
    assert_eq!(bench.submit(0, &[(1, Alone), (2, First), (3, First)]), [judge(2)]);
    let many: Vec<(u64, Lane)> = (0..20).map(|call| (call, Together)).collect();
    let mut bench = Bench::new();
    assert_eq!(bench.submit(0, &many).len(), Limits::default().group_max);
}

#[test]
fn questions_of_a_group_are_open_together() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Together), (2, Together)]);
    assert_eq!(bench.judged(1, Verdict::Ask), [Output::Ask(key(1))]);
    assert_eq!(bench.judged(2, Verdict::Ask), [Output::Ask(key(2))]);
    assert_eq!(bench.answered(2, Answer::Proceed), [Output::Scheduled(key(2))]);
    assert_eq!(bench.answered(1, Answer::Revise), [judge(1)]);
    assert_eq!(bench.judged(1, Verdict::Ask), [Output::Ask(key(1))]);
    assert_eq!(bench.answered(1, Answer::Proceed), [Output::Scheduled(key(1)), execute(1), execute(2)]);
}

#[test]
fn a_refusal_ends_the_batch_and_not_the_next_one() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Together), (2, Together), (3, Together), (4, Alone)]);
    bench.submit(1, &[(5, Alone)]);
    bench.allow(1);
    bench.judged(2, Verdict::Ask);
    let out = bench.answered(2, Answer::Refuse);
    let other = Reason::OtherRefused;
    let expected = [
        never(2, Reason::Refused),
        never(1, other),
        Output::Drop(key(3)),
        never(3, other),
        never(4, other),
        Output::BatchDone(BatchId(0)),
        judge(5),
    ];
    assert_eq!(out, expected);
    assert_eq!(bench.judged(3, Verdict::Allow), [], "late, and ignored");
}

#[test]
fn cancelling_tells_running_calls_to_stop_and_ends_the_rest() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Alone), (2, Alone)]);
    bench.submit(1, &[(3, Alone)]);
    bench.allow(1);
    let out = bench.step(Input::CancelBatch { batch: BatchId(1) });
    assert_eq!(out, [never(3, Reason::CancelledInQueue), Output::BatchDone(BatchId(1))]);
    let out = bench.step(Input::CancelBatch { batch: BatchId(0) });
    assert_eq!(out, [Output::Interrupt(key(1)), never(2, Reason::BatchCancelled)]);
    assert_eq!(bench.machine.next_deadline(), Some(Tick(8000)));
    assert_eq!(bench.step(Input::CancelAll), [], "once is enough");
    let done = Output::BatchDone(BatchId(0));
    assert_eq!(bench.finished(1, Ending::Cancelled), [ended(1, End::Stopped), done]);
}

#[test]
fn a_call_that_does_not_stop_is_dropped() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Alone), (2, Alone)]);
    bench.allow(1);
    assert_eq!(bench.step(Input::CancelCall { call: key(1) }), [Output::Interrupt(key(1))]);
    bench.now = Tick(7999);
    assert_eq!(bench.step(Input::Tick), []);
    bench.now = Tick(8000);
    let expected = [Output::Drop(key(1)), ended(1, End::Dropped), judge(2)];
    assert_eq!(bench.step(Input::Tick), expected, "only this call was cancelled");
    assert_eq!(bench.finished(1, Ending::Success), [], "late, and ignored");
}

#[test]
fn one_call_of_a_group_can_be_cancelled() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Together), (2, Together), (3, Alone)]);
    bench.allow(1);
    let expected = [Output::Drop(key(2)), never(2, Reason::Cancelled), execute(1)];
    assert_eq!(bench.step(Input::CancelCall { call: key(2) }), expected);
    assert_eq!(bench.step(Input::CancelCall { call: key(3) }), [never(3, Reason::Cancelled)]);
    let done = Output::BatchDone(BatchId(0));
    assert_eq!(bench.finished(1, Ending::Success), [ended(1, End::Success), done]);
}

#[test]
fn a_tail_call_comes_next_and_is_judged() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Together), (2, Together), (3, Alone)]);
    bench.allow(1);
    bench.allow(2);
    assert_eq!(bench.finished(1, Ending::Tail(Alone)), [], "2 still runs");
    assert_eq!(bench.finished(2, Ending::Success), [ended(2, End::Success), judge(1)]);
    assert_eq!(bench.allow(1), [execute(1)]);
    assert_eq!(bench.finished(1, Ending::Success), [ended(1, End::Success), judge(3)]);
}

#[test]
fn tail_calls_have_a_bound_and_end_with_their_batch() {
    let mut bench = Bench::new();
    bench.submit(0, &[(1, Alone)]);
    for _ in 0..8 {
        bench.allow(1);
        assert_eq!(bench.finished(1, Ending::Tail(Alone)), [judge(1)]);
    }
    bench.allow(1);
    let done = Output::BatchDone(BatchId(0));
    assert_eq!(bench.finished(1, Ending::Tail(Alone)), [never(1, Reason::TooManyTailCalls), done]);
    bench.submit(1, &[(2, Alone)]);
    bench.allow(2);
    bench.step(Input::CancelAll);
    let done = Output::BatchDone(BatchId(1));
    assert_eq!(bench.finished(2, Ending::Tail(Alone)), [ended(2, End::Stopped), done]);
}

#[test]
fn too_many_of_anything_never_runs() {
    let limits = Limits { batches_max: 1, calls_max: 1, ..Limits::default() };
    let mut bench = Bench { machine: Scheduler::new(limits), now: Tick(0) };
    assert_eq!(bench.submit(0, &[(1, Alone), (2, Alone)]), [never(2, Reason::TooMany), judge(1)]);
    let done = Output::BatchDone(BatchId(1));
    assert_eq!(bench.submit(1, &[(3, Alone)]), [never(3, Reason::TooMany), done]);
}

#[test]
fn calls_that_cannot_run_end_at_once() {
    let mut bench = Bench::new();
    let out = bench.step(Input::Submit { batch: BatchId(0), calls: vec![(key(1), None)] });
    assert_eq!(out, [Output::Accepted(key(1)), ended(1, End::Error), Output::BatchDone(BatchId(0))]);
    let out = bench.step(Input::Submit { batch: BatchId(1), calls: Vec::new() });
    assert_eq!(out, [Output::BatchDone(BatchId(1))]);
}

/// A model that knows only what came out: it answers at random, and checks what can be seen from outside.
#[derive(Default)]
struct World {
    calls: BTreeMap<CallKey, (BatchId, usize, Option<Lane>)>,
    judging: BTreeSet<CallKey>,
    asking: BTreeSet<CallKey>,
    executing: BTreeSet<CallKey>,
    begun: BTreeSet<CallKey>,
    ended: BTreeMap<CallKey, End>,
    tails: BTreeSet<CallKey>,
    done: BTreeSet<BatchId>,
    closed: BTreeSet<BatchId>,
}

impl World {
    fn batch_of(&self, call: CallKey) -> BatchId {
        self.calls[&call].0
    }

    fn observe(&mut self, output: &Output) {
        match *output {
            Output::Accepted(call) => assert!(self.calls.contains_key(&call)),
            Output::Judge(call) => {
                assert!(!self.ended.contains_key(&call), "I5");
                self.asking.remove(&call);
                assert!(self.judging.insert(call));
                assert!(self.executing.is_empty(), "I4: {call:?} is judged while {:?} execute", self.executing);
                self.check_order(call);
                self.begun.insert(call);
            }
            Output::Ask(call) => {
                self.judging.remove(&call);
                assert!(self.asking.insert(call));
            }
            Output::Scheduled(call) => {
                self.judging.remove(&call);
                self.asking.remove(&call);
            }
            Output::Execute(call) => {
                assert!(!self.ended.contains_key(&call), "I5");
                assert!(!self.closed.contains(&self.batch_of(call)), "I6");
                assert!(self.executing.insert(call));
                if self.calls[&call].2 != Some(Together) && !self.tails.contains(&call) {
                    assert_eq!(self.executing.len(), 1, "I2");
                }
            }
            Output::Interrupt(call) => assert!(self.executing.contains(&call)),
            Output::Drop(call) => {
                let was = [&mut self.judging, &mut self.asking, &mut self.executing].map(|set| set.remove(&call));
                assert!(was.contains(&true), "nothing to drop");
            }
            Output::Ended { call, end } => {
                self.judging.remove(&call);
                self.asking.remove(&call);
                self.executing.remove(&call);
                assert_eq!(self.ended.insert(call, end), None, "I5");
            }
            Output::BatchDone(batch) => {
                assert!(self.done.insert(batch), "I5");
                assert!(self.calls.iter().all(|(call, (b, ..))| *b != batch || self.ended.contains_key(call)), "I5");
            }
        }
    }

    /// I1 and I3 from outside: earlier calls of other groups have ended, and so have earlier batches.
    fn check_order(&self, call: CallKey) {
        let (batch, index, lane) = self.calls[&call];
        for (other, (other_batch, other_index, other_lane)) in &self.calls {
            // First comes first; otherwise the model's order.
            let place = |lane: Option<Lane>, index: usize| (lane != Some(First), index);
            let before = *other_batch < batch
                || (*other_batch == batch && place(*other_lane, *other_index) < place(lane, index));
            let same_group = *other_batch == batch && lane == Some(Together) && *other_lane == Some(Together);
            // A tail call has a lane of its own.
            let has_tail = self.tails.contains(&call) || self.tails.contains(other);
            if before && !same_group && !has_tail {
                assert!(self.ended.contains_key(other), "I3: {call:?} begins before {other:?} has ended");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_walks_keep_the_invariants(dice in proptest::collection::vec(any::<(u8, u8, u8)>(), 1..200)) {
        let limits = Limits { batches_max: 3, calls_max: 6, group_max: 3, tail_calls_max: 2, ..Limits::default() };
        let mut machine = Scheduler::new(limits);
        let mut world = World::default();
        let mut now = Tick(0);
        let mut next = 0;
        let mut batches = 0;
        for (what, which, how) in dice {
            let pick = |set: &BTreeSet<CallKey>| set.iter().nth(usize::from(which) % set.len().max(1)).copied();
            let any_call = world.calls.keys().nth(usize::from(which) % world.calls.len().max(1)).copied();
            let input = match what % 16 {
                0 | 1 => {
                    batches += 1;
                    let lanes = (0..which % 8).map(|i| match (how >> (i % 4)) % 4 {
                        0 => Some(Alone),
                        1 | 2 => Some(Together),
                        _ if i == 2 => Some(First),
                        _ => None,
                    });
                    let calls: Vec<_> = lanes.map(|lane| { next += 1; (key(next), lane) }).collect();
                    for (index, (call, lane)) in calls.iter().enumerate() {
                        world.calls.insert(*call, (BatchId(batches), index, *lane));
                    }
                    Some(Input::Submit { batch: BatchId(batches), calls })
                }
                2..=5 => pick(&world.judging).map(|call| Input::Judged {
                    call,
                    verdict: match how % 4 { 0 | 1 => Verdict::Allow, 2 => Verdict::Ask, _ => Verdict::Deny },
                }),
                6 | 7 => pick(&world.asking).map(|call| {
                    let answer = match how % 5 { 0..=2 => Answer::Proceed, 3 => Answer::Revise, _ => Answer::Refuse };
                    if answer == Answer::Refuse {
                        world.closed.insert(world.batch_of(call));
                    }
                    Input::Answered { call, answer }
                }),
                8..=11 => pick(&world.executing).map(|call| {
                    let ending = match how % 6 {
                        0..=2 => Ending::Success,
                        3 => Ending::Error,
                        4 => Ending::Cancelled,
                        _ => Ending::Tail(if how % 12 == 5 { Alone } else { Together }),
                    };
                    world.executing.remove(&call);
                    if matches!(ending, Ending::Tail(_)) {
                        world.tails.insert(call);
                    }
                    Input::Finished { call, ending }
                }),
                12 => any_call.map(|call| Input::CancelCall { call }),
                13 => {
                    let batch = BatchId(u64::from(which) % (batches + 1));
                    world.closed.insert(batch);
                    Some(Input::CancelBatch { batch })
                }
                // Late or made up.
                14 => any_call.map(|call| match how % 3 {
                    0 if !world.judging.contains(&call) => Input::Judged { call, verdict: Verdict::Allow },
                    1 if !world.asking.contains(&call) => Input::Answered { call, answer: Answer::Proceed },
                    _ => Input::Tick,
                }),
                _ => {
                    now = Tick(now.0 + u64::from(which) * 100);
                    Some(Input::Tick)
                }
            };
            let Some(input) = input else { continue };
            let mut out = Vec::new();
            machine.handle(now, input, &mut out);
            machine.check_invariants();
            out.iter().for_each(|output| world.observe(output));
        }
        // Whatever happened, cancelling everything and letting time pass ends everything.
        let mut out = Vec::new();
        machine.handle(now, Input::CancelAll, &mut out);
        machine.handle(now.after(limits.cancel_grace), Input::Tick, &mut out);
        machine.check_invariants();
        out.iter().for_each(|output| world.observe(output));
        prop_assert!(machine.is_idle());
        prop_assert_eq!(world.ended.len(), world.calls.len());
        prop_assert_eq!(world.done.len() as u64, batches);
    }
}
