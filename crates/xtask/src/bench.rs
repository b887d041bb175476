//! Builds the product and its floors at release speed, and measures them.

use std::path::Path;

use crate::steps::{cargo, command, run as run_command};

/// The profile of all measured programs: release speed without the link-time cost.
const PROFILE: &str = "bench-run";

/// The group of figures that are taken inside of a room, by a bench target of its own.
const INSIDE: &str = "inside";

/// Measures with `args`: `--quick`, and `--only` with a name.
pub(crate) fn run(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    let (inside, outside) = split(args);
    if let Some(outside) = outside {
        // Apart, so that the bench's needs switch on no feature in the product.
        for package in ["convoke-cli", "convoke-bench"] {
            run_command(&mut command(
                cargo(),
                &["build", "--locked", "--profile", PROFILE, "-p", package, "--bins"],
                root,
            ))?;
        }
        run_command(&mut command(root.join("target").join(PROFILE).join("convoke-bench"), &outside, root))?;
    }
    if let Some(inside) = inside {
        let bench = ["bench", "--locked", "--profile", PROFILE, "-p", "convoke-agent", "--bench", "long-session", "--"];
        run_command(&mut command(cargo(), &[&bench, inside.as_slice()].concat(), root))?;
    }
    Ok(())
}

type Args<'a> = Option<Vec<&'a str>>;

/// What goes to the bench target, and what to the bench that measures from outside; `None` for neither.
fn split<'a>(args: &[&'a str]) -> (Args<'a>, Args<'a>) {
    let is_inside = |name: &str| name.strip_prefix(INSIDE).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    let (mut some_inside, mut some_outside) = (false, false);
    let mut rest = args.iter().copied();
    while let Some(arg) = rest.next() {
        match (arg == "--only").then(|| rest.next().unwrap_or_default()) {
            Some(name) if is_inside(name) => {
                some_inside = true;
                inside.push(name);
            }
            Some(name) => {
                some_outside = true;
                outside.extend(["--only", name]);
            }
            None => {
                inside.push(arg);
                outside.push(arg);
            }
        }
    }
    let all = !some_inside && !some_outside;
    ((all || some_inside).then_some(inside), (all || some_outside).then_some(outside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_goes_to_the_bench_that_knows_it() {
        assert_eq!(split(&["--quick"]), (Some(vec!["--quick"]), Some(vec!["--quick"])));
        assert_eq!(split(&["--only", "loop", "--quick"]), (None, Some(vec!["--only", "loop", "--quick"])));
        assert_eq!(split(&["--only", "inside", "--quick"]), (Some(vec!["inside", "--quick"]), None));
        assert_eq!(
            split(&["--only", "inside-loops", "--only", "start"]),
            (Some(vec!["inside-loops"]), Some(vec!["--only", "start"]))
        );
        // The other bench says what there is.
        assert_eq!(split(&["--only", "insides"]), (None, Some(vec!["--only", "insides"])));
        assert_eq!(split(&["--only"]), (None, Some(vec!["--only", ""])));
    }
}
