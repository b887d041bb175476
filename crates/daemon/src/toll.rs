//! Who counts requests, for all connections at once? The limiter with a clock.

use std::sync::{Mutex, PoisonError};

use convoke_stdx::Clock;

use crate::options::RateOptions;
use crate::peer::Peer;
use crate::rate::{Admission, Limiter, PeerKey, Tier};

/// The limiter as all connections share it.
#[derive(Debug)]
pub(crate) struct Toll {
    limiter: Mutex<Limiter>,
    clock: Clock,
}

impl Toll {
    pub(crate) fn new(options: RateOptions) -> Self {
        Self { limiter: Mutex::new(Limiter::new(options)), clock: Clock::start() }
    }

    /// Counts a request against its peer's share.
    pub(crate) fn take(&self, peer: Peer, tier: Tier) -> Admission {
        // What a panic elsewhere left behind is whole: a debt is changed in one statement.
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.take(self.clock.now(), tier, PeerKey::of(peer))
    }
}
