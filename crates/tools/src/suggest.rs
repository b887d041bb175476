//! Which tool did the model mean? Only tools that are really alike are named, so that a wrong guess does not send the
//! model to something unrelated.

/// What other agents call tools of ours.
const SYNONYMS: [(&str, &str); 22] = [
    ("bash", "run_shell_command"),
    ("shell", "run_shell_command"),
    ("terminal", "run_shell_command"),
    ("execute_command", "run_shell_command"),
    ("run_command", "run_shell_command"),
    ("exec", "run_shell_command"),
    ("edit", "replace"),
    ("edit_file", "replace"),
    ("str_replace", "replace"),
    ("str_replace_editor", "replace"),
    ("apply_patch", "replace"),
    ("write", "write_file"),
    ("create_file", "write_file"),
    ("read", "read_file"),
    ("cat", "read_file"),
    ("view", "read_file"),
    ("open_file", "read_file"),
    ("ls", "list_directory"),
    ("list_dir", "list_directory"),
    ("list_files", "list_directory"),
    ("grep", "grep_search"),
    ("find_files", "glob"),
];

const SUGGESTIONS_MAX: usize = 3;

// Longer names are no typing errors, and the comparison is quadratic.
const NAME_MAX: usize = 128;

/// ` Did you mean …?` with up to three names, or nothing.
pub(crate) fn sentence(name: &str, tools: &[&str]) -> String {
    let quoted: Vec<String> = alike(name, tools).iter().map(|tool| format!("\"{tool}\"")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!(" Did you mean {one}?"),
        several => format!(" Did you mean one of: {}?", several.join(", ")),
    }
}

fn alike<'a>(name: &str, tools: &[&'a str]) -> Vec<&'a str> {
    let wanted = normal(name);
    if wanted.is_empty() || name.len() > NAME_MAX {
        return Vec::new();
    }
    let synonym = SYNONYMS.iter().find(|(alias, _)| normal(alias) == wanted).map(|(_, tool)| *tool);
    let mut found: Vec<(usize, &str)> = tools
        .iter()
        .filter_map(|tool| {
            if synonym == Some(*tool) {
                return Some((0, *tool));
            }
            let other = normal(tool);
            let distance = distance(&wanted, &other);
            // A quarter of the letters wrong is a slip; more is another word.
            (distance <= (wanted.len().min(other.len()) / 4).max(1)).then_some((distance, *tool))
        })
        .collect();
    found.sort();
    found.into_iter().take(SUGGESTIONS_MAX).map(|(_, tool)| tool).collect()
}

fn normal(name: &str) -> Vec<char> {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Levenshtein distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (to, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let best = (diagonal + usize::from(from != to)).min(left + 1).min(*cell + 1);
            diagonal = *cell;
            *cell = best;
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 8] = [
        "read_file",
        "write_file",
        "replace",
        "run_shell_command",
        "list_directory",
        "glob",
        "grep_search",
        "update_topic",
    ];

    #[test]
    fn names_only_what_is_alike() {
        for (name, expected) in [
            ("read_files", " Did you mean \"read_file\"?"),
            ("ReadFile", " Did you mean \"read_file\"?"),
            ("Bash", " Did you mean \"run_shell_command\"?"),
            ("rite_file", " Did you mean \"write_file\"?"),
            ("globs", " Did you mean \"glob\"?"),
            ("ask_user", ""),
            ("nope_tool", ""),
            ("", ""),
            ("日本", ""),
        ] {
            assert_eq!(sentence(name, &TOOLS), expected, "{name}");
        }
        assert_eq!(sentence("aab", &["aaa", "aac"]), " Did you mean one of: \"aaa\", \"aac\"?");
        assert_eq!(sentence("bash", &["read_file"]), "", "a tool that is not offered is not named");
    }

    #[test]
    fn distance_is_levenshtein() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        for (a, b, expected) in [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("flaw", "lawn", 2)] {
            assert_eq!(distance(&chars(a), &chars(b)), expected, "{a} {b}");
        }
    }
}
