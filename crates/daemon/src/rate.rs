//! May this peer ask once more? Sans-IO: a token bucket per peer and tier, with time as an input.
//!
//! A peer is what its socket proves: an IPv4 address, the /64 of an IPv6 one, or this machine. What a client says about
//! itself is not looked at, so a new name is no new bucket. Source: daemon specification, §b, "Rate limit"; the key is a
//! departure.
//!
//! A bucket is kept as what its peer still owes: a request costs a window's length, and each millisecond pays the tier's
//! limit back, so that there is nothing to round. What owes nothing is forgotten, and only that: no flood of peers makes
//! room by forgetting a debt. Peers beyond the bound share one bucket per tier.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use convoke_stdx::{Now, Tick};
use http::Method;

use crate::options::RateOptions;
use crate::peer::Peer;
use crate::route::{Match, Route};

/// Peers with a debt that are told apart. Source: daemon specification, §b.
const PEERS_MAX: usize = 10_000;

/// What kind of request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// A prompt: the dear ones.
    Prompt,
    /// Any other change.
    Mutation,
    /// Looking only.
    Read,
}

impl Tier {
    const ALL: [Self; 3] = [Self::Prompt, Self::Mutation, Self::Read];

    /// The tier of a request; `None` is not counted: signs of life and streams, which hold a connection instead.
    pub(crate) fn of(method: &Method, found: &Match) -> Option<Self> {
        match found {
            Match::Route(Route::Health | Route::Heartbeat(_) | Route::Events(_)) => None,
            Match::Route(Route::Prompt(_)) => Some(Self::Prompt),
            _ if matches!(*method, Method::GET | Method::HEAD) => Some(Self::Read),
            _ if *method == Method::OPTIONS => None,
            _ => Some(Self::Mutation),
        }
    }

    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Mutation => "mutation",
            Self::Read => "read",
        }
    }
}

/// Who asks, as far as the socket proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerKey {
    /// This machine, by whichever way.
    Local,
    /// An address, or the network that one household or host gets.
    Remote(IpAddr),
}

impl PeerKey {
    /// The key of a socket's other end.
    pub(crate) fn of(peer: Peer) -> Self {
        let Peer::Tcp(address) = peer else { return Self::Local };
        if crate::peer::is_loopback(address.ip()) {
            return Self::Local;
        }
        match address.ip().to_canonical() {
            IpAddr::V4(v4) => Self::Remote(v4.into()),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self::Remote(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
        }
    }
}

/// The referee's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Go on.
    Pass,
    /// Too many.
    Wait {
        /// When one more would pass; at least a millisecond.
        retry_after: Duration,
        /// The tier's limit.
        limit: u32,
    },
}

/// All buckets.
#[derive(Debug)]
pub(crate) struct Limiter {
    options: RateOptions,
    peers_max: usize,
    debts: BTreeMap<(Tier, PeerKey), Debt>,
    /// The same, by when nothing is owed any more.
    by_end: BTreeSet<(Tick, Tier, PeerKey)>,
    /// What the peers beyond the bound owe together.
    shared: [Debt; 3],
}

/// What is owed, in window lengths times the limit, as of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debt {
    owed: u64,
    at: Tick,
}

/// A tier's arithmetic.
#[derive(Clone, Copy, Debug)]
struct Terms {
    limit: u64,
    window: u64,
}

impl Terms {
    /// The most that may be owed: the burst of a full bucket.
    fn capacity(self) -> u64 {
        self.limit.saturating_mul(self.window)
    }

    /// The debt as of `now`; time that went backwards pays nothing.
    fn paid(self, debt: Debt, now: Tick) -> Debt {
        let elapsed = u64::try_from(now.since(debt.at).as_millis()).unwrap_or(u64::MAX);
        Debt { owed: debt.owed.saturating_sub(elapsed.saturating_mul(self.limit)), at: debt.at.max(now) }
    }

    /// When `owed` is paid off.
    fn millis_for(self, owed: u64) -> u64 {
        owed.div_ceil(self.limit.max(1))
    }

    fn end(self, debt: Debt) -> Tick {
        debt.at.after(Duration::from_millis(self.millis_for(debt.owed)))
    }

    /// One more request, or how long it has to wait.
    fn charge(self, debt: Debt) -> Result<Debt, Duration> {
        let owed = debt.owed.saturating_add(self.window);
        match owed.checked_sub(self.capacity()) {
            None | Some(0) => Ok(Debt { owed, ..debt }),
            Some(over) => Err(Duration::from_millis(self.millis_for(over))),
        }
    }
}

impl Limiter {
    pub(crate) fn new(options: RateOptions) -> Self {
        Self::with_room_for(PEERS_MAX, options)
    }

    fn with_room_for(peers_max: usize, options: RateOptions) -> Self {
        Self {
            options,
            peers_max,
            debts: BTreeMap::new(),
            by_end: BTreeSet::new(),
            shared: [Debt::default(); Tier::ALL.len()],
        }
    }

    /// Counts a request if it may pass. One that may not costs nothing.
    pub(crate) fn take(&mut self, now: Now, tier: Tier, peer: PeerKey) -> Admission {
        self.forget_paid(now.tick);
        let (limit, terms) = self.terms(tier);
        let key = (tier, peer);
        let known = self.debts.get(&key).copied();
        let own = known.is_some() || self.debts.len() < self.peers_max;
        let before = if own { known.unwrap_or_default() } else { self.shared(tier) };
        match terms.charge(terms.paid(before, now.tick)) {
            Ok(after) if own => {
                self.by_end.remove(&(terms.end(before), tier, peer));
                self.by_end.insert((terms.end(after), tier, peer));
                self.debts.insert(key, after);
                Admission::Pass
            }
            Ok(after) => {
                if let Some(shared) = self.shared.get_mut(tier as usize) {
                    *shared = after;
                }
                Admission::Pass
            }
            Err(retry_after) => Admission::Wait { retry_after, limit },
        }
    }

    fn terms(&self, tier: Tier) -> (u32, Terms) {
        let limit = match tier {
            Tier::Prompt => self.options.prompt,
            Tier::Mutation => self.options.mutation,
            Tier::Read => self.options.read,
        };
        let window = u64::try_from(self.options.window.as_millis()).unwrap_or(u64::MAX);
        (limit, Terms { limit: limit.into(), window })
    }

    fn shared(&self, tier: Tier) -> Debt {
        self.shared.get(tier as usize).copied().unwrap_or_default()
    }

    fn forget_paid(&mut self, now: Tick) {
        while self.by_end.first().is_some_and(|(end, _, _)| *end <= now) {
            if let Some((_, tier, peer)) = self.by_end.pop_first() {
                self.debts.remove(&(tier, peer));
            }
        }
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        assert!(self.debts.len() <= self.peers_max);
        assert_eq!(self.debts.len(), self.by_end.len());
        for (key, debt) in &self.debts {
            let (_, terms) = self.terms(key.0);
            assert!(debt.owed > 0 && debt.owed <= terms.capacity(), "{key:?} owes {debt:?}");
            assert!(self.by_end.contains(&(terms.end(*debt), key.0, key.1)), "{key:?} is not in line");
        }
        for tier in Tier::ALL {
            assert!(self.shared(tier).owed <= self.terms(tier).1.capacity());
        }
    }
}

#[cfg(test)]
mod tests;
