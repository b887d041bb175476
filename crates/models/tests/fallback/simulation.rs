//! Many worlds: sessions, a shared memory of failures, servers and people that do whatever a seed says, in any order.
//!
//! In each of them: no model is called that is marked; the model that was announced is the one that is called; no wait
//! is longer than the policies allow; an abort is noticed at once; every turn ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::ModelErrorKind;
use convoke_models::{FallbackPort, FallbackQuestion, GeneratorLlm, Intent, ModelNotice};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rig::{Answer, World, ask};

const WORLDS: u64 = 400;
/// No model of a chain may take longer: 10 refusals of at most 360 s each, and as many again for a stream's 4 attempts.
const TURN_MAX: Duration = Duration::from_secs(4 * 4 * 10 * 420);

/// A small generator of bits: the same worlds on every machine. (xorshift64*)
#[derive(Clone)]
struct Dice(Arc<Mutex<u64>>);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn answer(dice: &Dice) -> (Duration, Answer) {
    let after = (dice.below(2) == 0).then(|| 1 + dice.below(400));
    let answer = match dice.below(14) {
        0..=3 => Answer::Says("done"),
        4 => Answer::BreaksOff("ha"),
        5 => Answer::FailsLate(ModelErrorKind::Server),
        6 => Answer::FailsLate(ModelErrorKind::Quota),
        7 => Answer::Fails(ModelErrorKind::Quota, after),
        8 => Answer::Fails(ModelErrorKind::RateLimit, after.map(|seconds| seconds.min(300))),
        9 => Answer::Fails(ModelErrorKind::Capacity, None),
        10 => Answer::Fails(ModelErrorKind::Server, None),
        11 => Answer::Fails(ModelErrorKind::Network, None),
        12 => Answer::Fails(ModelErrorKind::NotFound, None),
        _ => Answer::Fails(ModelErrorKind::Auth, None),
    };
    (Duration::from_millis(dice.below(3000)), answer)
}

/// Answers with anything, or not at all, after a while.
struct Anybody(Dice);

#[async_trait]
impl FallbackPort for Anybody {
    async fn choose(&self, _: &FallbackQuestion) -> Option<Intent> {
        tokio::time::sleep(Duration::from_millis(self.0.below(5000))).await;
        Intent::ALL.get(usize::try_from(self.0.below(6)).unwrap()).copied()
    }
}

/// A world that checks each call as it comes.
fn world(dice: &Dice, hangs: bool) -> (Arc<World>, Arc<AtomicBool>) {
    let (dice, hung) = (dice.clone(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&hung);
    let world = World::new(Box::new(move |_| {
        let (delay, answer) = answer(&dice);
        // Rarely, a server takes the request and is never heard of again.
        if hangs && dice.below(20) == 0 {
            seen.store(true, Ordering::Relaxed);
            return (delay, Answer::Hangs);
        }
        (delay, answer)
    }));
    (world, hung)
}

fn check_world(seed: u64, world: &World) -> BTreeMap<&'static str, usize> {
    let mut seen = BTreeMap::new();
    for notice in world.notices.lock().unwrap().iter() {
        let what = match notice {
            ModelNotice::Selected { .. } => "selected",
            ModelNotice::FellBack { asked: true, .. } => "replaced after a question",
            ModelNotice::FellBack { .. } => "replaced silently",
            ModelNotice::Retrying { delay, failed_attempts, max_attempts, .. } => {
                assert!(*delay <= Duration::from_secs(360), "seed {seed}: a wait of {delay:?}");
                assert!(failed_attempts < max_attempts, "seed {seed}");
                "repeated"
            }
        };
        *seen.entry(what).or_default() += 1;
    }
    seen
}

/// One session's prompts, each of some model calls.
async fn live(seed: u64, dice: Dice, llm: GeneratorLlm, hung: Arc<AtomicBool>) -> (usize, usize) {
    let (mut answered, mut failed) = (0, 0);
    for _ in 0..1 + dice.below(4) {
        match dice.below(6) {
            0 => llm.configure(["auto", "pro", "flash", "gemini-9"][usize::try_from(dice.below(4)).unwrap()]),
            1 => llm.set_planning(dice.below(2) == 0),
            2 => tokio::time::sleep(Duration::from_secs(dice.below(4000))).await,
            _ => {}
        }
        llm.begin_turn();
        for _ in 0..1 + dice.below(3) {
            let cancel = CancellationToken::new();
            let patience = Duration::from_millis(dice.below(120_000));
            let aborts = dice.below(3) == 0;
            let ended = CancellationToken::new();
            hung.store(false, Ordering::Relaxed);
            let abort = async {
                // Somebody who has had enough; after hours, anybody has.
                let patience = if aborts { patience } else { TURN_MAX };
                tokio::select! {
                    () = tokio::time::sleep(patience) => { cancel.cancel(); Some(Instant::now()) }
                    () = ended.cancelled() => None,
                }
            };
            let call = async {
                let heard = ask(&llm, &cancel).await;
                ended.cancel();
                heard
            };
            let (heard, aborted) = tokio::join!(call, abort);
            if let Some(at) = aborted {
                assert!(aborts || hung.load(Ordering::Relaxed), "seed {seed}: a turn without a bound");
                assert!(at.elapsed() <= Duration::from_millis(100), "seed {seed}: the abort was not noticed");
            }
            match heard.error {
                None => {
                    answered += 1;
                    assert_eq!(heard.text, "done", "seed {seed}: what was taken back is gone");
                    assert_eq!(heard.model, llm.sequence().map(|model| model.to_string()), "seed {seed}");
                }
                Some(error) => {
                    failed += 1;
                    assert!(!error.message.is_empty(), "seed {seed}");
                    assert!(error.kind != ModelErrorKind::Cancelled || cancel.is_cancelled(), "seed {seed}");
                    if error.kind == ModelErrorKind::Auth {
                        // Nothing to wait for: the run would be over.
                        return (answered, failed);
                    }
                }
            }
        }
    }
    (answered, failed)
}

#[tokio::test(start_paused = true)]
async fn every_turn_ends_with_the_announced_model_or_a_reason() {
    let mut totals: BTreeMap<&'static str, usize> = BTreeMap::new();
    for seed in 0..WORLDS {
        let dice = Dice::new(seed);
        let (world, hung) = world(&dice, true);
        world.exclusive.store(true, Ordering::Relaxed);
        let anybody = || Arc::new(Anybody(dice.clone())) as Arc<dyn FallbackPort>;
        let port = (dice.below(2) == 0).then(anybody);
        let configured = ["auto", "pro", "flash", "flash-lite", "gemini-9"][usize::try_from(dice.below(5)).unwrap()];
        let llm = world.session_with(configured, port);
        let (answered, failed) = live(seed, dice.clone(), llm, hung).await;
        *totals.entry("calls").or_default() += world.calls.lock().unwrap().len();
        *totals.entry("answered").or_default() += answered;
        *totals.entry("failed").or_default() += failed;
        for (what, count) in check_world(seed, &world) {
            *totals.entry(what).or_default() += count;
        }
    }
    // Worlds in which nothing happens prove nothing.
    for what in ["answered", "failed", "repeated", "replaced silently", "replaced after a question"] {
        assert!(totals.get(what).is_some_and(|count| *count > 40), "{what}: {totals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_that_share_what_is_used_up_do_not_disturb_each_other() {
    for seed in 0..WORLDS / 4 {
        let dice = Dice::new(seed ^ 0xABCD);
        let (world, hung) = world(&dice, false);
        let sessions: Vec<_> = ["auto", "pro", "gemini-9"].map(|name| world.session(name, None)).into_iter().collect();
        let lives = sessions.iter().map(|llm| live(seed, dice.clone(), llm.clone(), Arc::clone(&hung)));
        let ended = futures::future::join_all(lives).await;
        assert!(ended.iter().all(|(answered, failed)| answered + failed > 0), "seed {seed}");
        check_world(seed, &world);
    }
}
