use std::sync::Arc;

use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::catalog::{FLASH, FLASH_LITE, PRO};
use crate::{GeminiOptions, OpenAiOptions, Provider, Registry};

fn at(seconds: u64) -> Now {
    Now { tick: Tick(seconds * 1000), wall_ms: 1_795_226_400_000 + seconds * 1000 }
}

fn catalog() -> Arc<Catalog> {
    let registry = Registry::new("gemini", Provider::Gemini(GeminiOptions::default()))
        .with("local", Provider::OpenAi(OpenAiOptions::new("http://localhost")));
    let chains = json!({"modelChains": {"mine": ["gemini-9", "gemini-8", "local/q"]}});
    Arc::new(Catalog::new(&registry).with_settings(&chains).unwrap())
}

struct Rig {
    availability: ModelAvailability,
    steering: Steering,
}

impl Rig {
    fn new(configured: &str, attended: bool) -> Self {
        let mut availability = ModelAvailability::default();
        let scope = availability.open_scope();
        Self { steering: Steering::new(catalog(), scope, configured, attended), availability }
    }

    fn name(&self, name: &str) -> ModelName {
        self.steering.catalog.resolve(name)
    }

    fn fail(&mut self, now: Now, model: &str, kind: FailureKind, after: Option<u64>) -> Verdict {
        let model = self.name(model);
        let kind_of_error = match kind {
            FailureKind::Quota => ModelErrorKind::Quota,
            FailureKind::Capacity => ModelErrorKind::Capacity,
            FailureKind::Transient => ModelErrorKind::RateLimit,
            FailureKind::NotFound => ModelErrorKind::NotFound,
            FailureKind::Unreachable => ModelErrorKind::Network,
        };
        let retry_after = after.map(Duration::from_secs);
        let error = ModelError { retry_after, ..ModelError::new(kind_of_error, "the server says no.") };
        let failed = Failed { kind, error };
        self.steering.failed(now, &mut self.availability, &model, &failed, std::slice::from_ref(&model))
    }
}

fn switched(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Switch(model) => Some(model.as_str()),
        Verdict::Ask(_) | Verdict::GiveUp(_) => None,
    }
}

fn asked(verdict: Verdict) -> Box<FallbackQuestion> {
    match verdict {
        Verdict::Ask(question) => question,
        other => panic!("{other:?}"),
    }
}

fn given_up(verdict: Verdict) -> String {
    match verdict {
        Verdict::GiveUp(error) => error.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_failed_models_policy_decides() {
    for attended in [false, true] {
        let mut rig = Rig::new("auto", attended);
        assert_eq!(switched(&rig.fail(at(0), PRO, FailureKind::Transient, None)), Some(FLASH), "silently");
        let scope = rig.steering.scope();
        assert_eq!(rig.availability.health(at(0), scope, &rig.name(PRO)), Health::Consumed);
    }
    let mut alone = Rig::new("auto", false);
    assert_eq!(switched(&alone.fail(at(0), PRO, FailureKind::Quota, None)), Some(FLASH));
    let question = asked(Rig::new("auto", true).fail(at(0), PRO, FailureKind::Quota, Some(60)));
    assert_eq!((question.stand_in.as_str(), question.is_upgrade), (FLASH, false));
    assert_eq!(question.reset_wall_ms, Some(at(60).wall_ms));
}

#[test]
fn a_model_that_was_named_is_not_replaced_unasked() {
    let told = given_up(Rig::new("pro", false).fail(at(0), PRO, FailureKind::Quota, Some(18_720)));
    assert_eq!(
        told,
        "the server says no. the quota of gemini-3-pro-preview is used up; no other model can take over; the next one \
         is back at 2026-11-21T07:12:00.000Z, in 5 h 12 min"
    );
    asked(Rig::new("pro", true).fail(at(0), PRO, FailureKind::Quota, None));
}

#[test]
fn nothing_that_costs_more_takes_over_unasked() {
    for (configured, failed) in [("auto", FLASH), ("flash", FLASH), ("flash-lite", FLASH_LITE)] {
        for kind in FailureKind::ALL.into_iter().filter(|kind| *kind != FailureKind::Unreachable) {
            given_up(Rig::new(configured, false).fail(at(0), failed, kind, None));
            let question = asked(Rig::new(configured, true).fail(at(0), failed, kind, None));
            assert!(question.is_upgrade, "{configured}");
        }
    }
}

#[test]
fn while_planning_nothing_is_worth_a_question() {
    let mut rig = Rig::new("pro", true);
    rig.steering.set_planning(true);
    assert_eq!(switched(&rig.fail(at(0), PRO, FailureKind::Quota, None)), Some(FLASH));
}

#[test]
fn a_server_that_does_not_answer_does_not_answer_for_its_other_models() {
    let mut rig = Rig::new("gemini-9", false);
    assert_eq!(switched(&rig.fail(at(0), "gemini-9", FailureKind::Unreachable, None)), Some("local/q"));
    let mut rig = Rig::new("gemini-9", false);
    assert_eq!(switched(&rig.fail(at(0), "gemini-9", FailureKind::Capacity, None)), Some("gemini-8"));
    given_up(Rig::new("auto", false).fail(at(0), PRO, FailureKind::Unreachable, None));
}

#[test]
fn what_each_intent_leaves_behind() {
    for (intent, goes_on, marked, replaced) in [
        (Some(Intent::RetryAlways), true, true, true),
        (Some(Intent::RetryOnce), true, true, false),
        (Some(Intent::RetryLater), false, false, false),
        (Some(Intent::Stop), false, false, false),
        (Some(Intent::Upgrade), false, false, false),
        (None, false, false, false),
    ] {
        let mut rig = Rig::new("pro", true);
        let question = asked(rig.fail(at(0), PRO, FailureKind::Quota, Some(600)));
        assert!(rig.availability.mark(at(0), &question.failed).is_none(), "nothing before the answer");
        let verdict = rig.steering.answered(at(1), &mut rig.availability, &question, intent);
        assert_eq!(switched(&verdict).is_some(), goes_on, "{intent:?}");
        let pro = rig.name(PRO);
        assert_eq!(rig.availability.mark(at(1), &pro).is_some(), marked, "{intent:?}");
        assert_eq!(rig.steering.in_place_of(at(1), &pro) != pro, replaced, "{intent:?}");
        assert_eq!(rig.steering.configured(), "pro", "what was asked for stays");
        // The quota is back: so is the model, whatever was agreed to.
        assert_eq!(rig.steering.in_place_of(at(602), &pro), pro);
    }
}

#[test]
fn replacements_of_replacements_are_one() {
    let mut rig = Rig::new("gemini-9", true);
    for model in ["gemini-9", "gemini-8"] {
        let question = asked(rig.fail(at(0), model, FailureKind::Capacity, None));
        rig.steering.answered(at(0), &mut rig.availability, &question, Some(Intent::RetryAlways));
        rig.steering.check_invariants();
    }
    assert_eq!(rig.steering.in_place_of(at(0), &rig.name("gemini-9")).as_str(), "local/q");
    rig.steering.configure("gemini-9");
    assert_eq!(rig.steering.in_place_of(at(0), &rig.name("gemini-9")).as_str(), "gemini-9");
}

#[test]
fn resets_of_a_sequence() {
    let mut rig = Rig::new("auto", false);
    let (steering, availability) = (&mut rig.steering, &mut rig.availability);
    let flash = ModelName::of_default(FLASH);
    let resets: [fn(&mut Steering, &mut ModelAvailability); 4] = [
        |steering, availability| steering.begin_turn(availability),
        |steering, _| steering.configure("pro"),
        |steering, _| steering.set_planning(true),
        |steering, _| steering.reset(SequenceReset::ModeChanged),
    ];
    for reset in resets {
        steering.set_sequence(flash.clone());
        reset(steering, availability);
        assert_eq!(steering.sequence(), None);
    }
    steering.set_sequence(flash.clone());
    steering.set_planning(true);
    assert_eq!(steering.sequence(), Some(&flash), "nothing changed");
}

#[derive(Clone, Debug)]
enum Step {
    BeginTurn(bool),
    Call { child: bool, fails: Option<(usize, Option<u64>)>, intent: usize },
    Configure(usize),
    Plan(bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => any::<bool>().prop_map(Step::BeginTurn),
        6 => (any::<bool>(), prop::option::of((0_usize..5, prop::option::of(1_u64..4000))), 0_usize..6)
            .prop_map(|(child, fails, intent)| Step::Call { child, fails, intent }),
        1 => (0_usize..5).prop_map(Step::Configure),
        1 => any::<bool>().prop_map(Step::Plan),
        2 => (0_u64..3000).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A session and a subagent that share marks, in any order of failures, answers and waits: a model that is
    /// admitted has no mark, a stand-in is neither marked nor the failed one, and what is agreed to has no circles.
    #[test]
    fn no_marked_model_is_admitted_or_chosen(
        attended in any::<bool>(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let names = ["auto", "pro", "flash-lite", "gemini-9", "local/q"];
        let mut availability = ModelAvailability::default();
        let mut sessions: Vec<Steering> = (0..2)
            .map(|index| Steering::new(catalog(), availability.open_scope(), names[index], attended && index == 0))
            .collect();
        let mut now = at(0);
        for step in steps {
            match step {
                Step::BeginTurn(child) => sessions[usize::from(child)].begin_turn(&mut availability),
                Step::Configure(name) => sessions[0].configure(names[name]),
                Step::Plan(planning) => sessions[0].set_planning(planning),
                Step::Wait(seconds) => {
                    now = Now { tick: now.tick.after(Duration::from_secs(seconds)), wall_ms: now.wall_ms + seconds * 1000 };
                }
                Step::Call { child, fails, intent } => {
                    let session = &mut sessions[usize::from(child)];
                    let resolved = session.catalog.resolve(session.configured());
                    let mut model = session.in_place_of(now, &resolved);
                    let mut tried = Vec::new();
                    // Each round adds to `tried`, and chains are short.
                    for round in 0.. {
                        prop_assert!(round < 16, "changes of the model have no end");
                        let failed = match session.admit(now, &mut availability, &model) {
                            Admission::Call { .. } => {
                                prop_assert!(availability.mark(now, &model).is_none(), "{model} is called although marked");
                                match fails {
                                    None => {
                                        session.succeeded(&mut availability, &model);
                                        break;
                                    }
                                    Some((kind, after)) => {
                                        let error = ModelError {
                                            retry_after: after.map(Duration::from_secs),
                                            ..ModelError::new(ModelErrorKind::Quota, "no")
                                        };
                                        Failed { kind: FailureKind::ALL[kind], error }
                                    }
                                }
                            }
                            Admission::Refuse(failed) => failed,
                        };
                        tried.push(model.clone());
                        let mut verdict = session.failed(now, &mut availability, &model, &failed, &tried);
                        if let Verdict::Ask(question) = &verdict {
                            prop_assert!(session.attended, "nobody is there to be asked");
                            let intent = Intent::ALL.get(intent).copied();
                            verdict = session.answered(now, &mut availability, question, intent);
                        }
                        match verdict {
                            Verdict::Switch(next) => {
                                prop_assert!(!tried.contains(&next));
                                prop_assert!(session.attended || session.catalog.tier(&next) <= session.catalog.tier(&model)
                                    || session.chain(&model).is_written(), "{next} costs more than {model}");
                                prop_assert_eq!(session.sequence(), Some(&next));
                                model = next;
                            }
                            Verdict::GiveUp(error) => {
                                prop_assert!(!error.message.is_empty());
                                break;
                            }
                            Verdict::Ask(_) => prop_assert!(false, "an answer is not a question"),
                        }
                    }
                }
            }
            availability.check_invariants();
            sessions.iter().for_each(Steering::check_invariants);
        }
    }
}
