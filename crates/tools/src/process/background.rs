//! Commands that go on after their call: they live as long as their session, and no longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use convoke_stdx::guard::program_of;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Capture, Exit, Happened, Running};

/// Bounds of one session's background commands.
#[derive(Clone, Copy, Debug)]
pub struct BackgroundLimits {
    /// Commands at a time.
    pub running_max: usize,
    /// Commands that ended and whose output can still be read.
    pub ended_max: usize,
    /// Bytes of output kept of each: half from the beginning, half from the end.
    pub output_bytes_max: usize,
}

impl Default for BackgroundLimits {
    fn default() -> Self {
        // Servers and watchers, a handful at a time; 64 MiB in the worst case.
        Self { running_max: 32, ended_max: 32, output_bytes_max: 1 << 20 }
    }
}

/// One background command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundProcess {
    /// The process id that was told to the model.
    pub pid: u32,
    /// The command.
    pub command: String,
    /// What it does now.
    pub status: BackgroundStatus,
    /// Bytes printed so far.
    pub total_bytes: u64,
}

/// What a background command does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundStatus {
    /// It runs.
    Running,
    /// It ended.
    Ended {
        /// Its exit code.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

struct Entry {
    command: String,
    /// Whether the process that was started is a guard.
    is_guarded: bool,
    /// The program below the guard, once it was seen. Its id is the one to tell: a guard that is killed can't take the
    /// program with it, a program that is killed is noticed by its guard.
    program: OnceLock<u32>,
    capture: Arc<Mutex<Capture>>,
    status: watch::Receiver<BackgroundStatus>,
}

#[derive(Default)]
struct Table {
    /// In the order in which they were started.
    entries: BTreeMap<u64, (u32, Entry)>,
    tasks: JoinSet<()>,
    started: u64,
    closed: bool,
}

/// The background commands of one session, and their owner: [`Self::close`] or dropping it ends them all.
pub struct BackgroundProcesses {
    limits: BackgroundLimits,
    ending: CancellationToken,
    table: Mutex<Table>,
}

/// Why a command can't go to the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdoptError {
    #[error("too many background processes are running ({0}); end one of them first")]
    TooMany(usize),
    #[error("the session is closed")]
    Closed,
}

impl BackgroundProcesses {
    /// Nothing in the background yet.
    #[must_use]
    pub fn new(limits: BackgroundLimits) -> Self {
        Self { limits, ending: CancellationToken::new(), table: Mutex::default() }
    }

    /// All commands, oldest first; some that ended are still there.
    #[must_use]
    pub fn list(&self) -> Vec<BackgroundProcess> {
        self.lock().entries.values().map(|(pid, entry)| entry.describe(*pid)).collect()
    }

    /// The end of a command's output, at most `bytes_max` bytes, and what the command does now.
    #[must_use]
    pub fn output(&self, pid: u32, bytes_max: usize) -> Option<(BackgroundProcess, String)> {
        let table = self.lock();
        // A process id can come back; the newest one is meant.
        let (started, entry) = table.find(pid)?;
        let text = lock_capture(&entry.capture).end(bytes_max);
        Some((entry.describe(*started), text))
    }

    /// Ends all commands and waits until they are gone. None can be started afterwards.
    pub async fn close(&self) {
        self.ending.cancel();
        let mut tasks = {
            let mut table = self.lock();
            table.closed = true;
            std::mem::take(&mut table.tasks)
        };
        while tasks.join_next().await.is_some() {}
    }

    /// Takes over a command that was just started.
    pub(crate) fn adopt(&self, running: Running, command: &str) -> Result<u32, AdoptError> {
        let (pid, is_guarded) = (running.pid(), running.is_guarded());
        let (status_sender, status) = watch::channel(BackgroundStatus::Running);
        let capture = Arc::new(Mutex::new(Capture::new(self.limits.output_bytes_max)));
        let mut table = self.lock();
        if table.closed {
            return Err(AdoptError::Closed);
        }
        table.forget_ended(self.limits.ended_max);
        let now_running = table.entries.values().filter(|(_, entry)| entry.is_running()).count();
        if now_running >= self.limits.running_max {
            return Err(AdoptError::TooMany(now_running));
        }
        while table.tasks.try_join_next().is_some() {}
        table.tasks.spawn(watch_over(running, Arc::clone(&capture), status_sender, self.ending.clone()));
        table.started += 1;
        let key = table.started;
        let program = OnceLock::new();
        table.entries.insert(key, (pid, Entry { command: command.to_owned(), is_guarded, program, capture, status }));
        Ok(pid)
    }

    /// Waits until the command ends, `delay` at most.
    pub(crate) async fn settle(&self, pid: u32, delay: Duration) {
        let status = {
            let table = self.lock();
            table.find(pid).map(|(_, entry)| entry.status.clone())
        };
        if let Some(mut status) = status {
            let ended = status.wait_for(|status| *status != BackgroundStatus::Running);
            let _ = tokio::time::timeout(delay, ended).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The command that was told under this id, or started under it.
    fn find(&self, pid: u32) -> Option<&(u32, Entry)> {
        self.entries.values().rev().find(|(started, entry)| *started == pid || entry.told(*started) == pid)
    }

    fn forget_ended(&mut self, ended_max: usize) {
        let ended: Vec<u64> =
            self.entries.iter().filter(|(_, (_, entry))| !entry.is_running()).map(|(key, _)| *key).collect();
        for key in ended.iter().take(ended.len().saturating_sub(ended_max)) {
            self.entries.remove(key);
        }
    }
}

impl Entry {
    fn is_running(&self) -> bool {
        *self.status.borrow() == BackgroundStatus::Running
    }

    /// The id to tell of a command that was started under this one.
    fn told(&self, started: u32) -> u32 {
        if self.is_guarded
            && self.program.get().is_none()
            && self.is_running()
            && let Some(program) = program_of(started)
        {
            // Whoever was first saw the same.
            let _ = self.program.set(program);
        }
        self.program.get().copied().unwrap_or(started)
    }

    fn describe(&self, started: u32) -> BackgroundProcess {
        let (pid, total_bytes) = (self.told(started), lock_capture(&self.capture).total());
        BackgroundProcess { pid, command: self.command.clone(), status: *self.status.borrow(), total_bytes }
    }
}

fn lock_capture(capture: &Mutex<Capture>) -> MutexGuard<'_, Capture> {
    capture.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps reading until the command ends or is ended. Aborting it drops the leash, which ends the command as well.
async fn watch_over(
    mut running: Running,
    capture: Arc<Mutex<Capture>>,
    status: watch::Sender<BackgroundStatus>,
    ending: CancellationToken,
) {
    let keep = |bytes: &[u8]| lock_capture(&capture).push(bytes);
    let mut buffer = [0; 8192];
    let exit = loop {
        tokio::select! {
            happened = running.next(&mut buffer) => match happened {
                Ok(Happened::Output(count)) => keep(buffer.get(..count).unwrap_or_default()),
                Ok(Happened::Exited(exit)) => {
                    running.drain(keep).await;
                    break Some(exit);
                }
                Err(_) => break None,
            },
            () = ending.cancelled() => break running.end(keep).await,
        }
    };
    let Exit { code, signal } = exit.unwrap_or(Exit { code: None, signal: None });
    let _ = status.send(BackgroundStatus::Ended { code, signal });
}
