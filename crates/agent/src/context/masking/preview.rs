//! Sans-IO: what does the model read in place of an output?

use std::borrow::Cow;

use serde_json::Value;

use super::OPENING;

/// Lines that a preview of text keeps at each end.
const LINES: usize = 10;
/// Characters of output that other tools keep at each end.
const CHARS: usize = 250;
/// Most characters of a preview, whatever its lines: one line can be megabytes.
const PREVIEW_MAX: usize = 4_000;
const SHELL: &str = "run_shell_command";
/// What a shell's answer is made of.
const SECTIONS: [&str; 6] = ["Output", "Error", "Exit Code", "Signal", "Background PIDs", "Process Group PGID"];

/// The whole of an output as a person would read it: its text where it is one, else JSON.
pub(super) fn text_of(response: &Value) -> Cow<'_, str> {
    if let Value::Object(map) = response
        && map.len() == 1
        && let Some(Value::String(text)) = map.get("output").or_else(|| map.get("error"))
    {
        return Cow::Borrowed(text);
    }
    Cow::Owned(serde_json::to_string_pretty(response).unwrap_or_default())
}

/// Facts about what was cut, and where it is.
pub(super) struct Kept {
    pub(super) path: String,
    pub(super) lines: usize,
    pub(super) bytes: usize,
    pub(super) sha256: String,
}

/// The replacement: a preview, what was cut, and where to read it.
pub(super) fn masked(tool: &str, response: &Value, text: &str, kept: &Kept) -> String {
    let preview = preview(tool, response, text);
    let Kept { path, lines, bytes, sha256 } = kept;
    format!(
        "{OPENING}\n{preview}\n\nOutput too large. Full output available at: {path}\n\
         ({lines} lines, {bytes} bytes, sha256 {sha256}; read_file with start_line and end_line reads any part of it)\n\
         </tool_output_masked>"
    )
}

fn preview(tool: &str, response: &Value, text: &str) -> String {
    let preview = if tool == SHELL { shell(response, text) } else { other(text) };
    ends(&preview, PREVIEW_MAX, PREVIEW_MAX / 2)
}

/// At most twice `keep` characters: all of it, or both ends.
fn ends(text: &str, max: usize, keep: usize) -> String {
    // Bytes are never fewer than characters.
    let total = if text.len() <= max { text.len() } else { text.chars().count() };
    if total <= max {
        return text.to_owned();
    }
    let at = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(index, _)| index);
    let head = text.get(..at(keep)).unwrap_or_default();
    let from_end = text.char_indices().rev().nth(keep.saturating_sub(1)).map_or(0, |(index, _)| index);
    let tail = text.get(from_end..).unwrap_or_default();
    format!("{head}\n... [TRUNCATED] ...\n{tail}")
}

fn other(text: &str) -> String {
    ends(text, 2 * CHARS, CHARS)
}

/// Few lines whole, of many both ends.
fn simple(text: &str) -> String {
    let total = text.lines().count();
    if total <= 2 * LINES {
        return text.to_owned();
    }
    let omitted = total - 2 * LINES;
    let head: Vec<&str> = text.lines().take(LINES).collect();
    let mut tail: Vec<&str> = text.lines().rev().take(LINES).collect();
    tail.reverse();
    format!("{}\n\n... [{omitted} lines omitted] ...\n\n{}", head.join("\n"), tail.join("\n"))
}

fn shell(response: &Value, text: &str) -> String {
    let field = |key: &str| response.get(key).and_then(Value::as_str);
    let said = field("output").or_else(|| field("stdout")).unwrap_or(text);
    let mut preview = match sections(said) {
        Some(pieces) => {
            let pieces = pieces.into_iter().map(|(name, body)| match name {
                Some("Output") => format!("Output: {}\n", simple(body.trim_end_matches('\n'))),
                Some(name) => format!("{name}: {body}"),
                None => body.to_owned(),
            });
            pieces.collect::<String>().trim_end_matches('\n').to_owned()
        }
        None => simple(said),
    };
    if let Some(code) = response.get("exitCode").and_then(Value::as_i64).filter(|code| *code != 0)
        && !said.contains(&format!("Exit Code: {code}"))
    {
        preview.push_str(&format!("\n[Exit Code: {code}]"));
    }
    if let Some(error) = field("error").filter(|error| !error.is_empty() && !said.contains(error)) {
        preview.push_str(&format!("\n[Error: {error}]"));
    }
    preview
}

/// A shell's answer in its sections, if it has any; what stands before the first has no name.
fn sections(text: &str) -> Option<Vec<(Option<&'static str>, &str)>> {
    let mut starts = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let named = SECTIONS.into_iter().find_map(|name| {
            line.strip_prefix(name)?.strip_prefix(": ")?;
            Some((offset, name))
        });
        starts.extend(named);
        offset += line.len();
    }
    let first = starts.first()?.0;
    let before = text.get(..first).filter(|before| !before.is_empty()).map(|before| (None, before));
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain(std::iter::once(text.len()));
    let named = starts.iter().zip(ends).filter_map(|((start, name), end)| {
        let body = text.get(start + name.len() + 2..end)?;
        Some((Some(*name), body))
    });
    Some(before.into_iter().chain(named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn numbered(lines: usize) -> String {
        (1..=lines).map(|n| format!("line {n}\n")).collect()
    }

    #[test]
    fn a_shell_s_sections_are_kept_but_for_the_output() {
        let text = format!("note\nOutput: {}Exit Code: 2\nBackground PIDs: 7, 8", numbered(100));
        let preview = preview(SHELL, &json!({"output": text}), &text);
        let expected = format!(
            "note\nOutput: {}\n\n... [80 lines omitted] ...\n\n{}\nExit Code: 2\nBackground PIDs: 7, 8",
            numbered(10).trim_end(),
            (91..=100).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n"),
        );
        assert_eq!(preview, expected);
    }

    #[test]
    fn fields_that_the_text_does_not_have_are_added() {
        let response = json!({"stdout": numbered(30), "exitCode": 3, "error": "boom"});
        let preview = preview(SHELL, &response, "");
        assert!(preview.contains("... [10 lines omitted] ..."), "{preview}");
        assert!(preview.ends_with("line 30\n[Exit Code: 3]\n[Error: boom]"), "{preview}");
    }

    #[test]
    fn other_tools_keep_both_ends_in_whole_characters() {
        let text = "é".repeat(501);
        let expected = format!("{0}\n... [TRUNCATED] ...\n{0}", "é".repeat(250));
        assert_eq!(preview("grep_search", &json!({}), &text), expected);
        let fits = "é".repeat(500);
        assert_eq!(preview("grep_search", &json!({}), &fits), fits);
    }

    #[test]
    fn one_line_of_megabytes_is_no_preview() {
        let text = "x".repeat(5_000_000);
        assert!(preview(SHELL, &json!({"output": text}), &text).len() < 5_000);
    }

    #[test]
    fn what_is_kept_is_what_was_said() {
        assert_eq!(text_of(&json!({"output": "a\nb"})), "a\nb");
        assert_eq!(text_of(&json!({"error": "no"})), "no");
        assert_eq!(text_of(&json!({"output": "a", "more": 1})), "{\n  \"output\": \"a\",\n  \"more\": 1\n}");
    }

    #[test]
    fn the_mask_says_what_was_cut_and_where_it_is() {
        let kept = Kept { path: "/x/y.txt".into(), lines: 3, bytes: 9, sha256: "abc".into() };
        let text = masked("t", &json!({"output": "a"}), "a", &kept);
        assert_eq!(
            text,
            "<tool_output_masked>\na\n\nOutput too large. Full output available at: /x/y.txt\n(3 lines, 9 bytes, \
             sha256 abc; read_file with start_line and end_line reads any part of it)\n</tool_output_masked>"
        );
    }
}
