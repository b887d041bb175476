//! Repeating: when is a failed call tried again, and how long is the wait?
//!
//! [`Backoff`] decides; it is handed the failure and random bits and returns a wait, without a clock. Its caller, such
//! as [`retry_with_backoff`], does the waiting. Source: runtime specification §4.5. Departures: the server's wish is
//! read from `Retry-After` too, and failures to reach the server have a bound of their own.

use std::time::Duration;

use convoke_adk::{ModelError, ModelErrorKind};
use tokio_util::sync::CancellationToken;

use crate::generator::{cancelled, or_cancelled};

/// How often and how patiently to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first one counted.
    pub max_attempts: u32,
    /// Of these, attempts that may fail without any answer. A refused connection or an unknown host rarely heals
    /// within minutes, and a person is waiting.
    pub max_network_attempts: u32,
    /// The first wait.
    pub initial_delay: Duration,
    /// By how much waits grow.
    pub growth: u32,
    /// Waits grow up to this.
    pub max_delay: Duration,
    /// An ordinary wait varies by this many per cent either way, so that clients spread out.
    pub jitter_percent: u8,
    /// A wait that the server asked for is never shortened, and lengthened by up to this many per cent.
    pub server_jitter_percent: u8,
    /// If the server asks for more than this, the failure is final.
    pub server_delay_max: Duration,
}

impl Default for RetryPolicy {
    /// For calls that were refused: 10 attempts, 5 s doubling to 30 s.
    fn default() -> Self {
        Self {
            max_attempts: 10,
            max_network_attempts: 4,
            initial_delay: Duration::from_secs(5),
            growth: 2,
            max_delay: Duration::from_secs(30),
            jitter_percent: 30,
            server_jitter_percent: 20,
            server_delay_max: SERVER_DELAY_MAX,
        }
    }
}

/// A server that wants more than this is not busy, its quota is used up.
pub(crate) const SERVER_DELAY_MAX: Duration = Duration::from_secs(300);

impl RetryPolicy {
    /// For streams that broke off or can't be used: 3 repetitions, about 1, 2 and 4 s apart. Source: §4.7.
    #[must_use]
    pub fn for_streams() -> Self {
        Self {
            max_attempts: 4,
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(4),
            ..Self::default()
        }
    }

    /// For a model without room, where another one is there: 3 attempts, about 1 and 3 s apart. Source: §4.5.
    #[must_use]
    pub fn for_capacity() -> Self {
        Self {
            max_attempts: 3,
            initial_delay: Duration::from_secs(1),
            growth: 3,
            max_delay: Duration::from_secs(3),
            ..Self::default()
        }
    }

    /// For side requests: 5 attempts. Source: §4.5.
    #[must_use]
    pub fn for_side_requests() -> Self {
        Self { max_attempts: 5, ..Self::default() }
    }

    /// The same number of attempts without waits, for scripts.
    #[must_use]
    pub fn without_waits(self) -> Self {
        Self { initial_delay: Duration::ZERO, max_delay: Duration::ZERO, server_delay_max: Duration::ZERO, ..self }
    }

    fn waits(&self) -> bool {
        !self.max_delay.is_zero()
    }
}

/// Told before each wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryNotice {
    /// How many attempts have failed; the next one is the one after.
    pub failed_attempts: u32,
    /// The policy's bound.
    pub max_attempts: u32,
    /// The wait.
    pub delay: Duration,
    /// Why.
    pub error: ModelError,
}

/// Sans-IO: counts the failures of one call and says how long to wait after each.
///
/// I1: at most `max_attempts - 1` waits. I2: no wait is shorter than what the server asked for. I3: without a server's
/// wish, a wait is within `jitter_percent` of `min(initial_delay · growthⁿ, max_delay)`.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: RetryPolicy,
    failures: u32,
    network_failures: u32,
    delay: Duration,
}

impl Backoff {
    /// Before the first attempt.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Self {
        let delay = policy.initial_delay;
        Self { policy, failures: 0, network_failures: 0, delay }
    }

    /// Takes one more failure; `None` means that it is final. Whether this *kind* may be repeated is the caller's
    /// question. `random` is uniform bits.
    pub fn after(&mut self, error: &ModelError, random: u64) -> Option<RetryNotice> {
        self.failures = self.failures.saturating_add(1);
        if error.kind == ModelErrorKind::Network {
            self.network_failures = self.network_failures.saturating_add(1);
        }
        if self.failures >= self.policy.max_attempts || self.network_failures >= self.policy.max_network_attempts {
            return None;
        }
        let delay = self.delay(error.retry_after, random)?;
        self.delay = self.delay.saturating_mul(self.policy.growth).min(self.policy.max_delay);
        Some(RetryNotice {
            failed_attempts: self.failures,
            max_attempts: self.policy.max_attempts,
            delay,
            error: error.clone(),
        })
    }

    fn delay(&self, server: Option<Duration>, random: u64) -> Option<Duration> {
        if !self.policy.waits() {
            return Some(Duration::ZERO);
        }
        // 53 bits are what an f64 holds exactly: a uniform fraction of 1.
        let fraction = (random >> 11) as f64 / (1_u64 << 53) as f64;
        match server {
            Some(asked) if asked > self.policy.server_delay_max => None,
            Some(asked) => {
                let jitter = f64::from(self.policy.server_jitter_percent) / 100.0 * fraction;
                Some(scaled(asked.max(self.delay), 1.0 + jitter))
            }
            None => {
                let jitter = f64::from(self.policy.jitter_percent.min(100)) / 100.0 * (2.0 * fraction - 1.0);
                Some(scaled(self.delay, 1.0 + jitter))
            }
        }
    }
}

/// `Duration::mul_f64` without its panic at the end of time.
fn scaled(delay: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(delay)
}

/// Calls `attempt` until it succeeds, fails for good, or `cancel` comes, which ends a wait at once.
///
/// Failures of a [retryable kind](ModelErrorKind::is_retryable) are repeated within `policy`.
pub async fn retry_with_backoff<T, Attempt, Fut>(
    policy: &RetryPolicy,
    cancel: &CancellationToken,
    mut attempt: Attempt,
) -> Result<T, ModelError>
where
    Attempt: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ModelError>>,
{
    let mut backoff = Backoff::new(policy.clone());
    loop {
        let error = match or_cancelled(cancel, attempt()).await {
            Err(error) if error.kind.is_retryable() => error,
            done => return done,
        };
        match backoff.after(&error, entropy()) {
            Some(notice) => wait(&notice, cancel).await?,
            None => return Err(error),
        }
    }
}

/// Waits as long as `notice` says, or until `cancel`.
pub(crate) async fn wait(notice: &RetryNotice, cancel: &CancellationToken) -> Result<(), ModelError> {
    crate::observe::network_retry(notice);
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(cancelled()),
        () = tokio::time::sleep(notice.delay) => Ok(()),
    }
}

/// Random bits for jitter.
pub(crate) fn entropy() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0.rotate_left(32) ^ uuid::Uuid::new_v4().as_u64_pair().1
}

#[cfg(test)]
mod tests;
