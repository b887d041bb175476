//! A page of markup as plain text.
//!
//! Layout costs the square of how deep elements are nested, so a page that is nested like no page is only freed of its
//! tags.

// Real pages stay below a hundred.
const DEPTH_MAX: usize = 400;
// Columns that text is laid out in; a line of a table must fit.
const COLUMNS: usize = 120;

/// Elements without content, and those that end where the next one begins.
const NOT_NESTED: [&str; 28] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "p", "li",
    "dt", "dd", "option", "optgroup", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "rt", "rp",
];

pub(super) fn to_text(html: &str) -> String {
    if depth(html) > DEPTH_MAX {
        return without_tags(html);
    }
    let laid_out = html2text::config::plain().no_link_wrapping().string_from_read(html.as_bytes(), COLUMNS);
    laid_out.unwrap_or_else(|_| without_tags(html))
}

/// About how deep elements are nested.
fn depth(html: &str) -> usize {
    let (mut deepest, mut depth) = (0_usize, 0_usize);
    for piece in html.split('<').skip(1) {
        let closes = piece.starts_with('/');
        let name = name(piece.trim_start_matches('/'));
        if name.is_empty() || NOT_NESTED.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            continue;
        }
        depth = if closes { depth.saturating_sub(1) } else { depth + 1 };
        deepest = deepest.max(depth);
    }
    deepest
}

fn name(tag: &str) -> &str {
    let end = tag.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tag.len());
    tag.get(..end).unwrap_or_default()
}

fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut skipped: Option<&str> = None;
    let mut pieces = html.split('<');
    text.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let name = name(piece.trim_start_matches('/'));
        let is_code = ["script", "style"].into_iter().find(|other| other.eq_ignore_ascii_case(name));
        match (is_code, piece.starts_with('/')) {
            (Some(code), false) if skipped.is_none() => skipped = Some(code),
            (Some(code), true) if skipped == Some(code) => skipped = None,
            _ => {}
        }
        if let (None, Some((_, rest))) = (skipped, piece.split_once('>')) {
            if !text.ends_with(char::is_whitespace) {
                text.push(' ');
            }
            text.push_str(rest);
        }
    }
    for (entity, character) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&nbsp;", " "), ("&amp;", "&")] {
        text = text.replace(entity, character);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_are_laid_out() {
        let html = "<h1>Title</h1><ul><li>one<li>two</ul><p>See <a href=\"https://a.example/\">that</a>.";
        let text = to_text(html);
        for words in ["# Title", "* one", "* two", "[that]", "https://a.example/"] {
            assert!(text.contains(words), "{text}");
        }
        let list = format!("<ul>{}</ul>", "<li>item".repeat(5000));
        assert_eq!(depth(&list), 1);
        assert_eq!(to_text(&list).matches("* item").count(), 5000);
    }

    #[test]
    fn what_is_nested_like_no_page_is_freed_of_its_tags() {
        let html = format!("{}a &amp; b<script>x<y</script><style>z</style> c", "<div>".repeat(100_000));
        assert_eq!(to_text(&html).split_whitespace().collect::<Vec<_>>(), ["a", "&", "b", "c"]);
    }

    proptest! {
        #[test]
        fn no_markup_panics(html in "(<[/!]?(a|b|table|script|p|!--)?[ =\"]{0,2}>?|[ -~é]{0,5}){0,40}") {
            let _ = (to_text(&html), without_tags(&html));
        }
    }
}
