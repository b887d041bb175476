//! A client's open files, for the tools: the protocol's port as theirs.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_protocol::ClientFiles;

/// Hands the file tools what the session's client has open.
pub(crate) struct OpenFiles(pub(crate) Arc<dyn ClientFiles>);

#[async_trait]
impl convoke_tools::ClientFiles for OpenFiles {
    fn reads(&self) -> bool {
        self.0.reads()
    }

    fn writes(&self) -> bool {
        self.0.writes()
    }

    async fn read_text(&self, path: &Path) -> Result<String, String> {
        self.0.read_text(path).await.map_err(|error| error.to_string())
    }

    async fn write_text(&self, path: &Path, text: &str) -> Result<(), String> {
        self.0.write_text(path, text).await.map_err(|error| error.to_string())
    }
}
