//! Where does the audit of permissions go? To a file, one JSON object a line, without holding up the driver.

use convoke_bridge::AuditRecord;

use crate::line_file::LineFile;

/// Takes records.
#[derive(Debug)]
pub(crate) struct AuditLog {
    file: LineFile,
}

impl AuditLog {
    /// A log into `file`; without one records are only in memory and in the daemon's log.
    pub(crate) fn new(file: LineFile) -> Self {
        Self { file }
    }

    /// Takes one record. One that finds no room in the file goes to the log.
    pub(crate) fn record(&self, record: &AuditRecord) {
        // Records hold strings and numbers only: encoding them into memory can't fail.
        let Ok(line) = serde_json::to_vec(record) else { return };
        tracing::debug!(target: "convoke::audit", record = %String::from_utf8_lossy(&line));
        if !self.file.append(line) {
            let line = serde_json::to_string(record).unwrap_or_default();
            tracing::warn!(target: "convoke::audit", record = %line, "not written to disk");
        }
    }
}
