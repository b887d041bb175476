//! The course of a run, step by step and at random.

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { timeout: Duration::from_millis(1000), grace: Duration::from_millis(60) };

fn begun() -> Course {
    let mut course = Course::new(LIMITS);
    assert_eq!(course.next_deadline(), None);
    course.handle(Tick(0), Input::Begin);
    course
}

fn over(mode: Mode) -> Option<Verdict> {
    Some(Verdict::Over { mode, recovered_from: None })
}

#[test]
fn a_report_is_the_goal() {
    let mut course = begun();
    course.handle(Tick(5), Input::HandedIn);
    assert_eq!(course.handle(Tick(6), Input::Ended(Ended::Silent)), over(Mode::Goal));
    assert_eq!(course.next_deadline(), None);
}

#[test]
fn each_limit_has_one_more_turn_and_then_its_name() {
    for (ended, mode) in
        [(Ended::Silent, Mode::NoCompleteTaskCall), (Ended::TurnLimit, Mode::MaxTurns), (Ended::TimeUp, Mode::Timeout)]
    {
        let mut course = begun();
        assert_eq!(course.handle(Tick(10), Input::Ended(ended)), Some(Verdict::Recover(mode)));
        assert!(course.is_recovering());
        assert_eq!(course.next_deadline(), Some(Tick(70)));
        assert_eq!(course.handle(Tick(20), Input::Ended(Ended::TimeUp)), over(mode));
        let mut course = begun();
        course.handle(Tick(10), Input::Ended(ended));
        course.handle(Tick(11), Input::HandedIn);
        let recovered = Verdict::Over { mode: Mode::Goal, recovered_from: Some(mode) };
        assert_eq!(course.handle(Tick(12), Input::Ended(Ended::Silent)), Some(recovered));
        assert_eq!(course.outcome(), Some((Mode::Goal, Some(mode))));
    }
}

#[test]
fn failures_and_aborts_end_it_at_once() {
    assert_eq!(begun().handle(Tick(1), Input::Ended(Ended::Failed)), over(Mode::Error));
    let mut course = begun();
    course.handle(Tick(1), Input::HandedIn);
    assert_eq!(course.handle(Tick(2), Input::Ended(Ended::Aborted)), over(Mode::Aborted));
    // What is over stays over.
    assert_eq!(course.handle(Tick(3), Input::Ended(Ended::Silent)), over(Mode::Aborted));
}

#[test]
fn time_stands_still_while_anybody_is_asked() {
    let mut course = begun();
    assert_eq!(course.next_deadline(), Some(Tick(1000)));
    course.handle(Tick(400), Input::Asked);
    course.handle(Tick(500), Input::Asked);
    assert_eq!(course.next_deadline(), None);
    course.handle(Tick(90_000), Input::Settled);
    assert_eq!(course.next_deadline(), None);
    course.handle(Tick(100_000), Input::Settled);
    assert_eq!(course.next_deadline(), Some(Tick(100_600)));
    assert!(!course.is_time_up(Tick(100_599)) && course.is_time_up(Tick(100_600)));
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        Just(Input::Begin),
        Just(Input::Asked),
        Just(Input::Settled),
        Just(Input::HandedIn),
        prop_oneof![
            Just(Ended::Silent),
            Just(Ended::TurnLimit),
            Just(Ended::TimeUp),
            Just(Ended::Aborted),
            Just(Ended::Failed)
        ]
        .prop_map(Input::Ended),
    ]
}

proptest! {
    #[test]
    fn any_order_keeps_the_invariants(steps in prop::collection::vec((0u64..200, input()), 0..60)) {
        let mut course = Course::new(LIMITS);
        let (mut now, mut outcome) = (Tick(0), None);
        for (later, input) in steps {
            now = Tick(now.0 + later);
            let verdict = course.handle(now, input);
            course.check_invariants();
            prop_assert_eq!(verdict.is_some(), matches!(input, Input::Ended(_)));
            if outcome.is_some() {
                prop_assert_eq!(course.outcome(), outcome, "C5");
            }
            outcome = course.outcome();
        }
    }
}
