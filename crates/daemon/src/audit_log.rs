//! Where does the audit of permissions go? To a file, one JSON object a line, without holding up the driver.

use std::path::PathBuf;

use convoke_bridge::AuditRecord;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

/// Records that wait for the disk: some minutes of the busiest team. A record that finds no room goes to the log.
const RECORDS_MAX: usize = 1024;

/// Takes records.
#[derive(Debug)]
pub(crate) struct AuditLog {
    lines: Option<mpsc::Sender<Vec<u8>>>,
}

/// Writes what an [`AuditLog`] takes; to be run by the owner until it ends.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    path: PathBuf,
    lines: mpsc::Receiver<Vec<u8>>,
}

/// A log into `path`, appended to; without a path records are only in memory and in the daemon's log.
pub(crate) fn audit_log(path: Option<PathBuf>) -> (AuditLog, Option<AuditWriter>) {
    let Some(path) = path else { return (AuditLog { lines: None }, None) };
    let (sender, lines) = mpsc::channel(RECORDS_MAX);
    (AuditLog { lines: Some(sender) }, Some(AuditWriter { path, lines }))
}

impl AuditLog {
    /// Takes one record.
    pub(crate) fn record(&self, record: &AuditRecord) {
        // Records hold strings and numbers only: encoding them into memory can't fail.
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        tracing::debug!(target: "convoke::audit", record = %String::from_utf8_lossy(&line));
        let Some(lines) = &self.lines else { return };
        line.push(b'\n');
        if let Err(mpsc::error::TrySendError::Full(line) | mpsc::error::TrySendError::Closed(line)) =
            lines.try_send(line)
        {
            tracing::warn!(target: "convoke::audit", record = %String::from_utf8_lossy(&line), "not written to disk");
        }
    }
}

impl AuditWriter {
    /// Writes until the log is dropped and everything is on its way to the disk.
    pub(crate) async fn run(mut self) {
        let mut file = match self.open().await {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the audit file can't be opened");
                return;
            }
        };
        while let Some(line) = self.lines.recv().await {
            let written = async {
                file.write_all(&line).await?;
                file.flush().await
            };
            if let Err(error) = written.await {
                tracing::warn!(path = %self.path.display(), %error, "an audit record can't be written");
            }
        }
    }

    async fn open(&self) -> std::io::Result<tokio::fs::File> {
        if let Some(folder) = self.path.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        // Who may read who decided what is the owner alone.
        tokio::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path).await
    }
}
