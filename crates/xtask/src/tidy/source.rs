//! One Rust file, split into what the compiler reads, what people read, and what only tests run.
//!
//! This is a lexer, not a parser: it knows comments, strings and brackets, and that is enough for the rules built on
//! it. It expands `use` trees, so a name can't hide behind braces.

mod lexer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;

pub(crate) use lexer::Token;

/// A Rust source file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the repository's root, with `/`.
    pub(crate) path: String,
    /// The room it belongs to: the folder under `crates`, or `bench`.
    pub(crate) room: String,
    pub(crate) text: String,
    /// The comments alone, line for line.
    pub(crate) comments: Vec<String>,
    tokens: Vec<Token>,
    /// The lines of `#[cfg(test)]` items, or all of them.
    test_lines: TestLines,
}

#[derive(Debug)]
enum TestLines {
    All,
    Some(BTreeSet<usize>),
}

/// A name as the code spells it, `use` trees expanded: `std::time::Instant::now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Line, from 1.
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

impl Name {
    /// Whether the name starts with `path`, or has `path` as a segment if that is a single word.
    pub(crate) fn mentions(&self, path: &str) -> bool {
        match path.split_once("::") {
            None => self.segments.iter().any(|segment| segment == path),
            Some(_) => {
                let wanted: Vec<_> = path.split("::").collect();
                self.segments.windows(wanted.len()).any(|window| window == wanted)
            }
        }
    }
}

impl Source {
    /// Splits `text`, which stands in `path` (from the repository's root).
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (tokens, comments) = lexer::lex(text);
        let mut folders = path.strip_prefix("crates/").unwrap_or(path).split('/');
        let room = folders.next().unwrap_or_default().to_owned();
        let test_lines = if folders.next().is_some_and(|folder| matches!(folder, "tests" | "benches")) {
            TestLines::All
        } else {
            TestLines::Some(lexer::test_items(&tokens).iter().flat_map(|item| item.first..=item.last).collect())
        };
        Self { path: path.to_owned(), room, text: text.to_owned(), comments, tokens, test_lines }
    }

    /// Whether `line` (from 1) is compiled for tests only.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        match &self.test_lines {
            TestLines::All => true,
            TestLines::Some(lines) => lines.contains(&line),
        }
    }

    /// The module doc: the leading `//!` lines without their marks.
    pub(crate) fn module_doc(&self) -> String {
        let doc = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        doc.map(str::trim).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// All names of the file, tests included.
    pub(crate) fn names(&self) -> Vec<Name> {
        lexer::names(&self.tokens)
    }

    /// The files that `#[cfg(test)] mod x;` declares here: path stems such as `crates/a/src/foo/x`.
    fn test_modules(&self) -> Vec<String> {
        let stem = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let folder = match stem.rsplit_once('/') {
            Some((folder, "lib" | "main" | "mod")) => folder,
            _ => stem,
        };
        let items = lexer::test_items(&self.tokens);
        items.into_iter().filter_map(|item| Some(format!("{folder}/{}", item.module?))).collect()
    }
}

/// Where sources are: the rooms, and what measures the finished binary.
const FOLDERS: [&str; 2] = ["crates", "bench"];

/// All sources, in order of their paths.
pub(crate) fn read_all(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        walk(&root.join(folder), &mut |path| {
            if path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path);
            }
        })?;
    }
    paths.sort();
    let mut sources = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))?;
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        sources.push(Source::new(&name, &text));
    }
    Ok(with_test_modules(sources))
}

/// Marks the files that are test modules of other files.
pub(crate) fn with_test_modules(mut sources: Vec<Source>) -> Vec<Source> {
    let stems: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in &mut sources {
        let is_below = |stem: &String| {
            source.path.strip_prefix(stem.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if stems.iter().any(is_below) {
            source.test_lines = TestLines::All;
        }
    }
    sources
}

/// Calls `visit` with every file below `folder`, except what is built, fetched, or hidden.
pub(crate) fn walk(folder: &Path, visit: &mut impl FnMut(PathBuf)) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("failed to list {folder:?}"))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let kind = entry.file_type()?;
        if kind.is_dir() && !matches!(&*name, "target" | "node_modules" | "vendor") && !name.starts_with('.') {
            walk(&entry.path(), visit)?;
        } else if kind.is_file() {
            visit(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_code_is_told_apart() {
        let source = Source::new(
            "crates/a/src/lib.rs",
            "fn real() { \"}\"; }\n#[cfg(test)]\nmod tests {\n    fn t() { '}'; }\n}\nfn also_real() {}\n",
        );
        let real: Vec<usize> = (1..=6).filter(|line| !source.is_test(*line)).collect();
        assert_eq!(real, [1, 6]);
        assert!(Source::new("crates/a/tests/it.rs", "fn f() {}").is_test(1));
    }

    #[test]
    fn test_modules_in_files_of_their_own_are_told_apart() {
        let sources = with_test_modules(vec![
            Source::new("crates/a/src/foo.rs", "#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod kit;\nmod bar;"),
            Source::new("crates/a/src/foo/tests.rs", "fn t() {}"),
            Source::new("crates/a/src/foo/kit/deep.rs", "fn t() {}"),
            Source::new("crates/a/src/foo/bar.rs", "fn b() {}"),
            Source::new("crates/a/src/tests.rs", "fn b() {}"),
        ]);
        let tests: Vec<bool> = sources.iter().map(|source| source.is_test(1)).collect();
        // `foo.rs` itself counts its first line as part of the test item.
        assert_eq!(tests, [true, true, true, false, false]);
    }

    #[test]
    fn the_module_doc_is_its_leading_lines() {
        let source = Source::new("crates/a/src/a.rs", "//! Sans-IO: one.\n//! Two.\n\n//! Not this.\n");
        assert_eq!(source.module_doc(), "Sans-IO: one.\nTwo.");
    }

    #[test]
    fn a_name_mentions_words_and_paths() {
        let name = Name { line: 1, segments: ["std", "time", "Instant", "now"].map(str::to_owned).to_vec() };
        assert!(name.mentions("Instant") && name.mentions("std::time") && name.mentions("time::Instant"));
        assert!(!name.mentions("Inst") && !name.mentions("std::Instant"));
    }
}
