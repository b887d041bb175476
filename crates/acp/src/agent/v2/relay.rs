//! Lines between a client, the bridge and the agent end of version 1.
//!
//! One task: whoever does not read is not read for, and nobody waits for anybody else. What is on its way is bytes in
//! two bounded queues.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use convoke_protocol::SessionFactory;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::agent::serve::{self, FLUSH_MAX, LINE_BYTES_MAX, ServeError};
use crate::lines::{Line, Lines};

use super::bridge::{Bridge, Output};
use super::requests;

/// Bytes between the relay and the agent end; the size of a Linux pipe.
const PIPE_BYTES: usize = 64 * 1024;

/// A queue with more bytes than this takes no further line. One line may be longer.
const QUEUE_BYTES: usize = 64 * 1024;

/// A client with more bytes of unread messages than this is not read: the bridge answers some requests by itself.
const UNREAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A queue that was this large gives its memory back.
const QUEUE_KEPT: usize = 1024 * 1024;

/// Serves sessions of `factory` as [`serve`](crate::serve) does, and draft version 2 of the protocol to a client that
/// begins with it.
///
/// Any other client is served as by [`serve`](crate::serve), to the byte. Source: ACP v2, a draft that may change.
pub async fn serve_with_v2(
    factory: Arc<dyn SessionFactory>,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (from_agent, to_agent) = tokio::io::split(near);
    let (agent_input, agent_output) = tokio::io::split(far);
    let over = CancellationToken::new();
    let served = async {
        let _over = over.clone().drop_guard();
        serve::serve(factory, agent_input, agent_output, shutdown).await
    };
    let relay = Relay {
        mode: Mode::Undecided,
        to_client: Queue::new(output),
        to_agent: Queue::new(to_agent),
        client: Source::Open,
        agent_ended: false,
    };
    let relayed = async {
        tokio::select! {
            relayed = relay.run(input, from_agent) => relayed,
            () = too_late(&over) => {
                tracing::debug!("the client does not read; what was left for it is lost");
                Ok(())
            }
        }
    };
    let (served, relayed) = tokio::join!(served, relayed);
    served.and(relayed)
}

/// Ready once the agent end has been over for as long as a client may take to read the rest.
async fn too_late(over: &CancellationToken) {
    over.cancelled().await;
    tokio::time::sleep(FLUSH_MAX).await;
}

/// Bytes on their way to a pipe.
struct Queue<W> {
    pipe: W,
    bytes: VecDeque<u8>,
    unflushed: bool,
    closed: bool,
}

impl<W: AsyncWrite + Unpin> Queue<W> {
    fn new(pipe: W) -> Self {
        Self { pipe, bytes: VecDeque::new(), unflushed: false, closed: false }
    }

    fn line(&mut self, line: &[u8]) {
        if !self.closed {
            self.bytes.extend(line);
            self.bytes.push_back(b'\n');
        }
    }

    fn has_room(&self) -> bool {
        self.bytes.len() < QUEUE_BYTES
    }

    fn is_idle(&self) -> bool {
        self.bytes.is_empty() && !self.unflushed
    }

    /// Writes some of it; pending while there is nothing. Cancel-safe.
    async fn push(&mut self) -> io::Result<()> {
        if !self.bytes.is_empty() {
            if self.pipe.write_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.unflushed = true;
            if self.bytes.is_empty() && self.bytes.capacity() > QUEUE_KEPT {
                self.bytes = VecDeque::new();
            }
            return Ok(());
        }
        if self.unflushed {
            self.pipe.flush().await?;
            self.unflushed = false;
            return Ok(());
        }
        std::future::pending().await
    }

    /// Nothing is written from here on.
    fn give_up(&mut self) {
        self.closed = true;
        self.unflushed = false;
        self.bytes = VecDeque::new();
    }
}

/// What the client speaks.
enum Mode {
    /// Nobody knows before `initialize`.
    Undecided,
    V1,
    V2(Box<Bridge>),
}

/// Where the client's lines come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Open,
    /// In a line that is too long.
    Skipping,
    Ended,
}

/// The next line; none at the end of one that was left out. Cancel-safe.
async fn hear(lines: &mut Lines<impl AsyncRead + Unpin>, source: Source) -> io::Result<Option<Line>> {
    if source == Source::Skipping {
        return lines.skip().await.map(|()| None);
    }
    lines.next().await.map(Some)
}

struct Relay<C, A> {
    mode: Mode,
    to_client: Queue<C>,
    to_agent: Queue<A>,
    client: Source,
    agent_ended: bool,
}

impl<C: AsyncWrite + Unpin, A: AsyncWrite + Unpin> Relay<C, A> {
    async fn run(
        mut self,
        input: impl AsyncRead + Unpin,
        from_agent: impl AsyncRead + Unpin,
    ) -> Result<(), ServeError> {
        let mut client_lines = Lines::new(input, LINE_BYTES_MAX);
        // It is ours: what it says is bounded where it is made.
        let mut agent_lines = Lines::new(from_agent, usize::MAX);
        let mut result = Ok(());
        while !(self.agent_ended && self.to_client.is_idle()) {
            if self.client == Source::Ended && self.to_agent.is_idle() && !self.to_agent.closed {
                // The agent end sees the end of its input, and ends.
                let _ = self.to_agent.pipe.shutdown().await;
                self.to_agent.give_up();
            }
            let hears_client = self.to_agent.has_room() && self.to_client.bytes.len() < UNREAD_BYTES_MAX;
            let hears_agent = !self.agent_ended && self.to_client.has_room();
            tokio::select! {
                line = hear(&mut client_lines, self.client), if self.client != Source::Ended && hears_client => match line {
                    Ok(None) => self.client = Source::Open,
                    Ok(Some(Line::Bytes(line))) => self.client_said(&line),
                    Ok(Some(Line::TooLong)) => {
                        self.to_client.line(serve::too_long().as_bytes());
                        self.client = Source::Skipping;
                    }
                    Ok(Some(Line::End)) => self.client = Source::Ended,
                    Err(error) => {
                        result = Err(ServeError::Read(error));
                        self.client = Source::Ended;
                    }
                },
                line = agent_lines.next(), if hears_agent => match line {
                    Ok(Line::Bytes(line)) => self.agent_said(&line),
                    Ok(Line::TooLong | Line::End) | Err(_) => self.agent_ended = true,
                },
                pushed = self.to_agent.push() => {
                    if pushed.is_err() {
                        self.to_agent.give_up();
                    }
                }
                pushed = self.to_client.push() => {
                    // A client that stopped reading is a client that left, which is no failure.
                    if pushed.is_err() {
                        self.to_client.give_up();
                        self.client = Source::Ended;
                    }
                }
            }
        }
        result
    }

    fn client_said(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let mut output = Output::default();
        match &mut self.mode {
            Mode::V1 => self.to_agent.line(line),
            Mode::V2(bridge) => bridge.client(line, &mut output),
            Mode::Undecided => match requests::version_wanted(line) {
                Some(version) if version >= 2 => {
                    let mut bridge = Box::new(Bridge::new(std::hash::RandomState::new()));
                    bridge.client(line, &mut output);
                    if bridge.has_begun() {
                        self.mode = Mode::V2(bridge);
                    }
                }
                Some(_) => {
                    self.mode = Mode::V1;
                    self.to_agent.line(line);
                }
                None => self.to_agent.line(line),
            },
        }
        self.deliver(output);
    }

    fn agent_said(&mut self, line: &[u8]) {
        let Mode::V2(bridge) = &mut self.mode else { return self.to_client.line(line) };
        let mut output = Output::default();
        match serde_json::from_slice::<Value>(line) {
            Ok(message) => bridge.agent(message, &mut output),
            Err(error) => tracing::error!(%error, "our own message can't be read"),
        }
        self.deliver(output);
    }

    fn deliver(&mut self, output: Output) {
        for message in output.to_client {
            self.to_client.line(message.to_string().as_bytes());
        }
        for message in output.to_agent {
            self.to_agent.line(message.to_string().as_bytes());
        }
    }
}
