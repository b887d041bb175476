//! Every descendant of this process, found through `/proc`.

use std::fs;

use rustix::process::{Pid, Signal};

/// Direct and indirect children of this process, parents before children.
///
/// This process is a subreaper, so a descendant that was orphaned or left its group is still found here.
pub(super) fn descendants() -> Vec<Pid> {
    let mut found = children_of(std::process::id());
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children_of(pid));
        next += 1;
    }
    found.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)).collect()
}

/// The program that the guard with this process id watches, once it runs.
#[must_use]
pub fn program_of(guard: u32) -> Option<u32> {
    // Whoever came first: orphans of the program's that the guard took in come behind it.
    children_of(guard).into_iter().next()
}

fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok())
        .flat_map(|line| line.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Sends `signal` to the group that `leader` leads and to every descendant outside of it.
pub(super) fn signal_all(leader: Pid, signal: Signal) {
    // Either may be gone in the meantime; that is the aim.
    let _ = rustix::process::kill_process_group(leader, signal);
    for pid in descendants() {
        if rustix::process::getpgid(Some(pid)).ok() != Some(leader) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}
