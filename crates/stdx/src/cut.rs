//! Cutting text without splitting a character.

/// The longest prefix of `text` that has at most `max` bytes.
#[must_use]
pub fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The longest suffix of `text` that has at most `max` bytes.
#[must_use]
pub fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_splits_a_character() {
        assert_eq!(head("aé", 2), "a");
        assert_eq!(tail("éa", 2), "a");
        assert_eq!(head("abc", 10), "abc");
        assert_eq!(tail("abc", 10), "abc");
        assert_eq!(head("é", 0), "");
    }
}
