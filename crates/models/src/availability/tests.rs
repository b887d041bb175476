use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

fn name(id: &str) -> ModelName {
    ModelName::of_default(id)
}

fn at(seconds: u64) -> Now {
    Now { tick: Tick(seconds * 1000), wall_ms: 1_000_000 + seconds * 1000 }
}

#[test]
fn quota_marks_end_when_the_server_said_and_capacity_marks_after_30_seconds() {
    let (mut availability, pro) = (ModelAvailability::default(), name("pro"));
    let scope = availability.open_scope();
    availability.mark_terminal(at(0), &pro, FailureKind::Quota, Some(Duration::from_secs(600)));
    let Health::Terminal(mark) = availability.health(at(599), scope, &pro) else { panic!() };
    assert_eq!((mark.kind, mark.reset_wall_ms), (FailureKind::Quota, Some(1_600_000)));
    assert_eq!(availability.next_reset(at(1), [&pro]), Some(1_600_000));
    assert_eq!(availability.health(at(600), scope, &pro), Health::Healthy);
    availability.mark_terminal(at(600), &pro, FailureKind::Capacity, None);
    assert!(!availability.health(at(629), scope, &pro).is_available());
    assert_eq!(availability.next_reset(at(601), [&pro]), None, "nobody named a moment");
    assert!(availability.health(at(630), scope, &pro).is_available());
    availability.mark_terminal(at(700), &pro, FailureKind::NotFound, Some(Duration::from_secs(1)));
    assert!(!availability.health(at(1_000_000), scope, &pro).is_available());
}

#[test]
fn a_sticky_model_is_tried_once_per_turn_of_its_scope() {
    let (mut availability, pro) = (ModelAvailability::default(), name("pro"));
    let (parent, child) = (availability.open_scope(), availability.open_scope());
    availability.mark_sticky(at(0), parent, &pro, Some(3));
    assert_eq!(availability.health(at(0), parent, &pro), Health::Consumed, "it just failed");
    assert_eq!(availability.health(at(0), child, &pro), Health::Healthy, "which is no matter of others");
    availability.begin_turn(child);
    assert_eq!(availability.health(at(0), parent, &pro), Health::Consumed, "nor is their turn one of ours");
    availability.begin_turn(parent);
    assert_eq!(availability.health(at(0), parent, &pro), Health::Sticky { attempts: Some(3) });
    availability.consume(parent, &pro);
    assert_eq!(availability.health(at(0), parent, &pro), Health::Consumed);
    availability.mark_healthy(parent, &pro);
    assert_eq!(availability.health(at(0), parent, &pro), Health::Healthy);
}

#[test]
fn a_used_up_quota_is_used_up_for_all_and_outlasts_a_turn() {
    let (mut availability, pro) = (ModelAvailability::default(), name("pro"));
    let (parent, child) = (availability.open_scope(), availability.open_scope());
    availability.mark_terminal(at(0), &pro, FailureKind::Quota, None);
    availability.mark_sticky(at(0), child, &pro, None);
    availability.begin_turn(parent);
    assert!(!availability.health(at(3599), child, &pro).is_available());
    assert!(availability.health(at(3600), child, &pro).is_available());
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Close(usize),
    Begin(usize),
    Terminal(u8, usize, Option<u64>),
    Sticky(usize, u8),
    Consume(usize, u8),
    Healthy(usize, u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (scope, model) = (0_usize..4, 0_u8..5);
    prop_oneof![
        Just(Step::Open),
        scope.clone().prop_map(Step::Close),
        scope.clone().prop_map(Step::Begin),
        (model.clone(), 0_usize..5, prop::option::of(0_u64..10_000)).prop_map(|(m, k, a)| Step::Terminal(m, k, a)),
        (scope.clone(), model.clone()).prop_map(|(s, m)| Step::Sticky(s, m)),
        (scope.clone(), model.clone()).prop_map(|(s, m)| Step::Consume(s, m)),
        (scope, model).prop_map(|(s, m)| Step::Healthy(s, m)),
        (0_u64..100_000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// I1 to I3 after every step, and what a mark means against a naive model of it.
    #[test]
    fn marks_keep_their_word(steps in prop::collection::vec(step(), 1..120)) {
        let mut availability = ModelAvailability::default();
        let mut scopes = vec![availability.open_scope()];
        let mut now = at(0);
        // The naive model: until when each model is terminal.
        let mut blocked: BTreeMap<u8, Option<Tick>> = BTreeMap::new();
        for step in steps {
            let scope = |index: usize| scopes[index % scopes.len()];
            let model = |id: u8| name(&format!("m{id}"));
            match step {
                Step::Open if scopes.len() < 4 => scopes.push(availability.open_scope()),
                Step::Open => {}
                Step::Close(index) => {
                    let closed = scope(index);
                    availability.close_scope(closed);
                    scopes.retain(|open| *open != closed);
                    if scopes.is_empty() {
                        scopes.push(availability.open_scope());
                    }
                }
                Step::Begin(index) => availability.begin_turn(scope(index)),
                Step::Terminal(id, kind, after) => {
                    let (kind, after) = (FailureKind::ALL[kind], after.map(Duration::from_millis));
                    availability.mark_terminal(now, &model(id), kind, after);
                    let pause = if kind == FailureKind::Quota { QUOTA_PAUSE } else { CAPACITY_PAUSE };
                    let until = (kind != FailureKind::NotFound).then(|| now.tick.after(after.unwrap_or(pause)));
                    blocked.insert(id, until);
                }
                Step::Sticky(index, id) => {
                    availability.mark_sticky(now, scope(index), &model(id), Some(3));
                    prop_assert!(!availability.health(now, scope(index), &model(id)).is_available());
                }
                Step::Consume(index, id) => {
                    availability.consume(scope(index), &model(id));
                    let health = availability.health(now, scope(index), &model(id));
                    let sticky = matches!(health, Health::Sticky { .. });
                    prop_assert!(!sticky);
                }
                Step::Healthy(index, id) => {
                    availability.mark_healthy(scope(index), &model(id));
                    blocked.remove(&id);
                    prop_assert_eq!(availability.health(now, scope(index), &model(id)), Health::Healthy);
                }
                Step::Wait(ms) => now = Now { tick: Tick(now.tick.0 + ms), wall_ms: now.wall_ms + ms },
            }
            availability.check_invariants();
            for id in 0..5 {
                let terminal = blocked.get(&id).is_some_and(|until| until.is_none_or(|until| now.tick < until));
                prop_assert_eq!(availability.mark(now, &model(id)).is_some(), terminal);
            }
        }
    }
}
