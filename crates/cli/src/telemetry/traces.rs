//! Where do traces go? To an OpenTelemetry collector over HTTP, if one is configured; otherwise nowhere.
//!
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is the whole URL, `OTEL_EXPORTER_OTLP_ENDPOINT` and the setting
//! `telemetry.otlpEndpoint` its beginning. Headers, sampling and batch sizes are read by the SDK from the variables of the
//! OpenTelemetry specification. Spans are made by the rooms under [`TRACE`] and cost nothing while nobody exports them.

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::{FLUSH, TRACE, resource};
use crate::environment::Environment;
use crate::settings::Settings;

/// An open way to a collector. Dropping it sends what is left.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// `None` if no collector is configured.
    pub(crate) fn open(environment: &Environment, settings: &Settings) -> anyhow::Result<Option<Self>> {
        let Some(endpoint) = endpoint(environment, settings) else { return Ok(None) };
        convoke_models::install_tls_provider();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&endpoint)
            .build()
            .with_context(|| format!("send traces to {endpoint}"))?;
        let provider =
            SdkTracerProvider::builder().with_resource(resource(environment)).with_batch_exporter(exporter).build();
        Ok(Some(Self { provider }))
    }

    /// What makes spans of [`TRACE`] arrive there.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let filter = tracing_subscriber::filter::filter_fn(|metadata| metadata.target() == TRACE);
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("convoke"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH) {
            tracing::debug!(%error, "the last traces were not sent");
        }
    }
}

fn endpoint(environment: &Environment, settings: &Settings) -> Option<String> {
    super::options::endpoint(environment, settings, "traces")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_collector_is_configured() {
        let settings = Settings::default();
        let of = |pairs: &[(&str, &str)]| endpoint(&Environment::of(pairs), &settings);
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[base]).as_deref(), Some("http://c:4318/v1/traces"));
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d/x");
        assert_eq!(of(&[base, whole]).as_deref(), Some("http://d/x"));
        assert_eq!(of(&[base, ("OTEL_SDK_DISABLED", "true")]), None);
    }
}
