//! One path at a time, and the same answers as a walk gives.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::builtin::visible_files;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (dir, root)
}

fn reason(root: &Path, name: &str) -> Option<&'static str> {
    FileFiltering::default().reason(root, &root.join(name))
}

#[test]
fn each_kind_of_file_counts_and_ours_lies_over() {
    let (_dir, root) = tree(&[
        (".gitignore", "*.log\nout/\n"),
        (".geminiignore", "secret*\n!keep.log\n"),
        (".convokeignore", "!secret-but-fine\nprivate/\n"),
        ("sub/.gitignore", "!wanted.log\n"),
        ("out/.gitignore", "!x\n"),
        ("private/p", ""),
    ]);
    for (name, expected) in [
        ("a.rs", None),
        ("a.log", Some(".gitignore")),
        ("sub/a.log", Some(".gitignore")),
        ("sub/wanted.log", None),
        ("out/x", Some(".gitignore")),
        ("keep.log", None),
        ("secret", Some(".geminiignore or .convokeignore")),
        ("secret-but-fine", None),
        ("private/p", Some(".geminiignore or .convokeignore")),
        ("deep/secret.txt", Some(".geminiignore or .convokeignore")),
    ] {
        assert_eq!(reason(&root, name), expected, "{name}");
    }
    let only_own = FileFiltering { git: false, own: true };
    assert_eq!(only_own.reason(&root, &root.join("a.log")), None);
    let only_git = FileFiltering { git: true, own: false };
    assert_eq!(only_git.reason(&root, &root.join("secret")), None);
    assert_eq!(FileFiltering::default().reason(&root, Path::new("/elsewhere/a.log")), None);
}

#[test]
fn a_workspace_below_a_repository_obeys_the_repository() {
    let (_dir, root) = tree(&[(".git/info/exclude", "local\n"), (".gitignore", "*.tmp\n"), ("pkg/x", "")]);
    let pkg = root.join("pkg");
    assert_eq!(reason(&pkg, "a.tmp"), Some(".gitignore"));
    assert_eq!(reason(&pkg, "local"), Some(".gitignore"));
    assert_eq!(reason(&pkg, "x"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A file is seen by a walk exactly if it is let through alone.
    #[test]
    fn agrees_with_a_walk(
        rules in proptest::collection::vec((0..6_usize, "(!?/?[ab*]{1,2}/?\n){0,3}"), 0..5),
    ) {
        let places = [".gitignore", ".geminiignore", ".convokeignore", "a/.gitignore", "a/.convokeignore", "a/b/.ignore"];
        let names = ["a/b/a", "a/b/ab", "a/a", "b/a", "b/b/b", "ab", "c"];
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
        files.extend(rules.iter().map(|(place, text)| (places[*place], text.as_str())));
        let (_dir, root) = tree(&files);
        let walked = visible_files(&root, FileFiltering::default());
        for name in names {
            let path = root.join(name);
            prop_assert_eq!(walked.contains(&path), reason(&root, name).is_none(), "{} {:?}", name, rules);
        }
    }
}
