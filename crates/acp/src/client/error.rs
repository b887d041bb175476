//! What can go wrong with an agent, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::rpc_error::RpcError;

/// Why a call to an agent has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent answered with an error.
    #[error("call {method}: {error}")]
    Refused {
        /// The method.
        method: String,
        /// The answer.
        error: Box<RpcError>,
    },
    /// The agent is gone, or went before it answered.
    #[error("call {method}: {exit}")]
    Gone {
        /// The method.
        method: String,
        /// How it went.
        exit: Arc<Exit>,
    },
    /// The agent's answer lacks something.
    #[error("read the answer to {method}: {reason}")]
    Answer {
        /// The method.
        method: String,
        /// What it lacks.
        reason: String,
    },
    /// The session was cancelled and the agent has not ended the turn since; it may still be at work.
    #[error("end the turn: the agent has not answered {} s after session/cancel", .after.as_secs())]
    CancelIgnored {
        /// How long it was given.
        after: Duration,
    },
}

/// Why an agent could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program could not be run.
    #[error("run {}", .program.display())]
    Spawn {
        /// The program.
        program: OsString,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended before it answered `initialize`.
    #[error("start the agent: {0}")]
    Exited(Arc<Exit>),
    /// It did not answer `initialize` in time, and was ended.
    #[error("start the agent: no answer to initialize within {} ms", .after.as_millis())]
    InitializeTimeout {
        /// The deadline.
        after: Duration,
        /// The last of what it wrote to stderr.
        stderr_tail: String,
    },
    /// It answered `initialize` with an error.
    #[error("start the agent: {0}")]
    Refused(RpcError),
    /// It speaks another version of the protocol.
    #[error("start the agent: it speaks protocol version {0}, not 1")]
    Version(Value),
}

/// How an agent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What ended it.
    pub cause: EndCause,
    /// Its exit code. `None` if a signal ended it, or if it was never a process of ours.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The last of what it wrote to stderr, at most 64 KiB.
    pub stderr_tail: String,
}

/// What ended an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// [`AgentChild::shutdown`](crate::AgentChild::shutdown), or nobody held it any longer.
    Closed,
    /// It exited, or closed its stdout.
    Exited,
    /// It wrote a line longer than [`AgentOptions::line_bytes_max`](crate::AgentOptions::line_bytes_max).
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// It left more requests unanswered than are kept.
    TooManyRequests {
        /// The limit.
        limit: usize,
    },
    /// The connection failed on our side.
    Broken(String),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            EndCause::Closed => f.write_str("the agent was closed")?,
            EndCause::Exited => f.write_str("the agent exited")?,
            EndCause::LineTooLong { limit } => write!(f, "the agent wrote a line of more than {limit} bytes")?,
            EndCause::TooManyRequests { limit } => write!(f, "the agent has more than {limit} requests waiting")?,
            EndCause::Broken(reason) => write!(f, "the connection to the agent failed: {reason}")?,
        }
        match (self.exit_code, self.signal) {
            (Some(code), _) => write!(f, " (exit code {code})")?,
            (None, Some(signal)) => write!(f, " (signal {signal})")?,
            (None, None) => {}
        }
        match self.stderr_tail.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(last) => write!(f, ": {}", last.trim()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_reads_as_one_line_with_the_last_words() {
        let exit = |cause, exit_code, signal, stderr: &str| {
            Exit { cause, exit_code, signal, stderr_tail: stderr.to_owned() }.to_string()
        };
        assert_eq!(exit(EndCause::Exited, Some(3), None, "starting\nboom\n\n"), "the agent exited (exit code 3): boom");
        assert_eq!(exit(EndCause::Closed, None, Some(9), ""), "the agent was closed (signal 9)");
        assert_eq!(
            exit(EndCause::LineTooLong { limit: 7 }, None, None, ""),
            "the agent wrote a line of more than 7 bytes"
        );
    }
}
