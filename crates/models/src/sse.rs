//! Server-sent events: where does one end?
//!
//! Sans-IO: bytes in, in any cut; the data of whole events out. Linear in the input and bounded, which is why this is
//! not a library: those look at a long line again with every read, and hold as much as the server sends. Lines that
//! are no field are ignored, as the standard says. Source: WHATWG HTML §9.2.6.

/// The most that one event may hold. Inline images come as one event of a few MiB.
pub(crate) const EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// An event grew beyond the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read an event of more than {0} bytes")]
pub struct EventTooLong(usize);

/// Takes bytes, gives events.
#[derive(Debug)]
pub struct SseDecoder {
    bytes_max: usize,
    /// The line that is not complete yet.
    line: Vec<u8>,
    /// The event's data so far; `None` before its first `data` field.
    data: Option<Vec<u8>>,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
}

impl SseDecoder {
    /// A decoder for events of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, line: Vec::new(), data: None, after_cr: false, first_line: true }
    }

    /// Takes the next bytes and appends the data of each event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], events: &mut impl Extend<Vec<u8>>) -> Result<(), EventTooLong> {
        if self.after_cr
            && let Some((first, rest)) = bytes.split_first()
        {
            self.after_cr = false;
            if *first == b'\n' {
                bytes = rest;
            }
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, rest) = bytes.split_at(end);
            if self.line.is_empty() {
                self.field(head, events)?;
            } else {
                self.append_line(head)?;
                let line = std::mem::take(&mut self.line);
                self.field(&line, events)?;
            }
            bytes = match rest {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.append_line(bytes)
    }

    /// The stream is over: gives an event whose last blank line was never sent, as some servers do.
    pub fn finish(&mut self, events: &mut impl Extend<Vec<u8>>) -> Result<(), EventTooLong> {
        let line = std::mem::take(&mut self.line);
        self.field(&line, events)?;
        self.field(b"", events)
    }

    fn append_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        self.check(self.line.len() + bytes.len())?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn check(&self, more: usize) -> Result<(), EventTooLong> {
        let held = self.data.as_ref().map_or(0, Vec::len);
        if held + more > self.bytes_max { Err(EventTooLong(self.bytes_max)) } else { Ok(()) }
    }

    fn field(&mut self, mut line: &[u8], events: &mut impl Extend<Vec<u8>>) -> Result<(), EventTooLong> {
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            events.extend(self.data.take());
            return Ok(());
        }
        let Some(value) = line.strip_prefix(b"data").filter(|rest| matches!(rest, [] | [b':', ..])) else {
            return Ok(());
        };
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        self.check(value.len())?;
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::new(1000);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events).unwrap();
        }
        decoder.finish(&mut events).unwrap();
        events.into_iter().map(|event| String::from_utf8(event).unwrap()).collect()
    }

    #[test]
    fn fields() {
        for (text, events) in [
            ("data: a\n\ndata:b\r\n\r\ndata: c\r\r", vec!["a", "b", "c"]),
            (": comment\n\nevent: x\ndata: a\nid: 7\n\n", vec!["a"]),
            ("data: a\ndata: b\ndata\n\n", vec!["a\nb\n"]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data:  two\n\ndatas: no\n\ngarbage\n\n", vec![" two"]),
            ("data: unfinished", vec!["unfinished"]),
            ("data\n\n", vec![""]),
            ("", vec![]),
        ] {
            assert_eq!(decode(&[text.as_bytes()]), events, "{text:?}");
        }
    }

    #[test]
    fn an_event_is_bounded_over_all_its_lines() {
        let line = format!("data: {}\n", "x".repeat(400));
        let mut decoder = SseDecoder::new(1000);
        let mut events = Vec::new();
        assert_eq!(decoder.push(line.repeat(2).as_bytes(), &mut events), Ok(()));
        assert_eq!(decoder.push(line.as_bytes(), &mut events), Err(EventTooLong(1000)));
        let mut decoder = SseDecoder::new(1000);
        assert_eq!(decoder.push(&[b'x'; 1001], &mut events), Err(EventTooLong(1000)), "a line that never ends");
        let mut decoder = SseDecoder::new(1000);
        assert_eq!(decoder.push((line + "\n").repeat(100).as_bytes(), &mut events), Ok(()), "each event anew");
        assert_eq!(events.len(), 100);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in "(data|:|x|é| |\n|\r|\r\n|a){0,60}", cuts in prop::collection::vec(0_usize..80, 0..8)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(decode(&pieces), decode(&[bytes]));
        }
    }
}
