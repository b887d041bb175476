//! Where does the audit of permissions go? To a file, one JSON object a line, without holding up the driver; and to
//! whoever embeds the daemon.

use convoke_bridge::AuditRecord;

use crate::line_file::LineFile;
use crate::options::AuditSink;

/// Takes records.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: LineFile,
    sink: Option<AuditSink>,
}

impl AuditLog {
    /// A log into `file`; without one records are only in memory and in the daemon's log.
    pub(crate) fn new(file: LineFile, sink: Option<AuditSink>) -> Self {
        Self { file, sink }
    }

    /// Takes one record. One that finds no room in the file goes to the log.
    pub(crate) fn record(&self, record: &AuditRecord) {
        if let Some(AuditSink(sink)) = &self.sink {
            sink(record);
        }
        // Records hold strings and numbers only: encoding them into memory can't fail.
        let Ok(line) = serde_json::to_vec(record) else { return };
        tracing::debug!(target: "convoke::audit", record = %String::from_utf8_lossy(&line));
        if !self.file.append(line) {
            let line = serde_json::to_string(record).unwrap_or_default();
            tracing::warn!(target: "convoke::audit", record = %line, "not written to disk");
        }
    }
}
