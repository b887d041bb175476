//! The blocking part: walk, read, match, stop in time.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use globset::GlobSet;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use regex::Regex;
use rustix::fs::OFlags;
use tokio_util::sync::CancellationToken;

use super::super::walk::walk;
use crate::FileFiltering;

// A longer line is data. What is shown of it is the beginning.
const LINE_CHARS_MAX: usize = 2000;
// Lines are held whole while they are matched; a file with a longer one is skipped.
const LINE_BYTES_MAX: usize = 64 << 20;

#[derive(Clone)]
pub(super) struct Query {
    pub(super) matcher: RegexMatcher,
    pub(super) exclude: Option<Regex>,
    pub(super) include: Option<GlobSet>,
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) per_file_max: Option<usize>,
    pub(super) total_max: usize,
    pub(super) respect: FileFiltering,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<FileMatches>,
    pub(super) matches: usize,
    pub(super) stopped: Option<Stopped>,
}

/// Why a search did not see everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Limit,
    Time,
    Cancelled,
}

#[derive(Debug)]
pub(super) struct FileMatches {
    pub(super) path: PathBuf,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) is_match: bool,
    pub(super) text: String,
}

struct Watch<'a> {
    deadline: Instant,
    cancel: &'a CancellationToken,
}

impl Watch<'_> {
    fn stopped(&self) -> Option<Stopped> {
        if self.cancel.is_cancelled() {
            Some(Stopped::Cancelled)
        } else if Instant::now() >= self.deadline {
            Some(Stopped::Time)
        } else {
            None
        }
    }
}

/// Searches files and folders, in the order of their paths.
pub(super) fn run(targets: &[PathBuf], query: &Query, deadline: Instant, cancel: &CancellationToken) -> Found {
    let watch = Watch { deadline, cancel };
    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .before_context(query.before)
        .after_context(query.after)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LINE_BYTES_MAX))
        .build();
    let mut found = Found::default();
    for target in targets {
        for entry in walk(target, query.respect).sort_by_file_path(Path::cmp).build().flatten() {
            found.stopped = watch.stopped();
            if found.stopped.is_none() && found.matches >= query.total_max {
                found.stopped = Some(Stopped::Limit);
            }
            if found.stopped.is_some() {
                return found;
            }
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let relative = entry.path().strip_prefix(target).unwrap_or(entry.path());
            let name = if entry.depth() == 0 { Path::new(entry.file_name()) } else { relative };
            if is_file && query.include.as_ref().is_none_or(|include| include.is_match(name)) {
                search_file(&mut searcher, query, &watch, entry.into_path(), &mut found);
            }
        }
    }
    found.stopped = found.stopped.or_else(|| watch.stopped());
    found
}

fn search_file(searcher: &mut Searcher, query: &Query, watch: &Watch<'_>, path: PathBuf, found: &mut Found) {
    // Neither follow a link that was put in the file's place, nor wait for a pipe.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(&path) else { return };
    let left = query.total_max.saturating_sub(found.matches);
    let limit = query.per_file_max.unwrap_or(usize::MAX);
    let mut sink = Collector { query, lines: Vec::new(), matches: 0, limit, left, limited: false };
    // A file that can't be read, or that is binary, has the matches that were found until then.
    let _ = searcher.search_reader(&query.matcher, Watched { file, watch }, &mut sink);
    let Collector { lines, matches, limited, .. } = sink;
    if limited {
        found.stopped = Some(Stopped::Limit);
    }
    if matches > 0 {
        found.matches += matches;
        found.files.push(FileMatches { path, lines });
    }
}

/// A file that ends in an error once the search has to stop.
struct Watched<'a, R> {
    file: R,
    watch: &'a Watch<'a>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.watch.stopped() {
            None => self.file.read(buffer),
            Some(_) => Err(io::Error::other("the search was stopped")),
        }
    }
}

struct Collector<'a> {
    query: &'a Query,
    lines: Vec<Line>,
    matches: usize,
    /// Of this file.
    limit: usize,
    /// Of all files.
    left: usize,
    limited: bool,
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let text = shown(found.bytes());
        if self.query.exclude.as_ref().is_some_and(|exclude| exclude.is_match(&text)) {
            return Ok(true);
        }
        if self.matches >= self.left {
            self.limited = true;
            return Ok(false);
        }
        if self.matches >= self.limit {
            return Ok(false);
        }
        self.matches += 1;
        self.lines.push(Line { number: found.line_number().unwrap_or_default(), is_match: true, text });
        // One more is wanted only to know whether there is more; without lines after it, a file's own limit ends it.
        Ok(self.matches < self.limit || self.query.after > 0)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let number = context.line_number().unwrap_or_default();
        if self.matches < self.limit.min(self.left) || !self.lines.is_empty() {
            self.lines.push(Line { number, is_match: false, text: shown(context.bytes()) });
        }
        Ok(true)
    }
}

fn shown(bytes: &[u8]) -> String {
    let line = String::from_utf8_lossy(bytes);
    let line = line.trim_end_matches(['\n', '\r']);
    match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((at, _)) => format!("{}... [truncated]", line.get(..at).unwrap_or_default()),
        None => line.to_owned(),
    }
}
