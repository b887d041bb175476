//! The port to a client's open files: what would a person say is in this file?
//!
//! An editor may hold text that is not saved yet. Text files under the working folder are read as it has them and
//! written through it, if it offers that; what is not text, too large or outside, searches and commands see the disk.
//! Whether a file may be touched is decided before, in the same way.

use std::path::Path;

use async_trait::async_trait;

/// Text files as the client has them.
#[async_trait]
pub trait ClientFiles: Send + Sync {
    /// Whether it can be asked for text.
    fn reads(&self) -> bool;

    /// Whether it takes text.
    fn writes(&self) -> bool;

    /// All of a file's text; an error is a phrase for the reader.
    async fn read_text(&self, path: &Path) -> Result<String, String>;

    /// Replaces a file's text, or makes the file; an error is a phrase for the reader.
    async fn write_text(&self, path: &Path, text: &str) -> Result<(), String>;
}
