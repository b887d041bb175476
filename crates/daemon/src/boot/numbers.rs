//! Which numbers may a flag have? A dictionary: one rule per flag, refused in the words of the peer.
//!
//! Text is read here, so that `--max-sessions abc` is refused in the same words as `-1`. Source: daemon specification,
//! §a, flags and "Boot failures".

use std::time::Duration;

use super::BootError;

/// What the number of one flag or setting may be.
#[derive(Clone, Copy, Debug)]
pub struct NumberRule {
    name: &'static str,
    min: usize,
    max: usize,
    must: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    /// 0 and `Infinity` lift the limit, which is 0 here; fractions are cut off.
    Limit,
    /// The name is a flag, and the refusal says so.
    Rate,
}

/// Longest time that a flag may name: what a 32-bit timer of other implementations holds, 24.8 days.
const MAX_MILLIS: usize = 2_147_483_647;

const POSITIVE_MILLIS: &str = "a positive integer (milliseconds)";
const MILLIS_OR_OFF: &str = "a non-negative integer (milliseconds, 0 = disabled)";
const LIMIT: &str = "a number >= 0 (0 / Infinity = unlimited)";

const fn whole(name: &'static str, min: usize, max: usize, must: &'static str) -> NumberRule {
    NumberRule { name, min, max, must, kind: Kind::Whole }
}

const fn limit(name: &'static str) -> NumberRule {
    NumberRule { name, min: 0, max: usize::MAX, must: LIMIT, kind: Kind::Limit }
}

const fn rate(flag: &'static str, max: usize) -> NumberRule {
    NumberRule { name: flag, min: 1, max, must: "", kind: Kind::Rate }
}

impl NumberRule {
    /// `--max-sessions`.
    pub const MAX_SESSIONS: Self = limit("maxSessions");
    /// `--max-total-sessions`.
    pub const MAX_TOTAL_SESSIONS: Self = limit("maxTotalSessions");
    /// `--max-pending-prompts-per-session`.
    pub const MAX_PENDING_PROMPTS: Self = limit("maxPendingPromptsPerSession");
    /// `--max-connections`.
    pub const MAX_CONNECTIONS: Self = limit("maxConnections");
    /// `--max-subscribers-per-session`. One step of the bridge hands a frame to all of a session's subscribers, and
    /// everybody else waits for it: a thousand take less than a millisecond.
    pub const MAX_SUBSCRIBERS: Self = whole("maxSubscribersPerSession", 1, 1024, "a positive integer in [1, 1024]");
    /// `--event-ring-size`, in frames.
    pub const EVENT_RING_SIZE: Self = whole("eventRingSize", 1, 1_000_000, "a positive integer in [1, 1000000]");
    /// `--permission-response-timeout-ms`.
    pub const PERMISSION_TIMEOUT: Self = whole(
        "permissionResponseTimeoutMs",
        0,
        MAX_MILLIS,
        "a non-negative integer (milliseconds, 0 = disabled / wait forever)",
    );
    /// `--prompt-deadline-ms`.
    pub const PROMPT_DEADLINE: Self = whole("promptDeadlineMs", 1, MAX_MILLIS, POSITIVE_MILLIS);
    /// `--writer-idle-timeout-ms`.
    pub const WRITER_IDLE: Self = whole("writerIdleTimeoutMs", 1, MAX_MILLIS, POSITIVE_MILLIS);
    /// `--initialize-timeout-ms`.
    pub const INITIALIZE_TIMEOUT: Self = whole("initializeTimeoutMs", 1, MAX_MILLIS, POSITIVE_MILLIS);
    /// `--session-restore-timeout-ms`.
    pub const RESTORE_TIMEOUT: Self = whole("sessionRestoreTimeoutMs", 1, MAX_MILLIS, POSITIVE_MILLIS);
    /// `--session-idle-timeout-ms`.
    pub const SESSION_IDLE: Self = whole("sessionIdleTimeoutMs", 0, MAX_MILLIS, MILLIS_OR_OFF);
    /// `--session-reap-interval-ms`.
    pub const REAP_INTERVAL: Self = whole("sessionReapIntervalMs", 0, MAX_MILLIS, MILLIS_OR_OFF);
    /// `--session-prompt-settled-close-grace-ms`.
    pub const SETTLED_GRACE: Self = whole("sessionPromptSettledCloseGraceMs", 0, MAX_MILLIS, MILLIS_OR_OFF);
    /// `--compacted-replay-max-bytes`.
    pub const REPLAY_BYTES: Self =
        whole("compactedReplayMaxBytes", 1, 256 << 20, "a positive integer in [1, 268435456]");
    /// `--max-journal-events`.
    pub const JOURNAL_EVENTS: Self = whole("maxJournalEvents", 1, usize::MAX, "a positive integer");
    /// `--max-journal-bytes`.
    pub const JOURNAL_BYTES: Self = whole("maxJournalBytes", 1, usize::MAX, "a positive integer");
    /// `--rate-limit-prompt`.
    pub const RATE_PROMPT: Self = rate("--rate-limit-prompt", 1_000_000_000);
    /// `--rate-limit-mutation`.
    pub const RATE_MUTATION: Self = rate("--rate-limit-mutation", 1_000_000_000);
    /// `--rate-limit-read`.
    pub const RATE_READ: Self = rate("--rate-limit-read", 1_000_000_000);
    /// `--rate-limit-window-ms`.
    pub const RATE_WINDOW: Self = rate("--rate-limit-window-ms", MAX_MILLIS);

    /// Reads a number; a lifted limit is 0.
    pub fn read(self, text: &str) -> Result<usize, BootError> {
        // What is no number is NaN, as the peer shows it.
        let number: f64 = text.trim().parse().unwrap_or(f64::NAN);
        if self.kind == Kind::Limit && number == f64::INFINITY {
            return Ok(0);
        }
        let number = if self.kind == Kind::Limit { number.floor() } else { number };
        let fits = number.fract() == 0.0 && (self.min as f64..=self.max as f64).contains(&number);
        if fits { Ok(number as usize) } else { Err(self.refuse(number)) }
    }

    /// Reads milliseconds.
    pub fn read_millis(self, text: &str) -> Result<Duration, BootError> {
        self.read(text).map(|millis| Duration::from_millis(millis as u64))
    }

    /// Reads milliseconds of which 0 means that there is no limit.
    pub fn read_millis_or_off(self, text: &str) -> Result<Option<Duration>, BootError> {
        self.read_millis(text).map(|duration| Some(duration).filter(|duration| !duration.is_zero()))
    }

    /// Whether a number that an embedder gave fits.
    pub(super) fn check(self, number: usize) -> Result<(), BootError> {
        if (self.min..=self.max).contains(&number) { Ok(()) } else { Err(self.refuse(number as f64)) }
    }

    pub(super) fn refuse(self, number: f64) -> BootError {
        match self.kind {
            Kind::Rate => BootError::InvalidRate { flag: self.name },
            Kind::Whole | Kind::Limit => {
                BootError::InvalidNumber { name: self.name, given: number.to_string(), must: self.must }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rule: NumberRule, text: &str) -> String {
        rule.read(text).unwrap_err().to_string()
    }

    #[test]
    fn limits_that_can_be_lifted() {
        for (text, number) in [("0", 0), ("Infinity", 0), ("2", 2), (" 7 ", 7), ("2.9", 2), ("1e3", 1000)] {
            assert_eq!(NumberRule::MAX_SESSIONS.read(text).unwrap(), number, "{text}");
        }
        for (text, shown) in [("-1", "-1"), ("abc", "NaN"), ("", "NaN"), ("-Infinity", "-inf")] {
            assert_eq!(
                refused(NumberRule::MAX_SESSIONS, text),
                format!("Invalid maxSessions: {shown}. Must be a number >= 0 (0 / Infinity = unlimited).")
            );
        }
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(NumberRule::EVENT_RING_SIZE.read("8000").unwrap(), 8000);
        for text in ["0", "1000001", "1.5"] {
            assert_eq!(
                refused(NumberRule::EVENT_RING_SIZE, text),
                format!("Invalid eventRingSize: {text}. Must be a positive integer in [1, 1000000].")
            );
        }
        assert_eq!(NumberRule::MAX_SUBSCRIBERS.read("1024").unwrap(), 1024);
        assert_eq!(
            refused(NumberRule::MAX_SUBSCRIBERS, "many"),
            "Invalid maxSubscribersPerSession: NaN. Must be a positive integer in [1, 1024]."
        );
        assert_eq!(
            refused(NumberRule::PERMISSION_TIMEOUT, "-1"),
            "Invalid permissionResponseTimeoutMs: -1. Must be a non-negative integer (milliseconds, 0 = disabled / \
             wait forever)."
        );
        assert_eq!(
            refused(NumberRule::PROMPT_DEADLINE, "0"),
            "Invalid promptDeadlineMs: 0. Must be a positive integer (milliseconds)."
        );
        assert_eq!(refused(NumberRule::RATE_PROMPT, "0"), "--rate-limit-prompt must be a positive integer.");
        assert_eq!(refused(NumberRule::RATE_WINDOW, "x"), "--rate-limit-window-ms must be a positive integer.");
    }

    #[test]
    fn zero_turns_a_timeout_off() {
        let timeout = NumberRule::PERMISSION_TIMEOUT;
        assert_eq!(timeout.read_millis_or_off("0").unwrap(), None);
        assert_eq!(timeout.read_millis_or_off("2500").unwrap(), Some(Duration::from_millis(2500)));
        assert_eq!(NumberRule::WRITER_IDLE.read_millis("5").unwrap(), Duration::from_millis(5));
        // Past what timers elsewhere hold.
        assert!(timeout.read("2147483648").is_err());
    }
}
