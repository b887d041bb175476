//! From the bytes of a file to its lines.
//!
//! Each line is judged and parsed for itself, so a large file is read by several threads. No more of it is in memory than
//! each of them is at.

use std::io::{self, BufRead, BufReader, Read};
use std::thread;

use super::line::{self, Line};

/// Bytes that are worth a thread of their own.
const BYTES_PER_THREAD: u64 = 1 << 20;
/// More threads than this wait for memory and not for the processor.
const THREADS_MAX: usize = 4;
/// Bytes that are read at a time: what stays near the processor while its lines are judged.
const WINDOW_BYTES: usize = 128 << 10;

/// Bytes that can be read from any place, by several threads. Their number is fixed: what is written in the meantime is
/// not looked at.
pub(super) trait Source: Sync {
    fn length(&self) -> u64;

    /// As [`Read::read`], from `at` on.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Source for &[u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        rest.read(buffer)
    }
}

/// What follows a place.
struct From<'a, S> {
    source: &'a S,
    at: u64,
}

impl<'a, S: Source> From<'a, S> {
    fn lines(source: &'a S, at: u64) -> BufReader<Self> {
        BufReader::with_capacity(WINDOW_BYTES, Self { source, at })
    }
}

impl<S: Source> Read for From<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.source.length().saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let count = self.source.read_at(buffer.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// The lines of a file.
#[derive(Debug, Default)]
pub(super) struct Lines {
    // Lines are wide: they are moved by their pointers.
    #[expect(clippy::vec_box, reason = "see above")]
    pub(super) lines: Vec<Box<Line<'static>>>,
    /// Lines that can't be used, torn and empty ones not counted in.
    pub(super) damaged: usize,
    /// Whether the last line has no end: its writer was killed, or is writing.
    pub(super) torn: bool,
    /// Whether a line has a checksum: the file is ours.
    pub(super) ours: bool,
}

/// Reads a record, ours or Gemini CLI's, old or new.
pub(super) fn lines(source: &impl Source) -> io::Result<Lines> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let worth = usize::try_from(source.length() / BYTES_PER_THREAD).unwrap_or(usize::MAX);
    lines_in(worth.clamp(1, cores.min(THREADS_MAX)), source)
}

fn lines_in(threads: usize, source: &impl Source) -> io::Result<Lines> {
    // The old format is one object, on one line or on many.
    if let Some(whole) = old_format(source)? {
        return Ok(Lines { lines: vec![Box::new(whole)], ..Lines::default() });
    }
    let pieces = pieces(threads, source)?;
    let ours = pieces.iter().any(|piece| piece.ours);
    let mut read = Lines { ours, ..Lines::default() };
    for piece in pieces {
        read.damaged += piece.damaged;
        read.torn |= piece.torn;
        read.lines.reserve(piece.lines.len());
        for judged in piece.lines {
            match judged {
                Judged::Sealed(line) => read.lines.push(line),
                Judged::Bare(line) if !ours => read.lines.push(line),
                Judged::Bare(_) => read.damaged += 1,
            }
        }
    }
    Ok(read)
}

/// Gemini CLI's old files: pretty-printed, or one line with a list of messages in it.
fn old_format(source: &impl Source) -> io::Result<Option<Line<'static>>> {
    let mut reader = From::lines(source, 0);
    let mut whole = Vec::new();
    reader.read_until(b'\n', &mut whole)?;
    if whole.trim_ascii() != b"{" && !is_blank(&mut reader)? {
        return Ok(None);
    }
    From::lines(source, whole.len() as u64).read_to_end(&mut whole)?;
    Ok(serde_json::from_slice::<Line<'static>>(&whole).ok().filter(|line| line.messages.is_some()))
}

fn is_blank(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() || !bytes.trim_ascii().is_empty() {
            return Ok(bytes.is_empty());
        }
        let length = bytes.len();
        reader.consume(length);
    }
}

enum Judged {
    /// Its checksum is right.
    Sealed(Box<Line<'static>>),
    /// It has none.
    Bare(Box<Line<'static>>),
}

#[derive(Default)]
struct Piece {
    lines: Vec<Judged>,
    damaged: usize,
    torn: bool,
    ours: bool,
}

fn pieces(threads: usize, source: &impl Source) -> io::Result<Vec<Piece>> {
    let length = source.length();
    let step = length.div_ceil(threads.max(1) as u64).max(1);
    let piece = |number: usize| {
        let from = (number as u64).saturating_mul(step);
        piece(source, from, from.saturating_add(step).min(length))
    };
    if threads <= 1 {
        return Ok(vec![piece(0)?]);
    }
    thread::scope(|scope| {
        let piece = &piece;
        let others: Vec<_> = (1..threads).map(|number| scope.spawn(move || piece(number))).collect();
        let mut pieces = vec![piece(0)?];
        for thread in others {
            // There is no panic that a file could bring about.
            let lost = |_| io::Error::other("a thread that read it ended early");
            pieces.push(thread.join().map_err(lost)??);
        }
        Ok(pieces)
    })
}

/// The lines that begin between two places.
fn piece(source: &impl Source, from: u64, to: u64) -> io::Result<Piece> {
    let mut out = Piece::default();
    let mut at = from.saturating_sub(1);
    let mut reader = From::lines(source, at);
    if from > 0 {
        at += reader.skip_until(b'\n')? as u64;
    }
    let mut raw = Vec::new();
    while at < to {
        raw.clear();
        at += reader.read_until(b'\n', &mut raw)? as u64;
        let line = raw.trim_ascii();
        if raw.is_empty() {
            // The file is shorter than it was.
            break;
        }
        if line.is_empty() || out.take(line) {
            continue;
        }
        // Without its end it is what a writer left that was killed: nothing that was whole is lost.
        if raw.last() == Some(&b'\n') { out.damaged += 1 } else { out.torn = true }
    }
    Ok(out)
}

impl Piece {
    /// Whether something of `line` could be used.
    fn take(&mut self, line: &[u8]) -> bool {
        if line::is_sealed(line) {
            self.ours = true;
            return self.sealed(line);
        }
        match serde_json::from_slice::<Line<'static>>(line) {
            // A checksum that is wrong makes a line of ours damaged, however well it reads.
            Ok(parsed) if parsed.seal.is_none() => {
                self.lines.push(Judged::Bare(Box::new(parsed)));
                true
            }
            Ok(_) | Err(_) => {
                let whole = line::whole_lines_in(line);
                self.ours |= !whole.is_empty();
                let taken = whole.iter().filter(|line| self.sealed(line)).count();
                self.damaged += usize::from(taken > 0);
                taken > 0
            }
        }
    }

    fn sealed(&mut self, line: &[u8]) -> bool {
        let parsed = serde_json::from_slice::<Line<'static>>(line);
        parsed.map(|parsed| self.lines.push(Judged::Sealed(Box::new(parsed)))).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is read of a file by so many threads.
    fn read(threads: usize, bytes: &[u8]) -> (Vec<Line<'static>>, usize, bool, bool) {
        let Lines { lines, damaged, torn, ours } = lines_in(threads, &bytes).unwrap();
        (lines.into_iter().map(|line| *line).collect(), damaged, torn, ours)
    }

    fn a_line() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            "[a-z ]{0,40}".prop_map(|id| Line { id: Some(id.into()), ..Line::default() }.sealed()),
            "[a-z ]{0,40}".prop_map(|id| format!("{{\"id\":\"{id}\"}}\n").into_bytes()),
            "[{} \n\"a]{0,8}\n".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn the_number_of_threads_makes_no_difference(
            lines in prop::collection::vec(a_line(), 0..12),
            torn in "[{a\"]{0,6}",
            threads in 2..9_usize,
        ) {
            let bytes = [lines.concat(), torn.into_bytes()].concat();
            prop_assert_eq!(read(threads, &bytes), read(1, &bytes));
        }
    }

    #[test]
    fn what_is_written_while_it_is_read_is_not_looked_at() {
        struct Growing(&'static [u8]);
        impl Source for Growing {
            fn length(&self) -> u64 {
                10
            }
            fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
                self.0.read_at(buffer, at)
            }
        }
        let read = lines(&Growing(b"{\"id\":\"a\"}\n{\"id\":\"b\"}\n")).unwrap();
        assert_eq!(read.lines.len(), 1);
    }
}
