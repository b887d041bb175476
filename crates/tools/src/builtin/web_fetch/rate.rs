//! How often may one host be asked? So often that a model in a loop is no attack. Sans-IO: time is an input.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use convoke_stdx::Tick;

// Source of both: runtime specification §13.3.
const CALLS_MAX: usize = 10;
const WITHIN: Duration = Duration::from_secs(60);
// A session that reads more hosts in a minute forgets the first of them.
const HOSTS_MAX: usize = 1000;

/// Calls of the last minute, by host.
#[derive(Debug, Default)]
pub(super) struct HostRates {
    calls: BTreeMap<String, VecDeque<Tick>>,
}

impl HostRates {
    /// Counts a call, or says how long to wait for one.
    pub(super) fn admit(&mut self, host: &str, now: Tick) -> Result<(), Duration> {
        let age = |then: &Tick| now.since(*then);
        self.calls.retain(|_, calls| {
            calls.retain(|then| age(then) < WITHIN);
            !calls.is_empty()
        });
        if self.calls.len() >= HOSTS_MAX && !self.calls.contains_key(host) {
            self.calls.pop_first();
        }
        let calls = self.calls.entry(host.to_owned()).or_default();
        match calls.front() {
            Some(first) if calls.len() >= CALLS_MAX => Err(WITHIN.saturating_sub(age(first))),
            Some(_) | None => {
                calls.push_back(now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_a_minute_for_each_host() {
        let mut rates = HostRates::default();
        for second in 0..10 {
            assert_eq!(rates.admit("a", Tick(second * 1000)), Ok(()));
        }
        assert_eq!(rates.admit("a", Tick(9_000)), Err(Duration::from_secs(51)));
        assert_eq!(rates.admit("b", Tick(9_000)), Ok(()));
        assert_eq!(rates.admit("a", Tick(60_000)), Ok(()));
        assert!(rates.admit("a", Tick(60_000)).is_err());
        for host in 0..5000 {
            assert_eq!(rates.admit(&format!("h{host}"), Tick(60_000)), Ok(()));
        }
        assert!(rates.calls.len() <= HOSTS_MAX);
        assert_eq!(rates.admit("h1", Tick(200_000)), Ok(()));
        assert_eq!(rates.calls.len(), 1, "what is old is forgotten");
    }
}
