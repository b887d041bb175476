use std::sync::atomic::{AtomicU32, Ordering};

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

fn busy(retry_after: Option<Duration>) -> ModelError {
    ModelError { retry_after, status: Some(429), ..ModelError::new(ModelErrorKind::RateLimit, "busy") }
}

fn secs(notice: Option<RetryNotice>) -> Option<f64> {
    notice.map(|notice| notice.delay.as_secs_f64())
}

/// The middle of the range, which makes an ordinary jitter vanish.
const MIDDLE: u64 = 1 << 63;

#[test]
fn waits_double_and_end() {
    let mut backoff = Backoff::new(RetryPolicy::default());
    let waits: Vec<_> = (0..10).map(|_| secs(backoff.after(&busy(None), MIDDLE))).collect();
    let long = Some(30.0);
    assert_eq!(waits, [Some(5.0), Some(10.0), Some(20.0), long, long, long, long, long, long, None]);
}

#[test]
fn streams_are_repeated_three_times() {
    let mut backoff = Backoff::new(RetryPolicy::for_streams());
    let error = ModelError::new(ModelErrorKind::InvalidStream, "empty");
    let waits: Vec<_> = (0..4).map(|_| secs(backoff.after(&error, MIDDLE))).collect();
    assert_eq!(waits, [Some(1.0), Some(2.0), Some(4.0), None]);
}

#[test]
fn the_servers_wish_is_a_lower_bound() {
    let mut backoff = Backoff::new(RetryPolicy::default());
    assert_eq!(secs(backoff.after(&busy(Some(Duration::from_secs(2))), 0)), Some(5.0));
    assert_eq!(secs(backoff.after(&busy(Some(Duration::from_secs(60))), 0)), Some(60.0));
    assert_eq!(secs(backoff.after(&busy(Some(Duration::from_secs(301))), 0)), None);
}

#[test]
fn an_unreachable_server_is_given_up_earlier() {
    let mut backoff = Backoff::new(RetryPolicy::default());
    let error = ModelError::new(ModelErrorKind::Network, "refused");
    let waits = (0..4).map(|_| secs(backoff.after(&error, MIDDLE))).collect::<Vec<_>>();
    assert_eq!(waits, [Some(5.0), Some(10.0), Some(20.0), None]);
}

#[test]
fn without_waits_ignores_the_servers_wish() {
    let mut backoff = Backoff::new(RetryPolicy::for_streams().without_waits());
    for _ in 0..3 {
        assert_eq!(secs(backoff.after(&busy(Some(Duration::from_secs(900))), 7)), Some(0.0));
    }
    assert_eq!(backoff.after(&busy(None), 7), None);
}

#[test]
fn endless_waits_do_not_overflow() {
    let endless = Duration::MAX;
    let policy = RetryPolicy { max_delay: endless, server_delay_max: endless, ..RetryPolicy::default() };
    let mut backoff = Backoff::new(RetryPolicy { initial_delay: endless, ..policy });
    assert!(backoff.after(&busy(Some(endless)), u64::MAX).unwrap().delay > Duration::from_secs(1 << 60));
    assert!(backoff.after(&busy(None), u64::MAX).unwrap().delay > Duration::from_secs(1 << 60));
}

proptest! {
    /// I1 to I3, for any order of failures.
    #[test]
    fn waits_keep_their_bounds(
        failures in prop::collection::vec((any::<u64>(), prop::option::of(0_u64..400_000)), 1..20),
        max_attempts in 1_u32..12,
    ) {
        let policy = RetryPolicy { max_attempts, ..RetryPolicy::default() };
        let mut backoff = Backoff::new(policy.clone());
        let mut waits = 0;
        let mut plain = policy.initial_delay;
        for (random, asked) in failures {
            let asked = asked.map(Duration::from_millis);
            let Some(notice) = backoff.after(&busy(asked), random) else {
                prop_assert!(waits + 1 >= max_attempts || asked.is_some_and(|asked| asked > policy.server_delay_max));
                break;
            };
            waits += 1;
            match asked {
                Some(asked) => {
                    prop_assert!(notice.delay >= asked.max(plain), "I2");
                    prop_assert!(notice.delay <= asked.max(plain).mul_f64(1.2), "I2");
                }
                None => prop_assert!(notice.delay >= plain.mul_f64(0.7) && notice.delay <= plain.mul_f64(1.3), "I3"),
            }
            plain = (plain * 2).min(policy.max_delay);
        }
        prop_assert!(waits < max_attempts, "I1");
    }
}

#[tokio::test(start_paused = true)]
async fn repeats_until_it_works() {
    let calls = AtomicU32::new(0);
    let attempt = || async { if calls.fetch_add(1, Ordering::Relaxed) < 2 { Err(busy(None)) } else { Ok("done") } };
    let done = retry_with_backoff(&RetryPolicy::default(), &CancellationToken::new(), attempt).await;
    assert_eq!((done, calls.into_inner()), (Ok("done"), 3));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_request_is_not_repeated() {
    let calls = AtomicU32::new(0);
    let error = ModelError::new(ModelErrorKind::BadRequest, "no");
    let attempt = || async {
        calls.fetch_add(1, Ordering::Relaxed);
        Err::<(), _>(error.clone())
    };
    let done = retry_with_backoff(&RetryPolicy::default(), &CancellationToken::new(), attempt).await;
    assert_eq!((done, calls.into_inner()), (Err(error.clone()), 1));
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_a_wait_at_once() {
    let cancel = CancellationToken::new();
    let start = tokio::time::Instant::now();
    let policy = RetryPolicy::default();
    let work = retry_with_backoff(&policy, &cancel, || async { Err::<(), _>(busy(None)) });
    let stop = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        cancel.cancel();
    };
    let (done, ()) = tokio::join!(work, stop);
    assert_eq!(done.unwrap_err().kind, ModelErrorKind::Cancelled);
    assert_eq!(start.elapsed(), Duration::from_millis(10));
}
