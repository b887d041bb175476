//! Where a user's files are.

use std::path::{Path, PathBuf};

use crate::environment::Environment;

/// The folders that hold a user's configuration.
///
/// `CONVOKE_HOME`, else `GEMINI_CLI_HOME`, else the home folder is the parent of `.convoke/`, which is read over
/// `.gemini/`, key by key. Only `.convoke/` is ever written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    parent: PathBuf,
}

/// Our folder's name, in a home and in a workspace.
const OURS: &str = ".convoke";
/// Gemini CLI's, read underneath.
const THEIRS: &str = ".gemini";

impl Home {
    pub(crate) fn find(environment: &Environment) -> Option<Self> {
        let parent = environment
            .path("CONVOKE_HOME")
            .or_else(|| environment.path("GEMINI_CLI_HOME"))
            .or_else(|| environment.path("HOME"))?;
        Some(Self { parent })
    }

    /// What `~` stands for.
    pub(crate) fn parent(&self) -> &Path {
        &self.parent
    }

    /// The folder that is written.
    pub(crate) fn folder(&self) -> PathBuf {
        self.parent.join(OURS)
    }

    /// The folders that are read, weakest first.
    pub(crate) fn folders(&self) -> [PathBuf; 2] {
        folders_in(&self.parent)
    }
}

/// The configuration folders below `parent`, weakest first.
pub(crate) fn folders_in(parent: &Path) -> [PathBuf; 2] {
    [parent.join(THEIRS), parent.join(OURS)]
}

/// Whether a folder of that name is ours, so that unknown keys in it are worth a warning.
pub(crate) fn is_ours(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_wins() {
        let found = |pairs: &[(&str, &str)]| Home::find(&Environment::of(pairs)).map(|home| home.folder());
        let all = [("CONVOKE_HOME", "/c"), ("GEMINI_CLI_HOME", "/g"), ("HOME", "/h")];
        assert_eq!(found(&all), Some("/c/.convoke".into()));
        assert_eq!(found(&all[1..]), Some("/g/.convoke".into()));
        assert_eq!(found(&all[2..]), Some("/h/.convoke".into()));
        assert_eq!(found(&[]), None);
    }
}
