//! Commands that an agent has its client run. Each is a guarded child that ends with its terminal, its session or its
//! agent. Source: ACP v1, "Terminals".

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use convoke_acp::RpcError;
use convoke_protocol::SessionId;
use convoke_stdx::guard::{Leash, Spawner};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::super::order::Report;
use super::{INTERNAL, INVALID_PARAMS, NOT_FOUND, error, files};
use crate::options::SECRET_VARIABLES;

/// Terminals of one agent that are not released. A turn has a handful; each is a process.
const TERMINALS_MAX: usize = 32;

/// Bytes of output that a terminal keeps at most, its newest; also where the agent names no number.
const OUTPUT_MAX: usize = 1 << 20;

/// How long the rest of the output may take once the command is gone: something else may hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_millis(250);

/// The terminals of one agent.
pub(super) struct Terminals {
    spawner: Spawner,
    open: BTreeMap<String, Terminal>,
}

struct Terminal {
    session: SessionId,
    output: Output,
    exit: watch::Receiver<Option<Value>>,
    /// Dropping it ends the command and everything that it started.
    leash: Option<Leash>,
}

/// The newest of what a command wrote.
#[derive(Clone)]
struct Output(Arc<Mutex<Kept>>);

struct Kept {
    bytes: VecDeque<u8>,
    limit: usize,
    cut: bool,
}

impl Output {
    fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept { bytes: VecDeque::new(), limit, cut: false })))
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.extend(bytes);
        let over = kept.bytes.len().saturating_sub(kept.limit);
        kept.bytes.drain(..over);
        kept.cut |= over > 0;
    }

    /// As text that begins with a whole character, and whether something is missing before it.
    fn text(&self) -> (String, bool) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = kept.cut;
        let bytes = kept.bytes.make_contiguous();
        let rest = bytes.iter().position(|byte| !cut || byte & 0xC0 != 0x80).unwrap_or(bytes.len());
        (String::from_utf8_lossy(bytes.get(rest..).unwrap_or_default()).into_owned(), cut)
    }
}

/// A new terminal: its id, its command as a line, and what a permission request may have called it.
type Created = (String, String, Vec<String>);

impl Terminals {
    pub(super) fn new(spawner: Spawner) -> Self {
        Self { spawner, open: BTreeMap::new() }
    }

    /// `terminal/create`: starts a command; one of `tasks` follows it.
    pub(super) fn create(
        &mut self,
        workspace: &Path,
        session: &SessionId,
        params: &Value,
        tasks: &mut JoinSet<Option<Report>>,
    ) -> Result<Created, RpcError> {
        if self.open.len() >= TERMINALS_MAX {
            return Err(error(INTERNAL, format!("{TERMINALS_MAX} terminals are open; release some")));
        }
        let program = params.get("command").and_then(Value::as_str).filter(|command| !command.is_empty());
        let program = program.ok_or_else(|| error(INVALID_PARAMS, "command must be a text"))?;
        let args = list(params.get("args"), Value::is_string)
            .ok_or_else(|| error(INVALID_PARAMS, "args must be a list of texts"))?;
        let env = list(params.get("env"), Value::is_object);
        let env = env.ok_or_else(|| error(INVALID_PARAMS, "env must be a list of names and values"))?;
        let folder = files::folder(workspace, params.get("cwd").and_then(Value::as_str))?;
        let limit = params.get("outputByteLimit").and_then(Value::as_u64).and_then(|limit| usize::try_from(limit).ok());
        let output = Output::new(limit.unwrap_or(OUTPUT_MAX).min(OUTPUT_MAX));
        let words: Vec<&str> = args.iter().filter_map(|arg| arg.as_str()).collect();
        let line = [&[program], words.as_slice()].concat().join(" ");
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let spawned = self.spawner.spawn(program.as_ref(), &arguments, |mut built| {
            for secret in SECRET_VARIABLES {
                built.env_remove(secret);
            }
            for entry in &env {
                let text = |name: &str| entry.get(name).and_then(Value::as_str);
                if let (Some(name), Some(value)) = (text("name").filter(|name| !name.is_empty()), text("value")) {
                    built.env(name, value);
                }
            }
            built.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = Command::from(built).spawn()?;
            let pid = child.id().unwrap_or_default();
            Ok((child, pid))
        });
        let (child, leash) = spawned.map_err(|why| error(INTERNAL, format!("run {program}: {why}")))?;
        let (ended, exit) = watch::channel(None);
        tasks.spawn(follow(child, output.clone(), ended));
        let id = Uuid::new_v4().to_string();
        self.open.insert(id.clone(), Terminal { session: session.clone(), output, exit, leash: Some(leash) });
        let scripts = words.iter().filter(|word| word.contains(' ')).map(|word| (*word).to_owned());
        let names = scripts.chain([line.clone()]).collect();
        Ok((id, line, names))
    }

    fn find(&mut self, session: &SessionId, params: &Value) -> Result<&mut Terminal, RpcError> {
        let id = params.get("terminalId").and_then(Value::as_str).unwrap_or_default();
        let found = self.open.get_mut(id).filter(|terminal| terminal.session == *session);
        found.ok_or_else(|| error(NOT_FOUND, format!("there is no terminal \"{id}\"")))
    }

    /// `terminal/output`.
    pub(super) fn output(&mut self, session: &SessionId, params: &Value) -> Result<Value, RpcError> {
        let terminal = self.find(session, params)?;
        let (output, truncated) = terminal.output.text();
        let mut answer = json!({"output": output, "truncated": truncated});
        if let (Some(exit), Value::Object(fields)) = (terminal.exit.borrow().clone(), &mut answer) {
            fields.insert("exitStatus".to_owned(), exit);
        }
        Ok(answer)
    }

    /// `terminal/wait_for_exit`: resolves with the command's end; `None` if nobody follows it any more.
    pub(super) fn exit(
        &mut self,
        session: &SessionId,
        params: &Value,
    ) -> Result<impl Future<Output = Option<Value>> + use<>, RpcError> {
        let mut exit = self.find(session, params)?.exit.clone();
        Ok(async move { exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone()) })
    }

    /// `terminal/kill`: ends the command; its output and end can still be read.
    pub(super) fn kill(&mut self, session: &SessionId, params: &Value) -> Result<Value, RpcError> {
        self.find(session, params)?.leash = None;
        Ok(json!({}))
    }

    /// `terminal/release`: ends the command and forgets it.
    pub(super) fn release(&mut self, session: &SessionId, params: &Value) -> Result<Value, RpcError> {
        self.find(session, params)?;
        let id = params.get("terminalId").and_then(Value::as_str).unwrap_or_default();
        self.open.remove(id);
        Ok(json!({}))
    }

    /// Ends every command of a session.
    pub(super) fn close(&mut self, session: &SessionId) {
        self.open.retain(|_, terminal| terminal.session != *session);
    }
}

/// The entries of a list, which all are as `fits` says; an absent list is empty. `None` if it is anything else.
fn list(list: Option<&Value>, fits: fn(&Value) -> bool) -> Option<Vec<Value>> {
    match list {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(list)) => list.iter().all(fits).then(|| list.clone()),
        Some(_) => None,
    }
}

/// Reads a command's output and waits for its end.
async fn follow(mut child: Child, output: Output, ended: watch::Sender<Option<Value>>) -> Option<Report> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut reading = pin!(async { tokio::join!(read(stdout, &output), read(stderr, &output)) });
    let mut all_read = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.ok(),
            _ = &mut reading, if !all_read => all_read = true,
        }
    };
    if !all_read {
        let _ = tokio::time::timeout(LAST_OUTPUT, reading).await;
    }
    ended.send_replace(Some(exit_status(status)));
    None
}

fn exit_status(status: Option<ExitStatus>) -> Value {
    let signal = status.and_then(|status| status.signal()).map(super::super::reports::signal_name);
    json!({"exitCode": status.and_then(|status| status.code()), "signal": signal})
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, output: &Output) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = [0; 8192];
    while let Ok(count) = pipe.read(&mut chunk).await
        && count > 0
    {
        output.push(chunk.get(..count).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_its_front_between_characters() {
        let output = Output::new(4);
        output.push("aé".as_bytes());
        assert_eq!(output.text(), ("aé".to_owned(), false));
        output.push("éb".as_bytes());
        assert_eq!(output.text(), ("éb".to_owned(), true));
        output.push(b"12345");
        assert_eq!(output.text(), ("2345".to_owned(), true));
    }

    #[tokio::test]
    async fn a_command_runs_and_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap();
        let session = SessionId::from("s");
        let mut tasks = JoinSet::new();
        let mut terminals = Terminals::new(Spawner::unguarded());
        let mut create = |terminals: &mut Terminals, params: Value| {
            terminals.create(&workspace, &session, &params, &mut tasks).map(|(id, _, _)| json!({"terminalId": id}))
        };
        let script = "pwd; echo $X; echo $QWEN_SERVER_TOKEN >&2; exit 3";
        let env = json!([{"name": "X", "value": "set"}]);
        let id = create(&mut terminals, json!({"command": "sh", "args": ["-c", script], "env": env})).unwrap();
        let exit = terminals.exit(&session, &id).unwrap().await.unwrap();
        assert_eq!(exit, json!({"exitCode": 3, "signal": null}));
        let seen = terminals.output(&session, &id).unwrap();
        let text = seen["output"].as_str().unwrap();
        assert!(text.contains(workspace.to_str().unwrap()) && text.contains("set\n"), "{text}");
        assert_eq!((&seen["truncated"], &seen["exitStatus"]["exitCode"]), (&json!(false), &json!(3)));
        assert_eq!(terminals.output(&"other".into(), &id).unwrap_err().code, NOT_FOUND);
        let long = create(&mut terminals, json!({"command": "sleep", "args": ["1000"]})).unwrap();
        let exit = terminals.exit(&session, &long).unwrap();
        terminals.kill(&session, &long).unwrap();
        assert_eq!(exit.await.unwrap(), json!({"exitCode": null, "signal": "SIGKILL"}));
        for bad in [
            json!({"command": "sleep", "cwd": "/"}),
            json!({"command": "sleep", "cwd": "relative"}),
            json!({"command": ""}),
            json!({"command": "sh", "args": "x"}),
            json!({"command": "/no/such/program"}),
        ] {
            assert!(create(&mut terminals, bad.clone()).is_err(), "{bad}");
        }
        terminals.release(&session, &long).unwrap();
        assert_eq!(terminals.output(&session, &long).unwrap_err().code, NOT_FOUND);
        let room = TERMINALS_MAX - 1;
        let made = (0..room + 1).filter(|_| create(&mut terminals, json!({"command": "true"})).is_ok()).count();
        assert_eq!(made, room);
        terminals.close(&session);
        assert!(terminals.open.is_empty());
    }
}
