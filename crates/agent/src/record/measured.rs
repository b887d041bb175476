//! Loading by itself, for measuring what it costs: from outside it is hidden behind the request that follows.

use std::path::{Path, PathBuf};

use super::{AGENT, RecordError, RecordOptions, Records};

/// A record of ours on the disk, which nobody has open.
pub struct MeasuredRecord {
    records: Records,
    session_id: String,
    cwd: PathBuf,
}

impl MeasuredRecord {
    /// Makes a record in `folder` that says what the file `spoken` does, in any format that can be resumed.
    ///
    /// Errors: those of resuming from a file.
    pub fn adopt(folder: &Path, spoken: &Path) -> Result<Self, RecordError> {
        let options =
            RecordOptions { folder: folder.to_owned(), read_folders: Vec::new(), outputs: None, retention: None };
        let records = Records::new(options);
        let session_id = records.load_file(spoken, folder)?.session_id;
        Ok(Self { records, session_id, cwd: folder.to_owned() })
    }

    /// Finds, opens and checks it, and makes the events that a model is to know; how many those are.
    ///
    /// Errors: those of resuming a session.
    pub fn load(&self) -> Result<usize, RecordError> {
        let loaded = self.records.load(&self.session_id, &self.cwd)?;
        Ok(loaded.conversation.events(AGENT).len())
    }
}
