//! One clock for all processes of a run: when did it happen, comparably?

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds; the same for every process on this machine.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    // Linux always has this clock; a 0 would show as an absurd figure, not as a plausible one.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    })
}
