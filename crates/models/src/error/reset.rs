//! Reset: when does a day's quota of Google's begin anew?
//!
//! At midnight in California, whatever the error's `RetryInfo` says. Source: Gemini API, rate limits: "requests per day
//! quotas reset at midnight Pacific time"; the rule of daylight saving is that of the United States since 2007.

use std::time::Duration;

const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// How long from `wall_ms`, milliseconds since the Unix epoch, until midnight in California.
pub(super) fn until_pacific_midnight(wall_ms: u64) -> Duration {
    let local = wall_ms.saturating_sub(behind_utc_ms(wall_ms));
    let midnight = (local / DAY_MS + 1).saturating_mul(DAY_MS);
    // The clock may be put forward or back in between.
    let behind = behind_utc_ms(midnight.saturating_add(behind_utc_ms(wall_ms)));
    Duration::from_millis(midnight.saturating_add(behind).saturating_sub(wall_ms))
}

/// By how much California is behind UTC at this moment.
fn behind_utc_ms(wall_ms: u64) -> u64 {
    let year = year_of(wall_ms / DAY_MS);
    // From the second Sunday in March, 10:00 UTC, until the first Sunday in November, 9:00 UTC.
    let begins = (sunday_from(day_of(year, 3) + 7) * DAY_MS) + 10 * HOUR_MS;
    let ends = (sunday_from(day_of(year, 11)) * DAY_MS) + 9 * HOUR_MS;
    if (begins..ends).contains(&wall_ms) { 7 * HOUR_MS } else { 8 * HOUR_MS }
}

/// The first Sunday on or after this day since the epoch, which was a Thursday.
fn sunday_from(day: u64) -> u64 {
    day + (10 - day % 7) % 7
}

fn year_of(day: u64) -> u64 {
    let mut year = 1970 + day / 366;
    while day_of(year + 1, 1) <= day {
        year += 1;
    }
    year
}

/// The first day of a month, counted from the epoch.
fn day_of(year: u64, month: u64) -> u64 {
    let before = year - 1;
    let leap_days = (before / 4 - before / 100 + before / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let is_leap = (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let days_before = match month {
        3 => 59 + u64::from(is_leap),
        11 => 304 + u64::from(is_leap),
        _ => 0,
    };
    (year - 1970) * 365 + leap_days + days_before
}

#[cfg(test)]
mod tests {
    use convoke_stdx::{iso8601, parse_http_date};
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn midnights() {
        for (now, midnight) in [
            ("Sat, 21 Nov 2026 02:02:33 GMT", "2026-11-21T08:00:00.000Z"),
            ("Sat, 21 Nov 2026 08:00:00 GMT", "2026-11-22T08:00:00.000Z"),
            ("Wed, 01 Jul 2026 12:00:00 GMT", "2026-07-02T07:00:00.000Z"),
            ("Sun, 08 Mar 2026 09:00:00 GMT", "2026-03-09T07:00:00.000Z"),
            ("Sun, 08 Mar 2026 07:59:59 GMT", "2026-03-08T08:00:00.000Z"),
            ("Sun, 01 Nov 2026 08:00:00 GMT", "2026-11-02T08:00:00.000Z"),
            ("Thu, 29 Feb 2024 12:00:00 GMT", "2024-03-01T08:00:00.000Z"),
            ("Fri, 31 Dec 2027 23:00:00 GMT", "2028-01-01T08:00:00.000Z"),
        ] {
            let at = parse_http_date(now).unwrap();
            let until = u64::try_from(until_pacific_midnight(at).as_millis()).unwrap();
            assert_eq!(iso8601(at + until), midnight, "{now}");
        }
    }

    #[test]
    fn no_moment_breaks_it() {
        for wall_ms in [DAY_MS, DAY_MS + 1, 4_102_444_800_000, 253_402_300_799_000] {
            assert!(until_pacific_midnight(wall_ms) <= Duration::from_millis(DAY_MS + HOUR_MS), "{wall_ms}");
        }
    }
}
