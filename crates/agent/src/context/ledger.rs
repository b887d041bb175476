//! How large is the session, without counting everything again for each model call?
//!
//! Counts are kept per event and belong to its content's identity: a content that is the same `Arc` as last time has the
//! same counts. A pass over a session that did not change compares pointers and looks at no text.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use convoke_adk::{Content, Event};
use serde_json::Value;

use super::Size;
use super::tokens::{content_tokens, part_tokens};

/// One tool output of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Output {
    /// Its place among the parts.
    pub(super) part: usize,
    pub(super) tokens: u64,
    /// Whether it may be masked at all.
    pub(super) maskable: bool,
}

#[derive(Debug, Default)]
struct Entry {
    /// Weak, so that a replaced content is freed; it keeps the address from being used again.
    content: Option<Weak<Content>>,
    tokens: u64,
    outputs: Box<[Output]>,
}

impl Entry {
    fn of(event: &Event, is_maskable: fn(&serde_json::Map<String, Value>) -> bool) -> Self {
        let Some(content) = &event.content else { return Self::default() };
        let outputs = content.parts.iter().enumerate().filter_map(|(part, raw)| {
            let Some(Value::Object(response)) = raw.raw().get("functionResponse") else { return None };
            Some(Output { part, tokens: part_tokens(raw), maskable: is_maskable(response) })
        });
        Self { content: Some(Arc::downgrade(content)), tokens: content_tokens(content), outputs: outputs.collect() }
    }

    fn is_of(&self, event: &Event) -> bool {
        match (&self.content, &event.content) {
            (Some(mine), Some(content)) => std::ptr::eq(mine.as_ptr(), Arc::as_ptr(content)),
            (mine, content) => mine.is_none() && content.is_none(),
        }
    }
}

/// Sizes of the events of one session, by their place. As long as the session.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
    /// What masking took out since a provider last counted: the event with that count, and how much.
    discount: Option<(String, u64)>,
    /// How many entries were counted, for tests: work that is not done can't be seen otherwise.
    pub(super) counted: usize,
}

impl Ledger {
    fn update(&mut self, events: &[Event]) {
        self.entries.truncate(events.len());
        for (index, event) in events.iter().enumerate() {
            match self.entries.get_mut(index) {
                Some(entry) if entry.is_of(event) => {}
                Some(entry) => {
                    *entry = Entry::of(event, super::masking::is_maskable);
                    self.counted += 1;
                }
                None => {
                    self.entries.push(Entry::of(event, super::masking::is_maskable));
                    self.counted += 1;
                }
            }
        }
    }
}

/// The sizes of one session, shared by the stages that need them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<Ledger>>);

impl Meter {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outputs of `events` that may be masked, newest first, as places and tokens.
    pub(super) fn with_outputs<T>(
        &self,
        events: &[Event],
        look: impl FnOnce(&mut dyn Iterator<Item = (usize, Output)>) -> T,
    ) -> T {
        let mut ledger = self.ledger();
        ledger.update(events);
        let entries = ledger.entries.iter().enumerate().rev();
        let mut outputs = entries.flat_map(|(index, entry)| entry.outputs.iter().rev().map(move |out| (index, *out)));
        look(&mut outputs)
    }

    /// The estimate for each event.
    pub(super) fn tokens(&self, events: &[Event]) -> Vec<u64> {
        let mut ledger = self.ledger();
        ledger.update(events);
        ledger.entries.iter().map(|entry| entry.tokens).collect()
    }

    /// The size of the next request: what was counted at the last call, and an estimate of what came since.
    ///
    /// A count from before the newest compression is of another session and no longer counts.
    pub(super) fn size(&self, events: &[Event], instruction_tokens: u64) -> Size {
        let mut ledger = self.ledger();
        ledger.update(events);
        let summarised_ms = events.first().filter(|event| is_summary(event)).map(|event| event.timestamp_ms);
        let mut estimated = 0;
        for (event, entry) in events.iter().zip(&ledger.entries).rev() {
            estimated += entry.tokens;
            let usage = event.usage.as_ref().filter(|usage| usage.prompt_token_count > 0);
            if let Some(usage) = usage.filter(|_| summarised_ms.is_none_or(|moment| event.timestamp_ms > moment)) {
                let discount =
                    ledger.discount.as_ref().filter(|(id, _)| *id == event.id).map_or(0, |(_, saved)| *saved);
                return Size { counted: usage.prompt_token_count.saturating_sub(discount), estimated };
            }
        }
        Size { counted: 0, estimated: estimated + instruction_tokens }
    }

    /// An output of this content that can't be masked: it is not tried again as long as it stays what it is.
    pub(super) fn refuse(&self, index: usize, content: &Arc<Content>, part: usize) {
        let mut ledger = self.ledger();
        let entry = ledger.entries.get_mut(index);
        let entry = entry.filter(|entry| {
            entry.content.as_ref().is_some_and(|mine| std::ptr::eq(mine.as_ptr(), Arc::as_ptr(content)))
        });
        if let Some(output) = entry.and_then(|entry| entry.outputs.iter_mut().find(|output| output.part == part)) {
            output.maskable = false;
        }
    }

    /// Masking took `saved` tokens out of what the last count was about.
    pub(super) fn discount(&self, events: &[Event], saved: u64) {
        let Some(last) = events.iter().rev().find(|event| event.usage.is_some()) else { return };
        let mut ledger = self.ledger();
        let before = ledger.discount.take().filter(|(id, _)| *id == last.id).map_or(0, |(_, saved)| saved);
        ledger.discount = Some((last.id.clone(), before + saved));
    }

    #[cfg(test)]
    pub(super) fn counted(&self) -> usize {
        self.ledger().counted
    }
}

/// The mark of events that a compression made.
pub(super) const SUMMARY_SOURCE: &str = "compression";

fn is_summary(event: &Event) -> bool {
    event.actions.custom_metadata.get("source").and_then(Value::as_str) == Some(SUMMARY_SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use convoke_adk::UsageMetadata;

    fn event(id: &str, at: u64, text: &str) -> Event {
        Event { id: id.into(), timestamp_ms: at, content: Some(Arc::new(Content::user(text))), ..Event::default() }
    }

    fn counted(mut event: Event, tokens: u64) -> Event {
        event.usage = Some(UsageMetadata { prompt_token_count: tokens, ..UsageMetadata::default() });
        event
    }

    #[test]
    fn what_did_not_change_is_not_counted_again() {
        let meter = Meter::default();
        let mut events = vec![event("a", 1, "xxxx"), event("b", 2, "xxxxxxxx"), Event::default()];
        assert_eq!(meter.tokens(&events), [1, 2, 0]);
        assert_eq!(meter.counted(), 3);
        meter.tokens(&events);
        assert_eq!(meter.counted(), 3);
        events[1].content = Some(Arc::new(Content::user("xxxx")));
        events.push(event("c", 3, "xxxx"));
        assert_eq!(meter.tokens(&events), [1, 1, 0, 1]);
        assert_eq!(meter.counted(), 5);
        events.remove(0);
        assert_eq!(meter.tokens(&events), [1, 0, 1]);
    }

    #[test]
    fn the_size_is_the_last_count_and_what_came_since() {
        let meter = Meter::default();
        let mut events = vec![event("a", 1, &"x".repeat(400))];
        assert_eq!(meter.size(&events, 7), Size { counted: 0, estimated: 107 });
        events.push(counted(event("b", 2, "xxxxxxxx"), 1000));
        events.push(event("c", 3, &"x".repeat(4000)));
        assert_eq!(meter.size(&events, 7), Size { counted: 1000, estimated: 1002 });
        meter.discount(&events, 300);
        meter.discount(&events, 100);
        assert_eq!(meter.size(&events, 7).counted, 600);
        events.push(counted(event("d", 4, ""), 700));
        assert_eq!(meter.size(&events, 7), Size { counted: 700, estimated: 0 });
    }

    #[test]
    fn a_count_from_before_a_compression_is_no_longer_one() {
        let meter = Meter::default();
        let mut summary = event("s", 5, "xxxx");
        summary.actions.custom_metadata.insert("source".into(), SUMMARY_SOURCE.into());
        let mut events = vec![summary, counted(event("b", 2, "xxxx"), 1000)];
        assert_eq!(meter.size(&events, 7), Size { counted: 0, estimated: 9 });
        events.push(counted(event("c", 6, "xxxx"), 50));
        assert_eq!(meter.size(&events, 7), Size { counted: 50, estimated: 1 });
    }
}
