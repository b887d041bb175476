//! How the process ends, and its last words.

use std::io::Write;

use convoke_protocol::ExitCode;

/// The process's end: a code of the one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(ExitCode);

impl Exit {
    pub(crate) fn ok() -> Self {
        Self(ExitCode::Success)
    }

    /// Says why on stderr and ends with `code`.
    pub(crate) fn because(code: ExitCode, why: impl std::fmt::Display) -> Self {
        complain(&why.to_string());
        Self(code)
    }

    /// What a shell sees.
    pub(crate) fn code(self) -> u8 {
        self.0.code()
    }
}

impl From<ExitCode> for Exit {
    fn from(code: ExitCode) -> Self {
        Self(code)
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.code().into()
    }
}

/// One line on stderr. Nobody to read it is no reason to fail.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "convoke: {line}");
}

/// One line on stdout.
pub(crate) fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
