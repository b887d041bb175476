//! Secrets that a command prints, such as `pass show key` or `gcloud auth print-access-token`.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adk::{ModelError, ModelErrorKind};
use convoke_models::{CredentialSource, Fetched};
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::agent_host::spawner;

/// How long a command may take: it may ask a person to unlock something.
const DEADLINE: Duration = Duration::from_secs(60);
/// The most that is read of what it prints. Tokens have a few KiB.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// The most that is told of its complaints.
const COMPLAINT_CHARS_MAX: usize = 300;

/// A command, run under the guard each time it is asked.
pub(super) struct CommandSource {
    words: Vec<String>,
}

impl CommandSource {
    /// A program and its arguments; at least the program.
    pub(super) fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    fn failed(&self, why: impl std::fmt::Display) -> ModelError {
        let shown = self.words.last().map_or("", String::as_str);
        ModelError::new(ModelErrorKind::Auth, format!("get a credential from the command `{shown}`: {why}"))
    }

    /// What it printed and complained of, and whether it was content.
    async fn run(&self) -> io::Result<(bool, String, String)> {
        let mut words = self.words.iter().map(OsString::from);
        let program = words.next().unwrap_or_default();
        let args: Vec<OsString> = words.collect();
        let (mut child, _leash) = spawner().spawn(&program, &args, |mut command| {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
            let pid = child.id().ok_or_else(|| io::Error::other("the command has no process id"))?;
            Ok((child, pid))
        })?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (out, err, status) = tokio::join!(read(out), read(err), child.wait());
        Ok((status?.success(), out, err))
    }
}

/// Reads to the end and keeps the beginning.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        // What broke off is judged by what came.
        let _ = (&mut pipe).take(OUTPUT_BYTES_MAX).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[async_trait]
impl CredentialSource for CommandSource {
    async fn fetch(&self) -> Result<Fetched, ModelError> {
        let (content, printed, complaint) = match tokio::time::timeout(DEADLINE, self.run()).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => return Err(self.failed(error)),
            Err(_) => return Err(self.failed(format!("it took more than {} seconds", DEADLINE.as_secs()))),
        };
        if !content {
            let line = complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed without a word");
            return Err(self.failed(line.trim().chars().take(COMPLAINT_CHARS_MAX).collect::<String>()));
        }
        match printed.lines().map(str::trim).find(|line| !line.is_empty()) {
            Some(secret) => Ok(Fetched { secret: SecretString::from(secret.to_owned()), valid_for: None }),
            None => Err(self.failed("it printed nothing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_is_bounded_and_read_to_its_end() {
        let long = vec![b'x'; 3 * 1024 * 1024];
        assert_eq!(read(Some(long.as_slice())).await.len(), 64 * 1024);
        assert_eq!(read(None::<&[u8]>).await, "");
    }
}
