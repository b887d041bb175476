//! The handle on one agent: calls, and what they answer.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol as sdk;
use convoke_protocol::SessionId;
use convoke_stdx::guard::Spawner;
use futures::FutureExt;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::rpc_error::RpcError;

use super::command::{AgentCommand, AgentOptions};
use super::error::{AgentError, EndCause, Exit, StartError};
use super::event::{self, AgentEvents, Publisher};
use super::intake::{Gate, Intake};
use super::process::{self, Process};
use super::supervise::{self, Connection, Supervised};

/// Drives one agent. Cloning gives another handle; the agent ends with the last one.
///
/// Calls may run side by side, on any session. Dropping a call's future sends the agent `$/cancel_request` for it.
#[derive(Clone, Debug)]
pub struct AgentChild {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    publisher: Publisher,
    closing: CancellationToken,
    ended: watch::Receiver<Option<Arc<Exit>>>,
    tasks: TaskTracker,
    options: AgentOptions,
    about: AgentDescription,
    /// Running prompts; each token fires when its session is cancelled.
    turns: Mutex<Turns>,
    ignored: Arc<AtomicU64>,
    _close: DropGuard,
}

/// Who answered `initialize`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentDescription {
    /// Name for programs.
    pub name: Option<String>,
    /// Version.
    pub version: Option<String>,
    /// ACP's `agentCapabilities`.
    pub capabilities: Value,
    /// The whole answer.
    pub raw: Value,
}

/// A session that an agent made.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedSession {
    /// Its id, chosen by the agent.
    pub session_id: SessionId,
    /// ACP's `modes`: `{availableModes, currentModeId}`.
    pub modes: Option<Value>,
    /// `models`, where the agent has them.
    pub models: Option<Value>,
    /// ACP's `configOptions`.
    pub config_options: Option<Value>,
    /// The whole answer.
    pub raw: Value,
}

impl StartedSession {
    fn new(session_id: SessionId, raw: Value) -> Self {
        let part = |name: &str| raw.get(name).filter(|value| !value.is_null()).cloned();
        let (modes, models, config_options) = (part("modes"), part("models"), part("configOptions"));
        Self { session_id, modes, models, config_options, raw }
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptEnd {
    /// ACP's `stopReason`, as the agent spelled it.
    pub stop_reason: String,
    /// `_meta` of the answer.
    pub meta: Option<Value>,
}

impl AgentChild {
    /// Starts `command` as a child on a leash and shakes hands with it.
    ///
    /// The child gets pipes for its standard streams. A child that can't be used is ended before this returns.
    pub async fn start(
        command: AgentCommand,
        spawner: &Spawner,
        options: AgentOptions,
    ) -> Result<(Self, AgentEvents), StartError> {
        let (process, stdin, stdout) = process::start(&command, spawner)?;
        Self::open(stdout, stdin, Some(process), options).await
    }

    /// Shakes hands with an agent at the other end of two streams: what it writes and what it reads.
    ///
    /// Its [`Exit`] has no status. Dropping the streams is all that ends it.
    pub async fn connect(
        output: impl AsyncRead + Unpin + Send + 'static,
        input: impl AsyncWrite + Unpin + Send + 'static,
        options: AgentOptions,
    ) -> Result<(Self, AgentEvents), StartError> {
        Self::open(output, input, None, options).await
    }

    async fn open(
        output: impl AsyncRead + Unpin + Send + 'static,
        input: impl AsyncWrite + Unpin + Send + 'static,
        process: Option<Process>,
        options: AgentOptions,
    ) -> Result<(Self, AgentEvents), StartError> {
        let closing = CancellationToken::new();
        // Armed from here on: if this future is dropped, the agent ends.
        let close = closing.clone().drop_guard();
        let tail = process.as_ref().map(Process::tail);
        let (publisher, events) = event::queue(options.line_bytes_max, &closing);
        let stop = CancellationToken::new();
        let gate = Arc::new(Gate::new(stop.clone(), options.serves));
        let (ours, theirs) = sdk::Channel::duplex();
        let (from_sdk, to_sdk) = (ours.rx, ours.tx);
        let (ready, connection) = oneshot::channel();
        let (ended, exit) = watch::channel(None);
        let ignored = Arc::default();
        let intake = Intake {
            gate: Arc::clone(&gate),
            publisher: publisher.clone(),
            to_sdk,
            closing: closing.clone(),
            ignored: Arc::clone(&ignored),
        };
        let own = Supervised {
            process,
            last: publisher.reserve(0).await,
            publisher: publisher.clone(),
            closing: closing.clone(),
            stop: stop.clone(),
            grace: options.close_grace,
            ended,
        };
        let parts = vec![
            supervise::outlet(from_sdk, input, Arc::clone(&gate)).boxed(),
            supervise::drive(theirs, gate, ready, stop).boxed(),
        ];
        let tasks = TaskTracker::new();
        tasks.spawn(supervise::run(own, intake.run(output, options.line_bytes_max), parts));
        tasks.close();
        let Ok(connection) = connection.await else { return Err(StartError::Exited(wait_exit(&exit).await)) };
        let mut inner = Inner {
            connection,
            publisher,
            closing,
            ended: exit,
            tasks,
            options,
            about: AgentDescription::default(),
            turns: Mutex::default(),
            ignored,
            _close: close,
        };
        let after = inner.options.initialize_timeout;
        let Ok(answer) = tokio::time::timeout(after, inner.initialize()).await else {
            inner.shutdown().await;
            return Err(StartError::InitializeTimeout {
                after,
                stderr_tail: tail.map(|t| t.text()).unwrap_or_default(),
            });
        };
        match answer {
            Ok(about) => inner.about = about,
            Err(error) => {
                inner.shutdown().await;
                return Err(error);
            }
        }
        Ok((Self { inner: Arc::new(inner) }, events))
    }

    /// Who the agent says it is, and what it can do.
    #[must_use]
    pub fn about(&self) -> &AgentDescription {
        &self.inner.about
    }

    /// `session/new` in `cwd`, without MCP servers. `session_id` is a wish, told in `_meta["convoke.sessionId"]`.
    pub async fn new_session(&self, cwd: &Path, session_id: Option<&SessionId>) -> Result<StartedSession, AgentError> {
        const METHOD: &str = "session/new";
        let mut params = json!({"cwd": cwd, "mcpServers": []});
        if let (Some(id), Value::Object(params)) = (session_id, &mut params) {
            params.insert("_meta".to_owned(), json!({crate::SESSION_ID_META: id}));
        }
        let raw = self.request(METHOD, params).await?;
        let Some(id) = raw.get("sessionId").and_then(Value::as_str) else {
            return Err(AgentError::Answer { method: METHOD.to_owned(), reason: "it has no sessionId".to_owned() });
        };
        Ok(StartedSession::new(id.into(), raw.clone()))
    }

    /// Whether the agent can load sessions.
    #[must_use]
    pub fn loads_sessions(&self) -> bool {
        self.about().capabilities.get("loadSession") == Some(&Value::Bool(true))
    }

    /// `session/load` in `cwd`, without MCP servers.
    ///
    /// Resolves once the owner has taken every update that the agent sent before its answer: its replay of the session.
    /// So call it from another task than the one that reads [`AgentEvents`].
    pub async fn load_session(&self, cwd: &Path, session: &SessionId) -> Result<StartedSession, AgentError> {
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
        let answer = self.request("session/load", params).await;
        self.events_taken().await;
        Ok(StartedSession::new(session.clone(), answer?))
    }

    /// Waits until the owner took what the agent has sent so far, or the agent is being closed.
    async fn events_taken(&self) {
        tokio::select! {
            () = self.inner.publisher.drained() => {}
            () = self.inner.closing.cancelled() => {}
        }
    }

    /// `session/prompt`: `prompt` is ACP's array of content blocks, sent as it is; `meta` goes into `_meta`.
    ///
    /// Resolves once the owner has taken every event that the agent sent before its answer, so call it from another
    /// task than the one that reads [`AgentEvents`]. After [`Self::cancel`] the agent has
    /// [`AgentOptions::cancel_timeout`] to answer, then this is [`AgentError::CancelIgnored`].
    pub async fn prompt(
        &self,
        session: &SessionId,
        prompt: Value,
        meta: Option<Value>,
    ) -> Result<PromptEnd, AgentError> {
        const METHOD: &str = "session/prompt";
        let mut params = Map::new();
        params.insert("sessionId".to_owned(), json!(session));
        params.insert("prompt".to_owned(), prompt);
        params.extend(meta.map(|meta| ("_meta".to_owned(), meta)));
        let turn = Turn::begin(&self.inner, session);
        let after = self.inner.options.cancel_timeout;
        let answer = tokio::select! {
            biased;
            answer = self.request(METHOD, Value::Object(params)) => answer,
            () = async { turn.cancelled.cancelled().await; tokio::time::sleep(after).await } => {
                Err(AgentError::CancelIgnored { after })
            }
        };
        self.events_taken().await;
        let answer = answer?;
        let Some(stop_reason) = answer.get("stopReason").and_then(Value::as_str) else {
            return Err(AgentError::Answer { method: METHOD.to_owned(), reason: "it has no stopReason".to_owned() });
        };
        let meta = answer.get("_meta").filter(|meta| !meta.is_null()).cloned();
        Ok(PromptEnd { stop_reason: stop_reason.to_owned(), meta })
    }

    /// `session/cancel`: asks the agent to end the session's running turn. Answer its open questions as cancelled, too.
    pub fn cancel(&self, session: &SessionId) -> Result<(), AgentError> {
        for (id, cancelled) in self.inner.turns().running.values() {
            if id == session {
                cancelled.cancel();
            }
        }
        self.notify("session/cancel", json!({"sessionId": session}))
    }

    /// `session/set_mode`. The mode is spelled as the agent spells it.
    pub async fn set_mode(&self, session: &SessionId, mode_id: &str) -> Result<Value, AgentError> {
        self.request("session/set_mode", json!({"sessionId": session, "modeId": mode_id})).await
    }

    /// Ends a session: `session/close` where the agent offers it, else `session/cancel`.
    pub async fn close_session(&self, session: &SessionId) -> Result<(), AgentError> {
        let offers = self.about().capabilities.pointer("/sessionCapabilities/close").is_some_and(|c| !c.is_null());
        if offers {
            self.request("session/close", json!({"sessionId": session})).await.map(drop)
        } else {
            self.cancel(session)
        }
    }

    /// Any other request.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, AgentError> {
        self.inner.request(method, params).await
    }

    /// Any other notification.
    pub fn notify(&self, method: &str, params: Value) -> Result<(), AgentError> {
        let message = sdk::UntypedMessage { method: method.to_owned(), params };
        let sent = self.inner.connection.send_notification(message);
        sent.map_err(|error| AgentError::Refused { method: method.to_owned(), error: error.into() })
    }

    /// Ends the agent: closes its stdin, gives it [`AgentOptions::close_grace`], then lets go of its leash.
    ///
    /// Idempotent. Calls that are still open fail with [`AgentError::Gone`].
    pub async fn shutdown(&self) -> Arc<Exit> {
        self.inner.shutdown().await
    }

    /// Waits until the agent has ended, for whatever reason. Cancel-safe.
    pub async fn exited(&self) -> Arc<Exit> {
        wait_exit(&self.inner.ended).await
    }

    /// Lines of the agent's stdout that were no message for us, so far.
    #[must_use]
    pub fn ignored_lines(&self) -> u64 {
        self.inner.ignored.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn initialize(&self) -> Result<AgentDescription, StartError> {
        let (name, version) = &self.options.client;
        let serves = self.options.serves;
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {"fs": {"readTextFile": serves, "writeTextFile": serves}, "terminal": serves},
            "clientInfo": {"name": name, "version": version},
        });
        let raw = self.request("initialize", params).await.map_err(|error| match error {
            AgentError::Gone { exit, .. } => StartError::Exited(exit),
            AgentError::Refused { error, .. } => StartError::Refused(*error),
            other @ (AgentError::Answer { .. } | AgentError::CancelIgnored { .. }) => {
                StartError::Refused(RpcError { code: -32603, message: other.to_string(), data: None })
            }
        })?;
        let answered = raw.get("protocolVersion").cloned().unwrap_or_default();
        if answered != json!(1) {
            return Err(StartError::Version(answered));
        }
        let text = |pointer: &str| raw.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Ok(AgentDescription {
            name: text("/agentInfo/name"),
            version: text("/agentInfo/version"),
            capabilities: raw.get("agentCapabilities").cloned().unwrap_or_default(),
            raw: raw.clone(),
        })
    }

    async fn request(&self, method: &str, params: Value) -> Result<Value, AgentError> {
        let message = sdk::UntypedMessage { method: method.to_owned(), params };
        let sent = self.connection.send_request(message);
        let exit = tokio::select! {
            biased;
            answer = sent.block_task() => match answer {
                Ok(answer) => return Ok(answer),
                Err(error) if sdk::is_connection_terminated(&error) || sdk::is_incoming_transport_closed(&error) => {
                    wait_exit(&self.ended).await
                }
                Err(error) => return Err(AgentError::Refused { method: method.to_owned(), error: error.into() }),
            },
            exit = wait_exit(&self.ended) => exit,
        };
        Err(AgentError::Gone { method: method.to_owned(), exit })
    }

    async fn shutdown(&self) -> Arc<Exit> {
        self.closing.cancel();
        self.tasks.wait().await;
        wait_exit(&self.ended).await
    }
}

async fn wait_exit(ended: &watch::Receiver<Option<Arc<Exit>>>) -> Arc<Exit> {
    let mut ended = ended.clone();
    let exit = ended.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
    exit.unwrap_or_else(|| {
        let cause = EndCause::Broken("its supervisor is gone".to_owned());
        Arc::new(Exit { cause, exit_code: None, signal: None, stderr_tail: String::new() })
    })
}

#[derive(Debug, Default)]
struct Turns {
    running: HashMap<u64, (SessionId, CancellationToken)>,
    next: u64,
}

/// A running prompt's place among [`Inner::turns`].
struct Turn<'a> {
    inner: &'a Inner,
    number: u64,
    cancelled: CancellationToken,
}

impl<'a> Turn<'a> {
    fn begin(inner: &'a Inner, session: &SessionId) -> Self {
        let cancelled = CancellationToken::new();
        let mut turns = inner.turns();
        let number = turns.next;
        turns.next += 1;
        turns.running.insert(number, (session.clone(), cancelled.clone()));
        Self { inner, number, cancelled }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.inner.turns().running.remove(&self.number);
    }
}
