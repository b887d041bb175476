//! One invocation: the user's message, the agent, the session, the plugins.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use async_stream::try_stream;
use convoke_stdx::Clock;
use futures::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Content, Event, FlowError, GetSession, Inbox, InvocationContext, LiveSession, LlmAgent, Plugin, PluginManager,
    RunConfig, SessionKey, SessionService, StopSignal,
};

/// Runs invocations of one agent.
///
/// Order: get the session, `on_user_message`, append the message, `before_run`, then for each event of the agent
/// `on_event`, append, deliver; at last `after_run`, also after an error or a cancellation.
/// What a plugin made of an event is what is kept. Source: runtime specification §2.7.
pub struct Runner {
    agent: LlmAgent,
    sessions: Arc<dyn SessionService>,
    plugins: Arc<PluginManager>,
    config: RunConfig,
    clock: Clock,
}

/// How an invocation can be reached while it runs.
#[derive(Clone, Debug, Default)]
pub struct RunControls {
    /// Asks for an end after the current event.
    pub stop: StopSignal,
    /// Ends at once with `Err(FlowError::Cancelled)`.
    pub cancel: CancellationToken,
    /// Says something before the next model call.
    pub inbox: Inbox,
}

/// Why an invocation ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The key names no session.
    #[error("run an invocation: session not found: {0}")]
    SessionNotFound(String),
    /// The message has no parts.
    #[error("run an invocation: the message has no parts")]
    EmptyMessage,
    /// Two plugins have this name.
    #[error("register plugin '{0}': the name is taken")]
    DuplicatePlugin(String),
    /// Something in the flow.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Runner {
    /// A runner of `agent` over `sessions`.
    ///
    /// Errors: [`RunError::DuplicatePlugin`].
    pub fn new(
        agent: LlmAgent,
        sessions: Arc<dyn SessionService>,
        plugins: Vec<Arc<dyn Plugin>>,
        config: RunConfig,
    ) -> Result<Self, RunError> {
        let plugins = Arc::new(PluginManager::new(plugins).map_err(RunError::DuplicatePlugin)?);
        Ok(Self { agent, sessions, plugins, config, clock: Clock::start() })
    }

    /// The session service.
    #[must_use]
    pub fn sessions(&self) -> &Arc<dyn SessionService> {
        &self.sessions
    }

    /// Runs one invocation. Without a message the agent goes on from where the session stands.
    ///
    /// `stop` asks for an end after the current event; `cancel` ends at once with `Err(FlowError::Cancelled)`.
    /// Dropping the stream ends the invocation without `after_run`.
    pub fn run(
        &self,
        key: &SessionKey,
        message: Option<Content>,
        stop: StopSignal,
        cancel: CancellationToken,
    ) -> impl Stream<Item = Result<Event, RunError>> + Send + use<> {
        self.run_with(key, message, RunControls { stop, cancel, inbox: Inbox::default() })
    }

    /// [`run`](Self::run), for one that is to be spoken to while it runs.
    pub fn run_with(
        &self,
        key: &SessionKey,
        message: Option<Content>,
        controls: RunControls,
    ) -> impl Stream<Item = Result<Event, RunError>> + Send + use<> {
        let sessions = self.sessions.clone();
        let agent = self.agent.clone();
        let session = sessions.get(key, &GetSession::default());
        let cx = session.map(|session| self.context(session, controls));
        let session_id = key.session_id.clone();
        try_stream! {
            let cx = cx.ok_or(RunError::SessionNotFound(session_id))?;
            let outcome: Result<(), FlowError> = {
                let events = invocation(&cx, &agent, message)?;
                futures::pin_mut!(events);
                let mut outcome = Ok(());
                while let Some(event) = events.next().await {
                    match event {
                        Ok(event) => match keep(&cx, sessions.as_ref(), event).await {
                            Ok(event) => yield event,
                            Err(error) => { outcome = Err(error); break }
                        },
                        Err(error) => { outcome = Err(error); break }
                    }
                }
                outcome
            };
            let after = cx.plugins.after_run(&cx).await.map_err(FlowError::from);
            outcome.and(after)?;
        }
    }

    fn context(&self, session: LiveSession, controls: RunControls) -> InvocationContext {
        let RunControls { stop, cancel, inbox } = controls;
        InvocationContext {
            invocation_id: format!("e-{}", Uuid::new_v4()),
            session,
            agent_name: self.agent.name.clone(),
            branch: None,
            cancel,
            stop,
            inbox,
            plugins: self.plugins.clone(),
            config: self.config.clone(),
            clock: self.clock,
            llm_calls: Arc::new(AtomicU32::new(0)),
        }
    }
}

/// The events of an invocation, the user's own first.
fn invocation<'a>(
    cx: &'a InvocationContext,
    agent: &'a LlmAgent,
    message: Option<Content>,
) -> Result<impl Stream<Item = Result<Event, FlowError>> + Send + 'a, RunError> {
    if message.as_ref().is_some_and(|content| content.parts.is_empty()) {
        return Err(RunError::EmptyMessage);
    }
    Ok(try_stream! {
        if let Some(message) = message {
            let message = cx.plugins.on_user_message(cx, &message).await?.unwrap_or(message);
            yield Event { content: Some(Arc::new(message)), ..cx.event("user") };
        }
        if let Some(content) = cx.plugins.before_run(cx).await? {
            yield Event { content: Some(Arc::new(content)), ..cx.event(&agent.name) };
            return;
        }
        let events = agent.run(cx.clone());
        futures::pin_mut!(events);
        while let Some(event) = events.next().await {
            yield event?;
        }
    })
}

async fn keep(cx: &InvocationContext, sessions: &dyn SessionService, event: Event) -> Result<Event, FlowError> {
    let event = cx.plugins.on_event(cx, &event).await?.unwrap_or(event);
    sessions.append(&cx.session, event.clone());
    Ok(event)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod tests_support;
