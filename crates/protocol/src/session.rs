//! A consumer's view of one stream at a time, with replay.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};

use crate::{AgentEvent, AgentEventBody, AgentProtocol, AgentSend, EventId, SendError, StreamId};

/// Wraps an [`AgentProtocol`] for consumers that follow streams rather than the whole trajectory.
#[derive(Clone)]
pub struct AgentSession {
    agent: Arc<dyn AgentProtocol>,
}

/// Where a followed stream begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StreamFrom {
    /// The running stream, else the next one.
    #[default]
    Current,
    /// This stream from its `agent_start`, which may still be to come.
    Stream(StreamId),
    /// Right behind this event, within its stream.
    Event(EventId),
}

/// Why a stream can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// No such event, or it is older than the log.
    #[error("Unknown eventId: {0}")]
    UnknownEvent(EventId),
    /// The event comes before its stream's start, and that has not happened yet.
    #[error("Cannot resume from eventId {event} before agent_start for stream {stream}")]
    BeforeStart {
        /// The event.
        event: EventId,
        /// Its stream.
        stream: StreamId,
    },
}

impl AgentSession {
    /// A view of `agent`.
    #[must_use]
    pub fn new(agent: Arc<dyn AgentProtocol>) -> Self {
        Self { agent }
    }

    /// The agent behind this view.
    #[must_use]
    pub fn agent(&self) -> &Arc<dyn AgentProtocol> {
        &self.agent
    }

    /// Sends `payload` and follows the stream that it started; an update yields nothing.
    pub async fn send_stream(
        &self,
        payload: AgentSend,
    ) -> Result<impl Stream<Item = Arc<AgentEvent>> + Send + use<>, SendError> {
        let events = self.agent.log().subscribe();
        let receipt = self.agent.send(payload).await?;
        Ok(match receipt.stream_id {
            Some(id) => follow(Some(id), false, events).left_stream(),
            None => stream::empty().right_stream(),
        })
    }

    /// Follows one stream from `agent_start` (or from behind an event) to `agent_end`, inclusive.
    ///
    /// Source: runtime specification §1.4. The log is read and subscribed in one step, so nothing is lost or doubled.
    pub fn stream(&self, from: StreamFrom) -> Result<impl Stream<Item = Arc<AgentEvent>> + Send + use<>, StreamError> {
        let (held, live) = self.agent.log().snapshot_and_subscribe();
        let (id, started, start) = match from {
            StreamFrom::Current => match running(&held) {
                Some(index) => (Some(held[index].stream_id.clone()), false, index),
                None => (None, false, held.len()),
            },
            StreamFrom::Stream(id) => {
                let start = start_of(&held, &id).unwrap_or(held.len());
                (Some(id), false, start)
            }
            StreamFrom::Event(id) => {
                let at = held.iter().position(|e| e.id == id).ok_or(StreamError::UnknownEvent(id.clone()))?;
                let event = &held[at];
                if matches!(event.body, AgentEventBody::AgentEnd { .. }) {
                    return Ok(stream::empty().left_stream());
                }
                match start_of(&held, &event.stream_id) {
                    Some(start) if start <= at => (Some(event.stream_id.clone()), true, at + 1),
                    Some(start) => (Some(event.stream_id.clone()), false, start),
                    // The start itself may be older than the log; then the event lies inside of its stream.
                    None if !matches!(event.body, AgentEventBody::Message { role: crate::MessageRole::User, .. }) => {
                        (Some(event.stream_id.clone()), true, at + 1)
                    }
                    None => {
                        return Err(StreamError::BeforeStart { event: id, stream: event.stream_id.clone() });
                    }
                }
            }
        };
        let replay = stream::iter(held.into_iter().skip(start));
        Ok(follow(id, started, replay.chain(live)).right_stream())
    }
}

fn start_of(events: &[Arc<AgentEvent>], id: &StreamId) -> Option<usize> {
    events.iter().position(|e| e.stream_id == *id && matches!(e.body, AgentEventBody::AgentStart))
}

/// Whether the session's own agent begins here; the streams of its subagents are nobody's current stream.
fn begins(event: &AgentEvent) -> bool {
    event.thread_id.is_none() && matches!(event.body, AgentEventBody::AgentStart)
}

/// The start of the latest stream that has begun and not ended.
fn running(events: &[Arc<AgentEvent>]) -> Option<usize> {
    let start = events.iter().rposition(|e| begins(e))?;
    let ended = events[start..]
        .iter()
        .any(|e| e.stream_id == events[start].stream_id && matches!(e.body, AgentEventBody::AgentEnd { .. }));
    (!ended).then_some(start)
}

/// Yields `id`'s events from its start on (or at once, if `started`) up to its end.
fn follow(
    id: Option<StreamId>,
    started: bool,
    events: impl Stream<Item = Arc<AgentEvent>> + Send + 'static,
) -> impl Stream<Item = Arc<AgentEvent>> + Send {
    let state = (id, started, false, Box::pin(events));
    stream::unfold(state, |(mut id, mut started, ended, mut events)| async move {
        if ended {
            return None;
        }
        loop {
            let event = events.next().await?;
            let begins = matches!(event.body, AgentEventBody::AgentStart);
            if id.is_none() && self::begins(&event) {
                id = Some(event.stream_id.clone());
            }
            if id.as_ref() != Some(&event.stream_id) || !(started || begins) {
                continue;
            }
            started = true;
            let ended = matches!(event.body, AgentEventBody::AgentEnd { .. });
            return Some((event, (id, started, ended, events)));
        }
    })
}
