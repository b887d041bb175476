//! A turn from prompt to end, and what everyone hears of it.

use std::time::Duration;

use convoke_protocol::daemon::FrameKind;
use convoke_protocol::daemon::dto::PromptAccepted;
use convoke_protocol::{ClientId, PromptId};
use serde_json::{Value, json};

use super::{Fate, Session, Step};
use crate::contract::{Caller, LogLevel, Output, TurnOutcome};
use crate::event_bus::Draft;
use crate::mediator::Withdrawal;
use crate::prompt_queue::{Cancelled, Prompt, Running, text_of};
use crate::refusal::Refusal;

/// A prompt as a client sent it.
pub(crate) struct NewPrompt {
    pub(crate) id: PromptId,
    pub(crate) blocks: Vec<Value>,
    pub(crate) deadline: Option<Duration>,
}

impl Session {
    /// Queues a prompt, and starts it if nothing runs.
    pub(crate) fn prompt(
        &mut self,
        step: &mut Step<'_>,
        caller: Caller,
        new: NewPrompt,
    ) -> Result<PromptAccepted, Refusal> {
        self.authorize(caller.client.as_ref())?;
        let (limit, pending) = (self.queue.limit(), self.queue.len());
        // An id that is in use again would make two turns indistinguishable to everyone: there is no room for it.
        if pending >= limit || self.queue.knows(&new.id) {
            return Err(Refusal::PromptQueueFull { session: self.id.clone(), limit, pending });
        }
        self.touch(step.now);
        let accepted = PromptAccepted {
            prompt_id: new.id.clone(),
            last_event_id: self.bus.last_id(),
            event_epoch: self.bus.epoch().to_owned(),
        };
        let text = text_of(&new.blocks);
        let prompt = Prompt {
            id: new.id.clone(),
            originator: caller.client.clone(),
            blocks: new.blocks,
            text: text.clone(),
            queued_at: step.now.wall_ms,
            waited: false,
            deadline: new.deadline,
        };
        if self.queue.push(prompt) {
            let fields = [("promptId", json!(new.id)), ("text", text.into()), ("queuedAt", step.now.wall_ms.into())];
            self.publish_turn(step, FrameKind::PendingPromptAdded, &new.id, caller.client.as_ref(), fields);
        } else {
            self.start_next(step);
        }
        Ok(accepted)
    }

    /// Starts the oldest waiting prompt, if nothing runs: tells everyone, echoes it, hands it to the agent.
    fn start_next(&mut self, step: &mut Step<'_>) {
        let Some(running) = self.queue.start_next(step.now, step.options.prompt_deadline) else { return };
        let prompt = &running.prompt;
        let (id, originator, waited) = (prompt.id.clone(), prompt.originator.clone(), prompt.waited);
        let (text, blocks) = (prompt.text.clone(), prompt.blocks.clone());
        self.turn_error = None;
        if waited {
            let fields = [("promptId", json!(id)), ("text", text.into())];
            self.publish_turn(step, FrameKind::PendingPromptStarted, &id, originator.as_ref(), fields);
        }
        for block in &blocks {
            let update = json!({
                "sessionUpdate": "user_message_chunk",
                "content": block,
                "_meta": { "serverTimestamp": step.now.wall_ms, "source": "bridge-echo" },
            });
            self.publish_turn(step, FrameKind::SessionUpdate, &id, originator.as_ref(), [("update", update)]);
        }
        step.out.push(Output::StartTurn { session: self.id.clone(), agent: self.agent, prompt_id: id, blocks });
    }

    /// The agent reported something, within a turn or outside of one.
    pub(crate) fn update(&mut self, step: &mut Step<'_>, update: Value) {
        self.touch(step.now);
        if update.get("sessionUpdate").and_then(Value::as_str) == Some("agent_message_chunk")
            && let Some(text) = update.pointer("/content/text").and_then(Value::as_str)
        {
            self.queue.append_result(text);
        }
        let prompt = self.queue.running().map(|running| &running.prompt);
        let draft = Draft {
            kind: FrameKind::SessionUpdate,
            prompt_id: prompt.map(|prompt| prompt.id.clone()),
            originator: prompt.and_then(|prompt| prompt.originator.clone()),
            data: self.data([("update", update)]),
        };
        self.publish(step, draft);
    }

    /// Cancels the running turn, not those that wait. Everyone hears of the wish even when nothing runs.
    pub(crate) fn cancel(&mut self, step: &mut Step<'_>, caller: &Caller) -> Result<(), Refusal> {
        self.authorize(caller.client.as_ref())?;
        self.touch(step.now);
        let now = step.now;
        let id = self.queue.running_mut().map(|running| {
            let elapsed_ms = u64::try_from(now.tick.since(running.started.tick).as_millis()).unwrap_or(u64::MAX);
            running.cancelled.get_or_insert(Cancelled { at: now.wall_ms, elapsed_ms });
            running.prompt.id.clone()
        });
        let data = self.data([]);
        let originator = caller.client.clone();
        self.publish(step, Draft { kind: FrameKind::PromptCancelled, prompt_id: id.clone(), originator, data });
        if let Some(prompt_id) = id {
            self.interrupt(step, prompt_id, Withdrawal::TurnCancelled { by: caller.client.as_ref() });
        }
        Ok(())
    }

    /// Tells the agent to stop, then answers what it was asking: in this order, so that it reads the answers as part
    /// of being stopped and not as decisions of its users.
    pub(super) fn interrupt(&mut self, step: &mut Step<'_>, prompt_id: PromptId, by: Withdrawal<'_>) {
        step.out.push(Output::CancelTurn { session: self.id.clone(), agent: self.agent, prompt_id });
        self.with_mediator(step, |mediator, stage| mediator.withdraw_all(None, by, stage));
    }

    /// The agent ended a turn.
    pub(crate) fn turn_ended(&mut self, step: &mut Step<'_>, prompt_id: &PromptId, outcome: &TurnOutcome) -> Fate {
        if self.queue.running().is_none_or(|running| running.prompt.id != *prompt_id) {
            step.log(LogLevel::Warn, format!("session {}: turn {prompt_id} ended but does not run", self.id));
            return Fate::Lives;
        }
        self.touch(step.now);
        // What a finished turn still asks can't matter any more, and its answer would come to nobody.
        self.with_mediator(step, |mediator, stage| {
            mediator.withdraw_all(Some(prompt_id), Withdrawal::TurnEnded, stage)
        });
        let Some(running) = self.queue.finish(step.now, &self.id, outcome) else { return Fate::Lives };
        self.report(step, &running, outcome);
        if self.closing.is_some() {
            return self.finish_close(step);
        }
        self.start_next(step);
        Fate::Lives
    }

    /// Tells everyone how a turn ended, unless they know, and that its place in the queue is free.
    pub(super) fn report(&mut self, step: &mut Step<'_>, running: &Running, outcome: &TurnOutcome) {
        let prompt = &running.prompt;
        self.updated_wall_ms = Some(step.now.wall_ms);
        if !running.reported {
            self.publish_outcome(step, prompt, outcome, running.cancelled);
        }
        if prompt.waited {
            self.publish_completed(step, prompt, "completed");
        }
    }

    pub(super) fn publish_outcome(
        &mut self,
        step: &mut Step<'_>,
        prompt: &Prompt,
        outcome: &TurnOutcome,
        cancelled: Option<Cancelled>,
    ) {
        let originator = prompt.originator.as_ref();
        match outcome {
            TurnOutcome::Complete { stop_reason } => {
                let mut data = self.data([("stopReason", json!(stop_reason)), ("promptId", json!(prompt.id))]);
                if let (Some(Cancelled { at, elapsed_ms }), "cancelled", Some(data)) =
                    (cancelled, stop_reason.as_str(), data.as_object_mut())
                {
                    let detail = json!({ "cancelledAt": at, "elapsedMs": elapsed_ms });
                    data.insert("promptCancelled".into(), detail);
                }
                let draft = turn_draft(FrameKind::TurnComplete, &prompt.id, originator, data);
                self.publish(step, draft);
            }
            TurnOutcome::Failed { message, code } => {
                self.turn_error = Some(message.clone());
                let mut data = self.data([("message", json!(message))]);
                if let Some(data) = data.as_object_mut() {
                    if let Some(code) = code {
                        data.insert("code".into(), code.clone());
                    }
                    data.insert("promptId".into(), json!(prompt.id));
                }
                let draft = turn_draft(FrameKind::TurnError, &prompt.id, originator, data);
                self.publish(step, draft);
            }
        }
    }

    pub(super) fn publish_completed(&mut self, step: &mut Step<'_>, prompt: &Prompt, state: &str) {
        let fields = [("promptId", json!(prompt.id)), ("state", state.into())];
        let originator = prompt.originator.as_ref();
        self.publish_turn(step, FrameKind::PendingPromptCompleted, &prompt.id, originator, fields);
    }

    pub(super) fn publish_turn<const N: usize>(
        &mut self,
        step: &mut Step<'_>,
        kind: FrameKind,
        prompt_id: &PromptId,
        originator: Option<&ClientId>,
        fields: [(&str, Value); N],
    ) {
        let draft = turn_draft(kind, prompt_id, originator, self.data(fields));
        self.publish(step, draft);
    }

    /// The running turn has taken too long: everyone is told now, the agent is told to stop.
    pub(super) fn exceed_deadline(&mut self, step: &mut Step<'_>) {
        let Some(running) = self.queue.running_mut() else { return };
        running.reported = true;
        let (id, originator) = (running.prompt.id.clone(), running.prompt.originator.clone());
        let message = "the prompt took longer than its deadline".to_owned();
        self.turn_error = Some(message.clone());
        let fields =
            [("message", message.into()), ("code", "prompt_deadline_exceeded".into()), ("promptId", json!(id))];
        self.publish_turn(step, FrameKind::TurnError, &id, originator.as_ref(), fields);
        self.publish_turn(step, FrameKind::PromptCancelled, &id, originator.as_ref(), []);
        self.interrupt(step, id, Withdrawal::PromptDeadline);
    }
}

fn turn_draft(kind: FrameKind, prompt_id: &PromptId, originator: Option<&ClientId>, data: Value) -> Draft {
    Draft { kind, prompt_id: Some(prompt_id.clone()), originator: originator.cloned(), data }
}
