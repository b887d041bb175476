//! Which outside library lives in which room?
//!
//! A library that shapes code has one room, so that swapping it is an afternoon. Every outside dependency stands in
//! the table, so that a new one is a decision that a reviewer sees.

use super::Finding;
use super::graph::{Graph, Kind, Room};
use super::source::Source;

const RULE: &str = "library";
const HERE: &str = "crates/xtask/src/tidy/libraries.rs";

/// An outside library and where it may be named.
struct Library {
    name: &'static str,
    rooms: &'static [&'static str],
}

const fn library(name: &'static str, rooms: &'static [&'static str]) -> Library {
    Library { name, rooms }
}

const EVERY: &[&str] = &["*"];
/// Rooms with a runtime; `bridge`, `protocol` and `stdx` have none.
const ASYNC: &[&str] = &["adk", "models", "tools", "mcp", "agent", "acp", "daemon", "cli", "testkit", "bench"];
/// No shipped code at all.
const TESTS: &[&str] = &[];

const TABLE: &[Library] = &[
    // Edges of the process, one room each.
    library("agent-client-protocol", &["acp"]),
    library("rmcp", &["mcp"]),
    library("sse-stream", &["mcp"]),
    library("http", &["mcp", "daemon"]),
    library("hyper", &["daemon", "cli", "mcp", "testkit", "bench"]),
    library("hyper-util", &["daemon", "cli", "mcp", "testkit", "bench"]),
    library("http-body-util", &["daemon", "cli", "testkit", "bench"]),
    library("tokio-tungstenite", &["acp", "daemon"]),
    library("rust-embed", &["daemon"]),
    library("prometheus-client", &["daemon"]),
    library("reqwest", &["models", "tools", "mcp", "agent"]),
    library("rustls", &["models", "tools", "mcp", "cli", "testkit"]),
    library("tokio-rustls", &["daemon"]),
    library("clap", &["cli"]),
    library("jsonc-parser", &["cli"]),
    library("serde-saphyr", &["agent"]),
    library("shlex", &["cli"]),
    library("anstream", &["cli"]),
    library("tracing-subscriber", &["cli"]),
    library("tracing-opentelemetry", &["cli"]),
    library("opentelemetry", &["cli"]),
    library("opentelemetry_sdk", &["cli"]),
    library("opentelemetry-otlp", &["cli"]),
    // What tools are made of.
    library("ignore", &["tools"]),
    library("grep-searcher", &["tools"]),
    library("grep-regex", &["tools"]),
    library("globset", &["tools"]),
    library("similar", &["tools"]),
    library("html2text", &["tools"]),
    library("encoding_rs", &["tools"]),
    library("regex", &["tools", "agent"]),
    library("fancy-regex", &["tools"]),
    library("tree-sitter", &["tools"]),
    library("tree-sitter-bash", &["tools"]),
    library("toml", &["tools", "agent"]),
    // The operating system, and time.
    library("rustix", &["stdx", "tools", "acp", "cli"]),
    library("signal-hook", &["stdx"]),
    library("landlock", &["stdx"]),
    library("seccompiler", &["stdx"]),
    library("libc", &["stdx"]),
    library("nix", &["bench"]),
    library("jiff", &["stdx"]),
    library("tempfile", &["stdx", "tools", "daemon", "cli", "testkit", "bench", "xtask"]),
    // Secrets and digests.
    library("keyring", &["cli"]),
    library("secrecy", &["models", "daemon", "cli"]),
    library("sha2", &["tools", "agent", "acp", "bridge", "daemon", "cli", "testkit"]),
    library("crc32fast", &["agent"]),
    library("subtle", &["daemon"]),
    library("getrandom", &["daemon"]),
    // The runtime.
    library("tokio", ASYNC),
    library("tokio-util", ASYNC),
    library("async-stream", ASYNC),
    library("async-trait", &["protocol", "adk", "models", "tools", "mcp", "agent", "acp", "daemon", "cli", "testkit"]),
    library("futures", &["protocol", "adk", "models", "tools", "mcp", "agent", "acp", "daemon", "cli", "testkit"]),
    library("tracing", ASYNC),
    // Data and errors: vocabulary, not architecture.
    library("serde", EVERY),
    library("serde_json", EVERY),
    library("bytes", EVERY),
    library("indexmap", EVERY),
    library("base64", EVERY),
    library("uuid", ASYNC),
    library("thiserror", EVERY),
    library("anyhow", &["cli", "bench", "xtask"]),
    // Tests only.
    library("jsonschema", TESTS),
    library("insta", TESTS),
    library("proptest", TESTS),
    library("pretty_assertions", TESTS),
];

/// Libraries with a room that tests of any room may name as well.
const FOR_TESTS: &[&str] =
    &["async-trait", "futures", "tempfile", "tokio", "tokio-rustls", "tokio-util", "tracing-subscriber"];

/// Declared for a feature it switches on, or used through a macro: never named in code.
const UNNAMED: &[(&str, &str, &str)] = &[];

fn is_for_any_test(library: &Library) -> bool {
    library.rooms.is_empty() || FOR_TESTS.contains(&library.name)
}

/// Every declared outside dependency against the table.
pub(crate) fn check(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in graph.rooms() {
        for dependency in room.dependencies.iter().filter(|dependency| dependency.room().is_none()) {
            let name = dependency.name.as_str();
            let message = match TABLE.iter().find(|library| library.name == name) {
                None => format!("`{name}` is in no line of the table of libraries"),
                Some(library) if may_use(library, room, dependency.kind) => continue,
                Some(library) if library.rooms.is_empty() => format!("`{name}` is for tests only"),
                Some(library) => {
                    format!("`{name}` does not live in `{}`, but in {}", room.name, library.rooms.join(", "))
                }
            };
            findings.push(Finding::new(&room.manifest, room.line_of(name), RULE, message));
        }
    }
    findings
}

/// Every line of the table has somebody who uses it: a library that left the house leaves the table.
pub(crate) fn check_table(graph: &Graph) -> Vec<Finding> {
    let rooms = graph.rooms();
    let declared = |name: &str| rooms.iter().any(|room| room.dependencies.iter().any(|other| other.name == name));
    let stale = TABLE.iter().filter(|library| !declared(library.name));
    stale.map(|library| Finding::new(HERE, 1, RULE, format!("nobody uses `{}` any more", library.name))).collect()
}

fn may_use(library: &Library, room: &Room, kind: Kind) -> bool {
    library.rooms == EVERY
        || library.rooms.contains(&room.name.as_str())
        || (kind == Kind::Dev && is_for_any_test(library))
}

/// Every declared dependency is named somewhere in its room: what is not used is not carried.
pub(crate) fn check_use(graph: &Graph, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in graph.rooms() {
        // The folder, not the name, says which sources are the room's.
        let folder = room.manifest.trim_end_matches("Cargo.toml");
        let own: Vec<_> = sources.iter().filter(|source| source.path.starts_with(folder)).collect();
        for dependency in &room.dependencies {
            let word = dependency.name.replace('-', "_");
            let excused = UNNAMED.iter().any(|(name, in_room, _)| *name == dependency.name && *in_room == room.name);
            let in_shipped_code = dependency.kind == Kind::Normal;
            let named = own.iter().any(|source| {
                let mut tokens = source.tokens().iter();
                tokens.any(|token| token.text == word && !(in_shipped_code && source.is_test(token.line)))
            });
            if !named && !excused {
                let message = if in_shipped_code {
                    format!("`{}` is declared, and no shipped code of `{}` names it", dependency.name, room.name)
                } else {
                    format!("`{}` is declared, and `{}` never names it", dependency.name, room.name)
                };
                findings.push(Finding::new(&room.manifest, room.line_of(&dependency.name), RULE, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, room};
    use super::*;

    fn check_one(name: &str, manifest: &str) -> Vec<String> {
        check(&graph(vec![room(name, manifest)], &[])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_library_outside_its_room_is_found() {
        assert_eq!(
            check_one("agent", "[dependencies]\nrust-embed.workspace = true"),
            ["crates/agent/Cargo.toml:2: [library] `rust-embed` does not live in `agent`, but in daemon"]
        );
        assert_eq!(check_one("daemon", "[dependencies]\nrust-embed.workspace = true"), [""; 0]);
    }

    #[test]
    fn an_unknown_library_is_found() {
        assert_eq!(
            check_one("cli", "[dependencies]\nleft-pad.workspace = true"),
            ["crates/cli/Cargo.toml:2: [library] `left-pad` is in no line of the table of libraries"]
        );
    }

    #[test]
    fn test_libraries_stay_in_tests() {
        assert_eq!(check_one("bridge", "[dev-dependencies]\nproptest.workspace = true"), [""; 0]);
        assert_eq!(
            check_one("bridge", "[dependencies]\nproptest.workspace = true"),
            ["crates/bridge/Cargo.toml:2: [library] `proptest` is for tests only"]
        );
        // A firewall holds in tests too.
        assert_eq!(check_one("agent", "[dev-dependencies]\nrust-embed.workspace = true").len(), 1);
    }

    #[test]
    fn an_unused_dependency_is_found() {
        let graph = graph(vec![room("a", "[dependencies]\ngrep-searcher.workspace = true")], &[]);
        let check = |text: &str| check_use(&graph, &[Source::new("crates/a/src/lib.rs", text)]).len();
        assert_eq!(check("use grep_searcher::Searcher;"), 0);
        assert_eq!(check("// grep_searcher"), 1);
        assert_eq!(check("#[cfg(test)]\nmod tests {\n use grep_searcher::Searcher;\n}"), 1);
    }

    #[test]
    fn a_line_without_a_user_is_found() {
        let used = |names: &[&str]| names.iter().map(|name| format!("{name}.workspace = true\n")).collect::<String>();
        let all: Vec<_> = TABLE.iter().map(|library| library.name).collect();
        let check = |names: &[&str]| check_table(&graph(vec![room("a", &used(names))], &[])).len();
        assert_eq!(check(&all), 0);
        assert_eq!(check(&all[1..]), 1);
    }

    #[test]
    fn the_table_names_each_library_once() {
        for (index, library) in TABLE.iter().enumerate() {
            assert!(!TABLE.iter().skip(index + 1).any(|other| other.name == library.name), "{}", library.name);
        }
    }
}
