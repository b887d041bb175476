//! Each rung by itself, and what holds for all of them.

use proptest::prelude::*;

use super::*;

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
    assert_eq!(outcome, replaced("fn f() {\n        if a {\n            c();\n\n            d();\n        }\n}\n", 1));
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

#[test]
fn the_same_tokens_match_across_white_space() {
    let text = "a();\n  call( one,two )  ; // kept\nz();\n";
    assert_eq!(replace(text, "call(one,two);", "done();", false), replaced("a();\n  done(); // kept\nz();\n", 1));
    let text = "if (a) {\n\tb();\n}\n";
    assert_eq!(replace(text, "if(a){ b(); }", "c();\n  d();", false), replaced("c();\n  d();\n", 1));
    assert_eq!(replace("x = [1,\n 2]\nx = [ 1, 2 ]\n", "x=[1, 2]", "y", false), Outcome::Several(2));
    assert_eq!(replace("x = [1,\n 2]\nx = [ 1, 2 ]\n", "x=[1, 2]", "y", true), replaced("y\ny\n", 2));
    // Not in the middle of a line, and what looks like a pattern is text.
    assert_eq!(replace("no call (x)\n", "call(x)", "y", false), Outcome::None);
    assert_eq!(replace("a.b\n", "a .*b", "y", false), Outcome::None);
}

#[test]
fn what_is_nearly_there_matches() {
    let text = "fn main() {\n    let total = compute_sum(first, second);\n    println!(\"{total}\");\n}\n";
    let old = "let sum = add_all(one, two);\nprintln!(\"{sum}\");";
    assert_eq!(replace(text, old, "x", false), Outcome::None, "that is something else");
    let old = "    let total = compute_sums(first, second);\n    println!(\"{total}\");";
    let outcome = replace(text, old, "    let total = 3;\n    println!(\"{total}\");", false);
    assert_eq!(outcome, replaced("fn main() {\n    let total = 3;\n    println!(\"{total}\");\n}\n", 1));
    assert_eq!(replace("abcdefgh\n", "abcdefgx", "y", false), Outcome::None, "less than ten characters");
    let twice = "the quick brown fox\n-\nthe quick brown fax\n";
    assert_eq!(replace(twice, "the quick brown fix", "y", false), Outcome::Several(2));
    assert_eq!(replace(twice, "the quick brown fix", "y", true), replaced("y\n-\ny\n", 2));
    let huge = "some line of a file\n".repeat(100_000);
    assert_eq!(replace(&huge, &"x".repeat(100), "y", false), Outcome::None, "more work than a call is worth");
}

/// A text that is much like `text`: a few characters of other white space, or other ones.
fn nearly(text: &str, at: usize, with: &str) -> String {
    let mut chars: Vec<String> = text.chars().map(String::from).collect();
    let index = at % chars.len().max(1);
    if let Some(c) = chars.get_mut(index) {
        with.clone_into(c);
    }
    chars.concat()
}

proptest! {
    /// An exact occurrence that is the only one wins over anything that is like it.
    #[test]
    fn the_only_exact_occurrence_wins(
        before in "[ a-c(){}=\n]{0,60}", old in "[ a-d(){}=\n]{1,30}", after in "[ a-c(){}=\n]{0,60}", new in "[x\n ]{0,9}",
    ) {
        let text = format!("{before}{old}{after}");
        prop_assume!(text.match_indices(&old).count() == 1 && text.find(&old) == Some(before.len()));
        prop_assert_eq!(replace(&text, &old, &new, false), replaced(&format!("{before}{new}{after}"), 1));
    }

    /// Without leave for more, at most one place changes, and only that place; all rungs are tried.
    #[test]
    fn nothing_outside_of_the_matched_place_differs(
        lines in proptest::collection::vec("[ \t]{0,3}[a-c]{2,8}[(= ]{1,2}[a-c]{3,8}[);]?", 1..12),
        from in 0..12_usize, count in 1..4_usize, at in any::<usize>(), with in "[ a-d]{0,2}", new in "[xyz \n]{0,20}",
    ) {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let quoted: Vec<&str> = lines.iter().map(String::as_str).skip(from % lines.len()).take(count).collect();
        let old = nearly(&quoted.join("\n"), at, &with);
        prop_assume!(!old.is_empty());
        let edits = find(&text, &old, &new);
        prop_assert!(edits.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start), "{:?}", edits);
        match replace(&text, &old, &new, false) {
            Outcome::Replaced { text: result, count } => {
                let [edit] = &edits[..] else { panic!("{edits:?}") };
                prop_assert_eq!(count, 1);
                prop_assert_eq!(&result[..edit.range.start], &text[..edit.range.start]);
                prop_assert!(result.ends_with(&text[edit.range.end..]));
                prop_assert_eq!(result.len() + edit.range.len(), text.len() + edit.with.len());
            }
            Outcome::Several(count) => prop_assert!(count > 1 && count == edits.len()),
            Outcome::None => prop_assert!(edits.is_empty()),
        }
    }

    /// A slip in one character of a long line is found again, at its place.
    #[test]
    fn a_slip_is_forgiven(rest in proptest::collection::vec("[0-9]{4,10}", 0..6), at in 0..25_usize) {
        let line = "let answer = the_question";
        let slipped = nearly(line, at, "Q");
        let text: String = rest.iter().map(|line| format!("{line}\n")).chain([format!("{line}\n")]).collect();
        let expected = text.replace(line, "nothing");
        prop_assert_eq!(replace(&text, &slipped, "nothing", false), replaced(&expected, 1));
    }
}
