//! What an agent tells again of a session that it loads: events as clients know them, but without numbers.
//!
//! Nobody who follows the session now has missed them, so they do not go through the bridge; they are for the answer to
//! `load`, whose wire calls them `compactedReplay`.

use std::collections::VecDeque;

use bytes::Bytes;
use convoke_protocol::SessionId;
use convoke_protocol::daemon::{Frame, FrameKind, FrameMeta};
use serde_json::{Value, json};

/// The newest of an agent's history that fits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    events: VecDeque<Bytes>,
    bytes: usize,
    cut: bool,
}

impl Replay {
    /// Adds one update, and lets go of the oldest ones beyond `limit` bytes.
    pub(super) fn push(&mut self, session: &SessionId, update: Value, wall_ms: u64, limit: usize) {
        let frame = Frame {
            id: None,
            v: 1,
            kind: FrameKind::SessionUpdate,
            prompt_id: None,
            data: json!({"sessionId": session, "update": update}),
            originator_client_id: None,
            meta: FrameMeta { server_timestamp: wall_ms },
        };
        // A frame holds strings, numbers and JSON values only: encoding it into memory can't fail.
        let event = Bytes::from(serde_json::to_vec(&frame).unwrap_or_default());
        self.bytes += event.len();
        self.events.push_back(event);
        while self.bytes > limit {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= oldest.len();
            self.cut = true;
        }
    }

    /// The events, oldest first.
    pub(crate) fn events(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.events.iter()
    }

    /// Whether there was more than fits.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_fits_is_kept() {
        let mut replay = Replay::default();
        let session = SessionId::from("s");
        for n in 0..10 {
            replay.push(&session, json!({"n": n}), 7, 300);
        }
        let events: Vec<Value> = replay.events().map(|event| serde_json::from_slice(event).unwrap()).collect();
        assert!(replay.is_cut() && replay.bytes <= 300);
        let last = json!({
            "v": 1, "type": "session_update", "data": {"sessionId": "s", "update": {"n": 9}},
            "_meta": {"serverTimestamp": 7},
        });
        assert_eq!(events.last(), Some(&last));
        let seen: Vec<_> = events.iter().map(|event| event["data"]["update"]["n"].as_u64().unwrap()).collect();
        assert!(seen.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seen:?}");
        replay.push(&session, json!({"n": "x".repeat(400)}), 7, 300);
        assert_eq!((replay.events().len(), replay.bytes), (0, 0));
    }
}
