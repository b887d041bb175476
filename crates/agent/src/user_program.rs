//! One of the user's own programs as a child process (a hook, a discovered tool): fed, listened to, and ended for certain.
//!
//! The child runs under a leash: when the time is up, when it prints too much, when its call is cancelled or when it is
//! done, whatever is left of its tree is ended (TERM, a grace, KILL).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use convoke_stdx::guard::{Leash, Spawner};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, sleep_until};

/// Most bytes of one output stream. A rewritten file or request fits; a flood does not.
const OUTPUT_MAX: usize = 1 << 20;
/// How long output is still read once it has exited: what it left behind may hold the pipe.
const DRAIN_WAIT: Duration = Duration::from_millis(500);
/// How long a guard may take to end a tree before it is itself killed. Longer than its own grace and kill time.
const END_WAIT: Duration = Duration::from_secs(6);

/// How to run it.
pub(crate) struct Launch<'a> {
    pub(crate) spawner: &'a Spawner,
    pub(crate) command: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) set: &'a [(String, String)],
    pub(crate) unset: &'a [String],
    pub(crate) input: &'a [u8],
    pub(crate) timeout: Duration,
}

/// What it did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) duration: Duration,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself.
    Exited(i32),
    /// By a signal of somebody else.
    Signal(i32),
    /// It took too long.
    TimedOut(Duration),
    /// It printed too much.
    Flooded,
    /// It never ran.
    Failed(String),
}

impl End {
    pub(crate) fn code(&self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(*code),
            Self::Signal(_) | Self::TimedOut(_) | Self::Flooded | Self::Failed(_) => None,
        }
    }

    /// What went wrong, where it has not said it itself.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Exited(0) => None,
            Self::Exited(code) => Some(format!("it exited with code {code}")),
            Self::Signal(signal) => Some(format!("it was ended by signal {signal}")),
            Self::TimedOut(limit) => Some(format!("it took longer than {} ms and was ended", limit.as_millis())),
            Self::Flooded => Some(format!("it printed more than {OUTPUT_MAX} bytes and was ended")),
            Self::Failed(why) => Some(why.clone()),
        }
    }
}

/// One output stream.
struct Output<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Output<R> {
    fn new(pipe: Option<R>) -> Self {
        Self { pipe, kept: Vec::new() }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads some. Cancel-safe. Pending for ever once it is closed.
    async fn read(&mut self) {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        match pipe.read_buf(&mut self.kept).await {
            Ok(0) | Err(_) => self.pipe = None,
            Ok(_) => {}
        }
    }

    fn is_flooded(&self) -> bool {
        self.kept.len() > OUTPUT_MAX
    }

    fn text(mut self) -> String {
        self.kept.truncate(OUTPUT_MAX);
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// What is still to be said to it.
struct Input<'a> {
    pipe: Option<ChildStdin>,
    left: &'a [u8],
}

impl Input<'_> {
    /// Writes some and closes behind the last byte. Cancel-safe. Pending for ever once it is closed.
    async fn write(&mut self) {
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        match pipe.write(self.left).await {
            // A program need not read what it is told.
            Ok(0) | Err(_) => self.pipe = None,
            Ok(count) => self.left = self.left.get(count..).unwrap_or_default(),
        }
        if self.left.is_empty() {
            self.pipe = None;
        }
    }
}

impl Launch<'_> {
    fn start(&self) -> io::Result<(Child, Leash)> {
        let args: [OsString; 2] = ["-c".into(), self.command.into()];
        self.spawner.spawn("bash".as_ref(), &args, |mut command| {
            for name in self.unset {
                command.env_remove(name);
            }
            command
                .current_dir(self.folder)
                .envs(self.set.iter().map(|(name, value)| (name, value)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let child = tokio::process::Command::from(command).spawn()?;
            let pid = child.id().ok_or_else(|| io::Error::other("the child has no process id"))?;
            Ok((child, pid))
        })
    }

    /// Runs the hook to its end. Cancellation: dropping the future ends the hook's tree.
    pub(crate) async fn run(self) -> Ran {
        let begun = Instant::now();
        let (mut child, leash) = match self.start() {
            Ok(started) => started,
            Err(error) => {
                let end = End::Failed(format!("start it: {error}"));
                return Ran { end, stdout: String::new(), stderr: String::new(), duration: begun.elapsed() };
            }
        };
        let mut leash = Some(leash);
        let mut stdout = Output::new(child.stdout.take());
        let mut stderr = Output::new(child.stderr.take());
        let mut input = Input { pipe: child.stdin.take(), left: self.input };
        let mut deadline = begun + self.timeout;
        let mut exited = None;
        let end = loop {
            if stdout.is_flooded() || stderr.is_flooded() {
                break End::Flooded;
            }
            if let Some(end) = exited.clone().filter(|_| !stdout.is_open() && !stderr.is_open()) {
                break end;
            }
            tokio::select! {
                () = stdout.read() => {}
                () = stderr.read() => {}
                () = input.write() => {}
                status = child.wait(), if exited.is_none() => {
                    exited = Some(match status {
                        Ok(status) => match (status.code(), status.signal()) {
                            (Some(code), _) => End::Exited(code),
                            (None, signal) => End::Signal(signal.unwrap_or(0)),
                        },
                        Err(error) => End::Failed(format!("wait for it: {error}")),
                    });
                    leash = None;
                    deadline = Instant::now() + DRAIN_WAIT;
                }
                () = sleep_until(deadline) => break exited.clone().unwrap_or(End::TimedOut(self.timeout)),
            }
        };
        drop((leash, input));
        if exited.is_none() && tokio::time::timeout(END_WAIT, child.wait()).await.is_err() {
            let _ = child.start_kill();
        }
        Ran { end, stdout: stdout.text(), stderr: stderr.text(), duration: begun.elapsed() }
    }
}
