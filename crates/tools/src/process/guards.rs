//! Guards that run one command after the other: starting one costs more than most commands do.

use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use convoke_stdx::guard::{Answer, Job, Spawner};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

/// Bytes of a guard's answer, about.
const ANSWER_BYTES: usize = 256;

/// Who starts commands, and guards that wait for one. Clones share them.
///
/// One guard waits at most: commands that run at the same time are few, and more often one follows the other. It ends by
/// itself when nothing comes for a while.
#[derive(Clone, Debug)]
pub struct Guards {
    spawner: Spawner,
    waiting: Arc<Mutex<Option<Box<Guard>>>>,
}

/// A guard for one job at a time. Dropping it ends what it runs.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    /// The leash.
    jobs: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What came of a job that a guard took.
pub(super) enum Begun {
    Runs(Box<Guard>, u32),
    Failed(io::Error),
}

impl Guards {
    /// Guards that `spawner` starts.
    #[must_use]
    pub fn new(spawner: Spawner) -> Self {
        Self { spawner, waiting: Arc::default() }
    }

    pub(super) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// Has a guard run `job`. `None` where there are no guards.
    pub(super) async fn begin(&self, job: &Job) -> io::Result<Option<Begun>> {
        let Some(command) = self.spawner.for_jobs() else { return Ok(None) };
        let bytes = job.to_bytes()?;
        let waiting = match self.take() {
            // It may have ended just now.
            Some(mut guard) => guard.give(&bytes).await.ok().map(|()| guard),
            None => None,
        };
        let mut guard = match waiting {
            Some(guard) => guard,
            None => {
                let mut guard = Box::new(Guard::start(command)?);
                guard.give(&bytes).await?;
                guard
            }
        };
        let answer = guard.expect().await?;
        self.begun(guard, answer).map(Some)
    }

    fn begun(&self, guard: Box<Guard>, answer: Answer) -> io::Result<Begun> {
        match answer {
            Answer::Started(pid) => Ok(Begun::Runs(guard, pid)),
            Answer::Failed { errno, message } => {
                self.give_back(guard);
                let error = errno.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error);
                Ok(Begun::Failed(error))
            }
            Answer::Taken | Answer::Ended(_) => Err(unasked()),
        }
    }

    fn take(&self) -> Option<Box<Guard>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A guard whose job is over.
    pub(super) fn give_back(&self, guard: Box<Guard>) {
        if guard.jobs.is_some() {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(guard);
        }
    }
}

impl Guard {
    fn start(command: std::process::Command) -> io::Result<Self> {
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(no_pipe)?;
        let answers = BufReader::with_capacity(ANSWER_BYTES, stdout).lines();
        Ok(Self { jobs: Some(child.stdin.take().ok_or_else(no_pipe)?), answers, child })
    }

    /// An error means that nothing was started, and will not be.
    async fn give(&mut self, job: &[u8]) -> io::Result<()> {
        self.jobs.as_mut().ok_or_else(no_pipe)?.write_all(job).await?;
        if self.expect().await? == Answer::Taken { Ok(()) } else { Err(unasked()) }
    }

    async fn expect(&mut self) -> io::Result<Answer> {
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "somebody ended its guard");
        self.answer().await?.ok_or_else(gone)
    }

    /// What it says next; `None` once it is gone. Cancel-safe.
    pub(super) async fn answer(&mut self) -> io::Result<Option<Answer>> {
        self.answers.next_line().await?.map(|line| line.parse()).transpose()
    }

    /// Has it end what it runs, and itself.
    pub(super) fn drop_leash(&mut self) {
        self.jobs = None;
    }

    /// The process itself.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

pub(super) fn unasked() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a guard said what nobody asked")
}

fn no_pipe() -> io::Error {
    io::Error::other("a guard has no pipe")
}
