//! One running command.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use convoke_stdx::guard::{Leash, Spawner};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// How long a guard may take to end a tree before it is itself killed. Longer than its own grace and kill time.
const END_WAIT: Duration = Duration::from_secs(6);

/// How long output is still read once the command has exited: a process that left the tree may hold the pipe open for
/// ever, so the end of the pipe is never waited for without a limit.
const DRAIN_WAIT: Duration = Duration::from_millis(500);

/// How to start a command.
pub(crate) struct Launch<'a> {
    pub(crate) spawner: &'a Spawner,
    pub(crate) command: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) set: &'a [(String, String)],
    pub(crate) unset: &'a [String],
}

/// A command that runs. Dropping it ends the command and what it started.
#[derive(Debug)]
pub(crate) struct Running {
    child: tokio::process::Child,
    leash: Option<Leash>,
    output: Option<pipe::Receiver>,
    pid: u32,
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

impl Launch<'_> {
    /// Starts `bash -c COMMAND`.
    pub(crate) fn start(self) -> io::Result<Running> {
        let (reader, writer) = io::pipe()?;
        let errors = writer.try_clone()?;
        let args: [OsString; 2] = ["-c".into(), self.command.into()];
        let ((child, pid), leash) = self.spawner.spawn("bash".as_ref(), &args, |mut command| {
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
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        Ok(Running { child, leash: Some(leash), output: Some(output), pid })
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
    /// The process id. With a guard it is the guard's: ending it ends the whole tree.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether [`Self::pid`] is that of a guard.
    pub(crate) fn is_guarded(&self) -> bool {
        matches!(self.leash, Some(Leash::Pipe { .. }))
    }

    /// Waits for the next thing. Cancel-safe.
    pub(crate) async fn next(&mut self, buffer: &mut [u8]) -> io::Result<Happened> {
        loop {
            let Some(output) = &mut self.output else {
                return Ok(Happened::Exited(self.child.wait().await?.into()));
            };
            tokio::select! {
                biased;
                read = output.read(buffer) => match read {
                    Ok(0) | Err(_) => self.output = None,
                    Ok(count) => return Ok(Happened::Output(count)),
                },
                status = self.child.wait() => return Ok(Happened::Exited(status?.into())),
            }
        }
    }

    /// Ends what the command left behind, and reads what is still in the pipe.
    pub(crate) async fn drain(&mut self, mut keep: impl FnMut(&[u8])) {
        self.leash = None;
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
        self.leash = None;
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
                let _ = self.child.start_kill();
                None
            }
        };
        self.drain(keep).await;
        exit
    }
}
