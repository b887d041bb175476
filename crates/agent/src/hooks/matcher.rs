//! Which calls and triggers is a hook for?

use regex::Regex;

use super::HookEvent;

/// What a hook's matcher says.
#[derive(Clone, Debug)]
pub(super) enum Matcher {
    /// Everything.
    All,
    /// Names in which the pattern is found.
    Pattern(Regex),
    /// This name.
    Literal(String),
}

/// What only backtracking engines know.
const LOOK_AROUND: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];

impl Matcher {
    /// Reads a matcher; the text beside it is what a person should hear about it.
    pub(super) fn new(event: HookEvent, text: Option<&str>) -> (Self, Option<String>) {
        let Some(text) = text.filter(|text| !text.is_empty() && *text != "*") else { return (Self::All, None) };
        if !event.matches_tools() {
            return (Self::Literal(text.to_owned()), None);
        }
        match Regex::new(text) {
            Ok(pattern) => (Self::Pattern(pattern), None),
            // A guard that never runs goes unnoticed; one that runs too often does not.
            Err(_) if LOOK_AROUND.iter().any(|mark| text.contains(mark)) => {
                let why = format!("the matcher \"{text}\" looks around, which is not supported: the hook runs for all");
                (Self::All, Some(why))
            }
            Err(_) => {
                let why = format!("the matcher \"{text}\" is no regular expression; it is compared as it stands");
                (Self::Literal(text.to_owned()), Some(why))
            }
        }
    }

    /// Whether it is for `subject`; an event without one is for everybody.
    pub(super) fn matches(&self, subject: Option<&str>) -> bool {
        match (self, subject) {
            (Self::All, _) | (_, None) => true,
            (Self::Pattern(pattern), Some(subject)) => pattern.is_match(subject),
            (Self::Literal(literal), Some(subject)) => literal == subject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(event: HookEvent, matcher: &str, subject: &str) -> bool {
        Matcher::new(event, Some(matcher)).0.matches(Some(subject))
    }

    #[test]
    fn patterns_for_tools_and_equality_for_the_rest() {
        let tool = HookEvent::BeforeTool;
        for (matcher, subject, expected) in [
            ("write_file|replace", "replace", true),
            ("write_file|replace", "read_file", false),
            ("write", "write_file", true),
            ("^write$", "write_file", false),
            ("", "x", true),
            ("*", "x", true),
            // Not a pattern: compared as it stands.
            ("a(", "a(", true),
            ("a(", "a", false),
            // A pattern of another engine: rather too often than never.
            ("^(?!read_).*", "write_file", true),
        ] {
            assert_eq!(matches(tool, matcher, subject), expected, "{matcher} {subject}");
        }
        assert!(matches(HookEvent::SessionStart, "startup", "startup"));
        assert!(!matches(HookEvent::SessionStart, "start", "startup"));
        assert!(!matches(HookEvent::PreCompress, "manual|auto", "auto"));
        assert!(Matcher::new(tool, Some("a(")).1.is_some());
        assert!(Matcher::new(tool, Some("a")).1.is_none());
    }
}
