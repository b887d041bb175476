//! Following streams: replay by event, by stream, and live, with nothing lost or doubled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use convoke_protocol::{
    AgentEvent, AgentEventBody, AgentProtocol, AgentSend, AgentSession, ContentPart, EventLog, MessageRole, Meta,
    SendError, SendMessage, SendReceipt, StreamEndReason, StreamError, StreamFrom,
};
use futures::StreamExt;
use futures::executor::block_on;
use pretty_assertions::assert_eq;

/// An agent whose streams are written by the test.
#[derive(Default)]
struct Scripted {
    log: EventLog,
    sends: AtomicU32,
}

impl Scripted {
    fn emit(&self, stream: &str, n: u32, body: AgentEventBody) {
        self.log.push(AgentEvent {
            id: format!("{stream}-{n}").into(),
            thread_id: None,
            stream_id: stream.into(),
            timestamp: String::new(),
            body,
            meta: Meta::new(),
        });
    }

    fn user(&self, stream: &str) {
        let content = vec![ContentPart::text("hi")];
        self.emit(stream, 0, AgentEventBody::Message { role: MessageRole::User, content });
    }

    fn said(&self, stream: &str, n: u32) {
        let content = vec![ContentPart::text(n.to_string())];
        self.emit(stream, n, AgentEventBody::Message { role: MessageRole::Agent, content });
    }

    fn end(&self, stream: &str, n: u32) {
        self.emit(stream, n, AgentEventBody::AgentEnd { reason: StreamEndReason::Completed, data: None });
    }

    fn whole(&self, stream: &str) {
        self.user(stream);
        self.emit(stream, 1, AgentEventBody::AgentStart);
        self.said(stream, 2);
        self.end(stream, 3);
    }
}

#[async_trait]
impl AgentProtocol for Scripted {
    async fn send(&self, payload: AgentSend) -> Result<SendReceipt, SendError> {
        match payload {
            AgentSend::Update(_) => Ok(SendReceipt { stream_id: None }),
            AgentSend::Message(_) => {
                let stream = format!("n{}", self.sends.fetch_add(1, Ordering::Relaxed));
                self.whole(&stream);
                Ok(SendReceipt { stream_id: Some(stream.into()) })
            }
        }
    }

    fn log(&self) -> &EventLog {
        &self.log
    }

    async fn abort(&self) {}
}

fn session() -> (Arc<Scripted>, AgentSession) {
    let agent = Arc::new(Scripted::default());
    (agent.clone(), AgentSession::new(agent))
}

fn ids(stream: impl futures::Stream<Item = Arc<AgentEvent>>) -> Vec<String> {
    block_on(stream.map(|event| event.id.to_string()).collect())
}

#[test]
fn send_stream_yields_start_to_end_of_its_own_stream() {
    let (agent, session) = session();
    agent.whole("old");
    let stream = block_on(session.send_stream(AgentSend::Message(SendMessage::text("x")))).unwrap();
    assert_eq!(ids(stream), ["n0-1", "n0-2", "n0-3"]);
    let nothing = block_on(session.send_stream(AgentSend::Update(Default::default()))).unwrap();
    assert_eq!(ids(nothing), [""; 0]);
}

#[test]
fn replays_from_inside_a_stream_and_from_before_its_start() {
    let (agent, session) = session();
    agent.whole("a");
    agent.whole("b");
    let from = |id: &str| session.stream(StreamFrom::Event(id.into())).map(ids);
    assert_eq!(from("a-1").unwrap(), ["a-2", "a-3"]);
    assert_eq!(from("a-0").unwrap(), ["a-1", "a-2", "a-3"]);
    assert_eq!(from("a-3").unwrap(), [""; 0]);
    assert_eq!(from("zzz"), Err(StreamError::UnknownEvent("zzz".into())));
    agent.user("c");
    let error = StreamError::BeforeStart { event: "c-0".into(), stream: "c".into() };
    assert_eq!(from("c-0"), Err(error.clone()));
    assert_eq!(error.to_string(), "Cannot resume from eventId c-0 before agent_start for stream c");
}

#[test]
fn a_running_stream_is_replayed_then_followed_live() {
    let (agent, session) = session();
    agent.whole("a");
    agent.emit("b", 1, AgentEventBody::AgentStart);
    agent.said("b", 2);
    let stream = session.stream(StreamFrom::Current).unwrap();
    let named = session.stream(StreamFrom::Stream("b".into())).unwrap();
    agent.said("a", 9);
    agent.end("b", 3);
    agent.whole("c");
    assert_eq!(ids(stream), ["b-1", "b-2", "b-3"]);
    assert_eq!(ids(named), ["b-1", "b-2", "b-3"]);
}

#[test]
fn without_a_running_stream_the_next_one_is_followed() {
    let (agent, session) = session();
    agent.whole("a");
    let stream = session.stream(StreamFrom::Current).unwrap();
    agent.whole("b");
    assert_eq!(ids(stream), ["b-1", "b-2", "b-3"]);
}

#[test]
fn closing_the_log_ends_subscriptions_after_what_is_there() {
    let (agent, _) = session();
    let live = agent.log.subscribe();
    agent.said("a", 1);
    agent.log.close();
    agent.said("a", 2);
    assert_eq!(ids(live), ["a-1"]);
}
