//! How do lines get onto the disk without holding anybody up? A queue, and a task that appends.
//!
//! A line that a crash or a full disk cut short is ended before the next one, so that it costs itself and nothing else.
//! What can't be written goes to the log in full, and the next line tries again.

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
            match order {
                Order::Append(line) => {
                    if let Err(error) = self.append(&mut file, &line).await {
                        // It may have got there in part: who opens the file anew sees to that.
                        file = None;
                        let line = String::from_utf8_lossy(&line);
                        let line = line.trim_end();
                        tracing::warn!(path = %self.path.display(), %error, line, "a line can't be written; here it is");
                    }
                }
                Order::Replace(lines) => {
                    // Another file will be there under the name.
                    file = None;
                    if let Err(error) = self.replace(lines).await {
                        tracing::warn!(path = %self.path.display(), %error, "lines can't be replaced");
                    }
                }
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

    /// Whether lines can be written at all, tried out before there are any.
    pub(crate) async fn check(&self) -> io::Result<()> {
        self.open().await.map(drop)
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
    use std::sync::{Arc, Mutex};

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

    /// A disk that is full, and a folder that is none.
    #[tokio::test]
    async fn what_can_not_be_written_is_in_the_log() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for (path, opens) in [("/dev/full".into(), true), (folder.path().join("file/lines"), false)] {
            let (_, writer) = line_file(Some(path.clone()));
            assert_eq!(writer.unwrap().check().await.is_ok(), opens, "{path:?}");
            let log = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&log);
            let subscriber = tracing_subscriber::fmt().with_writer(move || Pen(Arc::clone(&kept))).finish();
            let _guard = tracing::subscriber::set_default(subscriber);
            write(path.clone(), |file| {
                assert!(file.append(b"first decision".to_vec()));
                assert!(file.append(b"second decision".to_vec()));
            })
            .await;
            let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
            assert!(log.contains("first decision") && log.contains("second decision"), "{path:?}: {log}");
        }
    }

    struct Pen(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Pen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let (file, _writer) = line_file(Some("/nowhere".into()));
        assert!((0..WAITING_MAX).all(|_| file.append(b"x".to_vec())));
        assert!(!file.append(b"x".to_vec()));
        assert!(LineFile::default().append(b"x".to_vec()));
    }
}
