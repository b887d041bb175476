//! Which files does nobody want an agent to see?
//!
//! `.gitignore` and its like say what is no source; `.geminiignore` says what agents are not to see, and `.convokeignore`
//! lies over it. Walks ask the `ignore` library; this module answers for a single path, by the same rules: of two files
//! in one folder the later of these names wins, of two folders the deeper one, of two lines the later one, and nothing
//! can be taken back below a folder that is left out.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Files in the syntax of `.gitignore` that are about agents only; the last one wins.
pub(crate) const OWN_IGNORE_FILES: [&str; 2] = [".geminiignore", ".convokeignore"];

/// Which ignore files count where a call does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFiltering {
    /// `.gitignore`, `.ignore`, `.git/info/exclude`.
    pub git: bool,
    /// `.geminiignore` and `.convokeignore`.
    pub own: bool,
}

impl Default for FileFiltering {
    fn default() -> Self {
        Self { git: true, own: true }
    }
}

impl FileFiltering {
    /// These, but for what a call says.
    pub(crate) fn with(self, git: Option<bool>, own: Option<bool>) -> Self {
        Self { git: git.unwrap_or(self.git), own: own.unwrap_or(self.own) }
    }

    /// The ignore files that leave `path` out, in words; `None` if none does. `root` is the folder of the workspace that
    /// the path lies in.
    pub(crate) fn reason(self, root: &Path, path: &Path) -> Option<&'static str> {
        let relative = path.strip_prefix(root).ok()?;
        let top = if self.git { git_top(root) } else { root.to_owned() };
        let mut folders: Vec<Rules> =
            root.ancestors().take_while(|dir| dir.starts_with(&top)).map(Rules::new).collect();
        folders.reverse();
        let mut at = root.to_owned();
        let count = relative.components().count();
        for (index, component) in relative.components().enumerate() {
            if index > 0 {
                folders.push(Rules::new(&at));
            }
            at.push(component);
            let is_dir = index + 1 < count || at.is_dir();
            if let Some(reason) = self.of_one(&folders, &at, is_dir) {
                return Some(reason);
            }
        }
        None
    }

    fn of_one(self, folders: &[Rules], path: &Path, is_dir: bool) -> Option<&'static str> {
        // One kind of file over the other, and within a kind the deepest folder that has a line about the path.
        let verdict = |kind: fn(&Rules) -> &Gitignore| {
            folders.iter().rev().find_map(|rules| match kind(rules).matched(path, is_dir) {
                ignore::Match::None => None,
                found => Some(found.is_ignore()),
            })
        };
        let own = if self.own { verdict(|rules| &rules.own) } else { None };
        match own {
            Some(true) => return Some(".geminiignore or .convokeignore"),
            Some(false) => return None,
            None => {}
        }
        if !self.git {
            return None;
        }
        let git = verdict(|rules| &rules.plain).or_else(|| verdict(|rules| &rules.git));
        git.or_else(|| verdict(|rules| &rules.exclude)).unwrap_or(false).then_some(".gitignore")
    }
}

/// The folder that `.gitignore` files count from: the repository's, or the root itself.
fn git_top(root: &Path) -> PathBuf {
    root.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(root).to_owned()
}

/// The ignore files of one folder.
struct Rules {
    own: Gitignore,
    plain: Gitignore,
    git: Gitignore,
    exclude: Gitignore,
}

impl Rules {
    fn new(folder: &Path) -> Self {
        let read = |names: &[&str]| {
            let mut builder = GitignoreBuilder::new(folder);
            for name in names {
                // A line that is no pattern is left out, and the others count; most often there is no file at all.
                let _ = builder.add(folder.join(name));
            }
            builder.build().unwrap_or_else(|_| Gitignore::empty())
        };
        Self {
            own: read(&OWN_IGNORE_FILES),
            plain: read(&[".ignore"]),
            git: read(&[".gitignore"]),
            exclude: read(&[".git/info/exclude"]),
        }
    }
}
