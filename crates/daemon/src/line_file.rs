//! How do lines get onto the disk without holding anybody up? A queue, and a task that appends.
//!
//! A line that a crash cut short is ended before the next one, so that it costs itself and nothing else.

use std::io::{self, SeekFrom};
use std::path::PathBuf;

use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Lines that wait for the disk: some minutes of the busiest team.
const WAITING_MAX: usize = 1024;

#[derive(Debug)]
enum Order {
    Append(Vec<u8>),
    Replace(Vec<u8>),
}

/// Takes lines for a file; without one it takes nothing.
#[derive(Debug, Default)]
pub(crate) struct LineFile {
    orders: Option<mpsc::Sender<Order>>,
}

/// Writes what a [`LineFile`] takes; to be run by the owner until it ends.
#[derive(Debug)]
pub(crate) struct LineWriter {
    path: PathBuf,
    orders: mpsc::Receiver<Order>,
}

/// A file of lines at `path`, or nothing.
pub(crate) fn line_file(path: Option<PathBuf>) -> (LineFile, Option<LineWriter>) {
    let Some(path) = path else { return (LineFile::default(), None) };
    let (sender, orders) = mpsc::channel(WAITING_MAX);
    (LineFile { orders: Some(sender) }, Some(LineWriter { path, orders }))
}

impl LineFile {
    /// Adds a line at the end. `false` if there is no room for it.
    pub(crate) fn append(&self, mut line: Vec<u8>) -> bool {
        line.push(b'\n');
        self.order(Order::Append(line))
    }

    /// Puts these lines in the place of all others, at once or not at all. `false` if there is no room for them.
    pub(crate) fn replace(&self, lines: Vec<u8>) -> bool {
        self.order(Order::Replace(lines))
    }

    fn order(&self, order: Order) -> bool {
        self.orders.as_ref().is_none_or(|orders| orders.try_send(order).is_ok())
    }
}

impl LineWriter {
    /// Writes until the [`LineFile`] is dropped and everything is on its way to the disk.
    pub(crate) async fn run(mut self) {
        let mut file = None;
        while let Some(order) = self.orders.recv().await {
            let done = match order {
                Order::Append(line) => self.append(&mut file, &line).await,
                Order::Replace(lines) => {
                    // Another file will be there under the name.
                    file = None;
                    self.replace(lines).await
                }
            };
            if let Err(error) = done {
                tracing::warn!(path = %self.path.display(), %error, "a line can't be written");
            }
        }
    }

    async fn append(&self, open: &mut Option<File>, line: &[u8]) -> io::Result<()> {
        let file = match open {
            Some(file) => file,
            None => open.insert(self.open().await?),
        };
        file.write_all(line).await?;
        file.flush().await
    }

    async fn open(&self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        // What is in it concerns the owner alone.
        let mut options = OpenOptions::new();
        let mut file = options.create(true).read(true).append(true).mode(0o600).open(&self.path).await?;
        if file.metadata().await?.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1)).await?;
            file.read_exact(&mut last).await?;
            if last != *b"\n" {
                file.write_all(b"\n").await?;
            }
        }
        Ok(file)
    }

    async fn replace(&self, lines: Vec<u8>) -> io::Result<()> {
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || convoke_stdx::write_atomic(&path, &lines)).await;
        written.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn write(path: PathBuf, act: impl FnOnce(&LineFile)) {
        let (file, writer) = line_file(Some(path));
        act(&file);
        drop(file);
        writer.unwrap().run().await;
    }

    #[tokio::test]
    async fn a_torn_line_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/lines");
        write(path.clone(), |file| assert!(file.append(b"one".to_vec()))).await;
        std::fs::write(&path, "one\ntw").unwrap();
        write(path.clone(), |file| assert!(file.append(b"three".to_vec()))).await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");
    }

    #[tokio::test]
    async fn lines_after_a_replacement_go_to_the_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines");
        write(path.clone(), |file| {
            assert!(file.append(b"old".to_vec()));
            assert!(file.replace(b"kept\n".to_vec()));
            assert!(file.append(b"new".to_vec()));
        })
        .await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\nnew\n");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let (file, _writer) = line_file(Some("/nowhere".into()));
        assert!((0..WAITING_MAX).all(|_| file.append(b"x".to_vec())));
        assert!(!file.append(b"x".to_vec()));
        assert!(LineFile::default().append(b"x".to_vec()));
    }
}
