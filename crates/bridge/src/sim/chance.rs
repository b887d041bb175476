//! Chance that a seed repeats, and the options of a walk.

use std::time::Duration;

use convoke_protocol::daemon::capability::{CancelRule, PermissionPolicy};

use crate::options::{BridgeOptions, Limits};

/// Marsaglia's xorshift64*.
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // Neighbouring seeds begin alike.
        for _ in 0..4 {
            chance.next();
        }
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from((self.next() >> 11) % bound).unwrap_or_default()
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them, if there is any.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// A policy and bounds, tight in every second walk.
    pub(super) fn options(&mut self) -> BridgeOptions {
        let policy = self.pick(&PermissionPolicy::ALL).copied().unwrap_or_default();
        let cancel = self.pick(&CancelRule::ALL).copied().unwrap_or_default();
        let tight = self.one_in(2);
        let limits = Limits {
            sessions_per_workspace: 3,
            sessions_total: 4,
            clients: 6,
            pending_prompts: 3,
            pending_permissions: 3,
            pending_bytes: 8 << 20,
            resolved_permissions: 4,
            audit_records: 8,
            ring_frames: if tight { 10 } else { 8000 },
            ring_bytes: if tight { 4000 } else { 32 << 20 },
            replay_bytes: if tight { 2500 } else { 8 << 20 },
            subscribers: 5,
            queued_frames: 16,
            queued_bytes: 6000,
            turns: 2,
            turn_text_bytes: 16,
            close_grace: Duration::from_millis(300),
        };
        BridgeOptions {
            policy,
            quorum: if self.one_in(3) { Some(self.below(5)) } else { None },
            cancel,
            permission_timeout: if self.one_in(4) { None } else { Some(Duration::from_millis(500)) },
            prompt_deadline: self.one_in(2).then_some(Duration::from_millis(900)),
            idle_timeout: Some(Duration::from_millis(2000)),
            reap_interval: if tight { Duration::from_millis(700) } else { Duration::ZERO },
            settled_grace: if tight { Duration::ZERO } else { Duration::from_millis(400) },
            limits,
        }
    }
}
