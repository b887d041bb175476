//! A server as a guarded child: its environment, its pipes, its last words.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Stdio as Pipe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use convoke_stdx::cut;
use convoke_stdx::guard::Leash;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::Stdio;
use crate::servers::Context;

/// How much of stderr is kept for the reason of an end.
const STDERR_TAIL_MAX: usize = 4 * 1024;
/// How much of it a person is shown.
const SAID_MAX: usize = 600;
/// The longest piece of stderr that goes to the log at once.
const LOG_LINE_MAX: usize = 4096;
/// How long a child may take to end once its stdin is closed.
const END_WAIT: Duration = Duration::from_millis(500);
/// How long the guard may take after that: its own grace and its kill, with room for a loaded machine.
const LEASH_WAIT: Duration = Duration::from_secs(10);
/// How long the end of stderr may take: something that the child started may hold the pipe open.
const STDERR_WAIT: Duration = Duration::from_millis(250);

/// The last bytes of a child's stderr.
#[derive(Clone, Debug, Default)]
struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let over = tail.len().saturating_sub(STDERR_TAIL_MAX);
        tail.drain(..over);
    }

    fn text(&self) -> String {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }
}

/// A running child. Dropping it ends the child's whole tree.
pub(crate) struct Process {
    child: Child,
    leash: Option<Leash>,
    tail: Tail,
    stderr: JoinSet<()>,
}

/// Starts the child; gives what it writes and what it reads.
pub(crate) fn start(
    stdio: &Stdio,
    server: &str,
    context: &Context,
) -> io::Result<(Process, (ChildStdout, ChildStdin))> {
    let args: Vec<OsString> = stdio.args.iter().map(OsString::from).collect();
    let folder = context.roots.first().cloned().unwrap_or_default();
    let cwd = stdio.cwd.as_ref().map_or_else(|| folder.clone(), |cwd| folder.join(cwd));
    let spawned = context.spawner.spawn(OsStr::new(&stdio.command), &args, |mut built| {
        for name in &context.secret_variables {
            built.env_remove(name);
        }
        // What the configuration names is meant for this server, a secret too.
        built.envs(&stdio.env);
        if !cwd.as_os_str().is_empty() {
            built.current_dir(&cwd);
        }
        built.stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::piped());
        let child = Command::from(built).spawn()?;
        let pid = child.id().unwrap_or_default();
        Ok((child, pid))
    });
    let (mut child, leash) = spawned?;
    let missing = || io::Error::other("a standard stream is missing");
    let (stdin, stdout) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
    let tail = Tail::default();
    let mut stderr = JoinSet::new();
    if let Some(pipe) = child.stderr.take() {
        stderr.spawn(follow_stderr(pipe, tail.clone(), server.to_owned()));
    }
    Ok((Process { child, leash: Some(leash), tail, stderr }, (stdout, stdin)))
}

impl Process {
    /// Waits for its exit. Cancel-safe.
    pub(crate) async fn exited(&mut self) {
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "could not wait for an MCP server");
        }
    }

    /// Ends it, unless it ends by itself now that nobody speaks to it, and gives its last words.
    pub(crate) async fn end(mut self) -> String {
        if tokio::time::timeout(END_WAIT, self.child.wait()).await.is_err() {
            self.leash = None;
            if tokio::time::timeout(LEASH_WAIT, self.child.wait()).await.is_err() {
                tracing::warn!("the guard of an MCP server did not end it; killing the guard");
                let _ = self.child.kill().await;
            }
        }
        self.leash = None;
        let _ = tokio::time::timeout(STDERR_WAIT, self.stderr.join_next()).await;
        cut::tail(self.tail.text().trim(), SAID_MAX).to_owned()
    }
}

/// Keeps the tail of a child's stderr and passes it on to the log.
async fn follow_stderr(mut pipe: impl AsyncRead + Unpin, tail: Tail, server: String) {
    let mut chunk = vec![0; LOG_LINE_MAX];
    while let Ok(count) = pipe.read(&mut chunk).await
        && count > 0
    {
        let bytes = chunk.get(..count).unwrap_or_default();
        tail.push(bytes);
        tracing::debug!(%server, stderr = %String::from_utf8_lossy(bytes).trim_end(), "MCP server");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_tail_keeps_the_last_bytes_only() {
        let tail = Tail::default();
        let long = [vec![b'a'; STDERR_TAIL_MAX], b"end".to_vec()].concat();
        follow_stderr(long.as_slice(), tail.clone(), "s".to_owned()).await;
        assert_eq!(tail.text().len(), STDERR_TAIL_MAX);
        assert!(tail.text().ends_with("aend"));
    }
}
