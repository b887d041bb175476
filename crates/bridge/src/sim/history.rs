//! What one session has published, frame by frame, and whether what began there ended.

use std::collections::{BTreeMap, BTreeSet};

use convoke_protocol::daemon::{EncodedFrame, FrameKind};
use convoke_protocol::{PromptId, RequestId};
use serde_json::Value;

use super::Kept;
use super::ballots::Progress;

/// What a frame means for those who follow.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Asked(RequestId, Option<Progress>),
    Progressed(RequestId, Progress),
    Settled(RequestId),
    Other,
}

/// One life of one session.
#[derive(Debug, Default)]
pub(super) struct History {
    /// By number, from 1; a hole is a frame that nobody could have seen.
    frames: Vec<Option<(EncodedFrame, Effect)>>,
    asked: BTreeSet<RequestId>,
    settled: BTreeSet<RequestId>,
    prompts: BTreeSet<PromptId>,
    ended: BTreeSet<PromptId>,
    /// Prompts that were told to wait, and were not told to be done.
    queued: BTreeSet<PromptId>,
    /// Some of it was lost before anybody saw it, so that an end may be without its beginning.
    holes: bool,
}

impl History {
    pub(super) fn last(&self) -> u64 {
        u64::try_from(self.frames.len()).unwrap_or(u64::MAX)
    }

    /// A prompt was accepted: its turn will be told to have ended, once.
    pub(super) fn accepted(&mut self, prompt: PromptId) {
        self.prompts.insert(prompt);
    }

    /// A numbered frame arrived somewhere: it is the same everywhere, and it is the next one if it is new.
    pub(super) fn take(&mut self, frame: &EncodedFrame) -> Kept<Effect> {
        let number = frame.id.and_then(|id| usize::try_from(id).ok()).unwrap_or_default();
        must!("ids begin at 1", number > 0, "a frame has number {number}");
        if let Some(Some((known, effect))) = self.frames.get(number - 1) {
            must!("one frame for all", known.sse == frame.sse, "frame {number} is sent in two versions");
            return Ok(effect.clone());
        }
        self.holes |= self.frames.len() + 1 < number;
        let effect = self.read(frame)?;
        if self.frames.len() < number {
            self.frames.resize_with(number, || None);
        }
        if let Some(place) = self.frames.get_mut(number - 1) {
            *place = Some((frame.clone(), effect.clone()));
        }
        Ok(effect)
    }

    /// Up to this number everything is published; what was not seen can't be seen any more.
    pub(super) fn reaches(&mut self, last: u64) -> Kept {
        let known = self.last();
        must!("ids never go back", known <= last, "frame {known} was seen, and the last one is {last}");
        self.holes |= known < last;
        self.frames.resize_with(usize::try_from(last).unwrap_or_default(), || None);
        Ok(())
    }

    fn read(&mut self, frame: &EncodedFrame) -> Kept<Effect> {
        let effect = effect_of(frame);
        match &effect {
            Effect::Asked(request, _) => {
                must!("asked once", self.asked.insert(request.clone()), "{request} is announced twice");
            }
            Effect::Settled(request) => {
                must!(
                    "asked before",
                    self.holes || self.asked.contains(request),
                    "{request} is resolved and was not asked"
                );
                must!("resolved once", self.settled.insert(request.clone()), "{request} is resolved twice");
            }
            Effect::Progressed(request, _) => {
                must!("progress while pending", !self.settled.contains(request), "{request} goes on after its end");
            }
            Effect::Other => {}
        }
        let kind = frame.kind;
        if matches!(
            kind,
            FrameKind::TurnComplete
                | FrameKind::TurnError
                | FrameKind::PendingPromptAdded
                | FrameKind::PendingPromptCompleted
        ) {
            let data = data_of(frame);
            let prompt = PromptId(text(&data, "promptId"));
            match kind {
                FrameKind::PendingPromptAdded => {
                    must!("queued once", self.queued.insert(prompt.clone()), "{prompt} is queued twice");
                }
                FrameKind::PendingPromptCompleted => {
                    must!(
                        "queued before",
                        self.queued.remove(&prompt) || self.holes,
                        "{prompt} is done and was not queued"
                    );
                }
                _ => must!("one end per turn", self.ended.insert(prompt.clone()), "{prompt} ends twice"),
            }
        }
        Ok(effect)
    }

    /// The session is over and its last frame was seen: everything that began has ended.
    pub(super) fn check_end(&self) -> Kept {
        if self.holes {
            return Ok(());
        }
        let last = self.frames.last().and_then(Option::as_ref).map(|(frame, _)| frame.kind);
        let is_end = matches!(last, Some(FrameKind::SessionClosed | FrameKind::SessionDied));
        must!("the end is told", is_end, "the last frame is {last:?}");
        must!("requests end", self.asked == self.settled, "asked {:?}, settled {:?}", self.asked, self.settled);
        must!("turns end", self.prompts.is_subset(&self.ended), "of {:?} ended {:?}", self.prompts, self.ended);
        must!("queued prompts end", self.queued.is_empty(), "{:?} still wait", self.queued);
        Ok(())
    }
}

/// Reads what matters; most frames need not be parsed.
pub(super) fn effect_of(frame: &EncodedFrame) -> Effect {
    let request = |data: &Value| RequestId(text(data, "requestId"));
    match frame.kind {
        FrameKind::PermissionRequest => {
            let data = data_of(frame);
            let partial = data.get("partialVote").map(progress_of);
            Effect::Asked(request(&data), partial)
        }
        FrameKind::PermissionPartialVote => {
            let data = data_of(frame);
            Effect::Progressed(request(&data), progress_of(&data))
        }
        FrameKind::PermissionResolved => Effect::Settled(request(&data_of(frame))),
        _ => Effect::Other,
    }
}

pub(super) fn data_of(frame: &EncodedFrame) -> Value {
    let whole: Value = serde_json::from_slice(&frame.json).unwrap_or_default();
    whole.get("data").cloned().unwrap_or_default()
}

pub(super) fn text(data: &Value, name: &str) -> String {
    data.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn progress_of(data: &Value) -> Progress {
    let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let is = |name: &str| data.get(name) == Some(&Value::Bool(true));
    let tallies: BTreeMap<String, usize> = data
        .get("optionTallies")
        .and_then(Value::as_object)
        .map(|tallies| tallies.iter().map(|(option, votes)| (option.clone(), number(votes))).collect())
        .unwrap_or_default();
    Progress {
        received: data.get("votesReceived").map(number).unwrap_or(usize::MAX),
        tallies,
        unreachable: is("quorumUnreachable"),
        lost: is("quorumLost"),
    }
}
