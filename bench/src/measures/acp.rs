//! `convoke acp` under a client with many sessions: what does each of them cost while nothing happens in it?

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::daemon::PATIENCE;
use crate::measures::Effort;
use crate::proc::pss_kib;
use crate::run::Programs;
use crate::table::{Row, Target};

/// Sessions of one process.
const SESSIONS: usize = 100;
/// How long memory gets to settle before it is read.
const SETTLE: Duration = Duration::from_millis(700);

/// An agent with its client's end of the pipes.
struct Agent {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    requests: u64,
    folder: TempDir,
}

/// A further session, before its first prompt and after it.
pub(crate) async fn sessions(programs: &Programs, effort: Effort) -> anyhow::Result<Vec<Row>> {
    let (mut new, mut used) = (Vec::new(), Vec::new());
    for _ in 0..effort.daemons.min(3) {
        let mut agent = Agent::start(programs).await?;
        // Everything that is made on first use.
        let first = agent.session().await?;
        agent.prompt(&first).await?;
        let before = agent.settled().await?;
        let mut made = Vec::new();
        for _ in 0..SESSIONS {
            made.push(agent.session().await?);
        }
        let between = agent.settled().await?;
        for session in &made {
            agent.prompt(session).await?;
        }
        let after = agent.settled().await?;
        new.push((between - before) / SESSIONS as f64);
        used.push((after - before) / SESSIONS as f64);
        agent.child.kill().await.context("stop an agent")?;
    }
    let target = || Some(Target::at_most(0.5, 0.5));
    Ok(vec![
        Row::new(format!("one of {SESSIONS} further ACP sessions in one process, idle: PSS, MiB"), &new, &[], target()),
        Row::new("… after a prompt, idle again, MiB", &used, &[], target()),
    ])
}

impl Agent {
    async fn start(programs: &Programs) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a workspace")?;
        let answer = json!({"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"});
        let line = json!({"method": "generateContentStream", "response": [{"candidates": [answer]}]});
        let responses = folder.path().join("responses.jsonl");
        std::fs::write(&responses, format!("{line}\n")).context("write a model's answer")?;
        let mut child = Command::new(programs.find("convoke")?)
            .args(["acp", "--model", "gemini-2.5-flash", "--fake-responses"])
            .arg(&responses)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder.path())
            .env("CONVOKE_HOME", folder.path())
            .env("GEMINI_API_KEY", "never-used")
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start an agent")?;
        let input = child.stdin.take().context("no pipe to the agent")?;
        let output = child.stdout.take().context("no pipe from the agent")?;
        let lines = BufReader::new(output).lines();
        let mut agent = Self { child, input, lines, requests: 0, folder };
        agent.ask("initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await?;
        Ok(agent)
    }

    async fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.requests += 1;
        let id = self.requests;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string() + "\n";
        self.input.write_all(line.as_bytes()).await.context("write to the agent")?;
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await??.context("the agent ended")?;
            let message: Value = serde_json::from_str(&line).context("read a message")?;
            if message.get("id") == Some(&json!(id)) && message.get("method").is_none() {
                match message.get("result") {
                    Some(result) => return Ok(result.clone()),
                    None => bail!("{method}: {message}"),
                }
            }
        }
    }

    async fn session(&mut self) -> anyhow::Result<String> {
        let made = self.ask("session/new", json!({"cwd": self.folder.path(), "mcpServers": []})).await?;
        let id = made.get("sessionId").and_then(Value::as_str);
        id.map(ToOwned::to_owned).context("a session without an id")
    }

    async fn prompt(&mut self, session: &str) -> anyhow::Result<()> {
        let prompt = json!([{"type": "text", "text": "hello"}]);
        self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt})).await.map(|_| ())
    }

    async fn settled(&self) -> anyhow::Result<f64> {
        sleep(SETTLE).await;
        Ok(pss_kib(self.child.id().context("the agent ended")?)? as f64 / 1024.0)
    }
}
