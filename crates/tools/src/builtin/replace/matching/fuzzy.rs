//! Lines that differ in a few characters: what a model remembers of a file instead of what is there.
//!
//! Windows of as many lines as are wanted are scored by edit distance over length. What differs only in white space
//! weighs a tenth. Source: runtime specification §13.3, "replace", step 4, with its bounds.

use super::{Edit, flexible, indent, lines_with_starts};

// Less is found anywhere.
const CHARS_MIN: usize = 10;
const SCORE_MAX: f64 = 0.1;
const WHITE_SPACE_WEIGHT: f64 = 0.1;
// Lines of the file, times the square of what is wanted: about a second.
const WORK_MAX: usize = 400_000_000;

pub(super) fn find(text: &str, old: &str, new: &str) -> Vec<Edit> {
    let lines = lines_with_starts(text);
    let length = old.chars().count();
    let work = length.checked_mul(length).and_then(|square| square.checked_mul(lines.len()));
    if length < CHARS_MIN || work.is_none_or(|work| work > WORK_MAX) {
        return Vec::new();
    }
    let wanted_lines: Vec<&str> = old.trim_matches('\n').lines().map(str::trim_end).collect();
    let wanted = Block::new(wanted_lines.iter().copied());
    if wanted.bare.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(usize, f64)> = lines
        .windows(wanted_lines.len().max(1))
        .enumerate()
        .filter_map(|(at, window)| {
            let score = wanted.score(&Block::new(window.iter().map(|(_, line)| line.trim_end())))?;
            (score <= SCORE_MAX).then_some((at, score))
        })
        .collect();
    found.sort_by(|(at_a, a), (at_b, b)| a.total_cmp(b).then(at_a.cmp(at_b)));
    let mut chosen: Vec<usize> = Vec::new();
    for (at, _) in found {
        if chosen.iter().all(|other| at.abs_diff(*other) >= wanted_lines.len()) {
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    let thought_indent = new.trim_matches('\n').lines().next().map(indent).unwrap_or_default();
    let edit = |at: usize| flexible::edit(lines.get(at..at + wanted_lines.len())?, new, thought_indent);
    chosen.into_iter().filter_map(edit).collect()
}

/// Some lines, with white space and without.
struct Block {
    all: Vec<char>,
    bare: Vec<char>,
}

impl Block {
    fn new<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let all: Vec<char> = lines.collect::<Vec<_>>().join("\n").chars().collect();
        let bare = all.iter().copied().filter(|c| !c.is_whitespace()).collect();
        Self { all, bare }
    }

    /// How far the other one is off; `None` if it is too far for a closer look.
    fn score(&self, other: &Self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "lengths whose square is at most WORK_MAX")]
        let float = |count: usize| count as f64;
        let length = float(self.all.len());
        if float(self.all.len().abs_diff(other.all.len())) / length > SCORE_MAX / WHITE_SPACE_WEIGHT {
            return None;
        }
        // A distance beyond this scores too much whatever the white space is.
        let bound =
            (1..=self.all.len()).take_while(|count| float(*count) * (1.0 - WHITE_SPACE_WEIGHT) <= length * SCORE_MAX);
        let bare = distance(&self.bare, &other.bare, bound.count())?;
        let all = distance(&self.all, &other.all, self.all.len().max(other.all.len()))?;
        let weighted = float(bare) + float(all.saturating_sub(bare)) * WHITE_SPACE_WEIGHT;
        Some(weighted / length)
    }
}

/// Levenshtein's distance, if it is at most `bound`. Only the diagonal band that can stay within it is looked at.
fn distance(a: &[char], b: &[char], bound: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > bound {
        return None;
    }
    let far = bound + 1;
    let mut row: Vec<usize> = (0..=b.len()).map(|column| column.min(far)).collect();
    for (line, from) in (1_usize..).zip(a) {
        let (first, last) = (line.saturating_sub(bound).max(1), (line + bound).min(b.len()));
        let mut diagonal = row.get(first - 1).copied().unwrap_or(far);
        let mut left = if first == 1 { line.min(far) } else { far };
        if let Some(cell) = row.get_mut(first - 1) {
            *cell = left;
        }
        let mut least = left;
        let columns = b.get(first - 1..last).unwrap_or_default();
        for (cell, to) in row.iter_mut().skip(first).zip(columns) {
            let above = *cell;
            left = (diagonal + usize::from(from != to)).min(above + 1).min(left + 1).min(far);
            diagonal = above;
            *cell = left;
            least = least.min(left);
        }
        if let Some(beyond) = row.get_mut(last + 1) {
            *beyond = far;
        }
        if least >= far {
            return None;
        }
    }
    row.last().copied().filter(|distance| *distance <= bound)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(a: &[char], b: &[char]) -> usize {
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (line, from) in a.iter().enumerate() {
            let mut next = vec![line + 1];
            for (column, to) in b.iter().enumerate() {
                let change = row[column] + usize::from(from != to);
                next.push(change.min(row[column + 1] + 1).min(next[column] + 1));
            }
            row = next;
        }
        row[b.len()]
    }

    proptest! {
        #[test]
        fn a_bounded_distance_is_the_distance(a in "[ab]{0,12}", b in "[ab]{0,12}", bound in 0..14_usize) {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            let expected = Some(plain(&a, &b)).filter(|distance| *distance <= bound);
            prop_assert_eq!(distance(&a, &b, bound), expected);
        }
    }
}
