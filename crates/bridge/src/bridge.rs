//! The whole machine: which part of it does an input concern?
//!
//! It owns the sessions, the starts that are under way and the mediator, routes each input to one of them, and lets
//! go of what has ended. Queries for clients that poll are in the module's `query`.
//!
//! Invariants: I1 each call is answered exactly once. I2 starting and live sessions together obey their limits. I3 a
//! workspace's shared session is live or starting, and there is one at most. I4 every stream belongs to one live
//! session. I5 a pending request belongs to a live session. I6 what is due is known without asking every session.

mod query;
mod starts;

use std::collections::{BTreeMap, BTreeSet};

use convoke_protocol::{ClientId, SessionId};
use convoke_stdx::{Now, Tick};
use serde_json::json;

use crate::audit::AuditRing;
use crate::contract::{
    AgentKey, Answer, CallId, Caller, CancelReason, Input, LogLevel, Output, Resolution, SubscribeRequest, SubscriberId,
};
use crate::mediator::{Issue, Mediator};
use crate::options::BridgeOptions;
use crate::refusal::Refusal;
use crate::session::{Cause, Fate, NewPrompt, Session, Step};
use starts::Starts;

pub use query::{AgentOf, Counts, Journal};

/// The bridge of one daemon.
#[derive(Debug)]
pub struct Bridge {
    options: BridgeOptions,
    sessions: BTreeMap<SessionId, Session>,
    /// The shared session of each workspace that has a live one.
    shared: BTreeMap<String, SessionId>,
    starts: Starts,
    streams: BTreeMap<SubscriberId, SessionId>,
    /// When which session is due, each as its `indexed` says; the mediator keeps the times of its requests itself.
    due: BTreeSet<(Tick, SessionId)>,
    mediator: Mediator,
    audit: AuditRing,
    draining: bool,
}

impl Bridge {
    /// A bridge without sessions.
    #[must_use]
    pub fn new(options: BridgeOptions) -> Self {
        Self {
            sessions: BTreeMap::new(),
            shared: BTreeMap::new(),
            starts: Starts::default(),
            streams: BTreeMap::new(),
            due: BTreeSet::new(),
            mediator: Mediator::new(&options),
            audit: AuditRing::new(options.limits.audit_records),
            draining: false,
            options,
        }
    }

    /// Takes one input, as one atomic step, and appends what is to be done to `out`.
    ///
    /// Never fails and never waits; inputs about things that are gone are ignored or refused.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let begin = out.len();
        self.route(now, input, out);
        // Streams end in many places; here is the one place that lets go of them.
        for output in out.iter().skip(begin) {
            if let Output::EndStream { subscriber } | Output::Evict { subscriber, .. } = output
                && let Some(id) = self.streams.remove(subscriber)
                && let Some(session) = self.sessions.get_mut(&id)
            {
                session.stream_closed(now);
                self.reindex(&id);
            }
        }
    }

    fn route(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Create { call, request } => self.create(now, call, request, out),
            Input::Restore { call, session, workspace, client, minted } => {
                self.restore(now, call, starts::RestoreRequest { session, workspace, client, minted }, out);
            }
            Input::Recalled { creation, display_name, source_type } => {
                self.starts.recall(creation, display_name, source_type);
            }
            Input::SessionStarted { creation, session, agent, epoch, created_wall_ms, model_id, approval_mode } => {
                let started = starts::Started { session, agent, epoch, created_wall_ms, model_id, approval_mode };
                self.session_started(now, creation, started, out);
            }
            Input::SessionStartFailed { creation, failure } => self.session_start_failed(creation, &failure, out),
            Input::Detach { session, client } => {
                let Some(client) = client else { return };
                let _ = self.with_session(now, &session, out, |session, step| session.detach(step, &client));
            }
            Input::Subscribe { call, session, request } => self.subscribe(now, call, &session, &request, out),
            Input::Unsubscribe { subscriber } => {
                if let Some(session) = self.stream(subscriber) {
                    session.bus_mut().unsubscribe(subscriber);
                    session.stream_closed(now);
                }
                if let Some(id) = self.streams.remove(&subscriber) {
                    self.reindex(&id);
                }
            }
            Input::Drained { subscriber, frames, bytes } => {
                if let Some(session) = self.stream(subscriber) {
                    session.bus_mut().drained(subscriber, frames, bytes);
                }
            }
            Input::WriterStalled { subscriber, idle_for, timeout } => {
                let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
                if let Some(session) = self.stream(subscriber) {
                    session.bus_mut().writer_stalled(now, subscriber, ms(idle_for), ms(timeout), out);
                }
            }
            Input::Prompt { call, session, caller, prompt_id, blocks, deadline } => {
                self.answer(now, call, &session, out, |session, step| {
                    session.prompt(step, caller, NewPrompt { id: prompt_id, blocks, deadline }).map(Answer::Prompt)
                });
            }
            Input::Cancel { call, session, caller } => self
                .answer(now, call, &session, out, |session, step| session.cancel(step, &caller).map(|()| Answer::Done)),
            Input::Vote { call, session, request, caller, choice } => match session {
                Some(id) => self.answer(now, call, &id, out, |session, step| {
                    session.vote(step, Some(&id), &request, &caller, choice).map(|()| Answer::Done)
                }),
                None => self.vote_by_request(now, call, starts::LegacyVote { request, caller, choice }, out),
            },
            Input::Heartbeat { call, session, caller } => self.answer(now, call, &session, out, |session, step| {
                session.heartbeat(step, &caller).map(|last_seen_at| Answer::Heartbeat { last_seen_at })
            }),
            Input::SetMetadata { call, session, caller, display_name } => {
                self.answer(now, call, &session, out, |session, step| {
                    session
                        .set_metadata(step, caller, display_name)
                        .map(|display_name| Answer::Metadata { display_name })
                });
            }
            Input::Close { call, session, caller } => self.close(now, call, &session, caller, out),
            Input::ModelSwitched { session, originator, model_id } => {
                self.tell(now, &session, out, |session, step| session.model_switched(step, originator, model_id));
            }
            Input::ModelSwitchFailed { session, originator, model_id, error } => {
                self.tell(now, &session, out, |session, step| {
                    session.model_switch_failed(step, originator, &model_id, &error);
                });
            }
            Input::ApprovalModeChanged { session, originator, mode, persisted } => {
                self.tell(now, &session, out, |session, step| {
                    session.approval_mode_changed(step, originator, mode, persisted);
                });
            }
            Input::SessionRewound { session, originator, prompt_id, turn_index, what, files_changed, files_failed } => {
                let to = json!({
                    "sessionId": session,
                    "promptId": prompt_id,
                    "targetTurnIndex": turn_index,
                    "what": what,
                    "filesChanged": files_changed,
                    "filesFailed": files_failed,
                });
                self.tell(now, &session, out, |session, step| {
                    session.rewound(step, originator, to);
                });
            }
            Input::RecordingStopped { session } => {
                self.tell(now, &session, out, |session, _| session.recording_stopped());
            }
            Input::Update { session, update } => {
                self.tell(now, &session, out, |session, step| session.update(step, update));
            }
            Input::PermissionRequested { session, request, reply, tool_call, options } => {
                let (prompt_id, originator, voters) = (None, None, [].into());
                let issue = Issue { request, reply, prompt_id, originator, voters, tool_call, options };
                self.ask(now, &session, issue, out);
            }
            Input::PermissionWithdrawn { reply } => {
                if let Some((session, request)) = self.mediator.awaited(reply) {
                    self.tell(now, &session, out, |session, step| session.withdraw(step, &request));
                }
            }
            Input::TurnEnded { session, prompt_id, outcome } => {
                let _ = self
                    .with_session(now, &session, out, |session, step| session.turn_ended(step, &prompt_id, &outcome));
            }
            Input::AgentGone { agent, exit_code, signal } => {
                let cause = Cause::AgentGone { exit_code, signal: signal.as_deref() };
                self.end_sessions(now, cause, |session| session.agent() == agent, out);
            }
            Input::Tick => self.tick(now, out),
            Input::Shutdown => {
                self.draining = true;
                self.give_up_starts(out);
                self.end_sessions(now, Cause::Shutdown, |_| true, out);
            }
        }
    }

    /// Lets a session take its part of an input, and lets go of it if that was its end. `None` if it is not there.
    fn with_session(
        &mut self,
        now: Now,
        id: &SessionId,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Session, &mut Step<'_>) -> Fate,
    ) -> Option<Fate> {
        let session = self.sessions.get_mut(id)?;
        let mut step = Step { now, options: &self.options, mediator: &mut self.mediator, audit: &mut self.audit, out };
        let fate = act(session, &mut step);
        match fate {
            Fate::Lives => self.reindex(id),
            Fate::Gone => self.forget(id),
        }
        Some(fate)
    }

    fn forget(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.remove(id) else { return };
        if let Some(tick) = session.indexed {
            self.due.remove(&(tick, id.clone()));
        }
        if self.shared.get(session.workspace()) == Some(id) {
            self.shared.remove(session.workspace());
        }
    }

    /// Notes when a session is due now. To be called after everything that a session was part of.
    fn reindex(&mut self, id: &SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let next = session.next_deadline(&self.options, &self.mediator);
        if next == session.indexed {
            return;
        }
        if let Some(before) = std::mem::replace(&mut session.indexed, next) {
            self.due.remove(&(before, id.clone()));
        }
        if let Some(next) = next {
            self.due.insert((next, id.clone()));
        }
    }

    /// An input of the agent about a session, which can't end it. Ignored if the session is gone: the agent may write
    /// on for a while.
    fn tell(&mut self, now: Now, id: &SessionId, out: &mut Vec<Output>, act: impl FnOnce(&mut Session, &mut Step<'_>)) {
        let told = self.with_session(now, id, out, |session, step| {
            act(session, step);
            Fate::Lives
        });
        if told.is_none() {
            out.push(Output::Log {
                level: LogLevel::Debug,
                text: format!("ignored an event of session {id}, which is not live"),
            });
        }
    }

    /// A call about a session that is answered in the same step.
    fn answer(
        &mut self,
        now: Now,
        call: CallId,
        id: &SessionId,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Session, &mut Step<'_>) -> Result<Answer, Refusal>,
    ) {
        let mut answer = Err(Refusal::SessionNotFound { session: id.clone() });
        let _ = self.with_session(now, id, out, |session, step| {
            answer = act(session, step);
            Fate::Lives
        });
        out.push(Output::Answer { call, answer });
    }

    fn subscribe(&mut self, now: Now, call: CallId, id: &SessionId, request: &SubscribeRequest, out: &mut Vec<Output>) {
        let mut opened = Err(Refusal::SessionNotFound { session: id.clone() });
        let _ = self.with_session(now, id, out, |session, step| {
            opened = session.subscribe(step, call, request);
            Fate::Lives
        });
        match opened {
            Ok(()) => {
                let before = self.streams.insert(request.subscriber, id.clone());
                // The shell named a stream of another session again: the old one must not stay behind.
                if let Some(before) = before.filter(|before| before != id) {
                    if let Some(session) = self.sessions.get_mut(&before) {
                        session.bus_mut().unsubscribe(request.subscriber);
                    }
                    self.reindex(&before);
                }
            }
            Err(refusal) => out.push(Output::Answer { call, answer: Err(refusal) }),
        }
    }

    fn stream(&mut self, subscriber: SubscriberId) -> Option<&mut Session> {
        self.sessions.get_mut(self.streams.get(&subscriber)?)
    }

    /// A permission request, whose reply key is answered exactly once wherever it ends up.
    fn ask(&mut self, now: Now, id: &SessionId, issue: Issue, out: &mut Vec<Output>) {
        let reply = issue.reply;
        if self.mediator.awaits(reply) {
            out.push(Output::Log {
                level: LogLevel::Warn,
                text: format!("session {id} asks twice under one key; ignored"),
            });
            return;
        }
        if self.sessions.contains_key(id) {
            self.tell(now, id, out, |session, step| session.ask(step, issue));
        } else {
            self.mediator.record_unasked(&issue, "session_not_found", id, now, (&mut self.audit, out));
            out.push(Output::Resolve { reply, resolution: Resolution::Cancelled(CancelReason::SessionClosed) });
        }
    }

    /// The legacy route: the session is the request's. Whatever is wrong with it, the answer is that of an unknown
    /// request, since the caller named no session that could be missing.
    fn vote_by_request(&mut self, now: Now, call: CallId, vote: starts::LegacyVote, out: &mut Vec<Output>) {
        let starts::LegacyVote { request, caller, choice } = vote;
        let live = self
            .mediator
            .session_of(&request)
            .filter(|id| self.sessions.get(*id).is_some_and(|session| session.open().is_ok()));
        match live.cloned() {
            Some(id) => self.answer(now, call, &id, out, |session, step| {
                session.vote(step, None, &request, &caller, choice).map(|()| Answer::Done)
            }),
            None => {
                let answer = Err(Refusal::RequestNotFound { session: None, request });
                out.push(Output::Answer { call, answer });
            }
        }
    }

    fn close(&mut self, now: Now, call: CallId, id: &SessionId, caller: Caller, out: &mut Vec<Output>) {
        let mut refused = Some(Refusal::SessionNotFound { session: id.clone() });
        let fate = self.with_session(now, id, out, |session, step| match session.close(step, call, caller) {
            Ok(fate) => {
                refused = None;
                fate
            }
            Err(refusal) => {
                refused = Some(refusal);
                Fate::Lives
            }
        });
        match refused {
            Some(refusal) => out.push(Output::Answer { call, answer: Err(refusal) }),
            // No one joins a session that is on its way out.
            None if fate == Some(Fate::Lives) => self.shared.retain(|_, shared| shared != id),
            None => {}
        }
    }

    fn end_sessions(&mut self, now: Now, cause: Cause<'_>, which: impl Fn(&Session) -> bool, out: &mut Vec<Output>) {
        let ids: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| which(session)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let _ = self.with_session(now, &id, out, |session, step| {
                session.die(step, cause);
                Fate::Gone
            });
        }
    }

    /// When [`Input::Tick`] is due: the earliest of permission timeouts, prompt deadlines, close graces and idle ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        let session = self.due.first().map(|(tick, _)| *tick);
        [self.mediator.next_deadline(), session].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((session, request)) = self.mediator.due(now.tick) {
            self.tell(now, &session, out, |session, step| session.expire(step, &request));
        }
        // Taken out beforehand: what becomes due by this is due at the next tick.
        let due: Vec<SessionId> =
            self.due.iter().take_while(|(tick, _)| *tick <= now.tick).map(|(_, id)| id.clone()).collect();
        for id in due {
            let _ = self.with_session(now, &id, out, |session, step| session.tick(step));
        }
    }

    /// Panics if the machine is in a state that it must never be in.
    #[cfg(any(test, feature = "sim"))]
    pub fn check_invariants(&self) {
        let limits = &self.options.limits;
        let within = |count: usize, limit: usize| limit == 0 || count <= limit;
        assert!(within(self.sessions.len() + self.starts.len(), limits.sessions_total), "I2: total");
        let mut per_workspace: BTreeMap<&str, usize> = BTreeMap::new();
        let live = self.sessions.values().map(Session::workspace);
        for workspace in live.chain(self.starts.workspaces()) {
            *per_workspace.entry(workspace).or_default() += 1;
        }
        assert!(per_workspace.values().all(|count| within(*count, limits.sessions_per_workspace)), "I2: workspace");
        for (workspace, id) in &self.shared {
            let session = self.sessions.get(id);
            assert!(session.is_some_and(|session| session.workspace() == workspace), "I3: shared session is gone");
            assert!(!self.starts.starts_shared(workspace), "I3: a second shared session starts");
        }
        let streams: usize = self.sessions.values().map(|session| session.bus().subscriber_count()).sum();
        assert_eq!(streams, self.streams.len(), "I4: streams");
        assert!(self.streams.values().all(|id| self.sessions.contains_key(id)), "I4: stream of a dead session");
        let pending: usize = self.sessions.keys().map(|id| self.mediator.pending_on(id)).sum();
        assert_eq!(pending, self.mediator.pending_count(), "I5: request of a dead session");
        let due = |(id, session): (&SessionId, &Session)| {
            Some((session.next_deadline(&self.options, &self.mediator)?, id.clone()))
        };
        assert_eq!(self.sessions.iter().filter_map(due).collect::<BTreeSet<_>>(), self.due, "I6: due");
        self.sessions.values().for_each(|session| session.check_invariants(&self.mediator));
        self.starts.check_invariants(limits);
        self.mediator.check_invariants();
        self.audit.check_invariants();
    }
}

/// The agent of a session, for those who route a call to it.
fn agent_of(session: &Session, client: Option<&ClientId>) -> Result<AgentKey, Refusal> {
    session.authorize(client)?;
    Ok(session.agent())
}
