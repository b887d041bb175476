//! How is an agent asked to take a session back, and what does everybody hear of it?
//!
//! ACP has no word for it; these are the methods of our own agent, and whoever has them too is asked like it.

use std::collections::VecDeque;

use convoke_acp::REWOUND_META;
use convoke_bridge::Input;
use convoke_protocol::{ClientId, SessionId};
use serde_json::{Map, Value, json};

use super::state::Ask;

/// Asks for the points.
pub(super) fn ask_for_points(session: &SessionId) -> Ask {
    Ask { method: "_convoke/session/rewind_points", params: json!({"sessionId": session}) }
}

/// Asks to go back.
pub(super) fn ask(session: &SessionId, fields: &Map<String, Value>) -> Ask {
    let mut params = fields.clone();
    params.insert("sessionId".to_owned(), json!(session));
    Ask { method: "_convoke/session/rewind", params: Value::Object(params) }
}

/// The ways back of one session. An agent tells of each in an update, whoever asked for it, and answers whoever did; the two
/// come in any order, and everybody hears of it once.
#[derive(Debug, Default)]
pub(super) struct WaysBack {
    /// Who waits for an answer, the longest first. As many as there are requests of theirs.
    asking: VecDeque<Option<ClientId>>,
    /// Told by an update, not answered yet.
    unanswered: usize,
    /// Answered, not told by an update yet.
    untold: usize,
}

impl WaysBack {
    /// A client asks.
    pub(super) fn asked(&mut self, client: Option<ClientId>) {
        self.asking.push_back(client);
    }

    /// The agent told of one, in an update that everybody hears anyway.
    pub(super) fn heed(&mut self, session: &SessionId, update: &Value) -> Option<Input> {
        let told = update.get("_meta")?.get(REWOUND_META)?;
        if self.untold > 0 {
            self.untold -= 1;
            return None;
        }
        let originator = self.asking.front().cloned().flatten();
        self.unanswered += usize::from(!self.asking.is_empty());
        Some(Done::read(told).told(session.clone(), originator))
    }

    /// The agent answered.
    pub(super) fn answered(
        &mut self,
        session: SessionId,
        originator: Option<ClientId>,
        answer: Option<&Value>,
    ) -> Option<Input> {
        if let Some(at) = self.asking.iter().position(|client| *client == originator) {
            self.asking.remove(at);
        }
        let news = match answer.and_then(Done::of) {
            Some(_) if self.unanswered > 0 => {
                self.unanswered -= 1;
                None
            }
            Some(done) => {
                self.untold += 1;
                Some(done.told(session, originator))
            }
            None => None,
        };
        if self.asking.is_empty() {
            // What is left was asked for in a prompt.
            self.unanswered = 0;
        }
        news
    }
}

/// An agent's answer that says that a session went back.
pub(crate) struct Done {
    /// `conversation`, `files` or `both`.
    pub(crate) what: String,
    pub(crate) prompt_id: String,
    /// From 0.
    pub(crate) turn_index: usize,
    pub(crate) files_changed: Vec<String>,
    pub(crate) files_failed: Vec<String>,
}

impl Done {
    pub(crate) fn of(answer: &Value) -> Option<Self> {
        (answer.get("outcome")?.as_str()? == "done").then(|| Self::read(answer))
    }

    fn read(answer: &Value) -> Self {
        let list = |key: &str| answer.get(key).and_then(Value::as_array).into_iter().flatten();
        let number = answer.get("number").and_then(Value::as_u64).unwrap_or(1);
        let left = list("left").filter_map(|left| left.get("path")?.as_str());
        Self {
            what: answer.get("what").and_then(Value::as_str).unwrap_or("both").to_owned(),
            prompt_id: answer.get("messageId").and_then(Value::as_str).unwrap_or_default().to_owned(),
            turn_index: usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1),
            files_changed: list("files").filter_map(Value::as_str).map(str::to_owned).collect(),
            files_failed: left.map(str::to_owned).collect(),
        }
    }

    fn told(self, session: SessionId, originator: Option<ClientId>) -> Input {
        Input::SessionRewound {
            session,
            originator,
            prompt_id: self.prompt_id,
            turn_index: self.turn_index,
            what: self.what,
            files_changed: self.files_changed,
            files_failed: self.files_failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update() -> Value {
        json!({"sessionUpdate": "session_info_update", "_meta": {REWOUND_META: {
            "messageId": "m", "number": 2, "what": "files", "files": ["a"], "left": [{"path": "b", "why": "x"}]}}})
    }

    fn done() -> Value {
        let mut answer = update()["_meta"][REWOUND_META].clone();
        answer["outcome"] = json!("done");
        answer
    }

    /// Who is named in what everybody hears, if they do.
    fn heard(input: Option<Input>) -> Option<Option<String>> {
        match input? {
            Input::SessionRewound { originator, prompt_id, turn_index, what, files_changed, files_failed, .. } => {
                assert_eq!((prompt_id.as_str(), turn_index, what.as_str()), ("m", 1, "files"));
                assert_eq!((files_changed, files_failed), (vec!["a".to_owned()], vec!["b".to_owned()]));
                Some(originator.map(|client| client.to_string()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everybody_hears_of_it_once_in_whatever_order_it_is_told() {
        let (s, c) = (SessionId::from("s"), Some(ClientId::from("c")));
        let named = Some(Some("c".to_owned()));
        // As a prompt: nobody waits for an answer.
        let mut ways = WaysBack::default();
        assert_eq!(heard(ways.heed(&s, &update())), Some(None));
        // Asked for over HTTP, with the update before the answer, and after it.
        for _ in 0..2 {
            ways.asked(c.clone());
            assert_eq!(heard(ways.heed(&s, &update())), named);
            assert_eq!(heard(ways.answered(s.clone(), c.clone(), Some(&done()))), None);
        }
        for _ in 0..2 {
            ways.asked(c.clone());
            assert_eq!(heard(ways.answered(s.clone(), c.clone(), Some(&done()))), named);
            assert_eq!(heard(ways.heed(&s, &update())), None);
        }
        // A refusal tells nothing, and what a prompt does afterwards is heard.
        ways.asked(c.clone());
        assert_eq!(heard(ways.answered(s.clone(), c.clone(), Some(&json!({"outcome": "busy"})))), None);
        ways.asked(c.clone());
        assert_eq!(heard(ways.answered(s.clone(), c, None)), None);
        assert_eq!(heard(ways.heed(&s, &update())), Some(None));
        assert!(ways.heed(&s, &json!({"sessionUpdate": "plan"})).is_none());
    }
}
