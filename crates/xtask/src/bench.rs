//! Builds the product and its floors at release speed, and measures them.

use std::path::Path;

use crate::steps::{cargo, command, run as run_command};

/// The profile of all measured programs: release speed without the link-time cost.
const PROFILE: &str = "bench-run";

/// Measures with `args` for the bench itself.
pub(crate) fn run(root: &Path, args: &[&str]) -> anyhow::Result<()> {
    // Apart, so that the bench's needs switch on no feature in the product.
    for package in ["convoke-cli", "convoke-bench"] {
        run_command(&mut command(
            cargo(),
            &["build", "--locked", "--profile", PROFILE, "-p", package, "--bins"],
            root,
        ))?;
    }
    run_command(&mut command(root.join("target").join(PROFILE).join("convoke-bench"), args, root))
}
