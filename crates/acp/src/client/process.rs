//! The agent as a process: its pipes, its last words, its end.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use convoke_stdx::guard::{Leash, Spawner};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use super::command::AgentCommand;
use super::error::StartError;

/// How much of stderr is kept for the error that an exit becomes.
const STDERR_TAIL_MAX: usize = 64 * 1024;

/// The longest line of stderr that goes to the log in one piece.
const LOG_LINE_MAX: usize = 4096;

/// How long the end of stderr may take once the process is gone: something that it started may hold the pipe open.
const STDERR_WAIT: Duration = Duration::from_millis(250);

/// How long a guard may take to end its tree: its own grace and two seconds of KILL, with room for a loaded machine.
const LEASH_WAIT: Duration = Duration::from_secs(30);

/// The last [`STDERR_TAIL_MAX`] bytes of an output.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let over = tail.len().saturating_sub(STDERR_TAIL_MAX);
        tail.drain(..over);
    }

    /// As text; a character that was cut in the middle shows as a replacement.
    pub(super) fn text(&self) -> String {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }
}

/// A running agent.
pub(super) struct Process {
    child: Child,
    leash: Option<Leash>,
    tail: Tail,
    stderr: JoinSet<()>,
}

/// Starts `command` on a leash.
pub(super) fn start(
    command: &AgentCommand,
    spawner: &Spawner,
) -> Result<(Process, ChildStdin, ChildStdout), StartError> {
    let failed = |source| StartError::Spawn { program: command.program.clone(), source };
    let spawned = spawner.spawn(&command.program, &command.args, |mut built| {
        for name in &command.env_remove {
            built.env_remove(name);
        }
        built.envs(command.env_set.iter().map(|(name, value)| (name, value)));
        built.current_dir(&command.cwd).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Command::from(built).spawn()?;
        let pid = child.id().unwrap_or_default();
        Ok((child, pid))
    });
    let (mut child, leash) = spawned.map_err(failed)?;
    let pipe = || failed(std::io::Error::other("a standard stream is missing"));
    let (stdin, stdout) = (child.stdin.take().ok_or_else(pipe)?, child.stdout.take().ok_or_else(pipe)?);
    let tail = Tail::default();
    let mut stderr = JoinSet::new();
    if let Some(pipe) = child.stderr.take() {
        stderr.spawn(follow_stderr(pipe, tail.clone(), child.id()));
    }
    Ok((Process { child, leash: Some(leash), tail, stderr }, stdin, stdout))
}

impl Process {
    pub(super) fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// Waits for its exit. Cancel-safe.
    pub(super) async fn exited(&mut self) {
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "could not wait for the agent");
        }
    }

    /// Ends whatever the process left running.
    pub(super) fn unleash(&mut self) {
        self.leash = None;
    }

    /// Ends the process by force, unless it is gone already, and gives its status and last words.
    pub(super) async fn end(mut self) -> (Option<i32>, Option<i32>, String) {
        self.unleash();
        let status = match tokio::time::timeout(LEASH_WAIT, self.child.wait()).await {
            Ok(status) => status.ok(),
            Err(_) => self.kill().await,
        };
        let _ = tokio::time::timeout(STDERR_WAIT, self.stderr.join_next()).await;
        let code = status.and_then(|status| status.code());
        (code, status.and_then(|status| status.signal()), self.tail.text())
    }

    /// For a guard that does not do its work.
    async fn kill(&mut self) -> Option<ExitStatus> {
        tracing::warn!("the agent's guard did not end it; killing the guard");
        self.child.kill().await.ok()?;
        self.child.wait().await.ok()
    }
}

/// Keeps the tail of an agent's stderr and passes it on to the log.
async fn follow_stderr(mut pipe: impl AsyncRead + Unpin, tail: Tail, pid: Option<u32>) {
    let mut chunk = [0; LOG_LINE_MAX];
    let mut line = Vec::new();
    while let Ok(count) = pipe.read(&mut chunk).await
        && count > 0
    {
        let bytes = chunk.get(..count).unwrap_or_default();
        tail.push(bytes);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") || line.len() >= LOG_LINE_MAX {
                log(&std::mem::take(&mut line), pid);
            }
        }
    }
    log(&line, pid);
}

fn log(line: &[u8], pid: Option<u32>) {
    let text = String::from_utf8_lossy(line);
    if !text.trim().is_empty() {
        tracing::debug!(pid, stderr = text.trim_end(), "agent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_tail_keeps_the_last_bytes_only() {
        let tail = Tail::default();
        let long = [vec![b'a'; STDERR_TAIL_MAX], b"end".to_vec()].concat();
        follow_stderr(long.as_slice(), tail.clone(), None).await;
        let text = tail.text();
        assert_eq!(text.len(), STDERR_TAIL_MAX);
        assert!(text.ends_with("aend"));
    }
}
