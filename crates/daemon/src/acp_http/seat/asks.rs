//! Sans-IO: which permission requests was this client asked about, and under which ids?
//!
//! Two levels of ids: `_qwen_perm_<connection>_<n>` lives between a client and its seat, the request's own id is the
//! daemon's. An entry stays until the client has answered, also after others decided: a late answer is still a vote,
//! which the bridge then tells everybody was late.

use std::collections::BTreeMap;

use convoke_bridge::VoteChoice;
use convoke_protocol::{RequestId, SessionId};
use serde_json::{Map, Value};

use super::super::rpc::{self, Reply};

/// Decided requests that the client has not answered; as many as the bridge remembers. Later answers to forgotten ones
/// are answers to nothing.
const SETTLED_MAX: usize = 512;

/// One request as the client knows it.
#[derive(Debug)]
struct Ask {
    request: RequestId,
    session: SessionId,
    /// Whether the client's own turn asks.
    own: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has the question.
    Open,
    /// Others decided.
    Settled,
    /// The client's answer is on its way to the bridge.
    Voting,
    /// The answer could not be used; the request is being cancelled instead.
    Cancelling,
    /// Not even that worked: the end of the seat tries once more.
    Stuck,
}

/// A vote to cast.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ballot {
    pub(super) number: u64,
    pub(super) session: SessionId,
    pub(super) request: RequestId,
    pub(super) choice: VoteChoice,
}

/// What came of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VoteEnd {
    /// It counted, or could not count any more, or is not this client's to cast.
    Over,
    /// It could not be used.
    Failed,
}

/// All requests that the client was asked about.
#[derive(Debug)]
pub(super) struct Asks {
    prefix: String,
    last: u64,
    asks: BTreeMap<u64, Ask>,
}

impl Asks {
    pub(super) fn new(connection: &str) -> Self {
        Self { prefix: format!("_qwen_perm_{connection}_"), last: 0, asks: BTreeMap::new() }
    }

    fn id(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// The id to ask with, the same one if the client was asked before; `None` if it need not answer any more.
    pub(super) fn ask(&mut self, session: &SessionId, request: RequestId, own: bool) -> Option<String> {
        if let Some((number, ask)) = self.asks.iter().find(|(_, ask)| ask.request == request) {
            return (ask.state == State::Open).then(|| self.id(*number));
        }
        self.last += 1;
        self.asks.insert(self.last, Ask { request, session: session.clone(), own, state: State::Open });
        Some(self.id(self.last))
    }

    /// A request was decided. The id that the client still has open for it, if any.
    pub(super) fn settle(&mut self, request: &str) -> Option<String> {
        let (number, ask) = self.asks.iter_mut().find(|(_, ask)| ask.request.as_str() == request)?;
        let (number, was_open) = (*number, ask.state == State::Open);
        if was_open {
            ask.state = State::Settled;
            self.forget_oldest_settled();
        }
        was_open.then(|| self.id(number))
    }

    fn forget_oldest_settled(&mut self) {
        let settled = |(_, ask): &(&u64, &Ask)| ask.state == State::Settled;
        if self.asks.iter().filter(settled).count() > SETTLED_MAX
            && let Some(oldest) = self.asks.iter().find(settled).map(|(number, _)| *number)
        {
            self.asks.remove(&oldest);
        }
    }

    /// The client answered. What to vote for it, unless the answer is to nothing, to be ignored, or the second one.
    pub(super) fn answered(&mut self, id: &Value, reply: &Reply) -> Option<Ballot> {
        let number = id.as_str()?.strip_prefix(&self.prefix)?;
        let number: u64 = number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)?;
        let ask = self.asks.get_mut(&number)?;
        match ask.state {
            State::Open => {}
            // It does as it was told.
            State::Settled if matches!(reply, Reply::Error(Some(rpc::REQUEST_CANCELLED))) => {
                self.asks.remove(&number);
                return None;
            }
            State::Settled => {}
            State::Voting | State::Cancelling | State::Stuck => return None,
        }
        let choice = choice(reply);
        ask.state = if choice.is_some() { State::Voting } else { State::Cancelling };
        let choice = choice.unwrap_or(VoteChoice::Cancelled);
        Some(Ballot { number, session: ask.session.clone(), request: ask.request.clone(), choice })
    }

    /// A vote came back. What to vote instead, if it could not be used.
    pub(super) fn voted(&mut self, number: u64, end: VoteEnd) -> Option<Ballot> {
        let ask = self.asks.get_mut(&number)?;
        match (end, ask.state) {
            (VoteEnd::Failed, State::Voting) => {
                ask.state = State::Cancelling;
                let (session, request) = (ask.session.clone(), ask.request.clone());
                Some(Ballot { number, session, request, choice: VoteChoice::Cancelled })
            }
            (VoteEnd::Failed, State::Cancelling) => {
                ask.state = State::Stuck;
                None
            }
            (VoteEnd::Over, _) | (VoteEnd::Failed, State::Open | State::Settled | State::Stuck) => {
                self.asks.remove(&number);
                None
            }
        }
    }

    /// The requests that nobody would answer any more without this client: those of its own turns, and those that it
    /// answered without success. They are forgotten here.
    pub(super) fn abandon(&mut self, session: Option<&SessionId>) -> Vec<Ballot> {
        let gone = self.asks.extract_if(.., |_, ask| {
            let here = session.is_none_or(|session| ask.session == *session);
            here && (ask.own || ask.state == State::Stuck)
        });
        gone.map(|(number, ask)| Ballot {
            number,
            session: ask.session,
            request: ask.request,
            choice: VoteChoice::Cancelled,
        })
        .collect()
    }

    /// A vote for a request was cast on another path: nothing is open here any more.
    pub(super) fn forget_request(&mut self, request: &RequestId) {
        self.asks.retain(|_, ask| ask.request != *request);
    }

    /// A session is over, and its requests with it.
    pub(super) fn forget_session(&mut self, session: &SessionId) {
        self.asks.retain(|_, ask| ask.session != *session);
    }

    pub(super) fn clear(&mut self) {
        self.asks.clear();
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let mut requests: Vec<_> = self.asks.values().map(|ask| &ask.request).collect();
        requests.sort_unstable();
        requests.dedup();
        assert_eq!(requests.len(), self.asks.len(), "I2: a request asked with two ids");
        assert!(self.asks.values().filter(|ask| ask.state == State::Settled).count() <= SETTLED_MAX);
        assert!(self.asks.keys().all(|number| *number <= self.last), "I2");
    }
}

/// What an answer votes for; `None` if it is no vote. An error is a wish to cancel.
fn choice(reply: &Reply) -> Option<VoteChoice> {
    let result = match reply {
        Reply::Error(_) => return Some(VoteChoice::Cancelled),
        Reply::Result(result) => result,
    };
    read_choice(result)
}

/// `{outcome:{outcome:"selected", optionId}, …}` or `{outcome:{outcome:"cancelled"}}`.
pub(super) fn read_choice(result: &Value) -> Option<VoteChoice> {
    let outcome = result.get("outcome")?;
    match outcome.get("outcome")?.as_str()? {
        "cancelled" => Some(VoteChoice::Cancelled),
        "selected" => {
            let option_id = outcome.get("optionId")?.as_str().filter(|id| !id.is_empty())?.to_owned();
            let mut extras = Map::new();
            for name in ["answers", "expectedPlanExecutionMode"] {
                let value = result.get(name).or_else(|| outcome.get(name));
                extras.extend(value.filter(|v| !v.is_null()).map(|value| (name.to_owned(), value.clone())));
            }
            Some(VoteChoice::Selected { option_id, extras: (!extras.is_empty()).then_some(Value::Object(extras)) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn select(option: &str) -> Reply {
        Reply::Result(json!({"outcome": {"outcome": "selected", "optionId": option}}))
    }

    fn asked() -> Asks {
        let mut asks = Asks::new("c1");
        assert_eq!(asks.ask(&"s".into(), "r".into(), false).as_deref(), Some("_qwen_perm_c1_1"));
        asks
    }

    #[test]
    fn an_id_stands_for_one_request_and_is_answered_once() {
        let mut asks = asked();
        assert_eq!(asks.ask(&"s".into(), "r".into(), false).as_deref(), Some("_qwen_perm_c1_1"));
        for stranger in ["_qwen_perm_c1_2", "_qwen_perm_c2_1", "_qwen_perm_c1_01", "_qwen_perm_c1_+1", "1", ""] {
            assert_eq!(asks.answered(&json!(stranger), &select("a")), None, "{stranger}");
        }
        let ballot = asks.answered(&json!("_qwen_perm_c1_1"), &select("a")).unwrap();
        assert_eq!(ballot.choice, VoteChoice::Selected { option_id: "a".into(), extras: None });
        assert_eq!(asks.answered(&json!("_qwen_perm_c1_1"), &select("b")), None);
        assert_eq!(asks.voted(1, VoteEnd::Over), None);
        assert_eq!(asks.ask(&"s".into(), "r".into(), false).as_deref(), Some("_qwen_perm_c1_2"));
    }

    #[test]
    fn what_is_no_vote_cancels() {
        for reply in [
            Reply::Error(Some(-32000)),
            Reply::Result(json!({})),
            Reply::Result(json!({"outcome": {"outcome": "selected"}})),
            Reply::Result(json!({"outcome": {"outcome": "cancelled"}})),
        ] {
            let ballot = asked().answered(&json!("_qwen_perm_c1_1"), &reply).unwrap();
            assert_eq!(ballot.choice, VoteChoice::Cancelled, "{reply:?}");
        }
    }

    /// A vote that fails becomes a cancel; a cancel that fails, too, is kept for the end of the seat.
    #[test]
    fn a_double_failure_is_kept_for_the_end() {
        let mut asks = asked();
        asks.answered(&json!("_qwen_perm_c1_1"), &select("a")).unwrap();
        let instead = asks.voted(1, VoteEnd::Failed).unwrap();
        assert_eq!(instead.choice, VoteChoice::Cancelled);
        assert_eq!(asks.voted(1, VoteEnd::Failed), None);
        assert_eq!(asks.answered(&json!("_qwen_perm_c1_1"), &select("a")), None);
        let last = asks.abandon(None);
        assert_eq!(last.iter().map(|ballot| ballot.request.as_str()).collect::<Vec<_>>(), ["r"]);
        assert_eq!(asks.abandon(None), []);
    }

    #[test]
    fn others_questions_are_not_cancelled_by_leaving() {
        let mut asks = asked();
        asks.ask(&"s".into(), "own".into(), true);
        let gone: Vec<_> = asks.abandon(None).into_iter().map(|ballot| ballot.request.0).collect();
        assert_eq!(gone, ["own"]);
    }

    #[test]
    fn a_decided_request_is_taken_back_and_may_still_be_answered() {
        let mut asks = asked();
        assert_eq!(asks.settle("r").as_deref(), Some("_qwen_perm_c1_1"));
        assert_eq!(asks.settle("r"), None);
        assert_eq!(asks.ask(&"s".into(), "r".into(), false), None);
        assert!(asks.answered(&json!("_qwen_perm_c1_1"), &select("a")).is_some());
        let mut asks = asked();
        asks.settle("r");
        let obeyed = Reply::Error(Some(rpc::REQUEST_CANCELLED));
        assert_eq!(asks.answered(&json!("_qwen_perm_c1_1"), &obeyed), None);
        assert_eq!(asks.answered(&json!("_qwen_perm_c1_1"), &select("a")), None);
    }

    #[test]
    fn decided_requests_are_forgotten_in_the_end() {
        let mut asks = Asks::new("c");
        for n in 0..SETTLED_MAX + 10 {
            let request = n.to_string();
            asks.ask(&"s".into(), request.as_str().into(), false);
            asks.settle(&request);
            asks.check_invariants();
        }
        assert_eq!(asks.answered(&json!("_qwen_perm_c_1"), &select("a")), None);
    }
}
