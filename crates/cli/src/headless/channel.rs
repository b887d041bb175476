//! `--input-format stream-json`: what comes in on stdin while the agent works, one JSON object a line.
//!
//! | line | meaning |
//! |---|---|
//! | `{"type": "message", "role": "user", "content": "…"}` | a prompt; while one is worked on, a word to that work |
//! | `{"type": "user", "message": {"role": "user", "content": …}}` | the same, as other programs write it |
//! | `{"type": "permission_response", "request_id": "…", "option_id": "…"}` | an answer; without `option_id`, none will come |
//! | `{"type": "interrupt"}` | end the running prompt |

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::mpsc;

/// Longest line: what stdin may hold as a prompt, and its escapes.
const LINE_MAX: u64 = 16 * 1024 * 1024;

/// Lines that wait to be looked at. More than this, and the writer waits.
const LINES_WAITING_MAX: usize = 16;

/// One line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Message(String),
    Answer {
        request_id: String,
        option_id: Option<String>,
    },
    Interrupt,
    /// What is wrong with it.
    Odd(String),
}

/// The lines of stdin. Reading goes on in a task that ends with the process.
pub(super) struct Lines {
    lines: mpsc::Receiver<Line>,
    _reader: tokio_util::task::AbortOnDropHandle<()>,
}

impl Lines {
    pub(super) fn of_stdin() -> Self {
        let (sender, lines) = mpsc::channel(LINES_WAITING_MAX);
        let reader = tokio::spawn(read(BufReader::new(tokio::io::stdin()), sender));
        Self { lines, _reader: tokio_util::task::AbortOnDropHandle::new(reader) }
    }

    /// The next line; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Line> {
        self.lines.recv().await
    }
}

async fn read(mut input: impl AsyncBufRead + Unpin, lines: mpsc::Sender<Line>) {
    loop {
        let mut bytes = Vec::new();
        let line = match (&mut input).take(LINE_MAX).read_until(b'\n', &mut bytes).await {
            Ok(0) => return,
            Ok(_) if bytes.len() as u64 == LINE_MAX && !bytes.ends_with(b"\n") => {
                // What follows can't be told from a line of its own.
                let _ = lines.send(Line::Odd(format!("read stdin: a line is longer than {LINE_MAX} bytes"))).await;
                return;
            }
            Ok(_) if bytes.trim_ascii().is_empty() => continue,
            Ok(_) => parse(&bytes),
            Err(error) => Line::Odd(format!("read stdin: {error}")),
        };
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

fn parse(bytes: &[u8]) -> Line {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Line::Odd(format!("read a line of stdin as JSON: {error}")),
    };
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
    match text("type").as_deref() {
        Some("message") => message(&value),
        Some("user") => message(value.get("message").unwrap_or(&value)),
        Some("permission_response") => match text("request_id") {
            Some(request_id) => Line::Answer { request_id, option_id: text("option_id") },
            None => Line::Odd("use a permission_response: it has no request_id".to_owned()),
        },
        Some("interrupt") => Line::Interrupt,
        Some(other) => Line::Odd(format!("use a line of type \"{other}\": it is not known")),
        None => Line::Odd("use a line of stdin: it has no type".to_owned()),
    }
}

fn message(value: &Value) -> Line {
    if value.get("role").and_then(Value::as_str).is_some_and(|role| role != "user") {
        return Line::Odd("use a message: only the user's can be sent".to_owned());
    }
    let text = match value.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    if text.trim().is_empty() { Line::Odd("use a message: it has no text".to_owned()) } else { Line::Message(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_or_said_to_be_odd() {
        let message = |text: &str| Line::Message(text.to_owned());
        assert_eq!(parse(br#"{"type": "message", "role": "user", "content": "hi"}"#), message("hi"));
        let parts = br#"{"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "a"}]}}"#;
        assert_eq!(parse(parts), message("a"));
        assert_eq!(
            parse(br#"{"type": "permission_response", "request_id": "ask-1", "option_id": "x"}"#),
            Line::Answer { request_id: "ask-1".to_owned(), option_id: Some("x".to_owned()) }
        );
        assert_eq!(parse(br#"{"type": "interrupt"}"#), Line::Interrupt);
        for odd in [&b"{"[..], b"1", br#"{"type": "x"}"#, br#"{"type": "message", "content": " "}"#, b"\xff"] {
            assert!(matches!(parse(odd), Line::Odd(_)), "{odd:?}");
        }
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_read_at_the_end() {
        let (sender, mut lines) = mpsc::channel(4);
        read(&b"\n{\"type\": \"interrupt\"}\n\n{\"type\": \"interrupt\"}"[..], sender).await;
        assert_eq!((lines.recv().await, lines.recv().await), (Some(Line::Interrupt), Some(Line::Interrupt)));
        assert_eq!(lines.recv().await, None);
    }
}
