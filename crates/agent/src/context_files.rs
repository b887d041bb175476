//! Context files: what a person wrote down for the agent, from the home folders and up the tree.
//!
//! Source: runtime specification §18.2. Nearer files come later, so that they have the last word.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct ContextFileOptions {
    /// File names, the first found in a folder first; each folder may have several.
    pub names: Vec<String>,
    /// Files that hold for every workspace, whatever their names; before all others.
    pub files: Vec<PathBuf>,
    /// Folders whose files hold for every workspace, such as `~/.convoke`.
    pub global_folders: Vec<PathBuf>,
}

/// A context file's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, cut at 256 KiB with a note.
    pub text: String,
}

/// Most bytes read of one file: beyond this it crowds out the work, and nobody wrote it by hand.
const FILE_MAX: u64 = 256 * 1024;
/// Most files, over all folders: a tree deeper than this has a loop in it.
const FILES_MAX: usize = 64;

/// The context files for `cwd`: global ones, then from the repository's root (the nearest folder up with a `.git`)
/// down to `cwd`. Without a repository only `cwd` itself. A file that can't be read is reported, not fatal.
pub fn find_context_files(cwd: &Path, options: &ContextFileOptions) -> (Vec<ContextFile>, Vec<(PathBuf, io::Error)>) {
    let root = cwd.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(cwd);
    let mut folders: Vec<&Path> = cwd.ancestors().take_while(|folder| folder.starts_with(root)).collect();
    folders.reverse();
    let folders = options.global_folders.iter().map(PathBuf::as_path).chain(folders);
    let mut seen = HashSet::new();
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    let named = folders.flat_map(|folder| options.names.iter().map(move |name| folder.join(name)));
    for path in options.files.iter().cloned().chain(named) {
        // A link (`GEMINI.md` → `AGENTS.md`) is one file, not two.
        let Ok(real) = path.canonicalize() else { continue };
        if files.len() == FILES_MAX || !real.is_file() || !seen.insert(real) {
            continue;
        }
        match read(&path) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => files.push(ContextFile { path, text }),
            Err(error) => errors.push((path, error)),
        }
    }
    (files, errors)
}

pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    let cut = bytes.len() as u64 > FILE_MAX;
    bytes.truncate(usize::try_from(FILE_MAX).unwrap_or(usize::MAX));
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if cut {
        text.push_str("\n[cut: the file is larger than 256 KiB]\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(found: &[ContextFile], under: &Path) -> Vec<String> {
        found.iter().map(|f| f.path.strip_prefix(under).unwrap().display().to_string()).collect()
    }

    #[test]
    fn from_home_and_repository_root_down_to_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("home/.convoke")).unwrap();
        fs::create_dir_all(at("repo/.git")).unwrap();
        fs::create_dir_all(at("repo/a/b")).unwrap();
        fs::write(at("AGENTS.md"), "outside of the repository").unwrap();
        for path in ["home/.convoke/CONVOKE.md", "repo/AGENTS.md", "repo/a/b/CONVOKE.md"] {
            fs::write(at(path), path).unwrap();
        }
        fs::write(at("repo/a/AGENTS.md"), "  \n").unwrap();
        std::os::unix::fs::symlink(at("repo/AGENTS.md"), at("repo/GEMINI.md")).unwrap();
        let options = ContextFileOptions {
            files: Vec::new(),
            names: ["CONVOKE.md", "AGENTS.md", "GEMINI.md"].map(Into::into).to_vec(),
            global_folders: vec![at("home/.convoke")],
        };
        let (found, errors) = find_context_files(&at("repo/a/b"), &options);
        assert_eq!(names(&found, dir.path()), ["home/.convoke/CONVOKE.md", "repo/AGENTS.md", "repo/a/b/CONVOKE.md"]);
        assert!(errors.is_empty());
    }

    #[test]
    fn a_huge_file_is_cut_and_bad_bytes_survive() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = vec![0xff];
        bytes.resize(300 * 1024, b'x');
        fs::write(dir.path().join("AGENTS.md"), bytes).unwrap();
        let options = ContextFileOptions { names: vec!["AGENTS.md".into()], ..ContextFileOptions::default() };
        let (found, _) = find_context_files(dir.path(), &options);
        assert!(found[0].text.starts_with('\u{fffd}'));
        assert!(found[0].text.ends_with("[cut: the file is larger than 256 KiB]\n"));
    }
}
