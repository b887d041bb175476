//! One running command.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use convoke_stdx::guard::{Answer, Confinement, End, Job, Leash};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Child;

use super::guards::{Begun, Guard, Guards, unasked};

/// How long a guard may take to end a tree before it is itself killed. Longer than its own grace and kill time.
const END_WAIT: Duration = Duration::from_secs(6);

/// How long output is still read once the command has exited: a process that left the tree may hold the pipe open for
/// ever, so the end of the pipe is never waited for without a limit.
const DRAIN_WAIT: Duration = Duration::from_millis(500);

/// How to start a command.
pub(crate) struct Launch<'a> {
    pub(crate) guards: &'a Guards,
    pub(crate) confinement: Option<Confinement>,
    pub(crate) command: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) set: &'a [(String, String)],
    pub(crate) unset: &'a [String],
}

/// A command that runs. Dropping it ends the command and what it started.
#[derive(Debug)]
pub(crate) struct Running {
    held: Held,
    output: Option<pipe::Receiver>,
    pid: u32,
}

/// What ends with the command, or ends it.
#[derive(Debug)]
enum Held {
    /// A guard that runs it, and where it goes then.
    Guard { guard: Box<Guard>, guards: Guards },
    /// A process of its own: the command, or a guard for it alone.
    Child { child: Child, leash: Option<Leash> },
    /// Nothing any more.
    Over(Exit),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        Self { code: status.code(), signal: status.signal() }
    }
}

impl From<End> for Exit {
    fn from(end: End) -> Self {
        match end {
            End::Code(code) => Self { code: Some(code.into()), signal: None },
            End::Signal(signal) => Self { code: None, signal: Some(signal) },
        }
    }
}

const SHELL: &str = "bash";

impl Launch<'_> {
    /// Starts `bash -c COMMAND`.
    pub(crate) async fn start(self) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        let output = Some(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?);
        if self.confinement.is_none() {
            match self.guards.begin(&self.job(&writer)).await? {
                Some(Begun::Runs(guard, pid)) => {
                    let held = Held::Guard { guard, guards: self.guards.clone() };
                    return Ok(Running { held, output, pid });
                }
                Some(Begun::Failed(error)) => return Err(error),
                None => {}
            }
        }
        let (child, pid, leash) = self.start_child(writer)?;
        Ok(Running { held: Held::Child { child, leash: Some(leash) }, output, pid })
    }

    fn args(&self) -> [OsString; 2] {
        ["-c".into(), self.command.into()]
    }

    fn job(&self, output: &io::PipeWriter) -> Job {
        Job {
            output: output.as_raw_fd().unsigned_abs(),
            folder: self.folder.to_owned(),
            set: self.set.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            unset: self.unset.iter().map(Into::into).collect(),
            program: SHELL.into(),
            args: self.args().to_vec(),
        }
    }

    fn start_child(self, writer: io::PipeWriter) -> io::Result<(Child, u32, Leash)> {
        let errors = writer.try_clone()?;
        let args = self.args();
        let spawner = self.guards.spawner().confined(self.confinement);
        let ((child, pid), leash) = spawner.spawn(SHELL.as_ref(), &args, |mut command| {
            command
                .current_dir(self.folder)
                .stdin(Stdio::null())
                .stdout(Stdio::from(writer))
                .stderr(Stdio::from(errors))
                .envs(self.set.iter().map(|(name, value)| (name, value)));
            for name in self.unset {
                command.env_remove(name);
            }
            let child = tokio::process::Command::from(command).spawn()?;
            let pid = child.id().ok_or_else(|| io::Error::other("the child has no process id"))?;
            Ok(((child, pid), pid))
        })?;
        Ok((child, pid, leash))
    }
}

impl Held {
    /// Waits until it is over. Cancel-safe.
    async fn wait(&mut self) -> io::Result<Exit> {
        let exit = match self {
            Self::Over(exit) => return Ok(*exit),
            Self::Child { child, .. } => child.wait().await?.into(),
            Self::Guard { guard, .. } => match guard.answer().await? {
                Some(Answer::Ended(end)) => end.into(),
                Some(Answer::Taken | Answer::Started(_) | Answer::Failed { .. }) => return Err(unasked()),
                // Somebody ended the guard, which is the last thing that is known of the command.
                None => guard.child().wait().await?.into(),
            },
        };
        if let Self::Guard { guard, guards } = std::mem::replace(self, Self::Over(exit)) {
            guards.give_back(guard);
        }
        Ok(exit)
    }

    fn drop_leash(&mut self) {
        match self {
            Self::Guard { guard, .. } => guard.drop_leash(),
            Self::Child { leash, .. } => *leash = None,
            Self::Over(_) => {}
        }
    }

    fn kill(&mut self) {
        let child = match self {
            Self::Guard { guard, .. } => guard.child(),
            Self::Child { child, .. } => child,
            Self::Over(_) => return,
        };
        // It may be gone already, which is the aim.
        let _ = child.start_kill();
    }
}

/// What a command did.
pub(crate) enum Happened {
    /// It printed this many bytes into the buffer.
    Output(usize),
    /// It exited. More output may follow: see [`Running::drain`].
    Exited(Exit),
}

impl Running {
    /// The process id. Of a command with a guard for it alone it is the guard's.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether [`Self::pid`] is that of a guard.
    pub(crate) fn is_guarded(&self) -> bool {
        matches!(self.held, Held::Child { leash: Some(Leash::Pipe { .. }), .. })
    }

    /// Waits for the next thing. Cancel-safe.
    pub(crate) async fn next(&mut self, buffer: &mut [u8]) -> io::Result<Happened> {
        loop {
            let Some(output) = &mut self.output else {
                return Ok(Happened::Exited(self.held.wait().await?));
            };
            tokio::select! {
                biased;
                read = output.read(buffer) => match read {
                    Ok(0) | Err(_) => self.output = None,
                    Ok(count) => return Ok(Happened::Output(count)),
                },
                exit = self.held.wait() => return Ok(Happened::Exited(exit?)),
            }
        }
    }

    /// Ends what the command left behind, and reads what is still in the pipe.
    pub(crate) async fn drain(&mut self, mut keep: impl FnMut(&[u8])) {
        self.held.drop_leash();
        let Some(mut output) = self.output.take() else { return };
        let all = async {
            let mut buffer = [0; 8192];
            while let Ok(count) = output.read(&mut buffer).await {
                match buffer.get(..count) {
                    Some(bytes) if !bytes.is_empty() => keep(bytes),
                    _ => return,
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN_WAIT, all).await;
    }

    /// Ends the command and everything it started, and waits until that is done.
    pub(crate) async fn end(&mut self, mut keep: impl FnMut(&[u8])) -> Option<Exit> {
        self.held.drop_leash();
        let gone = async {
            let mut buffer = [0; 8192];
            loop {
                match self.next(&mut buffer).await {
                    Ok(Happened::Output(count)) => keep(buffer.get(..count).unwrap_or_default()),
                    Ok(Happened::Exited(exit)) => return Some(exit),
                    Err(_) => return None,
                }
            }
        };
        let exit = match tokio::time::timeout(END_WAIT, gone).await {
            Ok(exit) => exit,
            Err(_) => {
                self.held.kill();
                None
            }
        };
        self.drain(keep).await;
        exit
    }
}
