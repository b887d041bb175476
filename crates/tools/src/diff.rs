//! What changed in a file, as a person reads it.

use std::time::Duration;

use similar::{Algorithm, TextDiff};

// A worse but quick answer is better than a person who waits for a question.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// The unified patch from `old` to `new` with three lines of context; empty if they are the same.
#[must_use]
pub fn unified_patch(name: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::configure().algorithm(Algorithm::Myers).timeout(DIFF_TIME).diff_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.context_radius(3).header(&format!("{name}\tOriginal"), &format!("{name}\tModified"));
    unified.to_string()
}

/// Lines that a unified patch adds and removes.
#[must_use]
pub fn stat(patch: &str) -> (usize, usize) {
    let hunks = patch.lines().skip_while(|line| !line.starts_with("@@"));
    hunks.fold((0, 0), |(added, removed), line| match line.as_bytes().first() {
        Some(b'+') => (added + 1, removed),
        Some(b'-') => (added, removed + 1),
        _ => (added, removed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_headers_hunks_and_counts() {
        let patch = unified_patch("a.txt", "one\ntwo\nthree\n", "one\n2\nthree\nfour");
        let expected = "--- a.txt\tOriginal\n+++ a.txt\tModified\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n\
                        \\ No newline at end of file\n";
        assert_eq!(patch, expected);
        assert_eq!(stat(&patch), (2, 1));
        assert_eq!(unified_patch("a.txt", "x", "x"), "");
        assert_eq!(stat("--- a\n+++ b\n"), (0, 0));
    }
}
