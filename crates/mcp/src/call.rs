//! One call of a tool: its progress, its patience, and how it ends.
//!
//! The patience is a time without progress. A call that is given up, for whichever reason, is cancelled at the server,
//! and nobody waits for the server to agree.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, InputRequest, InputRequiredResult,
    InputResponses, JsonObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Answer;
use crate::client::Client;
use crate::handler::{self, OnProgress};

/// How often a server may ask for more within one call.
const ROUNDS_MAX: usize = 8;
/// How long the word that a call is cancelled may take to leave.
const CANCEL_WAIT: Duration = Duration::from_millis(250);
/// A call with progress and no end is ended after this many times its patience.
const PATIENCE_TOTAL: u32 = 6;

/// How far a call is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Steps done.
    pub progress: f64,
    /// Steps in all.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was cancelled.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server took too long.
    #[error("the MCP server \"{server}\" gave no answer within {} seconds", after.as_secs_f64())]
    Timeout {
        /// The server.
        server: String,
        /// Its patience.
        after: Duration,
    },
    /// The server is not there.
    #[error("the MCP server \"{server}\" is not there: {reason}")]
    Gone {
        /// The server.
        server: String,
        /// Why.
        reason: String,
    },
    /// The server wants a login.
    #[error("the MCP server \"{server}\" wants a login: run `convoke mcp login {server}`")]
    Login {
        /// The server.
        server: String,
    },
    /// The server refused.
    #[error("the MCP server \"{server}\" refused: {reason}")]
    Refused {
        /// The server.
        server: String,
        /// In its words.
        reason: String,
    },
}

impl Client {
    /// Calls `tool` and waits for the answer, for `cancel`, for the server's end or for patience to run out.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        cancel: &CancellationToken,
        on_progress: OnProgress,
    ) -> Result<Answer, CallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let end = Instant::now() + self.timeout * PATIENCE_TOTAL;
        for _ in 0..ROUNDS_MAX {
            match self.round(params.clone(), cancel, &on_progress, end).await? {
                Round::Done(result) => return Ok(Answer::of_call(tool, result)),
                Round::Asked(asked) => {
                    params.request_state = asked.request_state.clone();
                    params.input_responses = Some(self.responses(asked)?);
                }
            }
        }
        Err(self.refused(format!("it asked {ROUNDS_MAX} times for more")))
    }

    async fn round(
        &self,
        params: CallToolRequestParams,
        cancel: &CancellationToken,
        on_progress: &OnProgress,
        end: Instant,
    ) -> Result<Round, CallError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options();
        let sent = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(CallError::Cancelled),
            () = self.gone.cancelled() => return Err(self.gone()),
            sent = self.peer.send_cancellable_request(request, options) => sent,
        };
        let mut handle = sent.map_err(|error| self.failed(error))?;
        let moved = Arc::new(Notify::new());
        let listener = {
            let (moved, on_progress) = (moved.clone(), on_progress.clone());
            Arc::new(move |progress| {
                moved.notify_one();
                on_progress(progress);
            })
        };
        let _listening = self.progress.enter(handle.progress_token.clone(), listener);
        let mut patience = Instant::now() + self.timeout;
        let ended = loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => break Err(CallError::Cancelled),
                answer = &mut handle.rx => break Ok(answer.unwrap_or(Err(ServiceError::TransportClosed))),
                () = self.gone.cancelled() => break Err(self.gone()),
                () = moved.notified() => patience = Instant::now() + self.timeout,
                () = tokio::time::sleep_until(patience.min(end)) => break Err(self.late()),
            }
        };
        match ended {
            Ok(Ok(ServerResult::CallToolResult(result))) => Ok(Round::Done(result)),
            Ok(Ok(ServerResult::InputRequiredResult(asked))) => Ok(Round::Asked(asked)),
            // An answer without any field that is known: nothing was said.
            Ok(Ok(ServerResult::EmptyResult(_))) => Ok(Round::Done(CallToolResult::default())),
            Ok(Ok(_)) => Err(self.refused("its answer is not the result of a call".to_owned())),
            Ok(Err(error)) => Err(self.failed(error)),
            Err(error) => {
                give_up(handle, &error).await;
                Err(error)
            }
        }
    }

    /// What a server asks in the middle of a call: it may know the folders, and nobody is asked for it.
    fn responses(&self, asked: InputRequiredResult) -> Result<InputResponses, CallError> {
        let mut responses = InputResponses::new();
        for (key, request) in asked.input_requests.unwrap_or_default() {
            let response = match request {
                InputRequest::Elicitation(_) => serde_json::to_value(handler::declined()),
                InputRequest::ListRoots(_) => serde_json::to_value(handler::roots(&self.roots)),
                _ => return Err(self.refused("it asks for a model's answer, which is not offered".to_owned())),
            };
            responses.insert(key, response.unwrap_or(Value::Object(Map::new())));
        }
        Ok(responses)
    }

    pub(crate) fn refused(&self, reason: String) -> CallError {
        CallError::Refused { server: self.server.clone(), reason }
    }

    pub(crate) fn late(&self) -> CallError {
        CallError::Timeout { server: self.server.clone(), after: self.timeout }
    }

    pub(crate) fn gone(&self) -> CallError {
        CallError::Gone { server: self.server.clone(), reason: "it ended while the call ran".to_owned() }
    }

    pub(crate) fn failed(&self, error: ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => self.refused(error.message.into_owned()),
            ServiceError::TransportClosed => self.gone(),
            ServiceError::Cancelled { .. } => CallError::Cancelled,
            ServiceError::TransportSend(error) if crate::client::wants_login(error.error.as_ref()) => {
                self.refused.cancel();
                CallError::Login { server: self.server.clone() }
            }
            ServiceError::TransportSend(error) => {
                CallError::Gone { server: self.server.clone(), reason: crate::client::told(&error) }
            }
            other => self.refused(other.to_string()),
        }
    }
}

enum Round {
    Done(CallToolResult),
    Asked(InputRequiredResult),
}

async fn give_up(handle: RequestHandle<RoleClient>, why: &CallError) {
    if matches!(why, CallError::Gone { .. }) {
        return;
    }
    let _ = tokio::time::timeout(CANCEL_WAIT, handle.cancel(Some(why.to_string()))).await;
}
