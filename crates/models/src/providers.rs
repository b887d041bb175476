//! Providers: how does each vendor want to be asked, and how does it answer?

pub(crate) mod anthropic;
mod extra;
pub(crate) mod gemini;
mod join;
pub(crate) mod openai;
mod outcome;
pub(crate) mod vertex;
mod wire_names;

/// The field of a part that holds what only Anthropic's servers understand; it goes back to them and to nobody else.
pub(crate) const ANTHROPIC: &str = "anthropic";
/// The same for servers with chat completions: what a gateway added to a call, or to the whole message.
pub(crate) const OPENAI: &str = "openai";
/// Fields of parts that the Gemini API does not know, and would refuse.
pub(crate) const FOREIGN: [&str; 2] = [ANTHROPIC, OPENAI];

/// Whether a base path ends in an API version, such as `/v1beta`.
fn ends_in_version(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|last| last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
}

/// What a path can't hold in one segment is escaped.
fn path_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'@' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert!(ends_in_version("/v1beta") && ends_in_version("/x/v1") && ends_in_version("/v1alpha"));
        assert!(!ends_in_version("") && !ends_in_version("/vertex") && !ends_in_version("/gemini"));
    }
}
