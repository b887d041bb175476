//! What is told, and to whom? Environment over settings; names are Gemini CLI's.

use std::path::PathBuf;

use crate::environment::Environment;
use crate::settings::Settings;

/// The settings `telemetry.*` and the variables `GEMINI_TELEMETRY_*`. Source: runtime specification §19.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TelemetryOptions {
    /// Whether anything is told at all.
    pub(crate) enabled: bool,
    /// Whether what people wrote is told as well.
    pub(crate) log_prompts: bool,
    /// Spans, and whole conversations.
    pub(crate) traces: bool,
    /// A file instead of a collector.
    pub(crate) outfile: Option<PathBuf>,
}

impl TelemetryOptions {
    pub(crate) fn read(environment: &Environment, settings: &Settings) -> Self {
        let flag = |variable: &str, key: &str, otherwise: bool| match environment.get(variable) {
            Some(text) => matches!(text, "true" | "1"),
            None => settings.flag(key).unwrap_or(otherwise),
        };
        Self {
            enabled: flag("GEMINI_TELEMETRY_ENABLED", "telemetry.enabled", false),
            log_prompts: flag("GEMINI_TELEMETRY_LOG_PROMPTS", "telemetry.logPrompts", true),
            traces: flag("GEMINI_TELEMETRY_TRACES_ENABLED", "telemetry.traces", false),
            outfile: environment
                .get("GEMINI_TELEMETRY_OUTFILE")
                .or_else(|| settings.text("telemetry.outfile"))
                .map(PathBuf::from),
        }
    }

    /// What a person should hear about choices that are not ours to follow.
    pub(crate) fn warnings(environment: &Environment, settings: &Settings) -> Vec<String> {
        let options = Self::read(environment, settings);
        let protocol =
            environment.get("GEMINI_TELEMETRY_OTLP_PROTOCOL").or_else(|| settings.text("telemetry.otlpProtocol"));
        let target = environment.get("GEMINI_TELEMETRY_TARGET").or_else(|| settings.text("telemetry.target"));
        let mut warnings = Vec::new();
        if options.enabled && protocol == Some("grpc") {
            warnings.push("telemetry.otlpProtocol: OTLP is spoken over HTTP only, and so it is".to_owned());
        }
        if options.enabled && target == Some("gcp") {
            warnings.push("telemetry.target \"gcp\" is not built; use a collector, or telemetry.outfile".to_owned());
        }
        warnings
    }
}

/// The URL for `signal` (`traces`, `logs`, `metrics`), if a collector is configured: the signal's own variable is the whole
/// of it, the others are its beginning.
pub(super) fn endpoint(environment: &Environment, settings: &Settings, signal: &str) -> Option<String> {
    if environment.flag("OTEL_SDK_DISABLED") {
        return None;
    }
    if let Some(whole) = environment.get(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.to_ascii_uppercase())) {
        return Some(whole.to_owned());
    }
    let base = environment
        .get("GEMINI_TELEMETRY_OTLP_ENDPOINT")
        .or_else(|| environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
        .or_else(|| settings.text("telemetry.otlpEndpoint"))?;
    Some(format!("{}/v1/{signal}", base.trim().trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_and_nothing_is_told_by_default() {
        let settings = Settings::default();
        let off = TelemetryOptions::read(&Environment::default(), &settings);
        assert_eq!(off, TelemetryOptions { enabled: false, log_prompts: true, traces: false, outfile: None });
        let environment = Environment::of(&[
            ("GEMINI_TELEMETRY_ENABLED", "1"),
            ("GEMINI_TELEMETRY_LOG_PROMPTS", "false"),
            ("GEMINI_TELEMETRY_TRACES_ENABLED", "true"),
            ("GEMINI_TELEMETRY_OUTFILE", "/t.log"),
        ]);
        let on = TelemetryOptions::read(&environment, &settings);
        assert_eq!(
            on,
            TelemetryOptions { enabled: true, log_prompts: false, traces: true, outfile: Some("/t.log".into()) }
        );
    }

    #[test]
    fn what_is_not_followed_is_told() {
        let pairs = [("GEMINI_TELEMETRY_OTLP_PROTOCOL", "grpc"), ("GEMINI_TELEMETRY_TARGET", "gcp")];
        let warnings = |environment: &Environment| TelemetryOptions::warnings(environment, &Settings::default()).len();
        assert_eq!(warnings(&Environment::of(&pairs)), 0, "off");
        assert_eq!(warnings(&Environment::of(&[pairs[0], pairs[1], ("GEMINI_TELEMETRY_ENABLED", "true")])), 2);
    }
}
