//! What becomes of what the rooms tell about their work?
//!
//! They tell it as events and spans of `tracing`: events on [`EVENTS`], named by their field `event.name`, spans on
//! [`TRACE`]. Here an event becomes a record and what it adds to the metrics; both go to a file (`telemetry.outfile`), in
//! the format of Gemini CLI's, or to an OpenTelemetry collector over HTTP. Nobody listens unless telemetry is switched on,
//! and then every place that tells something is skipped after one look at a flag.

mod config;
mod file;
mod layer;
mod measure;
mod metrics;
mod options;
mod otlp;
mod record;
mod traces;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use convoke_stdx::Clock;
use opentelemetry_sdk::Resource;
use serde_json::{Value, json};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::environment::Environment;
use crate::home::Home;
use crate::startup::Startup;
use file::Outfile;
use metrics::Metrics;
use otlp::Collector;
use record::Record;

pub(crate) use config::RunConfig;
pub(crate) use options::TelemetryOptions;
pub(crate) use traces::Traces;

/// The target of telemetry events. Logs leave it out, since it holds what people wrote.
pub(crate) const EVENTS: &str = "convoke::telemetry";

/// The target of events that hold whole conversations; listened to with `telemetry.traces` only.
pub(crate) const MESSAGES: &str = "convoke::telemetry::messages";

/// The target of every span that is exported.
pub(crate) const TRACE: &str = "convoke::trace";

/// How long the process's end waits for a collector that does not answer.
const FLUSH: Duration = Duration::from_secs(3);

/// Telemetry that is switched on. Dropping it writes and sends what is left.
pub(crate) struct Telemetry {
    shared: Arc<Shared>,
    traces: Option<Traces>,
}

/// What the layer and the end of the process both need.
struct Shared {
    log_prompts: bool,
    messages: bool,
    clock: Clock,
    /// Attributes of every record.
    common: Vec<(&'static str, Value)>,
    sinks: Mutex<Sinks>,
}

struct Sinks {
    metrics: Metrics,
    file: Option<Outfile>,
    collector: Option<Collector>,
}

impl Telemetry {
    /// `None` if it is switched off.
    pub(crate) fn open(startup: &Startup, interactive: bool) -> anyhow::Result<Option<Self>> {
        let options = TelemetryOptions::read(&startup.environment, &startup.settings);
        if !options.enabled {
            return Ok(None);
        }
        let clock = Clock::start();
        let mut common = vec![("interactive", json!(interactive))];
        if let Some(kind) = startup.settings.text("security.auth.selectedType") {
            common.push(("auth_type", json!(kind)));
        }
        if let Some(id) = startup.home.as_ref().and_then(installation_id) {
            common.push(("installation.id", json!(id)));
        }
        let file = match &options.outfile {
            Some(path) => {
                let path = startup.workspace.join(path);
                Some(Outfile::open(&path).with_context(|| format!("write telemetry to {}", path.display()))?)
            }
            None => None,
        };
        let collector = if file.is_none() { Collector::open(&startup.environment, &startup.settings)? } else { None };
        let traces = match options.traces && file.is_none() {
            true => Traces::open(&startup.environment, &startup.settings)?,
            false => None,
        };
        let sinks = Sinks { metrics: Metrics::new(clock.now().wall_ms), file, collector };
        let shared = Shared {
            log_prompts: options.log_prompts,
            messages: options.traces,
            clock,
            common,
            sinks: Mutex::new(sinks),
        };
        let telemetry = Self { shared: Arc::new(shared), traces };
        // Written at once: who waits for a run's telemetry looks for metrics first.
        telemetry.shared.count_session();
        Ok(Some(telemetry))
    }

    /// The process ends with this code. What is told after this is told too.
    pub(crate) fn ends_with(&self, code: u8) {
        if code != 0 {
            self.shared.sinks().measure(&[measure::failed_exit(code)]);
        }
    }

    /// What makes events arrive.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        layer::events(self.shared.clone())
    }

    /// The spans' way to a collector, if there is one.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let now = self.shared.clock.now().wall_ms;
        let mut sinks = self.shared.sinks();
        sinks.write_metrics(now);
        if let Some(collector) = sinks.collector.take() {
            collector.close();
        }
    }
}

impl Shared {
    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_session(&self) {
        let now = self.clock.now().wall_ms;
        let mut sinks = self.sinks();
        sinks.measure(&[measure::session()]);
        sinks.write_metrics(now);
    }

    fn take(&self, mut record: Record) {
        record.wall_ms = self.clock.now().wall_ms;
        if !self.log_prompts {
            record.drop_texts();
        }
        record.add_missing(&self.common);
        let ends_prompt = record.name() == "gemini_cli.conversation_finished";
        let measured = measure::of(&record);
        let mut sinks = self.sinks();
        sinks.measure(&measured);
        if let Some(file) = &mut sinks.file {
            file.record(&record);
        }
        if let Some(collector) = &sinks.collector {
            collector.record(&record);
        }
        if ends_prompt {
            sinks.write_metrics(record.wall_ms);
        }
    }
}

impl Sinks {
    fn measure(&mut self, measured: &[measure::Measurement]) {
        for one in measured {
            if let Some(collector) = &mut self.collector {
                collector.measure(one);
            }
            if self.file.is_some() {
                self.metrics.add(one);
            }
        }
    }

    fn write_metrics(&mut self, now_ms: u64) {
        if let Some(file) = &mut self.file {
            file.metrics(&self.metrics.snapshot(now_ms));
        }
    }
}

/// What every exporter says about this process.
fn resource(environment: &Environment) -> Resource {
    let resource = Resource::builder();
    match environment.get("OTEL_SERVICE_NAME") {
        Some(_) => resource.build(),
        None => resource.with_service_name("convoke").build(),
    }
}

/// A random id of this home, made once; Gemini CLI's where there is one.
fn installation_id(home: &Home) -> Option<String> {
    const NAME: &str = "installation_id";
    let known = home.folders().iter().rev().find_map(|folder| std::fs::read_to_string(folder.join(NAME)).ok());
    if let Some(id) = known.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty() && id.len() <= 64) {
        return Some(id);
    }
    let id = uuid::Uuid::new_v4().to_string();
    let folder = home.folder();
    std::fs::create_dir_all(&folder).ok()?;
    convoke_stdx::write_atomic(&folder.join(NAME), id.as_bytes()).ok()?;
    Some(id)
}
