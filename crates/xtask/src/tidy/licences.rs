//! What may be linked into the product at all?
//!
//! Banned packages, packages that must exist once, and licences. `deny.toml` says the same to people who have
//! `cargo-deny`; that both agree is checked here.

use std::path::Path;

use anyhow::Context;

use super::Finding;
use super::graph::Graph;

const BAN: &str = "ban";
const LICENCE: &str = "licence";

/// Packages that no feature may switch on, and why.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-sys", "one TLS stack: rustls with ring; this one needs a C compiler and CMake"),
    ("openssl-sys", "one TLS stack: rustls with ring; this one needs the system's OpenSSL"),
    ("native-tls", "one TLS stack: rustls with ring"),
];

/// Packages that hold process-wide state or cross our interfaces: two versions would not meet.
const SINGLE: &[&str] = &["tokio", "hyper", "rustls", "reqwest", "serde_json", "agent-client-protocol"];

/// Licences that one may ship in an Apache-2.0 binary without further duties than the notice.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The bans over everything reached, tests included; the licences of what is shipped.
pub(crate) fn check(graph: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = graph.reached(false);
    for package in &all {
        if let Some((_, reason)) = BANNED.iter().find(|(name, _)| *name == package.name) {
            findings.push(found(BAN, format!("`{}` is in the graph: {reason}", package.name)));
        }
    }
    for name in SINGLE {
        let versions: Vec<_> =
            all.iter().filter(|package| package.name == *name).map(|package| package.version.as_str()).collect();
        if versions.len() > 1 {
            let message = format!("`{name}` is in the graph {} times: {}", versions.len(), versions.join(", "));
            findings.push(found(BAN, message));
        }
    }
    for package in graph.reached(true) {
        let (name, version) = (&package.name, &package.version);
        match package.licence.as_deref() {
            None => findings.push(found(LICENCE, format!("`{name}` {version} states no licence"))),
            Some(licence) if !is_allowed(licence) => {
                findings.push(found(LICENCE, format!("`{name}` {version} is under `{licence}`")));
            }
            Some(_) => {}
        }
    }
    findings
}

fn found(rule: &'static str, message: String) -> Finding {
    Finding::new("Cargo.lock", 1, rule, message)
}

/// Whether an SPDX expression can be met with [`LICENCES`]; `/` is the old spelling of `OR`.
///
/// `AND` binds more tightly than `OR`, as SPDX has it. What can't be read is not allowed.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any_of(&mut words);
    allowed == Some(true) && words.next().is_none()
}

type Words<'t> = std::iter::Peekable<std::str::SplitWhitespace<'t>>;

fn any_of(words: &mut Words<'_>) -> Option<bool> {
    let mut allowed = all_of(words)?;
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words)?;
    }
    Some(allowed)
}

fn all_of(words: &mut Words<'_>) -> Option<bool> {
    let mut allowed = one(words)?;
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words)?;
    }
    Some(allowed)
}

fn one(words: &mut Words<'_>) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let allowed = any_of(words)?;
        return words.next_if_eq(&")").map(|_| allowed);
    }
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next()?;
        return Some(LICENCES.contains(&format!("{word} WITH {exception}").as_str()));
    }
    Some(LICENCES.contains(&word))
}

/// `deny.toml` must allow and ban exactly what stands here.
pub(crate) fn check_deny_file(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("failed to read deny.toml")?;
    Ok(check_deny(&text))
}

fn check_deny(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    compare(text, "allow", LICENCES, LICENCE, &mut findings);
    let ours: Vec<&str> = BANNED.iter().map(|(name, _)| *name).collect();
    compare(text, "deny", &ours, BAN, &mut findings);
    findings
}

fn compare(text: &str, key: &str, ours: &[&str], rule: &'static str, findings: &mut Vec<Finding>) {
    let opening = format!("{key} = [");
    let Some(at) = text.lines().position(|line| line.trim() == opening) else {
        findings.push(Finding::new("deny.toml", 1, rule, format!("no list `{key}`")));
        return;
    };
    // One entry a line; the first string of a line is its name.
    let listed = text.lines().skip(at + 1).take_while(|line| line.trim() != "]");
    let theirs: Vec<&str> = listed.filter_map(|line| line.split('"').nth(1)).collect();
    for name in ours.iter().filter(|name| !theirs.contains(name)) {
        findings.push(Finding::new("deny.toml", at + 1, rule, format!("`{key}` lacks `{name}`")));
    }
    for name in theirs.iter().filter(|name| !ours.contains(name)) {
        findings.push(Finding::new("deny.toml", at + 1, rule, format!("`{key}` has `{name}`, tidy does not")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::fixture::{graph, outside, room};
    use super::*;

    #[test]
    fn spdx_expressions() {
        for allowed in ["MIT", "MIT/GPL-3.0", "GPL-3.0 OR (MIT AND ISC)", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception"));
        for refused in
            ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH Nothing-exception", "", "MIT OR", "(MIT", "MIT MIT", "mit"]
        {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    fn messages(graph: &Graph) -> Vec<String> {
        check(graph).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bans_hold_in_tests_too_and_licences_in_shipped_code() {
        let packages = vec![
            room("a", ""),
            outside("x", "1.0.0", Some("GPL-3.0")),
            outside("t", "1.0.0", Some("GPL-3.0")),
            outside("openssl-sys", "0.9.0", Some("MIT")),
            outside("native-tls", "0.9.0", Some("MIT")),
        ];
        let edges =
            [("convoke-a", "x 1.0.0", true), ("convoke-a", "t 1.0.0", false), ("t 1.0.0", "openssl-sys 0.9.0", true)];
        let messages = messages(&graph(packages, &edges));
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("`openssl-sys` is in the graph"));
        assert!(messages[1].contains("`x` 1.0.0 is under `GPL-3.0`"));
    }

    #[test]
    fn a_second_copy_is_found() {
        let packages =
            vec![room("a", ""), outside("tokio", "1.0.0", Some("MIT")), outside("tokio", "2.0.0", Some("MIT"))];
        let edges = [("convoke-a", "tokio 1.0.0", true), ("convoke-a", "tokio 2.0.0", false)];
        let messages = messages(&graph(packages, &edges));
        assert_eq!(messages, ["Cargo.lock:1: [ban] `tokio` is in the graph 2 times: 1.0.0, 2.0.0"]);
    }

    #[test]
    fn deny_toml_must_say_the_same() {
        let list = |names: &[&str]| names.iter().map(|name| format!("  \"{name}\",\n")).collect::<String>();
        let banned: Vec<_> = BANNED.iter().map(|(name, _)| *name).collect();
        let file = |allow: &[&str], deny: &[&str]| format!("allow = [\n{}]\ndeny = [\n{}]\n", list(allow), list(deny));
        assert_eq!(check_deny(&file(LICENCES, &banned)), []);
        assert_eq!(check_deny(&file(&LICENCES[1..], &banned)).len(), 1);
        assert_eq!(check_deny(&file(LICENCES, &[&banned[..], &["gtk"]].concat())).len(), 1);
        assert_eq!(check_deny("").len(), 2);
    }
}
