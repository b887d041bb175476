//! Stamping events and putting them on the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use convoke_protocol::{AgentEvent, AgentEventBody, EventId, EventLog, Meta, StreamId, ToolCallId};
use convoke_stdx::{Clock, iso8601};

use crate::subagents::Thread;

/// Emits the events of one stream under ids `<streamId>-<n>`.
pub(crate) struct Emitter {
    log: EventLog,
    stream: StreamId,
    /// Whose stream it is, if not the session's own agent's.
    thread: Option<Arc<Thread>>,
    next: AtomicU64,
    clock: Clock,
}

impl Emitter {
    pub(crate) fn new(log: EventLog, stream: StreamId, thread: Option<Arc<Thread>>, clock: Clock) -> Self {
        Self { log, stream, thread, next: AtomicU64::new(0), clock }
    }

    /// A call's id in the events: ids of models are unique within one conversation only.
    pub(crate) fn call_id(&self, id: &str) -> ToolCallId {
        self.thread.as_ref().map_or_else(|| id.into(), |thread| thread.call_id(id))
    }

    pub(crate) fn emit(&self, body: AgentEventBody) -> EventId {
        self.emit_with(body, Meta::new())
    }

    pub(crate) fn emit_with(&self, body: AgentEventBody, mut meta: Meta) -> EventId {
        if let (Some(thread), AgentEventBody::AgentStart | AgentEventBody::ToolRequest { .. }) = (&self.thread, &body) {
            meta.extend(thread.meta());
        }
        let id = EventId(format!("{}-{}", self.stream, self.next.fetch_add(1, Ordering::Relaxed)));
        self.log.push(AgentEvent {
            id: id.clone(),
            thread_id: self.thread.as_ref().map(|thread| thread.id().to_owned()),
            stream_id: self.stream.clone(),
            timestamp: iso8601(self.clock.now().wall_ms),
            body,
            meta,
        });
        id
    }
}
