//! The guard's own life: start the program, wait for its exit or the leash, leave nothing behind.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{WatchOptions, tree};

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

enum Wake {
    Exited(Pid, WaitStatus),
    NoChildren,
    LeashGone,
}

/// How long KILL may take to empty the tree before the guard gives up on it (uninterruptible processes).
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Runs the program until it exits or the leash is gone, then ends whatever it left behind.
///
/// An error means that the program never ran.
pub fn watch(options: &WatchOptions) -> io::Result<End> {
    let leash = File::open(format!("/proc/{}/fd/{}", options.parent, options.leash))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (wake, wakes) = channel();
    watch_leash(leash, wake.clone());
    watch_signals(wake.clone())?;
    // The threads above stay free; what this one starts from here on is confined like it.
    let mut command = match &options.confinement {
        Some(confinement) => confinement.enter(&options.program, &options.args)?,
        None => {
            let mut command = Command::new(&options.program);
            command.args(&options.args);
            command
        }
    };
    let child = command.process_group(0).spawn()?;
    let leader = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    // Reaped below together with every adopted orphan; `Child::wait` would race with that.
    drop(child);
    reap(wake);
    let mut end = None;
    while end.is_none() {
        match wakes.recv() {
            Ok(Wake::Exited(pid, status)) if pid == leader => end = Some(end_of(status)),
            Ok(Wake::Exited(..)) => {}
            Ok(Wake::LeashGone | Wake::NoChildren) | Err(_) => break,
        }
    }
    Ok(end_tree(leader, end, options.grace, &wakes))
}

/// TERM, up to `grace`, then KILL, until no descendant is left. Returns how the leader ended.
fn end_tree(leader: Pid, mut end: Option<End>, grace: Duration, wakes: &Receiver<Wake>) -> End {
    for (signal, wait) in [(Signal::TERM, grace), (Signal::KILL, KILL_WAIT)] {
        let deadline = Instant::now() + wait;
        while !tree::descendants().is_empty() {
            // Again on each round: a dying parent may have started one more child.
            tree::signal_all(leader, signal);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match wakes.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(Wake::Exited(pid, status)) if pid == leader => end = Some(end_of(status)),
                Ok(Wake::Exited(..) | Wake::LeashGone) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Wake::NoChildren) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }
    end.unwrap_or_else(|| last_words(leader, wakes))
}

/// The leader's exit may still be queued behind the message that ended the loop.
fn last_words(leader: Pid, wakes: &Receiver<Wake>) -> End {
    wakes
        .try_iter()
        .find_map(|wake| match wake {
            Wake::Exited(pid, status) if pid == leader => Some(end_of(status)),
            Wake::Exited(..) | Wake::NoChildren | Wake::LeashGone => None,
        })
        .unwrap_or(End::Signal(SIGTERM))
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

fn reap(wake: Sender<Wake>) {
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
    });
}
