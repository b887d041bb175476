//! Sans-IO: where does the part of a session end that is to be summarised?
//!
//! A call and its response stay on one side. The first choice is before something that the user said, with at least
//! 70 % in front of it; one long prompt with hundreds of calls has no such place, and then it is before an answer of the
//! model. Source: runtime specification §8, step 6, with the second choice added: without it a run of a single prompt
//! could never be compressed.

use std::collections::BTreeMap;

use convoke_adk::{Event, Part, Role};

/// How much is summarised, in percent; the newest rest stays as it is.
const SUMMARISED: u64 = 70;
/// Less than this, in percent, is no progress worth a model call.
const PROGRESS_MIN: u64 = 30;

/// The number of events, from the oldest on, that a summary is to replace; `None` if there is nothing to gain.
pub(super) fn split(events: &[Event], tokens: &[u64]) -> Option<usize> {
    let before = cumulative(tokens);
    let total = *before.last()?;
    let share = |index: &usize| before.get(*index).map_or(0, |sum| sum.saturating_mul(100) / total.max(1));
    let safe = safe_cuts(events);
    let is = |index: &usize, wanted: fn(&Event) -> bool| events.get(*index).is_some_and(wanted);
    let by_user: Vec<usize> = safe.iter().copied().filter(|index| is(index, is_prompt)).collect();
    let enough = |cuts: &[usize]| cuts.iter().copied().find(|index| share(index) >= SUMMARISED);
    if let Some(cut) = enough(&by_user) {
        return Some(cut);
    }
    if events.iter().rev().find(|event| has_parts(event)).is_some_and(is_answer) && total > 0 {
        return Some(events.len());
    }
    if let Some(cut) = by_user.last().copied().filter(|index| share(index) >= PROGRESS_MIN) {
        return Some(cut);
    }
    // What the user said would be carried over anyway: in front there must be something that was done.
    let worked = events.iter().position(is_model)?;
    let by_model: Vec<usize> = safe.into_iter().filter(|index| *index > worked && is(index, is_model)).collect();
    enough(&by_model).or_else(|| by_model.last().copied().filter(|index| share(index) >= PROGRESS_MIN))
}

/// Before each event, the tokens of all older ones; and of all, at the end.
fn cumulative(tokens: &[u64]) -> Vec<u64> {
    let sums = tokens.iter().scan(0_u64, |sum, tokens| {
        *sum = sum.saturating_add(*tokens);
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// Places, first to last, at which no call stands in front whose response stands behind.
fn safe_cuts(events: &[Event]) -> Vec<usize> {
    // The place of each response that a call waits for. An id may come again: the oldest open call is answered first.
    let mut open: BTreeMap<Option<&str>, std::collections::VecDeque<usize>> = BTreeMap::new();
    let mut answered_at = vec![0; events.len()];
    for (index, event) in events.iter().enumerate() {
        for part in parts(event) {
            if let Some(id) = part.response_id()
                && let Some(call) = open.get_mut(&id).and_then(std::collections::VecDeque::pop_front)
                && let Some(place) = answered_at.get_mut(call)
            {
                *place = index.max(*place);
            }
            if let Some(id) = part.call_id() {
                open.entry(id).or_default().push_back(index);
            }
        }
    }
    let mut reach = 0;
    let mut cuts = Vec::new();
    for index in 1..events.len() {
        reach = reach.max(answered_at.get(index - 1).copied().unwrap_or(0));
        if reach < index {
            cuts.push(index);
        }
    }
    cuts
}

fn parts(event: &Event) -> &[Part] {
    event.content.as_ref().map_or(&[], |content| content.parts.as_slice())
}

fn has_parts(event: &Event) -> bool {
    !parts(event).is_empty()
}

fn role(event: &Event) -> Option<Role> {
    event.content.as_ref().filter(|content| !content.parts.is_empty()).map(|content| content.role)
}

/// Something that a user said, as against the result of a tool.
pub(super) fn is_prompt(event: &Event) -> bool {
    role(event) == Some(Role::User) && parts(event).iter().all(|part| part.response_id().is_none())
}

fn is_model(event: &Event) -> bool {
    role(event) == Some(Role::Model)
}

/// An answer that calls nothing.
fn is_answer(event: &Event) -> bool {
    is_model(event) && parts(event).iter().all(|part| part.call_id().is_none())
}
