//! The file of records: one JSON object a line, as its readers split it at `}` newline `{`.
//!
//! Each object is one write at the end of the file, so that several processes may share it, a reader sees it at once, and
//! nothing is left to be lost at the end. Source: the contract of fake responses, §3.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use convoke_stdx::iso8601;
use serde_json::{Value, json};

use super::record::Record;

/// An open file.
pub(super) struct Outfile {
    file: File,
    resource: Value,
}

/// Seconds and nanoseconds, as OpenTelemetry's JavaScript writes a time.
pub(super) fn hr_time(wall_ms: u64) -> Value {
    json!([wall_ms / 1000, (wall_ms % 1000) * 1_000_000])
}

impl Outfile {
    /// Opens it to append, and makes it and its folder where they are not there. Only its user may read it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let attributes = json!({"service.name": "convoke", "service.version": env!("CARGO_PKG_VERSION")});
        Ok(Self { file, resource: json!({ "attributes": attributes }) })
    }

    pub(super) fn record(&mut self, record: &Record) {
        let time = hr_time(record.wall_ms);
        let mut attributes = record.object();
        attributes.insert("event.timestamp".to_owned(), iso8601(record.wall_ms).into());
        let object = json!({
            "hrTime": time,
            "hrTimeObserved": time,
            "resource": self.resource,
            "instrumentationScope": {"name": "convoke", "version": env!("CARGO_PKG_VERSION")},
            "severityNumber": 9,
            "severityText": "INFO",
            "_body": body(record),
            "attributes": attributes,
        });
        self.line(&object);
    }

    pub(super) fn metrics(&mut self, metrics: &Value) {
        let scope = json!({"name": "convoke", "version": env!("CARGO_PKG_VERSION"), "schemaUrl": ""});
        let object = json!({
            "resource": self.resource,
            "scopeMetrics": [{"scope": scope, "metrics": metrics}],
        });
        self.line(&object);
    }

    fn line(&mut self, object: &Value) {
        let mut line = object.to_string();
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            tracing::debug!(%error, "telemetry was not written");
        }
    }
}

/// A record in a few words, for people.
pub(super) fn body(record: &Record) -> String {
    let name = record.name();
    let about = ["function_name", "model", "hook_name", "command", "decision_model", "reason"];
    match about.iter().find_map(|key| record.text(key)) {
        Some(what) => format!("{name}: {what}"),
        None => name.to_owned(),
    }
}
