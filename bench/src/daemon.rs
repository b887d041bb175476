//! A daemon under measurement, ours or the floor, with the scripted agent behind it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use convoke_bench::script::Script;
use hyper::StatusCode;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::{Connection, Server};
use crate::run::{Programs, Subject};

/// What any single step may take before the run is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const TOKEN: &str = "bench-token-0123456789abcdef";

/// A running daemon; killed with this value.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    pub(crate) pid: u32,
    pub(crate) server: Server,
    folder: TempDir,
}

/// A session as one of its clients sees it.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub(crate) session: String,
    pub(crate) client: String,
}

/// Who works behind our daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    /// The scripted one, as behind the floor.
    Scripted,
    /// Our own, which is started and never prompted: there is no model.
    Ours,
}

impl Daemon {
    /// Starts a daemon in an empty folder and waits for the line with its address.
    pub(crate) async fn start(programs: &Programs, subject: Subject) -> anyhow::Result<Self> {
        Self::start_with(programs, subject, Agent::Scripted, &[]).await
    }

    /// The same with another agent, and with `args` for our daemon; the floor has no limits to be lifted.
    pub(crate) async fn start_with(
        programs: &Programs,
        subject: Subject,
        behind: Agent,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a workspace")?;
        let agent = programs.find("scripted-agent")?;
        let mut key = None;
        let mut command = match subject {
            Subject::Floor => {
                let mut command = Command::new(programs.find("floor-daemon")?);
                command.arg(agent);
                command
            }
            Subject::Ours => {
                let workspace = folder.path().join("workspace");
                std::fs::create_dir(&workspace)?;
                let mut command = Command::new(programs.find("convoke")?);
                command.args(["serve", "--port", "0"]).args(args).arg("--workspace").arg(workspace);
                match behind {
                    Agent::Scripted => _ = command.arg("--agent").arg(agent),
                    Agent::Ours => key = Some(("GEMINI_API_KEY", "never-used")),
                }
                command
            }
        };
        let stderr = folder.path().join("stderr");
        let mut child = command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("CONVOKE_HOME", folder.path())
            .env("QWEN_SERVER_TOKEN", TOKEN)
            .envs(key)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&stderr)?)
            .kill_on_drop(true)
            .spawn()
            .context("start a daemon")?;
        let pid = child.id().context("a daemon that ended at once")?;
        let stdout = child.stdout.take().context("no pipe from the daemon")?;
        let line = timeout(PATIENCE, BufReader::new(stdout).lines().next_line()).await??;
        let Some(address) = line.as_deref().and_then(address) else {
            bail!("start a daemon: {line:?}\n{}", read_or_empty(&stderr));
        };
        Ok(Self { child, pid, server: Server { address: address.parse()?, token: TOKEN }, folder })
    }

    /// Kills it and waits; the guard of its agent does the rest.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("stop a daemon")
    }

    /// What the daemon complained about.
    pub(crate) fn complaints(&self) -> String {
        read_or_empty(&self.folder.path().join("stderr"))
    }

    /// A session of its own.
    pub(crate) async fn create(&self, connection: &mut Connection) -> anyhow::Result<Attached> {
        self.session(connection, "thread").await
    }

    /// The workspace's shared session.
    pub(crate) async fn attach(&self, connection: &mut Connection) -> anyhow::Result<Attached> {
        self.session(connection, "single").await
    }

    async fn session(&self, connection: &mut Connection, scope: &str) -> anyhow::Result<Attached> {
        let answer = connection.post("/session", &json!({"sessionScope": scope}).to_string(), "").await?;
        if answer.status != StatusCode::OK {
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            bail!("start a session: {} {body}\n{}", answer.status, self.complaints());
        }
        Ok(Attached { session: answer.text("sessionId")?, client: answer.text("clientId")? })
    }
}

impl Attached {
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/session/{}/{rest}", self.session)
    }

    /// Has the agent play `script`.
    pub(crate) async fn prompt(&self, connection: &mut Connection, script: Script) -> anyhow::Result<()> {
        self.prompt_with(connection, script, "").await
    }

    /// The same, in a prompt that says more than the agent reads.
    pub(crate) async fn prompt_with(
        &self,
        connection: &mut Connection,
        script: Script,
        more: &str,
    ) -> anyhow::Result<()> {
        let mut blocks = vec![json!({"type": "text", "text": script.to_string()})];
        if !more.is_empty() {
            blocks.push(json!({"type": "text", "text": more}));
        }
        let body = json!({"prompt": blocks}).to_string();
        // The floor's client ids are not ids; it does not look.
        let answer = connection.post(&self.path("prompt"), &body, &self.client).await?;
        if answer.status != StatusCode::ACCEPTED {
            bail!("prompt: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(())
    }
}

impl Attached {
    /// Ends the session.
    pub(crate) async fn close(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let answer = connection.delete(&format!("/session/{}", self.session), &self.client).await?;
        if answer.status != StatusCode::NO_CONTENT {
            bail!("close a session: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(())
    }
}

/// The `HOST:PORT` in the line that a daemon prints when it is ready.
fn address(line: &str) -> Option<&str> {
    let (_, after) = line.split_once("http://")?;
    after.split([' ', '/']).next()
}

fn read_or_empty(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_line() {
        let line = "convoke serve listening on http://127.0.0.1:4170 (mode=http-bridge, workspace=/w)";
        assert_eq!(address(line), Some("127.0.0.1:4170"));
        assert_eq!(address("floor listening on http://127.0.0.1:1"), Some("127.0.0.1:1"));
        assert_eq!(address("no"), None);
    }
}
