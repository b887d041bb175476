//! How a session ends: closed by a client, left, idle, or dead with its agent or the daemon.
//!
//! The order of the frames is the peer's (daemon specification, §f.7): a client that follows the stream can tell what
//! happened to its prompt and its request before it is told that the session is gone.

use convoke_protocol::daemon::FrameKind;
use convoke_stdx::Tick;
use serde_json::json;

use super::{Closing, Fate, Session, Step};
use crate::contract::{Answer, CallId, Caller, LogLevel, Output, TurnOutcome};
use crate::event_bus::Draft;
use crate::mediator::{Mediator, Withdrawal};
use crate::options::BridgeOptions;
use crate::refusal::Refusal;

/// What a session dies of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// Its agent's process ended.
    AgentGone { exit_code: Option<i32>, signal: Option<&'a str> },
    /// The daemon shuts down.
    Shutdown,
}

impl Session {
    /// A client closes the session for everyone: at once, or after the running turn has ended.
    pub(crate) fn close(&mut self, step: &mut Step<'_>, call: CallId, caller: Caller) -> Result<Fate, Refusal> {
        self.authorize(caller.client.as_ref())?;
        let deadline = step.now.tick.after(step.options.limits.close_grace);
        let by = Withdrawal::Close { by: caller.client.as_ref() };
        let running = self.queue.running().map(|running| running.prompt.id.clone());
        match &running {
            Some(prompt_id) => self.interrupt(step, prompt_id.clone(), by),
            None => self.withdraw_all(step, by),
        }
        self.closing = Some(Closing { by: caller.client, call, deadline });
        if running.is_none() {
            return Ok(self.finish_close(step));
        }
        Ok(Fate::Lives)
    }

    fn withdraw_all(&mut self, step: &mut Step<'_>, by: Withdrawal<'_>) {
        self.with_mediator(step, |mediator, stage| mediator.withdraw_all(None, by, stage));
    }

    /// The end of a close: whatever still runs or waits is reported as cancelled.
    pub(super) fn finish_close(&mut self, step: &mut Step<'_>) -> Fate {
        let outcome = TurnOutcome::Complete { stop_reason: "cancelled".to_owned() };
        if let Some(running) = self.queue.finish(step.now, &self.id, &outcome) {
            self.report(step, &running, &outcome);
        }
        self.give_up_waiting(step, &outcome);
        let closing = self.closing.take();
        let by = closing.as_ref().and_then(|closing| closing.by.clone());
        let mut data = self.data([("reason", "client_close".into())]);
        if let (Some(by), Some(data)) = (&by, data.as_object_mut()) {
            data.insert("closedBy".into(), json!(by));
        }
        let draft = Draft { kind: FrameKind::SessionClosed, prompt_id: None, originator: by, data };
        self.publish(step, draft);
        self.bus.end(step.out);
        step.out.push(Output::CloseSession { session: self.id.clone(), agent: self.agent });
        answer_close(step, closing);
        Fate::Gone
    }

    /// Ends a session that no one uses, so no one hears of it, and nothing is pending on it.
    pub(super) fn leave(&mut self, step: &mut Step<'_>, reason: &str) -> Fate {
        let data = self.data([("reason", reason.into())]);
        self.publish(step, Draft::new(FrameKind::SessionClosed, data));
        self.bus.end(step.out);
        step.out.push(Output::CloseSession { session: self.id.clone(), agent: self.agent });
        Fate::Gone
    }

    /// Ends the session because something it stands on is gone.
    pub(crate) fn die(&mut self, step: &mut Step<'_>, cause: Cause<'_>) {
        let outcome = match cause {
            Cause::AgentGone { .. } => TurnOutcome::Failed {
                message: format!("agent channel closed mid-request (session {})", self.id),
                code: None,
            },
            Cause::Shutdown => TurnOutcome::Failed {
                message: format!("the daemon shut down mid-request (session {})", self.id),
                code: Some("daemon_shutdown".into()),
            },
        };
        // Those who were told of a missed deadline know that the turn is over.
        let turn = self.queue.running().filter(|running| !running.reported);
        let turn = turn.map(|running| (running.prompt.id.clone(), running.prompt.originator.clone()));
        match cause {
            Cause::AgentGone { .. } => {
                if let Some((id, originator)) = turn {
                    let reason = [("reason", "forward_failed".into())];
                    self.publish_turn(step, FrameKind::PromptCancelled, &id, originator.as_ref(), reason);
                }
                self.withdraw_all(step, Withdrawal::AgentGone);
                self.give_up_running(step, &outcome);
            }
            Cause::Shutdown => {
                if let Some(prompt_id) = self.queue.running().map(|running| running.prompt.id.clone()) {
                    self.interrupt(step, prompt_id, Withdrawal::Shutdown);
                } else {
                    self.withdraw_all(step, Withdrawal::Shutdown);
                }
                self.give_up_running(step, &outcome);
                if let Some((id, originator)) = turn {
                    self.publish_turn(step, FrameKind::PromptCancelled, &id, originator.as_ref(), []);
                }
            }
        }
        self.give_up_waiting(step, &outcome);
        let data = match cause {
            Cause::AgentGone { exit_code, signal } => self.data([
                ("reason", "channel_closed".into()),
                ("exitCode", json!(exit_code)),
                ("signalCode", json!(signal)),
            ]),
            Cause::Shutdown => self.data([("reason", "daemon_shutdown".into())]),
        };
        self.publish(step, Draft::new(FrameKind::SessionDied, data));
        self.bus.end(step.out);
        if let Cause::Shutdown = cause {
            step.out.push(Output::CloseSession { session: self.id.clone(), agent: self.agent });
        }
        let closing = self.closing.take();
        answer_close(step, closing);
    }

    fn give_up_running(&mut self, step: &mut Step<'_>, outcome: &TurnOutcome) {
        if let Some(running) = self.queue.finish(step.now, &self.id, outcome) {
            self.report(step, &running, outcome);
        }
    }

    /// Every prompt that a client was promised an end of gets one, also if it never began.
    fn give_up_waiting(&mut self, step: &mut Step<'_>, outcome: &TurnOutcome) {
        for prompt in self.queue.drop_waiting() {
            self.publish_outcome(step, &prompt, outcome, None);
            self.publish_completed(step, &prompt, "cancelled");
        }
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, step: &mut Step<'_>) -> Fate {
        let now = step.now.tick;
        let due = |deadline: Tick| deadline <= now;
        if self.closing.as_ref().is_some_and(|closing| due(closing.deadline)) {
            let text = format!("session {}: closed although its turn did not end in time", self.id);
            step.log(LogLevel::Warn, text);
            return self.finish_close(step);
        }
        if self.queue.running().is_some_and(|running| !running.reported && running.deadline.is_some_and(due)) {
            self.exceed_deadline(step);
        }
        if let Some((tick, reason)) = self.end_of_disuse(step.options, step.mediator)
            && due(tick)
        {
            step.log(LogLevel::Info, format!("session {} reaped: {reason}", self.id));
            return self.leave(step, reason);
        }
        Fate::Lives
    }

    /// When a session that nobody uses ends, and why: idle, or left by everybody while something kept it.
    pub(super) fn end_of_disuse(&self, options: &BridgeOptions, mediator: &Mediator) -> Option<(Tick, &'static str)> {
        if self.closing.is_some() || !self.is_unused(mediator) {
            return None;
        }
        let idle =
            options.idle_timeout.map(|timeout| (options.sweep(self.last_activity.after(timeout)), "idle_timeout"));
        let left = (self.clients.len() == 0)
            .then(|| (self.last_activity.after(options.settled_grace), "last_client_detached"));
        [left, idle].into_iter().flatten().min_by_key(|(tick, _)| *tick)
    }
}

fn answer_close(step: &mut Step<'_>, closing: Option<Closing>) {
    if let Some(Closing { call, .. }) = closing {
        step.out.push(Output::Answer { call, answer: Ok(Answer::Done) });
    }
}
