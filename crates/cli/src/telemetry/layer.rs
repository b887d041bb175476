//! From an event of `tracing` to a record that knows which session and prompt it belongs to.

use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::record::{Belongs, Record};
use super::{EVENTS, MESSAGES, Shared, TRACE};

struct Events(Arc<Shared>);

/// The layer, and what it listens to.
pub(super) fn events<S>(shared: Arc<Shared>) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let messages = shared.messages;
    let filter = filter_fn(move |metadata| match metadata.target() {
        EVENTS => metadata.is_event(),
        MESSAGES => messages && metadata.is_event(),
        TRACE => metadata.is_span(),
        _ => false,
    });
    Events(shared).with_filter(filter.with_max_level_hint(LevelFilter::INFO))
}

impl<S> Layer<S> for Events
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut belongs = Belongs::default();
        attributes.record(&mut belongs);
        if belongs != Belongs::default()
            && let Some(span) = context.span(id)
        {
            span.extensions_mut().insert(belongs);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut record = Record::default();
        event.record(&mut record);
        // The nearest span that knows wins; those above fill in what it does not say.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(belongs) = span.extensions().get::<Belongs>() {
                record.belong(belongs);
            }
        }
        self.0.take(record);
    }
}
