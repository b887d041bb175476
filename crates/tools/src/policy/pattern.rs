//! Patterns over arguments: what text is a pattern tested on?
//!
//! On JSON with sorted keys and without blanks, in which each member of the outermost object is wrapped in NUL
//! characters: `{\0"key":value\0,…}`. So a pattern can tell a member from text inside of a value that looks like one.
//! A NUL in a value is written as an escape, and can't be mistaken for one. Source: runtime specification §6.6.
//!
//! Files of others have patterns that look around, as JavaScript does. Those may take more than linear time, so their steps
//! are counted; one that comes to no end is taken to say what is stricter.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

// As in the peer's own check.
const PATTERN_MAX: usize = 2048;
// Memory of one compiled pattern.
const COMPILED_MAX: usize = 1 << 20;
// Steps back of a pattern that looks around: some milliseconds. An honest one takes a handful for each character.
const STEPS_MAX: usize = 100_000;

/// A regular expression over arguments.
#[derive(Clone, Debug)]
pub struct TextPattern {
    source: String,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    /// Takes time linear in the text.
    Linear(Regex),
    /// Looks around, or back to what it found.
    Looking(fancy_regex::Regex),
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for TextPattern {}

impl TextPattern {
    /// Compiles a pattern. `Err` says why it can't be.
    pub fn new(source: &str) -> Result<Self, String> {
        if source.len() > PATTERN_MAX {
            return Err(format!("it is longer than {PATTERN_MAX} bytes"));
        }
        // JavaScript's way to write a NUL.
        let translated = null_escapes(source);
        let matcher = match RegexBuilder::new(&translated).size_limit(COMPILED_MAX).build() {
            Ok(regex) => Matcher::Linear(regex),
            Err(error) => {
                let mut looking = fancy_regex::RegexBuilder::new(&translated);
                looking.backtrack_limit(STEPS_MAX).delegate_size_limit(COMPILED_MAX);
                // What neither can read is told in the words of the first.
                let looking = looking.build().map_err(|_| {
                    let text = error.to_string();
                    text.lines().last().unwrap_or("it can't be compiled").trim_start_matches("error: ").to_owned()
                })?;
                Matcher::Looking(looking)
            }
        };
        Ok(Self { source: source.to_owned(), matcher })
    }

    /// As it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is found in `text`; `in_doubt` where that can't be told in time.
    pub(super) fn is_match(&self, text: &str, in_doubt: bool) -> bool {
        match &self.matcher {
            Matcher::Linear(regex) => regex.is_match(text),
            Matcher::Looking(regex) => regex.is_match(text).unwrap_or(in_doubt),
        }
    }
}

fn null_escapes(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '\\' {
            match chars.next() {
                Some('0') if !chars.peek().is_some_and(char::is_ascii_digit) => out.push_str("x00"),
                Some(next) => out.push(next),
                None => {}
            }
        }
    }
    out
}

/// The text that patterns are tested on.
pub(super) fn stable_json(args: &Value) -> String {
    let mut out = String::new();
    match args {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                out.push_str(if index == 0 { "\0" } else { ",\0" });
                push_text(&mut out, key);
                out.push(':');
                push(&mut out, map.get(key).unwrap_or(&Value::Null), 0);
                out.push('\0');
            }
            out.push('}');
        }
        other => push(&mut out, other, 0),
    }
    out
}

/// As [`stable_json`], with another command in it.
pub(super) fn stable_json_of_command(args: &Value, command: &str) -> String {
    let mut map = args.as_object().cloned().unwrap_or_default();
    map.insert("command".to_owned(), Value::String(command.to_owned()));
    stable_json(&Value::Object(map))
}

// serde_json reads no deeper than this by itself.
const DEPTH_MAX: u32 = 128;

fn push(out: &mut String, value: &Value, depth: u32) {
    match value {
        _ if depth > DEPTH_MAX => out.push_str("\"[too deep]\""),
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_text(out, key);
                out.push(':');
                push(out, map.get(key).unwrap_or(&Value::Null), depth + 1);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push(out, item, depth + 1);
            }
            out.push(']');
        }
        Value::String(text) => push_text(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn push_text(out: &mut String, text: &str) {
    out.push_str(&Value::String(text.to_owned()).to_string());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_and_wrapped() {
        let args = json!({"b": {"y": 1, "x": [true, null]}, "a": "q\"\0"});
        assert_eq!(stable_json(&args), "{\0\"a\":\"q\\\"\\u0000\"\0,\0\"b\":{\"x\":[true,null],\"y\":1}\0}");
    }

    #[test]
    fn a_pattern_with_nuls_matches_members_and_not_text_in_values() {
        for source in [r#"\0"file_path":"a\.rs"\0"#, r#"\x00"file_path":"a\.rs"\x00"#] {
            let pattern = TextPattern::new(source).unwrap();
            assert!(pattern.is_match(&stable_json(&json!({"file_path": "a.rs", "z": 1})), false), "{source}");
            assert!(
                !pattern.is_match(&stable_json(&json!({"content": "\0\"file_path\":\"a.rs\"\0"})), true),
                "{source}"
            );
        }
    }

    #[test]
    fn patterns_that_can_not_be_used_are_told() {
        assert!(TextPattern::new("(").unwrap_err().contains("unclosed"));
        assert!(TextPattern::new("(?<!x").is_err() && TextPattern::new(r"\7").is_err());
        assert!(TextPattern::new(&"a".repeat(3000)).is_err());
    }
    #[test]
    fn patterns_may_look_around_and_say_what_is_stricter_when_they_come_to_no_end() {
        let pattern = TextPattern::new(r#""command":"git (?!push)"#).unwrap();
        let tested = |command: &str| pattern.is_match(&stable_json(&json!({"command": command})), false);
        assert!(tested("git status") && !tested("git push") && !tested("ls"));
        let endless = TextPattern::new(r"(?=a)(a|aa)+\1$").unwrap();
        let text = format!("{}b", "a".repeat(5_000));
        assert!(endless.is_match(&text, true) && !endless.is_match(&text, false));
    }
}
