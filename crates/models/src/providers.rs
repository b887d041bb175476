//! Providers: how does each vendor want to be asked, and how does it answer?

pub(crate) mod anthropic;
mod extra;
pub(crate) mod gemini;
mod join;
pub(crate) mod openai;
mod outcome;

/// The field of a part that holds what only Anthropic's servers understand; it goes back to them and to nobody else.
pub(crate) const ANTHROPIC: &str = "anthropic";

/// Whether a base path ends in an API version, such as `/v1beta`.
fn ends_in_version(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|last| last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
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
