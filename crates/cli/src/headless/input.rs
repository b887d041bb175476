//! The prompt: stdin, then the argument.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Most bytes taken from stdin. More than any model's context holds; the rest is refused, not dropped silently.
const STDIN_MAX: usize = 8 * 1024 * 1024;

/// How long an open pipe may stay silent before it counts as empty: a parent that never closes it would otherwise
/// hang the run.
const SILENCE_MAX: Duration = Duration::from_millis(500);

/// Why there is no prompt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// Nothing was given.
    #[error("no prompt: pass one with -p, as an argument, or on stdin")]
    Empty,
    /// Too much was given.
    #[error("read the prompt from stdin: it is larger than 8 MiB")]
    TooLarge,
    /// It could not be read.
    #[error("read the prompt from stdin: {0}")]
    Read(#[from] std::io::Error),
    /// It is not text.
    #[error("read the prompt from stdin: it is not UTF-8 text")]
    NotText,
}

/// What the agent is to read: what a pipe brought, and what was asked about it.
///
/// The two stay apart, since `@path` and commands are meant in the one and are data in the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    piped: Option<String>,
    text: String,
}

impl Prompt {
    /// Words alone.
    pub(crate) fn plain(text: String) -> Self {
        Self { piped: None, text }
    }

    /// As one text, for people.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        match &self.piped {
            None => Cow::Borrowed(&self.text),
            Some(piped) => Cow::Owned(format!("{piped}{}", self.text)),
        }
    }

    /// For the agent; the words come last.
    pub(crate) fn into_parts(self) -> Vec<String> {
        self.piped.into_iter().chain([self.text]).collect()
    }
}

/// What is on stdin (unless that is a terminal) and `argument`, in this order.
pub(crate) async fn read_prompt(argument: Option<String>) -> Result<Prompt, InputError> {
    let piped = if std::io::stdin().is_terminal() { String::new() } else { read(tokio::io::stdin()).await? };
    join(piped, argument.unwrap_or_default())
}

fn join(mut piped: String, argument: String) -> Result<Prompt, InputError> {
    match (piped.trim().is_empty(), argument.trim().is_empty()) {
        (true, true) => Err(InputError::Empty),
        (true, false) => Ok(Prompt::plain(argument)),
        (false, true) => Ok(Prompt::plain(piped)),
        (false, false) => {
            piped.push_str("\n\n");
            Ok(Prompt { piped: Some(piped), text: argument })
        }
    }
}

async fn read(mut input: impl AsyncRead + Unpin) -> Result<String, InputError> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        // Only the first byte is waited for with a limit: a slow writer that has begun is let finish.
        let read = if bytes.is_empty() {
            match tokio::time::timeout(SILENCE_MAX, input.read(&mut chunk)).await {
                Ok(read) => read?,
                Err(_) => 0,
            }
        } else {
            input.read(&mut chunk).await?
        };
        let Some(new) = chunk.get(..read).filter(|new| !new.is_empty()) else { break };
        bytes.extend_from_slice(new);
        if bytes.len() > STDIN_MAX {
            return Err(InputError::TooLarge);
        }
    }
    String::from_utf8(bytes).map_err(|_| InputError::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stdin_goes_before_the_argument() {
        let join = |piped: &str, argument: &str| join(piped.to_owned(), argument.to_owned());
        let both = join("a\n", "b").unwrap();
        assert_eq!(both.shown(), "a\n\n\nb");
        assert_eq!(both.into_parts(), ["a\n\n\n", "b"]);
        assert_eq!(join(" ", "b").unwrap(), Prompt::plain("b".to_owned()));
        assert_eq!(join("a", "").unwrap(), Prompt::plain("a".to_owned()));
        assert!(matches!(join("\n", " "), Err(InputError::Empty)));
    }

    #[tokio::test]
    async fn too_much_is_refused_and_bytes_must_be_text() {
        let big = vec![b'x'; STDIN_MAX + 1];
        assert!(matches!(read(big.as_slice()).await, Err(InputError::TooLarge)));
        assert!(matches!(read(&[0xff_u8][..]).await, Err(InputError::NotText)));
        assert_eq!(read("hé".as_bytes()).await.unwrap(), "hé");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_pipe_counts_as_empty() {
        let (_writer, reader) = tokio::io::duplex(8);
        assert_eq!(read(reader).await.unwrap(), "");
    }
}
