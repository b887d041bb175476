//! `--worktree`: how does a run get a copy of the repository to itself?
//!
//! `NAME` is a Git worktree at `.convoke/worktrees/NAME` of the repository's main checkout, on the branch
//! `worktree-NAME`; one that is there already is gone on with. It stays when the run is over, with whatever was done in it.
//! Source: Gemini CLI's `--worktree`, documented under "Git worktrees".

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use convoke_protocol::ExitCode;

use crate::failure::{Exit, complain};

/// Below the main checkout.
const FOLDER: &str = ".convoke/worktrees";
/// Longer names make paths that tools stumble over.
const NAME_MAX: usize = 100;
/// Variables that say which repository Git works in: a hook that starts us has them.
const ELSEWHERE: [&str; 5] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"];

#[derive(Debug, thiserror::Error)]
enum WorktreeError {
    #[error(
        "name a worktree \"{0}\": letters, digits, '.', '_' and '-', up to {NAME_MAX}, with a letter or digit first"
    )]
    Name(String),
    #[error("run git: {0}")]
    NoGit(#[source] io::Error),
    #[error("find the repository: {0}")]
    NoRepository(String),
    #[error("make the worktree {}: {why}", path.display())]
    Refused { path: PathBuf, why: String },
    #[error("make {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// The folder to work in: a worktree of the repository that `here` is in. Without a name it gets one of its own.
pub(crate) fn enter(here: &Path, name: &str) -> Result<PathBuf, Exit> {
    let name = match name {
        "" => uuid::Uuid::new_v4().simple().to_string().split_off(24),
        name => name.to_owned(),
    };
    let path = find_or_make(here, &name).map_err(|error| Exit::because(ExitCode::Input, error))?;
    complain(&format!("works in {}, on the branch worktree-{name}; it stays afterwards", path.display()));
    Ok(path)
}

fn find_or_make(here: &Path, name: &str) -> Result<PathBuf, WorktreeError> {
    let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    let fits = name.len() <= NAME_MAX && !name.contains("..") && !name.ends_with('.') && !name.ends_with(".lock");
    if !starts || !fits || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return Err(WorktreeError::Name(name.to_owned()));
    }
    let root = main_checkout(here)?;
    let folder = root.join(FOLDER);
    let path = folder.join(name);
    // Whatever else is there is left to Git to refuse.
    if path.join(".git").is_file() {
        return Ok(path);
    }
    let failed = |source| WorktreeError::Folder { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(failed)?;
    // The main checkout has no business with them.
    let ignore = folder.join(".gitignore");
    if !ignore.exists() {
        fs::write(&ignore, "*\n").map_err(failed)?;
    }
    let branch = format!("worktree-{name}");
    let known = git(&root, ["rev-parse", "--verify", "--quiet", &format!("refs/heads/{branch}")])?.is_ok();
    let add = [OsStr::new("worktree"), OsStr::new("add"), path.as_os_str()];
    // The branch outlives a worktree that was removed.
    let rest = if known { vec![OsStr::new(&branch)] } else { vec![OsStr::new("-b"), OsStr::new(&branch)] };
    match git(&root, add.into_iter().chain(rest))? {
        Ok(_) => Ok(path),
        Err(why) => Err(WorktreeError::Refused { path, why }),
    }
}

/// Where the repository's worktrees are kept: its first checkout, wherever in it or in its worktrees `here` is.
fn main_checkout(here: &Path) -> Result<PathBuf, WorktreeError> {
    let common = git(here, ["rev-parse", "--path-format=absolute", "--git-common-dir"])?;
    let common = PathBuf::from(common.map_err(WorktreeError::NoRepository)?);
    match common.parent() {
        Some(root) if common.ends_with(".git") => Ok(root.to_owned()),
        // A submodule's repository is elsewhere.
        _ => match git(here, ["rev-parse", "--show-toplevel"])? {
            Ok(root) => Ok(PathBuf::from(root)),
            Err(why) => Err(WorktreeError::NoRepository(why)),
        },
    }
}

/// What Git prints, or what it complains of.
fn git<S: AsRef<OsStr>>(
    folder: &Path,
    args: impl IntoIterator<Item = S>,
) -> Result<Result<String, String>, WorktreeError> {
    let mut command = Command::new("git");
    // A repository's own programs don't run because of us: the folder need not be trusted.
    command.arg("-C").arg(folder).args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]);
    command.args(args).stdin(Stdio::null());
    for variable in ELSEWHERE {
        command.env_remove(variable);
    }
    let ended = command.output().map_err(WorktreeError::NoGit)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if ended.status.success() { Ok(text(&ended.stdout)) } else { Err(text(&ended.stderr)) })
}
