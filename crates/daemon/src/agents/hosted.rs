//! One session that an agent runs: what was said about it, and what of that everyone has to hear.

use convoke_bridge::{Input, Refusal, StartFailure};
use convoke_protocol::{ApprovalMode, SessionId};
use serde_json::Value;

use super::order::{Change, Started, Wish};
use super::start;
use super::state::SessionState;

/// A session at its agent.
pub(crate) struct Hosted {
    session: SessionId,
    state: SessionState,
    mode: ApprovalMode,
    /// A mode that a client asked for and the agent has not answered about: its own announcement of it is no news.
    setting_mode: Option<ApprovalMode>,
    /// The same for a model.
    setting_model: Option<String>,
    /// Whether the model that the creator asked for is in use, if it asked.
    model_applied: Option<bool>,
}

impl Hosted {
    /// A session that was just started.
    pub(super) fn new(session: SessionId, started: &Started) -> Self {
        Self {
            session,
            state: started.state.clone(),
            mode: started.mode,
            setting_mode: None,
            setting_model: None,
            model_applied: started.model.as_ref().map(|(_, problem)| problem.is_none()),
        }
    }

    /// Our id of it.
    pub(super) fn session(&self) -> &SessionId {
        &self.session
    }

    /// What its agent told of it.
    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// Whether the model that the creator asked for is in use, if it asked.
    pub(crate) fn model_applied(&self) -> Option<bool> {
        self.model_applied
    }

    /// Notes a wish that is on its way to the agent.
    pub(super) fn setting(&mut self, wish: &Wish) {
        match wish {
            Wish::Mode(mode, _) => self.setting_mode = Some(*mode),
            Wish::Model(model, _) => self.setting_model = Some(model.clone()),
        }
    }

    /// Takes an update of `bytes` on the wire, and appends what everyone hears of it: the update itself, and a change of
    /// model or mode that no client asked for.
    pub(super) fn heed(&mut self, update: Value, bytes: usize, out: &mut Vec<Input>) {
        let model = self.state.model_id().map(str::to_owned);
        self.state.heed(&update, bytes);
        let session = self.session.clone();
        let announced = announced_mode(&update).or_else(|| self.state.mode());
        out.push(Input::Update { session: session.clone(), update });
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
