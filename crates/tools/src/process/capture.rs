//! Output of a command, bounded: its beginning, its end, and how much was in between.

use std::collections::VecDeque;

// Programs that print a NUL this early are not printing text.
const SAMPLE_MAX: usize = 4096;

/// The first and the last bytes of a stream.
#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half_max: usize,
    total: u64,
}

impl Capture {
    /// Keeps at most `bytes_max` bytes, half of them from the beginning.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half_max: bytes_max / 2, total: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let (head, rest) = bytes.split_at(bytes.len().min(self.half_max.saturating_sub(self.head.len())));
        self.head.extend_from_slice(head);
        let (_, rest) = rest.split_at(rest.len().saturating_sub(self.half_max));
        let overflow = (self.tail.len() + rest.len()).saturating_sub(self.half_max);
        self.tail.drain(..overflow);
        self.tail.extend(rest);
    }

    /// All bytes that were ever pushed.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether it is not text.
    pub(crate) fn is_binary(&self) -> bool {
        self.head.iter().take(SAMPLE_MAX).any(|byte| *byte == 0)
    }

    /// What was kept, as text; bytes that are no UTF-8 become U+FFFD. The gap, if there is one, is named.
    pub(crate) fn text(&self) -> String {
        if self.is_binary() {
            return format!("[Binary output: {} bytes, not shown]", self.total);
        }
        let kept = u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX);
        let omitted = self.total.saturating_sub(kept);
        let (first, second) = self.tail.as_slices();
        if omitted == 0 {
            let whole = [self.head.as_slice(), first, second].concat();
            return lossy(whole);
        }
        let tail = lossy([first, second].concat());
        format!("{}\n\n... [{omitted} bytes omitted] ...\n\n{tail}", String::from_utf8_lossy(&self.head))
    }

    /// The last `bytes_max` bytes, as text.
    pub(crate) fn end(&self, bytes_max: usize) -> String {
        if self.is_binary() {
            return self.text();
        }
        let (from_head, from_tail) = match bytes_max.checked_sub(self.tail.len()) {
            // Bytes between the head and the tail may be missing: don't glue across the gap.
            Some(more) if self.total == u64::try_from(self.head.len() + self.tail.len()).unwrap_or(0) => (more, 0),
            Some(_) => (0, 0),
            None => (0, self.tail.len() - bytes_max),
        };
        let mut bytes: Vec<u8> =
            self.head.get(self.head.len().saturating_sub(from_head)..).unwrap_or_default().to_vec();
        bytes.extend(self.tail.iter().skip(from_tail));
        // Begin with a whole character.
        let torn = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        lossy(bytes.split_off(torn))
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(max: usize, pieces: &[&str]) -> Capture {
        let mut capture = Capture::new(max);
        for piece in pieces {
            capture.push(piece.as_bytes());
        }
        capture
    }

    #[test]
    fn keeps_both_ends_and_names_the_gap() {
        assert_eq!(capture(8, &["abc", "de", "fgh"]).text(), "abcdefgh");
        assert_eq!(capture(8, &["abcdefghi"]).text(), "abcd\n\n... [1 bytes omitted] ...\n\nfghi");
        let long = capture(8, &["ab", &"x".repeat(1000), "yz", "!"]);
        assert_eq!(long.text(), "abxx\n\n... [997 bytes omitted] ...\n\nxyz!");
        assert_eq!(long.total(), 1005);
        assert!(long.head.len() + long.tail.len() <= 8 && long.tail.capacity() < 64);
        assert_eq!(capture(0, &["abc"]).text(), "\n\n... [3 bytes omitted] ...\n\n");
    }

    #[test]
    fn the_end_never_spans_a_gap() {
        assert_eq!(capture(8, &["abcdef"]).end(3), "def");
        assert_eq!(capture(8, &["abcdef"]).end(100), "abcdef");
        assert_eq!(capture(8, &["abcdefghijkl"]).end(6), "ijkl");
        assert_eq!(capture(8, &["abcdefghijkl"]).end(2), "kl");
        assert_eq!(capture(80, &["aé"]).end(1), "");
    }

    #[test]
    fn other_encodings_and_binary_survive() {
        let mut latin = Capture::new(100);
        latin.push(b"caf\xe9\n");
        assert_eq!(latin.text(), "caf\u{fffd}\n");
        let mut binary = Capture::new(100);
        binary.push(b"\x7fELF\0\0");
        assert_eq!(binary.text(), "[Binary output: 6 bytes, not shown]");
        assert_eq!(binary.end(2), binary.text());
    }

    #[test]
    fn any_split_gives_the_same() {
        let text: String = (0..200).map(|i| char::from(b'a' + (i % 26))).collect();
        for max in [0, 1, 7, 64, 199, 200, 201, 1000] {
            let whole = capture(max, &[&text]).text();
            for step in [1, 3, 50] {
                let pieces: Vec<&str> =
                    text.as_bytes().chunks(step).map(|chunk| std::str::from_utf8(chunk).unwrap()).collect();
                assert_eq!(capture(max, &pieces).text(), whole, "max {max} step {step}");
            }
        }
    }
}
