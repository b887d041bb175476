//! What may a guarded program change, and whom may it reach?
//!
//! A [`Confinement`] travels on the guard's command line. The guard puts it on itself between its start and the
//! program's, so that it holds for the program and for all that the program starts, and nothing can take it off again.
//! Reading stays allowed everywhere. What can't be enforced is not enforced by half: then the program does not run.
//!
//! | | Landlock | Bubblewrap |
//! |---|---|---|
//! | write, create, rename, truncate outside of the writable folders | denied | denied (read-only mounts) |
//! | change mode, owner, times, attributes of one's own files outside | **possible** | denied |
//! | sockets of the network, with the network off | denied (seccomp, and Landlock for TCP) | denied (own namespace) |
//! | connecting to a Unix socket, with the network off | denied | denied under `/run` only |
//! | signals to processes outside | denied from Linux 6.12 on | possible |
//! | typing into the user's terminal | denied | denied (own session) |

mod bubblewrap;
mod landlock;
mod seccomp;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The limits of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// What enforces it.
    pub via: Mechanism,
    /// Folders that may be written, with all below; files too. Absolute. Those that don't exist are left out.
    pub writable: Vec<PathBuf>,
    /// Whether the network may be used.
    pub network: bool,
}

/// What enforces limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The kernel's Landlock, and a seccomp filter.
    Landlock,
    /// The program `bwrap`.
    Bubblewrap,
}

impl Mechanism {
    /// In order of preference: Landlock starts no further process.
    pub const ALL: [Self; 2] = [Self::Landlock, Self::Bubblewrap];

    /// The name on command lines and in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Bubblewrap => "bwrap",
        }
    }

    /// The mechanism of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Whether this system has it; otherwise what is missing, for people.
    ///
    /// Nothing is changed by asking.
    pub fn check(self) -> Result<(), String> {
        match self {
            Self::Landlock => landlock::check().and_then(|()| seccomp::check()),
            Self::Bubblewrap => bubblewrap::check(),
        }
    }
}

/// Devices that programs write to as a matter of course.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"];

const VIA: &str = "--via=";
const NETWORK: &str = "--network";
const WRITABLE: &str = "--writable=";

impl Confinement {
    /// As arguments of the guard.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args = vec![OsString::from(format!("{VIA}{}", self.via.name()))];
        args.extend(self.network.then(|| NETWORK.into()));
        args.extend(self.writable.iter().map(|path| {
            let mut arg = OsString::from(WRITABLE);
            arg.push(path);
            arg
        }));
        args
    }

    /// Reads what [`Self::to_args`] writes; `None` if it is anything else.
    pub(super) fn parse(args: &[OsString]) -> Option<Self> {
        let (via, rest) = args.split_first()?;
        let via = Mechanism::parse(via.to_str()?.strip_prefix(VIA)?)?;
        let mut confinement = Self { via, writable: Vec::new(), network: false };
        for arg in rest {
            match after(arg, WRITABLE) {
                Some(path) => confinement.writable.push(path.into()),
                None if arg == NETWORK => confinement.network = true,
                None => return None,
            }
        }
        Some(confinement)
    }

    /// Limits the calling thread where that is how it is done, and returns the command that starts `program` within
    /// the limits. There is no way back for the thread.
    pub(super) fn enter(&self, program: &OsStr, args: &[OsString]) -> io::Result<Command> {
        let writable: Vec<&Path> = self.writable.iter().map(PathBuf::as_path).filter(|path| path.exists()).collect();
        match self.via {
            Mechanism::Landlock => {
                let devices = DEVICES.iter().map(Path::new).filter(|path| path.exists());
                let truncate = landlock::restrict(writable.into_iter().chain(devices), self.network)?;
                seccomp::restrict(self.network, truncate)?;
                let mut command = Command::new(program);
                command.args(args);
                Ok(command)
            }
            Mechanism::Bubblewrap => {
                let mut command = Command::new(bubblewrap::program()?);
                command.args(bubblewrap::args(&writable, self.network)).arg("--").arg(program).args(args);
                Ok(command)
            }
        }
    }
}

/// What follows `prefix`, whatever bytes it has.
fn after(arg: &OsStr, prefix: &str) -> Option<OsString> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let rest = arg.as_bytes().strip_prefix(prefix.as_bytes())?;
    Some(OsString::from_vec(rest.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn what_is_written_is_read() {
        let odd = PathBuf::from(OsString::from_vec(b"/a b/\xff".to_vec()));
        for via in Mechanism::ALL {
            for network in [false, true] {
                let confinement = Confinement { via, network, writable: vec!["/work".into(), odd.clone()] };
                assert_eq!(Confinement::parse(&confinement.to_args()), Some(confinement));
            }
        }
    }

    #[test]
    fn anything_else_is_no_confinement() {
        for args in [&[][..], &["--via=hope"], &["--network"], &["--via=landlock", "--everything"]] {
            assert_eq!(Confinement::parse(&args.iter().map(OsString::from).collect::<Vec<_>>()), None, "{args:?}");
        }
    }
}
