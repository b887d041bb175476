//! Sans-IO: what does the client hear of a session's events?
//!
//! `session_update` is ACP's `session/update` as the agent sent it; a permission request is a request to the client;
//! everything else is told as `_qwen/notify`. Ends of turns answer prompts. Source: daemon specification, §g.

use convoke_protocol::daemon::{EncodedFrame, FrameKind};
use convoke_protocol::{ClientId, PromptId, RequestId, SessionId};
use convoke_stdx::Now;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::methods::Awaited;
use super::{Binding, FeedEnd, FeedKey, FeedMode, Lane, Order, Output, Phase, Seat};
use crate::acp_http::rpc::{self, Problem};

/// What is needed of an event's envelope.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
    prompt_id: Option<PromptId>,
    originator_client_id: Option<ClientId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked<'a> {
    request_id: RequestId,
    #[serde(borrow)]
    tool_call: &'a RawValue,
    #[serde(borrow)]
    options: &'a RawValue,
}

/// A permission request on its way to the client.
#[derive(Debug)]
pub(super) struct Question {
    request: RequestId,
    tool_call: Box<RawValue>,
    options: Box<RawValue>,
    /// Whether the client's own turn asks.
    own: bool,
    event: Option<u64>,
}

impl Seat {
    /// Replaces a session's subscription by one that starts after an event.
    pub(super) fn feed_from(
        &mut self,
        session: &SessionId,
        after: u64,
        epoch: Option<String>,
        asked: bool,
        out: &mut Vec<Output>,
    ) {
        self.last_key += 1;
        let feed = FeedKey(self.last_key);
        let Some(owned) = self.sessions.get_mut(session) else { return };
        let old = std::mem::replace(&mut owned.feed, feed);
        owned.mode = FeedMode::Replaying { asked, gap: false };
        owned.held.clear();
        out.push(Output::Unfeed { feed: old });
        out.push(Output::Feed { feed, session: session.clone(), after: Some(after), epoch });
    }

    fn session_of_feed(&self, feed: FeedKey) -> Option<SessionId> {
        self.sessions.iter().find(|(_, owned)| owned.feed == feed).map(|(session, _)| session.clone())
    }

    pub(super) fn feed_ended(&mut self, now: Now, feed: FeedKey, end: FeedEnd, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Leaving { .. } | Phase::Gone) {
            return;
        }
        let Some(session) = self.session_of_feed(feed) else { return };
        match end {
            FeedEnd::Finished | FeedEnd::Refused => self.session_over(now, &session, out),
            FeedEnd::Evicted => {
                let lane = Lane::Session(session.clone());
                let was_open = self.sessions.get(&session).is_some_and(|owned| owned.track.open);
                if was_open || self.binding == Binding::Socket {
                    self.overflow(now, &lane, out);
                }
                // Ends of turns are still to be heard of, those included that were dropped.
                if !matches!(self.phase, Phase::Leaving { .. })
                    && let Some(owned) = self.sessions.get(&session)
                {
                    let (after, epoch) = (owned.delivered, owned.epoch.clone());
                    self.feed_from(&session, after, Some(epoch), false, out);
                    if let Some(owned) = self.sessions.get_mut(&session) {
                        owned.mode = FeedMode::Watching;
                    }
                }
            }
        }
    }

    /// A session ended, and what waits on it with it.
    fn session_over(&mut self, now: Now, session: &SessionId, out: &mut Vec<Output>) {
        self.asks.forget_session(session);
        let Some(mut owned) = self.sessions.remove(session) else { return };
        if let Some((id, _)) = owned.loading.take() {
            let problem = Problem::new(rpc::INTERNAL, "The session ended while it was loaded").of(id);
            self.answer(&Lane::Connection, rpc::error(&problem), now, out);
        }
        let lane = Lane::Session(session.clone());
        let open = owned.track.open;
        for message in owned.track.take_waiting() {
            if open {
                out.push(Output::Send { lane: lane.clone(), message, id: None });
            } else {
                self.answer(&Lane::Connection, message, now, out);
            }
        }
        let turns: Vec<_> = self.turns.extract_if(.., |_, turn| turn.session == *session).collect();
        for (_, turn) in turns {
            let message = rpc::error(&Problem::new(rpc::INTERNAL, "The session ended").of(turn.id));
            if open {
                out.push(Output::Send { lane: lane.clone(), message, id: None });
            } else {
                self.answer(&Lane::Connection, message, now, out);
            }
        }
        if open {
            out.push(Output::Finish { lane });
            if !self.any_open() {
                self.dark_since.get_or_insert(now.tick);
            }
        }
    }

    pub(super) fn frame(&mut self, now: Now, feed: FeedKey, frame: &EncodedFrame, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Leaving { .. } | Phase::Gone) {
            return;
        }
        let Some(session) = self.session_of_feed(feed) else { return };
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(&frame.json) else {
            out.push(Output::Warn { text: format!("an event of session {session} could not be read") });
            return;
        };
        let Some(owned) = self.sessions.get_mut(&session) else { return };
        if owned.mode != FeedMode::Watching {
            if let Some(id) = frame.id {
                owned.delivered = owned.delivered.max(id);
            }
            self.tell(now, &session, frame, &envelope, out);
        }
        self.heed(now, frame.kind, &envelope, out);
    }

    /// What the client hears of an event.
    fn tell(
        &mut self,
        now: Now,
        session: &SessionId,
        frame: &EncodedFrame,
        envelope: &Envelope<'_>,
        out: &mut Vec<Output>,
    ) {
        let Some(owned) = self.sessions.get_mut(session) else { return };
        let lane = Lane::Session(session.clone());
        let mut send = |message, id| out.push(Output::Send { lane: lane.clone(), message, id });
        match frame.kind {
            FrameKind::SessionUpdate => send(rpc::notification_raw("session/update", envelope.data), frame.id),
            FrameKind::PermissionRequest => {
                let Ok(asked) = serde_json::from_str::<Asked<'_>>(envelope.data.get()) else { return };
                let question = Question {
                    request: asked.request_id,
                    tool_call: asked.tool_call.to_owned(),
                    options: asked.options.to_owned(),
                    own: envelope.originator_client_id.as_ref() == Some(&owned.client),
                    event: frame.id,
                };
                // The past may hold its answer.
                if matches!(owned.mode, FeedMode::Replaying { .. }) {
                    owned.held.push(question);
                } else {
                    self.ask(session, &question, out);
                }
            }
            FrameKind::PermissionResolved => {
                send(rpc::notify(frame.kind.name(), envelope.data), frame.id);
                let Ok(data) = serde_json::from_str::<Value>(envelope.data.get()) else { return };
                let Some(request) = data.get("requestId").and_then(Value::as_str) else { return };
                owned.held.retain(|question| question.request.as_str() != request);
                if let Some(id) = self.asks.settle(request) {
                    out.push(Output::Send { lane, message: rpc::cancel_request(&id), id: None });
                }
            }
            FrameKind::ReplayComplete => {
                if let FeedMode::Replaying { asked: true, .. } = owned.mode {
                    send(rpc::notify(frame.kind.name(), envelope.data), frame.id);
                }
                self.caught_up(now, session, out);
            }
            FrameKind::StateResyncRequired => {
                if let FeedMode::Replaying { gap, .. } = &mut owned.mode {
                    *gap = true;
                }
                send(rpc::notify(frame.kind.name(), envelope.data), frame.id);
            }
            _ => send(rpc::notify(frame.kind.name(), envelope.data), frame.id),
        }
    }

    fn ask(&mut self, session: &SessionId, question: &Question, out: &mut Vec<Output>) {
        let Question { request, tool_call, options, own, event } = question;
        let Some(id) = self.asks.ask(session, request.clone(), *own) else { return };
        // Names and ids are the only parts that are not the agent's own JSON.
        let head = json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission"}).to_string();
        let (session_id, meta) = (json!(session), json!({"qwen": {"requestId": request}}));
        let (tool_call, options) = (tool_call.get(), options.get());
        let head = head.strip_suffix('}').unwrap_or(&head);
        let message = format!(
            "{head},\"params\":{{\"sessionId\":{session_id},\"toolCall\":{tool_call},\"options\":{options},\
             \"_meta\":{meta}}}}}"
        );
        out.push(Output::Send { lane: Lane::Session(session.clone()), message: message.into(), id: *event });
    }

    /// A session's past was told.
    fn caught_up(&mut self, now: Now, session: &SessionId, out: &mut Vec<Output>) {
        let Some(owned) = self.sessions.get_mut(session) else { return };
        let FeedMode::Replaying { gap, .. } = std::mem::replace(&mut owned.mode, FeedMode::Live) else { return };
        let held = std::mem::take(&mut owned.held);
        let waiting = owned.track.take_waiting();
        let loading = owned.loading.take();
        if let Some((id, body)) = loading {
            self.answer(&Lane::Connection, rpc::result(&id, &body), now, out);
        }
        for question in &held {
            self.ask(session, question, out);
        }
        let lane = Lane::Session(session.clone());
        out.extend(waiting.into_iter().map(|message| Output::Send { lane: lane.clone(), message, id: None }));
        if gap {
            let open: Vec<_> =
                self.turns.iter().filter(|(_, turn)| turn.session == *session).map(|(id, _)| id.clone()).collect();
            for prompt in open {
                let order = Order::Turn { session: session.clone(), prompt: prompt.clone() };
                self.call(order, false, Awaited::Turn(prompt), out);
            }
        }
    }

    /// What an event means for open prompts.
    fn heed(&mut self, now: Now, kind: FrameKind, envelope: &Envelope<'_>, out: &mut Vec<Output>) {
        if !matches!(kind, FrameKind::TurnComplete | FrameKind::TurnError | FrameKind::PendingPromptCompleted) {
            return;
        }
        let Ok(data) = serde_json::from_str::<Value>(envelope.data.get()) else { return };
        let named = data.get("promptId").and_then(Value::as_str).map(PromptId::from);
        let Some(prompt) = named.or_else(|| envelope.prompt_id.clone()) else { return };
        let end = match kind {
            FrameKind::TurnComplete => {
                let mut result = json!({"stopReason": data.get("stopReason").cloned().unwrap_or_default()});
                if let (Value::Object(result), Some(cancelled)) = (&mut result, data.get("promptCancelled")) {
                    result.insert("_meta".to_owned(), json!({"qwen.promptCancelled": cancelled}));
                }
                Ok(result)
            }
            FrameKind::TurnError => Err(failed(&data)),
            // Only of prompts that never started: the others were answered by their turn's end.
            _ => Ok(json!({"stopReason": "cancelled"})),
        };
        if kind == FrameKind::PendingPromptCompleted && !self.turns.contains_key(&prompt) {
            return;
        }
        self.turn_over(now, &prompt, end, out);
    }
}

/// A failed turn: the agent's own code where it gave one.
fn failed(data: &Value) -> Problem {
    let message = data.get("message").and_then(Value::as_str).unwrap_or("The turn failed");
    let code = data.get("code");
    let problem = Problem::new(code.and_then(Value::as_i64).unwrap_or(rpc::INTERNAL), message);
    problem.with(match code.filter(|code| code.is_string()) {
        Some(kind) => json!({"httpStatus": 500, "errorKind": kind}),
        None => json!({"httpStatus": 500}),
    })
}
