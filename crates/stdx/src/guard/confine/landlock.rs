//! The kernel's own limits on the calling thread and all that it starts.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

/// Must be enforced. Linux 5.13.
const NEEDED: ABI = ABI::V1;
/// Is enforced where the kernel can: renames between folders, truncation, ioctl on devices, TCP, signals.
const WANTED: ABI = ABI::V6;

/// Whether the kernel has Landlock.
pub(super) fn check() -> Result<(), String> {
    ruleset(true).map(|_| ()).map_err(|error| format!("the kernel does not offer Landlock ({error})"))
}

/// Whether truncation by path is among what is enforced; if not, somebody else has to.
pub(super) type Truncation = bool;

/// Denies writing outside of `writable`, and TCP unless `network`.
pub(super) fn restrict<'a>(writable: impl Iterator<Item = &'a Path>, network: bool) -> io::Result<Truncation> {
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("confine with Landlock: {error}"));
    let mut ruleset = ruleset(network).map_err(|error| failed(&error))?;
    for path in writable {
        let access = AccessFs::from_write(WANTED);
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
        let folder = PathFd::new(path).map_err(|error| failed(&error))?;
        ruleset = ruleset.add_rule(PathBeneath::new(folder, access)).map_err(|error| failed(&error))?;
    }
    let status = ruleset.restrict_self().map_err(|error| failed(&error))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(true),
        RulesetStatus::PartiallyEnforced => Ok(truncation_is_handled()),
        RulesetStatus::NotEnforced => Err(failed(&"the kernel does not enforce it")),
    }
}

fn ruleset(network: bool) -> Result<RulesetCreated, landlock::RulesetError> {
    let needed = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_write(NEEDED))?;
    let mut wanted = needed
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(WANTED))?
        .scope(Scope::from_all(WANTED))?;
    if !network {
        wanted = wanted.handle_access(AccessNet::from_all(WANTED))?;
    }
    wanted.create()
}

fn truncation_is_handled() -> bool {
    let truncate = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Truncate);
    truncate.is_ok_and(|ruleset| ruleset.create().is_ok())
}
