//! One program from start to end: what did it say, and what did it cost?

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::process::Command;

/// The programs of a run, all in one folder.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Ours,
    Floor,
}

impl Subject {
    pub(crate) const BOTH: [Self; 2] = [Self::Ours, Self::Floor];
}

/// The values of one figure, of both subjects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) ours: Vec<f64>,
    pub(crate) floor: Vec<f64>,
}

impl Pair {
    pub(crate) fn push(&mut self, subject: Subject, value: f64) {
        match subject {
            Subject::Ours => self.ours.push(value),
            Subject::Floor => self.floor.push(value),
        }
    }
}

impl Programs {
    /// Those beside the running one.
    pub(crate) fn beside_us() -> anyhow::Result<Self> {
        let us = std::env::current_exe().context("find the running program")?;
        Ok(Self { folder: us.parent().context("a program without a folder")?.to_owned() })
    }

    /// Fails with what to do about it.
    pub(crate) fn find(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(name);
        if !path.exists() {
            bail!("find {}: run `cargo xtask bench`, which builds it", path.display());
        }
        Ok(path)
    }
}

/// What one run cost.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) wall_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) rss_max_mib: f64,
    /// Both on the clock of [`convoke_bench::clock`].
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) stdout: String,
}

/// Runs `program` in `folder`, with nothing in its environment but `PATH` and `env`; its standard input is the file
/// `stdin`, or empty.
///
/// A run that does not exit with 0 is an error that carries its standard error.
pub(crate) async fn run(
    programs: &Programs,
    program: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    folder: &Path,
    stdin: Option<&Path>,
) -> anyhow::Result<Cost> {
    let stdin = match stdin {
        Some(path) => Stdio::from(std::fs::File::open(path).context("open what is to be on stdin")?),
        None => Stdio::null(),
    };
    let report = tempfile::NamedTempFile::new().context("make a file for a report")?;
    let output = Command::new(programs.find("run-one")?)
        .arg(report.path())
        .arg(program)
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(env.iter().copied())
        .current_dir(folder)
        .stdin(stdin)
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("run {}", program.display()))?;
    let text = std::fs::read_to_string(report.path()).context("read a report")?;
    let numbers: Vec<i64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [wall_ns, cpu_us, rss_kib, ended_ns, code] = numbers.as_slice() else {
        bail!("run {}: no report\n{}", program.display(), String::from_utf8_lossy(&output.stderr));
    };
    if *code != 0 {
        bail!("run {}: it ended with {code}\n{}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    let ended_ns = u64::try_from(*ended_ns)?;
    Ok(Cost {
        wall_ms: *wall_ns as f64 / 1e6,
        cpu_ms: *cpu_us as f64 / 1e3,
        rss_max_mib: *rss_kib as f64 / 1024.0,
        started_ns: ended_ns.saturating_sub(u64::try_from(*wall_ns)?),
        ended_ns,
        stdout: String::from_utf8(output.stdout).context("read what it printed")?,
    })
}
