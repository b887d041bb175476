//! Which files are there, as far as ignore files let us see them?

use std::path::Path;

use ignore::WalkBuilder;

/// Files in the syntax of `.gitignore` that are about agents only.
const OWN_IGNORE_FILES: [&str; 2] = [".geminiignore", ".convokeignore"];

/// Which ignore files count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Respect {
    /// `.gitignore` and its like, and folders that nobody means: `node_modules`.
    pub(super) git: bool,
    /// `.geminiignore` and `.convokeignore`.
    pub(super) own: bool,
}

impl Respect {
    pub(super) fn new(git: Option<bool>, own: Option<bool>) -> Self {
        Self { git: git.unwrap_or(true), own: own.unwrap_or(true) }
    }
}

/// A walk below `root`, hidden files included, `.git` left out. Links are named, never followed: what they lead to may
/// lie outside of the workspace.
pub(super) fn walk(root: &Path, respect: Respect) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    builder
        .hidden(false)
        .follow_links(false)
        .require_git(false)
        .git_ignore(respect.git)
        .git_exclude(respect.git)
        .ignore(respect.git)
        // The user's own global excludes live in the home directory, which this room does not read.
        .git_global(false)
        .parents(respect.git || respect.own);
    if respect.own {
        for name in OWN_IGNORE_FILES {
            builder.add_custom_ignore_filename(name);
        }
    }
    builder.filter_entry(move |entry| {
        let name = entry.file_name();
        entry.depth() == 0 || (name != ".git" && !(respect.git && name == "node_modules"))
    });
    builder
}
