//! Reaching a session beside its prompts: a word to the running turn, and compression between turns.

use std::sync::Arc;

use convoke_adk::{Accepted, Content, GetSession, Inbox, Interjection};
use convoke_protocol::{CompressOutcome, SteerOutcome, StreamEndReason, StreamId};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::{AdkAgentProtocol, Ending, Shared, State, Stream};

/// Whose message it is that a user says in between.
pub(crate) const STEERING: &str = "steering";

impl AdkAgentProtocol {
    /// Says something to the running turn.
    pub(crate) fn steer(&self, text: &str) -> SteerOutcome {
        let State::Running { inbox, .. } = &*self.shared.state() else { return SteerOutcome::NoTurn };
        let metadata = Map::from_iter([("source".to_owned(), STEERING.into())]);
        match inbox.push(Interjection { content: Content::user(text), metadata }) {
            Accepted::Yes => SteerOutcome::Taken,
            Accepted::Closed => SteerOutcome::NoTurn,
            Accepted::Full => SteerOutcome::Full,
        }
    }

    /// Compresses the session; prompts have to wait until it is done.
    pub(crate) async fn compress(&self) -> CompressOutcome {
        // Whoever stops waiting for this future stops the compression with it.
        let reserved = match self.reserve() {
            Ok(reserved) => reserved,
            Err(None) => return CompressOutcome::Busy,
            Err(Some(why)) => return CompressOutcome::Failed { why },
        };
        self.shared.restore_session();
        let Some(session) = self.shared.runner.sessions().get(&self.shared.key, &GetSession::default()) else {
            return CompressOutcome::Failed { why: "the session is gone".to_owned() };
        };
        let number = self.shared.next_stream();
        let id = StreamId(format!("{}-update-{number}", self.shared.key.session_id));
        let emitter = self.shared.emitter(id);
        self.shared.stream.set(Some(Arc::new(emitter)));
        self.shared.compressor.compress_now(&session, &reserved.cancel).await
    }

    /// Keeps prompts out for something that is no stream. `Err` without a text if a turn runs.
    pub(super) fn reserve(&self) -> Result<Reserved, Option<String>> {
        let (cancel, ended) = (CancellationToken::new(), CancellationToken::new());
        let inbox = Inbox::default();
        let _nothing_waits = inbox.close();
        {
            let mut state = self.shared.state();
            match *state {
                State::Running { .. } => return Err(None),
                State::Closed => return Err(Some("the session is closed".to_owned())),
                State::Idle => *state = State::Running { cancel: cancel.clone(), ended: ended.clone(), inbox },
            }
        }
        Ok(Reserved { shared: Arc::clone(&self.shared), cancel, ended })
    }
}

impl Stream {
    /// A prompt that asks for compression. It has the session to itself, as any prompt has.
    pub(super) async fn compressed(&self) -> Ending {
        let session = self.shared.runner.sessions().get(&self.shared.key, &GetSession::default());
        let outcome = match session {
            Some(session) => self.shared.compressor.compress_now(&session, &self.cancel).await,
            None => CompressOutcome::Failed { why: "the session is gone".to_owned() },
        };
        if self.cancel.is_cancelled() {
            return Ending::new(StreamEndReason::Aborted);
        }
        self.answered(match outcome {
            CompressOutcome::Compressed { before, after } => {
                format!("Compressed the conversation from {before} to {after} tokens.")
            }
            CompressOutcome::Noop => "There is nothing to compress.".to_owned(),
            CompressOutcome::Failed { why } => format!("The conversation is as it was: {why}."),
            CompressOutcome::Busy => "The conversation is as it was: a turn is running.".to_owned(),
        })
    }
}

/// A session that is busy with something that is no stream; free again when dropped.
pub(super) struct Reserved {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    ended: CancellationToken,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared.stream.set(None);
        {
            let mut state = self.shared.state();
            if !matches!(*state, State::Closed) {
                *state = State::Idle;
            }
        }
        self.ended.cancel();
    }
}
