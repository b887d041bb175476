//! What `/proc` says of a living process: memory, processor time, descendants.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Proportional memory of a process in KiB: its own pages, and its share of those it shares.
pub(crate) fn pss_kib(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("read a process's memory")?;
    field_kib(&text, "Pss:").context("no Pss in a process's memory")
}

/// The value of a line such as `Pss:   123 kB`.
fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Nanoseconds on a processor of all threads that the process has now.
///
/// Exact where `stat` counts ticks of 10 ms; a thread that ended takes its time along.
pub(crate) fn cpu_nanos(pid: u32) -> anyhow::Result<u64> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).context("list a process's threads")? {
        // A thread may end between the two.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        total += text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

/// Children of a process, their children, and so on.
pub(crate) fn descendants(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(child) = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else { continue };
        if let Some(parent) = parent(&path) {
            parents.push((child, parent));
        }
    }
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(ancestor) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == ancestor).map(|(child, _)| *child));
        at += 1;
    }
    found.remove(0);
    Ok(found)
}

fn parent(process: &Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    parse_parent(&stat)
}

/// The fourth field; the second, the name in parentheses, may hold spaces and parentheses itself.
fn parse_parent(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_by_its_name() {
        let text = "55d0-7fff ---p 00000000 00:00 0  [rollup]\nRss:    3000 kB\nPss:    1234 kB\nPss_Anon: 7 kB\n";
        assert_eq!(field_kib(text, "Pss:"), Some(1234));
        assert_eq!(field_kib(text, "Swap:"), None);
    }

    #[test]
    fn a_name_cannot_pretend_to_be_a_parent() {
        assert_eq!(parse_parent("42 (a) S 1) S 7 42 42 0"), Some(7));
        assert_eq!(parse_parent("42 (a"), None);
    }

    #[test]
    fn this_process_has_memory_and_spends_time() {
        let pid = std::process::id();
        assert!(pss_kib(pid).unwrap() > 100);
        assert!(cpu_nanos(pid).unwrap() > 0);
        assert!(!descendants(pid).unwrap().contains(&pid));
    }
}
