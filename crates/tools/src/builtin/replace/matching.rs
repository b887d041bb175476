//! Where is the text that a model wants to replace? First exactly there, then with other indentation.
//!
//! Pure text in, text out; line ends are `\n`. Source: runtime specification §13.3, "replace", steps 1 and 2.

/// What became of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Replaced { text: String, count: usize },
    None,
    Several(usize),
}

/// Replaces `old`, which is not empty, by `new`.
pub(super) fn replace(text: &str, old: &str, new: &str, allow_multiple: bool) -> Outcome {
    match text.matches(old).count() {
        0 => flexible(text, old, new, allow_multiple),
        count if count > 1 && !allow_multiple => Outcome::Several(count),
        count => Outcome::Replaced { text: text.replace(old, new), count },
    }
}

/// Compares whole lines without their indentation and trailing white space, and indents what comes in their place
/// like the first line that matched.
fn flexible(text: &str, old: &str, new: &str, allow_multiple: bool) -> Outcome {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let wanted: Vec<&str> = old.trim_matches('\n').lines().map(str::trim).collect();
    // Nothing but white space would match nearly anywhere.
    if wanted.iter().all(|line| line.is_empty()) {
        return Outcome::None;
    }
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(window) = lines.get(at..at + wanted.len()) {
        if window.iter().map(|line| line.trim()).eq(wanted.iter().copied()) {
            starts.push(at);
            at += wanted.len();
        } else {
            at += 1;
        }
    }
    match starts.len() {
        0 => Outcome::None,
        count if count > 1 && !allow_multiple => Outcome::Several(count),
        count => {
            let old_indent = old.trim_matches('\n').lines().next().map(indent).unwrap_or_default();
            let mut result = String::with_capacity(text.len() + new.len());
            let mut next = 0;
            for start in starts {
                result.extend(lines.iter().take(start).skip(next).copied());
                let window = lines.get(start..start + wanted.len()).unwrap_or_default();
                let file_indent = window.first().map(|line| indent(line)).unwrap_or_default();
                let ends_line = window.last().is_some_and(|line| line.ends_with('\n'));
                result.push_str(&reindent(new.trim_matches('\n'), old_indent, file_indent, ends_line));
                next = start + wanted.len();
            }
            result.extend(lines.iter().skip(next).copied());
            Outcome::Replaced { text: result, count }
        }
    }
}

/// `new` with the indentation of the file in the place of that which the model thought of.
fn reindent(new: &str, old_indent: &str, file_indent: &str, ends_line: bool) -> String {
    if new.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = new
        .lines()
        .map(|line| match line.strip_prefix(old_indent) {
            _ if line.trim().is_empty() => String::new(),
            Some(rest) => format!("{file_indent}{rest}"),
            None => format!("{file_indent}{}", line.trim_start()),
        })
        .collect();
    let mut text = lines.join("\n");
    if ends_line {
        text.push('\n');
    }
    text
}

fn indent(line: &str) -> &str {
    let rest = line.trim_start_matches([' ', '\t']);
    line.get(..line.len() - rest.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn replaced(text: &str, count: usize) -> Outcome {
        Outcome::Replaced { text: text.to_owned(), count }
    }

    #[test]
    fn exact_text_is_counted_and_taken_literally() {
        assert_eq!(replace("a $1 b", "$1", "$&\\0", false), replaced("a $&\\0 b", 1));
        assert_eq!(replace("x x", "x", "y", false), Outcome::Several(2));
        assert_eq!(replace("x x", "x", "y", true), replaced("y y", 2));
        assert_eq!(replace("abc", "z", "y", true), Outcome::None);
        assert_eq!(replace("one\ntwo\n", "one\n", "", false), replaced("two\n", 1));
    }

    #[test]
    fn other_indentation_matches_and_is_kept() {
        let text = "fn f() {\n        if a {\n            b();\n        }\n}\n";
        let outcome = replace(text, "if a {\n    b();\n}", "if a {\n    c();\n\n    d();\n}", false);
        assert_eq!(
            outcome,
            replaced("fn f() {\n        if a {\n            c();\n\n            d();\n        }\n}\n", 1)
        );
        assert_eq!(replace("\tx = 1;  \n", "  x = 1;\n", "  x = 2;\n", false), replaced("\tx = 2;\n", 1));
        assert_eq!(replace("  a\n  b", "a\nb\n", "c\n", false), replaced("  c", 1));
        assert_eq!(replace("  a\nb\n", "\ta\nb", "", false), replaced("", 1));
        assert_eq!(replace(" a\n a\n", "\ta\n", "\tb\n", false), Outcome::Several(2));
        assert_eq!(replace(" a\n  a\n", "\ta\n", "\tb\n", true), replaced(" b\n  b\n", 2));
    }

    #[test]
    fn white_space_alone_matches_nothing() {
        assert_eq!(replace("a\n\nb\n", "  \n", "x", true), Outcome::None);
        assert_eq!(replace("", "a", "x", true), Outcome::None);
    }

    proptest! {
        #[test]
        fn nothing_panics_and_an_exact_match_is_found(
            before in "[ a\n\t{é]{0,20}", old in "[ b\n\té]{1,8}", after in "[ a\n}]{0,20}", new in "[ c\n\té]{0,8}",
        ) {
            let text = format!("{before}{old}{after}");
            prop_assert_ne!(replace(&text, &old, &new, true), Outcome::None);
            let _ = replace(&format!("{before}{after}"), &old, &new, false);
        }

        #[test]
        fn lines_that_do_not_match_stay(indent in "[ \t]{0,6}", lines in proptest::collection::vec("[a-c ]{0,4}", 0..6)) {
            let rest: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let text = format!("{rest}{indent}needle();\n{rest}");
            let outcome = replace(&text, "        needle();", "        thread();", false);
            prop_assert_eq!(outcome, replaced(&format!("{rest}{indent}thread();\n{rest}"), 1));
        }
    }
}
