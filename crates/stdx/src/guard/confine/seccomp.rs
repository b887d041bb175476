//! System calls that the calling thread and all that it starts don't get.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Whether a filter can be made for this machine.
pub(super) fn check() -> Result<(), String> {
    program(false, false).map(|_| ()).map_err(|error| format!("no seccomp filter for this machine ({error})"))
}

/// Denies typing into a terminal, the network unless `network`, and truncation by path unless Landlock already does.
pub(super) fn restrict(network: bool, truncation_is_handled: bool) -> io::Result<()> {
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("confine with seccomp: {error}"));
    let program = program(network, truncation_is_handled).map_err(|error| failed(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| failed(&error))
}

fn program(network: bool, truncation_is_handled: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let is = |argument, value: u64| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // A command may have the user's terminal open; what it types there runs outside, once it is gone.
    let typing = [libc::TIOCSTI, libc::TIOCLINUX];
    let typing = typing.map(|request| SeccompRule::new(vec![is(1, request)?]));
    denied.insert(libc::SYS_ioctl, typing.into_iter().collect::<Result<_, _>>()?);
    if !truncation_is_handled {
        denied.insert(libc::SYS_truncate, Vec::new());
    }
    if !network {
        let unix = u64::try_from(libc::AF_UNIX).unwrap_or_default();
        let others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?;
        denied.insert(libc::SYS_socket, vec![SeccompRule::new(vec![others])?]);
        // A Unix socket may lead to somebody who has the network, such as a container engine. Pairs still work.
        denied.insert(libc::SYS_connect, Vec::new());
        // Its operations would not pass through this filter.
        denied.insert(libc::SYS_io_uring_setup, Vec::new());
    }
    let refused = SeccompAction::Errno(u32::try_from(libc::EPERM).unwrap_or(1));
    SeccompFilter::new(denied, SeccompAction::Allow, refused, arch)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_made_for_every_choice() {
        for network in [false, true] {
            for handled in [false, true] {
                assert!(!program(network, handled).unwrap().is_empty());
            }
        }
    }
}
