//! How is a session started at an agent? New with a mode and a model, or loaded.

use convoke_acp::{AgentChild, AgentError, StartError, StartedSession};
use convoke_bridge::StartFailure;
use convoke_protocol::{ApprovalMode, SessionId};
use tokio::time::timeout;

use super::AgentsOptions;
use super::order::Started;
use super::state::SessionState;
use crate::facts::millis;

/// What a new session should be like.
pub(super) struct NewSession {
    /// The id it should have.
    pub(super) wish: Option<SessionId>,
    /// Its mode.
    pub(super) mode: ApprovalMode,
    /// Its model.
    pub(super) model: Option<String>,
}

/// Starts a new session. A mode that the agent lacks leaves it in its own; a model that it refuses leaves it with its own,
/// and is told. `None` if the agent is gone.
pub(super) async fn new_session(
    agent: &AgentChild,
    options: &AgentsOptions,
    wanted: NewSession,
) -> Result<Option<Started>, StartFailure> {
    let NewSession { wish, mode, model } = wanted;
    let start = async {
        let session = agent.new_session(&options.workspace, wish.as_ref()).await?;
        let mut started = describe(&session, wish);
        if started.mode != mode
            && let Some(ask) = started.state.ask_for_mode(&started.agent_session, mode)
        {
            let answer = agent.request(ask.method, ask.params.clone()).await?;
            started.state.mode_taken(&ask, &answer);
            started.mode = mode;
        }
        if let Some(model) = model {
            let problem = choose_model(agent, &mut started, &model).await?;
            started.model = Some((model, problem));
        }
        Ok::<_, AgentError>(started)
    };
    let limit = options.limits.session_start_timeout;
    match timeout(limit, start).await {
        Ok(Ok(started)) => Ok(Some(started)),
        Ok(Err(AgentError::Gone { .. })) => Ok(None),
        Ok(Err(error)) => Err(agent_failure(&error)),
        Err(_) => Err(StartFailure::InitTimeout { timeout_ms: millis(limit), phase: "session/new".to_owned() }),
    }
}

/// Has the agent use `model`; a refusal is no failure of the session, but its reason.
async fn choose_model(agent: &AgentChild, started: &mut Started, model: &str) -> Result<Option<String>, AgentError> {
    let Some(ask) = started.state.ask_for_model(&started.agent_session, model) else {
        return Ok(Some(NO_MODELS.to_owned()));
    };
    match agent.request(ask.method, ask.params).await {
        Ok(answer) => {
            started.state.model_taken(model, &answer);
            Ok(None)
        }
        Err(error @ AgentError::Refused { .. }) => Ok(Some(reason(&agent_failure(&error)))),
        Err(error) => Err(error),
    }
}

/// Why an agent that offers no models can't change its model.
pub(super) const NO_MODELS: &str = "the agent offers no choice of models";

/// What an agent said about why it did not do something: the details where it gives them, since the message of a
/// JSON-RPC error is often only the name of its code.
pub(super) fn reason(failure: &StartFailure) -> String {
    match failure {
        StartFailure::Agent { message, data, .. } => {
            let details = data.as_ref().and_then(|data| data.get("details")?.as_str());
            details.unwrap_or(message).to_owned()
        }
        other => other.to_string(),
    }
}

/// Restores a session through ACP's `session/load`. `None` if the agent is gone.
pub(super) async fn load_session(
    agent: &AgentChild,
    options: &AgentsOptions,
    session: SessionId,
    agent_session: SessionId,
) -> Result<Option<Started>, StartFailure> {
    if !agent.loads_sessions() {
        return Err(StartFailure::NotStored { session });
    }
    let limit = options.limits.restore_timeout;
    match timeout(limit, agent.load_session(&options.workspace, &agent_session)).await {
        Ok(Ok(loaded)) => Ok(Some(describe(&loaded, Some(session)))),
        // ACP v1 has no code of its own for this; agents answer "not found" or bad params.
        Ok(Err(AgentError::Refused { error, .. })) if matches!(error.code, -32002 | -32602) => {
            Err(StartFailure::NotStored { session })
        }
        Ok(Err(AgentError::Gone { .. })) => Ok(None),
        Ok(Err(error)) => Err(agent_failure(&error)),
        Err(_) => Err(StartFailure::RestoreTimeout { timeout_ms: millis(limit) }),
    }
}

fn describe(session: &StartedSession, wish: Option<SessionId>) -> Started {
    let state = SessionState::of(session);
    let mode = state.mode().unwrap_or_default();
    Started { agent_session: session.session_id.clone(), wish, state, mode, model: None }
}

pub(super) fn start_failure(error: &StartError) -> StartFailure {
    match error {
        StartError::InitializeTimeout { after, .. } => {
            StartFailure::InitTimeout { timeout_ms: millis(*after), phase: "initialize".to_owned() }
        }
        StartError::Refused(error) => {
            StartFailure::Agent { code: error.code.into(), message: error.message.clone(), data: error.data.clone() }
        }
        StartError::Spawn { .. } | StartError::Exited(_) | StartError::Version(_) => {
            StartFailure::Unavailable { message: error.to_string() }
        }
    }
}

pub(super) fn agent_failure(error: &AgentError) -> StartFailure {
    match error {
        AgentError::Refused { error, .. } => {
            StartFailure::Agent { code: error.code.into(), message: error.message.clone(), data: error.data.clone() }
        }
        AgentError::Gone { .. } | AgentError::Answer { .. } | AgentError::CancelIgnored { .. } => {
            StartFailure::Unavailable { message: error.to_string() }
        }
    }
}
