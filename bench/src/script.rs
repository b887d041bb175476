//! What a bench asks of its scripted agent, and what the agent's chunks carry.
//!
//! The script is the prompt's text, so that it passes through the daemon like any other prompt.

use std::fmt;
use std::str::FromStr;

/// What the agent does in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Writes message chunks that carry the time they were written.
    Chunks {
        /// How many.
        count: u32,
        /// How many a second; 0 is as fast as the pipe takes them.
        per_second: u32,
        /// Length of each chunk's text, at least the stamp's own.
        bytes: usize,
    },
    /// Asks for permission, again and again, each time after the answer.
    Ask {
        /// How many times.
        count: u32,
        /// Milliseconds between an answer and the next question, so that rounds do not overlap.
        gap_ms: u64,
    },
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunks { count, per_second, bytes } => write!(f, "chunks {count} {per_second} {bytes}"),
            Self::Ask { count, gap_ms } => write!(f, "ask {count} {gap_ms}"),
        }
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("understand the script {text:?}");
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["chunks", count, per_second, bytes] => Ok(Self::Chunks {
                count: count.parse().map_err(|_| unknown())?,
                per_second: per_second.parse().map_err(|_| unknown())?,
                bytes: bytes.parse().map_err(|_| unknown())?,
            }),
            ["ask", count, gap_ms] => Ok(Self::Ask {
                count: count.parse().map_err(|_| unknown())?,
                gap_ms: gap_ms.parse().map_err(|_| unknown())?,
            }),
            _ => Err(unknown()),
        }
    }
}

/// A chunk's text: `@NANOSECONDS@`, filled up to `bytes`.
#[must_use]
pub fn stamp(nanos: u64, bytes: usize) -> String {
    let mut text = format!("@{nanos}@");
    let fill = bytes.saturating_sub(text.len());
    text.extend(std::iter::repeat_n('x', fill));
    text
}

/// The time in an event that carries a stamped chunk; `None` for every other event.
#[must_use]
pub fn read_stamp(event: &[u8]) -> Option<u64> {
    let start = event.iter().position(|byte| *byte == b'@')? + 1;
    let rest = event.get(start..)?;
    let digits = rest.get(..rest.iter().position(|byte| *byte == b'@')?)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_survives_its_prompt() {
        for script in [Script::Chunks { count: 3, per_second: 200, bytes: 80 }, Script::Ask { count: 7, gap_ms: 5 }] {
            assert_eq!(script.to_string().parse(), Ok(script));
        }
        assert!("chunks 3".parse::<Script>().is_err());
        assert!("chunks -1 2 3".parse::<Script>().is_err());
    }

    #[test]
    fn a_stamp_is_found_in_its_event_and_in_no_other() {
        let text = stamp(123_456, 40);
        assert_eq!(text.len(), 40);
        assert_eq!(read_stamp(format!("data: {{\"text\":\"{text}\"}}\n").as_bytes()), Some(123_456));
        assert_eq!(read_stamp(b"data: {\"text\":\"chunks 3 200 80\"}"), None);
        assert_eq!(read_stamp(b"@"), None);
        assert_eq!(read_stamp(b"@12x@"), None);
    }
}
