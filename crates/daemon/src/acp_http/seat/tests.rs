//! The seat on its own: what each input makes of it, and random walks.

mod walk;

use bytes::Bytes;
use convoke_protocol::daemon::{Frame, FrameKind, FrameMeta};
use http::StatusCode;

use super::super::rpc::Reply;
use super::*;

/// A seat, and what it wants done.
struct Rig {
    seat: Seat,
    now: Now,
    out: Vec<Output>,
    events: u64,
}

impl Rig {
    fn new(binding: Binding) -> Self {
        let now = Now { tick: Tick(1), wall_ms: 1 };
        let house = House { workspace: "/w".into(), version: "1".into() };
        Self { seat: Seat::new("c1".into(), house, binding, now), now, out: Vec::new(), events: 0 }
    }

    /// A client whose `initialize` was answered, and who owns session `s1`.
    fn seated(binding: Binding) -> Self {
        let mut rig = Self::new(binding);
        match binding {
            Binding::Socket => rig.request(0, "initialize", json!({})),
            Binding::Streams => rig.give(Input::Opened { lane: Lane::Connection, resume: Resume::default() }),
        }
        rig.request(1, "session/new", json!({"cwd": "/w", "mcpServers": []}));
        rig.joined("s1");
        if binding == Binding::Streams {
            rig.give(Input::Opened { lane: lane("s1"), resume: Resume::default() });
        }
        rig.event(FrameKind::ReplayComplete, json!({"replayedCount": 0}));
        rig.out.clear();
        rig
    }

    fn give(&mut self, input: Input) {
        self.seat.handle(self.now, input, &mut self.out);
        self.seat.check_invariants();
    }

    fn request(&mut self, id: i64, method: &str, params: Value) {
        let message = Message::Request { id: Id(json!(id)), method: method.into(), params };
        self.give(Input::Message { message, loopback: true, fresh: format!("p{id}") });
    }

    fn respond(&mut self, id: &str, answer: Reply) {
        let message = Message::Response { id: Id(json!(id)), answer };
        self.give(Input::Message { message, loopback: true, fresh: "unused".into() });
    }

    /// The order that was given last.
    fn order(&self) -> (CallKey, Order) {
        let call = |output: &Output| match output {
            Output::Call { call, order, .. } => Some((*call, order.clone())),
            _ => None,
        };
        self.out.iter().rev().find_map(call).expect("an order")
    }

    fn done(&mut self, result: Result<Answered, HttpError>) -> Order {
        let (call, order) = self.order();
        self.out.clear();
        self.give(Input::Done { call, result });
        order
    }

    fn joined(&mut self, session: &str) {
        let body = json!({"_meta": {}});
        let client = "client_a".into();
        let joined = Joined { session: session.into(), client, epoch: "e".into(), last_event_id: 0, body };
        self.done(Ok(Answered::Session(joined)));
    }

    fn event(&mut self, kind: FrameKind, data: Value) {
        self.event_of(kind, data, None);
    }

    fn event_of(&mut self, kind: FrameKind, data: Value, originator: Option<&str>) {
        let feed = self.seat.sessions[&SessionId::from("s1")].feed;
        self.events += 1;
        let frame = Frame {
            id: (kind != FrameKind::ReplayComplete).then_some(self.events),
            v: 1,
            kind,
            prompt_id: None,
            data,
            originator_client_id: originator.map(ClientId::from),
            meta: FrameMeta { server_timestamp: 1 },
        };
        self.give(Input::Frame { feed, frame: frame.encode() });
    }

    fn ask(&mut self, request: &str, originator: Option<&str>) {
        let data = json!({"requestId": request, "sessionId": "s1", "toolCall": {"toolCallId": "t"}, "options": []});
        self.event_of(FrameKind::PermissionRequest, data, originator);
    }

    fn later(&mut self, duration: Duration) {
        self.now.tick = self.now.tick.after(duration);
        self.give(Input::Tick);
    }

    /// The messages that were sent, and to where.
    fn sent(&mut self) -> Vec<(Lane, Value)> {
        let sent = self.out.drain(..).filter_map(|output| match output {
            Output::Send { lane, message, .. } => Some((lane, serde_json::from_slice(&message).unwrap())),
            _ => None,
        });
        sent.collect()
    }
}

fn lane(session: &str) -> Lane {
    Lane::Session(session.into())
}

fn refused(status: StatusCode) -> Result<Answered, HttpError> {
    Err(HttpError::new(status, json!({"error": "no", "code": "x"})))
}

fn selected() -> Reply {
    Reply::Result(json!({"outcome": {"outcome": "selected", "optionId": "a"}}))
}

#[test]
fn a_prompt_is_answered_on_its_session_after_its_turn() {
    let mut rig = Rig::seated(Binding::Streams);
    rig.request(2, "session/prompt", json!({"sessionId": "s1", "prompt": [{"type": "text", "text": "x"}]}));
    rig.done(Ok(Answered::Done));
    rig.event(FrameKind::SessionUpdate, json!({"sessionId": "s1", "update": {"b": 1, "a": 1.50}}));
    let Some(Output::Send { message, id: Some(2), .. }) = rig.out.last() else { panic!("{:?}", rig.out) };
    let verbatim =
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"b":1,"a":1.5}}}"#;
    assert_eq!(message, verbatim);
    rig.out.clear();
    rig.event(FrameKind::TurnComplete, json!({"sessionId": "s1", "stopReason": "end_turn", "promptId": "p2"}));
    let sent = rig.sent();
    assert_eq!(sent[0].1["params"]["kind"], "turn_complete");
    assert_eq!(sent[1], (lane("s1"), json!({"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}})));
}

#[test]
fn what_is_wrong_with_a_request() {
    let mut rig = Rig::seated(Binding::Socket);
    for (method, params, code) in [
        ("nonsense", json!({}), rpc::METHOD_NOT_FOUND),
        ("session/fork", json!({"sessionId": "s1"}), rpc::METHOD_NOT_FOUND),
        ("initialize", json!({}), rpc::INVALID_REQUEST),
        ("session/prompt", json!({"sessionId": "foreign", "prompt": [{}]}), rpc::INVALID_PARAMS),
        ("session/prompt", json!({"sessionId": "s1", "prompt": []}), rpc::INVALID_PARAMS),
        ("session/prompt", json!({"sessionId": "s1", "prompt": [5]}), rpc::INVALID_PARAMS),
        ("session/prompt", json!({"prompt": [{}]}), rpc::INVALID_PARAMS),
        ("session/new", json!({"cwd": "/elsewhere"}), rpc::INVALID_PARAMS),
        ("session/new", json!({"cwd": "relative"}), rpc::INVALID_PARAMS),
        ("session/new", json!({"_meta": {"qwen-code/sessionId": "../escape"}}), rpc::INVALID_PARAMS),
        ("session/close", json!({"sessionId": "foreign"}), rpc::INVALID_PARAMS),
        ("session/set_mode", json!({"sessionId": "s1", "modeId": "wild"}), rpc::INVALID_PARAMS),
        ("_qwen/session/heartbeat", json!({}), rpc::INVALID_PARAMS),
    ] {
        rig.request(7, method, params.clone());
        let sent = rig.sent();
        assert_eq!((&sent[0].1["id"], &sent[0].1["error"]["code"]), (&json!(7), &json!(code)), "{method} {params}");
    }
    rig.request(8, "session/prompt", json!({"sessionId": "s1", "prompt": [{}]}));
    rig.done(refused(StatusCode::SERVICE_UNAVAILABLE));
    let sent = rig.sent();
    assert_eq!(sent[0].1["error"]["data"], json!({"httpStatus": 503, "errorKind": "x"}));
    assert_eq!(sent[0].1["error"]["code"], rpc::INTERNAL);
}

#[test]
fn a_client_chooses_the_id_of_its_session() {
    let mut rig = Rig::seated(Binding::Socket);
    let chosen = "550E8400-E29B-41D4-A716-446655440000";
    rig.request(2, "session/new", json!({"cwd": "/w", "_meta": {"qwen-code/sessionId": chosen}}));
    let session = Some(SessionId(chosen.to_ascii_lowercase()));
    assert_eq!(rig.order().1, Order::New { session });
    rig.request(3, "session/new", json!({"cwd": "/w", "_meta": {"other": 1}}));
    assert_eq!(rig.order().1, Order::New { session: None });
}

#[test]
fn a_websocket_begins_with_initialize() {
    let mut rig = Rig::new(Binding::Socket);
    rig.request(5, "session/new", json!({}));
    assert_eq!(
        rig.out.iter().filter(|o| matches!(o, Output::CloseSocket { code: 1002, .. })).count(),
        1,
        "{:?}",
        rig.out
    );
    assert_eq!(rig.out.last(), Some(&Output::Gone));
    assert_eq!(rig.sent()[0].1["error"]["code"], rpc::INVALID_REQUEST);

    let mut rig = Rig::new(Binding::Socket);
    rig.later(Duration::from_secs(29));
    assert_eq!(rig.out, []);
    rig.later(Duration::from_secs(1));
    assert!(rig.out.iter().any(|o| matches!(o, Output::CloseSocket { code: 1002, .. })), "{:?}", rig.out);
}

#[test]
fn a_question_is_asked_with_an_id_of_the_connection_and_answered_by_a_vote() {
    let mut rig = Rig::seated(Binding::Socket);
    rig.ask("r1", None);
    let sent = rig.sent();
    assert_eq!(
        sent[0].1,
        json!({
            "jsonrpc": "2.0", "id": "_qwen_perm_c1_1", "method": "session/request_permission",
            "params": {
                "sessionId": "s1", "toolCall": {"toolCallId": "t"}, "options": [], "_meta": {"qwen": {"requestId": "r1"}},
            },
        })
    );
    rig.respond("_qwen_perm_c1_1", selected());
    let Order::Vote { request, choice, client, .. } = rig.done(Ok(Answered::Done)) else { panic!() };
    assert_eq!((request.as_str(), client.as_str()), ("r1", "client_a"));
    assert_eq!(choice, VoteChoice::Selected { option_id: "a".into(), extras: None });
    assert_eq!(rig.out, [], "a vote has no answer");
}

/// A vote that can't be used is followed by a cancel; if that fails, too, the end of the seat tries once more.
#[test]
fn a_double_failure_is_retried_at_the_end() {
    let mut rig = Rig::seated(Binding::Socket);
    rig.ask("r1", None);
    rig.respond("_qwen_perm_c1_1", selected());
    rig.done(refused(StatusCode::SERVICE_UNAVAILABLE));
    let local = |output: &Output| matches!(output, Output::Call { loopback: true, .. });
    assert!(rig.out.iter().any(local), "the cancel comes from where the vote came from: {:?}", rig.out);
    let Order::Vote { choice: VoteChoice::Cancelled, .. } = rig.done(refused(StatusCode::SERVICE_UNAVAILABLE)) else {
        panic!("no cancel")
    };
    assert_eq!(rig.out, []);
    rig.respond("_qwen_perm_c1_1", selected());
    assert_eq!(rig.out, [], "it was answered");
    rig.give(Input::Leave);
    let (_, Order::Vote { request, choice, .. }) = rig.order() else { panic!("{:?}", rig.out) };
    assert_eq!((request.as_str(), choice), ("r1", VoteChoice::Cancelled));
    rig.done(refused(StatusCode::SERVICE_UNAVAILABLE));
    assert!(rig.out.iter().any(|output| matches!(output, Output::Warn { .. })), "{:?}", rig.out);
    assert_eq!(rig.out.last(), Some(&Output::Gone));
}

#[test]
fn a_vote_that_the_policy_refuses_cancels_nothing() {
    for status in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
        let mut rig = Rig::seated(Binding::Socket);
        rig.ask("r1", None);
        rig.respond("_qwen_perm_c1_1", selected());
        rig.done(refused(status));
        assert_eq!(rig.out, [], "{status}");
    }
}

/// §f.7: first the turn, then its questions, then the membership; and in this order only.
#[test]
fn leaving_cancels_its_own_turn_first() {
    let mut rig = Rig::seated(Binding::Socket);
    rig.request(2, "session/prompt", json!({"sessionId": "s1", "prompt": [{}]}));
    rig.done(Ok(Answered::Done));
    rig.ask("own", Some("client_a"));
    rig.ask("theirs", Some("client_b"));
    rig.out.clear();
    rig.give(Input::Leave);
    let Order::CancelOwn { prompts, .. } = rig.done(Ok(Answered::Done)) else { panic!() };
    assert_eq!(prompts, ["p2".into()]);
    let votes: Vec<_> = rig.out.iter().filter(|output| matches!(output, Output::Call { .. })).collect();
    assert_eq!(votes.len(), 1, "{votes:?}");
    let Order::Vote { request, choice, .. } = rig.done(refused(StatusCode::NOT_FOUND)) else { panic!() };
    assert_eq!((request.as_str(), choice), ("own", VoteChoice::Cancelled));
    let detach = Order::Detach { session: "s1".into(), client: "client_a".into() };
    assert_eq!(rig.order().1, detach);
    assert_eq!(rig.out.last(), Some(&Output::Gone));
}

#[test]
fn a_question_of_the_past_is_asked_only_if_it_is_open() {
    let mut rig = Rig::seated(Binding::Streams);
    rig.give(Input::Closed { lane: lane("s1") });
    let resume = Resume { last_event_id: Some(0), epoch: None };
    rig.give(Input::Opened { lane: lane("s1"), resume });
    assert!(matches!(rig.out.last(), Some(Output::Feed { after: Some(0), .. })), "{:?}", rig.out);
    rig.ask("old", None);
    rig.event(FrameKind::PermissionResolved, json!({"requestId": "old", "outcome": {}}));
    rig.ask("open", None);
    let methods =
        |rig: &mut Rig| rig.sent().into_iter().map(|(_, message)| message["method"].clone()).collect::<Vec<_>>();
    assert_eq!(methods(&mut rig), ["_qwen/notify"]);
    rig.event(FrameKind::ReplayComplete, json!({}));
    assert_eq!(methods(&mut rig), ["_qwen/notify", "session/request_permission"]);
}

#[test]
fn what_others_decide_is_taken_back() {
    let mut rig = Rig::seated(Binding::Socket);
    rig.ask("r1", None);
    rig.out.clear();
    rig.event(FrameKind::PermissionResolved, json!({"requestId": "r1", "outcome": {"outcome": "cancelled"}}));
    let sent = rig.sent();
    assert_eq!(sent[0].1["params"]["kind"], "permission_resolved");
    assert_eq!(sent[1].1["method"], "$/cancel_request");
    assert_eq!(sent[1].1["params"]["requestId"], "_qwen_perm_c1_1");
    rig.respond("_qwen_perm_c1_1", Reply::Error(Some(rpc::REQUEST_CANCELLED)));
    assert_eq!(rig.out, []);
}

#[test]
fn answers_wait_for_their_stream() {
    let mut rig = Rig::seated(Binding::Streams);
    rig.request(2, "session/prompt", json!({"sessionId": "s1", "prompt": [{}]}));
    rig.done(Ok(Answered::Done));
    rig.give(Input::Closed { lane: lane("s1") });
    rig.event(FrameKind::TurnComplete, json!({"stopReason": "end_turn", "promptId": "p2"}));
    assert_eq!(rig.sent(), []);
    rig.give(Input::Opened { lane: lane("s1"), resume: Resume::default() });
    assert_eq!(rig.sent(), [], "the past first");
    rig.event(FrameKind::TurnComplete, json!({"stopReason": "end_turn", "promptId": "p2"}));
    rig.event(FrameKind::ReplayComplete, json!({}));
    let sent = rig.sent();
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[1].1["result"]["stopReason"], "end_turn");
}

#[test]
fn graces() {
    let mut rig = Rig::seated(Binding::Streams);
    rig.request(2, "session/prompt", json!({"sessionId": "s1", "prompt": [{}]}));
    rig.done(Ok(Answered::Done));
    rig.give(Input::Closed { lane: lane("s1") });
    rig.later(Duration::from_secs(9));
    assert_eq!(rig.out, []);
    rig.later(Duration::from_secs(1));
    assert!(matches!(rig.order().1, Order::CancelOwn { .. }), "the session's stream did not come back");
    rig.done(Ok(Answered::Done));
    rig.give(Input::Closed { lane: Lane::Connection });
    rig.later(Duration::from_secs(9));
    assert_eq!(rig.out, []);
    rig.later(Duration::from_secs(1));
    assert!(!rig.out.is_empty(), "nothing came back");
    rig.done(Ok(Answered::Done));
    assert_eq!(rig.out.last(), Some(&Output::Gone));

    let mut idle = Rig::new(Binding::Streams);
    idle.later(Duration::from_secs(30 * 60 - 1));
    assert_eq!(idle.out, []);
    idle.later(Duration::from_secs(1));
    assert_eq!(idle.out.last(), Some(&Output::Gone));
}

#[test]
fn a_client_that_takes_no_answers_is_let_go() {
    let mut rig = Rig::new(Binding::Streams);
    for id in 0..=256 {
        rig.request(id, "nonsense", json!({}));
    }
    assert_eq!(rig.out.last(), Some(&Output::Gone));
}

#[test]
fn a_missed_end_of_a_turn_is_asked_for() {
    let mut rig = Rig::seated(Binding::Streams);
    rig.request(2, "session/prompt", json!({"sessionId": "s1", "prompt": [{}]}));
    rig.done(Ok(Answered::Done));
    let feed = rig.seat.sessions[&SessionId::from("s1")].feed;
    rig.give(Input::FeedEnded { feed, end: FeedEnd::Evicted });
    assert!(rig.out.contains(&Output::Evict { lane: lane("s1") }), "{:?}", rig.out);
    rig.give(Input::Opened { lane: lane("s1"), resume: Resume::default() });
    rig.event(FrameKind::StateResyncRequired, json!({"reason": "ring_evicted"}));
    rig.event(FrameKind::ReplayComplete, json!({}));
    let ended = TurnState::Ended { stop_reason: "end_turn".into() };
    let order = rig.done(Ok(Answered::Turn(ended)));
    assert_eq!(order, Order::Turn { session: "s1".into(), prompt: "p2".into() });
    assert_eq!(rig.sent()[0].1["result"]["stopReason"], "end_turn");
}

#[test]
fn a_loaded_session_tells_its_past_before_the_answer() {
    let mut rig = Rig::new(Binding::Socket);
    rig.request(0, "initialize", json!({}));
    rig.request(1, "session/load", json!({"sessionId": "s1", "cwd": "/w", "mcpServers": []}));
    rig.out.clear();
    rig.give(Input::Done {
        call: CallKey(1),
        result: Ok(Answered::Session(Joined {
            session: "s1".into(),
            client: "client_a".into(),
            epoch: "e".into(),
            last_event_id: 1,
            body: json!({}),
        })),
    });
    rig.event(FrameKind::SessionUpdate, json!({"sessionId": "s1", "update": {}}));
    rig.event(FrameKind::ReplayComplete, json!({}));
    let sent: Vec<_> = rig.sent().into_iter().map(|(_, message)| message).collect();
    assert_eq!(sent[0]["method"], "session/update");
    assert_eq!(sent[1], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(sent.len(), 2);
}

#[test]
fn a_stopping_daemon_waits_for_goodbyes() {
    let mut rig = Rig::seated(Binding::Socket);
    rig.give(Input::Stop);
    assert_eq!(rig.out, []);
    rig.event(FrameKind::SessionDied, json!({"sessionId": "s1", "reason": "daemon_shutdown"}));
    let feed = rig.seat.sessions[&SessionId::from("s1")].feed;
    rig.give(Input::FeedEnded { feed, end: FeedEnd::Finished });
    assert!(rig.out.iter().any(|o| matches!(o, Output::CloseSocket { code: 1001, .. })), "{:?}", rig.out);
    assert_eq!(rig.out.last(), Some(&Output::Gone));
}

#[test]
fn messages_are_whole() {
    let message: Bytes = rpc::result(&Id(json!("x")), &json!({"a": 1}));
    assert_eq!(message, r#"{"jsonrpc":"2.0","id":"x","result":{"a":1}}"#);
}
