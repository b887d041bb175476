//! `/rewind` and `/branch` as people type them, and what they read then.

use convoke_protocol::{RewindConflict, RewindPoint, RewindRequest, RewindWhat, Rewound};
use convoke_stdx::iso8601;

/// Files and effects that are told with their names; the rest is a number.
const SHOWN_MAX: usize = 5;

/// What somebody typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To see the points.
    List,
    /// To go back.
    Rewind(RewindRequest),
}

/// What the words behind `/rewind` mean; `Err` says what they should be.
pub(crate) fn wish(args: &str) -> Result<Wish, String> {
    let mut words = args.split_whitespace();
    let Some(to) = words.next() else { return Ok(Wish::List) };
    let mut request = RewindRequest { to: to.to_owned(), ..RewindRequest::default() };
    for word in words {
        match RewindWhat::parse(word) {
            Some(what) => request.what = what,
            None if matches!(word, "force" | "--force") => request.force = true,
            None => {
                let usage = "/rewind [number or id] [conversation | files | both] [force]";
                return Err(format!("rewind: \"{word}\" is not understood; use {usage}"));
            }
        }
    }
    Ok(Wish::Rewind(request))
}

/// The points, one a paragraph.
pub(crate) fn points_text(points: &[RewindPoint]) -> String {
    if points.is_empty() {
        return "There is nothing to go back to.".to_owned();
    }
    let mut text = "Points to go back to, each one right before its prompt:\n".to_owned();
    for point in points {
        let moment = iso8601(point.at_ms);
        let moment = moment.get(..16).unwrap_or_default().replace('T', " ");
        text.push_str(&format!("  {}. {} ({moment})\n", point.number, point.prompt));
        if point.files_total > 0 {
            let shown: Vec<&str> = point.files.iter().take(SHOWN_MAX).map(String::as_str).collect();
            text.push_str(&format!(
                "     files changed since: {}{}\n",
                shown.join(", "),
                more(&shown, point.files_total)
            ));
        }
        if !point.lasting.is_empty() {
            let shown: Vec<&str> = point.lasting.iter().take(SHOWN_MAX).map(|effect| effect.what.as_str()).collect();
            let more = more(&shown, point.lasting.len());
            text.push_str(&format!("     may have effects that stay: {}{more}\n", shown.join("; ")));
        }
    }
    text.push_str("/rewind <number> [conversation | files | both] goes back; both is what happens without a word.");
    text
}

fn more(shown: &[&str], total: usize) -> String {
    match total.saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// How it went.
pub(crate) fn rewound_text(rewound: &Rewound) -> String {
    let what = match rewound.what {
        RewindWhat::Conversation => "The conversation is",
        RewindWhat::Files => "Files are",
        RewindWhat::Both => "The conversation and the files are",
    };
    let mut text = format!("{what} as before prompt {}.", rewound.number);
    if !rewound.files.is_empty() {
        text.push_str("\nTaken back:");
        rewound.files.iter().for_each(|path| text.push_str(&format!("\n  {path}")));
    }
    if !rewound.left.is_empty() {
        text.push_str("\nNot taken back:");
        text.push_str(&list(&rewound.left));
    }
    if rewound.what != RewindWhat::Files && !rewound.prompt.is_empty() {
        text.push_str(&format!("\nThe prompt was: {}", rewound.prompt));
    }
    text
}

/// What stands in the way.
pub(crate) fn conflicts_text(conflicts: &[RewindConflict]) -> String {
    format!(
        "Nothing was taken back, because these files are not only the agent's:{}\nWith `force` they are taken back as well.",
        list(conflicts)
    )
}

fn list(conflicts: &[RewindConflict]) -> String {
    conflicts.iter().map(|conflict| format!("\n  {}: {}", conflict.path, conflict.why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_in_any_order_and_others_are_not() {
        let request = |what, force| Wish::Rewind(RewindRequest { to: "2".into(), what, force });
        assert_eq!(wish("  "), Ok(Wish::List));
        assert_eq!(wish("2"), Ok(request(RewindWhat::Both, false)));
        assert_eq!(wish("2 files"), Ok(request(RewindWhat::Files, false)));
        assert_eq!(wish("2 force conversation"), Ok(request(RewindWhat::Conversation, true)));
        assert!(wish("2 everything").unwrap_err().contains("\"everything\""));
    }
}
