//! Time as an input: machines are handed a [`Now`] and never read a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since some fixed start; monotonic. The only time that deadlines may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The tick `duration` later, saturating at the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// One moment, as a machine sees it: a monotonic tick for deadlines and a wall clock for people.
///
/// `wall_ms` is milliseconds since the Unix epoch and may jump in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic milliseconds.
    pub tick: Tick,
    /// Wall-clock milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// The shell's clock: the one place where [`Now`] values come from.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose tick 0 is now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            tick: Tick::default().after(self.start.elapsed()),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The instant at which `tick` is reached, for arming a timer.
    #[must_use]
    pub fn instant_of(&self, tick: Tick) -> Instant {
        self.start.checked_add(Duration::from_millis(tick.0)).unwrap_or(self.start)
    }
}

/// RFC 3339 text in UTC with milliseconds, such as `2026-11-21T02:02:33.118Z`.
///
/// Values past the year 9999 are clamped to the epoch: they can only come from a broken clock.
#[must_use]
pub fn iso8601(wall_ms: u64) -> String {
    let ms = i64::try_from(wall_ms).unwrap_or_default();
    let stamp = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{stamp:.3}")
}

/// Milliseconds since the Unix epoch of RFC 3339 text; `None` for anything else and for moments before the epoch.
#[must_use]
pub fn parse_iso8601(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()).ok()
}

/// Milliseconds since the Unix epoch of an HTTP date such as `Sat, 21 Nov 2026 06:00:00 GMT` (RFC 9110 §5.6.7, the
/// preferred form); `None` for anything else and for moments before the epoch.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<u64> {
    let stamp = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    u64::try_from(stamp.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso8601_has_three_decimals_and_zulu() {
        assert_eq!(iso8601(1_795_226_553_118), "2026-11-21T02:02:33.118Z");
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso8601(u64::MAX), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn iso8601_reads_what_it_writes_and_what_others_write() {
        assert_eq!(parse_iso8601(&iso8601(1_795_226_553_118)), Some(1_795_226_553_118));
        assert_eq!(parse_iso8601("2026-11-21T04:02:33+02:00"), Some(1_795_226_553_000));
        assert_eq!(parse_iso8601("1969-12-31T23:59:59Z"), None);
        assert_eq!(parse_iso8601("yesterday"), None);
    }

    #[test]
    fn http_dates_read_and_nonsense_does_not() {
        assert_eq!(parse_http_date("Sat, 21 Nov 2026 02:02:33 GMT"), Some(1_795_226_553_000));
        assert_eq!(parse_http_date("Wed, 01 Jan 1969 00:00:00 GMT"), None);
        assert_eq!(parse_http_date("tomorrow"), None);
    }

    #[test]
    fn ticks_saturate() {
        assert_eq!(Tick(u64::MAX).after(Duration::from_secs(1)), Tick(u64::MAX));
        assert_eq!(Tick(3).since(Tick(5)), Duration::ZERO);
    }
}
