//! The blocking part: which files do names, folders and patterns stand for?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use tokio_util::sync::CancellationToken;

use super::super::walk::walk;
use super::{ReadManyRequest, SkippedFile};
use crate::{Access, ErrorType, FileFiltering, ToolFailure, Workspace};

// Far more than a model reads. Whoever asks for more named the wrong folder.
const FILES_MAX: usize = 1000;

/// What nobody means by a folder or a pattern: what tools make or fetch, and what is no text. A file that is asked for
/// by its whole name is read all the same.
const DEFAULT_EXCLUDES: [&str; 8] = [
    "**/{node_modules,bower_components,.git,.svn,.hg,.jj}/**",
    "**/{.vscode,.idea,dist,build,coverage,__pycache__,.venv,.tox,.mypy_cache}/**",
    "**/*.{bin,exe,dll,so,dylib,a,o,obj,lib,class,jar,war,wasm,pyc,pyo}",
    "**/*.{zip,tar,gz,bz2,xz,zst,rar,7z}",
    "**/*.{doc,docx,xls,xlsx,ppt,pptx,odt,ods,odp}",
    "**/*.{ttf,otf,woff,woff2,eot}",
    "**/*.{sqlite,sqlite3,db}",
    "**/{.DS_Store,.env}",
];

/// How a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// By its own name, or by a pattern that names its extension.
    Named,
    /// In a folder, or by a pattern for all kinds of files.
    Found,
}

#[derive(Default)]
pub(super) struct Candidates {
    pub(super) files: BTreeMap<PathBuf, Candidate>,
    pub(super) skipped: Vec<SkippedFile>,
    /// Files that were found, one that was found twice counted twice.
    seen: usize,
    /// Whether it was said that there is no room for more.
    is_full: bool,
}

pub(super) struct Search {
    include: Vec<String>,
    /// What the caller does not want.
    unwanted: GlobSet,
    /// What nobody means.
    unmeant: GlobSet,
    recursive: bool,
    filtering: FileFiltering,
}

impl Search {
    pub(super) fn new(request: ReadManyRequest, filtering: FileFiltering) -> Result<Self, ToolFailure> {
        let ReadManyRequest { include, exclude, recursive, use_default_excludes, .. } = request;
        let unwanted = set(exclude.iter().map(String::as_str))?;
        let unmeant = set(DEFAULT_EXCLUDES.into_iter().filter(|_| use_default_excludes))?;
        for pattern in &include {
            // Names with brackets in them are names as often as patterns.
            if pattern.contains('*') {
                set(std::iter::once(pattern.as_str()))?;
            }
        }
        Ok(Self { include, unwanted, unmeant, recursive, filtering })
    }

    pub(super) fn run(&self, workspace: &Workspace, cancel: &CancellationToken) -> Candidates {
        let mut found = Candidates::default();
        for include in &self.include {
            if cancel.is_cancelled() {
                break;
            }
            let seen = found.seen;
            match workspace.resolve(include, Access::Read) {
                Ok(path) if path.as_path().is_file() => self.take(workspace, path.as_path(), &mut found),
                Ok(path) if path.as_path().is_dir() => {
                    let depth = if self.recursive { None } else { Some(1) };
                    self.walk(workspace, path.as_path(), depth, None, &mut found, cancel);
                    self.report_none(include, seen, &mut found);
                }
                Ok(path) if path.as_path().exists() => skip(&mut found, include, "it is not a regular file"),
                Ok(_) | Err(_) if include.contains(['*', '?', '[', '{']) => {
                    self.glob(workspace, include, &mut found, cancel);
                    self.report_none(include, seen, &mut found);
                }
                Ok(_) => skip(&mut found, include, "there is no such file"),
                Err(error) => {
                    let failure = ToolFailure::from(error);
                    skip(&mut found, include, failure.message());
                }
            }
        }
        found
    }

    /// A file that was named.
    fn take(&self, workspace: &Workspace, path: &Path, found: &mut Candidates) {
        let relative = workspace.shorten(path);
        if self.is_unwanted(workspace, path) {
            return skip(found, &relative, "it is excluded");
        }
        if let Some(by) = workspace.ignored(path, self.filtering) {
            return skip(found, &relative, &format!("ignored by {by}"));
        }
        insert(found, path.to_owned(), Candidate::Named);
    }

    fn is_unwanted(&self, workspace: &Workspace, path: &Path) -> bool {
        !self.unwanted.is_empty() && (self.unwanted.is_match(workspace.shorten(path)) || self.unwanted.is_match(path))
    }

    fn glob(&self, workspace: &Workspace, pattern: &str, found: &mut Candidates, cancel: &CancellationToken) {
        let Ok(matcher) = set(std::iter::once(pattern)) else {
            return skip(found, pattern, "there is no such file, and it is no pattern");
        };
        // `*.png` names an extension, and so does `*.{png,jpg}`; `*` and `*.*` don't.
        let extension = pattern.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
        let how = match extension {
            Some((_, extension)) if !extension.contains(['*', '?']) => Candidate::Named,
            Some(_) | None => Candidate::Found,
        };
        for root in workspace.roots() {
            self.walk(workspace, root, None, Some((&matcher, how)), found, cancel);
        }
    }

    fn walk(
        &self,
        workspace: &Workspace,
        folder: &Path,
        depth: Option<usize>,
        matching: Option<(&GlobSet, Candidate)>,
        found: &mut Candidates,
        cancel: &CancellationToken,
    ) {
        for entry in
            walk(folder, self.filtering).max_depth(depth).sort_by_file_name(std::cmp::Ord::cmp).build().flatten()
        {
            if cancel.is_cancelled() {
                return;
            }
            // Links count as files: what they lead to is looked at when they are opened.
            if entry.file_type().is_none_or(|kind| kind.is_dir()) {
                continue;
            }
            let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
            let how = match matching {
                Some((set, _)) if !set.is_match(relative) && !set.is_match(entry.path()) => continue,
                Some((_, how)) => how,
                None => Candidate::Found,
            };
            // Only what lies below: a workspace may itself be in a folder called `build`.
            if self.is_unwanted(workspace, entry.path()) || self.unmeant.is_match(relative) {
                continue;
            }
            if !insert(found, entry.into_path(), how) {
                return;
            }
        }
    }

    fn report_none(&self, include: &str, seen: usize, found: &mut Candidates) {
        if found.seen == seen {
            skip(found, include, "no file there is to be read");
        }
    }
}

/// Whether there is room for more.
fn insert(found: &mut Candidates, path: PathBuf, how: Candidate) -> bool {
    found.seen += 1;
    if found.files.len() == FILES_MAX && !found.files.contains_key(&path) {
        if !found.is_full {
            found.is_full = true;
            skip(
                found,
                &path.display().to_string(),
                &format!("at most {FILES_MAX} files are read; this and later ones are not"),
            );
        }
        return false;
    }
    let known = found.files.entry(path).or_insert(how);
    if how == Candidate::Named {
        *known = how;
    }
    true
}

fn skip(found: &mut Candidates, name: &str, reason: &str) {
    // One per include at most, and the includes are what one prompt or one call names.
    found.skipped.push(SkippedFile { name: name.to_owned(), reason: reason.to_owned() });
}

fn set<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<GlobSet, ToolFailure> {
    let invalid = |error: globset::Error| {
        ToolFailure::new(ErrorType::InvalidToolParams, format!("params has a bad pattern: {error}"))
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        set.add(GlobBuilder::new(pattern).literal_separator(true).case_insensitive(true).build().map_err(invalid)?);
    }
    set.build().map_err(invalid)
}
