//! One session that an agent runs: what was said about it, and what of that everyone has to hear.

use std::sync::Arc;

use convoke_acp::RECORDING_META;
use convoke_bridge::{Input, Refusal, StartFailure};
use convoke_protocol::{ApprovalMode, ClientId, SessionId};
use serde_json::Value;

use super::order::{Change, Started, Wish};
use super::replay::Replay;
use super::rewind::WaysBack;
use super::served::Served;
use super::start;
use super::state::SessionState;
use super::unasked::{Calls, Deed};
use crate::session_store::{SessionRecord, SessionStore};

/// A session at its agent.
pub(crate) struct Hosted {
    /// What is remembered of it once it was prompted.
    record: SessionRecord,
    prompted: bool,
    state: SessionState,
    mode: ApprovalMode,
    /// A mode that a client asked for and the agent has not answered about: its own announcement of it is no news.
    setting_mode: Option<ApprovalMode>,
    /// The same for a model.
    setting_model: Option<String>,
    /// Whether the model that the creator asked for is in use, if it asked.
    model_applied: Option<bool>,
    /// What its agent told again when it was loaded.
    replay: Arc<Replay>,
    /// What its agent does.
    calls: Calls,
    ways_back: WaysBack,
}

/// What a load has brought so far.
pub(super) struct Loading {
    /// Our id of the session.
    pub(super) session: SessionId,
    /// What is told again.
    pub(super) replay: Replay,
    /// What of that is about the session as a whole.
    pub(super) state: SessionState,
}

impl Loading {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, replay: Replay::default(), state: SessionState::default() }
    }

    /// Takes an update of `bytes` on the wire.
    pub(super) fn heed(&mut self, update: Value, bytes: usize, wall_ms: u64, limit: usize) {
        self.state.heed(&update, bytes);
        self.replay.push(&self.session, update, wall_ms, limit);
    }
}

impl Hosted {
    /// A session that was just started: newly, or with what was told and remembered of it.
    pub(super) fn new(record: SessionRecord, started: &Started, loaded: Option<Loading>, prompted: bool) -> Self {
        let mut state = started.state.clone();
        let replay = loaded.map(|loading| {
            state.adopt(loading.state);
            loading.replay
        });
        Self {
            record,
            prompted,
            state,
            mode: started.mode,
            setting_mode: None,
            setting_model: None,
            model_applied: started.model.as_ref().map(|(_, problem)| problem.is_none()),
            replay: Arc::new(replay.unwrap_or_default()),
            calls: Calls::default(),
            ways_back: WaysBack::default(),
        }
    }

    /// Our id of it.
    pub(super) fn session(&self) -> &SessionId {
        &self.record.session_id
    }

    /// What its agent told of it.
    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// What its agent told again when it was loaded.
    pub(crate) fn replay(&self) -> Arc<Replay> {
        Arc::clone(&self.replay)
    }

    /// Whether the model that the creator asked for is in use, if it asked.
    pub(crate) fn model_applied(&self) -> Option<bool> {
        self.model_applied
    }

    /// It was prompted: from now on there is something to load.
    pub(super) fn prompted(&mut self, store: Option<&mut SessionStore>, wall_ms: u64) {
        if !std::mem::replace(&mut self.prompted, true) {
            self.remember(store, wall_ms);
        }
    }

    /// It has another name.
    pub(super) fn named(&mut self, name: Option<String>, store: Option<&mut SessionStore>, wall_ms: u64) {
        self.record.display_name = name;
        if self.prompted {
            self.remember(store, wall_ms);
        }
    }

    /// It is over.
    pub(super) fn ended(mut self, loads: bool, store: &mut SessionStore, wall_ms: u64) {
        if self.prompted {
            self.remember(Some(store).filter(|_| loads), wall_ms);
        } else {
            store.ended_unused(self.record.session_id);
        }
    }

    /// `store` is there if the agent can load sessions.
    fn remember(&mut self, store: Option<&mut SessionStore>, wall_ms: u64) {
        self.record.updated_ms = wall_ms;
        if let Some(store) = store {
            store.put(self.record.clone());
        }
    }

    /// Notes a wish that is on its way to the agent.
    pub(super) fn setting(&mut self, wish: &Wish, client: Option<&ClientId>) {
        match wish {
            Wish::Mode(mode, _) => self.setting_mode = Some(*mode),
            Wish::Model(model, _) => self.setting_model = Some(model.clone()),
            Wish::Rewind(..) => self.ways_back.asked(client.cloned()),
            Wish::RewindPoints(_) => {}
        }
    }

    /// Takes an update of `bytes` on the wire, and appends what everyone hears of it: the update itself, a way back, and a
    /// change of model or mode that no client asked for.
    ///
    /// Gives what the agent is now known to have done without asking.
    pub(super) fn heed(&mut self, update: Value, bytes: usize, out: &mut Vec<Input>) -> Option<Deed> {
        let deed = self.calls.heed(&update);
        let model = self.state.model_id().map(str::to_owned);
        self.state.heed(&update, bytes);
        let session = self.record.session_id.clone();
        let announced = announced_mode(&update).or_else(|| self.state.mode());
        if update.get("_meta").and_then(|meta| meta.get(RECORDING_META)?.as_bool()) == Some(false) {
            out.push(Input::RecordingStopped { session: session.clone() });
        }
        let went_back = self.ways_back.heed(&session, &update);
        out.push(Input::Update { session: session.clone(), update });
        out.extend(went_back);
        if let Some(mode) = announced.filter(|mode| *mode != self.mode && self.setting_mode != Some(*mode)) {
            self.mode = mode;
            out.push(Input::ApprovalModeChanged { session: session.clone(), originator: None, mode, persisted: false });
        }
        let now = self.state.model_id().map(str::to_owned);
        if let Some(model_id) =
            now.filter(|now| Some(now) != model.as_ref() && Some(now) != self.setting_model.as_ref())
        {
            out.push(Input::ModelSwitched { session, originator: None, model_id });
        }
        deed
    }

    /// Its agent asks for permission.
    pub(super) fn asked(&mut self, tool_call: &Value) {
        self.calls.asked(tool_call);
    }

    /// Its agent had the daemon do something: a deed, if no request of this turn named it.
    pub(super) fn served(&self, served: &Served) -> Option<Deed> {
        (!self.calls.has_named(&served.names)).then(|| Deed::new(served.kind, &served.title))
    }

    /// Its turn is over: what the agent did in it without asking and never told the end of.
    pub(super) fn turn_ended(&mut self) -> Vec<Deed> {
        self.calls.turn_ended()
    }

    /// The agent answered a client's wish.
    pub(super) fn changed(&mut self, change: Change, result: Result<Value, StartFailure>, out: &mut Vec<Input>) {
        let Change { session, agent_session: _, originator, wish, ask } = change;
        // Whoever waited may be gone; the event tells everyone.
        match wish {
            Wish::Mode(mode, reply) => {
                self.setting_mode = None;
                let result = result.map(|answer| {
                    self.state.mode_taken(&ask, &answer);
                    std::mem::replace(&mut self.mode, mode)
                });
                if result.is_ok() {
                    out.push(Input::ApprovalModeChanged { session, originator, mode, persisted: false });
                }
                let _ = reply.send(result.map_err(Refusal::StartFailed));
            }
            Wish::Model(model_id, reply) => {
                self.setting_model = None;
                match &result {
                    Ok(answer) => {
                        self.state.model_taken(&model_id, answer);
                        out.push(Input::ModelSwitched { session, originator, model_id });
                    }
                    Err(failure) => {
                        let error = start::reason(failure);
                        out.push(Input::ModelSwitchFailed { session, originator, model_id, error });
                    }
                }
                let _ = reply.send(result.map_err(Refusal::StartFailed));
            }
            Wish::RewindPoints(reply) => drop(reply.send(result.map_err(Refusal::StartFailed))),
            Wish::Rewind(_, reply) => {
                out.extend(self.ways_back.answered(session, originator, result.as_ref().ok()));
                let _ = reply.send(result.map_err(Refusal::StartFailed));
            }
        }
    }
}

/// The mode that an update announces: ACP's `current_mode_update`.
fn announced_mode(update: &Value) -> Option<ApprovalMode> {
    let kind = update.get("sessionUpdate")?.as_str()?;
    let mode = update.get("currentModeId")?.as_str()?;
    (kind == "current_mode_update").then(|| ApprovalMode::parse(mode)).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn modes_are_read_from_their_own_update_only() {
        let update = |kind: &str, mode: &str| json!({"sessionUpdate": kind, "currentModeId": mode});
        assert_eq!(announced_mode(&update("current_mode_update", "autoEdit")), Some(ApprovalMode::AutoEdit));
        assert_eq!(announced_mode(&update("current_mode_update", "architect")), None);
        assert_eq!(announced_mode(&update("agent_message_chunk", "yolo")), None);
    }
}
