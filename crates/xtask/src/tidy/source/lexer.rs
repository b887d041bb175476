//! Comments, strings and brackets: just enough of Rust to tell code from prose.

use super::Name;

/// One word or one sign of code. String and character literals appear as `"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Line, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// An item that is compiled for tests only.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TestItem {
    pub(super) first: usize,
    pub(super) last: usize,
    /// The module's name, if the item is a module in a file of its own.
    pub(super) module: Option<String>,
}

/// The tokens of `text`, and its comments line for line.
pub(super) fn lex(text: &str) -> (Vec<Token>, Vec<String>) {
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new(), comments: vec![String::new()] };
    while lexer.step() {}
    lexer.comments.resize(text.lines().count().max(1), String::new());
    (lexer.tokens, lexer.comments)
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<String>,
}

impl<'t> Lexer<'t> {
    /// Takes `length` bytes, which must end on a character border, and counts their lines.
    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += taken.matches('\n').count();
        taken
    }

    fn push(&mut self, line: usize, text: &str) {
        self.tokens.push(Token { line, text: text.to_owned() });
    }

    fn comment(&mut self, length: usize) {
        let first = self.line;
        for (offset, line) in self.take(length).split('\n').enumerate() {
            let index = first - 1 + offset;
            if self.comments.len() <= index {
                self.comments.resize(index + 1, String::new());
            }
            if let Some(slot) = self.comments.get_mut(index) {
                slot.push_str(line);
            }
        }
    }

    /// Takes one thing; false at the end.
    fn step(&mut self) -> bool {
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            self.comment(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment(self.rest));
        } else if let Some(length) = raw_string(self.rest).or_else(|| quoted(self.rest)) {
            self.take(length);
            self.push(line, "\"");
        } else if first.is_alphanumeric() || first == '_' {
            let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
            let word = self.take(end);
            self.push(line, word);
        } else if self.rest.starts_with("::") {
            self.take(2);
            self.push(line, "::");
        } else if first == '\'' {
            // A lifetime or a label; its word follows as a token of its own, glued to the mark.
            let name = self.rest.get(1..).unwrap_or_default();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
            self.take(1 + end);
        } else {
            let sign = self.take(first.len_utf8());
            if !first.is_whitespace() {
                self.push(line, sign);
            }
        }
        true
    }
}

/// The length of the block comment at the start of `text`; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && !rest.is_empty()
    {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the raw string at the start of `text`, its `r`, `br` or `cr` included.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"]
        .into_iter()
        .find(|prefix| text.strip_prefix(prefix).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"')))?;
    let body = text.get(prefix.len()..)?;
    let hashes = body.find('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = body.get(hashes + 1..)?;
    let length = inside.find(&end).map_or(text.len(), |at| prefix.len() + hashes + 1 + at + end.len());
    Some(length)
}

/// The length of the string or character literal at the start of `text`, a `b` or `c` before it included.
fn quoted(text: &str) -> Option<usize> {
    let prefix = usize::from(text.starts_with("b\"") || text.starts_with("c\"") || text.starts_with("b'"));
    let body = text.get(prefix..)?;
    let mut chars = body.char_indices();
    let (_, quote) = chars.next()?;
    match quote {
        '"' => {}
        '\'' => {
            // `'a'` and `'\n'` are characters, `'a` is a lifetime.
            let mut ahead = body.chars().skip(1);
            let escaped = ahead.next()? == '\\';
            if !escaped && ahead.next()? != '\'' {
                return None;
            }
        }
        _ => return None,
    }
    let mut escaped = false;
    for (at, c) in chars {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(prefix + at + c.len_utf8()),
            _ => {}
        }
    }
    Some(text.len())
}

/// All names, with `use` trees expanded.
pub(super) fn names(tokens: &[Token]) -> Vec<Name> {
    let mut names = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.text == "use" {
            at = use_tree(tokens, at + 1, &[], &mut names);
        } else if is_word(token) || token.text == "::" {
            let (segments, next) = path(tokens, at);
            if !segments.is_empty() {
                names.push(Name { line: token.line, segments });
            }
            at = next.max(at + 1);
        } else {
            at += 1;
        }
    }
    names
}

fn is_word(token: &Token) -> bool {
    token.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The words joined by `::` from `at` on, and where they end.
fn path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut segments = Vec::new();
    while let Some(token) = tokens.get(at) {
        let after_join = at.checked_sub(1).and_then(|before| tokens.get(before)).is_some_and(|t| t.text == "::");
        if token.text == "::" {
            at += 1;
        } else if is_word(token) && (segments.is_empty() || after_join) {
            segments.push(token.text.clone());
            at += 1;
        } else {
            break;
        }
    }
    (segments, at)
}

/// Reads the `use` tree at `at` below `prefix`, and returns where it ends.
fn use_tree(tokens: &[Token], at: usize, prefix: &[String], names: &mut Vec<Name>) -> usize {
    let line = tokens.get(at).map_or(0, |token| token.line);
    let (segments, mut at) = path(tokens, at);
    let path: Vec<String> = prefix.iter().cloned().chain(segments).collect();
    if tokens.get(at).is_some_and(|token| token.text == "{") {
        at += 1;
        while let Some(token) = tokens.get(at) {
            match token.text.as_str() {
                "}" => return at + 1,
                "," | "*" => at += 1,
                // Always moves on: what is not a tree is stepped over.
                _ => at = use_tree(tokens, at, &path, names).max(at + 1),
            }
        }
        return at;
    }
    if !path.is_empty() {
        names.push(Name { line, segments: path });
    }
    // `as other`: the new name is no path of its own.
    if tokens.get(at).is_some_and(|token| token.text == "as") { at + 2 } else { at }
}

/// The items marked `#[cfg(test)]`.
pub(super) fn test_items(tokens: &[Token]) -> Vec<TestItem> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut items: Vec<TestItem> = Vec::new();
    for (at, window) in tokens.windows(MARK.len()).enumerate() {
        if !window.iter().map(|token| token.text.as_str()).eq(MARK) {
            continue;
        }
        let Some(item) = tokens.get(at + MARK.len()..) else { continue };
        let first = window.first().map_or(0, |token| token.line);
        let mut depth = 0_usize;
        for (index, token) in item.iter().enumerate() {
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        items.push(TestItem { first, last: token.line, module: None });
                        break;
                    }
                }
                ";" if depth == 0 => {
                    let words: Vec<_> = item.iter().take(index).map(|token| token.text.as_str()).collect();
                    let module = words.iter().rposition(|word| *word == "mod").and_then(|at| words.get(at + 1));
                    items.push(TestItem { first, last: token.line, module: module.map(|name| (*name).to_owned()) });
                    break;
                }
                _ => {}
            }
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        lex(text).0.into_iter().map(|token| token.text).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        names(&lex(text).0).into_iter().map(|name| name.segments.join("::")).collect()
    }

    #[test]
    fn prose_is_not_code() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(lex("a // b\n/* c\nd */ e").1, ["// b", "/* c", "d */"]);
    }

    #[test]
    fn strings_are_one_token_whatever_is_in_them() {
        assert_eq!(words(r#"f("a\"b // c", x)"#), ["f", "(", "\"", ",", "x", ")"]);
        assert_eq!(words(r###"r#"a " b"# br"\" c"###), ["\"", "\"", "c"]);
        assert_eq!(words(r"'a' '\'' 'ö' b'\n' &'a str"), ["\"", "\"", "\"", "\"", "&", "str"]);
        assert_eq!(words("br_x r#type"), ["br_x", "r", "#", "type"]);
        assert_eq!(words("\"open"), ["\""]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let (tokens, _) = lex("\"a\nb\" /*\n*/ c");
        assert_eq!(tokens.last().map(|token| token.line), Some(3));
    }

    #[test]
    fn names_are_whole_paths() {
        assert_eq!(paths("let x = std::time::Instant::now();"), ["let", "x", "std::time::Instant::now"]);
        assert_eq!(paths("::tokio::spawn(x)"), ["tokio::spawn", "x"]);
        assert_eq!(paths("a b"), ["a", "b"]);
    }

    #[test]
    fn use_trees_are_expanded() {
        assert_eq!(
            paths("pub use std::{fs, time::{Duration, Instant as Moment}, net::*};"),
            ["pub", "std::fs", "std::time::Duration", "std::time::Instant", "std::net"]
        );
        assert_eq!(paths("use {a::b, c};"), ["a::b", "c"]);
        assert_eq!(paths("use a::{self, b};"), ["a::self", "a::b"]);
    }

    #[test]
    fn test_items_end_where_they_end() {
        let items = |text: &str| test_items(&lex(text).0);
        let item = |first, last, module: Option<&str>| TestItem { first, last, module: module.map(str::to_owned) };
        assert_eq!(items("#[cfg(test)]\nmod a {\n { }\n}\nmod b {}"), [item(1, 4, None)]);
        assert_eq!(items("#[cfg(test)]\npub(crate) mod a;\nmod b;"), [item(1, 2, Some("a"))]);
        assert_eq!(items("#[cfg(test)]\nfn f(x: [u8; 3]) {\n}\n"), [item(1, 3, None)]);
        assert_eq!(items("#[cfg(any(test, x))] mod a {}"), []);
    }
}
