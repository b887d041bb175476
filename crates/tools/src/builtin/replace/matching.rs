//! Where is the text that a model wants to replace? Exactly there, or, failing that, where something much like it is.
//!
//! Four rungs, each tried only if the one before found nothing: the text itself; whole lines with other indentation; the
//! same tokens with other white space; lines that differ in a few characters. Pure text in, text out; line ends are
//! `\n`. A rung says where, and what comes there; only [`replace`] changes text, so nothing outside of the matched
//! places can differ. Source: runtime specification §13.3, "replace".

mod flexible;
mod fuzzy;
#[cfg(test)]
mod tests;
mod tokens;

use std::ops::Range;

/// What became of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Replaced { text: String, count: usize },
    None,
    Several(usize),
}

/// One place, in bytes of the text, and what comes in its stead.
#[derive(Debug, PartialEq, Eq)]
struct Edit {
    range: Range<usize>,
    with: String,
}

/// Replaces `old`, which is not empty, by `new`.
pub(super) fn replace(text: &str, old: &str, new: &str, allow_multiple: bool) -> Outcome {
    let edits = find(text, old, new);
    match edits.len() {
        0 => Outcome::None,
        count if count > 1 && !allow_multiple => Outcome::Several(count),
        count => Outcome::Replaced { text: apply(text, &edits), count },
    }
}

/// All places that the first rung with any finds: in order, none overlapping another.
fn find(text: &str, old: &str, new: &str) -> Vec<Edit> {
    let exact = || {
        let places = text.match_indices(old).map(|(at, _)| at..at + old.len());
        places.map(|range| Edit { range, with: new.to_owned() }).collect::<Vec<_>>()
    };
    let rungs: [&dyn Fn() -> Vec<Edit>; 4] =
        [&exact, &|| flexible::find(text, old, new), &|| tokens::find(text, old, new), &|| fuzzy::find(text, old, new)];
    rungs.iter().map(|rung| rung()).find(|edits| !edits.is_empty()).unwrap_or_default()
}

fn apply(text: &str, edits: &[Edit]) -> String {
    let mut result = String::with_capacity(text.len());
    let mut next = 0;
    for Edit { range, with } in edits {
        result.push_str(text.get(next..range.start).unwrap_or_default());
        result.push_str(with);
        next = range.end;
    }
    result.push_str(text.get(next..).unwrap_or_default());
    result
}

/// The lines of a text with their ends, and where each begins.
fn lines_with_starts(text: &str) -> Vec<(usize, &str)> {
    let mut at = 0;
    let place = |line: &'_ str| {
        let start = at;
        at += line.len();
        start
    };
    let starts: Vec<usize> = text.split_inclusive('\n').map(place).collect();
    starts.into_iter().zip(text.split_inclusive('\n')).collect()
}

/// `new` with the indentation of the file in the place of that which the model thought of.
fn reindent(new: &str, thought_indent: &str, file_indent: &str) -> String {
    let lines = new.split('\n').map(|line| match line.strip_prefix(thought_indent) {
        _ if line.trim().is_empty() => String::new(),
        Some(rest) => format!("{file_indent}{rest}"),
        None => format!("{file_indent}{}", line.trim_start()),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn indent(line: &str) -> &str {
    let rest = line.trim_start_matches([' ', '\t']);
    line.get(..line.len() - rest.len()).unwrap_or_default()
}
