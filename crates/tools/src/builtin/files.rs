//! What the file tools have in common: a file's bytes, and what to say when there are none.

use std::io::{self, Read};

use std::path::Path;

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
pub(super) async fn read(path: &ResolvedPath) -> Result<Vec<u8>, ToolFailure> {
    read_existing(path).await?.ok_or_else(|| {
        ToolFailure::new(ErrorType::FileNotFound, format!("File not found: {}", path.as_path().display()))
    })
}

/// All bytes of a regular file; `None` if there is no such file.
pub(super) async fn read_existing(path: &ResolvedPath) -> Result<Option<Vec<u8>>, ToolFailure> {
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
