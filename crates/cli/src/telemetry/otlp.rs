//! Records and metrics to an OpenTelemetry collector, over HTTP.
//!
//! `OTEL_EXPORTER_OTLP_LOGS_ENDPOINT` and `…_METRICS_ENDPOINT` are whole URLs; `GEMINI_TELEMETRY_OTLP_ENDPOINT`,
//! `OTEL_EXPORTER_OTLP_ENDPOINT` and the setting `telemetry.otlpEndpoint` their beginning. Batches and headers are what
//! the SDK reads from the variables of the specification; what its queue does not hold is dropped there.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use opentelemetry::KeyValue;
use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider};
use opentelemetry_otlp::{LogExporter, MetricExporter, Protocol, WithExportConfig};
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use serde_json::Value;

use super::file::body;
use super::measure::{Kind, Measurement};
use super::record::Record;
use super::{FLUSH, options, resource};
use crate::environment::Environment;
use crate::settings::Settings;

const SCOPE: &str = "convoke";

/// An open way to a collector.
pub(super) struct Collector {
    logs: Option<(SdkLoggerProvider, SdkLogger)>,
    metrics: Option<(SdkMeterProvider, Meter)>,
    counters: HashMap<&'static str, Counter<f64>>,
    histograms: HashMap<&'static str, Histogram<f64>>,
}

impl Collector {
    /// `None` if none is configured.
    pub(super) fn open(environment: &Environment, settings: &Settings) -> anyhow::Result<Option<Self>> {
        let endpoint = |signal| options::endpoint(environment, settings, signal);
        let (logs, metrics) = (endpoint("logs"), endpoint("metrics"));
        if logs.is_none() && metrics.is_none() {
            return Ok(None);
        }
        convoke_models::install_tls_provider();
        let logs = logs.map(|url| open_logs(&url, environment)).transpose()?;
        let metrics = metrics.map(|url| open_metrics(&url, environment)).transpose()?;
        Ok(Some(Self { logs, metrics, counters: HashMap::new(), histograms: HashMap::new() }))
    }

    pub(super) fn record(&self, record: &Record) {
        let Some((_, logger)) = &self.logs else { return };
        let mut log = logger.create_log_record();
        let time: SystemTime = UNIX_EPOCH + Duration::from_millis(record.wall_ms);
        log.set_timestamp(time);
        log.set_observed_timestamp(time);
        log.set_severity_number(Severity::Info);
        log.set_severity_text("INFO");
        log.set_body(body(record).into());
        log.add_attributes(record.attributes().iter().map(|(name, value)| (*name, any(value))));
        logger.emit(log);
    }

    pub(super) fn measure(&mut self, measurement: &Measurement) {
        let Some((_, meter)) = &self.metrics else { return };
        let Measurement { instrument, value, attributes } = measurement;
        let attributes: Vec<KeyValue> = attributes.iter().map(|(name, value)| pair(name, value)).collect();
        match instrument.kind {
            Kind::Counter => {
                let build = || {
                    let counter = meter.f64_counter(instrument.name).with_description(instrument.description);
                    counter.with_unit(instrument.unit).build()
                };
                self.counters.entry(instrument.name).or_insert_with(build).add(*value, &attributes);
            }
            Kind::Histogram => {
                let build = || {
                    let histogram = meter.f64_histogram(instrument.name).with_description(instrument.description);
                    histogram.with_unit(instrument.unit).build()
                };
                self.histograms.entry(instrument.name).or_insert_with(build).record(*value, &attributes);
            }
        }
    }

    /// Sends what is left, and waits for it within bounds.
    pub(super) fn close(self) {
        if let Some((provider, _)) = &self.logs
            && let Err(error) = provider.shutdown_with_timeout(FLUSH)
        {
            tracing::debug!(%error, "the last records were not sent");
        }
        if let Some((provider, _)) = &self.metrics
            && let Err(error) = provider.shutdown_with_timeout(FLUSH)
        {
            tracing::debug!(%error, "the last metrics were not sent");
        }
    }
}

fn open_logs(url: &str, environment: &Environment) -> anyhow::Result<(SdkLoggerProvider, SdkLogger)> {
    let exporter = LogExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(FLUSH)
        .build()
        .with_context(|| format!("send records to {url}"))?;
    let provider =
        SdkLoggerProvider::builder().with_resource(resource(environment)).with_batch_exporter(exporter).build();
    let logger = provider.logger(SCOPE);
    Ok((provider, logger))
}

fn open_metrics(url: &str, environment: &Environment) -> anyhow::Result<(SdkMeterProvider, Meter)> {
    let exporter = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(url)
        .with_timeout(FLUSH)
        .build()
        .with_context(|| format!("send metrics to {url}"))?;
    let provider =
        SdkMeterProvider::builder().with_resource(resource(environment)).with_periodic_exporter(exporter).build();
    let meter = provider.meter(SCOPE);
    Ok((provider, meter))
}

fn any(value: &Value) -> AnyValue {
    match value {
        Value::Bool(flag) => AnyValue::Boolean(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => AnyValue::Int(whole),
            (None, other) => AnyValue::Double(other.unwrap_or_default()),
        },
        Value::String(text) => text.clone().into(),
        other => other.to_string().into(),
    }
}

fn pair(name: &'static str, value: &Value) -> KeyValue {
    match value {
        Value::Bool(flag) => KeyValue::new(name, *flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => KeyValue::new(name, whole),
            (None, other) => KeyValue::new(name, other.unwrap_or_default()),
        },
        Value::String(text) => KeyValue::new(name, text.clone()),
        other => KeyValue::new(name, other.to_string()),
    }
}
