//! The prompt: stdin, then the argument.

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

/// Joins what is on stdin (unless that is a terminal) and `argument`, in this order.
pub(crate) async fn read_prompt(argument: Option<String>) -> Result<String, InputError> {
    let piped = if std::io::stdin().is_terminal() { String::new() } else { read(tokio::io::stdin()).await? };
    join(&piped, argument.as_deref().unwrap_or_default())
}

fn join(piped: &str, argument: &str) -> Result<String, InputError> {
    match (piped.trim().is_empty(), argument.trim().is_empty()) {
        (true, true) => Err(InputError::Empty),
        (true, false) => Ok(argument.to_owned()),
        (false, true) => Ok(piped.to_owned()),
        (false, false) => Ok(format!("{piped}\n\n{argument}")),
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
        assert_eq!(join("a\n", "b").unwrap(), "a\n\n\nb");
        assert_eq!(join(" ", "b").unwrap(), "b");
        assert_eq!(join("a", "").unwrap(), "a");
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
