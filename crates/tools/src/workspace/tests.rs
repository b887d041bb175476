//! Escapes, and paths that only look like one.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["work/sub", "home", "outside/deep", "read"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in ["work/a.txt", "work/sub/b.txt", "outside/secret", "read/r.txt", "home/h.txt"] {
            fs::write(dir.path().join(file), file).unwrap();
        }
        Self { dir }
    }

    fn path(&self, relative: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(relative)
    }

    fn workspace(&self) -> Workspace {
        Workspace::new(WorkspaceOptions {
            cwd: self.path("work"),
            more_roots: vec![self.path("home")],
            read_roots: vec![self.path("read"), self.path("missing")],
            home: Some(self.path("home")),
            kept: vec!["KEPT.md".to_owned()],
            ..WorkspaceOptions::default()
        })
        .unwrap()
    }

    fn resolve(&self, raw: &str, access: Access) -> Option<PathBuf> {
        match self.workspace().resolve(raw, access) {
            Ok(resolved) => Some(resolved.as_path().to_path_buf()),
            Err(PathError::Outside { .. }) => None,
            Err(other) => panic!("{raw}: {other}"),
        }
    }
}

#[test]
fn files_that_are_kept_are_read_and_not_written() {
    let tree = Tree::new();
    fs::write(tree.path("work/sub/KEPT.md"), "").unwrap();
    symlink("sub/KEPT.md", tree.path("work/alias")).unwrap();
    symlink("a.txt", tree.path("work/KEPT.md")).unwrap();
    for raw in ["sub/KEPT.md", "alias", "KEPT.md", "../home/KEPT.md"] {
        assert!(tree.resolve(raw, Access::Read).is_some(), "{raw}");
        assert!(matches!(tree.workspace().resolve(raw, Access::Write), Err(PathError::Kept(_))), "{raw}");
    }
    assert!(tree.resolve("sub/kept.txt", Access::Write).is_some());
}

#[test]
fn spellings_of_paths() {
    let tree = Tree::new();
    symlink(tree.path("work/sub"), tree.path("work/inner")).unwrap();
    symlink("../home", tree.path("work/to-home")).unwrap();
    fs::write(tree.path("work/@odd"), "").unwrap();
    for (raw, expected) in [
        ("a.txt", "work/a.txt"),
        ("./sub/../a.txt", "work/a.txt"),
        (" a.txt ", "work/a.txt"),
        ("@a.txt", "work/a.txt"),
        ("@odd", "work/@odd"),
        ("@new/file", "work/new/file"),
        ("~/h.txt", "home/h.txt"),
        ("~", "home"),
        ("~//h.txt", "home/h.txt"),
        ("~other", "work/~other"),
        ("inner/b.txt", "work/sub/b.txt"),
        ("inner/../a.txt", "work/a.txt"),
        ("to-home/new", "home/new"),
        ("new/deep/file", "work/new/deep/file"),
        ("new/../other", "work/other"),
        (".", "work"),
    ] {
        assert_eq!(tree.resolve(raw, Access::Write), Some(tree.path(expected)), "{raw}");
    }
    let absolute = tree.path("work/a.txt").display().to_string();
    assert_eq!(tree.resolve(&absolute, Access::Read), Some(tree.path("work/a.txt")));
    for raw in ["", "  ", "a\0b"] {
        assert!(matches!(tree.workspace().resolve(raw, Access::Read), Err(PathError::NotAPath(_))), "{raw:?}");
    }
}

#[test]
fn nothing_leads_outside() {
    let tree = Tree::new();
    symlink(tree.path("outside"), tree.path("work/link")).unwrap();
    symlink("../outside/secret", tree.path("work/file-link")).unwrap();
    symlink("../outside/not-yet", tree.path("work/dangling")).unwrap();
    symlink("link", tree.path("work/link-to-link")).unwrap();
    for raw in [
        "../outside/secret",
        "/etc/passwd",
        "/",
        "..",
        "sub/../../outside/secret",
        "link/secret",
        "link/new-file",
        "link/new/deep/file",
        "link/../outside/secret",
        "link-to-link/secret",
        "file-link",
        "dangling",
        "dangling/below",
        "new/../../outside/secret",
        "@../outside/secret",
        "~/../outside/secret",
    ] {
        for access in [Access::Read, Access::Write] {
            assert_eq!(tree.resolve(raw, access), None, "{raw}");
        }
    }
    // A sibling whose name begins like a root is no root.
    fs::create_dir(tree.path("workshop")).unwrap();
    assert_eq!(tree.resolve("../workshop/x", Access::Read), None);
    let error = ToolFailure::from(tree.workspace().resolve("/etc/passwd", Access::Read).unwrap_err());
    assert_eq!(error.error_type(), Some(ErrorType::PathNotInWorkspace));
    assert!(error.message().contains("/etc/passwd") && error.message().contains("/work"), "{error}");
}

#[test]
fn a_loop_of_links_is_an_error() {
    let tree = Tree::new();
    symlink("loop-b", tree.path("work/loop-a")).unwrap();
    symlink("loop-a", tree.path("work/loop-b")).unwrap();
    assert!(matches!(tree.workspace().resolve("loop-a/x", Access::Read), Err(PathError::Unreadable { .. })));
}

#[test]
fn extra_roots_may_be_read_only() {
    let tree = Tree::new();
    assert_eq!(tree.resolve("../read/r.txt", Access::Read), Some(tree.path("read/r.txt")));
    assert_eq!(tree.resolve("../read/r.txt", Access::Write), None);
}

#[test]
fn a_root_that_is_a_link_is_resolved_once() {
    let tree = Tree::new();
    symlink(tree.path("work"), tree.path("alias")).unwrap();
    let options = WorkspaceOptions { cwd: tree.path("alias"), ..WorkspaceOptions::default() };
    let workspace = Workspace::new(options).unwrap();
    assert_eq!(workspace.resolve("a.txt", Access::Read).unwrap().as_path(), tree.path("work/a.txt"));
    let through_link = tree.path("alias/a.txt").display().to_string();
    assert_eq!(workspace.resolve(&through_link, Access::Read).unwrap().as_path(), tree.path("work/a.txt"));
    let missing = WorkspaceOptions { cwd: tree.path("missing"), ..WorkspaceOptions::default() };
    assert!(Workspace::new(missing).is_err());
}

#[test]
fn what_was_swapped_meanwhile_is_not_opened() {
    let tree = Tree::new();
    let file = tree.workspace().resolve("a.txt", Access::Read).unwrap();
    let below = tree.workspace().resolve("sub/b.txt", Access::Read).unwrap();
    let mut text = String::new();
    file.open().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "work/a.txt");
    assert!(below.is_unmoved().unwrap());

    fs::remove_file(tree.path("work/a.txt")).unwrap();
    symlink(tree.path("outside/secret"), tree.path("work/a.txt")).unwrap();
    assert!(file.open().is_err());
    assert!(!file.is_unmoved().unwrap());

    fs::rename(tree.path("work/sub"), tree.path("work/moved")).unwrap();
    symlink(tree.path("outside"), tree.path("work/sub")).unwrap();
    fs::write(tree.path("outside/b.txt"), "secret").unwrap();
    assert!(!below.is_unmoved().unwrap());
    if kernel_has_openat2() {
        assert!(below.open().is_err(), "a folder on the way was swapped");
    }
}

fn kernel_has_openat2() -> bool {
    rustix::fs::openat2(CWD, "/", OFlags::RDONLY, Mode::empty(), ResolveFlags::empty()).is_ok()
}

#[test]
fn opening_a_pipe_does_not_wait() {
    let tree = Tree::new();
    rustix::fs::mknodat(CWD, tree.path("work/pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    let pipe = tree.workspace().resolve("pipe", Access::Read).unwrap();
    assert!(!pipe.open().unwrap().metadata().unwrap().is_file());
}

#[test]
fn paths_are_short_for_people() {
    let tree = Tree::new();
    let workspace = tree.workspace();
    assert_eq!(workspace.shorten(&tree.path("work/sub/b.txt")), "sub/b.txt");
    assert_eq!(workspace.shorten(&tree.path("work")), ".");
    assert_eq!(workspace.shorten(Path::new("/x")), "/x");
}

proptest! {
    /// Whatever the path, an answer lies inside a root, and agrees with the kernel where the file exists.
    #[test]
    fn answers_lie_inside(parts in proptest::collection::vec(
        prop_oneof!["\\.\\.", "\\.", "sub", "link", "inner", "up", "a.txt", "b.txt", "secret", "new", "@", "~"], 0..8),
        absolute in any::<bool>(),
    ) {
        let tree = Tree::new();
        symlink(tree.path("outside"), tree.path("work/link")).unwrap();
        symlink("sub", tree.path("work/inner")).unwrap();
        symlink("..", tree.path("work/sub/up")).unwrap();
        let mut raw = parts.join("/");
        if absolute {
            raw = tree.path("work").join(&raw).display().to_string();
        }
        let workspace = tree.workspace();
        if let Ok(resolved) = workspace.resolve(&raw, Access::Write) {
            prop_assert!(resolved.as_path().starts_with(tree.path("work")) || resolved.as_path().starts_with(tree.path("home")));
            prop_assert!(resolved.is_unmoved().unwrap());
            if let Ok(real) = fs::canonicalize(resolved.as_path()) {
                prop_assert_eq!(&real, resolved.as_path());
            }
            if !raw.starts_with(['@', '~']) && !raw.is_empty()
                && let Ok(real) = fs::canonicalize(tree.path("work").join(&raw))
            {
                prop_assert_eq!(&real, resolved.as_path(), "{}", raw);
            }
        }
    }
}
