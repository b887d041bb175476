//! The file of a record that is being written: one writer, whole lines, nothing rewritten.

use std::borrow::Borrow;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::read::Source;

/// Bytes of a record that is read back. A year's conversation has a hundredth of it.
const BYTES_MAX: u64 = 1 << 30;

/// A record, open and locked.
#[derive(Debug)]
pub(super) struct RecordFile {
    pub(super) path: PathBuf,
    /// Shared with whoever waits for the disk.
    file: Arc<File>,
}

/// Why a file can't be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Somebody else writes it.
    Locked,
    Io(io::Error),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl RecordFile {
    /// A new file. [`io::ErrorKind::AlreadyExists`] if there is one.
    pub(super) fn create(path: PathBuf) -> Result<Self, OpenError> {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let file = OpenOptions::new().append(true).read(true).create_new(true).mode(0o600).open(&path)?;
        lock(&file)?;
        Ok(Self { path, file: Arc::new(file) })
    }

    /// A file that is there, to go on with.
    pub(super) fn open(path: PathBuf) -> Result<Self, OpenError> {
        let file = OpenOptions::new().append(true).read(true).open(&path)?;
        lock(&file)?;
        Ok(Self { path, file: Arc::new(file) })
    }

    /// What is in it by now.
    pub(super) fn stored(&self) -> io::Result<Stored<&File>> {
        Stored::new(&self.file)
    }

    /// Ends what a killed writer left, so that it costs itself and not the next line.
    pub(super) fn end_line(&self) -> io::Result<()> {
        let mut last = [b'\n'];
        if let Some(at) = self.file.metadata()?.len().checked_sub(1) {
            self.file.read_exact_at(&mut last, at)?;
        }
        if last == [b'\n'] { Ok(()) } else { self.append(b"\n") }
    }

    /// Appends a line with one write. The kernel has it when this returns, whatever becomes of this process.
    pub(super) fn append(&self, line: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(line)
    }

    /// What waits for the disk.
    pub(super) fn syncer(&self) -> impl Fn() -> io::Result<()> + Send + 'static {
        let file = Arc::clone(&self.file);
        move || file.sync_data()
    }
}

/// A folder of its owner alone.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn lock(file: &File) -> Result<(), OpenError> {
    match file.try_lock() {
        // Whoever had the lock may have removed the file.
        Ok(()) if file.metadata()?.nlink() == 0 => Err(OpenError::Io(io::ErrorKind::NotFound.into())),
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked),
        Err(TryLockError::Error(error)) => Err(OpenError::Io(error)),
    }
}

/// A file, as long as it was.
pub(super) struct Stored<F> {
    file: F,
    length: u64,
}

impl<F: Borrow<File>> Stored<F> {
    fn new(file: F) -> io::Result<Self> {
        let length = file.borrow().metadata()?.len();
        if length > BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than any conversation"));
        }
        Ok(Self { file, length })
    }
}

impl<F: Borrow<File> + Sync> Source for Stored<F> {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.borrow().read_at(buffer, at)
    }
}

/// What is in a file that nobody else need leave alone.
pub(super) fn stored_unlocked(path: &Path) -> io::Result<Stored<File>> {
    Stored::new(convoke_stdx::open_regular(path)?)
}

/// Whether a session of any process writes it.
pub(super) fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(lock(&file), Err(OpenError::Locked)))
}

/// Removes a record that no session of any process writes.
pub(super) fn remove(path: &Path) -> Result<(), OpenError> {
    let file = File::open(path)?;
    lock(&file)?;
    // Under the lock: nobody begins to write what is about to go.
    Ok(std::fs::remove_file(path)?)
}
