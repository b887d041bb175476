//! What does the daemon do for an agent that asks it to? Files and terminals, inside of the workspace only.
//!
//! An agent could do all of it by itself; it asks so that its host may look. So nothing here is put to a vote: the agent
//! asks for permission where it wants one, and what it did without is counted.

mod files;
mod terminals;

use std::path::PathBuf;
use std::sync::Arc;

use convoke_acp::{ClientCall, RpcError};
use convoke_protocol::SessionId;
use convoke_stdx::guard::Spawner;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::order::Report;
use terminals::Terminals;

/// Bad parameters, paths outside of the workspace among them.
const INVALID_PARAMS: i32 = -32602;
/// A file or terminal that is not there.
const NOT_FOUND: i32 = -32002;
/// Anything that the system refused.
const INTERNAL: i32 = -32603;

fn error(code: i32, message: impl Into<String>) -> RpcError {
    RpcError { code, message: message.into(), data: None }
}

/// Files that are read or written for one agent at once: the threads for slow things are the daemon's, its audit among
/// their users.
const FILES_AT_ONCE: usize = 4;

/// Serves one agent.
pub(super) struct Desk {
    workspace: Arc<PathBuf>,
    files: Arc<Semaphore>,
    terminals: Terminals,
}

/// Something that was done for an agent.
pub(crate) struct Served {
    /// The agent's session.
    pub(crate) session: SessionId,
    /// ACP's method.
    pub(crate) kind: &'static str,
    /// The path or command.
    pub(crate) title: String,
    /// Texts by which a permission request may have named it.
    pub(crate) names: Vec<String>,
}

impl Desk {
    pub(super) fn new(workspace: PathBuf, spawner: Spawner) -> Self {
        let files = Arc::new(Semaphore::new(FILES_AT_ONCE));
        Self { workspace: Arc::new(workspace), files, terminals: Terminals::new(spawner) }
    }

    /// Serves a request now or in one of `tasks`, which also tell what was done.
    pub(super) fn take(&mut self, call: ClientCall, tasks: &mut JoinSet<Option<Report>>) {
        let ClientCall { session_id: session, method, params, reply } = call;
        let workspace = Arc::clone(&self.workspace);
        match method.as_str() {
            "fs/read_text_file" | "fs/write_text_file" => {
                let writes = method == "fs/write_text_file";
                let files = Arc::clone(&self.files);
                tasks.spawn(async move {
                    // It is never closed.
                    let _turn = files.acquire_owned().await;
                    let title = params.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
                    let act = if writes { files::write } else { files::read };
                    let done = tokio::task::spawn_blocking(move || act(&workspace, &params)).await;
                    let answer = done.unwrap_or_else(|_| Err(error(INTERNAL, "the file could not be served")));
                    let ok = answer.is_ok();
                    // Its turn lasts until the agent takes the text: so much waits in memory and no more.
                    reply.answer_and_wait(answer).await;
                    let kind = if writes { "fs/write_text_file" } else { "fs/read_text_file" };
                    let served = Served { session, kind, names: vec![title.clone()], title };
                    ok.then_some(Report::Served(served))
                });
            }
            "terminal/create" => {
                let created = self.terminals.create(&workspace, &session, &params, tasks);
                if let Ok((_, title, names)) = &created {
                    let served =
                        Served { session, kind: "terminal/create", title: title.clone(), names: names.clone() };
                    tasks.spawn(async move { Some(Report::Served(served)) });
                }
                reply.answer(created.map(|(id, _, _)| json!({"terminalId": id})));
            }
            "terminal/wait_for_exit" => match self.terminals.exit(&session, &params) {
                Ok(exit) => {
                    tasks.spawn(async move {
                        let ended = exit.await;
                        reply.answer(ended.ok_or_else(|| error(INTERNAL, "the terminal is gone")));
                        None
                    });
                }
                Err(refused) => reply.answer(Err(refused)),
            },
            "terminal/output" => reply.answer(self.terminals.output(&session, &params)),
            "terminal/kill" => reply.answer(self.terminals.kill(&session, &params)),
            "terminal/release" => reply.answer(self.terminals.release(&session, &params)),
            other => reply.answer(Err(error(-32601, format!("there is no method {other}")))),
        }
    }

    /// Ends what a session left running.
    pub(super) fn close(&mut self, session: &SessionId) {
        self.terminals.close(session);
    }
}
