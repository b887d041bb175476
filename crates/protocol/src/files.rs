//! The port through which a session reads and writes text where its client has it open.

use std::path::Path;

use async_trait::async_trait;

/// Text files as a session's client has them: with what is typed and not saved yet.
///
/// Given to a session when it is made. It is for text of the working folder only; everything else stays with the disk.
#[async_trait]
pub trait ClientFiles: Send + Sync {
    /// Whether [`Self::read_text`] is there.
    fn reads(&self) -> bool;

    /// Whether [`Self::write_text`] is there.
    fn writes(&self) -> bool;

    /// All of a file's text. `path` is absolute.
    async fn read_text(&self, path: &Path) -> Result<String, ClientFilesError>;

    /// Replaces a file's text, or makes the file. `path` is absolute.
    async fn write_text(&self, path: &Path, text: &str) -> Result<(), ClientFilesError>;
}

/// What a client said instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClientFilesError(pub String);
