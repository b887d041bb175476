//! Who is next: one session's prompts, first come, first served.
//!
//! ```text
//! push ─▶ waiting ─ start_next ─▶ running ─ finish ─▶ remembered for a while
//!                                   │ cancel: marked, the agent still ends it
//!                                   └ deadline: reported as failed, the agent still ends it
//! ```
//! Cancelling touches the running prompt only. It publishes nothing itself: the session does.
//!
//! Invariants: I1 at most one prompt runs. I2 prompts wait only behind a running one (between inputs). I3 running and
//! waiting together obey the limit. I4 finished turns obey theirs.

use std::collections::VecDeque;
use std::time::Duration;

use convoke_protocol::daemon::dto::{PendingPrompt, TurnStatus};
use convoke_protocol::{ClientId, PromptId, SessionId};
use convoke_stdx::{Now, Ring, Tick, cut};
use serde_json::Value;

use crate::contract::TurnOutcome;
use crate::options::Limits;

/// One prompt, waiting or running.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) id: PromptId,
    pub(crate) originator: Option<ClientId>,
    pub(crate) blocks: Vec<Value>,
    pub(crate) text: String,
    pub(crate) queued_at: u64,
    /// Whether it had to wait; clients hear of the queue only then.
    pub(crate) waited: bool,
    pub(crate) deadline: Option<Duration>,
}

/// The prompt that the agent works on.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) prompt: Prompt,
    pub(crate) started: Now,
    pub(crate) deadline: Option<Tick>,
    pub(crate) cancelled: Option<Cancelled>,
    /// Clients have been told how it ended, although the agent still works on it.
    pub(crate) reported: bool,
    result: String,
}

/// When a running prompt was cancelled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancelled {
    pub(crate) at: u64,
    pub(crate) elapsed_ms: u64,
}

#[derive(Debug)]
pub(crate) struct PromptQueue {
    running: Option<Running>,
    waiting: VecDeque<Prompt>,
    finished: Ring<TurnStatus>,
    limit: usize,
    result_bytes: usize,
}

impl PromptQueue {
    pub(crate) fn new(limits: &Limits) -> Self {
        let limit = if limits.pending_prompts == 0 { Limits::PROMPTS_HARD } else { limits.pending_prompts };
        let finished = Ring::new(limits.turns);
        Self { running: None, waiting: VecDeque::new(), finished, limit, result_bytes: limits.turn_text_bytes }
    }

    pub(crate) fn running(&self) -> Option<&Running> {
        self.running.as_ref()
    }

    pub(crate) fn running_mut(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// Prompts that run or wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    pub(crate) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Puts a prompt at the end. Whether it has to wait; the caller has checked that there is room.
    pub(crate) fn push(&mut self, mut prompt: Prompt) -> bool {
        prompt.waited = self.running.is_some();
        let waits = prompt.waited;
        self.waiting.push_back(prompt);
        waits
    }

    /// Makes the oldest waiting prompt the running one, if none runs.
    pub(crate) fn start_next(&mut self, now: Now, default_deadline: Option<Duration>) -> Option<&Running> {
        if self.running.is_some() {
            return None;
        }
        let prompt = self.waiting.pop_front()?;
        let deadline = prompt.deadline.or(default_deadline).map(|limit| now.tick.after(limit));
        let running =
            Running { prompt, started: now, deadline, cancelled: None, reported: false, result: String::new() };
        Some(self.running.insert(running))
    }

    /// Adds to what the running turn has said; the end is what a polling client wants, so the front goes first.
    pub(crate) fn append_result(&mut self, text: &str) {
        let Some(running) = &mut self.running else { return };
        running.result.push_str(text);
        if running.result.len() > self.result_bytes.saturating_mul(2) {
            running.result = cut::tail(&running.result, self.result_bytes).to_owned();
        }
    }

    /// Takes the running prompt out and remembers how it ended.
    pub(crate) fn finish(&mut self, now: Now, session: &SessionId, outcome: &TurnOutcome) -> Option<Running> {
        let running = self.running.take()?;
        let mut status = running.status(session);
        status.result_text = cut::tail(&running.result, self.result_bytes).to_owned();
        status.ended_at = Some(now.wall_ms);
        match outcome {
            // Clients were told that it failed; a later good end does not take that back.
            TurnOutcome::Complete { stop_reason } if !running.reported => {
                status.state = "completed";
                status.stop_reason = Some(stop_reason.clone());
            }
            TurnOutcome::Complete { .. } | TurnOutcome::Failed { .. } => status.state = "failed",
        }
        // The oldest turn is forgotten: polling clients ask for recent ones.
        let _ = self.finished.push(status);
        Some(running)
    }

    /// Gives up everything that still waits.
    pub(crate) fn drop_waiting(&mut self) -> VecDeque<Prompt> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn pending(&self) -> Vec<PendingPrompt> {
        let running = self.running.iter().map(|running| (&running.prompt, "running"));
        let waiting = self.waiting.iter().map(|prompt| (prompt, "queued"));
        running
            .chain(waiting)
            .map(|(prompt, state)| PendingPrompt {
                prompt_id: prompt.id.clone(),
                text: prompt.text.clone(),
                queued_at: prompt.queued_at,
                state,
                originator_client_id: prompt.originator.clone(),
            })
            .collect()
    }

    pub(crate) fn current(&self, session: &SessionId) -> Option<TurnStatus> {
        self.running.as_ref().map(|running| running.status(session))
    }

    pub(crate) fn turn(&self, session: &SessionId, id: &PromptId) -> Option<TurnStatus> {
        let running = self.running.as_ref().filter(|running| running.prompt.id == *id);
        let waiting = || self.waiting.iter().find(|prompt| prompt.id == *id);
        let finished = || self.finished.iter().find(|turn| turn.prompt_id == *id).cloned();
        running
            .map(|running| running.status(session))
            .or_else(|| waiting().map(|prompt| prompt.status(session)))
            .or_else(finished)
    }

    /// Whether a prompt of this id runs or waits.
    pub(crate) fn knows(&self, id: &PromptId) -> bool {
        self.running.iter().map(|running| &running.prompt).chain(&self.waiting).any(|prompt| prompt.id == *id)
    }

    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn check_invariants(&self) {
        assert!(self.running.is_some() || self.waiting.is_empty(), "I2: a prompt waits for nobody");
        assert!(self.len() <= self.limit, "I3: too many prompts");
        assert!(self.finished.len() <= self.finished.capacity(), "I4: too many finished turns");
        assert!(self.waiting.iter().all(|prompt| prompt.waited), "a waiting prompt thinks it never waited");
    }
}

impl Prompt {
    fn status(&self, session: &SessionId) -> TurnStatus {
        TurnStatus {
            session_id: session.clone(),
            prompt_id: self.id.clone(),
            prompt_text: self.text.clone(),
            queued_at: self.queued_at,
            started_at: None,
            ended_at: None,
            originator_client_id: self.originator.clone(),
            state: "queued",
            stop_reason: None,
            result_text: String::new(),
        }
    }
}

impl Running {
    fn status(&self, session: &SessionId) -> TurnStatus {
        let mut status = self.prompt.status(session);
        status.started_at = Some(self.started.wall_ms);
        status.state = "running";
        status.result_text = self.result.clone();
        status
    }
}

/// The text of a prompt's text blocks.
pub(crate) fn text_of(blocks: &[Value]) -> String {
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
    texts.join("\n")
}
