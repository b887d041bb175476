//! Stamping events and putting them on the log.

use std::sync::atomic::{AtomicU64, Ordering};

use convoke_protocol::{AgentEvent, AgentEventBody, EventId, EventLog, Meta, StreamId};
use convoke_stdx::{Clock, iso8601};

/// Emits the events of one stream under ids `<streamId>-<n>`.
pub(crate) struct Emitter {
    log: EventLog,
    stream: StreamId,
    next: AtomicU64,
    clock: Clock,
}

impl Emitter {
    pub(crate) fn new(log: EventLog, stream: StreamId, clock: Clock) -> Self {
        Self { log, stream, next: AtomicU64::new(0), clock }
    }

    pub(crate) fn emit(&self, body: AgentEventBody) -> EventId {
        self.emit_with(body, Meta::new())
    }

    pub(crate) fn emit_with(&self, body: AgentEventBody, meta: Meta) -> EventId {
        let id = EventId(format!("{}-{}", self.stream, self.next.fetch_add(1, Ordering::Relaxed)));
        self.log.push(AgentEvent {
            id: id.clone(),
            thread_id: None,
            stream_id: self.stream.clone(),
            timestamp: iso8601(self.clock.now().wall_ms),
            body,
            meta,
        });
        id
    }
}
