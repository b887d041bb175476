//! Random choices that a seed repeats.

use super::*;
use crate::Limits;
use convoke_protocol::daemon::capability::CancelRule;

/// Marsaglia's xorshift64*.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.get(self.below(from.len())).cloned()
    }
}

/// A policy and bounds, tight in every second walk.
pub(super) fn walk_options(random: &mut Random) -> BridgeOptions {
    let policy = random.pick(&PermissionPolicy::ALL).unwrap();
    let quorum = if random.one_in(3) { Some(random.below(4)) } else { None };
    let timeout = if random.one_in(4) { None } else { Some(Duration::from_millis(500)) };
    let tight = random.one_in(2);
    let limits = Limits {
        sessions_per_workspace: 3,
        sessions_total: 4,
        clients: 6,
        pending_prompts: 3,
        pending_permissions: 3,
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
        quorum,
        cancel: CancelRule::Any,
        permission_timeout: timeout,
        prompt_deadline: random.one_in(2).then_some(Duration::from_millis(900)),
        idle_timeout: Some(Duration::from_millis(2000)),
        limits,
    }
}
