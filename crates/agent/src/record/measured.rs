//! Loading by itself, for measuring what it costs: from outside it is hidden behind the request that follows.

use std::path::{Path, PathBuf};

use convoke_adk::Event;

use super::{AGENT, Loaded, RecordError, RecordOptions, Recorder, Records};

/// A record of ours on the disk, which nobody has open.
pub struct MeasuredRecord {
    records: Records,
    session_id: String,
    cwd: PathBuf,
}

/// What a session would go on with. The record is open as long as this is kept.
pub struct LoadedRecord {
    events: Vec<Event>,
    _recorder: Recorder,
}

impl LoadedRecord {
    /// How many events there are.
    #[must_use]
    pub fn events(&self) -> usize {
        self.events.len()
    }
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

    /// Finds, opens and checks it, and makes the events that a model is to know.
    ///
    /// Errors: those of resuming a session.
    pub fn load(&self) -> Result<LoadedRecord, RecordError> {
        let Loaded { conversation, recorder, .. } = self.records.load(&self.session_id, &self.cwd)?;
        Ok(LoadedRecord { events: conversation.into_events(AGENT), _recorder: recorder })
    }
}
