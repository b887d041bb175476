//! Child processes that cannot outlive their parent.
//!
//! A child is started as `GUARD __guard … -- PROGRAM ARGS`. The guard watches a pipe whose only writer is the parent's
//! [`Leash`]. When the pipe closes, because the leash was dropped or because the parent was killed, the guard ends the
//! program, its process group and every descendant that left the group. No signal handler runs in the parent, and
//! `kill -9` of the parent is just another way of closing the pipe.
//!
//! ```text
//! parent ──pipe──▶ guard ──spawn──▶ program (leads its own process group)
//!                    │  pipe closes ⇒ TERM to the tree, grace, KILL
//!                    └─ program exits ⇒ the rest of the tree ends too, guard exits the same way
//! ```
//! The guard opens the pipe through `/proc/PARENT/fd/N`, so no descriptor is ever inheritable. Linux only.
//!
//! A guard may also run one program after the other: see [`Job`].

mod confine;
mod jobs;
mod tree;
mod watch;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub use confine::{Confinement, Mechanism};
pub use jobs::{Answer, Job};
pub use tree::program_of;
pub use watch::{End, watch};

/// The hidden subcommand that turns an executable into a guard.
pub const SUBCOMMAND: &str = "__guard";

/// Starts guarded children.
#[derive(Clone, Debug)]
pub struct Spawner {
    guard: Option<PathBuf>,
    grace: Duration,
    confinement: Option<Confinement>,
}

impl Spawner {
    /// Children run under `executable __guard`. The program gets `grace` between TERM and KILL when it is ended.
    #[must_use]
    pub fn guarded(executable: PathBuf, grace: Duration) -> Self {
        Self { guard: Some(executable), grace, confinement: None }
    }

    /// Children run directly, each in a process group that is killed when its leash is dropped.
    ///
    /// For embedders without a guard executable: a killed parent leaves such children behind.
    #[must_use]
    pub fn unguarded() -> Self {
        Self { guard: None, grace: Duration::ZERO, confinement: None }
    }

    /// The same, but its children may change and reach no more than `confinement` says; with `None` they may do all
    /// that this process may. Without a guard nothing enforces it, so nothing starts.
    #[must_use]
    pub fn confined(&self, confinement: Option<Confinement>) -> Self {
        Self { confinement, ..self.clone() }
    }

    /// Hands `spawn` the command that starts `program` with `args`, and returns what it made with the leash.
    ///
    /// `spawn` sets folder, environment and standard streams, starts the command, and returns the child with its
    /// process id. Dropping the leash ends the child and all its descendants.
    pub fn spawn<T>(
        &self,
        program: &OsStr,
        args: &[OsString],
        spawn: impl FnOnce(Command) -> io::Result<(T, u32)>,
    ) -> io::Result<(T, Leash)> {
        let Some(guard) = &self.guard else {
            if self.confinement.is_some() {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "there is no guard to confine the program"));
            }
            let mut command = Command::new(program);
            command.args(args).process_group(0);
            let (child, pid) = spawn(command)?;
            return Ok((child, Leash::Group(pid)));
        };
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mut command = Command::new(guard);
        command
            .arg(SUBCOMMAND)
            .args(self.common())
            .arg(format!("{LEASH}{}", reader.as_raw_fd()))
            .args(self.confinement.iter().flat_map(Confinement::to_args))
            .arg("--")
            .arg(program)
            .args(args)
            // Ctrl-C in the parent's terminal is the parent's business: it decides what ends, and how.
            .process_group(0);
        let (child, _) = spawn(command)?;
        Ok((child, Leash::Pipe { _reader: reader, _writer: writer }))
    }

    /// The command that starts a guard for [`Job`]s. `None` without a guard, and where programs are confined: those
    /// have a guard each, which can't do for another one what it did to itself.
    ///
    /// Its standard input and output are to be pipes; closing the former is dropping the leash.
    #[must_use]
    pub fn for_jobs(&self) -> Option<Command> {
        let guard = self.guard.as_ref().filter(|_| self.confinement.is_none())?;
        let mut command = Command::new(guard);
        command.arg(SUBCOMMAND).args(self.common()).arg(JOBS).process_group(0);
        Some(command)
    }

    fn common(&self) -> [String; 2] {
        [format!("{PARENT}{}", std::process::id()), format!("{GRACE}{}", self.grace.as_millis())]
    }
}

/// Keeps a child alive; dropping it ends the child's whole tree.
#[derive(Debug)]
pub enum Leash {
    /// The pipe that a guard watches. The reader stays here so that the guard can open it whenever it gets to run.
    #[doc(hidden)]
    Pipe { _reader: OwnedFd, _writer: OwnedFd },
    /// The process group to kill.
    #[doc(hidden)]
    Group(u32),
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Self::Group(pid) = self
            && let Some(group) = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw)
        {
            // The group may be gone already, which is what we want.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

const PARENT: &str = "--parent=";
const GRACE: &str = "--grace-ms=";
const LEASH: &str = "--leash=";
const JOBS: &str = "--jobs";

/// What a guard was told on its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Process id of the parent that holds the leash.
    pub parent: u32,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// What it is there for.
    pub duty: Duty,
}

/// What a guard is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The [`Job`]s that its standard input names.
    Jobs,
    /// One program.
    One {
        /// The leash pipe's descriptor in the parent.
        leash: u32,
        /// What the program may change and reach; `None` for all.
        confinement: Option<Confinement>,
        /// The program to run.
        program: OsString,
        /// Its arguments.
        args: Vec<OsString>,
    },
}

impl WatchOptions {
    /// Reads the arguments that follow [`SUBCOMMAND`]; `None` if they are not what [`Spawner::spawn`] or
    /// [`Spawner::for_jobs`] writes.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let number = |arg: &OsStr, name: &str| arg.to_str()?.strip_prefix(name)?.parse::<u32>().ok();
        let parent = number(&args.next()?, PARENT)?;
        let grace = Duration::from_millis(u64::from(number(&args.next()?, GRACE)?));
        let third = args.next()?;
        let duty = if third == JOBS {
            if args.next().is_some() {
                return None;
            }
            Duty::Jobs
        } else {
            let leash = number(&third, LEASH)?;
            let limits: Vec<OsString> = args.by_ref().take_while(|arg| arg != "--").collect();
            let confinement = if limits.is_empty() { None } else { Some(Confinement::parse(&limits)?) };
            Duty::One { leash, confinement, program: args.next()?, args: args.collect() }
        };
        Some(Self { parent, grace, duty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(args: &[&str]) -> Vec<OsString> {
        args.iter().map(Into::into).collect()
    }

    #[test]
    fn parses_what_the_spawner_writes() {
        let read = |args: &[&str]| WatchOptions::parse(os(args));
        let (parent, grace) = (7, Duration::from_millis(250));
        let one = Duty::One { leash: 5, confinement: None, program: "sh".into(), args: os(&["-c", "true"]) };
        assert_eq!(
            read(&["--parent=7", "--grace-ms=250", "--leash=5", "--", "sh", "-c", "true"]),
            Some(WatchOptions { parent, grace, duty: one })
        );
        assert_eq!(
            read(&["--parent=7", "--grace-ms=250", "--jobs"]),
            Some(WatchOptions { parent, grace, duty: Duty::Jobs })
        );
        for odd in [
            &["--parent=7", "--", "sh"][..],
            &["--parent=7", "--grace-ms=1", "--leash=5", "--confined=maybe", "--", "sh"],
            &["--parent=x", "--grace-ms=1", "--leash=5", "--", "sh"],
            &["--parent=7", "--grace-ms=1", "--jobs", "--", "sh"],
            &["--parent=7", "--grace-ms=1"],
        ] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn an_unguarded_child_dies_with_its_leash() {
        let (mut child, leash) = Spawner::unguarded()
            .spawn("sleep".as_ref(), &os(&["100"]), |mut command| {
                let child = command.spawn()?;
                let pid = child.id();
                Ok((child, pid))
            })
            .unwrap();
        drop(leash);
        assert!(!child.wait().unwrap().success());
    }
}
