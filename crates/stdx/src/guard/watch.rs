//! The guard's own life: start a program, wait for its exit or the leash, leave nothing behind.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::jobs::{self, Job};
use super::{Duty, WatchOptions, tree};

/// How a guarded program ended; the guard itself ends the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(u8),
    /// It was ended by this signal.
    Signal(i32),
}

impl End {
    /// Ends this process the way the program ended, so that whoever waits for the guard learns the truth.
    ///
    /// Returns an exit code (128 + signal) only where the signal does not end a process.
    #[must_use]
    pub fn mirror(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                128_u8.saturating_add(u8::try_from(signal).unwrap_or(127))
            }
        }
    }
}

pub(super) enum Wake {
    Exited(Pid, WaitStatus),
    NoChildren,
    LeashGone,
    Job(Job),
}

/// How long KILL may take to empty the tree before the guard gives up on it (uninterruptible processes).
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Does what the guard is there for. How it is to end.
///
/// An error means that a program never ran.
pub fn watch(options: &WatchOptions) -> io::Result<End> {
    let WatchOptions { parent, grace, duty } = options;
    match duty {
        Duty::Jobs => jobs::serve(*parent, *grace).map(|()| End::Code(0)),
        Duty::One { leash, confinement, program, args } => {
            let leash = File::open(format!("/proc/{parent}/fd/{leash}"))?;
            let mut watch = Watch::start()?;
            watch_leash(leash, watch.sender());
            // The threads stay free; what this one starts from here on is confined like it.
            let mut command = match confinement {
                Some(confinement) => confinement.enter(program, args)?,
                None => {
                    let mut command = Command::new(program);
                    command.args(args);
                    command
                }
            };
            command.process_group(0);
            let leader = watch.run(command)?;
            Ok(watch.until_over(leader, *grace))
        }
    }
}

/// What the guard knows of its tree, of its leash, and of jobs to come.
pub(super) struct Watch {
    wake: Sender<Wake>,
    wakes: Receiver<Wake>,
    reaper: Option<JoinHandle<()>>,
    leash_gone: bool,
}

/// A program that was started: it leads its own process group.
#[derive(Clone, Copy)]
pub(super) struct Leader(Pid);

impl Leader {
    pub(super) fn pid(self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }
}

impl Watch {
    pub(super) fn start() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (wake, wakes) = channel();
        watch_signals(wake.clone())?;
        Ok(Self { wake, wakes, reaper: None, leash_gone: false })
    }

    pub(super) fn sender(&self) -> Sender<Wake> {
        self.wake.clone()
    }

    /// The next job; `None` once there will be none.
    pub(super) fn next_job(&mut self, wait: Duration) -> Option<Job> {
        let deadline = Instant::now() + wait;
        while !self.leash_gone {
            match self.wakes.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Wake::Job(job)) => return Some(job),
                Ok(Wake::LeashGone) => self.leash_gone = true,
                // Of the job before.
                Ok(Wake::Exited(..) | Wake::NoChildren) => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Starts a program. Nothing of another one is left.
    pub(super) fn run(&mut self, mut command: Command) -> io::Result<Leader> {
        let child = command.spawn()?;
        let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        // Reaped by the thread, together with every adopted orphan; `Child::wait` would race with that.
        drop(child);
        self.reaper = Some(reap(self.wake.clone()));
        Ok(Leader(leader))
    }

    /// Waits for the program's exit, or for the leash, and ends what is left of its tree.
    pub(super) fn until_over(&mut self, Leader(leader): Leader, grace: Duration) -> End {
        let mut end = None;
        while end.is_none() && !self.leash_gone {
            match self.wakes.recv() {
                Ok(Wake::Exited(pid, status)) if pid == leader => end = Some(end_of(status)),
                Ok(Wake::Exited(..)) => {}
                Ok(Wake::LeashGone) => self.leash_gone = true,
                // A job beside another is not what was agreed on.
                Ok(Wake::NoChildren | Wake::Job(_)) | Err(_) => break,
            }
        }
        self.end_tree(leader, end, grace)
    }

    /// TERM, up to `grace`, then KILL, until no descendant is left. Returns how the leader ended.
    fn end_tree(&mut self, leader: Pid, mut end: Option<End>, grace: Duration) -> End {
        for (signal, wait) in [(Signal::TERM, grace), (Signal::KILL, KILL_WAIT)] {
            let deadline = Instant::now() + wait;
            while !tree::descendants().is_empty() {
                // Again on each round: a dying parent may have started one more child.
                tree::signal_all(leader, signal);
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                match self.wakes.recv_timeout(left.min(Duration::from_millis(50))) {
                    Ok(Wake::Exited(pid, status)) if pid == leader => end = Some(end_of(status)),
                    Ok(Wake::LeashGone) => self.leash_gone = true,
                    Ok(Wake::Exited(..) | Wake::Job(_)) | Err(RecvTimeoutError::Timeout) => {}
                    Ok(Wake::NoChildren) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
        end.unwrap_or_else(|| self.last_words(leader))
    }

    /// The leader's exit may still be queued behind the message that ended the loop.
    fn last_words(&mut self, leader: Pid) -> End {
        let mut end = End::Signal(SIGTERM);
        for wake in self.wakes.try_iter() {
            match wake {
                Wake::Exited(pid, status) if pid == leader => end = end_of(status),
                Wake::LeashGone => self.leash_gone = true,
                Wake::Exited(..) | Wake::NoChildren | Wake::Job(_) => {}
            }
        }
        end
    }

    /// Whether nothing is left of the program, and another one may be run.
    pub(super) fn is_free(&mut self) -> bool {
        if !tree::descendants().is_empty() {
            return false;
        }
        // Without children it ends by itself. What it said until then is not about the next program.
        let joined = self.reaper.take().is_none_or(|reaper| reaper.join().is_ok());
        self.leash_gone |= self.wakes.try_iter().any(|wake| matches!(wake, Wake::LeashGone));
        joined && !self.leash_gone
    }
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Code(1),
    }
}

fn watch_leash(mut leash: File, wake: Sender<Wake>) {
    thread::spawn(move || {
        // Nobody ever writes: the read ends when the last writer is gone.
        let _ = leash.read(&mut [0]);
        let _ = wake.send(Wake::LeashGone);
    });
}

fn watch_signals(wake: Sender<Wake>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = wake.send(Wake::LeashGone);
        }
    });
    Ok(())
}

fn reap(wake: Sender<Wake>) -> JoinHandle<()> {
    thread::spawn(move || {
        loop {
            let message = match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => Wake::Exited(pid, status),
                Ok(None) | Err(rustix::io::Errno::INTR) => continue,
                Err(_) => Wake::NoChildren,
            };
            let done = matches!(message, Wake::NoChildren);
            if wake.send(message).is_err() || done {
                return;
            }
        }
    })
}
