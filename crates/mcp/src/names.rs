//! What is a server's tool called here? Names are made once and looked up ever after; nothing takes them apart.

use std::collections::{HashMap, HashSet};

/// The longest name that every provider takes is 64; one less, as the specification has it.
const NAME_MAX: usize = 63;
/// What is kept of each end of a longer name.
const END: usize = 30;
/// Most names of one session: far above what a session may register.
const NAMES_MAX: usize = 16 * 1024;

/// `mcp_SERVER_TOOL` with what a function's name may not have replaced by `_`, shortened in the middle.
///
/// Source: runtime specification §14. Two tools may come to the same name; the session's book of names keeps them apart.
#[must_use]
pub fn qualified(server: &str, tool: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    let name: String = format!("mcp_{server}_{tool}").chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    shortened(name)
}

// Every character is ASCII by now.
fn shortened(name: String) -> String {
    match (name.len() > NAME_MAX, name.get(..END), name.get(name.len().saturating_sub(END)..)) {
        (true, Some(head), Some(tail)) => format!("{head}...{tail}"),
        _ => name,
    }
}

/// The names given so far: a tool that goes and comes back is called the same.
#[derive(Debug, Default)]
pub(crate) struct NameBook {
    by_origin: HashMap<(String, String), String>,
    taken: HashSet<String>,
}

impl NameBook {
    /// The name of this tool; `None` once there are too many names.
    pub(crate) fn name(&mut self, server: &str, tool: &str) -> Option<String> {
        let origin = (server.to_owned(), tool.to_owned());
        if let Some(name) = self.by_origin.get(&origin) {
            return Some(name.clone());
        }
        if self.by_origin.len() >= NAMES_MAX {
            return None;
        }
        let first = qualified(server, tool);
        let numbered = (2..=NAMES_MAX).map(|n| {
            let suffix = format!("_{n}");
            let head = first.get(..NAME_MAX - suffix.len()).unwrap_or(&first);
            format!("{head}{suffix}")
        });
        let name = std::iter::once(first.clone()).chain(numbered).find(|name| !self.taken.contains(name))?;
        if name != first {
            tracing::warn!(server, tool, %name, "another tool has that name already");
        }
        self.taken.insert(name.clone());
        self.by_origin.insert(origin, name.clone());
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_server_and_tool() {
        assert_eq!(qualified("git", "log"), "mcp_git_log");
        assert_eq!(qualified("my_git", "log_all"), "mcp_my_git_log_all");
        assert_eq!(qualified("ä b", "x/y.z:1-2"), "mcp___b_x_y.z:1-2");
        let long = qualified("server", &"t".repeat(100));
        assert_eq!(long.len(), 63);
        assert!(long.starts_with("mcp_server_ttt") && long.contains("..."));
    }

    #[test]
    fn tools_that_come_to_one_name_are_kept_apart_for_good() {
        let mut book = NameBook::default();
        assert_eq!(book.name("a_b", "c").as_deref(), Some("mcp_a_b_c"));
        assert_eq!(book.name("a", "b_c").as_deref(), Some("mcp_a_b_c_2"));
        assert_eq!(book.name("a", "b/c").as_deref(), Some("mcp_a_b_c_3"));
        assert_eq!(book.name("a", "b_c").as_deref(), Some("mcp_a_b_c_2"));
        let long = |end: &str| format!("{}{}{}", "x".repeat(30), end, "y".repeat(60));
        let names = [book.name("s", &long("1")).unwrap(), book.name("s", &long("2")).unwrap()];
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
    }
}
