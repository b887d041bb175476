//! From the bytes of a file to its lines.
//!
//! A large file is read by several threads: each line is judged and parsed for itself.

use std::io::BufRead;
use std::thread;

use super::line::{self, Line};

/// Bytes that are worth a thread of their own.
const BYTES_PER_THREAD: usize = 1 << 20;
/// More threads than this wait for memory and not for the processor.
const THREADS_MAX: usize = 4;

/// The lines of a file.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<Line<'static>>,
    /// Lines that can't be used, torn and empty ones not counted in.
    pub(super) damaged: usize,
    /// Whether the last line has no end: its writer was killed, or is writing.
    pub(super) torn: bool,
    /// Whether a line has a checksum: the file is ours.
    pub(super) ours: bool,
}

/// Reads a record, ours or Gemini CLI's, old or new.
pub(super) fn lines(bytes: &[u8]) -> Lines {
    // The old format is one object, on one line or on many.
    if let Some(whole) = old_format(bytes) {
        return Lines { lines: vec![whole], ..Lines::default() };
    }
    let mut read = Lines::default();
    let mut loose = Vec::new();
    for part in in_threads(bytes) {
        read.damaged += part.damaged;
        read.torn |= part.torn;
        read.ours |= part.ours;
        loose.push(part.lines);
    }
    let ours = read.ours;
    for judged in loose.into_iter().flatten() {
        match judged {
            Judged::Sealed(line) => read.lines.push(*line),
            Judged::Bare(line) if !ours => read.lines.push(*line),
            Judged::Bare(_) => read.damaged += 1,
        }
    }
    read
}

/// Gemini CLI's old files: pretty-printed, or one line with a list of messages in it.
fn old_format(bytes: &[u8]) -> Option<Line<'static>> {
    let mut first = Vec::new();
    let mut rest = bytes;
    rest.read_until(b'\n', &mut first).ok()?;
    let alone = rest.trim_ascii().is_empty();
    if !alone && first.trim_ascii() != b"{" {
        return None;
    }
    serde_json::from_slice::<Line<'static>>(bytes).ok().filter(|line| line.messages.is_some())
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

fn in_threads(bytes: &[u8]) -> Vec<Piece> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let count = (bytes.len() / BYTES_PER_THREAD).clamp(1, cores.min(THREADS_MAX));
    if count == 1 {
        return vec![piece(bytes)];
    }
    thread::scope(|scope| {
        let threads: Vec<_> = cut(bytes, count).into_iter().map(|bytes| scope.spawn(move || piece(bytes))).collect();
        // A panic in a thread costs its lines; there is none that a file could bring about.
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// Cuts behind line ends, into about equal pieces.
fn cut(bytes: &[u8], count: usize) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(count);
    let mut rest = bytes;
    for left in (2..=count).rev() {
        let (head, mut tail) = rest.split_at(rest.len() / left);
        let more = tail.skip_until(b'\n').unwrap_or_default();
        let (piece, after) = rest.split_at((head.len() + more).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn piece(bytes: &[u8]) -> Piece {
    let mut out = Piece::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let mut after = rest;
        let length = after.skip_until(b'\n').unwrap_or(rest.len());
        let raw = rest.get(..length).unwrap_or_default();
        rest = after;
        let ended = raw.last() == Some(&b'\n');
        let line = raw.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if !out.take(line) {
            // Without its end it is what a writer left that was killed: nothing that was whole is lost.
            if ended { out.damaged += 1 } else { out.torn = true }
        }
    }
    out
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
