//! What an invocation carries along.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use convoke_stdx::Clock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Event, Inbox, LiveSession, PluginManager};

/// Bounds of one invocation.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Most model calls; `None` for no limit.
    pub max_llm_calls: Option<u32>,
}

impl Default for RunConfig {
    fn default() -> Self {
        // ADK's own default: far above any honest run, low enough to end a runaway before it costs a fortune.
        Self { max_llm_calls: Some(500) }
    }
}

/// Why a plugin or a tool asked the invocation to stop: a stable code and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReason {
    /// Such as `LOOP_DETECTED`.
    pub code: String,
    /// What a person reads.
    pub message: String,
}

/// The deferred stop: set by anyone, looked at by the flow after an event was delivered.
///
/// Stopping is not aborting. The event that caused it still reaches its readers, and calls that were not dispatched
/// are answered as cancelled, so that the session stays one that a model can go on from.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<Mutex<Option<StopReason>>>);

impl StopSignal {
    /// Asks for a stop; the first reason stays.
    pub fn request(&self, reason: StopReason) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
    }

    /// The reason, once a stop was asked for.
    #[must_use]
    pub fn requested(&self) -> Option<StopReason> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One invocation: a user's message and everything until the agent is done.
#[derive(Clone)]
pub struct InvocationContext {
    /// `e-<uuid>`.
    pub invocation_id: String,
    /// The session it runs in.
    pub session: LiveSession,
    /// The agent that runs.
    pub agent_name: String,
    /// Path of agents that led here; `None` for the root agent.
    pub branch: Option<String>,
    /// Ends everything at once.
    pub cancel: CancellationToken,
    /// Ends the invocation after the current event.
    pub stop: StopSignal,
    /// What is said in between.
    pub inbox: Inbox,
    /// Who watches.
    pub plugins: Arc<PluginManager>,
    /// Bounds.
    pub config: RunConfig,
    pub(crate) clock: Clock,
    pub(crate) llm_calls: Arc<AtomicU32>,
}

impl InvocationContext {
    /// A bare event of this invocation, stamped now.
    #[must_use]
    pub fn event(&self, author: &str) -> Event {
        Event {
            id: Uuid::new_v4().simple().to_string(),
            invocation_id: self.invocation_id.clone(),
            author: author.to_owned(),
            timestamp_ms: self.clock.now().wall_ms,
            branch: self.branch.clone(),
            ..Event::default()
        }
    }

    /// `Err` with the limit when there is no model call left.
    pub(crate) fn has_llm_call_left(&self) -> Result<(), u32> {
        match self.config.max_llm_calls {
            Some(limit) if self.llm_calls() >= limit => Err(limit),
            Some(_) | None => Ok(()),
        }
    }

    /// Counts a model call; `Err` with the limit when it is one too many.
    pub(crate) fn count_llm_call(&self) -> Result<(), u32> {
        let calls = self.llm_calls.fetch_add(1, Ordering::Relaxed) + 1;
        match self.config.max_llm_calls {
            Some(limit) if calls > limit => Err(limit),
            Some(_) | None => Ok(()),
        }
    }

    /// Model calls so far.
    #[must_use]
    pub fn llm_calls(&self) -> u32 {
        self.llm_calls.load(Ordering::Relaxed)
    }
}
