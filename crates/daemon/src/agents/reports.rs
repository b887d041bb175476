//! What agents tell, and what of it the bridge has to know.

use std::time::Instant;

use convoke_acp::{ChildEvent, Exit, PermissionAsk};
use convoke_bridge::{AgentKey, CreationId, Input, ReplyKey, SessionProfile, StartFailure, StartKind};
use convoke_protocol::{RequestId, SessionId};
use serde_json::Value;
use uuid::Uuid;

use super::hosted::Hosted;
use super::order::{Order, Report, Started};
use super::unasked::Deed;
use super::{Agents, EARLY_MAX, Starting};
use crate::session_store::SessionRecord;

impl Agents {
    /// Takes what a keeper told, and appends what the bridge has to know.
    ///
    /// What an agent says after its end is dropped.
    pub(crate) fn take(&mut self, key: AgentKey, report: Report, out: &mut Vec<Input>) {
        let Some(agent) = self.live.get_mut(&key) else { return };
        match report {
            Report::Up { loads } => {
                agent.up = true;
                agent.loads = loads;
            }
            Report::NotUp(failure) => self.gone(key, &failure, None, out),
            Report::Said(ChildEvent::Exited(exit)) => {
                tracing::info!(agent = key.0, name = agent.name, %exit, "an agent ended");
                let failure = StartFailure::Unavailable { message: exit.to_string() };
                self.gone(key, &failure, Some(&exit), out);
            }
            Report::Said(event) => self.said(key, event, out),
            Report::Started { creation, result } => self.started(key, creation, result, out),
            Report::TurnEnded { session, prompt_id, outcome, stuck } => {
                if let Some(hosted) = agent.sessions.get_mut(&session) {
                    out.push(Input::TurnEnded { session: hosted.session().clone(), prompt_id, outcome });
                    let (deeds, name) = (hosted.turn_ended(), agent.name.clone());
                    self.count(&name, deeds);
                }
                if stuck {
                    self.set_aside(key);
                }
            }
            Report::Stuck => self.set_aside(key),
            Report::Served(served) => {
                let deed = agent.sessions.get(&served.session).and_then(|hosted| hosted.served(&served));
                let name = agent.name.clone();
                self.count(&name, deed);
            }
            Report::Withdrawn(reply) => out.push(Input::PermissionWithdrawn { reply }),
            Report::Changed { change, result, stuck } => {
                if let Some(hosted) = agent.sessions.get_mut(&change.agent_session) {
                    hosted.changed(*change, result, out);
                }
                if stuck {
                    self.set_aside(key);
                }
            }
        }
    }

    fn gone(&mut self, key: AgentKey, failure: &StartFailure, exit: Option<&Exit>, out: &mut Vec<Input>) {
        let Some(agent) = self.live.remove(&key) else { return };
        self.current.retain(|_, current| *current != key);
        let wall_ms = self.clock.now().wall_ms;
        for hosted in agent.sessions.into_values() {
            hosted.ended(agent.loads, &mut self.store, wall_ms);
        }
        for (creation, starting) in agent.starting {
            // It may have been on its way out when the start came: then another one does it, once.
            let Starting { start, again, loads: _ } = starting;
            let retried = if agent.up && !again && !self.stopping {
                self.begin(creation, start, true)
            } else {
                Err(failure.clone())
            };
            if let Err(failure) = retried {
                out.push(Input::SessionStartFailed { creation, failure });
            }
        }
        self.replies.retain(|_, (owner, _)| *owner != key);
        let signal = exit.and_then(|exit| exit.signal);
        // An agent behind two streams has no status and can't be killed.
        self.clean &= !agent.stop.is_cancelled() || signal.is_none();
        out.push(Input::AgentGone {
            agent: key,
            exit_code: exit.and_then(|exit| exit.exit_code),
            signal: signal.map(signal_name),
        });
    }

    fn started(
        &mut self,
        key: AgentKey,
        creation: CreationId,
        result: Result<Box<Started>, StartFailure>,
        out: &mut Vec<Input>,
    ) {
        let Some(agent) = self.live.get_mut(&key) else { return };
        let Some(Starting { start, loads, again: _ }) = agent.starting.remove(&creation) else { return };
        agent.idle_since = Instant::now();
        let loading = loads.and_then(|agent_session| agent.loading.remove(&agent_session));
        let result = result.and_then(|started| {
            let known = agent.sessions.contains_key(&started.agent_session);
            let message = "it gave a session the id of another one".to_owned();
            if known { Err(StartFailure::Unavailable { message }) } else { Ok(started) }
        });
        let agent_session = match result {
            Err(failure) => {
                if let StartFailure::InitTimeout { .. } | StartFailure::RestoreTimeout { .. } = &failure {
                    self.current.retain(|_, current| *current != key);
                }
                if let StartFailure::NotStored { session } = &failure
                    && agent.loads
                {
                    self.store.forget(session);
                }
                out.push(Input::SessionStartFailed { creation, failure });
                None
            }
            Ok(started) => {
                let session = started.wish.clone().unwrap_or_else(|| session_id(&started.agent_session));
                let agent_session = started.agent_session.clone();
                let remembered = self.store.get(&session).cloned();
                let prompted = remembered.is_some();
                let record = remembered.unwrap_or_else(|| {
                    let workspace = self.options.workspace.display().to_string();
                    let ids = (session.clone(), agent_session.clone());
                    record(ids, agent.name.clone(), workspace, &start, self.clock.now().wall_ms)
                });
                if let StartKind::Restore { .. } = start {
                    let (display_name, source_type) = (record.display_name.clone(), record.source_type.clone());
                    out.push(Input::Recalled { creation, display_name, source_type });
                }
                let created_wall_ms = Some(record.created_ms);
                let hosted = Hosted::new(record, &started, loading, prompted);
                agent.sessions.insert(agent_session.clone(), hosted);
                out.push(Input::SessionStarted {
                    creation,
                    session: session.clone(),
                    agent: key,
                    epoch: Uuid::new_v4().to_string(),
                    created_wall_ms,
                    model_id: started.state.model_id().map(str::to_owned),
                    approval_mode: started.mode,
                });
                if let Some((model_id, Some(error))) = started.model {
                    out.push(Input::ModelSwitchFailed { session, originator: None, model_id, error });
                }
                Some(agent_session)
            }
        };
        // What the agent said about the session before it told its id belongs right after its start.
        let none_left = agent.starting.is_empty();
        for event in std::mem::take(&mut agent.early) {
            let about = agent_session.is_some() && session_of(&event) == agent_session.as_ref();
            if about {
                self.said(key, event, out);
            } else if !none_left && let Some(agent) = self.live.get_mut(&key) {
                agent.early.push_back(event);
            }
        }
        self.stop_if_alone(key);
    }

    fn said(&mut self, key: AgentKey, event: ChildEvent, out: &mut Vec<Input>) {
        let Some(agent) = self.live.get_mut(&key) else { return };
        let Some(id) = session_of(&event) else { return };
        let Some(hosted) = agent.sessions.get_mut(id) else {
            match (&event, agent.loading.get_mut(id)) {
                (ChildEvent::Update(update), Some(loading)) => {
                    let text = update.update.get();
                    let Ok(update) = serde_json::from_str::<Value>(text) else { return };
                    loading.heed(update, text.len(), self.clock.now().wall_ms, self.options.limits.replay_bytes);
                }
                // Dropping a question answers it as cancelled.
                _ if !agent.starting.is_empty() && agent.early.len() < EARLY_MAX => agent.early.push_back(event),
                _ => {}
            }
            return;
        };
        match event {
            ChildEvent::Update(update) => {
                let text = update.update.get();
                let Ok(update) = serde_json::from_str::<Value>(text) else { return };
                let deed = hosted.heed(update, text.len(), out);
                let name = agent.name.clone();
                self.count(&name, deed);
            }
            ChildEvent::PermissionRequest(ask) => {
                let session = hosted.session().clone();
                hosted.asked(&ask.tool_call);
                self.asked(key, session, *ask, out);
            }
            // Calls are the keeper's.
            ChildEvent::Call(_) | ChildEvent::Exited(_) => {}
        }
    }

    /// Counts what an agent did without asking, and tells the operator of the first of each kind.
    fn count(&mut self, name: &str, deeds: impl IntoIterator<Item = Deed>) {
        for deed in deeds {
            let unasked = self.unasked.entry(name.to_owned()).or_default();
            if unasked.count(deed.clone()) {
                tracing::info!(agent = name, kind = deed.kind, title = deed.title, "an agent acts without asking");
            }
        }
    }

    fn asked(&mut self, key: AgentKey, session: SessionId, ask: PermissionAsk, out: &mut Vec<Input>) {
        let PermissionAsk { session_id: _, tool_call, options, meta: _, reply: answer } = ask;
        self.reply_keys += 1;
        let reply = ReplyKey(self.reply_keys);
        let withdrawal = answer.withdrawal();
        self.replies.insert(reply, (key, answer));
        let options = match options {
            Value::Array(options) => options,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Vec::new(),
        };
        let request = RequestId(Uuid::new_v4().to_string());
        out.push(Input::PermissionRequested { session, request, reply, tool_call, options });
        self.order(key, Order::Watch(reply, withdrawal));
    }
}

fn session_of(event: &ChildEvent) -> Option<&SessionId> {
    match event {
        ChildEvent::Update(update) => Some(&update.session_id),
        ChildEvent::PermissionRequest(ask) => Some(&ask.session_id),
        ChildEvent::Call(_) | ChildEvent::Exited(_) => None,
    }
}

/// What will be remembered of a session that was not there before.
fn record(
    (session_id, agent_session_id): (SessionId, SessionId),
    agent: String,
    cwd: String,
    start: &StartKind,
    wall_ms: u64,
) -> SessionRecord {
    let profile = match start {
        StartKind::New { profile, .. } => profile.clone(),
        StartKind::Restore { .. } => SessionProfile::default(),
    };
    SessionRecord {
        v: SessionRecord::V,
        session_id,
        agent_session_id,
        agent,
        cwd,
        created_ms: wall_ms,
        updated_ms: wall_ms,
        display_name: None,
        source_type: profile.source_type,
        source_id: profile.source_id,
        gone: false,
    }
}

/// Our id of a session: the agent's, where it is a UUID, else a new one.
fn session_id(agent_session: &SessionId) -> SessionId {
    let canonical = Uuid::try_parse(agent_session.as_str()).ok().map(|id| id.to_string());
    match canonical {
        Some(id) if id == agent_session.as_str() => agent_session.clone(),
        _ => SessionId(Uuid::new_v4().to_string()),
    }
}

pub(super) fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return format!("SIG{other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_agents_are_kept_where_they_are_uuids() {
        let uuid = SessionId::from("550e8400-e29b-41d4-a716-446655440000");
        assert_eq!(session_id(&uuid), uuid);
        for odd in ["session-1", "550E8400-E29B-41D4-A716-446655440000", "", "../../etc"] {
            let ours = session_id(&SessionId::from(odd));
            assert_ne!(ours.as_str(), odd);
            assert!(Uuid::try_parse(ours.as_str()).is_ok());
        }
    }
}
