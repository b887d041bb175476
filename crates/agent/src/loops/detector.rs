//! Sans-IO: is this the same again? What was said and called goes in, strikes come out.

use std::collections::VecDeque;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::lines::Lines;

/// So many repetitions of calls are a loop. Source: runtime specification §9.
const REPEATS: usize = 5;
/// Longest cycle of calls that is looked for.
const CYCLE_MAX: usize = 5;
/// Most characters of a call's arguments in a message.
const DETAIL_MAX: usize = 400;

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The same call, or the same few calls by turns.
    Calls { name: String, args: String },
    /// The same words.
    Text { excerpt: String },
    /// A model thinks so.
    Model { analysis: String },
}

impl Found {
    /// The name that telemetry knows it by.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Calls { .. } => "consecutive_identical_tool_calls",
            Self::Text { .. } => "chanting_identical_sentences",
            Self::Model { .. } => "llm_detected_loop",
        }
    }

    pub(super) fn detail(&self) -> String {
        match self {
            Self::Calls { name, args } => format!("Repeated tool call: {name} with arguments {args}"),
            Self::Text { excerpt } => format!("Repeating content detected: \"{excerpt}\""),
            Self::Model { analysis } => analysis.clone(),
        }
    }
}

/// The `number`th loop of an invocation, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strike {
    pub(super) number: u32,
    pub(super) found: Found,
}

/// Looks for loops in one invocation. What led to a strike is forgotten with it: the next one needs as much again.
#[derive(Debug, Default)]
pub(super) struct Detector {
    calls: VecDeque<[u8; 32]>,
    lines: Lines,
    strikes: u32,
}

impl Detector {
    /// The model said this; where it is cut into pieces makes no difference.
    pub(super) fn text(&mut self, text: &str) -> Option<Strike> {
        let excerpt = self.lines.add(text)?;
        Some(self.found(Found::Text { excerpt }))
    }

    /// What was said since the last call is taken back.
    pub(super) fn forget_text(&mut self) {
        self.lines = Lines::default();
    }

    /// The model wants this done.
    pub(super) fn call(&mut self, name: &str, args: &Value) -> Option<Strike> {
        self.forget_text();
        let json = args.to_string();
        self.calls.push_back(Sha256::digest(format!("{name}:{json}")).into());
        if self.calls.len() > REPEATS * CYCLE_MAX {
            self.calls.pop_front();
        }
        let looping = (1..=CYCLE_MAX).any(|cycle| self.repeats(cycle));
        if !looping {
            return None;
        }
        let args = json.chars().take(DETAIL_MAX).collect();
        Some(self.found(Found::Calls { name: name.to_owned(), args }))
    }

    /// Whether the newest calls are the same `cycle` calls again and again.
    fn repeats(&self, cycle: usize) -> bool {
        let wanted = cycle * REPEATS;
        let Some(from) = self.calls.len().checked_sub(wanted) else { return false };
        let newest = self.calls.iter().skip(from);
        newest.clone().zip(newest.skip(cycle)).all(|(earlier, later)| earlier == later)
    }

    /// A loop was found, here or elsewhere.
    pub(super) fn found(&mut self, found: Found) -> Strike {
        self.calls.clear();
        self.forget_text();
        self.strikes += 1;
        Strike { number: self.strikes, found }
    }
}

/// The text half of loop detection by itself, for measuring it.
#[derive(Debug, Default)]
pub struct LoopDetector(Lines);

impl LoopDetector {
    /// Shows it a piece of text; whether that completes a loop.
    pub fn add(&mut self, text: &str) -> bool {
        self.0.add(text).is_some()
    }
}

#[cfg(test)]
mod tests;
