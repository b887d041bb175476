//! The port to a client's terminals: where a person watches a command run, and may end it.
//!
//! Only commands in the foreground run there, and none that a sandbox is for: what a client starts is not confined by
//! us. Whether a command may run is decided before, in the same way.

use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;

/// Terminals that the client makes.
#[async_trait]
pub trait ClientTerminals: Debug + Send + Sync {
    /// Whether it makes any.
    fn offered(&self) -> bool;

    /// Starts a command in a new terminal. An error is a phrase for the reader; nothing runs then.
    async fn start(&self, command: TerminalCommand) -> Result<Box<dyn ClientTerminal>, String>;
}

/// A terminal with its command. Dropping it ends the command, if that still runs.
#[async_trait]
pub trait ClientTerminal: Send + Sync {
    /// What the client calls it.
    fn id(&self) -> &str;

    /// What was printed so far.
    async fn output(&self) -> Result<TerminalOutput, String>;

    /// Waits until the command ended.
    async fn exited(&self) -> Result<TerminalExit, String>;

    /// Ends the command; what it printed stays.
    async fn kill(&self) -> Result<(), String>;
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalCommand {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside those that the client gives it.
    pub set: Vec<(String, String)>,
    /// Where it runs; absolute.
    pub folder: PathBuf,
    /// Bytes of output that the client keeps; the beginning goes first.
    pub output_bytes_max: u64,
}

/// What a command printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The text.
    pub text: String,
    /// Whether its beginning is missing.
    pub is_cut: bool,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it, by its name.
    pub signal: Option<String>,
}
