//! The same tokens with other white space between them, from the beginning of a line on.

use regex::{Regex, RegexBuilder};

use super::{Edit, indent, reindent};

/// White space around these does not matter.
const DELIMITERS: [char; 10] = ['(', ')', ':', '[', ']', '{', '}', '>', '<', '='];
// A pattern is compiled for each call. What a model quotes is shorter, and beyond it the rung is left out.
const PATTERN_BYTES_MAX: usize = 4 << 20;

pub(super) fn find(text: &str, old: &str, new: &str) -> Vec<Edit> {
    let Some(pattern) = pattern(old) else { return Vec::new() };
    let thought_indent = new.lines().next().map(indent).unwrap_or_default();
    let found = pattern.captures_iter(text).filter_map(|captures| {
        let (all, file_indent) = (captures.get(0)?, captures.get(1)?);
        Some(Edit { range: all.range(), with: reindent(new, thought_indent, file_indent.as_str()) })
    });
    found.collect()
}

fn pattern(old: &str) -> Option<Regex> {
    let mut spaced = String::with_capacity(old.len() * 2);
    for c in old.chars() {
        if DELIMITERS.contains(&c) {
            spaced.extend([' ', c, ' ']);
        } else {
            spaced.push(c);
        }
    }
    let tokens: Vec<String> = spaced.split_whitespace().map(regex::escape).collect();
    if tokens.is_empty() {
        return None;
    }
    let pattern = format!("^([ \\t]*){}", tokens.join("\\s*"));
    RegexBuilder::new(&pattern).multi_line(true).size_limit(PATTERN_BYTES_MAX).build().ok()
}
