//! A Unix-domain socket: who may have its place, and who removes it?
//!
//! Only its owner may connect: it is made in a private folder, gets mode 0600 there, and is then moved to its place, so
//! that it is never there with another mode. A socket file that nobody answers on is what a killed daemon left, and is
//! replaced; anything else in the place is kept, and is an error.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::boot::BootError;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    file: Option<SocketFile>,
}

/// The file of a socket, told apart from a later one in the same place; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl UnixSocket {
    /// Takes the place, or says why not.
    pub(super) fn bind(path: &Path) -> Result<Self, BootError> {
        let failed = |source| BootError::Bind { address: format!("unix:{}", path.display()), source };
        is_free(path).map_err(failed)?;
        let (listener, file) = place(path).map_err(failed)?;
        Ok(Self { listener, file: Some(file) })
    }

    pub(super) fn take_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl SocketFile {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    /// A file that a later daemon put in the place stays.
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket was not removed");
        }
    }
}

/// Whether a socket may be put at `path`.
fn is_free(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something that is no socket is there"));
    }
    match StdStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody answers there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
    }
}

fn place(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    // Mode 0700; a short name, since a socket's path has about a hundred bytes.
    let private = tempfile::Builder::new().prefix(".c").rand_bytes(4).tempdir_in(folder)?;
    let made = private.path().join("s");
    let listener = StdListener::bind(&made)?;
    std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o600))?;
    let meta = std::fs::symlink_metadata(&made)?;
    std::fs::rename(&made, path)?;
    listener.set_nonblocking(true)?;
    let file = SocketFile { path: path.to_owned(), device: meta.dev(), inode: meta.ino() };
    Ok((UnixListener::from_std(listener)?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(result: Result<UnixSocket, BootError>) -> String {
        match result {
            Ok(_) => panic!("it must be refused"),
            Err(BootError::Bind { source, .. }) => source.to_string(),
            Err(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn only_its_owner_may_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/socket");
        let socket = UnixSocket::bind(&path).unwrap();
        let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (accepted, connected) = tokio::join!(socket.accept(), UnixStream::connect(&path));
        accepted.and(connected).unwrap();
        // Nothing else is left beside it.
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_answers_on_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(StdListener::bind(&path).unwrap());
        let first = UnixSocket::bind(&path).unwrap();
        assert_eq!(why(UnixSocket::bind(&path)), "somebody answers there");
        let UnixSocket { listener, file } = first;
        drop(listener);
        let second = UnixSocket::bind(&path).unwrap();
        // The first one's end does not take the second one's file.
        drop(file);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(why(UnixSocket::bind(&path)), "something that is no socket is there");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    }

    #[tokio::test]
    async fn a_path_that_is_too_long_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let refused = UnixSocket::bind(&folder.path().join("x".repeat(200)).join("socket"));
        assert!(why(refused).contains("shorter"), "the system's words");
    }
}
