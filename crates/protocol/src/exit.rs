//! The one table of process exit codes.

/// Why the process ends, as its exit code.
///
/// Source: the runtime specification §15.2, widened: an HTTP status never leaks into an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// The work was done.
    Success = 0,
    /// Anything without a code of its own. Every boot failure of `serve` is this one.
    Failure = 1,
    /// No credential, or one that the provider refuses.
    Auth = 41,
    /// No prompt, or arguments that contradict each other.
    Input = 42,
    /// The sandbox that was asked for can't be had.
    Sandbox = 44,
    /// Every model that could have answered is out of quota.
    Quota = 45,
    /// A denied tool call ended the run.
    Denied = 46,
    /// The loop detector stopped the run.
    Loop = 47,
    /// The token budget is used up.
    Budget = 48,
    /// A settings file can't be used.
    Configuration = 52,
    /// The turn limit is reached.
    Turns = 53,
    /// A tool failed in a way that ends the run.
    Tool = 54,
    /// The folder is not trusted.
    Trust = 55,
    /// Cancelled by the user.
    Cancelled = 130,
}

impl ExitCode {
    /// The number that the process ends with.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}
