//! Where plans are kept: is a file one of them?

use std::path::{Path, PathBuf};

/// The folder of a session's plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFolder(PathBuf);

impl PlanFolder {
    /// A folder by its real path, with no link in it.
    pub fn new(real: impl Into<PathBuf>) -> Self {
        Self(real.into())
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether `real`, a path with its links resolved, is a Markdown file somewhere inside.
    #[must_use]
    pub fn has(&self, real: &Path) -> bool {
        let is_markdown = real.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("md"));
        is_markdown && real != self.0 && real.starts_with(&self.0)
    }
}
