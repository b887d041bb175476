//! Which environment variables look like secrets?
//!
//! Source: runtime specification §18.6. Names are compared whatever their case. A name that is always allowed, or that
//! the user allows, is not looked at further.

use std::sync::LazyLock;

use regex::RegexSet;

/// What the user says about single variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    /// Names that commands see whatever they look like.
    pub allowed: Vec<String>,
    /// Names that commands never see.
    pub blocked: Vec<String>,
}

/// What programs don't work without.
const ALWAYS: &[&str] = &[
    "PATH",
    "HOME",
    "SHELL",
    "USER",
    "LOGNAME",
    "PWD",
    "OLDPWD",
    "TERM",
    "COLORTERM",
    "LANG",
    "TZ",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "TMPDIR",
    "TEMP",
    "TMP",
    "HOSTNAME",
    "DISPLAY",
    "SHLVL",
    "SSH_AUTH_SOCK",
];
const ALWAYS_PREFIXES: &[&str] = &["LC_", "XDG_", "GEMINI_CLI_", "CONVOKE_"];

/// Names without a tell-tale word that lead to somebody's systems all the same.
const NAMES: &[&str] = &[
    "CLIENT_ID",
    "DB_URI",
    "CONNECTION_STRING",
    "AWS_DEFAULT_REGION",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "SLACK_WEBHOOK_URL",
    "TWILIO_ACCOUNT_SID",
    "DATABASE_URL",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_ACCOUNT",
    "FIREBASE_PROJECT_ID",
];
const WORDS: &[&str] =
    &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "KEY", "AUTH", "CREDENTIAL", "CREDS", "PRIVATE", "CERT"];

/// What secrets look like.
const VALUES: &[&str] = &[
    r"-----BEGIN [A-Z0-9 ]*(?:PRIVATE KEY|CERTIFICATE)-----",
    r"(?i)\b[a-z][a-z0-9+.-]*://[^/\s:@]+:[^/\s@]+@",
    r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bAIzaSy[A-Za-z0-9_-]{20,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\beyJ[A-Za-z0-9_-]{5,}\.eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+",
    r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{8,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{8,}",
];

static VALUE_PATTERNS: LazyLock<Option<RegexSet>> = LazyLock::new(|| RegexSet::new(VALUES).ok());

impl Redaction {
    /// Whether commands must not see the variable.
    #[must_use]
    pub fn hides(&self, name: &str, value: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|listed| listed.eq_ignore_ascii_case(name));
        if named(&self.blocked) {
            return true;
        }
        let upper = name.to_ascii_uppercase();
        if named(&self.allowed)
            || ALWAYS.contains(&upper.as_str())
            || ALWAYS_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        {
            return false;
        }
        NAMES.contains(&upper.as_str())
            || WORDS.iter().any(|word| upper.contains(word))
            // Patterns that can't be made would hide nothing; the test below makes them.
            || VALUE_PATTERNS.as_ref().is_some_and(|patterns| patterns.is_match(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_that_tell() {
        let plain = Redaction::default();
        for (name, value) in [
            ("GITHUB_TOKEN", "x"),
            ("my_api_key", "x"),
            ("DATABASE_URL", "x"),
            ("X", "-----BEGIN RSA PRIVATE KEY-----\nabc"),
            ("X", "postgres://user:pass@host/db"),
            ("X", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
            ("X", "AKIAABCDEFGHIJKLMNOP"),
            ("X", "eyJhbGciOi.eyJzdWIiOi.abc-_"),
            ("X", "sk_live_0123456789"),
            ("X", "xoxb-0123456789-abc"),
        ] {
            assert!(plain.hides(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("CI", "true"),
            ("X", "https://example.org/a@b"),
            ("SSH_AUTH_SOCK", "/s"),
        ] {
            assert!(!plain.hides(name, value), "{name}={value}");
        }
        assert!(VALUE_PATTERNS.is_some());
    }

    #[test]
    fn the_user_has_the_last_word_and_blocking_wins() {
        let told =
            Redaction { allowed: vec!["npm_token".into(), "both".into()], blocked: vec!["CI".into(), "Both".into()] };
        assert!(!told.hides("NPM_TOKEN", "x"));
        assert!(told.hides("CI", "true"));
        assert!(told.hides("BOTH", "x"));
        assert!(Redaction { blocked: vec!["PATH".into()], ..Redaction::default() }.hides("PATH", "/bin"));
    }
}
