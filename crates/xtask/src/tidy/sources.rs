//! Does every file open with its question, stay short, and leave settings to the top floor?

use super::Finding;
use super::source::Source;

const RULE: &str = "source";

/// The longest file that still holds one idea.
const LINES_MAX: usize = 700;

/// Files that may be longer, and why: dictionaries, where each entry is read alone.
const DICTIONARIES: &[(&str, &str)] = &[];

/// Names for rooms of the homeless.
const EMPTY_NAMES: &[&str] = &["mod", "util", "utils", "helper", "helpers", "common", "types"];

/// Words that promise work to nobody.
const PROMISES: &[&str] = &["TODO", "FIXME", "XXX"];

/// Rooms that may read the environment: the binary, and what is not shipped.
const READS_SETTINGS: &[&str] = &["cli", "testkit", "bench", "xtask"];

/// Ways to the environment and the home directory.
const SETTINGS: &[&str] = &["env::var", "env::vars", "env::var_os", "env::vars_os", "home_dir"];

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, message: String| findings.push(Finding::new(&source.path, line, RULE, message));

    let stem = source.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    if EMPTY_NAMES.contains(&stem) {
        find(1, format!("`{stem}.rs` names nothing: name the file after its question"));
    }
    if source.module_doc().is_empty() && !source.is_test(1) {
        find(1, "a module opens with a `//!` paragraph that says its question".to_owned());
    }
    let lines = source.text.lines().count();
    if lines > LINES_MAX && !DICTIONARIES.iter().any(|(path, _)| *path == source.path) {
        find(LINES_MAX, format!("{lines} lines: past {LINES_MAX}, a file holds more than one idea"));
    }
    for (index, comment) in source.comments.iter().enumerate() {
        if let Some(word) = PROMISES.iter().find(|word| has_word(comment, word)) {
            find(index + 1, format!("`{word}`: do it, or write down who decides"));
        }
    }
    for window in source.tokens().windows(3) {
        let [before, word, after] = window else { continue };
        match (before.text.as_str(), word.text.as_str(), after.text.as_str()) {
            ("[", "allow", "(") => find(word.line, "`#[allow]`: write `#[expect(lint, reason = \"…\")]`".to_owned()),
            ("[", "ignore", "]" | "=") => {
                find(word.line, "`#[ignore]`: a test that does not run proves nothing".to_owned());
            }
            _ => {}
        }
    }
    if !READS_SETTINGS.contains(&source.room.as_str()) {
        for name in source.names().iter().filter(|name| !source.is_test(name.line)) {
            if let Some(path) = SETTINGS.iter().find(|path| name.mentions(path)) {
                find(
                    name.line,
                    format!("`{path}`: below `cli` nobody reads environment or home; take it as an option"),
                );
            }
        }
    }
    findings
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(path, text)]).into_iter().map(|finding| finding.message).collect()
    }

    fn check_body(body: &str) -> Vec<String> {
        check_text("crates/agent/src/a.rs", &format!("//! What is this?\n{body}"))
    }

    #[track_caller]
    fn finds(messages: &[String], start: &str) {
        assert!(messages.len() == 1 && messages[0].starts_with(start), "{messages:?}");
    }

    #[test]
    fn a_clean_file_passes() {
        assert_eq!(check_body("/// Its allow(list), ignore; a TODOS.\nfn f() { \"#[allow(x)] TODO\"; }\n"), [""; 0]);
    }

    #[test]
    fn files_without_a_name_or_a_question_are_found() {
        finds(&check_text("crates/agent/src/foo/mod.rs", "//! Q?"), "`mod.rs`");
        finds(&check_text("crates/agent/src/utils.rs", "//! Q?"), "`utils.rs`");
        finds(&check_text("crates/agent/src/a.rs", "use x::y;\n//! late"), "a module opens");
        assert_eq!(check_text("crates/agent/tests/it.rs", "fn f() {}"), [""; 0]);
    }

    #[test]
    fn long_files_are_found() {
        finds(&check_body(&"\n".repeat(LINES_MAX)), "701 lines");
        assert_eq!(check_body(&"\n".repeat(LINES_MAX - 1)), [""; 0]);
    }

    #[test]
    fn promises_and_silenced_lints_and_sleeping_tests_are_found() {
        for promise in PROMISES {
            finds(&check_body(&format!("// {promise}: later")), &format!("`{promise}`"));
        }
        finds(&check_body("#[allow(dead_code)]\nfn f() {}"), "`#[allow]`");
        finds(&check_body("#![allow(dead_code)]"), "`#[allow]`");
        finds(&check_body("#[cfg(test)]\nmod t {\n #[ignore]\n fn f() {}\n}"), "`#[ignore]`");
        finds(&check_body("#[ignore = \"slow\"]\nfn f() {}"), "`#[ignore]`");
    }

    #[test]
    fn settings_are_read_on_the_top_floor() {
        finds(&check_body("fn f() { std::env::var(\"HOME\"); }"), "`env::var`");
        finds(&check_body("use std::env::{self, var_os};"), "`env::var_os`");
        finds(&check_body("fn f() { std::env::home_dir(); }"), "`home_dir`");
        assert_eq!(check_body("#[cfg(test)]\nfn f() { std::env::var(\"HOME\"); }"), [""; 0]);
        assert_eq!(check_text("crates/cli/src/a.rs", "//! Q?\nfn f() { std::env::var(\"HOME\"); }"), [""; 0]);
    }
}
