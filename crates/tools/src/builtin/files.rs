//! What the file tools have in common: a file's bytes, and what to say when there are none.
//!
//! Text that a client has open counts as the file's: it is written in the file's encoding and with its line ends, so that
//! nothing but the text itself can differ from the disk.

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;

use crate::text::{self, Encoding, LineEnds};
use crate::{ErrorType, FileFiltering, ResolvedPath, ToolFailure, Workspace};

/// The largest file that is read. Source: runtime specification §13.3.
pub(super) const FILE_BYTES_MAX: u64 = 20 << 20;

/// Refuses a file that ignore files leave out.
pub(super) fn refuse_ignored(workspace: &Workspace, path: &Path, filtering: FileFiltering) -> Result<(), ToolFailure> {
    let Some(by) = workspace.ignored(path, filtering) else { return Ok(()) };
    let message = format!("File path '{}' is ignored by configured ignore patterns ({by}).", path.display());
    Err(ToolFailure::new(ErrorType::InvalidToolParams, message))
}

/// Why a file has no bytes for us.
enum Refused {
    Io(io::Error),
    Folder,
    NotAFile,
    TooLarge(u64),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// All bytes of a regular file.
pub(super) async fn read(workspace: &Workspace, path: &ResolvedPath) -> Result<Vec<u8>, ToolFailure> {
    read_existing(workspace, path).await?.ok_or_else(|| not_found(path))
}

/// All bytes of a regular file as it was saved: for what a search finds, which is more than a client should be asked for.
pub(super) async fn read_saved(path: &ResolvedPath) -> Result<Vec<u8>, ToolFailure> {
    read_from_disk(path).await?.ok_or_else(|| not_found(path))
}

fn not_found(path: &ResolvedPath) -> ToolFailure {
    ToolFailure::new(ErrorType::FileNotFound, format!("File not found: {}", path.as_path().display()))
}

/// All bytes of a regular file; `None` if there is no such file. What a client has open comes before the disk; a client
/// that can't say leaves it at the disk.
pub(super) async fn read_existing(workspace: &Workspace, path: &ResolvedPath) -> Result<Option<Vec<u8>>, ToolFailure> {
    let bytes = read_from_disk(path).await?;
    let Some(client) = workspace.client_files(path.as_path()).filter(|client| client.reads()) else {
        return Ok(bytes);
    };
    let saved = match bytes.as_ref().map(|bytes| text::decode(bytes.clone())) {
        // Not text, or not Unicode, so nothing that a client could tell: it may be part of a PDF as well.
        Some(None | Some(text::Decoded { encoding: Encoding::EightBit, .. })) => return Ok(bytes),
        Some(Some(saved)) => Some(saved),
        None => None,
    };
    match client.read_text(path.as_path()).await {
        Ok(open) if open.len() as u64 <= FILE_BYTES_MAX => Ok(merge(bytes, saved, &open)),
        Ok(_) => Ok(bytes),
        Err(error) => {
            tracing::debug!(%error, "the client did not read a file; the disk's is taken");
            Ok(bytes)
        }
    }
}

/// What a client has open, as the bytes that the file would have once it is saved.
fn merge(bytes: Option<Vec<u8>>, saved: Option<text::Decoded>, open: &str) -> Option<Vec<u8>> {
    let Some(saved) = saved else { return Some(open.as_bytes().to_vec()) };
    let open = match saved.encoding {
        Encoding::Utf8 => open,
        // The mark belongs to the encoding, though some hand it over with the text.
        _ => open.strip_prefix('\u{feff}').unwrap_or(open),
    };
    let ends = LineEnds::of(&saved.text);
    // Some have line feeds only while a file is open.
    let open = ends.restore(open);
    if *open == saved.text {
        return bytes;
    }
    text::encode(&open, saved.encoding).or_else(|| Some(open.as_bytes().to_vec()))
}

/// All bytes of a regular file as it was saved; `None` if there is no such file.
async fn read_from_disk(path: &ResolvedPath) -> Result<Option<Vec<u8>>, ToolFailure> {
    let name = path.as_path().display().to_string();
    let path = path.clone();
    let read = tokio::task::spawn_blocking(move || read_blocking(&path)).await;
    let fail = |kind, message| Err(ToolFailure::new(kind, message));
    match read {
        Ok(Ok(bytes)) => Ok(Some(bytes)),
        Ok(Err(Refused::Io(error))) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(Err(Refused::Io(error))) => {
            let kind = ErrorType::of_io(&error, ErrorType::ReadContentFailure);
            fail(kind, format!("Failed to read {name}: {error}"))
        }
        Ok(Err(Refused::Folder)) => fail(ErrorType::TargetIsDirectory, format!("Path is a directory: {name}")),
        Ok(Err(Refused::NotAFile)) => fail(ErrorType::ReadContentFailure, format!("Not a regular file: {name}")),
        Ok(Err(Refused::TooLarge(size))) => fail(
            ErrorType::FileTooLarge,
            format!("File too large: {name} has {size} bytes, the limit is {FILE_BYTES_MAX} (20 MB)."),
        ),
        Err(_) => fail(ErrorType::ReadContentFailure, format!("Reading {name} was interrupted")),
    }
}

fn read_blocking(path: &ResolvedPath) -> Result<Vec<u8>, Refused> {
    let file = path.open()?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(Refused::Folder);
    }
    if !meta.is_file() {
        return Err(Refused::NotAFile);
    }
    if meta.len() > FILE_BYTES_MAX {
        return Err(Refused::TooLarge(meta.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or_default());
    // It may have grown since, or be one of those under /proc that never say how long they are.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(size) if size <= FILE_BYTES_MAX => Ok(bytes),
        Ok(size) => Err(Refused::TooLarge(size)),
        Err(_) => Err(Refused::TooLarge(u64::MAX)),
    }
}
