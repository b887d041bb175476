//! Which servers, and which of a server's tools, are wanted?

/// The tools of one server that are offered. Exclusion wins.
///
/// An entry is a tool's own name, or `name(args)` as other agents write it, which stands for the whole tool.
/// Source: runtime specification §14.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    /// Only these; `None` for all.
    pub include: Option<Vec<String>>,
    /// Not these.
    pub exclude: Vec<String>,
}

impl ToolFilter {
    /// Whether the tool of this name is offered.
    #[must_use]
    pub fn admits(&self, tool: &str) -> bool {
        let named = |entry: &String| base(entry) == tool;
        !self.exclude.iter().any(named) && self.include.as_ref().is_none_or(|include| include.iter().any(named))
    }

    /// What both filters admit.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let include = match (self.include, other.include) {
            (Some(ours), Some(theirs)) => {
                Some(ours.into_iter().filter(|entry| theirs.iter().any(|other| base(other) == base(entry))).collect())
            }
            (ours, theirs) => ours.or(theirs),
        };
        let mut exclude = self.exclude;
        exclude.extend(other.exclude);
        Self { include, exclude }
    }
}

fn base(entry: &str) -> &str {
    entry.split_once('(').map_or(entry, |(name, _)| name)
}

/// The servers that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Lists that a server must be on, each of them.
    pub allowed: Vec<Vec<String>>,
    /// Servers that are left out.
    pub excluded: Vec<String>,
}

impl Selection {
    /// Whether the server of this name may be used.
    #[must_use]
    pub fn admits(&self, server: &str) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name == server);
        self.allowed.iter().all(named) && !named(&self.excluded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: Option<&[&str]>, exclude: &[&str]) -> ToolFilter {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        ToolFilter { include: include.map(owned), exclude: owned(exclude) }
    }

    #[test]
    fn exclusion_wins_and_arguments_are_no_part_of_a_name() {
        let ours = filter(Some(&["read(path)", "write", "drop"]), &["drop(all)"]);
        assert!(ours.admits("read") && ours.admits("write"));
        assert!(!ours.admits("drop") && !ours.admits("other") && !ours.admits("read(path)"));
        assert!(filter(None, &[]).admits("anything"));
    }

    #[test]
    fn both_filters_must_agree() {
        let both = filter(Some(&["a", "b"]), &["x"]).and(filter(Some(&["b(1)", "c"]), &["y"]));
        assert!(both.admits("b") && !both.admits("a") && !both.admits("c"));
        assert!(filter(None, &["x"]).and(filter(Some(&["x", "z"]), &[])).admits("z"));
        assert!(!filter(None, &["x"]).and(filter(Some(&["x", "z"]), &[])).admits("x"));
    }

    #[test]
    fn a_server_must_be_on_every_list() {
        let selection = Selection {
            allowed: vec![vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned(), "c".to_owned()]],
            excluded: vec!["c".to_owned()],
        };
        assert!(selection.admits("b") && !selection.admits("a") && !selection.admits("c"));
        assert!(Selection::default().admits("any"));
    }
}
