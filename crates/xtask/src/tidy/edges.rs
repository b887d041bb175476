//! Which room may depend on which?
//!
//! The table is the floor plan of `ARCHITECTURE.md`. A new edge is an architectural change: it comes with a line here
//! and a record in `docs/adr`.

use super::Finding;
use super::graph::{Graph, Kind};

const RULE: &str = "edge";

/// Room → the rooms it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("stdx", &[]),
    ("protocol", &["stdx"]),
    ("adk", &["stdx"]),
    ("models", &["adk", "stdx"]),
    ("tools", &["adk", "stdx"]),
    ("mcp", &["adk", "stdx"]),
    ("bridge", &["protocol", "stdx"]),
    ("acp", &["protocol", "stdx"]),
    ("agent", &["adk", "models", "tools", "mcp", "protocol", "stdx"]),
    ("daemon", &["bridge", "acp", "protocol", "stdx"]),
    ("cli", &["agent", "daemon", "models", "tools", "mcp", "bridge", "acp", "adk", "protocol", "stdx"]),
    ("testkit", &["protocol", "acp", "stdx"]),
    ("bench", &[]),
    ("xtask", &["bridge"]),
];

/// Any room's tests may use it; no shipped code may.
const TESTKIT: &str = "testkit";

pub(crate) fn check(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in graph.rooms() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == room.name) else {
            let message = format!("room `{}` has no line in the table of allowed edges", room.name);
            findings.push(Finding::new(&room.manifest, 1, RULE, message));
            continue;
        };
        for dependency in &room.dependencies {
            let Some(target) = dependency.room() else { continue };
            let in_tests = dependency.kind == Kind::Dev && (target == TESTKIT || target == room.name);
            if !allowed.contains(&target) && !in_tests {
                let message = format!("`{}` may not depend on `{target}`; allowed: {}", room.name, list(allowed));
                findings.push(Finding::new(&room.manifest, room.line_of(&dependency.name), RULE, message));
            }
        }
    }
    findings
}

fn list(rooms: &[&str]) -> String {
    if rooms.is_empty() { "none".to_owned() } else { rooms.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, room};
    use super::*;

    fn check_one(name: &str, manifest: &str) -> Vec<String> {
        check(&graph(vec![room(name, manifest)], &[])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_edge_outside_the_table_is_found_at_its_line() {
        assert_eq!(
            check_one("daemon", "[dependencies]\nconvoke-bridge.workspace = true\nconvoke-agent.workspace = true"),
            ["crates/daemon/Cargo.toml:3: [edge] `daemon` may not depend on `agent`; \
              allowed: bridge, acp, protocol, stdx"]
        );
    }

    #[test]
    fn tests_may_use_the_test_kit_and_shipped_code_may_not() {
        assert_eq!(check_one("bridge", "[dev-dependencies]\nconvoke-testkit.workspace = true"), [""; 0]);
        assert_eq!(check_one("bridge", "[dependencies]\nconvoke-testkit.workspace = true").len(), 1);
        assert_eq!(check_one("bridge", "[dev-dependencies]\nconvoke-acp.workspace = true").len(), 1);
    }

    #[test]
    fn a_room_without_a_line_is_found() {
        assert_eq!(check_one("attic", "").len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle_and_names_only_rooms() {
        // A room may only point at rooms of smaller rank; rank by repeated removal of the leaves.
        let mut left: Vec<_> = ALLOWED.to_vec();
        let mut placed: Vec<&str> = Vec::new();
        while !left.is_empty() {
            let (leaves, rest): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|(_, targets)| targets.iter().all(|target| placed.contains(target)));
            assert!(!leaves.is_empty(), "a cycle or an unknown room among {rest:?}");
            placed.extend(leaves.iter().map(|(name, _)| *name));
            left = rest;
        }
    }
}
