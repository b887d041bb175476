//! The house rules that neither rustc nor clippy checks: does the code still match its floor plan?
//!
//! Each check is a plain function from what was read (sources, dependency graph, documents) to [`Finding`]s, so its
//! test hands it a small fixture. Reading the disk happens here and in [`source`], [`graph`] and [`documents`] only.

mod documents;
mod edges;
mod graph;
mod libraries;
mod licences;
mod purity;
mod source;
mod sources;

use std::fmt;
use std::path::Path;

use anyhow::bail;

/// One broken rule, where it is broken, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path from the repository's root.
    file: String,
    /// Line, from 1.
    line: usize,
    rule: &'static str,
    message: String,
}

impl Finding {
    fn new(file: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: [{}] {}", self.file, self.line, self.rule, self.message)
    }
}

/// Runs all checks over the repository at `root` and prints every finding.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let graph = graph::Graph::read(root)?;
    let sources = source::read_all(root)?;
    let documents = documents::read_all(root)?;

    let mut findings = Vec::new();
    findings.extend(edges::check(&graph));
    findings.extend(libraries::check(&graph));
    findings.extend(libraries::check_table(&graph));
    findings.extend(libraries::check_use(&graph, &sources));
    findings.extend(licences::check(&graph));
    findings.extend(licences::check_deny_file(root)?);
    findings.extend(purity::check(&sources));
    findings.extend(sources::check(&sources));
    findings.extend(documents::check_rooms(&documents, &graph.rooms()));
    findings.extend(documents::check_modules(root, &documents, &graph.rooms()));
    findings.extend(documents::check_links(root, &documents));
    findings.extend(documents::check_tests(&documents, &sources));
    findings.sort();
    findings.dedup();

    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy found {} problem(s)", findings.len());
    }
    println!("tidy: {} sources, {} packages, {} documents", sources.len(), graph.packages.len(), documents.len());
    Ok(())
}
