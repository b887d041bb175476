//! Everything that must pass before a change is ready, in the order in which it fails fastest.
//!
//! `.ci/run` prepares the machine and then runs this; nothing happens there that can't happen at home.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;

use crate::steps::{cargo, command, run as run_command, timed};
use crate::{interop, sim, tidy};

/// A step: its name, and what it does in the repository at a path.
type Step = (&'static str, fn(&Path) -> anyhow::Result<()>);

const STEPS: &[Step] = &[
    ("fmt", |root| run_command(&mut command(cargo(), &["fmt", "--all", "--check"], root))),
    ("tidy", tidy::run),
    ("clippy", |root| {
        let args = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
        run_command(&mut command(cargo(), &args, root))
    }),
    ("doc", |root| {
        let args = ["doc", "--locked", "--workspace", "--no-deps"];
        run_command(command(cargo(), &args, root).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("test", |root| run_command(&mut command(cargo(), &["test", "--workspace"], root))),
    ("sim", |_| sim::run(&[])),
    ("interop", |root| interop::run(root, false, &[])),
];

/// Runs the steps named, or all; a failed step does not hide what the later ones would say.
pub(crate) fn run(root: &Path, wanted: &[&str]) -> anyhow::Result<()> {
    let steps = select(STEPS, wanted)?;
    let mut report: Vec<(&str, Duration, bool)> = Vec::new();
    for (name, step) in steps {
        println!("== {name}");
        let (result, took) = timed(|| step(root));
        if let Err(error) = &result {
            println!("{name}: {error:#}");
        }
        println!("== {name}: {:.1} s", took.as_secs_f64());
        report.push((name, took, result.is_ok()));
    }
    println!("== all");
    for (name, took, passed) in &report {
        println!("{:>8.1} s  {name}{}", took.as_secs_f64(), if *passed { "" } else { "  FAILED" });
    }
    let failed: Vec<_> = report.iter().filter(|(_, _, passed)| !passed).map(|(name, ..)| *name).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn select(steps: &[Step], wanted: &[&str]) -> anyhow::Result<Vec<Step>> {
    if let Some(unknown) = wanted.iter().find(|name| !steps.iter().any(|(step, _)| step == *name)) {
        let known: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
        bail!("there is no step `{unknown}`; there are {}", known.join(", "));
    }
    Ok(steps.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_selected_by_name() {
        let names = |wanted: &[&str]| {
            let steps = select(STEPS, wanted)?;
            anyhow::Ok(steps.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(names(&["test", "fmt"]).unwrap(), ["fmt", "test"]);
        assert!(names(&["tests"]).unwrap_err().to_string().starts_with("there is no step `tests`; there are fmt,"));
    }
}
