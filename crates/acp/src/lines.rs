//! Lines from a pipe whose writer is not trusted: how long may one get?

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

/// Bytes read from the pipe at once; the size of a Linux pipe.
const CHUNK: usize = 64 * 1024;

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end. The last one may lack its newline.
    Bytes(Vec<u8>),
    /// More than the limit without a newline; nothing after it can be read before [`Lines::skip`].
    TooLong,
    /// The pipe is closed.
    End,
}

/// Reads lines of at most `limit` bytes.
pub struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads from `reader`; a line longer than `limit` ends it.
    pub fn new(reader: R, limit: usize) -> Self {
        Self { reader: BufReader::with_capacity(CHUNK, reader), line: Vec::new(), limit }
    }

    /// The next line. Cancel-safe: what was read of a line stays here.
    pub async fn next(&mut self) -> io::Result<Line> {
        loop {
            let chunk = self.reader.fill_buf().await?;
            if chunk.is_empty() {
                let last = std::mem::take(&mut self.line);
                return Ok(if last.is_empty() { Line::End } else { Line::Bytes(last) });
            }
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let part = chunk.get(..newline.unwrap_or(chunk.len())).unwrap_or_default();
            if self.line.len() + part.len() > self.limit {
                return Ok(Line::TooLong);
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(newline.is_some());
            consume(&mut self.reader, used);
            if newline.is_some() {
                return Ok(Line::Bytes(std::mem::take(&mut self.line)));
            }
        }
    }
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Leaves out the rest of a line that was too long. Cancel-safe.
    pub async fn skip(&mut self) -> io::Result<()> {
        self.line = Vec::new();
        loop {
            let chunk = self.reader.fill_buf().await?;
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let used = newline.map_or(chunk.len(), |at| at + 1);
            let over = newline.is_some() || chunk.is_empty();
            consume(&mut self.reader, used);
            if over {
                return Ok(());
            }
        }
    }
}

fn consume(reader: &mut (impl AsyncBufRead + Unpin), bytes: usize) {
    reader.consume(bytes);
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(input: &'static [u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(input, limit);
        let mut all = Vec::new();
        loop {
            let line = lines.next().await.unwrap();
            let last = matches!(line, Line::End | Line::TooLong);
            all.push(line);
            if last {
                return all;
            }
        }
    }

    fn bytes(text: &str) -> Line {
        Line::Bytes(text.into())
    }

    #[tokio::test]
    async fn splits_at_newlines_and_keeps_the_last_partial_line() {
        assert_eq!(read_all(b"one\n\ntwo", 3).await, [bytes("one"), bytes(""), bytes("two"), Line::End]);
        assert_eq!(read_all(b"", 3).await, [Line::End]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_not_kept() {
        assert_eq!(read_all(b"abc\nabcd\n", 3).await, [bytes("abc"), Line::TooLong]);
        assert_eq!(read_all(b"abcd", 3).await, [Line::TooLong]);
    }

    #[tokio::test]
    async fn what_comes_behind_a_line_over_the_limit_can_be_read() {
        let mut lines = Lines::new(&b"abcdef\nabc\nabcd"[..], 3);
        assert_eq!(lines.next().await.unwrap(), Line::TooLong);
        lines.skip().await.unwrap();
        assert_eq!((lines.next().await.unwrap(), lines.next().await.unwrap()), (bytes("abc"), Line::TooLong));
        lines.skip().await.unwrap();
        assert_eq!(lines.next().await.unwrap(), Line::End);
    }

    #[tokio::test]
    async fn lines_longer_than_a_chunk_are_joined() {
        let text = "x".repeat(3 * CHUNK);
        let input: &'static [u8] = Box::leak(format!("{text}\nend\n").into_bytes().into_boxed_slice());
        assert_eq!(read_all(input, 4 * CHUNK).await, [bytes(&text), bytes("end"), Line::End]);
    }
}
