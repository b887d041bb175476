//! Do the documents still speak of this house?

use std::path::Path;

use anyhow::Context;

use super::graph::Room;
use super::{Finding, source};

const RULE: &str = "document";
const PLAN: &str = "ARCHITECTURE.md";

/// A Markdown file.
#[derive(Debug)]
pub(crate) struct Document {
    /// Path from the repository's root.
    path: String,
    text: String,
}

/// All Markdown files of the repository.
pub(crate) fn read_all(root: &Path) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    let mut paths = Vec::new();
    source::walk(root, &mut |path| {
        if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    })?;
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))?;
        documents.push(Document { path: path.strip_prefix(root).unwrap_or(&path).display().to_string(), text });
    }
    Ok(documents)
}

/// Every room has its paragraph in the floor plan, and the plan names no room that is not there.
///
/// A room's paragraph is a line that starts with its name in bold code: ``**`bridge`**``.
pub(crate) fn check_rooms(documents: &[Document], rooms: &[&Room]) -> Vec<Finding> {
    let Some(plan) = documents.iter().find(|document| document.path == PLAN) else {
        return vec![Finding::new(PLAN, 1, RULE, "there is no floor plan")];
    };
    let described: Vec<(usize, &str)> = plan.text.lines().enumerate().filter_map(described_room).collect();
    let missing = rooms
        .iter()
        .filter(|room| !described.iter().any(|(_, name)| *name == room.name))
        .map(|room| Finding::new(PLAN, 1, RULE, format!("room `{}` has no paragraph", room.name)));
    let ghosts = described
        .iter()
        .filter(|(_, name)| !rooms.iter().any(|room| room.name == *name))
        .map(|(line, name)| Finding::new(PLAN, *line, RULE, format!("there is no room `{name}`")));
    missing.chain(ghosts).collect()
}

fn described_room((index, line): (usize, &str)) -> Option<(usize, &str)> {
    Some((index + 1, line.strip_prefix("**`")?.split_once("`**")?.0))
}

/// Documents that describe the house as it is; what the others tell may be history.
const LIVING: &[&str] = &[PLAN, "AGENTS.md", "CONTRIBUTING.md"];

/// Every `` `room::module` `` of a living document is there.
pub(crate) fn check_modules(root: &Path, documents: &[Document], rooms: &[&Room]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents.iter().filter(|document| LIVING.contains(&document.path.as_str())) {
        for (line, code) in inline_code(&document.text) {
            let mut path = code.split("::");
            let (Some(room), Some(module)) = (path.next(), path.next()) else { continue };
            if room.starts_with(|c: char| !c.is_lowercase()) {
                continue;
            }
            let folder = root.join("crates").join(room).join("src");
            let is_module = module.starts_with(char::is_lowercase);
            let there = rooms.iter().any(|known| known.name == room)
                && (!is_module || folder.join(module).with_extension("rs").exists());
            if !there {
                findings.push(Finding::new(&document.path, line, RULE, format!("there is no `{room}::{module}`")));
            }
        }
    }
    findings
}

/// The page whose tables name, in their last column, the tests that show what they say.
const THREATS: &str = "docs/security.md";

/// Every test that the table of threats names is there, and every threat has one.
pub(crate) fn check_tests(documents: &[Document], sources: &[source::Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents.iter().filter(|document| document.path == THREATS) {
        for (line, text) in prose(&document.text).filter(|(_, text)| text.starts_with("| ")) {
            let last = text.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
            if last.trim() == "Tests" {
                continue;
            }
            let tests: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
            if tests.is_empty() {
                findings.push(Finding::new(THREATS, line, RULE, "no test shows this"));
            }
            for test in tests {
                let declared = format!("fn {test}()");
                if !sources.iter().any(|source| source.text.contains(&declared)) {
                    findings.push(Finding::new(THREATS, line, RULE, format!("there is no test `{test}`")));
                }
            }
        }
    }
    findings
}

/// The pieces between backquotes, outside of fenced code, with their lines.
fn inline_code(text: &str) -> Vec<(usize, &str)> {
    prose(text).flat_map(|(line, text)| text.split('`').skip(1).step_by(2).map(move |code| (line, code))).collect()
}

/// The lines outside of fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Every link to a file leads to a file.
pub(crate) fn check_links(root: &Path, documents: &[Document]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents {
        for (line, target) in links(&document.text) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let base = match path.strip_prefix('/') {
                Some(_) => root.to_path_buf(),
                None => root.join(&document.path).parent().map(Path::to_path_buf).unwrap_or_default(),
            };
            if !base.join(path.trim_start_matches('/')).exists() {
                findings.push(Finding::new(
                    &document.path,
                    line,
                    RULE,
                    format!("link to `{path}`, which is not there"),
                ));
            }
        }
    }
    findings
}

/// The targets of inline links `[text](target)` outside code, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        // Pieces at odd positions stand between backquotes. A link's text may be code, its target is not.
        let ends = line
            .split('`')
            .step_by(2)
            .flat_map(|prose| prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()));
        links.extend(ends.map(|target| (number, target)));
    }
    links
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, room};
    use super::*;

    fn document(path: &str, text: &str) -> Document {
        Document { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn rooms_and_paragraphs_must_match() {
        let graph = graph(vec![room("bridge", ""), room("acp", "")], &[]);
        let check = |text: &str| {
            let findings = check_rooms(&[document(PLAN, text)], &graph.rooms());
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check("**`bridge`** decides.\n**`acp`** carries."), [""; 0]);
        assert_eq!(check("**`bridge`** decides."), ["ARCHITECTURE.md:1: [document] room `acp` has no paragraph"]);
        assert_eq!(
            check("**`bridge`** decides.\n**`acp`**\n**`attic`**"),
            ["ARCHITECTURE.md:3: [document] there is no room `attic`"]
        );
        assert_eq!(check_rooms(&[], &graph.rooms()).len(), 1);
    }

    #[test]
    fn modules_must_be_there() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("crates/acp/src")).unwrap();
        std::fs::write(root.path().join("crates/acp/src/client.rs"), "").unwrap();
        let graph = graph(vec![room("acp", "")], &[]);
        let check = |text: &str| check_modules(root.path(), &[document("AGENTS.md", text)], &graph.rooms()).len();
        assert_eq!(check("`acp::client`, `acp::client::child`, `acp::AgentChild`, `Runner::run`, `a: b`"), 0);
        assert_eq!(check("`acp::server`, `daemon::routes`, `daemon::Daemon`"), 3);
        assert_eq!(check("```\n`acp::server`\n```"), 0);
        assert_eq!(check_modules(root.path(), &[document("docs/adr/1.md", "`acp::old`")], &graph.rooms()).len(), 0);
    }

    #[test]
    fn tests_of_threats_must_be_there() {
        let sources = [source::Source::new("crates/a/tests/b.rs", "#[test]\nfn it_holds() {}")];
        let check = |text: &str| check_tests(&[document(THREATS, text)], &sources).len();
        assert_eq!(check("| Threat | Defence | Tests |\n|---|---|---|\n| a | `b` | `it_holds` |"), 0);
        assert_eq!(check("| a | b | `it_holds`, `it_does_not` |"), 1);
        assert_eq!(check("| a | `it_holds` | none |"), 1);
        assert_eq!(check_tests(&[document("README.md", "| a | b | none |")], &sources).len(), 0);
    }

    #[test]
    fn links_must_lead_somewhere() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("docs/a.md"), "").unwrap();
        let check = |path: &str, text: &str| check_links(root.path(), &[document(path, text)]).len();
        assert_eq!(check("README.md", "[a](docs/a.md#part) [b](https://x.example/y) [c](#here)"), 0);
        assert_eq!(check("docs/b.md", "[a](a.md) [`a`](/docs/a.md) [up](..)"), 0);
        assert_eq!(check("docs/b.md", "[a](docs/a.md)"), 1);
        assert_eq!(check("README.md", "one\n[`gone`](gone.md \"title\")"), 1);
        assert_eq!(check("README.md", "`[a](gone.md)`\n```\n[a](gone.md)\n```"), 0);
    }
}
