//! Going back, from outside of a turn and as a prompt of its own.
//!
//! The record is taken back first; then the kernel's session is dropped, and made again with what is left when the next prompt
//! comes. Source: implementation details of the replatforming, "/rewind".

use std::sync::Arc;

use convoke_adk::{Event, GetSession};
use convoke_protocol::{
    AgentEventBody, BranchOutcome, ErrorStatus, RewindOutcome, RewindPoint, RewindRequest, StreamEndReason, StreamId,
};
use serde_json::{Map, Value, json};

use super::{AdkAgentProtocol, Ending, Shared, Stream};
use crate::emitter::Emitter;
use crate::record::state_after;
use crate::rewind::{self, Done, Rewinder, Wish};
use crate::told;

/// What is told where nothing is recorded.
const NOT_RECORDED: &str = "this session is not recorded";

impl AdkAgentProtocol {
    /// The points that the session can go back to.
    pub(crate) async fn rewind_points(&self) -> Result<Vec<RewindPoint>, String> {
        self.shared.rewinder()?.points().await
    }

    /// Goes back; prompts have to wait until it is done.
    pub(crate) async fn rewind(&self, request: RewindRequest) -> RewindOutcome {
        let rewinder = match self.shared.rewinder() {
            Ok(rewinder) => Arc::clone(rewinder),
            Err(why) => return RewindOutcome::Unavailable { why },
        };
        let shared = Arc::clone(&self.shared);
        let reserved = match self.reserve() {
            Ok(reserved) => reserved,
            Err(None) => return RewindOutcome::Busy,
            Err(Some(why)) => return RewindOutcome::Unavailable { why },
        };
        // Not with whoever waits for it: what is begun is done.
        let done = self.tasks.spawn(async move {
            let _reserved = reserved;
            let done = rewinder.rewind(request).await;
            let number = shared.next_stream();
            let emitter = shared.emitter(StreamId(format!("{}-update-{number}", shared.key.session_id)));
            shared.gone_back(done, &emitter)
        });
        done.await.unwrap_or_else(|error| RewindOutcome::Failed { why: error.to_string() })
    }

    /// Begins another session with what was said before a point.
    pub(crate) async fn branch(&self, at: Option<&str>) -> BranchOutcome {
        let rewinder = match self.shared.rewinder() {
            Ok(rewinder) => rewinder,
            Err(why) => return BranchOutcome::Unavailable { why },
        };
        match self.reserve() {
            Ok(_reserved) => rewinder.branch(at).await,
            Err(None) => BranchOutcome::Busy,
            Err(Some(why)) => BranchOutcome::Unavailable { why },
        }
    }
}

impl Shared {
    fn rewinder(&self) -> Result<&Arc<Rewinder>, String> {
        self.rewinder.as_ref().ok_or_else(|| NOT_RECORDED.to_owned())
    }

    /// Calls that were dropped are done now, for whoever asks what a turn changed.
    pub(super) async fn settle_files(&self) {
        if let Some(keeper) = self.rewinder.as_ref().and_then(|rewinder| rewinder.keeper.as_ref()) {
            keeper.settle().await;
        }
    }

    /// Drops the kernel's session for what is left of it, and tells everybody.
    fn gone_back(&self, done: Done, emitter: &Emitter) -> RewindOutcome {
        let Done { outcome, events, title } = done;
        told::rewound(&self.key.session_id, &outcome);
        if let Some(events) = events {
            self.runner.sessions().delete(&self.key);
            *self.past() = Some(events);
        }
        if let RewindOutcome::Done(rewound) = &outcome {
            emitter.emit(AgentEventBody::SessionUpdate { title, model: None, config: None });
            let left = rewound.left.iter().map(|left| json!({"path": left.path, "why": left.why}));
            let data = json!({
                "messageId": rewound.id,
                "number": rewound.number,
                "what": rewound.what.name(),
                "files": rewound.files,
                "left": left.collect::<Vec<_>>(),
            });
            emitter.emit(AgentEventBody::Custom { kind: "session_rewound".to_owned(), data: Some(data) });
        }
        outcome
    }

    /// Makes the kernel's session again, if it was dropped.
    pub(super) fn restore_session(&self) {
        let Some(events) = self.past().take() else { return };
        let sessions = self.runner.sessions();
        if sessions.get(&self.key, &GetSession::default()).is_some() {
            return;
        }
        let made = sessions.create(self.key.clone(), state_after(&events), self.clock.now().wall_ms);
        if let Some(session) = made {
            session.with(|session| session.events = events);
        }
    }

    fn past(&self) -> std::sync::MutexGuard<'_, Option<Vec<Event>>> {
        self.past.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Stream {
    /// A prompt that asks to go back, or where to. It has the session to itself, as any prompt has.
    pub(super) async fn rewound(&self, args: &str) -> Ending {
        let rewinder = match self.shared.rewinder() {
            Ok(rewinder) => rewinder,
            Err(why) => return self.answered(format!("There is no way back: {why}.")),
        };
        let request = match rewind::wish(args) {
            Err(usage) => return self.not_rewound(usage),
            Ok(Wish::List) => {
                return match rewinder.points().await {
                    Ok(points) => self.answered(rewind::points_text(&points)),
                    Err(why) => self.not_rewound(why),
                };
            }
            Ok(Wish::Rewind(request)) => request,
        };
        let to = request.to.clone();
        match self.shared.gone_back(rewinder.rewind(request).await, &self.emitter) {
            RewindOutcome::Done(rewound) => self.answered(rewind::rewound_text(&rewound)),
            RewindOutcome::Conflicts(conflicts) => self.not_rewound(rewind::conflicts_text(&conflicts)),
            RewindOutcome::UnknownPoint => self.not_rewound(format!("rewind to {to}: there is no such point")),
            RewindOutcome::Unavailable { why } | RewindOutcome::Failed { why } => {
                self.not_rewound(format!("rewind to {to}: {why}"))
            }
            RewindOutcome::Busy => self.not_rewound("rewind: a turn is running".to_owned()),
        }
    }

    /// A prompt that asks for a branch.
    pub(super) async fn branched(&self, args: &str) -> Ending {
        let rewinder = match self.shared.rewinder() {
            Ok(rewinder) => rewinder,
            Err(why) => return self.answered(format!("There is no branch: {why}.")),
        };
        let at = args.split_whitespace().next();
        match rewinder.branch(at).await {
            BranchOutcome::Branched { session, title } => {
                let text = format!("Session {session} begins as \"{title}\". This one goes on as it was.");
                let data = json!({"sessionId": session, "title": title});
                let body = AgentEventBody::Custom { kind: "session_branched".to_owned(), data: Some(data) };
                self.emitter.emit(body);
                self.answered(text)
            }
            BranchOutcome::UnknownPoint => self.not_rewound("branch: there is no such point".to_owned()),
            BranchOutcome::Unavailable { why } => self.not_rewound(format!("branch: {why}")),
            BranchOutcome::Busy => self.not_rewound("branch: a turn is running".to_owned()),
        }
    }

    fn not_rewound(&self, message: String) -> Ending {
        let meta = Map::from_iter([("code".to_owned(), Value::from("REWIND_REFUSED"))]);
        let status = ErrorStatus::FailedPrecondition;
        self.emitter.emit_with(AgentEventBody::Error { status, message, fatal: true }, meta);
        Ending::new(StreamEndReason::Failed).with("code", "REWIND_REFUSED")
    }
}
