//! Which files may be touched, and which file is meant?
//!
//! A path that a model wrote is resolved to a real one, symbolic links followed, also where the file does not exist
//! yet: the deepest folder that exists decides. What is resolved must lie inside a root.
//!
//! Between resolving and opening, somebody may swap a folder for a link. [`ResolvedPath::open`] therefore opens what
//! was resolved without following any link (`openat2` with `RESOLVE_NO_SYMLINKS`; on kernels without it, no link in
//! the last component). Writing goes through a temporary file and a rename in the resolved folder, which replaces a
//! link put there meanwhile instead of writing through it; a *folder* swapped between the check right before the
//! rename and the rename itself is not noticed. Against a hostile program that runs at the same time, use a sandbox.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::{ClientFiles, ErrorType, FileFiltering, PlanFolder, ToolFailure};

/// What a [`Workspace`] is made from.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceOptions {
    /// The folder that relative paths start from; the first root.
    pub cwd: PathBuf,
    /// Further folders that may be read and written.
    pub more_roots: Vec<PathBuf>,
    /// Further folders that may be read.
    pub read_roots: Vec<PathBuf>,
    /// What `~` stands for.
    pub home: Option<PathBuf>,
    /// Which ignore files count.
    pub filtering: FileFiltering,
    /// Names of files that may be read and not written, wherever they are.
    pub kept: Vec<String>,
}

/// What is wanted of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To write it, or to run something in it.
    Write,
}

/// The folders that a session works in.
#[derive(Clone)]
pub struct Workspace {
    cwd: PathBuf,
    roots: Vec<PathBuf>,
    /// Shared with clones: a folder that is opened is open for all tools of the session.
    read_roots: Arc<RwLock<Vec<PathBuf>>>,
    home: Option<PathBuf>,
    filtering: FileFiltering,
    kept: Vec<String>,
    client: Option<Arc<dyn ClientFiles>>,
    plans: Option<PlanFolder>,
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("roots", &self.roots).finish_non_exhaustive()
    }
}

// The kernel's own bound on links in one path (ELOOP).
const LINKS_MAX: usize = 40;

/// Why a path can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It is empty, or has a NUL in it.
    #[error("use path \"{0}\": it is not a path")]
    NotAPath(String),
    /// It lies outside.
    #[error("use path \"{path}\": it is outside of the workspace ({roots})")]
    Outside {
        /// The path as it was given.
        path: String,
        /// The roots, for the reader.
        roots: String,
    },
    /// It may be read only.
    #[error("write \"{0}\": this agent may read files of that name and not write them")]
    Kept(String),
    /// It can't be looked at.
    #[error("resolve path \"{path}\"")]
    Unreadable {
        /// The path as it was given.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl From<PathError> for ToolFailure {
    fn from(error: PathError) -> Self {
        match error {
            PathError::NotAPath(_) => Self::new(ErrorType::InvalidToolParams, format!("Failed to {error}.")),
            PathError::Outside { path, roots } => Self::new(
                ErrorType::PathNotInWorkspace,
                format!(
                    "Path not in workspace: \"{path}\" resolves outside the allowed workspace directories: {roots}"
                ),
            ),
            PathError::Kept(_) => Self::new(ErrorType::PermissionDenied, format!("Failed to {error}.")),
            PathError::Unreadable { ref source, .. } => {
                let kind = ErrorType::of_io(source, ErrorType::ExecutionFailed);
                Self::new(kind, format!("Failed to {error}: {source}."))
            }
        }
    }
}

impl Workspace {
    /// A workspace whose roots exist. Roots are resolved once, here; extra read roots that don't exist are left out.
    pub fn new(options: WorkspaceOptions) -> Result<Self, PathError> {
        let WorkspaceOptions { cwd, more_roots, read_roots, home, filtering, kept } = options;
        let real = |path: &PathBuf| {
            fs::canonicalize(path).map_err(|source| PathError::Unreadable { path: path.display().to_string(), source })
        };
        let cwd = real(&cwd)?;
        let mut roots = vec![cwd.clone()];
        for root in &more_roots {
            roots.push(real(root)?);
        }
        let read_roots = read_roots.iter().filter_map(|root| fs::canonicalize(root).ok()).collect();
        let read_roots = Arc::new(RwLock::new(read_roots));
        Ok(Self { cwd, roots, read_roots, home, filtering, kept, client: None, plans: None })
    }

    /// The same, with plans in a folder of their own, which need not exist.
    #[must_use]
    pub fn with_plans(self, folder: PlanFolder) -> Self {
        Self { plans: Some(folder), ..self }
    }

    /// The same, with text files under the working folder as `client` has them.
    #[must_use]
    pub fn with_client_files(self, client: Arc<dyn ClientFiles>) -> Self {
        Self { client: Some(client), ..self }
    }

    /// The same, with the client that `other` has.
    #[must_use]
    pub fn with_client_of(self, other: &Self) -> Self {
        Self { client: other.client.clone(), ..self }
    }

    /// Whoever is asked for the text of this file besides the disk.
    pub(crate) fn client_files(&self, path: &Path) -> Option<&dyn ClientFiles> {
        self.client.as_deref().filter(|_| path.starts_with(&self.cwd))
    }

    /// The folder that relative paths start from.
    #[must_use]
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The folders that may be written.
    #[must_use]
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Lets a folder be read from now on; it is a real path.
    pub(crate) fn let_read(&self, folder: &Path) {
        let mut roots = self.read_roots.write().unwrap_or_else(PoisonError::into_inner);
        // One per skill at most.
        if !roots.iter().any(|root| folder.starts_with(root)) {
            roots.push(folder.to_owned());
        }
    }

    /// Which ignore files count where a call does not say.
    #[must_use]
    pub fn filtering(&self) -> FileFiltering {
        self.filtering
    }

    /// Why ignore files leave the path out, if they do. Files outside of the roots, such as kept output, have none.
    pub(crate) fn ignored(&self, path: &Path, filtering: FileFiltering) -> Option<&'static str> {
        let root = self.roots.iter().filter(|root| path.starts_with(root)).max_by_key(|root| root.as_os_str().len())?;
        filtering.reason(root, path)
    }

    /// Resolves a path that a model wrote: absolute or relative, with or without a leading `@` or `~`.
    pub fn resolve(&self, raw: &str, access: Access) -> Result<ResolvedPath, PathError> {
        let wanted = self.absolute(raw)?;
        let real = real_path(&wanted).map_err(|source| PathError::Unreadable { path: raw.to_owned(), source })?;
        if !self.contains(&real, access) {
            let roots = self.roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
            return Err(PathError::Outside { path: raw.to_owned(), roots });
        }
        // Both names count: the file may be a link, or what a link leads to.
        let is_kept = |path: &Path| path.file_name().is_some_and(|name| self.kept.iter().any(|kept| *name == **kept));
        if access == Access::Write && (is_kept(&real) || is_kept(&wanted)) {
            return Err(PathError::Kept(raw.to_owned()));
        }
        Ok(ResolvedPath { path: real })
    }

    /// A path for people: relative to the working folder where it lies inside.
    #[must_use]
    pub fn shorten(&self, path: &Path) -> String {
        match path.strip_prefix(&self.cwd) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => rest.display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }

    fn contains(&self, real: &Path, access: Access) -> bool {
        let lies_in = |root: &PathBuf| real.starts_with(root);
        let opened = || self.read_roots.read().unwrap_or_else(PoisonError::into_inner).iter().any(lies_in);
        let planned = || self.plans.as_ref().is_some_and(|plans| real.starts_with(plans.path()));
        self.roots.iter().any(lies_in) || planned() || (access == Access::Read && opened())
    }

    fn absolute(&self, raw: &str) -> Result<PathBuf, PathError> {
        let text = raw.trim();
        if text.is_empty() || text.contains('\0') {
            return Err(PathError::NotAPath(raw.to_owned()));
        }
        // A leading `@` is how people mention files; a file that is really named so wins.
        let text = match text.strip_prefix('@') {
            Some(rest) if !rest.is_empty() && fs::symlink_metadata(self.cwd.join(text)).is_err() => rest,
            Some(_) | None => text,
        };
        let path = match (text.strip_prefix('~'), &self.home) {
            (Some(""), Some(home)) => home.clone(),
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            (Some(_), _) | (None, _) => PathBuf::from(text),
        };
        Ok(self.cwd.join(path))
    }
}

/// The real path behind `path`, which need not exist: each component is looked at in turn, links are followed as the
/// kernel would, and `..` goes up from where a link led to.
pub(crate) fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest: Vec<OsString> = components_reversed(path);
    let mut links = 0;
    let mut exists = true;
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            // What is above something that does not exist may exist again.
            exists = exists || fs::symlink_metadata(&real).is_ok();
            continue;
        }
        let next = real.join(&name);
        let link = if exists { link_target(&next, &mut exists)? } else { None };
        match link {
            None => real = next,
            Some(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::from(io::ErrorKind::InvalidInput));
                }
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(components_reversed(&target));
            }
        }
    }
    Ok(real)
}

fn link_target(path: &Path, exists: &mut bool) -> io::Result<Option<PathBuf>> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => fs::read_link(path).map(Some),
        Ok(_) => Ok(None),
        // A component below a plain file can't exist either; opening it will say so.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            *exists = false;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn components_reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// A real path inside the workspace; no component was a link when it was resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedPath {
    path: PathBuf,
}

impl ResolvedPath {
    /// A path that has been resolved already.
    pub(crate) fn of_real(path: PathBuf) -> Self {
        Self { path }
    }

    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// Opens it for reading without following any link, and without waiting for whoever writes to a pipe.
    pub fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat2(CWD, &self.path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let fd = match opened {
            // Not there (kernels before 5.6) or not let through (some container filters).
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                rustix::fs::open(&self.path, flags, Mode::empty())?
            }
            other => other?,
        };
        Ok(File::from(fd))
    }

    /// Whether it still resolves to itself: to be asked right before writing.
    pub(crate) fn is_unmoved(&self) -> io::Result<bool> {
        Ok(real_path(&self.path)? == self.path)
    }
}
