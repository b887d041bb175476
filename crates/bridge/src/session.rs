//! One session: what its clients and its agent may do to it, and what everyone hears of that.
//!
//! ```text
//! open ── Close ──▶ closing ── the turn ends, or the grace is over ──▶ gone (session_closed)
//!   ├── Close with no turn running ──────────────────────────────────▶ gone (session_closed)
//!   ├── the last client leaves, no stream, no prompt, no request ────▶ gone
//!   ├── idle for too long ───────────────────────────────────────────▶ gone
//!   └── agent gone, shutdown (also while closing) ───────────────────▶ gone (session_died)
//! ```
//! A closing session refuses its clients and still carries what the agent says. Source: daemon specification, §d,
//! §f.7 and §h.
//!
//! Invariants: I1 a closing session has a running turn, and no pending request. I2 with those of [`EventBus`],
//! [`PromptQueue`] and [`Clients`]. I3 whatever ends a session first ends its requests and streams. I4 a pending request
//! belongs to the running turn or to none.

mod ending;
mod turn;

use convoke_protocol::daemon::FrameKind;
use convoke_protocol::daemon::dto::{SessionCreated, SessionStatus, SessionSummary};
use convoke_protocol::{ApprovalMode, ClientId, RequestId, SessionId};
use convoke_stdx::{Now, Tick, iso8601};
use serde_json::{Map, Value, json};

use crate::audit::AuditRing;
use crate::clients::Clients;
use crate::contract::{
    AgentKey, CallId, Caller, CancelReason, LogLevel, Output, Resolution, SessionAnswer, SubscribeRequest, VoteChoice,
};
use crate::event_bus::{Draft, EventBus};
use crate::mediator::{Issue, Mediator, Stage, Vote, Withdrawal};
use crate::options::{BridgeOptions, Limits};
use crate::prompt_queue::PromptQueue;
use crate::refusal::Refusal;

pub(crate) use ending::Cause;
pub(crate) use turn::NewPrompt;

/// What one input works with, beside the session.
pub(crate) struct Step<'a> {
    pub(crate) now: Now,
    pub(crate) options: &'a BridgeOptions,
    pub(crate) mediator: &'a mut Mediator,
    pub(crate) audit: &'a mut AuditRing,
    pub(crate) out: &'a mut Vec<Output>,
}

impl Step<'_> {
    pub(crate) fn log(&mut self, level: LogLevel, text: String) {
        self.out.push(Output::Log { level, text });
    }
}

/// Whether a session is still there after an input.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    Gone,
}

/// What a new session starts from.
pub(crate) struct Birth {
    pub(crate) id: SessionId,
    pub(crate) workspace: String,
    pub(crate) agent: AgentKey,
    pub(crate) epoch: String,
    pub(crate) created_wall_ms: u64,
    pub(crate) model_id: Option<String>,
    pub(crate) approval_mode: ApprovalMode,
    pub(crate) display_name: Option<String>,
    pub(crate) source_type: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    workspace: String,
    agent: AgentKey,
    created_wall_ms: u64,
    updated_wall_ms: Option<u64>,
    display_name: Option<String>,
    source_type: Option<String>,
    model_id: Option<String>,
    approval_mode: ApprovalMode,
    recording_degraded: bool,
    turn_error: Option<String>,
    clients: Clients,
    queue: PromptQueue,
    bus: EventBus,
    last_activity: Tick,
    closing: Option<Closing>,
    /// Under which time the bridge has it in its index of what is due.
    pub(crate) indexed: Option<Tick>,
}

/// A close that waits for the running turn.
#[derive(Debug)]
struct Closing {
    by: Option<ClientId>,
    call: CallId,
    deadline: Tick,
}

impl Session {
    pub(crate) fn new(birth: Birth, now: Now, limits: &Limits) -> Self {
        Self {
            id: birth.id,
            workspace: birth.workspace,
            agent: birth.agent,
            created_wall_ms: birth.created_wall_ms,
            updated_wall_ms: None,
            display_name: birth.display_name,
            source_type: birth.source_type,
            model_id: birth.model_id,
            approval_mode: birth.approval_mode,
            recording_degraded: false,
            turn_error: None,
            clients: Clients::new(limits.clients),
            queue: PromptQueue::new(limits),
            bus: EventBus::new(birth.epoch, limits.clone()),
            last_activity: now.tick,
            closing: None,
            indexed: None,
        }
    }

    pub(crate) fn workspace(&self) -> &str {
        &self.workspace
    }

    pub(crate) fn agent(&self) -> AgentKey {
        self.agent
    }

    pub(crate) fn queue(&self) -> &PromptQueue {
        &self.queue
    }

    pub(crate) fn bus(&self) -> &EventBus {
        &self.bus
    }

    pub(crate) fn bus_mut(&mut self) -> &mut EventBus {
        &mut self.bus
    }

    pub(crate) fn client_ids(&self) -> impl Iterator<Item = &ClientId> {
        self.clients.ids()
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    /// Refuses when the session is on its way out.
    pub(crate) fn open(&self) -> Result<(), Refusal> {
        match self.closing {
            Some(_) => Err(Refusal::SessionClosing { session: self.id.clone() }),
            None => Ok(()),
        }
    }

    /// The identity rule of every route but the event stream: anonymous, or registered here.
    pub(crate) fn authorize(&self, client: Option<&ClientId>) -> Result<(), Refusal> {
        self.open()?;
        match client.filter(|client| !self.clients.contains(client)) {
            Some(client) => Err(Refusal::InvalidClientId { session: self.id.clone(), client: client.clone() }),
            None => Ok(()),
        }
    }

    fn touch(&mut self, now: Now) {
        self.last_activity = now.tick;
    }

    fn publish(&mut self, step: &mut Step<'_>, draft: Draft) {
        self.bus.publish(step.now, draft, step.out);
    }

    fn with_mediator<T>(&mut self, step: &mut Step<'_>, act: impl FnOnce(&mut Mediator, &mut Stage<'_>) -> T) -> T {
        let mut stage = Stage {
            now: step.now,
            session: &self.id,
            clients: &self.clients,
            bus: &mut self.bus,
            audit: step.audit,
            out: step.out,
        };
        act(step.mediator, &mut stage)
    }

    /// Registers one more member.
    pub(crate) fn attach(
        &mut self,
        step: &Step<'_>,
        claimed: Option<ClientId>,
        minted: ClientId,
        attached: bool,
    ) -> Result<SessionAnswer, Refusal> {
        self.open()?;
        let limit = step.options.limits.clients;
        let client_id = self.clients.attach(claimed, minted).ok_or(Refusal::ClientLimit { limit })?;
        self.touch(step.now);
        let created = SessionCreated {
            session_id: self.id.clone(),
            workspace_cwd: self.workspace.clone(),
            attached,
            client_id,
            created_at: iso8601(self.created_wall_ms),
            has_active_prompt: attached.then(|| self.queue.running().is_some()),
            model_applied: None,
            source_type: self.source_type.clone(),
            source_persisted: None,
        };
        Ok(SessionAnswer {
            created,
            agent: self.agent,
            last_event_id: self.bus.last_id(),
            epoch: self.bus.epoch().to_owned(),
        })
    }

    /// A member leaves. The last one takes an unused session with it.
    pub(crate) fn detach(&mut self, step: &mut Step<'_>, client: &ClientId) -> Fate {
        let emptied = self.clients.detach(client);
        if emptied && self.closing.is_none() && self.is_unused(step.mediator) {
            step.log(LogLevel::Info, format!("session {} reaped: its last client left", self.id));
            return self.leave(step, "last_client_detached");
        }
        self.with_mediator(step, Mediator::member_left);
        Fate::Lives
    }

    fn is_unused(&self, mediator: &Mediator) -> bool {
        self.bus.subscriber_count() == 0 && self.queue.len() == 0 && mediator.pending_on(&self.id) == 0
    }

    /// Opens a stream. Its answer goes out before its first frame.
    pub(crate) fn subscribe(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        request: &SubscribeRequest,
    ) -> Result<(), Refusal> {
        self.open()?;
        self.bus.has_room(request.subscriber)?;
        self.touch(step.now);
        let epoch = self.bus.epoch().to_owned();
        step.out.push(Output::Answer { call, answer: Ok(crate::contract::Answer::Subscribed { epoch }) });
        let data = json!({
            "sessionId": self.id,
            "currentModelId": self.model_id,
            "currentApprovalMode": self.approval_mode.wire(),
            "recordingDegraded": self.recording_degraded,
        });
        let snapshot = Draft::new(FrameKind::SessionSnapshot, data);
        self.bus.subscribe(step.now, request, snapshot, step.mediator.unseen(&self.id, step.now), step.out);
        Ok(())
    }

    /// A stream is gone: the time without streams begins now.
    pub(crate) fn stream_closed(&mut self, now: Now) {
        self.touch(now);
    }

    /// Votes on a request; that it belongs to this session is the mediator's to find.
    pub(crate) fn vote(
        &mut self,
        step: &mut Step<'_>,
        addressed: Option<&SessionId>,
        request: &RequestId,
        caller: &Caller,
        choice: VoteChoice,
    ) -> Result<(), Refusal> {
        self.open()?;
        self.touch(step.now);
        let vote = Vote { addressed, request, caller, choice };
        self.with_mediator(step, |mediator, stage| mediator.vote(vote, stage))
    }

    /// The agent asks for permission.
    pub(crate) fn ask(&mut self, step: &mut Step<'_>, mut issue: Issue) {
        let turn = self.queue.running().map(|running| &running.prompt);
        issue.prompt_id = turn.map(|prompt| prompt.id.clone());
        issue.originator = turn.and_then(|prompt| prompt.originator.clone());
        issue.voters = self.clients.snapshot();
        if self.closing.is_some() {
            let written = (&mut *step.audit, &mut *step.out);
            step.mediator.record_unasked(&issue, "session_closing", &self.id, step.now, written);
            let resolution = Resolution::Cancelled(CancelReason::SessionClosed);
            step.out.push(Output::Resolve { reply: issue.reply, resolution });
            return;
        }
        self.touch(step.now);
        self.with_mediator(step, |mediator, stage| mediator.request(issue, stage));
    }

    /// The agent gave up one of its requests.
    pub(crate) fn withdraw(&mut self, step: &mut Step<'_>, request: &RequestId) {
        self.touch(step.now);
        self.with_mediator(step, |mediator, stage| mediator.withdraw(request, Withdrawal::Agent, stage));
    }

    /// One of the requests has waited long enough.
    pub(crate) fn expire(&mut self, step: &mut Step<'_>, request: &RequestId) {
        self.touch(step.now);
        self.with_mediator(step, |mediator, stage| mediator.expire(request, stage));
    }

    pub(crate) fn heartbeat(&mut self, step: &Step<'_>, caller: &Caller) -> Result<u64, Refusal> {
        self.authorize(caller.client.as_ref())?;
        self.touch(step.now);
        Ok(step.now.wall_ms)
    }

    /// Names the session, or tells its name.
    pub(crate) fn set_metadata(
        &mut self,
        step: &mut Step<'_>,
        caller: Caller,
        display_name: Option<String>,
    ) -> Result<Option<String>, Refusal> {
        self.authorize(caller.client.as_ref())?;
        self.touch(step.now);
        let Some(name) = display_name else { return Ok(self.display_name.clone()) };
        let invalid = |problem| Refusal::InvalidMetadata { field: "displayName", problem };
        if name.chars().any(char::is_control) {
            return Err(invalid("must not contain control characters"));
        }
        if name.trim().is_empty() {
            return Err(invalid("must not be blank"));
        }
        let name = cut_to_units(&name, Limits::DISPLAY_NAME_UNITS);
        self.display_name = Some(name.clone());
        self.updated_wall_ms = Some(step.now.wall_ms);
        let data = json!({ "sessionId": self.id, "displayName": name, "titleSource": "manual" });
        let kind = FrameKind::SessionMetadataUpdated;
        self.publish(step, Draft { kind, prompt_id: None, originator: caller.client, data });
        Ok(self.display_name.clone())
    }

    /// Who opens a stream from now on is told that the agent keeps no record any more.
    pub(crate) fn recording_stopped(&mut self) {
        self.recording_degraded = true;
    }

    pub(crate) fn model_switched(&mut self, step: &mut Step<'_>, originator: Option<ClientId>, model_id: String) {
        self.touch(step.now);
        let data = json!({ "sessionId": self.id, "modelId": model_id });
        self.model_id = Some(model_id);
        self.publish(step, Draft { kind: FrameKind::ModelSwitched, prompt_id: None, originator, data });
    }

    pub(crate) fn model_switch_failed(
        &mut self,
        step: &mut Step<'_>,
        originator: Option<ClientId>,
        model_id: &str,
        error: &str,
    ) {
        self.touch(step.now);
        let data = json!({ "sessionId": self.id, "requestedModelId": model_id, "error": error });
        self.publish(step, Draft { kind: FrameKind::ModelSwitchFailed, prompt_id: None, originator, data });
    }

    pub(crate) fn approval_mode_changed(
        &mut self,
        step: &mut Step<'_>,
        originator: Option<ClientId>,
        mode: ApprovalMode,
        persisted: bool,
    ) {
        self.touch(step.now);
        let previous = std::mem::replace(&mut self.approval_mode, mode);
        let data = json!({
            "sessionId": self.id,
            "previous": previous.wire(),
            "next": mode.wire(),
            "persisted": persisted,
        });
        self.publish(step, Draft { kind: FrameKind::ApprovalModeChanged, prompt_id: None, originator, data });
    }

    pub(crate) fn rewound(&mut self, step: &mut Step<'_>, originator: Option<ClientId>, data: Value) {
        self.touch(step.now);
        self.publish(step, Draft { kind: FrameKind::SessionRewound, prompt_id: None, originator, data });
    }

    /// When something is due here: a turn's deadline, the end of a close's grace, or of an idle time.
    pub(crate) fn next_deadline(&self, options: &BridgeOptions, mediator: &Mediator) -> Option<Tick> {
        let turn = self.queue.running().filter(|running| !running.reported).and_then(|running| running.deadline);
        let close = self.closing.as_ref().map(|closing| closing.deadline);
        let unused = self.end_of_disuse(options, mediator).map(|(tick, _)| tick);
        [turn, close, unused].into_iter().flatten().min()
    }

    pub(crate) fn status(&self, mediator: &Mediator) -> SessionStatus {
        let pending_interactions = mediator.interactions(&self.id);
        let has_active_prompt = self.queue.running().is_some();
        SessionStatus {
            session_id: self.id.clone(),
            workspace_cwd: self.workspace.clone(),
            created_at: iso8601(self.created_wall_ms),
            updated_at: self.updated_wall_ms.map(iso8601),
            display_name: self.display_name.clone(),
            source_type: self.source_type.clone(),
            client_count: self.clients.len(),
            has_active_prompt,
            active_work_state: if has_active_prompt { "active" } else { "idle" },
            is_waiting_for_permission: !pending_interactions.is_empty(),
            is_waiting_for_user_question: false,
            pending_interaction_count: pending_interactions.len(),
            has_turn_error: self.turn_error.is_some(),
            turn_error: self.turn_error.clone(),
            pending_interactions,
        }
    }

    pub(crate) fn summary(&self, mediator: &Mediator) -> SessionSummary {
        SessionSummary { status: self.status(mediator), is_archived: false }
    }

    pub(crate) fn created_wall_ms(&self) -> u64 {
        self.created_wall_ms
    }

    /// `{sessionId, …}`, how the data of most frames begins.
    fn data<const N: usize>(&self, fields: [(&str, Value); N]) -> Value {
        let mut data = Map::new();
        data.insert("sessionId".into(), json!(self.id));
        data.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(data)
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&self, mediator: &Mediator) {
        if self.closing.is_some() {
            assert!(self.queue.running().is_some(), "I1: {} waits for a turn that does not run", self.id);
            assert_eq!(mediator.pending_on(&self.id), 0, "I1: {} asks while closing", self.id);
        }
        let running = self.queue.running().map(|running| &running.prompt.id);
        assert!(mediator.turns_on(&self.id).all(|turn| Some(turn) == running), "I4: {} asks for a past turn", self.id);
        mediator.check_standings(&self.id, &self.clients);
        self.bus.check_invariants();
        self.queue.check_invariants();
        self.clients.check_invariants();
    }
}

/// The longest prefix of at most `units` UTF-16 units that splits no character.
fn cut_to_units(text: &str, units: usize) -> String {
    let mut left = units;
    text.chars().take_while(|c| left.checked_sub(c.len_utf16()).map(|rest| left = rest).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::cut_to_units;

    #[test]
    fn names_are_cut_by_utf16_units() {
        assert_eq!(cut_to_units("abc", 2), "ab");
        assert_eq!(cut_to_units("a😀b", 2), "a");
        assert_eq!(cut_to_units("a😀b", 3), "a😀");
        assert_eq!(cut_to_units("", 3), "");
    }
}
