//! How does a change of a text file look as a Git patch?
//!
//! One hunk: what both texts begin and end with is left out, but for three lines around the rest. That is no shortest
//! diff, but it is a right one, in linear time, and what a client draws from it is the same change.

use std::fmt::Write as _;

/// Unchanged lines around the change.
const CONTEXT: usize = 3;

/// The patch that turns `old` into `new`; `None` for `old` is a file that was not there.
///
/// Paths are absolute and without Git's `a/` and `b/`. Source: ACP v2, `DiffPatchFormat`.
pub(super) fn git(path: &str, old: Option<&str>, new: &str) -> String {
    let name = quoted(path);
    // As in Git, a name with a space ends with a tab where more could follow it.
    let tab = if name.contains(' ') { "\t" } else { "" };
    let (before, after) = (lines(old.unwrap_or_default()), lines(new));
    let common = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let head = common(&mut before.iter().zip(&after));
    let shorter = before.len().min(after.len());
    let tail = common(&mut before.iter().rev().zip(after.iter().rev())).min(shorter - head);
    let from = head.saturating_sub(CONTEXT);
    let trail = tail.min(CONTEXT);

    let mut patch = format!("diff --git {name} {name}\n");
    match old {
        Some(_) => _ = writeln!(patch, "--- {name}{tab}\n+++ {name}{tab}"),
        None => _ = writeln!(patch, "new file mode 100644\n--- /dev/null\n+++ {name}{tab}"),
    }
    if head == before.len() && head == after.len() {
        return patch;
    }
    let (old_count, new_count) = (before.len() - tail + trail - from, after.len() - tail + trail - from);
    let start = |count: usize| if count == 0 { from } else { from + 1 };
    let _ = writeln!(patch, "@@ -{},{old_count} +{},{new_count} @@", start(old_count), start(new_count));
    let (old_end, new_end) = (before.len() - tail, after.len() - tail);
    for (mark, part) in [
        (' ', before.get(from..head)),
        ('-', before.get(head..old_end)),
        ('+', after.get(head..new_end)),
        (' ', after.get(new_end..new_end + trail)),
    ] {
        for line in part.unwrap_or_default() {
            patch.push(mark);
            patch.push_str(line);
            if !line.ends_with('\n') {
                patch.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    patch
}

/// As Git writes a path: in quotes, where it has unusual bytes.
fn quoted(path: &str) -> String {
    let plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if path.bytes().all(plain) {
        return path.to_owned();
    }
    let mut quoted = String::from("\"");
    for byte in path.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b'\n' => quoted.push_str("\\n"),
            b'\t' => quoted.push_str("\\t"),
            byte if plain(byte) => quoted.push(char::from(byte)),
            byte => _ = write!(quoted, "\\{byte:03o}"),
        }
    }
    quoted + "\""
}

/// With their ends, so that a last line without one is another line.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_the_middle_has_three_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let patch = git("/w/a.txt", Some(old), &old.replace("5\n", "five\nand\n"));
        let header = "diff --git /w/a.txt /w/a.txt\n--- /w/a.txt\n+++ /w/a.txt\n";
        assert_eq!(patch, format!("{header}@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+and\n 6\n 7\n 8\n"));
    }

    #[test]
    fn a_new_file_and_an_emptied_one() {
        let header = "diff --git /n /n\nnew file mode 100644\n--- /dev/null\n+++ /n\n";
        assert_eq!(git("/n", None, "x\ny\n"), format!("{header}@@ -0,0 +1,2 @@\n+x\n+y\n"));
        assert_eq!(git("/n", None, ""), header);
        assert!(git("/n", Some("x\n"), "").ends_with("@@ -1,1 +0,0 @@\n-x\n"));
    }

    #[test]
    fn a_missing_last_newline_is_a_change() {
        let patch = git("/n", Some("a\nb"), "a\nb\n");
        assert!(patch.ends_with("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"), "{patch}");
    }

    #[test]
    fn unusual_names_are_written_as_git_does() {
        assert_eq!(quoted("/a b"), "/a b");
        assert_eq!(quoted("/\u{e4}\"\n\\"), "\"/\\303\\244\\\"\\n\\\\\"");
        assert!(git("/a b", Some(""), "x\n").contains("\n--- /a b\t\n+++ /a b\t\n"));
    }

    /// Applies a patch of ours.
    fn apply(old: &str, patch: &str) -> String {
        let Some((_, hunk)) = patch.split_once("@@ -") else { return old.to_owned() };
        let (range, body) = hunk.split_once('\n').unwrap();
        let mut numbers = range.split([',', ' ']).map(|n| n.trim_start_matches('+').parse::<usize>());
        let (start, count) = (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap());
        let before = lines(old);
        let from = if count == 0 { start } else { start - 1 };
        let mut result: String = before[..from].concat();
        let mut removed = 0;
        let body = body.replace("\n\\ No newline at end of file\n", "\u{0}");
        for line in body.split_inclusive(['\n', '\u{0}']) {
            let text = line[1..].trim_end_matches('\u{0}');
            if !line.starts_with('+') {
                assert_eq!(before[from + removed], text);
                removed += 1;
            }
            if !line.starts_with('-') {
                result.push_str(text);
            }
        }
        assert_eq!(removed, count);
        result + &before[from + removed..].concat()
    }

    #[test]
    fn every_patch_turns_the_one_text_into_the_other() {
        let texts = ["", "a\n", "a", "a\na\n", "a\na\na\nb\n", "b\na\na\n", "a\nb\nc\nd\ne\nf\ng\nh", "h\n"];
        for old in texts {
            for new in texts {
                assert_eq!(apply(old, &git("/f", Some(old), new)), new, "{old:?} to {new:?}");
            }
        }
    }
}
