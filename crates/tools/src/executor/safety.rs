//! Asking safety checkers: a program that reads a call as JSON and answers with a decision, or a check of ours.
//!
//! A checker that can't be started, takes too long, answers with anything but a decision or exits badly refuses the call.
//! Source: runtime specification §6.6: JSON on standard input, five seconds.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use convoke_stdx::guard::{Leash, Spawner};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::policy::{Checker, CheckerKind, Decision, Judgement, PolicyCall};

/// Source: runtime specification §6.6.
const TIMEOUT: Duration = Duration::from_secs(5);
// A decision and a reason.
const ANSWER_MAX: u64 = 64 << 10;

/// What checkers are run with.
#[derive(Clone, Debug)]
pub struct CheckerHost {
    /// How programs are started; without it, whatever an external checker is asked about is refused.
    pub spawner: Option<Spawner>,
    /// Environment variables that they never see.
    pub secret_variables: Vec<String>,
    /// The working folder.
    pub cwd: PathBuf,
    /// The folders of the workspace, links resolved.
    pub workspaces: Vec<PathBuf>,
    /// How long one may take.
    pub timeout: Duration,
}

impl Default for CheckerHost {
    fn default() -> Self {
        Self {
            spawner: None,
            secret_variables: Vec::new(),
            cwd: PathBuf::new(),
            workspaces: Vec::new(),
            timeout: TIMEOUT,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    decision: String,
    reason: Option<String>,
}

impl CheckerHost {
    /// Asks `checkers` in turn, until one refuses.
    pub(super) async fn ask(&self, checkers: &[Checker], call: &PolicyCall<'_>, judgement: &mut Judgement) {
        for checker in checkers {
            if judgement.decision == Decision::Deny {
                return;
            }
            let (decision, reason) = match &checker.kind {
                CheckerKind::AllowedPath => self.paths(checker, call),
                CheckerKind::External(program) => self.external(program, checker, call).await.unwrap_or_else(|why| {
                    (Decision::Deny, Some(format!("The safety checker \"{}\" failed: {why}.", checker.name)))
                }),
            };
            judgement.tighten(decision, &checker.source.to_string(), reason);
        }
    }

    /// Paths among the arguments, and those that the tool says it touches.
    fn paths(&self, checker: &Checker, call: &PolicyCall<'_>) -> (Decision, Option<String>) {
        let names = |key: &str| -> Vec<&str> {
            checker.config.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let (included, excluded) = (names("included_args"), names("excluded_args"));
        let is_path = |name: &str| {
            !excluded.contains(&name)
                && (included.contains(&name)
                    || name.contains("path")
                    || name.contains("directory")
                    || name.contains("file")
                    || name == "source"
                    || name == "destination")
        };
        let args = call.args.as_object().into_iter().flatten().filter(|(name, _)| is_path(name));
        let named = args.filter_map(|(_, value)| value.as_str()).map(|path| self.cwd.join(path));
        for path in named.chain(call.touches.iter().map(|path| path.to_path_buf())) {
            let real = crate::workspace::real_path(&path);
            if !real.is_ok_and(|real| self.workspaces.iter().any(|root| real.starts_with(root))) {
                let reason = format!("The path {} is outside of the workspace.", path.display());
                return (Decision::Deny, Some(reason));
            }
        }
        (Decision::Allow, None)
    }

    async fn external(
        &self,
        program: &Path,
        checker: &Checker,
        call: &PolicyCall<'_>,
    ) -> Result<(Decision, Option<String>), String> {
        let Some(spawner) = &self.spawner else { return Err("programs can't be started here".to_owned()) };
        let input = json!({
            "protocolVersion": "1.0.0",
            "toolCall": {"name": call.tool.name, "args": call.args},
            "context": {"environment": {"cwd": self.cwd, "workspaces": self.workspaces}},
            "config": checker.config,
        });
        let asked = self.run(spawner, program, input.to_string());
        let output = match tokio::time::timeout(self.timeout, asked).await {
            Ok(output) => output.map_err(|error| error.to_string())?,
            // The leash is dropped with the future: the program and what it started are ended.
            Err(_) => return Err(format!("it took longer than {} ms", self.timeout.as_millis())),
        };
        let answer: Answer =
            serde_json::from_slice(&output).map_err(|error| format!("its answer can't be read: {error}"))?;
        let decision = Decision::parse(&answer.decision)
            .ok_or_else(|| format!("\"{}\" is not allow, deny or ask_user", answer.decision))?;
        Ok((decision, answer.reason))
    }

    async fn run(&self, spawner: &Spawner, program: &Path, input: String) -> io::Result<Vec<u8>> {
        let (mut child, leash): (_, Leash) = spawner.spawn(program.as_os_str(), &[], |mut command| {
            command.current_dir(&self.cwd).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            for name in &self.secret_variables {
                command.env_remove(name);
            }
            let mut command = tokio::process::Command::from(command);
            let child = command.kill_on_drop(true).spawn()?;
            let pid = child.id().ok_or_else(|| io::Error::other("the child has no process id"))?;
            Ok((child, pid))
        })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A checker need not read what it does not care about.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let read = async {
            let mut output = Vec::new();
            if let Some(stdout) = stdout {
                stdout.take(ANSWER_MAX).read_to_end(&mut output).await?;
            }
            Ok::<_, io::Error>(output)
        };
        let ((), output) = tokio::join!(write, read);
        let status = child.wait().await?;
        drop(leash);
        if status.success() { output } else { Err(io::Error::other(format!("it ended with {status}"))) }
    }
}
