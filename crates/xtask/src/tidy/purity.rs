//! Do the referees still take time, chance and the world as inputs only?
//!
//! `bridge` and `protocol` are sans-IO as whole rooms, and so is every module whose doc starts with `Sans-IO:`. Test
//! code is exempt: a test may read a clock to print how long it took.

use super::Finding;
use super::source::Source;

const RULE: &str = "purity";

const PURE_ROOMS: &[&str] = &["bridge", "protocol"];
const MARK: &str = "Sans-IO:";

/// A name that pure code must not mention, and what it would break.
const FORBIDDEN: &[(&str, &str)] = &[
    ("tokio", "a referee has no runtime"),
    ("Instant", "time is an input: take `stdx::Now`"),
    ("SystemTime", "time is an input: take `stdx::Now`"),
    ("stdx::Clock", "time is an input: take `stdx::Now`"),
    ("std::thread", "a referee runs on its owner's thread"),
    ("std::env", "settings are inputs"),
    ("std::net", "a referee has no socket"),
    ("std::fs", "a referee has no disk"),
    ("std::process", "a referee starts nothing and ends nothing"),
    ("rand", "chance is an input"),
    ("getrandom", "chance is an input"),
    ("RandomState", "chance is an input"),
    ("new_v4", "ids are minted at the edge and passed in"),
    ("now_v7", "ids are minted at the edge and passed in"),
    ("HashMap", "its order differs from run to run: take `BTreeMap` or `IndexMap`"),
    ("HashSet", "its order differs from run to run: take `BTreeSet` or `IndexSet`"),
];

/// Ports of `protocol` are asynchronous traits; a referee never waits.
const NEVER_WAITS: &[&str] = &["async", "await"];

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    sources.iter().filter_map(|source| Some((source, purity_of(source)?))).flat_map(check_one).collect()
}

/// How pure a source must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purity {
    /// A machine: neither world nor waiting.
    Referee,
    /// Vocabulary: no world, but asynchronous ports.
    Vocabulary,
}

fn purity_of(source: &Source) -> Option<Purity> {
    if source.module_doc().starts_with(MARK) || source.room == "bridge" {
        Some(Purity::Referee)
    } else {
        PURE_ROOMS.contains(&source.room.as_str()).then_some(Purity::Vocabulary)
    }
}

fn check_one((source, purity): (&Source, Purity)) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: &str, why: &str| {
        if !source.is_test(line) {
            findings.push(Finding::new(&source.path, line, RULE, format!("`{what}` in a sans-IO module: {why}")));
        }
    };
    for name in source.names() {
        for (forbidden, why) in FORBIDDEN.iter().filter(|(forbidden, _)| name.mentions(forbidden)) {
            find(name.line, forbidden, why);
        }
    }
    if purity == Purity::Referee {
        for token in source.tokens().iter().filter(|token| NEVER_WAITS.contains(&token.text.as_str())) {
            find(token.line, &token.text, "a referee decides in one step");
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(path: &str, text: &str) -> Vec<String> {
        check(&[Source::new(path, text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_bridge_knows_no_clock_under_any_spelling() {
        for text in [
            "fn f() { let t = std::time::Instant::now(); }",
            "use std::{collections::BTreeMap, time::{Duration, Instant as I}};",
            "use tokio::time::Instant;",
        ] {
            assert!(!check_text("crates/bridge/src/a.rs", text).is_empty(), "{text}");
        }
        assert_eq!(check_text("crates/bridge/src/a.rs", "use std::time::Duration; // not Instant"), [""; 0]);
    }

    #[test]
    fn every_forbidden_name_is_found() {
        for (name, _) in FORBIDDEN {
            let text = format!("fn f() {{ {name}::x(); }}");
            assert_eq!(check_text("crates/protocol/src/a.rs", &text).len(), 1, "{name}");
        }
        assert_eq!(check_text("crates/bridge/src/a.rs", "use std::{env, fs};").len(), 2);
    }

    #[test]
    fn only_vocabulary_has_asynchronous_ports() {
        let text = "trait T { async fn f(&self); }";
        assert_eq!(check_text("crates/protocol/src/a.rs", text), [""; 0]);
        assert_eq!(
            check_text("crates/bridge/src/a.rs", text),
            ["crates/bridge/src/a.rs:1: [purity] `async` in a sans-IO module: a referee decides in one step"]
        );
    }

    #[test]
    fn a_marked_module_of_a_mixed_room_is_checked_and_its_neighbour_is_not() {
        let text = "use std::collections::HashMap;";
        assert_eq!(check_text("crates/tools/src/a.rs", &format!("//! Sans-IO: who is next?\n{text}")).len(), 1);
        assert_eq!(check_text("crates/tools/src/a.rs", &format!("//! Who is next? Sans-IO: no.\n{text}")).len(), 0);
    }

    #[test]
    fn tests_are_exempt() {
        let text = "#[cfg(test)]\nmod tests {\n use std::time::Instant;\n}";
        assert_eq!(check_text("crates/bridge/src/a.rs", text), [""; 0]);
        assert_eq!(check_text("crates/bridge/tests/a.rs", "use std::time::Instant;"), [""; 0]);
    }
}
