//! How does a log line reach stderr while whoever logs goes on at once?
//!
//! ```text
//! event ─▶ Lines ─▶ buffer ─▶ one thread ─▶ stderr
//!                     │ full: dropped, counted, told when there is room again
//! ```
//! Lines are written together, a few milliseconds after the first of them; warnings and errors at once, and with them
//! what came before. The thread starts with the first line, so a program that says nothing pays nothing.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that wait: some two thousand lines, a tenth of a second at the daemon's most requests. A reader of stderr that
/// stands still for longer loses lines rather than holding up everybody.
const BUFFER_BYTES: usize = 256 * 1024;

/// How long a line may wait for others to be written with; nobody who reads along notices.
const LINGER: Duration = Duration::from_millis(10);

/// How long the end of the process waits for a stderr that takes nothing.
const FAREWELL: Duration = Duration::from_secs(1);

/// Takes lines until it is dropped: then what waits is written, if stderr takes it.
pub(super) struct Buffer(Arc<Shared>);

/// Where the subscriber writes its lines.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

/// One event's line.
pub(super) struct Line<'a> {
    shared: &'a Arc<Shared>,
    urgent: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Something to write, or the end.
    work: Condvar,
    /// The thread has written everything after the end.
    over: Condvar,
    about_dropped: fn(u64) -> String,
    linger: Duration,
}

struct State {
    waiting: Vec<u8>,
    dropped: u64,
    /// What waits should not wait for more.
    urgent: bool,
    closed: bool,
    writer: Writer,
}

/// What becomes of the lines.
enum Writer {
    /// No line came yet; here is where they will go.
    Idle(Box<dyn Write + Send>),
    /// A thread writes them.
    Running,
    /// The thread has written all, or there is none to be had.
    Over,
}

impl Buffer {
    /// `about_dropped` makes the line that tells how many were lost.
    pub(super) fn new(out: impl Write + Send + 'static, about_dropped: fn(u64) -> String) -> Self {
        Self::lingering(out, about_dropped, LINGER)
    }

    fn lingering(out: impl Write + Send + 'static, about_dropped: fn(u64) -> String, linger: Duration) -> Self {
        let writer = Writer::Idle(Box::new(out));
        let state = State { waiting: Vec::new(), dropped: 0, urgent: false, closed: false, writer };
        let shared =
            Shared { state: Mutex::new(state), work: Condvar::new(), over: Condvar::new(), about_dropped, linger };
        Self(Arc::new(shared))
    }

    pub(super) fn lines(&self) -> Lines {
        Lines(Arc::clone(&self.0))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        self.0.work.notify_one();
        let running = |state: &mut State| matches!(state.writer, Writer::Running);
        // A thread that stderr holds up ends with the process.
        drop(self.0.over.wait_timeout_while(state, FAREWELL, running));
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { shared: &self.0, urgent: false }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line<'a> {
        Line { shared: &self.0, urgent: *about.level() <= Level::WARN }
    }
}

impl Write for Line<'_> {
    /// Takes the line or drops it; the subscriber hands over a whole one at a time.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.shared.take(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What the lock protects is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, line: &[u8], urgent: bool) {
        let mut state = self.lock();
        if state.closed || state.waiting.len() + line.len() > BUFFER_BYTES {
            state.dropped += 1;
            return;
        }
        let first = state.waiting.is_empty();
        state.waiting.extend_from_slice(line);
        let hurry = (urgent || state.waiting.len() > BUFFER_BYTES / 2) && !state.urgent;
        state.urgent |= hurry;
        if let Writer::Idle(_) = state.writer
            && let Writer::Idle(out) = std::mem::replace(&mut state.writer, Writer::Running)
        {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("log".to_owned()).stack_size(STACK_BYTES);
            if thread.spawn(move || shared.write(out)).is_err() {
                // Without a thread there is no log; the program is in worse trouble than that.
                state.writer = Writer::Over;
            }
        } else if first || hurry {
            self.work.notify_one();
        }
    }

    /// The thread: writes what waits until the end.
    fn write(&self, mut out: Box<dyn Write + Send>) {
        let mut batch = Vec::new();
        loop {
            let state = self.lock();
            let nothing = |state: &mut State| state.waiting.is_empty() && !state.closed;
            let state = self.work.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner);
            let patient = |state: &mut State| !state.urgent && !state.closed;
            let waited = self.work.wait_timeout_while(state, self.linger, patient);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.waiting.is_empty() {
                state.writer = Writer::Over;
                self.over.notify_all();
                return;
            }
            std::mem::swap(&mut state.waiting, &mut batch);
            state.urgent = false;
            let dropped = std::mem::take(&mut state.dropped);
            drop(state);
            if dropped > 0 {
                batch.extend_from_slice((self.about_dropped)(dropped).as_bytes());
            }
            // A stderr that is gone has nobody to be told.
            let _ = out.write_all(&batch).and_then(|()| out.flush());
            batch.clear();
        }
    }
}

/// The thread's stack: it copies bytes and calls `write`.
const STACK_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Tells what is written, and waits for leave after each write.
    struct Gate {
        written: Sender<String>,
        leave: Receiver<()>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // A test that has seen enough is gone.
            let _ = self.written.send(String::from_utf8_lossy(bytes).into_owned());
            let _ = self.leave.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    fn gate(linger: Duration) -> (Buffer, Receiver<String>, Sender<()>) {
        let ((written, seen), (go, leave)) = (channel(), channel());
        (Buffer::lingering(Gate { written, leave }, |dropped| format!("lost {dropped}\n"), linger), seen, go)
    }

    fn log(buffer: &Buffer, line: &str, urgent: bool) {
        Line { shared: &buffer.0, urgent }.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn a_warning_takes_along_what_waits_for_company() {
        let (buffer, seen, go) = gate(Duration::MAX);
        log(&buffer, "a\n", false);
        log(&buffer, "b\n", false);
        log(&buffer, "careful\n", true);
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "a\nb\ncareful\n");
        go.send(()).unwrap();
    }

    #[test]
    fn the_end_writes_what_waits() {
        let (buffer, seen, go) = gate(Duration::MAX);
        log(&buffer, "last\n", false);
        go.send(()).unwrap();
        drop(buffer);
        assert_eq!(seen.try_recv().unwrap(), "last\n");
    }

    #[test]
    fn a_program_that_says_nothing_ends_without_a_thread() {
        let (buffer, seen, _go) = gate(Duration::MAX);
        drop(buffer);
        assert!(seen.try_recv().is_err());
    }

    #[test]
    fn a_stderr_that_stands_still_loses_lines_and_is_told_how_many() {
        let (buffer, seen, go) = gate(Duration::ZERO);
        log(&buffer, "stuck\n", true);
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "stuck\n");
        // The thread is inside of its write now.
        let line = "x".repeat(BUFFER_BYTES / 4 - 1) + "\n";
        for _ in 0..7 {
            log(&buffer, &line, false);
        }
        drop(go);
        let batch = seen.recv_timeout(PATIENCE).unwrap();
        assert_eq!(batch.matches('x').count(), 4 * (line.len() - 1));
        assert!(batch.ends_with("lost 3\n"), "{batch:?}");
        log(&buffer, "again\n", true);
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), "again\n");
    }
}
