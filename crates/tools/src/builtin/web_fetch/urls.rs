//! Which addresses does a prompt name?

use reqwest::Url;

/// The addresses, in order and each once, and the words that look like one and are none.
pub(super) fn find(prompt: &str) -> (Vec<Url>, Vec<String>) {
    let (mut urls, mut broken) = (Vec::new(), Vec::new());
    for word in prompt.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"' | '`')) {
        let Some(at) = word.find("://") else { continue };
        // What stands around an address in a sentence, such as `(see https://a.example/)`.
        let scheme = word.get(..at).unwrap_or_default();
        let start =
            scheme.rfind(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.')).map_or(0, |at| at + 1);
        let word = trimmed(word.get(start..).unwrap_or_default());
        match Url::parse(word) {
            Ok(mut url) if matches!(url.scheme(), "http" | "https") => {
                url.set_fragment(None);
                if !urls.contains(&url) {
                    urls.push(url);
                }
            }
            Ok(url) => broken.push(format!("{word}: {} is not an address of the web", url.scheme())),
            Err(error) => broken.push(format!("{word}: {error}")),
        }
    }
    (urls, broken)
}

/// Without what ends a sentence, and without a bracket that was opened before the address.
fn trimmed(word: &str) -> &str {
    let mut word = word;
    loop {
        let closes_nothing = |open: char, close: char| word.matches(close).count() > word.matches(open).count();
        let end = match word.chars().next_back() {
            Some('.' | ',' | ';' | ':' | '!' | '?' | '\'') => true,
            Some(')') => closes_nothing('(', ')'),
            Some(']') => closes_nothing('[', ']'),
            Some('}') => closes_nothing('{', '}'),
            _ => false,
        };
        if !end {
            return word;
        }
        word = word.get(..word.len() - 1).unwrap_or_default();
    }
}

/// Where the text itself is: a page of GitHub that shows a file is mostly not the file.
pub(super) fn raw(url: &Url) -> Url {
    if url.host_str() != Some("github.com") {
        return url.clone();
    }
    let Some(segments) = url.path_segments().map(Iterator::collect::<Vec<_>>) else { return url.clone() };
    let [owner, repository, "blob", rest @ ..] = &segments[..] else { return url.clone() };
    if rest.len() < 2 {
        return url.clone();
    }
    let raw = format!("https://raw.githubusercontent.com/{owner}/{repository}/{}", rest.join("/"));
    Url::parse(&raw).unwrap_or_else(|_| url.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_sentences() {
        let prompt = "Compare https://a.example/x?y=1#frag, (see http://b.example/wiki/C_(lang)) and\n\
                      <https://c.example>; again https://a.example/x?y=1. Not mailto:x or ftp://d.example or http://.";
        let (urls, broken) = find(prompt);
        let urls: Vec<String> = urls.iter().map(ToString::to_string).collect();
        assert_eq!(urls, ["https://a.example/x?y=1", "http://b.example/wiki/C_(lang)", "https://c.example/"]);
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert_eq!(find("[text](https://a.example/p)").0[0].as_str(), "https://a.example/p");
        assert_eq!(find("no address here").0, []);
    }

    #[test]
    fn a_page_of_a_file_is_its_text() {
        let raw = |url: &str| raw(&Url::parse(url).unwrap()).to_string();
        assert_eq!(raw("https://github.com/o/r/blob/main/a/b.rs"), "https://raw.githubusercontent.com/o/r/main/a/b.rs");
        for same in [
            "https://github.com/o/r/blob/main",
            "https://github.com/o/r/tree/main/a",
            "https://x.github.com/o/r/blob/m/a",
        ] {
            assert_eq!(raw(same), same);
        }
    }
}
