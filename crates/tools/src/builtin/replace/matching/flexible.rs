//! Whole lines, compared without their indentation and trailing white space.

use super::{Edit, indent, lines_with_starts, reindent};

pub(super) fn find(text: &str, old: &str, new: &str) -> Vec<Edit> {
    let lines = lines_with_starts(text);
    let wanted: Vec<&str> = old.trim_matches('\n').lines().map(str::trim).collect();
    // Nothing but white space would match nearly anywhere.
    if wanted.iter().all(|line| line.is_empty()) {
        return Vec::new();
    }
    let thought_indent = old.trim_matches('\n').lines().next().map(indent).unwrap_or_default();
    let mut edits = Vec::new();
    let mut at = 0;
    while let Some(window) = lines.get(at..at + wanted.len()) {
        if window.iter().map(|(_, line)| line.trim()).eq(wanted.iter().copied()) {
            edits.extend(edit(window, new, thought_indent));
            at += wanted.len();
        } else {
            at += 1;
        }
    }
    edits
}

/// Puts `new` in the place of whole lines.
pub(super) fn edit(window: &[(usize, &str)], new: &str, thought_indent: &str) -> Option<Edit> {
    let ((start, first), (last_start, last)) = (window.first()?, window.last()?);
    let new = new.trim_matches('\n');
    let mut with = if new.is_empty() { String::new() } else { reindent(new, thought_indent, indent(first)) };
    if last.ends_with('\n') && !with.is_empty() {
        with.push('\n');
    }
    Some(Edit { range: *start..last_start + last.len(), with })
}
