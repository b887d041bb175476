//! Which files are there, as far as ignore files let us see them?

use std::path::Path;

use ignore::WalkBuilder;

use crate::ignored::{FileFiltering, OWN_IGNORE_FILES};

/// A walk below `root`, hidden files included, `.git` left out, and folders that nobody means (`node_modules`) where
/// `.gitignore` counts. Links are named, never followed: what they lead to may lie outside of the workspace.
pub(crate) fn walk(root: &Path, respect: FileFiltering) -> WalkBuilder {
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

/// The files that a walk sees.
#[cfg(test)]
pub(crate) fn visible_files(root: &Path, respect: FileFiltering) -> Vec<std::path::PathBuf> {
    let entries = walk(root, respect).build().flatten();
    entries
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .map(|entry| entry.into_path())
        .collect()
}
