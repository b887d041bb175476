//! A real daemon with an agent behind it, in a workspace and a home of its own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use tempfile::TempDir;

use super::needs::Programs;
use crate::steps::{command, run as run_command};

/// What a start or a stop may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon prints one line; more must not hold it up.
const LINES_MAX: usize = 16;

/// Lines of stderr that are shown when something failed.
const WORDS_MAX: usize = 40;

/// What to start.
pub(super) struct Setup<'a> {
    pub(super) convoke: &'a Path,
    /// The agent's command line.
    pub(super) agent: String,
    pub(super) args: &'a [&'a str],
    /// The text of the user's settings file.
    pub(super) settings: Option<&'a str>,
    /// More variables for the daemon and its agent.
    pub(super) variables: &'a [(&'a str, &'a str)],
}

impl<'a> Setup<'a> {
    /// A daemon with default settings and the scripted agent.
    pub(super) fn scripted(programs: &'a Programs) -> Self {
        let agent = programs.scripted_agent.display().to_string();
        Self { convoke: &programs.convoke, agent, args: &[], settings: None, variables: &[] }
    }
}

pub(super) struct Daemon {
    child: Child,
    url: String,
    token: String,
    /// The lines of its stdout; closed when it has ended.
    lines: Receiver<String>,
    folder: TempDir,
}

impl Daemon {
    pub(super) fn start(setup: &Setup<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("failed to make a folder for the daemon")?;
        let workspace = folder.path().join("workspace");
        std::fs::create_dir_all(&workspace)?;
        run_command(&mut command("git", &["init", "--quiet"], &workspace))?;
        if let Some(settings) = setup.settings {
            std::fs::create_dir_all(folder.path().join(".convoke"))?;
            std::fs::write(folder.path().join(".convoke/settings.json"), settings)?;
        }
        let token = "interop-only-token".to_owned();
        let mut child = Command::new(setup.convoke)
            .args(["serve", "--port", "0", "--workspace"])
            .arg(&workspace)
            .arg("--agent")
            .arg(&setup.agent)
            .args(setup.args)
            .current_dir(folder.path())
            .env("CONVOKE_HOME", folder.path())
            .env("QWEN_SERVER_TOKEN", &token)
            .env("NO_COLOR", "1")
            .envs(setup.variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("stderr"))?)
            .spawn()
            .with_context(|| format!("failed to start {:?}", setup.convoke))?;
        let stdout = child.stdout.take().context("a child without a stdout")?;
        let (sender, lines) = sync_channel(LINES_MAX);
        // Ends with the child: its stdout is closed then.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut daemon = Self { child, url: String::new(), token, lines, folder };
        daemon.url = daemon.ready().map_err(|error| anyhow!("{error:#}\n{}", daemon.last_words()))?;
        Ok(daemon)
    }

    fn ready(&self) -> anyhow::Result<String> {
        let line = self.lines.recv_timeout(PATIENCE).context("the daemon did not say where it listens")?;
        url_in(&line).with_context(|| format!("no address in {line:?}"))
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The end of what it wrote to stderr, without the requests that went well.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
        let lines: Vec<_> =
            text.lines().filter(|line| !(line.contains(" INFO ") && line.contains("request completed"))).collect();
        lines.get(lines.len().saturating_sub(WORDS_MAX)..).unwrap_or_default().join("\n")
    }

    /// Asks it to stop, and expects it to end well and to have kept its stdout to itself.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        run_command(&mut command("kill", &["-TERM", &self.child.id().to_string()], Path::new("/")))?;
        let deadline = Instant::now() + PATIENCE;
        let mut more = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => more.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("the daemon did not stop within {} s", PATIENCE.as_secs()),
            }
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the daemon ended with {status}");
        ensure!(more.is_empty(), "the daemon wrote more than one line to stdout: {more:?}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended already where all went well; its own children are guarded and end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn url_in(line: &str) -> Option<String> {
    line.strip_prefix("convoke serve listening on ")?.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_tells_the_address() {
        let line = "convoke serve listening on http://127.0.0.1:4170 (mode=http-bridge, workspace=/w)";
        assert_eq!(url_in(line).as_deref(), Some("http://127.0.0.1:4170"));
        assert_eq!(url_in("something else"), None);
    }
}
