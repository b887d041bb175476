//! What needs more than cargo: Node, a browser, and the programs of others that speak to ours.
//!
//! [`SUITES`] is the one list of what there is to run. Each suite runs if its needs are met. What can't run is said at
//! the end, by name and reason; what ran and failed makes the task fail.

mod a2a;
mod daemon;
mod foreign;
mod mcp;
mod needs;
mod network;
mod page;
mod script;

use std::path::Path;

use anyhow::{bail, ensure};

use crate::steps::timed;
use needs::{Machine, Need};

/// One thing to run, and what it can't do without.
struct Suite {
    name: &'static str,
    needs: &'static [Need],
    run: fn(&Machine, &mut Skipped) -> anyhow::Result<()>,
}

/// What a suite that ran left out, by name and reason.
type Skipped = Vec<String>;

const SUITES: &[Suite] = &[
    Suite { name: "page modules", needs: &[Need::Node], run: page::modules },
    Suite { name: "vendored files", needs: &[], run: page::vendored_files },
    Suite { name: "page types", needs: &[Need::Packages], run: page::types },
    Suite { name: "page in a browser", needs: &[Need::Packages, Need::Browser], run: page::in_a_browser },
    Suite { name: "second machine", needs: &[Need::Node, Need::Namespaces], run: network::second_machine },
    Suite { name: "qwen sdk", needs: &[Need::Packages, Need::Node22], run: foreign::qwen_sdk },
    Suite {
        name: "qwen web shell",
        needs: &[Need::Packages, Need::Node22, Need::Browser],
        run: foreign::qwen_web_shell,
    },
    Suite { name: "acp sdk", needs: &[Need::Packages, Need::Node22], run: foreign::acp_sdk },
    Suite { name: "acp editor sdk", needs: &[Need::Packages, Need::Node22], run: foreign::acp_sdk_editor },
    Suite { name: "acp editor python sdk", needs: &[Need::AcpPython], run: foreign::acp_python_editor },
    Suite { name: "gemini cli", needs: &[Need::Packages, Need::Node22], run: foreign::gemini_cli },
    Suite { name: "mcp typescript sdk", needs: &[Need::Packages, Need::Node22], run: mcp::typescript_sdk },
    Suite { name: "mcp python sdk", needs: &[Need::Packages, Need::Node22, Need::McpPython], run: mcp::python_sdk },
    Suite { name: "a2a python sdk", needs: &[Need::Node, Need::A2aPython], run: a2a::python_sdk },
];

/// How one suite ended.
enum Outcome {
    Passed,
    Failed(String),
    /// It could not run, and why.
    Skipped(String),
}

/// What the suites of one run said.
#[derive(Default)]
struct Report {
    passed: usize,
    failed: Vec<String>,
    skipped: Skipped,
}

impl Report {
    fn take(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(reason) => self.failed.push(format!("{name} ({reason})")),
            Outcome::Skipped(reason) => self.skipped.push(format!("{name} ({reason})")),
        }
    }

    fn lines(&self) -> Vec<String> {
        let skipped = self.skipped.iter().map(|name| format!("skipped: {name}"));
        let failed = self.failed.iter().map(|name| format!("failed: {name}"));
        let total =
            format!("interop: {} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len());
        skipped.chain(failed).chain([total]).collect()
    }
}

/// Runs the suites whose names contain one of `wanted`, or all. With `install`, or in CI, a missing browser is fetched
/// first.
pub(crate) fn run(root: &Path, install: bool, wanted: &[&str]) -> anyhow::Result<()> {
    let suites = select(SUITES, wanted)?;
    let machine = Machine::new(root, install || std::env::var_os("CI").is_some_and(|ci| ci == "true"));
    let mut report = Report::default();
    for suite in suites {
        let mut skipped = Skipped::new();
        let outcome = attempt(suite, &machine, &mut skipped);
        report.take(suite.name, outcome);
        report.skipped.extend(skipped);
    }
    report.lines().iter().for_each(|line| println!("{line}"));
    ensure!(report.failed.is_empty(), "interop failed");
    Ok(())
}

fn select<'a>(suites: &'a [Suite], wanted: &[&str]) -> anyhow::Result<Vec<&'a Suite>> {
    let fits = |suite: &Suite, word: &str| suite.name.contains(word);
    if let Some(unknown) = wanted.iter().find(|word| !suites.iter().any(|suite| fits(suite, word))) {
        let known: Vec<_> = suites.iter().map(|suite| suite.name).collect();
        bail!("there is no suite `{unknown}`; there are {}", known.join(", "));
    }
    let chosen = |suite: &&Suite| wanted.is_empty() || wanted.iter().any(|word| fits(suite, word));
    Ok(suites.iter().filter(chosen).collect())
}

fn attempt(suite: &Suite, machine: &Machine, skipped: &mut Skipped) -> Outcome {
    if let Some(reason) = suite.needs.iter().find_map(|need| machine.meets(*need).err()) {
        return Outcome::Skipped(reason);
    }
    println!("-- {}", suite.name);
    let (result, took) = timed(|| (suite.run)(machine, skipped));
    println!("-- {}: {:.1} s", suite.name, took.as_secs_f64());
    result.map_or_else(|error| Outcome::Failed(format!("{error:#}")), |()| Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &[Suite] = &[
        Suite { name: "one", needs: &[], run: |_, _| Ok(()) },
        Suite { name: "two", needs: &[], run: |_, _| bail!("broken") },
        Suite { name: "three", needs: &[Need::Packages], run: |_, _| bail!("must not run") },
    ];

    #[test]
    fn what_could_not_run_is_said_by_name_and_what_failed_fails() {
        let nowhere = tempfile::tempdir().unwrap();
        let machine = Machine::new(nowhere.path(), false);
        let mut report = Report::default();
        for suite in THREE {
            report.take(suite.name, attempt(suite, &machine, &mut Skipped::new()));
        }
        let lines = report.lines();
        assert!(lines[0].starts_with("skipped: three ("), "{lines:?}");
        assert_eq!(lines[1..], ["failed: two (broken)", "interop: 1 passed, 1 failed, 1 skipped"]);
    }

    #[test]
    fn suites_are_selected_by_words_of_their_names() {
        let names = |wanted: &[&str]| {
            let suites = select(THREE, wanted)?;
            anyhow::Ok(suites.into_iter().map(|suite| suite.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), 3);
        assert_eq!(names(&["tw", "three"]).unwrap(), ["two", "three"]);
        assert!(names(&["four"]).unwrap_err().to_string().ends_with("there are one, two, three"));
    }
}
